//! Leadership: a Lease says which of several replicas writes. The holder renews it, and writes only while the lease lasts
//! longer than a write may take. A replica that takes it over from another first waits as long as a write may take. So
//! everything that the last leader wrote is there when the next one lists, whether or not its answers arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use divvy_core::id::Term;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::engine::ConnectError;

/// The namespace of the scheduler's own objects.
pub const NAMESPACE: &str = "divvy-system";
/// How many times a lease is renewed within its duration.
const RENEWALS: u32 = 5;
/// How many times sooner a failed renewal is retried.
const SOONER: u32 = 8;
/// What part of a lease a write may take.
const WRITE_PART: u32 = 3;
/// How often a replica that waits for the lease checks whether it has to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Until when this replica leads, and how long its writes may take.
#[derive(Debug)]
pub(super) struct Leadership {
    began: Instant,
    /// Milliseconds since `began`; 0 once another replica leads.
    until_ms: AtomicU64,
    lasts: Duration,
}

impl Leadership {
    /// The leadership of nobody.
    pub(super) fn none() -> Self {
        Self { began: Instant::now(), until_ms: AtomicU64::new(0), lasts: Duration::ZERO }
    }

    /// Returns how long one request may take.
    pub(super) fn within(&self) -> Duration {
        self.lasts / WRITE_PART
    }

    /// Returns whether a request sent now ends before the lease does.
    pub(super) fn may_write(&self) -> bool {
        let rest = Duration::from_millis(self.until_ms.load(Ordering::Relaxed));
        rest.saturating_sub(self.began.elapsed()) > self.within()
    }

    /// Returns whether another replica may lead by now.
    pub(super) fn is_over(&self) -> bool {
        self.began.elapsed() >= Duration::from_millis(self.until_ms.load(Ordering::Relaxed))
    }

    fn renewed(&self, asked_at: Instant) {
        let until = asked_at.duration_since(self.began) + self.lasts;
        self.until_ms.store(u64::try_from(until.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }

    fn lost(&self) {
        self.until_ms.store(0, Ordering::Relaxed);
    }
}

/// A Lease, as the server keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Lease {
    metadata: Meta,
    spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<u64>,
}

/// A replica that asks for a lease.
#[derive(Clone)]
pub(super) struct Candidate {
    client: Client,
    /// The lease's name: one per scheduler name.
    name: String,
    /// How long it lasts.
    lasts: Duration,
    identity: String,
}

impl Candidate {
    pub(super) fn new(client: Client, scheduler: &str, lasts: Duration) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let identity = format!("{host}-{}-{:x}", std::process::id(), super::now().0);
        Self { client, name: scheduler.to_owned(), lasts, identity }
    }

