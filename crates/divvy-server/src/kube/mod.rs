//! The scheduler of a Kubernetes cluster: the control loop without a store. The API server holds the truth. Each start is a term
//! of its own, which begins with adopting what already runs.
//!
//! Each turn takes what the watches report, plans, and only then has pods bound and told why they wait. `jobs` keeps which pods
//! form which job, `queues` which queues are in force, and `words` says why a pod waits.

mod advice;
mod full;
mod jobs;
mod look;
mod manifests;
mod queues;
mod submission;
mod taken;
mod usage;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use divvy_core::controller::{Broken, Controller};
use divvy_core::decide::{Command, Person};
use divvy_core::engine::Engine;
use divvy_core::event::Event;
use divvy_core::id::Term;
pub use divvy_core::model::policy::Policy;
pub use divvy_core::model::queue::parse_policy;
use divvy_core::state::State;
use divvy_core::time::Time;
pub use divvy_engine::kubernetes::Site;
use divvy_engine::kubernetes::{ConnectError, KubernetesEngine, PodNews, Running};

use crate::clock;
use advice::Advisor;
use jobs::Jobs;
pub use look::Looked;
pub use manifests::{Inside, manifests};
use queues::Queues;
use taken::Nominated;
use usage::Told;

/// Why the scheduler gave up. Pods run on; the next one takes them over.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// The cluster cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Nothing could be listed.
    #[error("the cluster has not told its nodes, pods and queues within {0:?}: see the warnings above")]
    Silent(Duration),
    /// The lease was not renewed in time, or another replica has it.
    #[error(
        "another scheduler of this name may lead by now, so this one ends: start it again, and it waits for its turn"
    )]
    Deposed,
    /// A law is broken, or an event does not fit.
    #[error("the scheduler stops, since going on could harm: {0}. Pods run on")]
    Broken(#[from] Broken),
    /// The handlers for the signals that end it cannot be set.
    #[error("listening for signals: {0}")]
    Signals(#[from] std::io::Error),
}

/// The log filter unless the environment sets one. The client's messages on each request are off: they are logged here once.
const USUAL_LOG: &str = "warn,divvy_server::kube=info,divvy_engine::kubernetes=info,kube_client=off";
/// How long the first lists may take.
const LISTED_WITHIN: Duration = Duration::from_secs(120);
/// The longest pause between two turns: a signal is noticed within this time.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Schedules by a policy until a signal ends it.
pub fn run(site: &Site, policy: &Policy) -> Result<(), KubeError> {
    log_to_standard_error(USUAL_LOG);
    let end = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&end))?;
    }
    let Some((engine, term)) = KubernetesEngine::connect(site, &end)? else { return Ok(()) };
    let mut shell = Shell::new(engine, policy);
    shell.begin(term, &end)?;
    while !end.load(Ordering::Relaxed) {
        shell.engine.wait(shell.pause());
        shell.turn()?;
    }
    shell.engine.resign();
    Ok(())
}

