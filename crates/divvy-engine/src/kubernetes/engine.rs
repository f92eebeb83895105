//! The engine: what the watches report goes into the [`World`]; what the core wants goes to the API server.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use divvy_core::action::Action;
use divvy_core::engine::{Abilities, EndedHow, Engine, LaunchFailure, Observation};
use divvy_core::id::{AllocationId, Term};
use divvy_core::time::Span;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::groups::{Groups, Kind, OfCoscheduling, OfVolcano, PodGroup};
use super::lane::Lane;
use super::latest::Latest;
use super::lease::{Candidate, Leadership};
use super::objects::{Condition, Meta, Node, Pod, QueueObject, QueueStatus};
use super::waiting::{PodNews, Subject};
use super::watch::{self, Change, Watched};
use super::window::Window;
use super::world::World;
use super::writes::{self, Bound, NotBound, Place, Post, Write};

/// Why the cluster cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig {file} cannot be used: {error}. Name another one by --kubeconfig")]
    Kubeconfig {
        /// Which file.
        file: String,
        /// What is wrong.
        error: String,
    },
    /// Nothing tells which cluster is meant.
    #[error("nothing says how the cluster is reached: {0}. Say --kubeconfig FILE")]
    Nowhere(String),
    /// No client can be made from the configuration.
    #[error("no connection to the cluster can be made: {0}")]
    Client(String),
    /// The program has no rights in the cluster.
    #[error(
        "the cluster does not let it: {0}. `divvy kube manifests | kubectl apply -f -` gives it what it needs"
    )]
    Rights(String),
    /// The lease that says who leads cannot be written.
    #[error("the lease that says who leads cannot be written: {0}")]
    Lease(String),
    /// The threads that talk to it cannot be started.
    #[error("starting threads that talk to the cluster: {0}")]
    Threads(#[from] std::io::Error),
}

/// Which cluster to use, and which part of it is the pool's.
#[derive(Clone, Debug)]
pub struct Site {
    /// The kubeconfig; if `None`, `$KUBECONFIG`, `~/.kube/config` or the service account inside the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Pods that name this scheduler belong to the pool.
    pub scheduler: String,
    /// Nodes with these labels belong to the pool, as a label selector; all, if empty.
    pub nodes: String,
    /// Queues with these labels belong to the pool, as a label selector; all, if empty.
    pub queues: String,
    /// How long a leader leads without renewing its lease. A request may take a third of it.
    pub lease: Duration,
}

/// What the threads report.
enum News {
    Nodes(Change<Node>),
    Pods(Change<Pod>),
    Queues(Change<QueueObject>),
    Groups(Kind, Change<PodGroup>),
    Bound(Bound),
}

/// Pods of a Kubernetes cluster. Calls do not block: the engine's own threads talk to the API server.
pub struct KubernetesEngine {
    world: World,
    news: Receiver<News>,
    /// Urgent writes (bindings, evictions), and patient ones (conditions, which may wait).
    writes: (UnboundedSender<Write>, UnboundedSender<Write>),
    queues: Vec<Change<QueueObject>>,
    queues_listed: bool,
    groups: Groups,
    group_news: Vec<PodNews>,
    term: Term,
    /// Allocations that were stopped before they had a pod: they never get one.
    stopped: HashSet<AllocationId>,
    /// Why tasks are about to be stopped.
    causes: HashMap<AllocationId, Condition>,
    /// Time limits of tasks that are about to get their nodes and whose pods have none.
    limits: HashMap<AllocationId, Span>,
    leadership: Arc<Leadership>,
    /// What was last written about pods. Once a pod has its node, nothing more is said about its waiting.
    latest: Arc<Latest>,
    candidate: Candidate,
    /// Dropped last, which ends the threads.
    runtime: Runtime,
}

