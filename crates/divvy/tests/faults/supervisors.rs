//! The daemon or a supervisor dies, is told to stop while it starts, or wakes up in another boot.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::pool::{finish, lines, signal};
use crate::site::{Site, is_alive, kill, wait_for_lines, wait_until, wait_until_gone};

/// Prints its pid and those of two children, one of them in a session of its own, and waits.
const FAMILY: &str =
    "echo $$ >> pids; sleep 1000 & echo $! >> pids; setsid sleep 1000 & echo $! >> pids; wait";

fn pids(site: &Site, count: usize) -> Vec<u32> {
    let lines = wait_for_lines(&site.work().join("pids"), count);
    lines.iter().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn a_job_whose_supervisor_is_killed_is_lost_and_its_processes_and_gpu_are_free() {
    let site = Site::start();
    let id = site.submit("-g 2 --requeue=never", FAMILY);
    let family = pids(&site, 3);
    kill(site.supervisor());
    assert_ne!(site.divvy(["wait", &id]).code, 0);
    let job = site.job(&id);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("lost"), &json!(1)), "{job}");
    assert_eq!(job["last_end"]["cause"], "supervisor_lost");
    assert!(!family.iter().any(|pid| is_alive(*pid)));
    site.assert_all_free();
    site.assert_lawful();
}

#[test]
fn a_job_that_wants_to_goes_back_into_the_queue_when_its_supervisor_is_killed() {
    let site = Site::start();
    let script = format!("[ $DIVVY_ATTEMPT -gt 1 ] && exit 0; {FAMILY}");
    let id = site.submit("-g 1 --requeue=lost", &script);
    let family = pids(&site, 3);
    kill(site.supervisor());
    assert_eq!(site.divvy(["wait", &id]).code, 0);
    let job = site.job(&id);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("completed"), &json!(2)), "{job}");
    let shown = site.shown(&id);
    assert_eq!(shown["attempts"][0]["end"]["cause"], "supervisor_lost", "{shown}");
    assert!(!family.iter().any(|pid| is_alive(*pid)));
    site.assert_lawful();
}

#[test]
fn a_supervisor_killed_while_no_daemon_runs_is_noticed_by_the_next_one() {
    let site = Site::start();
    let id = site.submit("-g 1 --requeue=never", FAMILY);
    let family = pids(&site, 3);
    let supervisor = site.supervisor();
    site.crash(|| {
        kill(supervisor);
        wait_until_gone(supervisor);
    });
    assert_ne!(site.divvy(["wait", &id]).code, 0);
    assert_eq!(site.job(&id)["state"], "lost");
    assert!(!family.iter().any(|pid| is_alive(*pid)));
    site.assert_all_free();
    site.assert_lawful();
}

#[test]
fn a_gang_that_loses_a_supervisor_ends_as_a_whole() {
    let site = Site::start();
    let id = site.submit("-g 1 --tasks 3 --requeue=never", "echo $$ >> pids; exec sleep 1000");
    let family = pids(&site, 3);
    let supervisors = wait_until("all tasks run", || {
        let found: Vec<u32> = family.iter().map(|pid| parent(*pid)).collect();
        if found.iter().all(|pid| *pid > 1) { Ok(found) } else { Err(found) }
    });
    kill(supervisors[0]);
    assert_ne!(site.divvy(["wait", &id]).code, 0);
    let job = site.job(&id);
    assert_eq!(job["state"], "lost", "{job}");
    assert!(!family.iter().any(|pid| is_alive(*pid)));
    site.assert_all_free();
    site.assert_lawful();
}

fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_daemon_killed_with_jobs_running_waiting_and_ending_goes_on_where_it_was() {
    let site = Site::start();
    let gate = site.gate("gate");
    let runs_on = site.submit("-g 4", "echo $$ >> pids; read x < gate; exit 3");
    let ends_meanwhile =
        site.submit("-g 4", "echo $$ >> ending; until [ -e go ]; do sleep 0.01; done; exit 4");
    let waiting: Vec<String> = (0..3).map(|at| site.submit("-g 8", &format!("echo {at} >> order"))).collect();
    pids(&site, 1);
    let ending = wait_for_lines(&site.work().join("ending"), 1);
    site.crash(|| {
        fs::write(site.work().join("go"), "").unwrap();
        wait_for_exit(ending[0].parse().unwrap());
    });
    assert_eq!(site.divvy(["wait", &ends_meanwhile]).code, 4);
    let job = site.job(&runs_on);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("running"), &json!(1)));
    assert!(waiting.iter().all(|id| site.job(id)["state"] == "pending"));
    gate.open();
    assert_eq!(site.divvy(["wait", &runs_on]).code, 3);
    assert_eq!(site.divvy(["wait", &waiting[2]]).code, 0);
    assert_eq!(lines(&site.work().join("order")), ["0", "1", "2"]);
    site.assert_lawful();
}