fn log_to_standard_error(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("DIVVY_LOG").unwrap_or_else(|_| usual.into());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

/// The person who changes queues and cancels jobs here.
pub(crate) fn admin() -> Person {
    Person::administrator("divvy")
}

struct Shell {
    engine: KubernetesEngine,
    policy: Policy,
    controller: Controller,
    jobs: Jobs,
    queues: Queues,
    nominated: Nominated,
    advisor: Advisor,
    told: Told,
}

impl Shell {
    fn new(engine: KubernetesEngine, policy: &Policy) -> Self {
        Self {
            engine,
            policy: policy.clone(),
            controller: Controller::open(State::default()),
            jobs: Jobs::default(),
            queues: Queues::default(),
            nominated: Nominated::default(),
            advisor: Advisor::start(),
            told: Told::default(),
        }
    }

    fn pause(&self) -> Duration {
        let due = self.controller.due();
        let until = due.map(|due| Duration::from_millis(u64::try_from(due.0 - clock::now().0).unwrap_or(0)));
        until.map_or(LONGEST_PAUSE, |until| until.clamp(Duration::from_millis(1), LONGEST_PAUSE))
    }

    /// Begins a term: adopts what runs already, and plans.
    fn begin(&mut self, term: Term, end: &AtomicBool) -> Result<(), KubeError> {
        let started = Instant::now();
        self.await_lists(end)?;
        let now = clock::now();
        let news = self.take_over(term, now)?;
        self.take_pods(news, now)?;
        tracing::info!(
            "scheduling {} nodes, {} pods run, {} wait, after {:?}",
            self.controller.state().nodes.len(),
            self.controller.state().allocations.len(),
            self.jobs.waiting(),
            started.elapsed()
        );
        self.finish(now)
    }

    fn await_lists(&mut self, end: &AtomicBool) -> Result<(), KubeError> {
        let started = Instant::now();
        while !self.engine.is_listed() && !end.load(Ordering::Relaxed) {
            if started.elapsed() > LISTED_WITHIN {
                return Err(KubeError::Silent(LISTED_WITHIN));
            }
            self.engine.wait(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// Takes over the cluster and adopts what runs already; returns the pod news, waiting pods included.
    fn take_over(&mut self, term: Term, now: Time) -> Result<Vec<PodNews>, KubeError> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let _ = self.controller.take(&Command::Begin { term, boot_id: String::new(), version }, now)?;
        let _ = self.controller.take(&Command::SetPolicy(Box::new(self.policy.clone()), admin()), now)?;
        self.see(now)?;
        self.take_queues(now)?;
        usage::recall(&mut self.controller, self.queues.kept(), now)?;
        let news = self.engine.pod_news();
        self.adopt(&news, now)?;
        Ok(news)
    }

    fn turn(&mut self) -> Result<(), KubeError> {
        if self.engine.is_deposed() {
            return Err(KubeError::Deposed);
        }
        let now = clock::now();
        self.see(now)?;
        self.take_queues(now)?;
        let news = self.engine.pod_news();
        self.take_pods(news, now)?;
        self.finish(now)
    }

    fn see(&mut self, now: Time) -> Result<(), KubeError> {
        for observation in self.engine.observe() {
            self.controller.see(&observation, now)?;
        }
        Ok(())
    }

    fn take_queues(&mut self, now: Time) -> Result<(), KubeError> {
        let news = self.engine.queue_news();
        if !self.queues.take(news) {
            return Ok(());
        }
        let said = self.queues.put_in_force(&mut self.controller, now)?;
        for (name, generation, condition) in said {
            self.engine.say_of_queue(&name, generation, condition);
        }
        // Pods whose queue was missing may have one now.
        self.jobs.retry_refused();
        Ok(())
    }

    /// Adopts the running pods, the oldest first: what does not fit beside the others has to go, the youngest of all.
    fn adopt(&mut self, news: &[PodNews], now: Time) -> Result<(), KubeError> {
        let running =
            |news: &PodNews| if let PodNews::Runs(running) = news { Some(*running.clone()) } else { None };
        let mut running: Vec<Running> = news.iter().filter_map(running).collect();
        running.sort_by(|a, b| (&a.since, &a.pod.name).cmp(&(&b.since, &b.pod.name)));
        for news in news {
            if let PodNews::Group(name, minimum) = news {
                self.jobs.group(name.clone(), *minimum);
            }
        }
        for gang in jobs::by_gang(running, |gang| self.jobs.minimum(gang)) {
            let is_half = gang[0].pod.gang.as_ref().is_some_and(|of| {
                let is_whole = self.jobs.minimum(of).is_some_and(|minimum| gang.len() >= minimum as usize);
                !is_whole && !self.jobs.has(of) && jobs::any_waits(news, of)
            });
            let refused = if is_half {
                Some("not all of its gang had a node when the scheduler started".to_owned())
            } else {
                self.jobs.adopt(&mut self.controller, &gang, now)?.err()
            };
            for (rank, running) in (0..).zip(&gang) {
                match (&refused, self.jobs.allocation(&self.controller, &running.pod.uid, rank)) {
                    (None, Some(id)) => self.engine.adopted(&running.pod.uid, id),
                    (why, _) => {
                        let why = why.as_deref().unwrap_or("it has no place in the pool");
                        tracing::warn!("pod {}/{} goes: {why}", running.pod.namespace, running.pod.name);
                        self.engine.not_adopted(&running.pod.uid, why);
                    }
                }
            }
        }
        Ok(())
    }

    fn take_pods(&mut self, news: Vec<PodNews>, now: Time) -> Result<(), KubeError> {
        for news in news {
            match news {
                PodNews::Waits(waiting) => self.jobs.wait(*waiting),
                PodNews::Gone(uid) => {
                    if let Some(job) = self.jobs.gone(&uid) {
                        jobs::cancel_if_it_waits(&mut self.controller, job, now)?;
                    }
                }
                PodNews::Group(name, minimum) => self.jobs.group(name, minimum),
                PodNews::Runs(_) => {}
            }
        }
        self.jobs.submit(&mut self.controller, now)?;
        Ok(())
    }

    /// Plans, has the plan carried out, and tells the news.
    fn finish(&mut self, now: Time) -> Result<(), KubeError> {
        self.controller.cycle(now)?;
        let Some(batch) = self.controller.drain() else {
            self.say(now);
            return Ok(());
        };
        for (id, word, why) in taken::causes(self.controller.state(), &batch) {
            self.engine.because(id, (word, &why));
        }
        for (id, limit) in self.jobs.limits(self.controller.state(), &batch.actions) {
            self.engine.limited(id, limit);
        }
        self.engine.submit(&batch.actions);
        self.nominated.follow(self.controller.state(), &batch, (&self.jobs, &mut self.engine));
        for stamped in &batch.commit.events {
            match &stamped.event {
                Event::Placed { .. } => self.jobs.placed(),
                Event::Judged { classes } => self.jobs.judged(classes.iter().map(|(class, _)| *class)),
                Event::AttemptEnded { job, .. } | Event::Dropped { job, .. }
                    if !self.controller.state().jobs.contains_key(&job.number) =>
                {
                    let engine = &self.engine;
                    self.jobs.ended(job.number, |uid| engine.still_waits(uid));
                }
                _ => {}
            }
        }
        self.say(now);
        Ok(())
    }

    fn say(&mut self, now: Time) {
        while let Some(advised) = self.advisor.found() {
            let way = words::way(&advised.fix, self.controller.state());
            self.jobs.advised(advised.class, (advised.reason, way));
        }
        for (uid, condition, subject) in self.jobs.said(&self.controller, now) {
            if let Some(subject) = subject {
                self.engine.tell(subject, condition.clone());
            }
            self.engine.say(&uid, condition);
        }
        self.jobs.unadvised().into_iter().for_each(|(class, job)| self.advisor.want(class, job));
        self.advisor.ask(&self.controller);
        for (path, status) in self.told.due(&self.controller, now) {
            if let Some(name) = self.queues.name(&path) {
                self.engine.tell_of_queue(name, status);
            }
        }
    }
}
