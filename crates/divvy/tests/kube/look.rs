//! `divvy ps|queues|explain --kube`: what a cluster tells of itself, with the rights of the scheduler and no more.

use std::process::Command;

use serde_json::{Value, json};

use crate::site::Site;

fn divvy(site: &Site, words: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
    command.args(words).args([
        "--kube",
        "--nodes",
        &site.own(),
        "--queues",
        &site.own(),
        "--scheduler-name",
        &site.scheduler_name(),
    ]);
    let answer = command.args(["-o", "json", "--kubeconfig"]).arg(site.own_kubeconfig()).output().unwrap();
    assert!(answer.status.success(), "{words:?}: {}", String::from_utf8_lossy(&answer.stderr));
    serde_json::from_slice(&answer.stdout).unwrap()
}

fn row(site: &Site, id: &str) -> Value {
    let id = format!("{}/{id}", site.namespace);
    let rows = divvy(site, &["ps"]);
    rows.as_array().unwrap().iter().find(|row| row["id"] == id).cloned().unwrap_or_default()
}

#[test]
fn pods_queues_and_reasons_are_told_as_on_one_machine_and_the_fix_is_true() {
    let Some(site) = Site::new("look", 1) else { return };
    site.queue("look-small", &json!({"limit": {"any": 2}, "guarantee": {"any": 2}}));
    let of_queue = |name: &str, gpus: u32| {
        let mut pod = site.pod(name, gpus);
        pod["metadata"]["labels"] = json!({"divvy.dev/queue": "look-small"});
        pod["metadata"]["annotations"] = json!({"divvy.dev/preemptible": "true"});
        site.create(&pod);
    };
    of_queue("runs", 2);
    site.schedule();
    site.wait_until("the first pod to be placed", || site.placed() == 1);
    of_queue("waits", 1);
    site.wait_until("the second to be told", || site.why("waits").0 == "QueueLimit");
    let until = format!("wait for {}/runs to end", site.namespace);
    site.wait_until("the fix to be told", || site.why("waits").1.ends_with(&until));
    let mut alone = site.replicas("alone", 1);
    alone["spec"]["template"]["metadata"]["labels"]["divvy.dev/gang"] = json!("2");
    site.create(&alone);
    site.wait_until("the third to be there", || site.places().len() == 3);
    let (runs, waits) = (row(&site, "runs"), row(&site, "waits"));
    assert_eq!((&runs["state"], &runs["nodes"]), (&json!("running"), &json!(["look-0"])));
    assert_eq!((&waits["state"], &waits["reason"]["code"]), (&json!("pending"), &json!("DV-QUEUE-LIMIT")));
    let third =
        site.places().into_iter().map(|(name, _)| name).find(|name| name.starts_with("alone")).unwrap();
    assert_eq!(row(&site, &third)["reason"]["code"], "GangIncomplete");
    let queues = divvy(&site, &["queues"]);
    let small = queues.as_array().unwrap().iter().find(|queue| queue["queue"] == "look-small").unwrap();
    assert_eq!(
        (&small["gpu_milli"], &small["running"], &small["waiting"]),
        (&json!(2000), &json!(1), &json!(1))
    );
    let explained = divvy(&site, &["explain", "waits"]);
    assert_eq!(explained["job"], json!(format!("{}/waits", site.namespace)));
    let ways = explained["blockers"][0]["ways"].as_array().unwrap();
    let by_administrator = ways.iter().find(|way| way["who"] == "administrator").unwrap();
    assert!(by_administrator["text"].as_str().unwrap().contains("look-small"), "{explained}");
    // What is said to start it does start it.
    site.queue("look-small", &json!({"limit": {"any": 3}, "guarantee": {"any": 3}}));
    site.wait_until("the second pod to be placed", || site.placed() == 2);
    let explained = divvy(&site, &["explain", &format!("{}/waits", site.namespace)]);
    assert_eq!((&explained["verdict"], &explained["nodes"]), (&json!("placed"), &json!(["look-0"])));
}

#[test]
fn a_pod_that_is_not_there_is_not_found() {
    let Some(site) = Site::new("look-none", 1) else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
    command.args(["explain", "--kube", "nobody", "--kubeconfig"]).arg(site.own_kubeconfig());
    let answer = command.output().unwrap();
    assert_eq!(answer.status.code(), Some(66));
    assert!(String::from_utf8_lossy(&answer.stderr).contains("nobody"));
}
