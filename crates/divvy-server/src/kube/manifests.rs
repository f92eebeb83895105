//! What the scheduler adds to a cluster: the type of its queues, its access rights, and the scheduler itself.

use divvy_core::state::fingerprint;
use serde_json::json;

/// The custom resource definition of queues.
const QUEUES: &str = include_str!("manifests/queues.yaml");
/// What the scheduler may do, and nothing else.
const RIGHTS: &str = include_str!("manifests/rights.yaml");
/// The scheduler in the cluster.
const SCHEDULER: &str = include_str!("manifests/scheduler.yaml");

/// The folder in which a scheduler in the cluster finds its policy.
const POLICY_FOLDER: &str = "/etc/divvy";
const POLICY_FILE: &str = "policy.yaml";

/// A scheduler that runs in the cluster.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The image, with the program in its path.
    pub image: String,
    /// How many replicas run, of which one leads.
    pub replicas: u32,
    /// The `schedulerName` of its pods.
    pub scheduler: String,
    /// Nodes with these labels belong to the pool; all, if empty.
    pub nodes: String,
    /// Queues with these labels belong to the pool; all, if empty.
    pub queues: String,
    /// The text of its policy file, if there is one.
    pub policy: Option<String>,
}

/// Returns the manifests for `kubectl apply -f -`, with those of a scheduler in the cluster if one is wanted.
pub fn manifests(inside: Option<&Inside>) -> String {
    let scheduler = inside.map(|inside| format!("---\n{}", deployment(inside)));
    format!("{QUEUES}---\n{RIGHTS}{}", scheduler.unwrap_or_default())
}

fn deployment(inside: &Inside) -> String {
    let mut words = vec!["kube".to_owned(), "run".to_owned()];
    words.push(format!("--scheduler-name={}", inside.scheduler));
    if !inside.nodes.is_empty() {
        words.push(format!("--nodes={}", inside.nodes));
    }
    if !inside.queues.is_empty() {
        words.push(format!("--queues={}", inside.queues));
    }
    let (mut config, mut volumes, mut mounts) = (String::new(), json!([]), json!([]));
    let mut annotations = json!({});
    if let Some(policy) = &inside.policy {
        words.push(format!("--policy={POLICY_FOLDER}/{POLICY_FILE}"));
        let name = format!("{}-policy", inside.scheduler);
        let metadata = json!({"name": name, "namespace": "divvy-system"});
        let data = json!({POLICY_FILE: policy});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        config = format!("{object}\n---\n");
        volumes = json!([{"name": "policy", "configMap": {"name": name}}]);
        mounts = json!([{"name": "policy", "mountPath": POLICY_FOLDER, "readOnly": true}]);
        // A new policy makes new pods: a scheduler reads its policy when it starts.
        annotations = json!({"divvy.dev/policy": format!("{:016x}", fingerprint(policy))});
    }
    // JSON is YAML: no value can end a text or begin another key.
    let scheduler = SCHEDULER
        .replace("ANNOTATIONS", &annotations.to_string())
        .replace("VOLUMES", &volumes.to_string())
        .replace("MOUNTS", &mounts.to_string())
        .replace("SCHEDULER", &json!(inside.scheduler).to_string())
        .replace("REPLICAS", &inside.replicas.to_string())
        .replace("ARGUMENTS", &json!(words).to_string())
        .replace("IMAGE", &json!(inside.image).to_string());
    config + &scheduler
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_engine::kubernetes::{GROUP, VERSION};

    #[test]
    fn the_manifests_name_the_group_and_version_that_the_program_reads() {
        assert!(QUEUES.contains(&format!("name: queues.{GROUP}\n")));
        assert!(QUEUES.contains(&format!("- name: {VERSION}\n")));
        assert!(RIGHTS.contains(&format!("apiGroups: [{GROUP}]")));
    }
}
