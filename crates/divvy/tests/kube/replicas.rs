//! Several schedulers of one name: one leads, and the next takes over.

use crate::history::History;
use crate::site::{SOON_OVER_S, Site};

#[test]
fn another_takes_over_from_a_killed_leader_and_a_stopped_one_ends_when_it_wakes() {
    let Some(mut site) = Site::new("replicas", 2) else { return };
    site.lease_s = SOON_OVER_S;
    let history = History::begin(&site);
    site.schedule();
    ["a", "b"].iter().for_each(|name| site.create(&site.pod(name, 3)));
    site.wait_until("the leader to place pods", || site.placed() == 2);
    site.schedule();
    site.schedule();
    site.kill();
    ["c", "d"].iter().for_each(|name| site.create(&site.pod(name, 3)));
    site.wait_until("the next to place pods", || site.placed() == 4);
    // Either of the two may lead now; the one that was started first is stopped.
    site.signal("STOP");
    site.create(&site.pod("e", 2));
    site.wait_until("somebody who is not stopped to lead", || site.placed() == 5);
    site.signal("CONT");
    site.create(&site.pod("f", 2));
    site.wait_until("the last pod to be placed", || site.placed() == 6);
    history.end();
}

#[test]
fn a_leader_that_slept_through_its_lease_ends_by_itself() {
    let Some(mut site) = Site::new("slept", 1) else { return };
    site.lease_s = SOON_OVER_S;
    site.schedule();
    site.create(&site.pod("a", 3));
    site.wait_until("the leader to place a pod", || site.placed() == 1);
    site.schedule();
    site.signal("STOP");
    site.create(&site.pod("b", 3));
    site.wait_until("the next to place a pod", || site.placed() == 2);
    site.signal("CONT");
    assert_eq!(site.ended(), Some(75));
    site.create(&site.pod("c", 2));
    site.wait_until("the next to go on", || site.placed() == 3);
}
