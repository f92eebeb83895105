//! Groups of pods as users write them for other schedulers: only the name of the scheduler differs.

use serde_json::{Value, json};

use crate::site::Site;

/// The resource kind of another project, as far as it is looked at.
fn kind(group: &str, version: &str) -> Value {
    let spec = json!({"type": "object", "properties": {"minMember": {"type": "integer", "format": "int32"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("podgroups.{group}"),
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"},
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}],
        },
    })
}

fn group_of_three(site: &Site, (group, version): (&str, &str)) {
    let object = json!({
        "apiVersion": format!("{group}/{version}"), "kind": "PodGroup",
        "metadata": {"name": "trio"}, "spec": {"minMember": 3},
    });
    site.wait_until("the kind to be known", || site.try_create(&object));
}

/// Two of the three wait, all three start.
fn starts_whole(site: &Site, named: &Value) {
    let member = |name: &str| {
        let mut pod = site.pod(name, 2);
        for (key, value) in named.as_object().unwrap() {
            pod["metadata"][key] = value.clone();
        }
        site.create(&pod);
    };
    member("one");
    member("two");
    site.wait_until("the two to be told", || {
        ["one", "two"].iter().all(|name| site.why(name).0 == "GangIncomplete")
    });
    member("three");
    site.wait_until("all three to be placed", || site.placed() == 3);
}

#[test]
fn pods_of_a_volcano_group_start_together() {
    let Some(site) = Site::new("volcano", 1) else { return };
    site.schedule();
    site.apply(&kind("scheduling.volcano.sh", "v1beta1"));
    group_of_three(&site, ("scheduling.volcano.sh", "v1beta1"));
    starts_whole(&site, &json!({"annotations": {"scheduling.k8s.io/group-name": "trio"}}));
}

#[test]
fn pods_of_a_coscheduling_group_start_together_and_wait_for_a_group_that_is_not_there() {
    let Some(site) = Site::new("coscheduling", 1) else { return };
    site.schedule();
    site.apply(&kind("scheduling.x-k8s.io", "v1alpha1"));
    let mut early = site.pod("early", 1);
    early["metadata"]["labels"] = json!({"scheduling.x-k8s.io/pod-group": "elsewhere"});
    site.create(&early);
    site.wait_until("the pod to be told", || site.why("early").0 == "GroupMissing");
    group_of_three(&site, ("scheduling.x-k8s.io", "v1alpha1"));
    starts_whole(&site, &json!({"labels": {"scheduling.x-k8s.io/pod-group": "trio"}}));
}
