//! What outlives a scheduler, and gangs.

use serde_json::json;

use crate::site::{SOON_OVER_S, Site};

#[test]
fn the_next_scheduler_takes_over_what_runs_and_gives_nothing_of_it_twice() {
    let Some(mut site) = Site::new("next-term", 1) else { return };
    site.lease_s = SOON_OVER_S;
    site.schedule();
    site.create(&site.pod("stays", 6));
    site.wait_until("the pod to be placed", || site.placed() == 1);
    site.kill();
    site.create(&site.pod("large", 4));
    site.create(&site.pod("small", 2));
    site.schedule();
    site.wait_until("the small pod to be placed", || site.placed() == 2);
    site.wait_until("a reason", || site.why("large").0 == "Unschedulable");
    site.kubectl(&["delete", "pod", "stays"], None);
    site.wait_until("the large pod to be placed", || site.placed() == 2);
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let Some(site) = Site::new("gang", 1) else { return };
    site.schedule();
    let mut template = site.pod("unused", 3);
    template["metadata"] = json!({"labels": {"divvy.dev/gang": "3"}});
    template["spec"]["restartPolicy"] = json!("Never");
    let (metadata, spec) = (template["metadata"].clone(), template["spec"].clone());
    site.create(&json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {"parallelism": 3, "completions": 3, "template": {"metadata": metadata, "spec": spec}},
    }));
    let one = || site.places().into_iter().next().map(|(name, _)| name).unwrap_or_default();
    site.wait_until("a reason", || site.why(&one()).0 == "Unschedulable");
    assert_eq!(site.placed(), 0);
    site.node("gang-1", &json!({}));
    site.wait_until("the gang to be placed", || site.placed() == 3);
}

#[test]
fn who_comes_late_joins_a_gang_that_runs_and_who_waits_beside_it_costs_it_nothing_at_a_restart() {
    let Some(mut site) = Site::new("late", 1) else { return };
    site.lease_s = SOON_OVER_S;
    let mut template = site.pod("unused", 2);
    template["metadata"] = json!({"labels": {"divvy.dev/gang": "3"}});
    template["spec"]["restartPolicy"] = json!("Never");
    let (metadata, spec) = (template["metadata"].clone(), template["spec"].clone());
    site.create(&json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {"parallelism": 5, "completions": 5, "template": {"metadata": metadata, "spec": spec}},
    }));
    site.wait_until("the pods to be there", || site.places().len() == 5);
    site.schedule();
    site.wait_until("three and one more to be placed", || site.placed() == 4);
    let fifth = || site.places().into_iter().find(|(_, node)| node.is_empty()).map(|(name, _)| name);
    site.wait_until("the fifth to be told", || site.why(&fifth().unwrap()).0 == "Unschedulable");
    let before = site.places();
    site.kill();
    site.schedule();
    site.create(&site.pod("marker", 9));
    site.wait_until("the next to have looked at all", || site.why("marker").0 == "Unschedulable");
    let mut after = site.places();
    after.retain(|(name, _)| name != "marker");
    assert_eq!(after, before);
}
