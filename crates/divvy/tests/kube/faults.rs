//! What goes wrong around the scheduler, on the real server.

use std::time::Duration;

use serde_json::{Value, json};

use crate::draw::Draw;
use crate::history::History;
use crate::site::{SOON_OVER_S, Site};

fn gang(site: &Site, name: &str, (pods, gpus): (u32, u32)) -> Value {
    let mut pod = site.pod("unused", gpus);
    pod["metadata"] = json!({"labels": {"divvy.dev/gang": pods.to_string()}});
    pod["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "parallelism": pods, "completions": pods, "backoffLimit": 1000,
            "template": {"metadata": pod["metadata"], "spec": pod["spec"]},
        },
    })
}

/// A crash waits for no event: it comes somewhere between the lease, the lists and the bindings.
fn wait_into_its_work(moment: Duration) {
    std::thread::sleep(moment);
}

/// How many pods of a gang have a node.
fn placed_of(site: &Site, gang: &str) -> usize {
    let begin = format!("{gang}-");
    site.places().iter().filter(|(name, node)| name.starts_with(&begin) && !node.is_empty()).count()
}

/// When it is killed: at least and at most so many milliseconds after it has begun to lead, in so many rounds. That is all there is
/// between the lists and the last binding.
const MOMENTS: [u64; 3] = [0, 1500, 3];

#[test]
fn killed_at_any_moment_it_gives_nothing_twice_and_leaves_no_gang_in_halves() {
    let Some(mut site) = Site::new("killed", 4) else { return };
    site.lease_s = SOON_OVER_S;
    let mut draw = Draw::seeded("DIVVY_KILLS", 11);
    let history = History::begin(&site);
    // Three gangs of eight, of which the nodes hold two: the third waits whole.
    for name in ["one", "two", "three"] {
        site.create(&gang(&site, name, (8, 2)));
    }
    let [least_ms, most_ms, rounds] = MOMENTS;
    for _ in 0..rounds {
        let before = site.leader();
        site.schedule();
        site.wait_until("it to lead", || site.leader() != before);
        wait_into_its_work(Duration::from_millis(least_ms + draw.below(most_ms - least_ms)));
        site.kill();
    }
    site.schedule();
    site.wait_until("two gangs to be whole and one to wait", || {
        let mut placed = ["one", "two", "three"].map(|name| placed_of(&site, name));
        placed.sort_unstable();
        placed == [0, 8, 8]
    });
    history.end();
}

#[test]
fn a_node_that_is_cordoned_gets_no_pod_and_the_pods_of_one_that_goes_are_placed_elsewhere() {
    let Some(site) = Site::new("nodes-go", 2) else { return };
    let history = History::begin(&site);
    site.schedule();
    site.kubectl(&["cordon", "nodes-go-0"], None);
    let mut four = site.replicas("four", 2);
    four["spec"]["replicas"] = json!(4);
    site.create(&four);
    let on = |node: &str| site.places().iter().filter(|(_, there)| there == node).count();
    site.wait_until("all to be on the other node", || on("nodes-go-1") == 4);
    site.kubectl(&["uncordon", "nodes-go-0"], None);
    site.kubectl(&["delete", "node", "nodes-go-1"], None);
    // Nothing here collects the pods of the node as fast as a test wants: their kubelet is gone with it.
    site.kubectl(
        &["delete", "pods", "-l", "app=four", "--field-selector", "spec.nodeName=nodes-go-1", "--force"],
        None,
    );
    site.wait_until("all to be on the node that came back", || on("nodes-go-0") == 4);
    history.end();
}

#[test]
fn nonsense_is_said_to_be_wrong_and_stops_nobody_else() {
    let Some(site) = Site::new("nonsense", 1) else { return };
    site.schedule();
    let labelled = |name: &str, key: &str, value: &str| {
        let mut pod = site.pod(name, 1);
        pod["metadata"]["labels"] = json!({key: value});
        pod
    };
    site.create(&labelled("gang-zero", "divvy.dev/gang", "0"));
    site.create(&labelled("gang-huge", "divvy.dev/gang", "99999999999999999999"));
    site.create(&labelled("gang-alone", "divvy.dev/gang", "2"));
    let mut vast = site.pod("vast", 1);
    vast["metadata"]["annotations"] = json!({"divvy.dev/preemptible": "x".repeat(200_000)});
    vast["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("8E");
    site.create(&vast);
    site.queue("nonsense-negative", &json!({"guarantee": {"any": -5}}));
    site.queue("nonsense-self", &json!({"parent": "nonsense-self"}));
    site.queue("nonsense-word", &json!({"limit": {"gpu of the moon": "seven"}}));
    site.create(&site.pod("plain", 1));
    site.wait_until("the plain pod to be placed", || !site.get("pod", "plain")["spec"]["nodeName"].is_null());
    for pod in ["gang-zero", "gang-huge", "gang-alone", "vast"] {
        site.wait_until("each to be told why", || !site.why(pod).0.is_empty());
    }
    for queue in ["nonsense-negative", "nonsense-self", "nonsense-word"] {
        let said = || site.get("queue", queue)["status"]["conditions"][0]["status"].clone();
        site.wait_until("each queue to be told what is wrong", || said() == "False");
    }
}
