//! Writing: bindings, evictions and conditions, many at once. Each write is idempotent: after a lost answer or a conflict the
//! server is asked for the present state, and what is done already is not repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use divvy_core::id::AllocationId;
use divvy_core::time::Span;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::lane::Lane;
use super::latest::Latest;
use super::lease::Leadership;
use super::objects::{Condition, Pod, QueueStatus};
use super::waiting::{Subject, TIME_LIMIT};
use super::window::Window;
use super::world::Address;

/// A write to the server.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// Gives a pod its node.
    Bind(AllocationId, Address, Place),
    /// Evicts a pod, for a reason.
    Evict(Address, Condition),
    /// Tells a pod what keeps it waiting.
    Say(Address, Condition),
    /// Promises a node to a pod, or takes the promise back.
    Nominate(Address, Option<String>),
    /// Makes an event about a pod, or about the pods of an owner.
    Event(Subject, Condition),
    /// Writes a queue's condition: its name, and the generation that it concerns.
    SayOfQueue(String, i64, Condition),
    /// Writes what a queue has and used, by its name.
    Tell(String, Box<QueueStatus>),
}

/// The node that a pod gets.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) node: String,
    /// Its time limit, where it has none of its own.
    pub(super) limit: Option<Span>,
}

/// Why a pod did not get its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotBound {
    /// The pod no longer exists, or is being deleted.
    Gone,
    /// The server refuses it, in its words.
    Refused(String),
}

/// The result of a binding.
pub(super) type Bound = (AllocationId, Result<(), NotBound>);

/// How long a binding, or a write that the server does not permit, is retried.
const TRIED_FOR: Duration = Duration::from_secs(60);
/// How long a refusal is held back: the server will not change its mind at once.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// How often a conflict is retried.
const CONFLICTS: u32 = 5;
/// How long to wait before the next try: doubled from the first value up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Carries out the writes, as many at once as the window allows, until none come any more.
pub(super) async fn carry_out(
    post: Post,
    mut writes: UnboundedReceiver<Write>,
    tell: impl Fn(Bound) + Clone + Send + 'static,
) {
    while let Some(write) = writes.recv().await {
        let patch = patch_of(&write);
        // In the order in which they came: the task that sends an earlier patch also sends this one.
        if patch.as_ref().is_some_and(|patch| !post.latest.begin(&patch.about, &patch.body)) {
            continue;
        }
        let turn = post.lane.turn().await;
        let place = post.window.enter().await;
        let (desk, tell) = (post.clone(), tell.clone());
        tokio::spawn(async move {
            match write {
                Write::Bind(id, pod, place_there) => {
                    let bound = desk.bind(&pod, &place_there).await;
                    drop((place, turn));
                    // The core would retry at once.
                    if let Err(NotBound::Refused(_)) = &bound {
                        tokio::time::sleep(REFUSED_PAUSE).await;
                    }
                    return tell((id, bound));
                }
                Write::Evict(pod, condition) => desk.evict(&pod, &condition).await,
                Write::Event(subject, condition) => desk.event(&subject, &condition).await,
                Write::Say(..) | Write::Nominate(..) | Write::SayOfQueue(..) | Write::Tell(..) => {
                    desk.send_all(patch).await;
                }
            }
            drop((place, turn));
        });
    }
}

/// A change of what an object says. Of several about the same thing, the last one is what remains.
struct Patch {
    about: String,
    path: String,
    kind: &'static str,
    body: Value,
}

/// Returns the patch of a write that only says something.
fn patch_of(write: &Write) -> Option<Patch> {
    match write {
        Write::Say(pod, condition) => Some(condition_of(pod, condition)),
        Write::Nominate(pod, node) => {
            Some(status_of(pod, "nominatedNodeName", &json!({"nominatedNodeName": node})))
        }
        Write::SayOfQueue(name, generation, condition) => {
            let mut condition = spelled(condition);
            condition["observedGeneration"] = (*generation).into();
            let body = json!({"status": {"conditions": [condition], "observedGeneration": generation}});
            Some(Patch { about: format!("queue {name}"), path: status_of_queue(name), kind: MERGE, body })
        }
        Write::Tell(name, status) => {
            let (about, body) = (format!("use of queue {name}"), json!({"status": status}));
            Some(Patch { about, path: status_of_queue(name), kind: MERGE, body })
        }
        Write::Bind(..) | Write::Evict(..) | Write::Event(..) => None,
    }
}

