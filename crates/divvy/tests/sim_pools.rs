//! The simulator beside real pools: their logs written as scenarios and planned again; scenarios and lives on the command line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod pool;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use pool::Pool;
use serde_json::Value;

const QUEUES: &str = "queues:\n  default: {}\n  vision: {limit: 7, admins: [user:daemon], default_for: [user:daemon]}\n  vision/people: {limit: {any: 3}}\n";

/// How the jobs that are not arrays stand, by number: state, code and text of the reason, how many devices.
fn standings(
    jobs: &Value,
    number: impl Fn(&Value) -> Option<u64>,
) -> Vec<(u64, String, String, String, usize)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = jobs.as_array().unwrap().iter();
    let mut found: Vec<_> = rows
        .filter_map(|row| {
            let (code, why) = match &row["reason"] {
                Value::Object(reason) => (text(&reason["code"]), text(&reason["text"])),
                words => (text(&row["code"]), text(words)),
            };
            let devices = match &row["on"] {
                Value::Array(tasks) => tasks
                    .iter()
                    .map(|task| text(task).split('+').filter(|one| one.contains(':')).count())
                    .sum(),
                _ if row["state"] == "running" => row["devices"].as_array().map_or(0, Vec::len),
                _ => 0,
            };
            Some((number(row)?, text(&row["state"]), code, why, devices))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_pool_written_as_a_scenario_runs_and_waits_as_it_does_and_names_nobody() {
    let pool = Pool::start();
    std::fs::write(pool.work().join("queues.yaml"), QUEUES).unwrap();
    pool.say("apply -f queues.yaml").ok();
    let started = pool.gate("started");
    pool.divvy(["run", "-n", "long-gone", "--", "true"]).ok();
    let long = "echo > started; exec sleep 1000";
    pool.submit("-g 5 -n secret-name -q vision -t 2h", long);
    started.await_job();
    pool.submit("-g 1 -c 2 --mem 3Gi", long);
    started.await_job();
    pool.submit("-g 4 -p high", "true");
    pool.submit("-g 3 -q vision/people", "true");
    pool.submit("-g 3 -q vision/people --after 2", "true");
    pool.submit("-g 1 --hold", "true");
    pool.submit("-g 8 --array 0-9%3 -q default", "true");
    let roles = "roles: [{name: learner, command: 'true', gpus: 4}, {name: actor, command: 'true', gpus: 2}]";
    std::fs::write(pool.work().join("roles.yaml"), format!("queue: default\nhold: true\n{roles}\n")).unwrap();
    pool.say("run -d -f roles.yaml").ok();

    let said = pool.say("doctor --export-scenario pool.dvy");
    assert!(said.code == 0 && !said.err.contains("not as in the pool"), "{said:?}");
    let text = std::fs::read_to_string(pool.work().join("pool.dvy")).unwrap();
    for name in ["vision", "people", "secret-name", "long-gone", "GPU-", "root ", "daemon", "learner"] {
        assert!(!text.contains(name), "{name} is in\n{text}");
    }
    let rows = pool.say("ps -o json").json();
    let run = pool.say("sim run pool.dvy -o json");
    let own = standings(&rows, |row| row["id"].as_str()?.parse().ok().filter(|id| *id < 8));
    // The first job has ended: the numbers of the others are one less.
    let number = |row: &Value| Some(row["name"].as_str()?.strip_prefix('j')?.parse::<u64>().ok()? + 1);
    let again = standings(&run.json()["jobs"], |row| number(row).filter(|id| *id < 8));
    let renamed = |text: String| text.replace("vision/people", "q1/q2").replace("vision", "q1");
    let own: Vec<_> = own
        .into_iter()
        .map(|(id, state, code, why, on)| match code.as_str() {
            // The user who holds it, and the job it depends on, have other names.
            "DV-HELD" | "DV-DEPENDENCY" => (id, state, code, String::new(), on),
            _ => (id, state, code, renamed(why), on),
        })
        .collect();
    let again: Vec<_> = again
        .into_iter()
        .map(|(id, state, code, why, on)| match code.as_str() {
            "DV-HELD" | "DV-DEPENDENCY" => (id, state, code, String::new(), on),
            _ => (id, state, code, why, on),
        })
        .collect();
    assert_eq!(own, again, "{text}");
    assert_eq!(own.len(), 6, "{own:?}");
    assert_eq!(own.iter().filter(|row| row.1 == "running").count(), 2, "{own:?}");
}

#[test]
fn the_log_of_a_stopped_pool_is_planned_again_and_written_as_a_scenario() {
    let pool = Pool::start();
    pool.divvy(["run", "-g", "2", "--", "true"]).ok();
    pool.submit("--hold -g 1", "true");
    pool.say("down --kill").ok();
    let found = pool.say("sim verify -o json").json();
    assert_eq!(found["differences"], 0, "{found}");
    assert!(found["planned_again"].as_u64() > Some(0), "{found}");
    let text = pool.say("doctor --export-scenario -").ok().to_owned();
    assert!(text.contains("submit j1 default 1") && text.contains(" held"), "{text}");
}

#[test]
fn a_bad_scenario_is_told_with_file_line_and_what_was_expected() {
    let pool = Pool::unstarted();
    std::fs::write(pool.work().join("bad.dvy"), "node n1 8xh100\nsubmit a nowhere 1\nfrobnicate\n").unwrap();
    let said = pool.say("sim run bad.dvy");
    assert_eq!(said.code, 65);
    for words in ["bad.dvy, line 3: no verb is \"frobnicate\"", "3 | frobnicate", "one of node queue"] {
        assert!(said.err.contains(words), "{words} is missing in {said:?}");
    }
    assert_eq!(pool.say("sim run nothing.dvy").code, 66);
    let endless = pool.say("sim run /dev/zero");
    assert!(endless.code == 65 && endless.err.contains("is larger than 64 MiB"), "{endless:?}");
    let lines = "node n1 2xh100\nsubmit a default 1\nplan\nstart a on=n1:9\n";
    std::fs::write(pool.work().join("late.dvy"), lines).unwrap();
    let said = pool.say("sim run late.dvy");
    assert!(said.code == 65 && said.out == "place a n1:0\n", "{said:?}");
    assert!(
        said.err.contains("late.dvy, line 4: there is no device n1:9: its node has n1:0 to n1:1"),
        "{said:?}"
    );
    std::fs::write(pool.work().join("marked.dvy"), "\u{feff}node n1 8xh100\nplan\n").unwrap();
    assert_eq!(pool.say("sim run marked.dvy").code, 0);
}

#[test]
fn a_folder_without_a_log_is_told_as_such() {
    let pool = Pool::unstarted();
    for verb in ["sim verify", "sim whatif --change nodes+1", "doctor"] {
        let said = pool.say(verb);
        assert!(said.code == 66 && said.err.contains("there is no log"), "{verb}: {said:?}");
    }
}

#[test]
fn lives_are_lived_from_seeds_and_again_from_a_file() {
    let pool = Pool::unstarted();
    let report = pool.say("sim chaos --seeds 0..4 --events 200 --threads 2 -o json").json();
    assert_eq!(
        (&report["seeds"], report["violations"].as_array().map(Vec::len)),
        (&4.into(), Some(0)),
        "{report}"
    );
    assert!(report["events"].as_u64() > Some(400), "{report}");
    let said = pool.say("sim chaos --seed 3 --events 200 --shrink");
    assert!(said.code == 0 && said.err.contains("nothing to make small"), "{said:?}");
    for wrong in [
        "sim chaos",
        "sim chaos --seeds 5",
        "sim chaos --seed 1 --seeds 0..2",
        "sim chaos --seeds 0..2 --shrink",
    ] {
        assert_eq!(pool.say(wrong).code, 64, "{wrong}");
    }
}

#[test]
fn who_ends_a_long_run_of_lives_gets_the_report_of_those_that_are_over() {
    let pool = Pool::unstarted();
    let mut run = pool.command();
    run.args(["sim", "chaos", "--seeds", "0..2000", "--events", "200", "--threads", "2", "-o", "json"]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(run.stderr.take().unwrap()).lines();
    let first = told.next().unwrap().unwrap();
    assert!(first.contains("100 of 2000 lives are over, 0 broke a law"), "{first}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&run), rustix::process::Signal::INT)
        .unwrap();
    let said = run.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(130));
    let report: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let over = report["seeds"].as_u64().unwrap();
    assert!((100..2000).contains(&over) && report["violations"] == serde_json::json!([]), "{report}");
    let last = told.last().unwrap().unwrap();
    assert!(last.ends_with(&format!("the rest are --seeds {over}..2000")), "{last}");
}
