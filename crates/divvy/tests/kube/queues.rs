//! Queues as custom resources.

use serde_json::{Value, json};

use crate::site::{SOON_OVER_S, Site};

#[test]
fn a_queue_binds_its_pods_and_a_mistake_leaves_the_last_good_one_in_force() {
    let Some(site) = Site::new("queues", 1) else { return };
    site.queue("queues-small", &json!({"limit": {"any": 1}, "guarantee": {"any": 1}}));
    site.schedule();
    for name in ["first", "second"] {
        let mut pod = site.pod(name, 1);
        pod["metadata"]["labels"] = json!({"divvy.dev/queue": "queues-small"});
        pod["metadata"]["annotations"] = json!({"divvy.dev/preemptible": "true"});
        site.create(&pod);
    }
    site.wait_until("one pod to be placed", || site.placed() == 1);
    let waiting = || site.places().into_iter().find(|(_, node)| node.is_empty()).unwrap().0;
    site.wait_until("a reason", || site.why(&waiting()).0 == "QueueLimit");
    site.queue("queues-small", &json!({"limit": {"any": "much"}}));
    let condition = || site.get("queue", "queues-small")["status"]["conditions"][0].clone();
    site.wait_until("the mistake to be told", || condition()["status"] == "False");
    assert_eq!(site.placed(), 1);
    site.queue("queues-small", &json!({"limit": {"any": 2}}));
    site.wait_until("the second pod to be placed", || site.placed() == 2);
    site.wait_until("the queue to be in force", || condition()["status"] == "True");
}

#[test]
fn a_pod_whose_queue_is_not_there_waits_until_it_is() {
    let Some(site) = Site::new("no-queue", 1) else { return };
    let mut pod = site.pod("early", 1);
    pod["metadata"]["labels"] = json!({"divvy.dev/queue": "no-queue-yet"});
    pod["metadata"]["annotations"] = json!({"divvy.dev/preemptible": "true"});
    site.create(&pod);
    // A queue of another pool does not count.
    site.queue_of("others", "no-queue-yet", &json!({}));
    site.schedule();
    site.wait_until("a reason", || site.why("early").0 == "Refused");
    site.queue("no-queue-yet", &json!({}));
    site.wait_until("the pod to be placed", || site.placed() == 1);
}

#[test]
fn a_queue_takes_pods_of_its_namespaces_and_keeps_what_runs() {
    let Some(mut site) = Site::new("spaces", 1) else { return };
    site.lease_s = SOON_OVER_S;
    site.queue("spaces-own", &json!({"namespaces": [&site.namespace]}));
    let of_queue = |name: &str| {
        let mut pod = site.pod(name, 1);
        pod["metadata"]["labels"] = json!({"divvy.dev/queue": "spaces-own"});
        pod["metadata"]["annotations"] = json!({"divvy.dev/preemptible": "true"});
        site.create(&pod);
    };
    of_queue("early");
    site.schedule();
    site.wait_until("the pod to be placed", || site.placed() == 1);
    site.kill();
    site.queue("spaces-own", &json!({"namespaces": ["elsewhere"]}));
    of_queue("late");
    site.schedule();
    site.wait_until("the other to be told", || site.why("late").1.contains(&site.namespace));
    assert!(site.get("pod", "early")["metadata"]["deletionTimestamp"].is_null() && site.placed() == 1);
}

#[test]
fn a_queue_bounds_priority_time_and_number_of_its_pods() {
    let Some(mut site) = Site::new("bounds", 1) else { return };
    site.lease_s = SOON_OVER_S;
    site.priority_class("bounds-high", 1000);
    let own = json!([&site.namespace]);
    site.queue(
        "bounds-own",
        &json!({"default_for": own, "max_priority": 10, "max_time": "12s", "max_jobs": 2}),
    );
    site.schedule();
    let pod = |name: &str, more: Value| {
        let mut pod = site.pod(name, 1);
        pod["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        site.create(&pod);
    };
    pod("urgent", json!({"priorityClassName": "bounds-high"}));
    pod("long", json!({"activeDeadlineSeconds": 3600}));
    site.wait_until("both to be refused", || {
        site.why("urgent").1.contains("priority") && site.why("long").1.contains("time limit")
    });
    pod("short", json!({"activeDeadlineSeconds": 11}));
    pod("silent", json!({}));
    site.wait_until("two to be placed", || site.placed() == 2);
    // The server keeps with the pod how long its queue lets it run.
    let limit = |name: &str| site.get("pod", name)["metadata"]["annotations"]["divvy.dev/time-limit"].clone();
    assert_eq!((limit("silent"), limit("short")), (json!("12s"), Value::Null));
    pod("third", json!({}));
    site.wait_until("the third to be refused", || site.why("third").1.contains("jobs"));
    site.kill();
    site.schedule();
    site.wait_until("the next scheduler to end it", || site.get("pod", "silent").is_null());
    let said = site.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"], None);
    assert!(said.contains("TimeLimit"), "{said}");
    site.wait_until("the third to take its turn", || !site.get("pod", "third")["spec"]["nodeName"].is_null());
}

#[test]
fn what_a_queue_has_used_of_its_budget_is_known_to_the_next_scheduler() {
    let Some(mut site) = Site::new("spent", 1) else { return };
    site.lease_s = SOON_OVER_S;
    // Three and a half seconds of a GPU.
    site.queue("spent-queue", &json!({"budget": {"gpu_hours": "0.001", "every": "month"}}));
    let of_queue = |name: &str| {
        let mut pod = site.pod(name, 1);
        pod["metadata"]["labels"] = json!({"divvy.dev/queue": "spent-queue"});
        site.create(&pod);
    };
    site.schedule();
    of_queue("early");
    site.wait_until("the pod to be placed", || site.placed() == 1);
    let status = || site.get("queue", "spent-queue")["status"].clone();
    site.wait_until("the queue to say what it has", || status()["gpus"] == 1 && status()["running"] == 1);
    let until_spent = || {
        of_queue("probe");
        site.wait_until("a verdict", || site.placed() == 2 || !site.why("probe").0.is_empty());
        let is_spent = site.why("probe").0 == "OverBudget";
        site.kubectl(&["delete", "pod", "probe", "--force", "--grace-period=0"], None);
        is_spent
    };
    site.wait_until("the budget to be used up", until_spent);
    site.kubectl(&["delete", "pod", "early", "--force", "--grace-period=0"], None);
    site.wait_until("the queue to say what it used", || {
        let status = status();
        status["gpus"] == 0 && status["usage"]["budget"]["usedGpuSeconds"].as_i64() >= Some(3)
    });
    site.kill();
    of_queue("late");
    site.schedule();
    site.wait_until("the next scheduler to know", || site.why("late").0 == "OverBudget");
    assert_eq!(site.placed(), 0);
}