fn condition_of(pod: &Address, condition: &Condition) -> Patch {
    status_of(pod, &condition.kind, &json!({"conditions": [spelled(condition)]}))
}

fn status_of(pod: &Address, field: &str, status: &Value) -> Patch {
    let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
    let body = json!({"metadata": {"uid": pod.uid}, "status": status});
    Patch { about: about(&pod.uid, field), path, kind: STRATEGIC, body }
}

/// The result of one request.
enum Answer {
    Done,
    /// The server is busy, or the result is unknown.
    Again(String),
    /// The server refuses for lack of rights: a server that has just started does so for everybody.
    NotPermitted(String),
    /// It conflicts with the present state.
    Conflict,
    Missing,
    Refused(String),
}

/// Sends writes.
#[derive(Clone)]
pub(super) struct Post {
    pub(super) client: Client,
    pub(super) leadership: Arc<Leadership>,
    pub(super) window: Arc<Window>,
    pub(super) lane: Lane,
    pub(super) latest: Arc<Latest>,
}

impl Post {
    async fn bind(&self, pod: &Address, place: &Place) -> Result<(), NotBound> {
        let node = &place.node;
        let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace, pod.name);
        // The uid excludes a new pod of the same name.
        let mut metadata = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
        if let Some(limit) = place.limit {
            // The server copies the annotations of a binding to its pod.
            metadata["annotations"] = json!({TIME_LIMIT: limit.written()});
        }
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
        // Messages about its waiting must not arrive after the binding.
        self.latest.quiet(&about(&pod.uid, SCHEDULED)).await;
        let (started, mut pause) = (Instant::now(), PAUSE.0);
        loop {
            let why = match self.send("POST", &path, (JSON, &body)).await {
                Answer::Done => return Ok(()),
                Answer::Missing => return Err(NotBound::Gone),
                Answer::Refused(why) => return Err(NotBound::Refused(why)),
                Answer::Conflict => match self.where_is(pod).await {
                    Ok(there) if there == *node => return Ok(()),
                    Ok(there) if there.is_empty() => "the pod conflicts with the binding".to_owned(),
                    Ok(there) => {
                        return Err(NotBound::Refused(format!("somebody else has put it on node {there}")));
                    }
                    Err(Some(not_bound)) => return Err(not_bound),
                    Err(None) => "the pod cannot be looked at".to_owned(),
                },
                Answer::Again(why) | Answer::NotPermitted(why) => why,
            };
            if started.elapsed() > TRIED_FOR {
                return Err(NotBound::Refused(why));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Returns the node of a pod, empty for none; `Err(None)` where that cannot be told now.
    async fn where_is(&self, pod: &Address) -> Result<String, Option<NotBound>> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let request = http::Request::get(path).body(Vec::new()).map_err(|_| None)?;
        let within = self.leadership.within();
        match tokio::time::timeout(within, self.client.request::<Pod>(request)).await {
            Ok(Ok(there)) if there.metadata.uid != pod.uid || there.metadata.deletion_timestamp.is_some() => {
                Err(Some(NotBound::Gone))
            }
            Ok(Ok(there)) => Ok(there.spec.node_name.unwrap_or_default()),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(Some(NotBound::Gone)),
            Ok(Err(_)) | Err(_) => Err(None),
        }
    }

    /// Says why, then deletes the pod with its own grace. The pod's condition vanishes with it; the event stays.
    async fn evict(&self, pod: &Address, condition: &Condition) {
        let said = condition_of(pod, condition);
        if self.latest.begin(&said.about, &said.body) {
            self.send_all(Some(said)).await;
        }
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}});
        self.insist(None, ("DELETE", &path), (JSON, &body)).await;
        let Address { namespace, name, uid } = pod.clone();
        let subject = Subject { api_version: "v1".into(), kind: "Pod".into(), namespace, name, uid };
        self.event(&subject, condition).await;
    }

    /// Sends a patch whose turn it is, and the ones that have come since about the same thing.
    async fn send_all(&self, patch: Option<Patch>) {
        let Some(Patch { about, path, kind, body }) = patch else { return };
        let mut next = Some(body);
        while let Some(body) = next {
            self.insist(Some(&about), ("PATCH", &path), (kind, &body)).await;
            next = self.latest.next(&about);
        }
    }

    async fn event(&self, subject: &Subject, said: &Condition) {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", subject.namespace);
        // Named here, so that a retry after a lost answer makes no second event.
        let name = shortened(&subject.name, LONGEST_NAME);
        let name = format!("{name}.{:x}{:x}", super::now().0, NEXT_EVENT.fetch_add(1, Ordering::Relaxed));
        let Subject { api_version, kind, namespace, name: of, uid } = subject;
        let regarding =
            json!({"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": of, "uid": uid});
        let note = shortened(&said.message, LONGEST_NOTE);
        let body = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": super::now_in_events(),
            "reportingController": super::GROUP, "reportingInstance": std::process::id().to_string(),
            "action": "Scheduling", "reason": said.reason, "type": "Warning",
            "regarding": regarding, "note": note,
        });
        self.insist(None, ("POST", &path), (JSON, &body)).await;
    }

    /// Retries until the server decides, however long it is away, or until the thing is settled. Refusals go to the log.
    async fn insist(&self, about: Option<&str>, (method, path): (&str, &str), body: (&str, &Value)) {
        let (started, mut pause, mut conflicts) = (Instant::now(), PAUSE.0, 0);
        while about.is_none_or(|about| !self.latest.is_settled(about)) {
            match self.send(method, path, body).await {
                // Others are changing the same object, or it is a new object of the same name.
                Answer::Conflict if method == "PATCH" && conflicts < CONFLICTS => conflicts += 1,
                Answer::Done | Answer::Missing | Answer::Conflict => return,
                Answer::Again(_) => {}
                Answer::NotPermitted(_) if started.elapsed() < TRIED_FOR => {}
                Answer::NotPermitted(why) | Answer::Refused(why) => {
                    tracing::warn!("{method} {path} was not done: {why}");
                    return;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Sends one request, and tells the window how the server copes.
    async fn send(&self, method: &str, path: &str, (kind, body): (&str, &Value)) -> Answer {
        let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
        let request = match request.body(body.to_string().into_bytes()) {
            Ok(request) => request,
            Err(error) => return Answer::Refused(error.to_string()),
        };
        if !self.leadership.may_write() {
            return Answer::Again("the lease may be over before the answer comes".into());
        }
        let within = self.leadership.within();
        let answer = tokio::time::timeout(within, self.client.request_text(request)).await;
        let status = match answer {
            Ok(Ok(_)) => {
                self.window.widen();
                return Answer::Done;
            }
            Ok(Err(kube::Error::Api(status))) => status,
            Ok(Err(error)) => return Answer::Again(error.to_string()),
            Err(_) => return Answer::Again(format!("no answer within {within:?}")),
        };
        match status.code {
            409 => Answer::Conflict,
            404 => Answer::Missing,
            429 => {
                self.window.narrow();
                Answer::Again(status.message)
            }
            401 | 403 => Answer::NotPermitted(status.message),
            500.. => Answer::Again(status.message),
            _ => Answer::Refused(status.message),
        }
    }
}

/// Returns the beginning of a text, at most so many bytes.
fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// The server takes only notes of fewer than 1,024 bytes.
const LONGEST_NOTE: usize = 1000;
/// What is left of a name's 253 bytes beside the suffix that makes it unique.
const LONGEST_NAME: usize = 200;
/// Distinguishes events of the same millisecond.
static NEXT_EVENT: AtomicU64 = AtomicU64::new(0);

/// The condition that says whether a pod has its node.
pub(super) const SCHEDULED: &str = "PodScheduled";

/// Returns the key of a field of a pod.
pub(super) fn about(uid: &str, field: &str) -> String {
    format!("{uid}/{field}")
}

const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

fn status_of_queue(name: &str) -> String {
    format!("/apis/{}/{}/queues/{name}/status", super::GROUP, super::VERSION)
}

fn spelled(condition: &Condition) -> Value {
    let Condition { kind, status, reason, message } = condition;
    let now = super::now_text();
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now})
}
