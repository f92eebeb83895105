//! Answers that are late or lost, a server that has too much to do, and versions that it has forgotten.

use serde_json::json;

use crate::history::History;
use crate::proxy::{Odds, Proxy};
use crate::site::Site;

#[test]
fn what_is_refused_for_a_while_cut_late_or_lost_is_done_once_and_to_the_end() {
    let Some(mut site) = Site::new("network", 4) else { return };
    let odds = Odds { busy: 15, cut: 10, lost: 15, slow: 20, forgotten: 0 };
    let proxy = Proxy::start(&site, odds);
    site.server = Some(proxy.address.clone());
    let history = History::begin(&site);
    let mut gang = site.pod("unused", 2);
    gang["metadata"] = json!({"labels": {"divvy.dev/gang": "8"}});
    gang["spec"]["restartPolicy"] = json!("Never");
    let template = json!({"metadata": gang["metadata"], "spec": gang["spec"]});
    let spec = json!({"parallelism": 8, "completions": 8, "template": template});
    site.create(
        &json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gang"}, "spec": spec}),
    );
    let mut single = site.replicas("single", 1);
    single["spec"]["replicas"] = json!(16);
    site.create(&single);
    site.schedule();
    site.wait_until("all to be placed", || site.placed() == 24);
    ["late", "later"].iter().for_each(|name| site.create(&site.pod(name, 1)));
    site.wait_until("those that do not fit to be told why", || {
        ["late", "later"].iter().all(|pod| site.why(pod).0 == "Unschedulable")
    });
    let tally = proxy.tally();
    assert!(tally.busy > 0 && tally.cut > 0 && tally.lost > 0, "{tally:?}");
    history.end();
}

#[test]
fn watches_whose_version_is_forgotten_begin_anew() {
    let Some(mut site) = Site::new("forgotten", 1) else { return };
    let proxy = Proxy::start(&site, Odds { forgotten: 50, ..Odds::default() });
    site.server = Some(proxy.address.clone());
    let history = History::begin(&site);
    site.schedule();
    for number in 0..8 {
        site.create(&site.pod(&format!("pod-{number}"), 1));
        site.wait_until("the pod to be placed", || site.placed() > number);
    }
    site.wait_until("some versions to be forgotten", || proxy.tally().forgotten >= 3);
    site.create(&site.pod("last", 0));
    site.wait_until("the last pod to be placed", || site.placed() == 9);
    history.end();
}