    /// Waits until this replica leads; `None` if it has to end before that. Returns the term, and a handle on the leadership.
    pub(super) async fn lead(
        self,
        end: &AtomicBool,
    ) -> Result<Option<(Term, Arc<Leadership>)>, ConnectError> {
        // The last seen lease, and since when it is unchanged, by the local clock: replicas' clocks may differ.
        let mut seen: Option<(Lease, Instant)> = None;
        while !end.load(Ordering::Relaxed) {
            let asked_at = Instant::now();
            let found = match self.get().await {
                Ok(found) => found,
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    return Err(ConnectError::Rights(status.message));
                }
                Err(error) => {
                    tracing::warn!("cannot look who leads: {error}");
                    tokio::time::sleep(self.lasts / RENEWALS).await;
                    continue;
                }
            };
            match self.take_over(found, &mut seen).await {
                Ok(Some(lease)) => {
                    let is_new = lease.spec.lease_transitions == Some(0);
                    return Ok(Some(self.begin(lease, asked_at, is_new).await));
                }
                Ok(None) => {}
                Err(ConnectError::Lease(error)) => tracing::warn!("the lease cannot be taken: {error}"),
                Err(error) => return Err(error),
            }
            self.pause(end).await;
        }
        Ok(None)
    }

    async fn pause(&self, end: &AtomicBool) {
        let until = Instant::now() + self.lasts / RENEWALS;
        while Instant::now() < until && !end.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Takes the lease if nobody holds it, or if its holder has not renewed it for its whole duration.
    async fn take_over(
        &self,
        found: Option<Lease>,
        seen: &mut Option<(Lease, Instant)>,
    ) -> Result<Option<Lease>, ConnectError> {
        let Some(found) = found else { return self.write(self.fresh(), "POST").await };
        if seen.as_ref().is_none_or(|(lease, _)| *lease != found) {
            let holder = found.spec.holder_identity.as_deref().unwrap_or_default();
            if seen.is_none() && !holder.is_empty() && holder != self.identity {
                tracing::info!("{holder} leads; waiting");
            }
            *seen = Some((found.clone(), Instant::now()));
        }
        let Some((lease, since)) = seen.as_ref() else { return Ok(None) };
        let lasts = Duration::from_secs(lease.spec.lease_duration_seconds.unwrap_or(1));
        let holder = lease.spec.holder_identity.as_deref().unwrap_or_default();
        // Our own name: we took it before, and the answer was lost.
        let is_free = holder.is_empty() || holder == self.identity;
        if !is_free && since.elapsed() <= lasts {
            return Ok(None);
        }
        let mut mine = found.clone();
        let before = found.spec.lease_transitions.unwrap_or(0);
        mine.spec = Spec { lease_transitions: Some(before + 1), ..self.fresh().spec };
        self.write(mine, "PUT").await
    }

    fn fresh(&self) -> Lease {
        let now = super::now_in_events();
        let (name, namespace) = (self.name.clone(), NAMESPACE.to_owned());
        Lease {
            metadata: Meta { name, namespace, resource_version: None },
            spec: Spec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(self.lasts.as_secs().max(1)),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
            },
        }
    }

    /// Begins to renew the lease; after another holder, waits until that one's writes have arrived.
    async fn begin(self, lease: Lease, asked_at: Instant, is_new: bool) -> (Term, Arc<Leadership>) {
        let leadership = Leadership { began: asked_at, until_ms: AtomicU64::new(0), lasts: self.lasts };
        leadership.renewed(asked_at);
        let leadership = Arc::new(leadership);
        let term = Term(lease.spec.lease_transitions.unwrap_or(0) + 1);
        let within = leadership.within();
        tokio::spawn(self.renew(lease, Arc::clone(&leadership)));
        if !is_new {
            tokio::time::sleep(within).await;
        }
        (term, leadership)
    }

    /// Renews the lease until another replica holds it.
    async fn renew(self, mut lease: Lease, leadership: Arc<Leadership>) {
        let mut pause = self.lasts / RENEWALS;
        loop {
            tokio::time::sleep(pause).await;
            pause = self.lasts / RENEWALS / SOONER;
            let asked_at = Instant::now();
            lease.spec.renew_time = Some(super::now_in_events());
            match self.write(lease.clone(), "PUT").await {
                Ok(Some(renewed)) => {
                    lease = renewed;
                    leadership.renewed(asked_at);
                    pause = self.lasts / RENEWALS;
                }
                // The lease has changed, or the answer to the last renewal was lost.
                Ok(None) => match self.get().await {
                    Ok(Some(there)) if there.spec.holder_identity == lease.spec.holder_identity => {
                        lease = there;
                    }
                    Ok(_) => return leadership.lost(),
                    Err(error) => tracing::warn!("cannot look who leads: {error}"),
                },
                Err(error) => tracing::warn!("the lease was not renewed: {error}"),
            }
        }
    }

    /// Gives up the lease, so that the next leader need not wait until it runs out.
    pub(super) async fn release(&self) {
        let Ok(Some(mut lease)) = self.get().await else { return };
        if lease.spec.holder_identity.as_deref() == Some(&self.identity) {
            lease.spec.holder_identity = Some(String::new());
            let _ = self.write(lease, "PUT").await;
        }
    }

    fn path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
    }

    async fn get(&self) -> kube::Result<Option<Lease>> {
        let request = http::Request::get(format!("{}/{}", self.path(), self.name)).body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        let asked = self.client.request::<Lease>(request);
        match tokio::time::timeout(self.lasts / WRITE_PART, asked).await {
            Ok(Ok(lease)) => Ok(Some(lease)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(kube::Error::Service("no answer in time".into())),
        }
    }

    /// Writes the lease; `None` if it has changed meanwhile.
    async fn write(&self, lease: Lease, method: &str) -> Result<Option<Lease>, ConnectError> {
        let path = if method == "POST" { self.path() } else { format!("{}/{}", self.path(), self.name) };
        let mut body = json!(lease);
        body["apiVersion"] = json!("coordination.k8s.io/v1");
        body["kind"] = json!("Lease");
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json").body(body.to_string().into_bytes());
        let request = request.map_err(|error| ConnectError::Client(error.to_string()))?;
        let written = self.client.request::<Lease>(request);
        match tokio::time::timeout(self.lasts / WRITE_PART, written).await {
            Ok(Ok(lease)) => Ok(Some(lease)),
            Ok(Err(kube::Error::Api(status))) => match status.code {
                409 => Ok(None),
                404 if method == "PUT" => Ok(None),
                403 | 404 => Err(ConnectError::Rights(status.message)),
                _ => Err(ConnectError::Lease(status.message)),
            },
            Ok(Err(error)) => Err(ConnectError::Lease(error.to_string())),
            Err(_) => Err(ConnectError::Lease("no answer in time".into())),
        }
    }
}
