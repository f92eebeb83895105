//! What a pod takes of its node: requests of its containers, init containers and sidecars plus overhead, summed as by the kubelet.

use std::collections::BTreeMap;

use divvy_core::amount::Resource;
use divvy_core::model::extras::Extras;
use divvy_core::model::node::OthersHold;

use super::objects::{Amounts, Container, Pod};
use super::quantity::{milli_up, whole_up};

/// The resource that counts devices.
pub const GPU: &str = "nvidia.com/gpu";

/// What a pod takes of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Cores, in milli.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory_bytes: i64,
    /// Whole devices.
    pub devices: u32,
    /// All other resources.
    pub extras: Extras,
}

/// A request that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its request of {resource} is no quantity that can be read: {text:?}")]
pub struct Unreadable {
    /// The resource.
    pub resource: String,
    /// The text as written.
    pub text: String,
}

/// Amounts by resource name: thousandths of a core for `cpu`, whole units for all others.
type Sums = BTreeMap<String, i64>;

impl Demand {
    /// Returns what a pod takes.
    pub fn of(pod: &Pod) -> Result<Self, Unreadable> {
        let spec = &pod.spec;
        let mut all = Sums::new();
        for container in &spec.containers {
            add(&mut all, &read(&container.resources.requests)?);
        }
        let mut beside = Sums::new();
        let mut most = Sums::new();
        for container in &spec.init_containers {
            let own = read(&container.resources.requests)?;
            if is_sidecar(container) {
                add(&mut all, &own);
                add(&mut beside, &own);
                raise(&mut most, &beside);
            } else {
                // It runs alone, except for the sidecars that were started before it.
                let mut together = beside.clone();
                add(&mut together, &own);
                raise(&mut most, &together);
            }
        }
        raise(&mut all, &most);
        // A request of the pod as a whole replaces the requests of its containers.
        all.extend(read(&spec.resources.requests)?);
        add(&mut all, &read(&spec.overhead)?);
        Ok(Self::from_sums(all))
    }

    fn from_sums(mut sums: Sums) -> Self {
        let mut take = |name: &str| sums.remove(name).unwrap_or(0);
        let (cpu_milli, memory_bytes) = (take("cpu"), take("memory"));
        let devices = u32::try_from(take(GPU)).unwrap_or(u32::MAX);
        let extras = sums.into_iter().map(|(name, amount)| (resource(&name), amount)).collect();
        Self { cpu_milli, memory_bytes, devices, extras }
    }

    /// Adds the demand to what is held of a node, `times` times.
    pub(super) fn add_to(&self, hold: &mut OthersHold, times: i64) {
        hold.cpu_milli = hold.cpu_milli.saturating_add(self.cpu_milli.saturating_mul(times));
        hold.memory_bytes = hold.memory_bytes.saturating_add(self.memory_bytes.saturating_mul(times));
        let count = |sum: u32, each: u32| {
            u32::try_from(i64::from(sum) + i64::from(each) * times).unwrap_or(if times < 0 {
                0
            } else {
                u32::MAX
            })
        };
        (hold.devices, hold.tasks) = (count(hold.devices, self.devices), count(hold.tasks, 1));
        hold.extras.add(&self.extras, times);
    }
}

/// Returns the core's name for a resource of a node.
pub(super) fn resource(name: &str) -> Resource {
    if name == "ephemeral-storage" { Resource::Storage } else { Resource::Extended(name.to_owned()) }
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn read(amounts: &Amounts) -> Result<Sums, Unreadable> {
    let one = |(name, text): (&String, &String)| {
        let amount = if name == "cpu" { milli_up(text) } else { whole_up(text) };
        let unreadable = || Unreadable { resource: name.clone(), text: text.chars().take(60).collect() };
        Ok((name.clone(), amount.ok_or_else(unreadable)?))
    };
    amounts.iter().map(one).collect()
}

fn add(sums: &mut Sums, more: &Sums) {
    for (name, amount) in more {
        let sum = sums.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

fn raise(sums: &mut Sums, least: &Sums) {
    for (name, amount) in least {
        let sum = sums.entry(name.clone()).or_default();
        *sum = (*sum).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({ "spec": spec })).unwrap()
    }

    fn requests(amounts: serde_json::Value) -> serde_json::Value {
        serde_json::json!({ "resources": { "requests": amounts } })
    }

    #[test]
    fn containers_run_together_and_init_containers_one_after_the_other() {
        let pod = pod(serde_json::json!({
            "containers": [requests(serde_json::json!({"cpu": "1", "nvidia.com/gpu": "2"})), requests(serde_json::json!({"cpu": "500m"}))],
            "initContainers": [requests(serde_json::json!({"cpu": "4"})), requests(serde_json::json!({"cpu": "2", "memory": "1Gi"}))],
            "overhead": {"cpu": "100m"},
        }));
        let demand = Demand::of(&pod).unwrap();
        assert_eq!((demand.cpu_milli, demand.memory_bytes, demand.devices), (4100, 1 << 30, 2));
    }

    #[test]
    fn a_sidecar_runs_beside_the_containers_and_the_init_containers_after_it() {
        let mut sidecar = requests(serde_json::json!({"cpu": "2"}));
        sidecar["restartPolicy"] = "Always".into();
        let first = requests(serde_json::json!({"cpu": "5"}));
        let last = requests(serde_json::json!({"cpu": "4"}));
        let main = requests(serde_json::json!({"cpu": "1"}));
        let cpu = |init: &[&serde_json::Value]| {
            let pod = pod(serde_json::json!({"containers": [main], "initContainers": init}));
            Demand::of(&pod).unwrap().cpu_milli
        };
        assert_eq!(cpu(&[&first, &sidecar]), 5000);
        assert_eq!(cpu(&[&sidecar, &last]), 6000);
        assert_eq!(cpu(&[&sidecar]), 3000);
    }

    #[test]
    fn what_the_pod_asks_for_as_a_whole_comes_before_its_containers() {
        let pod = pod(serde_json::json!({
            "containers": [requests(serde_json::json!({"cpu": "8", "ephemeral-storage": "1G"}))],
            "resources": {"requests": {"cpu": "3"}},
        }));
        let demand = Demand::of(&pod).unwrap();
        assert_eq!((demand.cpu_milli, demand.extras.of(&Resource::Storage)), (3000, 1_000_000_000));
    }

    #[test]
    fn a_request_that_cannot_be_read_is_named() {
        let pod = pod(serde_json::json!({"containers": [requests(serde_json::json!({"cpu": "lots"}))]}));
        assert_eq!(Demand::of(&pod).unwrap_err().resource, "cpu");
    }
}
