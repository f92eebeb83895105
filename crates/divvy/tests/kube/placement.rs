//! Pods get nodes: where they fit, where they want to lie, and not where others are.

use serde_json::json;

use crate::site::Site;

#[test]
fn gpus_are_given_once_and_who_waits_is_told_why() {
    let Some(site) = Site::new("given-once", 1) else { return };
    ["a", "b", "c"].iter().for_each(|name| site.create(&site.pod(name, 4)));
    site.schedule();
    site.wait_until("two pods to be placed", || site.placed() == 2);
    let waiting = || site.places().into_iter().find(|(_, node)| node.is_empty()).unwrap().0;
    site.wait_until("a reason", || !site.why(&waiting()).0.is_empty());
    let (reason, message) = site.why(&waiting());
    assert_eq!(reason, "Unschedulable");
    assert!(message.contains("fit") || message.contains("4 GPUs free"), "{message}");
    let placed = site.places().into_iter().find(|(_, node)| !node.is_empty()).unwrap().0;
    site.kubectl(&["delete", "pod", &placed], None);
    site.wait_until("the freed GPUs to be given", || site.placed() == 2);
}

#[test]
fn pods_lie_where_selector_affinity_and_taints_let_them() {
    let Some(site) = Site::new("lie-where", 1) else { return };
    site.node("lie-where-fast", &json!({"disk": "nvme", "age": "3"}));
    let term = |key: &str, operator: &str, value: &str| {
        let wish = json!([{"key": key, "operator": operator, "values": [value]}]);
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": wish}]}}})
    };
    let mut fast = site.pod("fast", 1);
    fast["spec"]["affinity"] = term("disk", "In", "nvme");
    let mut slow = site.pod("slow", 1);
    slow["spec"]["affinity"] = term("disk", "NotIn", "nvme");
    let mut old = site.pod("old", 1);
    old["spec"]["affinity"] = term("age", "Gt", "3");
    let mut bare = site.pod("bare", 1);
    bare["spec"]["tolerations"] = json!([]);
    [&fast, &slow, &old, &bare].iter().for_each(|pod| site.create(pod));
    site.schedule();
    site.wait_until("two pods to be placed", || site.placed() == 2);
    let node = |name: &str| site.get("pod", name)["spec"]["nodeName"].clone();
    assert_eq!((node("fast"), node("slow")), (json!("lie-where-fast"), json!("lie-where-0")));
    site.wait_until("reasons", || ["old", "bare"].iter().all(|name| !site.why(name).0.is_empty()));
    assert!(site.why("old").1.contains("labels"), "{:?}", site.why("old"));
}

#[test]
fn pods_lie_near_those_they_name_and_apart_from_their_like() {
    let Some(site) = Site::new("company", 2) else { return };
    let term = |app: &str| json!([{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}]);
    let pod = |name: &str, app: &str, kind: &str, other: &str| {
        let mut pod = site.pod(name, 1);
        pod["metadata"]["labels"]["app"] = json!(app);
        pod["spec"]["affinity"] =
            json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": term(other)}});
        pod
    };
    ["web-1", "web-2", "web-3"]
        .iter()
        .for_each(|name| site.create(&pod(name, "web", "podAntiAffinity", "web")));
    site.create(&pod("cache", "cache", "podAffinity", "db"));
    site.schedule();
    site.wait_until("two pods to be placed", || site.placed() == 2);
    site.wait_until("a reason", || !site.why("cache").0.is_empty());
    assert!(site.why("cache").1.contains("app=db"), "{:?}", site.why("cache"));
    site.create(&pod("db", "db", "podAntiAffinity", "cache-of-others"));
    site.wait_until("it to lie near the other", || site.placed() == 4);
    let node = |name: &str| site.get("pod", name)["spec"]["nodeName"].clone();
    assert_eq!(node("cache"), node("db"));
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let Some(site) = Site::new("refused", 1) else { return };
    let mut pod = site.pod("port", 1);
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    site.create(&pod);
    let mut gang = site.pod("gang", 1);
    gang["metadata"]["labels"] = json!({"divvy.dev/gang": "many"});
    site.create(&gang);
    site.create(&site.pod("plain", 1));
    site.schedule();
    site.wait_until("the plain pod to be placed", || site.placed() == 1);
    site.wait_until("reasons", || ["port", "gang"].iter().all(|name| !site.why(name).0.is_empty()));
    assert_eq!(site.why("port").0, "Refused");
    assert!(site.why("port").1.contains("ports of the host"), "{:?}", site.why("port"));
    assert!(site.why("gang").1.contains("many"), "{:?}", site.why("gang"));
}

#[test]
fn what_pods_of_others_hold_is_not_given_out() {
    let Some(site) = Site::new("others", 1) else { return };
    let mut theirs = site.pod("theirs", 6);
    theirs["spec"]["schedulerName"] = json!("somebody");
    theirs["spec"]["nodeName"] = json!("others-0");
    site.create(&theirs);
    site.schedule();
    site.create(&site.pod("large", 4));
    site.create(&site.pod("small", 2));
    site.wait_until("the small pod to be placed", || site.placed() == 2);
    site.wait_until("a reason", || site.why("large").0 == "Unschedulable");
    site.kubectl(&["delete", "pod", "theirs"], None);
    site.wait_until("the large pod to be placed", || site.placed() == 2);
}
