//! Pods of a Kubernetes cluster.
//!
//! Start at [`KubernetesEngine`]. `watch` reports what happens to nodes, pods and queues, `world` keeps the relevant part, and
//! `writes` carries out what the core wants: bindings and evictions, as many at once as the server can take (`window`). `demand`
//! reads how much a pod asks for, `wishes` where it may run, `quantity` the numbers, and `nodes` reads a node.
//!
//! **Invariant:** what is not understood counts as taken. A pod that no allocation of the pool put on its node counts among the
//! others, whoever placed it. A wish that cannot be checked here is refused by name.

mod affinity;
mod demand;
mod engine;
mod groups;
mod lane;
mod latest;
mod lease;
mod nodes;
pub mod objects;
mod quantity;
mod shrunk;
mod waiting;
mod watch;
mod window;
mod wishes;
mod world;
mod writes;

use std::time::{SystemTime, UNIX_EPOCH};

use divvy_core::time::Time;

pub use affinity::NAMESPACE_NAME;
pub use demand::{Demand, GPU, Unreadable};
pub use engine::{CROWDED, ConnectError, KubernetesEngine, PREEMPTED, QueueNews, STOPPED, Site, TIMED_OUT};
pub use lease::NAMESPACE;
pub use waiting::{
    GANG_LABEL, Gang, PREEMPTIBLE, PodNews, QUEUE_LABEL, Running, Subject, TIME_LIMIT, Waiting,
};
pub use wishes::{NODE_NAME, NotUnderstood, choice};

/// The API group of the pool's custom resources.
pub const GROUP: &str = "scheduling.divvy.dev";
/// Its version.
pub const VERSION: &str = "v1alpha1";

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The current time in the format of events: RFC 3339, to the microsecond.
fn now_in_events() -> String {
    let now = jiff::Timestamp::from_millisecond(now().0).unwrap_or_default();
    format!("{now:.6}")
}

/// The current time in the format of the API: RFC 3339, to the second.
fn now_text() -> String {
    let now = jiff::Timestamp::from_second(now().0 / 1000).unwrap_or_default();
    now.to_string()
}