impl Watched for Node {
    const PATH: &'static str = "/api/v1/nodes";
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Watched for Pod {
    const PATH: &'static str = "/api/v1/pods";
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Watched for QueueObject {
    const PATH: &'static str = "/apis/scheduling.divvy.dev/v1alpha1/queues";
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

impl KubernetesEngine {
    /// Connects to a cluster, waits until it may lead, and starts the watches; `None` if `end` was set before that.
    pub fn connect(site: &Site, end: &AtomicBool) -> Result<Option<(Self, Term)>, ConnectError> {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let client = threads.block_on(client(site.kubeconfig.as_deref()))?;
        let candidate = Candidate::new(client.clone(), &site.scheduler, site.lease);
        let Some((term, leadership)) = threads.block_on(candidate.clone().lead(end))? else {
            return Ok(None);
        };
        let (tell, news) = mpsc::channel();
        watch_all(&threads, (&client, site), &tell);
        let (urgent, patient) = Lane::pair();
        let latest = Arc::new(Latest::default());
        let post = |lane| {
            let (client, leadership, latest) = (client.clone(), Arc::clone(&leadership), Arc::clone(&latest));
            Post { client, leadership, window: Arc::new(Window::new()), lane, latest }
        };
        let (urgent, patient) = (post(urgent), post(patient));
        let writes = (write_all(&threads, urgent, &tell), write_all(&threads, patient, &tell));
        let engine = Self::with(site, (threads, news), (leadership, candidate), writes);
        Ok(Some((Self { term, latest, ..engine }, term)))
    }

    /// Connects to a cluster and watches it, only to look: it does not lead, and it carries out nothing.
    pub fn look(site: &Site) -> Result<Self, ConnectError> {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = threads.block_on(client(site.kubeconfig.as_deref()))?;
        let candidate = Candidate::new(client.clone(), &site.scheduler, site.lease);
        let (tell, news) = mpsc::channel();
        watch_all(&threads, (&client, site), &tell);
        // Writes sent there have no receiver.
        let nowhere = || unbounded_channel().0;
        let leadership = Arc::new(Leadership::none());
        Ok(Self::with(site, (threads, news), (leadership, candidate), (nowhere(), nowhere())))
    }

    fn with(
        site: &Site,
        (runtime, news): (Runtime, Receiver<News>),
        (leadership, candidate): (Arc<Leadership>, Candidate),
        writes: (UnboundedSender<Write>, UnboundedSender<Write>),
    ) -> Self {
        Self {
            world: World::new(&site.scheduler),
            news,
            writes,
            queues: Vec::new(),
            queues_listed: false,
            groups: Groups::default(),
            group_news: Vec::new(),
            term: Term(0),
            stopped: HashSet::new(),
            causes: HashMap::new(),
            limits: HashMap::new(),
            leadership,
            latest: Arc::default(),
            candidate,
            runtime,
        }
    }

    /// Returns whether another replica may lead by now.
    pub fn is_deposed(&self) -> bool {
        self.leadership.is_over()
    }

    /// Gives up the lease, so that the next leader need not wait until it runs out.
    pub fn resign(&self) {
        self.runtime.block_on(self.candidate.release());
    }

    /// Waits for news, at most `longest`; then takes all news that has come.
    pub fn wait(&mut self, longest: Duration) {
        match self.news.recv_timeout(longest) {
            Ok(news) => self.take(news),
            Err(RecvTimeoutError::Timeout) => return,
            // All threads are gone. The shell notices by what does not come, and must not spin until then.
            Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(longest),
        }
        self.take_all();
    }

    fn take_all(&mut self) {
        while let Ok(news) = self.news.try_recv() {
            self.take(news);
        }
    }

    fn take(&mut self, news: News) {
        let now = super::now();
        match news {
            News::Nodes(change) => self.world.see_nodes(change),
            News::Pods(change) => self.world.see_pods(change, now),
            News::Queues(change) => {
                self.queues_listed |= matches!(change, Change::All(_));
                self.queues.push(change);
            }
            News::Groups(kind, change) => {
                let news = self.groups.see(kind, change).into_iter();
                self.group_news.extend(news.map(|(name, minimum)| PodNews::Group(name, minimum)));
            }
            News::Bound((_, Ok(()))) => {}
            News::Bound((id, Err(NotBound::Gone))) => self.world.end(id, EndedHow::NeverStarted, now),
            News::Bound((id, Err(NotBound::Refused(why)))) => {
                self.may_speak_of(id);
                self.world.end(id, EndedHow::LaunchFailed(LaunchFailure::Other(why)), now);
            }
        }
    }

    /// Returns whether all kinds have been listed: before that, nothing may be decided.
    pub fn is_listed(&self) -> bool {
        self.world.is_listed() && self.queues_listed && self.groups.is_listed()
    }

    /// Returns what happened to pods without an allocation, and to their groups, since the last call.
    pub fn pod_news(&mut self) -> Vec<PodNews> {
        let mut news = std::mem::take(&mut self.group_news);
        news.extend(self.world.pod_news());
        news
    }

    /// What happened to queues since the last call, in order: after [`QueueNews::Anew`] follow all that there are.
    pub fn queue_news(&mut self) -> Vec<QueueNews> {
        let news = std::mem::take(&mut self.queues).into_iter().flat_map(|change| match change {
            Change::All(all) => std::iter::once(QueueNews::Anew)
                .chain(all.into_iter().map(|queue| QueueNews::Is(Box::new(queue))))
                .collect(),
            Change::Is(queue) => vec![QueueNews::Is(queue)],
            Change::Gone(queue) => vec![QueueNews::Gone(queue.metadata.name)],
        });
        news.collect()
    }

    /// Returns whether a pod is there and has no node.
    pub fn still_waits(&self, uid: &str) -> bool {
        self.world.still_waits(uid)
    }

    /// Gives a pod that was found running to this allocation.
    pub fn adopted(&mut self, uid: &str, id: AllocationId) {
        self.world.adopt(uid, id);
    }

    /// Evicts a pod that was found running and does not fit beside what the others hold.
    pub fn not_adopted(&mut self, uid: &str, why: &str) {
        if let Some(pod) = self.world.leave(uid) {
            self.send(Write::Evict(pod, disruption(CROWDED, why)));
        }
    }

    /// Notes why a task is about to be stopped, as a word and a sentence, which its pod is told.
    pub fn because(&mut self, id: AllocationId, (word, why): (&str, &str)) {
        self.causes.insert(id, disruption(word, why));
    }

    /// Notes the time limit of a task that is about to get its node. Its pod gets it with the node, for the next scheduler.
    pub fn limited(&mut self, id: AllocationId, limit: Span) {
        self.limits.insert(id, limit);
    }

    /// Tells a pod which node it gets when others have left, or that it no longer gets one.
    pub fn nominate(&mut self, uid: &str, node: Option<String>) {
        if let Some(pod) = self.world.address(uid) {
            self.send(Write::Nominate(pod, node));
        }
    }

    /// Tells a pod why it waits.
    pub fn say(&mut self, uid: &str, condition: Condition) {
        if let Some(pod) = self.world.address(uid) {
            let _ = self.writes.1.send(Write::Say(pod, condition));
        }
    }

    /// Makes an event about a pod or its owner that says why it waits.
    pub fn tell(&mut self, subject: Subject, said: Condition) {
        let _ = self.writes.1.send(Write::Event(subject, said));
    }

    /// Writes to a queue's status whether it is in force.
    pub fn say_of_queue(&mut self, name: &str, generation: i64, condition: Condition) {
        let _ = self.writes.1.send(Write::SayOfQueue(name.to_owned(), generation, condition));
    }

    /// Writes to a queue's status what it has and used.
    pub fn tell_of_queue(&mut self, name: &str, status: QueueStatus) {
        let _ = self.writes.1.send(Write::Tell(name.to_owned(), Box::new(status)));
    }

    fn carry_out(&mut self, action: &Action, id: AllocationId) {
        match action {
            Action::Bind(_, bind) => {
                let limit = self.limits.remove(&id);
                let given = if self.stopped.contains(&id) {
                    None
                } else {
                    self.world.give(&bind.task, id, &bind.node)
                };
                match given {
                    Some(pod) => {
                        self.latest.settle(writes::about(&pod.uid, writes::SCHEDULED));
                        self.send(Write::Bind(id, pod, Place { node: bind.node.clone(), limit }));
                    }
                    None => self.world.end(id, EndedHow::NeverStarted, super::now()),
                }
            }
            Action::Stop(..) => match self.world.pod_of(id) {
                Some(pod) => {
                    let why = self.causes.remove(&id);
                    let why = why.unwrap_or_else(|| disruption(STOPPED, "its job is stopped"));
                    self.send(Write::Evict(pod, why));
                }
                None => {
                    self.stopped.insert(id);
                    self.world.end(id, EndedHow::NeverStarted, super::now());
                }
            },
            Action::Forget(_) => {
                self.stopped.remove(&id);
                self.may_speak_of(id);
                self.world.forget(id);
            }
            Action::Launch(..) => {
                let failure = LaunchFailure::Other("pods are not started as processes".into());
                self.world.end(id, EndedHow::LaunchFailed(failure), super::now());
            }
        }
    }

    /// Allows messages again about why the pod of an allocation waits: it has no node.
    fn may_speak_of(&self, id: AllocationId) {
        if let Some(uid) = self.world.uid_of(id) {
            self.latest.reopen(&writes::about(uid, writes::SCHEDULED));
        }
    }

    /// The send fails only when no thread listens any more: then the program is about to end.
    fn send(&mut self, write: Write) {
        let _ = self.writes.0.send(write);
    }
}

/// What happened to a queue.
#[derive(Clone, Debug)]
pub enum QueueNews {
    /// The queues that follow are all.
    Anew,
    /// A queue that is new or has changed.
    Is(Box<QueueObject>),
    /// The name of a queue that is gone.
    Gone(String),
}

/// Reason for eviction: others have taken what the pod has.
pub const CROWDED: &str = "Overcommitted";
/// Reason for eviction: the pod's place goes to another (the API's own word).
pub const PREEMPTED: &str = "PreemptionByScheduler";
/// Any other reason for eviction.
pub const STOPPED: &str = "StoppedByScheduler";

/// Reason for eviction: the pod has reached its time limit.
pub const TIMED_OUT: &str = "TimeLimit";

/// Returns the condition of a pod that has to go. A pod that used up its time does not count as disrupted by others: Job policies
/// would recreate such pods without counting them.
fn disruption(reason: &str, message: &str) -> Condition {
    let kind = if reason == TIMED_OUT { "divvy.dev/Stopped" } else { "DisruptionTarget" };
    Condition { kind: kind.into(), status: "True".into(), reason: reason.into(), message: message.into() }
}

impl Engine for KubernetesEngine {
    fn submit(&mut self, actions: &[Action]) {
        for action in actions {
            let fence = action.fence();
            if fence.term < self.term {
                tracing::warn!("refusing an action of term {}: {} is seen", fence.term, self.term);
                continue;
            }
            self.term = fence.term;
            self.carry_out(action, fence.allocation);
        }
    }

    fn observe(&mut self) -> Vec<Observation> {
        self.take_all();
        self.world.observations()
    }

    fn abilities(&self) -> Abilities {
        Abilities { names_devices: false, runs_processes: false, keeps_allocations: false }
    }
}

async fn of_file(file: &Path) -> Result<Config, ConnectError> {
    let unusable = |error: String| ConnectError::Kubeconfig { file: file.display().to_string(), error };
    let kubeconfig = Kubeconfig::read_from(file).map_err(|error| unusable(error.to_string()))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.map_err(|error| unusable(error.to_string()))
}

async fn client(file: Option<&Path>) -> Result<Client, ConnectError> {
    let mut config = match file {
        Some(file) => of_file(file).await?,
        None => Config::infer().await.map_err(|error| ConnectError::Nowhere(error.to_string()))?,
    };
    config.connect_timeout = Some(CONNECT_WITHIN);
    // This module decides what is retried, when and how often.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| ConnectError::Client(error.to_string()))
}

fn watch_all(threads: &Runtime, (client, site): (&Client, &Site), tell: &Sender<News>) {
    fn told<T>(tell: Sender<News>, of: fn(Change<T>) -> News) -> impl Fn(Change<T>) -> bool {
        move |change| tell.send(of(change)).is_ok()
    }
    let all = String::new;
    threads.spawn(watch::follow(client.clone(), site.nodes.clone(), told(tell.clone(), News::Nodes)));
    threads.spawn(watch::follow(client.clone(), all(), told(tell.clone(), News::Pods)));
    threads.spawn(watch::follow(client.clone(), site.queues.clone(), told(tell.clone(), News::Queues)));
    let of_volcano = |change: Change<OfVolcano>| News::Groups(Kind::Volcano, change.map(|group| group.0));
    threads.spawn(watch::follow(client.clone(), all(), told(tell.clone(), of_volcano)));
    let of_coscheduling =
        |change: Change<OfCoscheduling>| News::Groups(Kind::Coscheduling, change.map(|group| group.0));
    threads.spawn(watch::follow(client.clone(), all(), told(tell.clone(), of_coscheduling)));
}

fn write_all(threads: &Runtime, post: Post, tell: &Sender<News>) -> UnboundedSender<Write> {
    let (send, writes) = unbounded_channel();
    let tell = tell.clone();
    let bound = move |bound| drop(tell.send(News::Bound(bound)));
    threads.spawn(writes::carry_out(post, writes, bound));
    send
}
