//! Nodes that hold more than they have: because of another scheduler, or because they have less than before.

use std::time::Duration;

use serde_json::{Value, json};

use crate::history::History;
use crate::other::Other;
use crate::site::Site;

/// How soon an over-commitment by others is repaired.
const REPAIRED_WITHIN: Duration = Duration::from_secs(5);

fn events_of(site: &Site, reason: &str) -> Vec<Value> {
    let said: Value = serde_json::from_str(&site.kubectl(&["get", "events", "-o", "json"], None)).unwrap();
    let events = said["items"].as_array().unwrap().iter();
    events.filter(|event| event["reason"] == reason).cloned().collect()
}

#[test]
fn the_youngest_goes_where_others_take_more_than_is_free() {
    let Some(site) = Site::new("crowded", 1) else { return };
    site.schedule();
    site.create(&site.pod("older", 4));
    site.wait_until("the first pod to be placed", || site.placed() == 1);
    site.create(&site.pod("younger", 4));
    site.wait_until("the second pod to be placed", || site.placed() == 2);
    let history = History::of_all(&site);
    let mut theirs = site.pod("theirs", 2);
    theirs["spec"]["schedulerName"] = json!("somebody");
    theirs["spec"]["nodeName"] = json!("crowded-0");
    site.create(&theirs);
    site.wait_until("the youngest to go", || site.get("pod", "younger").is_null());
    assert!(!site.get("pod", "older").is_null());
    site.wait_until("the event", || !events_of(&site, "Overcommitted").is_empty());
    assert_eq!(events_of(&site, "Overcommitted")[0]["involvedObject"]["name"], "younger");
    history.repaired_within(REPAIRED_WITHIN);
}

#[test]
fn beside_kube_scheduler_on_the_same_nodes_whatever_collides_is_repaired() {
    let Some(site) = Site::new("beside", 2) else { return };
    let theirs = Other::start(&site, "");
    let history = History::of_all(&site);
    site.schedule();
    let replicas = |name: &str, scheduler: &str| {
        let mut set = site.replicas(name, 1);
        set["spec"]["replicas"] = json!(12);
        set["spec"]["template"]["spec"]["schedulerName"] = json!(scheduler);
        set
    };
    let sets = [replicas("ours", &site.scheduler_name()), replicas("theirs", &theirs.name)];
    site.create(&json!({"apiVersion": "v1", "kind": "List", "items": sets}));
    site.wait_until("all GPUs to be taken", || site.placed() == 16);
    // Both go on with what the other leaves.
    site.kubectl(&["scale", "replicaset", "theirs", "--replicas=4"], None);
    site.wait_until("ours to get what was left", || {
        let placed = |set: &str| {
            site.places().iter().filter(|(name, node)| name.starts_with(set) && !node.is_empty()).count()
        };
        (placed("ours-"), placed("theirs-")) == (12, 4)
    });
    let collisions = history.repaired_within(REPAIRED_WITHIN);
    eprintln!("versions at which a node held too much: {collisions}");
}

#[test]
fn a_node_that_shows_fewer_gpus_for_a_while_keeps_its_pods_and_gets_no_others() {
    let Some(site) = Site::new("shrinks", 1) else { return };
    site.schedule();
    let gpus = |count: u32| {
        let amounts = json!({"nvidia.com/gpu": count.to_string()});
        let patch = json!({"status": {"capacity": amounts, "allocatable": amounts}}).to_string();
        site.kubectl(&["patch", "node", "shrinks-0", "--subresource=status", "-p", &patch], None);
    };
    site.create(&site.pod("runs", 6));
    site.wait_until("the first pod to be placed", || site.placed() == 1);
    gpus(0);
    site.create(&site.pod("late", 2));
    site.wait_until("the second to be told", || site.why("late").0 == "Unschedulable");
    gpus(4);
    site.kubectl(&["delete", "pod", "runs"], None);
    site.wait_until("the second pod to be placed", || site.placed() == 1);
    site.create(&site.pod("more", 4));
    site.wait_until("the third to be told", || site.why("more").0 == "Unschedulable");
    gpus(8);
    site.wait_until("the third pod to be placed", || site.placed() == 2);
    assert!(events_of(&site, "Overcommitted").is_empty());
}