#[test]
fn a_job_that_ends_while_no_daemon_runs_is_charged_until_then_and_shown_so() {
    let site = Site::start();
    let gate = site.gate("gate");
    let id = site.submit("-g 4", "echo $$ >> pids; read x < gate");
    pids(&site, 1);
    let mut ended_ms = 0;
    site.crash(|| {
        gate.open();
        ended_ms = end_in_the_record(&site);
        wait_until("that was a while ago", || {
            let ago_ms = wall_ms() - ended_ms;
            if ago_ms >= 2000 { Ok(()) } else { Err(ago_ms) }
        });
    });
    assert_eq!(site.divvy(["wait", &id]).code, 0);
    let attempt = &site.shown(&id)["attempts"][0];
    assert_eq!(attempt["ended_ms"], ended_ms, "{attempt}");
    let gpu_ms =
        |held: &Value, unit_seconds: f64| (held.as_f64().unwrap() * unit_seconds * 1000.0).round() as i64;
    let most_gpu_ms = 4 * (ended_ms - site.job(&id)["submitted_ms"].as_i64().unwrap());
    assert!(gpu_ms(&attempt["gpu_seconds"], 1.0) <= most_gpu_ms, "{attempt} after {most_gpu_ms}");
    let used = site.say("history --by user -o json").json();
    assert!(gpu_ms(&used[0]["gpu_hours"], 3600.0) <= most_gpu_ms, "{used} after {most_gpu_ms}");
    assert_eq!(site.job(&id)["ended_ms"], ended_ms);
    site.assert_lawful();
}

/// When the only task ended, as its supervisor recorded it.
fn end_in_the_record(site: &Site) -> i64 {
    wait_until("the end is written down", || {
        let records: Vec<_> = fs::read_dir(site.state().join("tasks")).unwrap().flatten().collect();
        let record = records[0].path().join("ended.json");
        let text = fs::read_to_string(&record).map_err(|error| error.to_string())?;
        let ended: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        ended["end"]["at"].as_i64().ok_or(text)
    })
}

fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Waits for the end: the supervisor reaps the process, or the system does if it has none.
fn wait_for_exit(pid: u32) {
    wait_until_gone(pid);
    wait_until("the end is written down", || if is_alive(pid) { Err(pid) } else { Ok(()) });
}

#[test]
fn a_stop_signal_at_any_moment_of_the_start_ends_the_daemon_and_harms_nothing() {
    let site = Site::start();
    let gate = site.gate("gate");
    let started = site.gate("started");
    let running = site.submit("-g 1", "echo > started; read x < gate; exit 6");
    started.await_job();
    let waiting = site.submit("-g 8", "exit 0");
    site.say("down").ok();
    // The length of a start decides how far apart the moments must be to cover all of it.
    let begun = Instant::now();
    site.up();
    let start_takes = begun.elapsed().max(Duration::from_millis(20));
    site.say("down").ok();
    // Not `INT`: a shell that runs tests in the background ignores it, and so does a program that has only just begun.
    for round in 0..24 {
        let mut command = site.command();
        command.args(["up", "--gpus", "pretend:8xH100"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let daemon = command.spawn().unwrap();
        wait_for_moment(start_takes.mul_f64(f64::from(round) / 20.0));
        signal(daemon.id(), Signal::TERM);
        let said = finish(daemon);
        // Before the program handles signals, they end it as they end any program.
        assert!(said.code == 0 || said.code == -1, "after {round}/20 of a start: {said:?}");
    }
    site.up();
    assert_eq!(site.job(&running)["state"], "running");
    assert_eq!(site.job(&waiting)["state"], "pending");
    gate.open();
    assert_eq!(site.divvy(["wait", &running]).code, 6);
    assert_eq!(site.divvy(["wait", &waiting]).code, 0);
    site.assert_lawful();
}

/// The timing itself is under test: nothing shows how far a program has come in its start.
fn wait_for_moment(after: Duration) {
    std::thread::sleep(after);
}

#[test]
fn after_another_boot_nothing_is_adopted_and_waiting_jobs_keep_their_place() {
    let site = Site::start();
    let never = site.submit("-g 4 --requeue=never", "echo $$ >> pids; exec sleep 1000");
    let again = site.submit("-g 4 --requeue=lost", "echo $DIVVY_ATTEMPT >> attempts; [ $DIVVY_ATTEMPT -gt 1 ] && exit 0; echo $$ >> pids; exec sleep 1000");
    let old = pids(&site, 2);
    let waiting: Vec<String> = (0..4).map(|at| site.submit("-g 8", &format!("echo {at} >> order"))).collect();
    let places: Vec<_> = waiting.iter().map(|id| site.job(id)["position"].clone()).collect();
    assert!(places.iter().all(|place| place.is_u64()), "{places:?}");
    site.kill_daemon();
    // What is left of the jobs after another boot: records, and pids that may be anyone's by now.
    for supervisor in old.iter().map(|pid| parent(*pid)) {
        kill(supervisor);
        wait_until_gone(supervisor);
    }
    let boot = "4a3c9be8-5a3f-4c0c-9c0f-0123456789ab";
    let said = site.up_with("pretend:8xH100", |command| {
        command.env("DIVVY_BOOT_ID", boot);
    });
    assert_eq!(said.code, 0, "{said:?}");

    assert_ne!(site.divvy(["wait", &never]).code, 0);
    let job = site.job(&never);
    assert_eq!((&job["state"], &job["last_end"]["cause"]), (&json!("lost"), &json!("node_reboot")), "{job}");
    assert!(old.iter().all(|pid| is_alive(*pid)), "a pid of another boot may be anyone's: it is left alone");
    old.iter().for_each(|pid| kill(*pid));
    assert_eq!(site.divvy(["wait", &again]).code, 0);
    assert_eq!(lines(&site.work().join("attempts")), ["1", "2"]);
    for id in &waiting {
        assert_eq!(site.divvy(["wait", id]).code, 0);
    }
    assert_eq!(lines(&site.work().join("order")), ["0", "1", "2", "3"]);
    site.assert_lawful();
}
