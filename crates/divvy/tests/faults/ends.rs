//! How a daemon ends, and what takes over from it.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::pool::{finish, signal};
use crate::site::{Site, copy_program, is_alive, wait_for_lines, wait_until, wait_until_gone};

#[test]
fn down_leaves_jobs_running_and_says_so() {
    let site = Site::start();
    let gate = site.gate("gate");
    let id = site.submit("-g 8", "echo $$ >> pids; read x < gate; echo after; exit 3");
    let waiting = site.submit("-g 1", "exit 0");
    let pid: u32 = wait_for_lines(&site.work().join("pids"), 1)[0].parse().unwrap();
    let daemon = site.daemon();
    let said = site.say("down");
    assert!(said.ok().contains("1 job runs on") && said.out.contains("1 waiting job"), "{said:?}");
    assert!(!is_alive(daemon) && is_alive(pid));
    gate.open();
    wait_until_gone(pid);
    site.up();
    assert_eq!(site.divvy(["wait", &id]).code, 3);
    assert_eq!(site.divvy(["wait", &waiting]).code, 0);
    assert_eq!(site.divvy(["logs", &id]).ok(), "after");
    site.assert_lawful();
}

#[test]
fn a_daemon_told_to_drain_starts_nothing_new_and_ends_with_the_last_job() {
    let site = Site::start();
    let (started, gate) = (site.gate("started"), site.gate("gate"));
    let running = site.submit("-g 1", "echo > started; read x < gate; exit 3");
    started.await_job();
    let held = site.submit("--hold -g 1", "echo ran >> ran");
    let mut down = site.command();
    let down = down.args(["down", "--drain"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the pool takes no jobs", || {
        let pool = site.pool();
        if pool["accepts"] == json!(false) { Ok(()) } else { Err(pool) }
    });
    let refused = site.divvy(["run", "-d", "--", "true"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    site.divvy(["release", &held]);
    gate.open();
    let said = finish(down);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("waiting for 1 running job"), "{said:?}");
    assert!(!site.work().join("ran").exists());
    site.up();
    assert_eq!(site.divvy(["wait", &running]).code, 3);
    assert_eq!(site.divvy(["wait", &held]).code, 0, "it had its place still");
    site.assert_lawful();
}

#[test]
fn a_daemon_told_to_kill_stops_all_jobs_first() {
    let site = Site::start();
    let running = site.submit("-g 8 --requeue=never", "echo $$ >> pids; exec sleep 1000");
    let waiting = site.submit("-g 1 --requeue=never", "exit 5");
    let pid: u32 = wait_for_lines(&site.work().join("pids"), 1)[0].parse().unwrap();
    let said = site.say("down --kill");
    assert!(said.ok().contains("stopping 1 running job"), "{said:?}");
    assert!(!is_alive(pid));
    site.up();
    let job = site.job(&running);
    assert_eq!(
        (&job["state"], &job["last_end"]["cause"]),
        (&json!("cancelled"), &json!("shutdown")),
        "{job}"
    );
    assert_eq!(site.divvy(["wait", &waiting]).code, 5, "who waits keeps waiting");
    site.assert_all_free();
    site.assert_lawful();
}

#[test]
fn an_upgraded_daemon_takes_over_the_jobs_of_the_old_one() {
    let site = Site::unstarted();
    let program = site.root().join("divvy");
    copy_program(&program);
    let up = || {
        let mut command = Command::new(&program);
        command.args(["up", "--detach", "--gpus", "pretend:8xH100"]).current_dir(site.work());
        let said =
            command.env("DIVVY_STATE", site.state()).env("DIVVY_LOCKS", site.root().join("locks")).output();
        assert!(said.as_ref().unwrap().status.success(), "{said:?}");
    };
    up();
    let gate = site.gate("gate");
    let id = site.submit("-g 2 --tasks 2", "echo $$ >> pids; [ $RANK = 0 ] && read x < gate; exit 0");
    wait_for_lines(&site.work().join("pids"), 2);
    // Installers replace the program while the old one still runs, and the old one goes on starting jobs.
    let newer = site.root().join("divvy.new");
    copy_program(&newer);
    fs::rename(&newer, &program).unwrap();
    assert_eq!(site.divvy(["run", "-g", "1", "--", "true"]).code, 0, "the old daemon still starts jobs");
    let old = site.daemon();
    signal(old, Signal::TERM);
    wait_until_gone(old);
    up();
    let job = site.job(&id);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("running"), &json!(1)), "{job}");
    gate.open();
    assert_eq!(site.divvy(["wait", &id]).code, 0);
    site.assert_all_free();
    site.assert_lawful();
}

/// Connections that the daemon has accepted: the kernel shows the path that its socket was bound to.
fn connections(site: &Site) -> usize {
    let (sockets, state) = (fs::read_to_string("/proc/net/unix").unwrap(), site.state());
    // The sixth column is the state: 03 is connected.
    let is_connected = |line: &&str| line.split_ascii_whitespace().nth(5) == Some("03");
    sockets.lines().filter(|line| line.contains(state.to_str().unwrap())).filter(is_connected).count()
}

#[test]
fn a_follower_and_a_waiter_go_on_when_the_daemon_is_killed_and_comes_back() {
    let site = Site::start();
    let (started, gate) = (site.gate("started"), site.gate("gate"));
    let id = site.submit("-g 1", "echo before; echo > started; read x < gate; echo after; exit 3");
    started.await_job();
    wait_until("those who asked before are gone", || match connections(&site) {
        0 => Ok(()),
        count => Err(count),
    });
    let spawn = |words: &[&str]| {
        let mut command = site.command();
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (waiter, follower) = (spawn(&["wait", &id]), spawn(&["logs", "-f", &id]));
    wait_until("both are connected", || match connections(&site) {
        2.. => Ok(()),
        count => Err(count),
    });
    site.crash(|| ());
    gate.open();
    let said = finish(waiter);
    assert_eq!(said.code, 3, "{said:?}");
    let said = finish(follower);
    assert_eq!((said.code, said.out.as_str()), (0, "before\nafter\n"), "{said:?}");
}
