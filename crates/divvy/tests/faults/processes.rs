//! Jobs that misbehave: whatever they start ends with them, and the GPU is free.

use std::fs;
use std::time::Instant;

use serde_json::json;

use crate::site::{PATIENCE, Site, is_alive, wait_for_lines};

#[track_caller]
fn assert_gone(site: &Site, count: usize) {
    let lines = wait_for_lines(&site.work().join("pids"), count);
    let alive: Vec<&String> = lines.iter().filter(|line| is_alive(line.parse().unwrap())).collect();
    assert!(alive.is_empty(), "still there: {alive:?} of {lines:?}");
    site.assert_all_free();
    site.assert_lawful();
}

#[test]
fn children_that_are_left_and_daemons_end_with_their_job() {
    let site = Site::start();
    // One child, one in a session of its own, and one that is nobody's child and hides its environment.
    let script = "sleep 1000 & echo $! >> pids; setsid sleep 1000 & echo $! >> pids
        ( ( setsid env -i /bin/sh -c 'echo $$ >> pids; exec sleep 1000' & ) & )
        while [ $(wc -l < pids) -lt 3 ]; do sleep 0.01; done; exit 7";
    let id = site.submit("-g 8", script);
    assert_eq!(site.divvy(["wait", &id]).code, 7);
    assert_gone(&site, 3);
    assert_eq!(site.divvy(["run", "-g", "8", "--", "true"]).code, 0);
}

#[test]
fn a_job_that_forks_on_and_on_is_cancelled_as_a_whole() {
    let site = Site::start();
    let next = site.work().join("next");
    fs::write(&next, "#!/bin/sh\ntrap '' TERM HUP INT\necho $$ >> pids\nsetsid ./next &\nsleep 0.01\n")
        .unwrap();
    let id = site.submit("-g 1 --grace 100ms", "chmod +x next; ./next; ./next; exec sleep 1000");
    wait_for_lines(&site.work().join("pids"), 10);
    site.divvy(["cancel", &id]).ok();
    assert_ne!(site.divvy(["wait", &id]).code, 0);
    let count = wait_for_lines(&site.work().join("pids"), 10).len();
    assert_gone(&site, count);
    assert_eq!(wait_for_lines(&site.work().join("pids"), count).len(), count, "it still forks");
}

#[test]
fn a_job_that_ignores_the_stop_signal_is_killed_when_its_grace_is_over() {
    let site = Site::start();
    let script = "trap '' TERM; echo $$ >> pids; while :; do sleep 0.05; done";
    let id = site.submit("-g 8 --grace 200ms", script);
    wait_for_lines(&site.work().join("pids"), 1);
    let begun = Instant::now();
    site.divvy(["cancel", &id]).ok();
    assert_eq!(site.divvy(["wait", &id]).code, 137);
    assert!(begun.elapsed() < PATIENCE / 4, "a grace of 200 ms took {:?}", begun.elapsed());
    assert_eq!(site.job(&id)["state"], "cancelled");
    assert_gone(&site, 1);
}

#[test]
fn a_job_may_write_a_gigabyte_and_nobody_has_to_read_it() {
    let site = Site::start();
    let said = site.divvy([
        "run",
        "-g",
        "1",
        "--log",
        "/dev/null",
        "-d",
        "--",
        "sh",
        "-c",
        "head -c 1073741824 /dev/zero; exit 4",
    ]);
    let to_a_device = said.ok().to_owned();
    assert_eq!(site.divvy(["wait", &to_a_device]).code, 4);
    let mut attached = site.command();
    attached.args(["run", "-g", "1", "--", "sh", "-c", "head -c 1073741824 /dev/zero; exit 5"]);
    attached.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    assert_eq!(attached.status().unwrap().code(), Some(5));
    site.assert_all_free();
    let daemon = fs::read_to_string(format!("/proc/{}/status", site.daemon())).unwrap();
    let rss = daemon.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().to_owned();
    let rss_kib: u64 = rss.split(' ').next().unwrap().parse().unwrap();
    assert!(rss_kib < 256 << 10, "the daemon took {rss} for a gigabyte of output");
}

#[test]
fn a_job_that_closes_its_output_runs_on_and_ends_with_its_exit_code() {
    let site = Site::start();
    let said =
        site.divvy(["run", "-g", "1", "--", "sh", "-c", "echo before; exec <&- >&- 2>&-; sleep 0.1; exit 6"]);
    assert_eq!((said.code, said.out.as_str()), (6, "before\n"), "{said:?}");
    site.assert_all_free();
}

#[test]
fn a_job_that_kills_its_own_supervisor_is_lost_and_leaves_nothing() {
    let site = Site::start();
    let script = "echo $$ >> pids; sleep 1000 & echo $! >> pids; kill -9 $PPID; exec sleep 1000";
    let id = site.submit("-g 1 --requeue=never", script);
    assert_ne!(site.divvy(["wait", &id]).code, 0);
    assert_eq!(site.job(&id)["state"], json!("lost"));
    assert_gone(&site, 2);
}
