//! What the command line says to mistakes, and the exit code that tells programs what went wrong.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod pool;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use pool::{Pool, Said};

#[track_caller]
fn assert_said(said: &Said, code: i32, text: &str) {
    assert!(said.code == code && said.err.contains(text), "not {code} {text:?}: {said:?}");
}

#[test]
fn an_array_where_a_member_has_to_be_named_is_a_wrong_value() {
    let pool = Pool::start();
    pool.say("run -d --array 0-1 --hold -- true").ok();
    assert_said(&pool.say("logs 1"), 65, "name a member, such as 1_0");
    pool.say("release 1").ok();
    pool.say("wait 1").ok();
    for verb in ["show", "explain", "logs", "tasks"] {
        assert_said(&pool.say(&format!("{verb} 1")), 65, "name a member, such as 1_0");
        assert_said(&pool.say(&format!("{verb} 2")), 66, "there is no job 2");
    }
}

#[test]
fn a_job_that_is_not_there_is_told_before_the_others_are_awaited() {
    let pool = Pool::start();
    let gate = pool.gate("gate");
    pool.submit("", "read x < gate; exit 3");
    assert_said(&pool.say("wait 1 99"), 66, "there is no job 99");
    gate.open();
    assert_eq!(pool.say("wait 1").code, 3);
    assert_said(&pool.say("wait 1 99"), 66, "there is no job 99");
}

#[test]
fn a_missing_driver_and_a_file_that_cannot_be_made_have_codes_of_their_own() {
    let pool = Pool::unstarted();
    for detach in [None, Some("--detach")] {
        let mut up = pool.command();
        up.args(["up", "--gpus", "nvml"]).args(detach).env("DIVVY_NVML", "/nonexistent/libnvidia-ml.so");
        assert_said(&up.output().unwrap().into(), 69, "install the NVIDIA driver");
    }
    pool.up();
    assert_said(&pool.say("doctor --export-scenario nowhere/x.dvy"), 73, "nowhere/x.dvy");
    assert_said(&pool.say("doctor --export-scenario ."), 73, "cannot write .");
}

#[test]
fn another_users_pool_is_not_permitted_rather_than_absent() {
    if !rustix::process::getuid().is_root() {
        println!("not root: cannot be another user");
        return;
    }
    let pool = Pool::start();
    let closed = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(pool.state(), closed).unwrap();
    let program = std::env::temp_dir().join(format!("divvy-of-another-{}", std::process::id()));
    // Not by this process: what it starts beside would hold the copy open for writing, and nothing that is written to can be run.
    let copied = std::process::Command::new("cp").arg(pool::DIVVY).arg(&program).status().unwrap();
    assert!(copied.success(), "{copied}");
    let another = |verb: &str| {
        let mut command = std::process::Command::new(&program);
        command.args([verb, "--state"]).arg(pool.state()).uid(65534).gid(65534).env_clear();
        Said::from(command.current_dir("/").output().unwrap())
    };
    let said = ["ps", "down", "doctor"].map(another);
    std::fs::remove_file(&program).unwrap();
    for said in &said {
        assert_eq!(said.code, 77, "{said:?}");
    }
    assert_said(&said[0], 77, "you may not use this pool");
}

#[test]
fn a_negative_time_is_a_wrong_value_and_a_negative_priority_is_none() {
    let pool = Pool::start();
    for line in ["run -t -5s -- true", "run --estimate=-1h -- true", "reserve -g 1 -q default --for -1h"] {
        assert_said(&pool.say(line), 64, "a time cannot be negative");
    }
    assert_said(&pool.say("run -t -n name -- true"), 64, "a time was expected before -n");
    assert_said(&pool.say("run --requeue failure -- true"), 64, "--requeue=failure");
    let id = pool.submit("-p -5 --hold", "true");
    assert_eq!(pool.job(&id)["priority"], -5);
    assert_eq!(pool.say(&format!("set {id} -p -7")).code, 0);
    assert_eq!(pool.job(&id)["priority"], -7);
}

#[test]
fn a_dry_run_ends_with_65_only_if_the_job_can_never_start() {
    let pool = Pool::start();
    for (line, code) in [
        ("-g 8 -- true", 0),
        ("-g 9 -- true", 65),
        ("-g 9 -o json -- true", 65),
        ("-g 9 --wait-for-capacity -- true", 0),
    ] {
        let said = pool.say(&format!("run --dry-run {line}"));
        assert_eq!(said.code, code, "{line}: {said:?}");
    }
    pool.submit("-g 8", "sleep 600");
    assert_eq!(pool.say("run --dry-run -g 1 -- true").code, 0, "it waits in line");
}

#[test]
fn ones_own_jobs_are_listed_whatever_the_environment_says() {
    let pool = Pool::start();
    let id = pool.submit("--hold", "true");
    for user in [None, Some("somebody-else")] {
        let mut ps = pool.command();
        ps.args(["ps", "-u", "me", "-o", "json"]).env_remove("USER").env_remove("LOGNAME");
        ps.envs(user.map(|user| ("USER", user)));
        let said = Said::from(ps.output().unwrap());
        assert_eq!(said.json()[0]["id"], id, "{said:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_when_it_is_submitted() {
    let pool = Pool::start();
    for signal in ["KILL", "STOP:5s", "SIGKILL"] {
        assert_said(
            &pool.say(&format!("run --checkpoint {signal} -- true")),
            65,
            "no signal that a job can catch",
        );
    }
    for command in ["''", "'  '", "[]"] {
        std::fs::write(pool.work().join("job.yaml"), format!("command: {command}\n")).unwrap();
        assert_said(&pool.say("run -f job.yaml"), 65, "there is nothing to run");
    }
    assert_said(&pool.say("reserve -g 1 -q default --for 99999w"), 65, "too long: a hundred years at most");
    assert_said(&pool.say("run -t 99999w -- true"), 65, "too long: a hundred years at most");
}

#[test]
fn amounts_states_and_memory_are_told_in_words() {
    let pool = Pool::start();
    let said = pool.say("run -g 1 -c 9999 -- true");
    assert!(said.code == 65 && said.err.contains("asks for 9999 cores; the largest node has "), "{said:?}");
    let id = pool.submit("-g h100:1 --gpu-memory 40Gi", "echo > started; sleep 600");
    let runs = || pool.job(&id)["state"] == "running";
    while !runs() {
        std::thread::yield_now();
    }
    let shown = pool.say(&format!("show {id}"));
    assert!(shown.ok().contains("1 × h100 with at least 40 GiB\n"), "{shown:?}");
    assert!(shown.ok().contains("task 0     running on "), "{shown:?}");
    let tasks = pool.say(&format!("tasks {id}"));
    assert!(tasks.ok().contains("running") && !tasks.ok().contains("held"), "{tasks:?}");
}
