//! Preemption and reclaim: which pod goes, how it is told, and for which pod its place is kept.

use serde_json::{Value, json};

use crate::site::Site;

/// A pod of a queue that may be taken back, but takes a while to stop.
fn slow_to_go(site: &Site, name: &str, (gpus, queue): (u32, &str)) -> Value {
    let mut pod = site.pod(name, gpus);
    pod["metadata"]["labels"] = json!({"divvy.dev/queue": queue});
    pod["metadata"]["annotations"] =
        json!({"divvy.dev/preemptible": "true", "test.divvy.dev/stop-after": "3s"});
    pod
}

fn told_to_go(site: &Site, name: &str) -> Option<(String, String)> {
    let pod = site.get("pod", name);
    let conditions = pod["status"]["conditions"].as_array()?;
    let told = conditions.iter().find(|it| it["type"] == "DisruptionTarget" && it["status"] == "True")?;
    let word = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
    pod["metadata"]["deletionTimestamp"].is_string().then(|| (word("reason"), word("message")))
}

#[test]
fn a_queue_gets_back_what_is_due_to_it_and_its_place_is_kept_meanwhile() {
    let Some(site) = Site::new("reclaim", 1) else { return };
    site.queue("reclaim-lends", &json!({"guarantee": {"any": 4}}));
    site.queue("reclaim-due", &json!({"guarantee": {"any": 4}}));
    site.schedule();
    for name in ["first", "second"] {
        site.create(&slow_to_go(&site, name, (4, "reclaim-lends")));
        site.wait_until("the pod to be placed", || !site.get("pod", name)["spec"]["nodeName"].is_null());
    }
    site.create(&slow_to_go(&site, "claims", (4, "reclaim-due")));
    site.wait_until("the second pod to be told to go", || told_to_go(&site, "second").is_some());
    site.create(&slow_to_go(&site, "later", (1, "reclaim-lends")));
    let nominated = || site.get("pod", "claims")["status"]["nominatedNodeName"].clone();
    assert_eq!(nominated(), json!("reclaim-0"));
    let (reason, message) = told_to_go(&site, "second").unwrap();
    assert_eq!(reason, "PreemptionByScheduler");
    assert!(message.contains("reclaim-due") && message.contains("/claims"), "{message}");
    site.wait_until("the claim to be met", || !site.get("pod", "claims")["spec"]["nodeName"].is_null());
    assert!(site.get("pod", "second").is_null() && told_to_go(&site, "first").is_none());
    assert!(site.get("pod", "later")["spec"]["nodeName"].is_null());
}

#[test]
fn a_pod_that_nobody_makes_anew_is_no_victim() {
    let Some(site) = Site::new("no-victim", 1) else { return };
    site.priority_class("no-victim-high", 1000);
    site.schedule();
    site.create(&site.pod("stays", 6));
    site.wait_until("the first pod to be placed", || site.placed() == 1);
    let mut urgent = site.pod("urgent", 4);
    urgent["spec"]["priorityClassName"] = json!("no-victim-high");
    site.create(&urgent);
    site.wait_until("a reason", || site.why("urgent").0 == "Unschedulable");
    assert!(told_to_go(&site, "stays").is_none());
    // The same pod under a controller may go, since the controller makes another one.
    site.kubectl(&["delete", "pod", "urgent", "stays"], None);
    site.create(&site.replicas("anew", 6));
    site.wait_until("the replica to be placed", || site.placed() == 1);
    let before = site.places();
    // A pod of a class that stops nobody waits.
    site.polite_class("no-victim-polite", 2000);
    let mut polite = site.pod("polite", 4);
    polite["spec"]["priorityClassName"] = json!("no-victim-polite");
    site.create(&polite);
    site.wait_until("another reason", || site.why("polite").0 == "Unschedulable");
    site.kubectl(&["delete", "pod", "polite"], None);
    assert_eq!(site.places(), before);
    site.create(&urgent);
    site.wait_until("the urgent pod to be placed", || {
        !site.get("pod", "urgent")["spec"]["nodeName"].is_null()
    });
    site.wait_until("the replica to be made anew", || site.places().len() == 2 && site.places() != before);
    assert_eq!(site.placed(), 1);
}

#[test]
fn whoever_waits_tells_it_once_to_its_owner() {
    let Some(site) = Site::new("events", 1) else { return };
    // A new node has a taint for a moment, which would be another reason.
    site.wait_until("the node to be ready", || site.are_ready());
    site.schedule();
    let mut many = site.replicas("many", 9);
    many["spec"]["replicas"] = json!(5);
    site.create(&many);
    let waiting = || site.places().iter().filter(|(name, _)| site.why(name).0 == "Unschedulable").count();
    site.wait_until("all to have a reason", || waiting() == 5);
    let said =
        || -> Value { serde_json::from_str(&site.kubectl(&["get", "events", "-o", "json"], None)).unwrap() };
    let ours = || -> Vec<Value> {
        let events = said()["items"].as_array().unwrap().clone();
        events.into_iter().filter(|event| event["reason"] == "Unschedulable").collect()
    };
    site.wait_until("the event", || !ours().is_empty());
    assert_eq!(ours().len(), 1, "{:?}", ours());
    assert_eq!(ours()[0]["involvedObject"]["kind"], "ReplicaSet");
    assert!(ours()[0]["message"].as_str().unwrap().contains("largest node has 8"), "{:?}", ours());
}
