//! Which job gives way to which, with the real daemon and real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod pool;

use std::io::{BufRead, BufReader, Lines};
use std::process::{ChildStdout, Stdio};

use pool::{Pool, lines, within};
use serde_json::{Value, json};

fn shown(pool: &Pool, id: &str) -> Value {
    pool.divvy(["show", id, "-o", "json"]).json()
}

fn queue(pool: &Pool, path: &str) -> Value {
    let queues = pool.say("queues -o json").json();
    queues.as_array().unwrap().iter().find(|queue| queue["queue"] == path).unwrap().clone()
}

#[test]
fn urgent_work_displaces_what_runs_which_hears_of_it_and_comes_back() {
    let pool = Pool::start();
    let started = pool.gate("started");
    let script = "echo $DIVVY_RESTART >> runs; [ $DIVVY_RESTART -gt 0 ] && exit 0
        trap 'echo told >> runs; exit 3' TERM; echo on > started; sleep 1000 & wait";
    let everyday = pool.submit("-g 8", script);
    started.await_job();
    let urgent = pool.submit("-g 8 -p urgent", "true");
    assert_eq!(pool.divvy(["wait", &urgent]).code, 0);
    assert_eq!(pool.divvy(["wait", &everyday]).code, 0);
    assert_eq!(lines(&pool.work().join("runs")), ["0", "told", "1"]);
    let job = shown(&pool, &everyday);
    let first = &job["attempts"][0]["end"];
    assert_eq!((&first["cause"], &first["by"]), (&json!("preempted"), &json!(urgent)), "{job}");
    assert!(job["attempts"][0]["lost_gpu_seconds"].as_f64().unwrap() > 0.0, "{job}");
}

#[test]
fn who_gave_way_is_told_to_whom_what_it_lost_and_what_brings_it_back() {
    let pool = Pool::start();
    let (first, second) = (pool.gate("first"), pool.gate("second"));
    let everyday = pool.submit("-g 8", "[ $DIVVY_RESTART -gt 0 ] && exit 0; echo > first; exec sleep 1000");
    first.await_job();
    let here = pool.divvy(["explain", &everyday, "-o", "json"]).json();
    assert_eq!(here["why_here"], "the only node with room for it", "{here}");
    let urgent = pool.submit("-g 8 -p urgent -t 10m", "echo > second; exec sleep 1000");
    second.await_job();
    let has_it = pool.divvy(["explain", &urgent, "-o", "json"]).json();
    let made_room = has_it["made_room"].as_array().unwrap();
    assert_eq!((made_room.len(), &made_room[0]["job"]), (1, &json!(everyday)), "{has_it}");
    let text = pool.divvy(["explain", &urgent]);
    assert!(text.ok().contains(&format!("  for it job {everyday} gave way (preempted), ")), "{text:?}");
    let waits = pool.divvy(["explain", &everyday, "-o", "json"]).json();
    let displaced = &waits["displaced"];
    assert_eq!((&displaced["cause"], &displaced["by"]), (&json!("preempted"), &json!(urgent)), "{waits}");
    assert!(displaced["lost_gpu_seconds"].as_f64().unwrap() > 0.0, "{waits}");
    // The job that took its devices has a time limit, so the latest moment of its return is known.
    assert!(displaced["back_ms"].as_i64().unwrap() > displaced["at_ms"].as_i64().unwrap(), "{waits}");
    let ways = waits["blockers"][0]["ways"].as_array().unwrap();
    let end = ways.iter().find(|way| way["who"] == "time").unwrap();
    assert_eq!(end["changes"], json!([{"kind": "end", "job": urgent}]), "{waits}");
    let text = pool.divvy(["explain", &everyday]);
    assert!(text.ok().contains(&format!("gave way to job {urgent} (preempted)")), "{text:?}");
    pool.divvy(["cancel", &urgent]).ok();
    assert_eq!(pool.divvy(["wait", &everyday]).code, 0);
}

#[test]
fn a_job_that_is_given_another_priority_takes_the_place_of_one_that_is_below_it_now() {
    let pool = Pool::start();
    let started = pool.gate("started");
    let runs = pool.submit("-g 8", "echo > started; sleep 600");
    started.await_job();
    let waits = pool.submit("-g 8", "true");
    let named = pool.say(&format!("explain {waits}"));
    assert!(named.ok().contains(&format!("(divvy set {waits} --priority 1)")), "{named:?}");
    assert_eq!(
        pool.say(&format!("set {waits} --priority 0")).ok(),
        format!("{waits} has that priority already")
    );
    let wrong = pool.say(&format!("set {waits} --priority soon"));
    assert!(wrong.code == 65 && wrong.err.contains("\"soon\" is no priority"), "{wrong:?}");
    let set = pool.say(&format!("set {waits} --priority high"));
    assert!(set.ok().ends_with("with priority high"), "{set:?}");
    assert_eq!(pool.divvy(["wait", &waits]).code, 0);
    assert_eq!(shown(&pool, &waits)["priority"], 100);
    assert_eq!(shown(&pool, &runs)["attempts"][0]["end"]["cause"], "preempted");
    assert!(pool.say(&format!("set {waits} -p low")).ok().contains("had ended"));
}

#[test]
fn a_queue_gets_back_what_is_guaranteed_to_it_from_one_that_borrowed_it() {
    let pool = Pool::start();
    std::fs::write(pool.work().join("queues.yaml"), "queues:\n  a: {guarantee: 4}\n  b: {guarantee: 4}\n")
        .unwrap();
    assert!(pool.say("apply -f queues.yaml").ok().contains("+ a guarantee any=4"));
    let gates: Vec<_> = (0..8).map(|member| pool.gate(&format!("on{member}"))).collect();
    let script = "[ $DIVVY_RESTART -gt 0 ] || echo on > on$DIVVY_ARRAY_INDEX; exec sleep 1000";
    let borrower = pool.submit("-q b -g 1 --array 0-7", script);
    gates.iter().for_each(|gate| drop(gate.await_job()));
    assert_eq!(queue(&pool, "b")["gpu_milli_borrowed"], 4000);
    assert_eq!(queue(&pool, "a")["gpu_milli_lent"], 4000);
    let claim = pool.submit("-q a -g 4 --no-preempt", "exit 5");
    assert_eq!(pool.divvy(["wait", &claim]).code, 5);
    let rows = pool.say("ps -a -o json").json();
    let member = format!("{borrower}_");
    let of_borrower =
        rows.as_array().unwrap().iter().filter(|row| row["id"].as_str().unwrap().starts_with(&member));
    let causes: Vec<&Value> = of_borrower.map(|row| &row["last_end"]["cause"]).collect();
    assert_eq!(causes.iter().filter(|cause| ***cause == json!("reclaimed")).count(), 4, "{rows}");
    pool.divvy(["cancel", &borrower]).ok();
}

#[test]
fn a_queue_behind_what_is_guaranteed_to_it_in_gpu_hours_takes_back_what_makes_it_up() {
    let pool = Pool::start();
    // With weight 0, nothing else is due to it: what it takes, it takes by its floor of four GPUs.
    std::fs::write(
        pool.work().join("queues.yaml"),
        "queues:\n  a: {guarantee: {gpu_hours: 96, every: day}, weight: 0}\n  b: {}\n",
    )
    .unwrap();
    pool.say("apply -f queues.yaml").ok();
    let gates: Vec<_> = (0..8).map(|member| pool.gate(&format!("on{member}"))).collect();
    let script = "[ $DIVVY_RESTART -gt 0 ] || echo on > on$DIVVY_ARRAY_INDEX; exec sleep 1000";
    let borrower = pool.submit("-q b -g 1 --array 0-7", script);
    gates.iter().for_each(|gate| drop(gate.await_job()));
    let on = pool.gate("on");
    let claim = pool.submit("-q a -g 4", "echo > on; exec sleep 1000");
    on.await_job();
    let (floor, other) = (queue(&pool, "a"), queue(&pool, "b"));
    assert_eq!((&floor["gpu_milli"], &other["gpu_milli"]), (&json!(4000), &json!(4000)), "{floor}");
    // A job beyond the floor waits: nothing else is due to the queue.
    let more = pool.submit("-q a -g 1", "true");
    let waits = pool.divvy(["explain", &more, "-o", "json"]).json();
    assert_eq!(waits["blockers"][0]["code"], "DV-GPUS-BUSY", "{waits}");
    for job in [more, claim, borrower] {
        pool.divvy(["cancel", &job]).ok();
    }
}

/// Reads what `divvy tasks --follow` says until a job has these tasks, all of them started.
fn await_tasks(
    mut told: Lines<BufReader<ChildStdout>>,
    wanted: &'static [u64],
) -> Lines<BufReader<ChildStdout>> {
    within(move || {
        let is_it = |line: String| {
            let now: Value = serde_json::from_str(&line).unwrap();
            let tasks = now["tasks"].as_array().unwrap();
            let mut ranks: Vec<u64> = tasks.iter().map(|task| task["task"].as_u64().unwrap()).collect();
            ranks.sort_unstable();
            assert_eq!(now["size"], ranks.len());
            ranks == wanted && tasks.iter().all(|task| task["state"] == "running")
        };
        assert!(told.by_ref().map(Result::unwrap).any(is_it), "it ended before it had {wanted:?}");
        told
    })
}

#[test]
fn a_gang_grows_into_what_is_free_hears_of_it_and_shrinks_for_who_is_due_it() {
    let pool = Pool::start();
    std::fs::write(pool.work().join("queues.yaml"), "queues:\n  a: {guarantee: 2}\n  b: {guarantee: 6}\n")
        .unwrap();
    pool.say("apply -f queues.yaml").ok();
    let script = "trap 'echo $RANK >> told; exit 0' TERM; echo $RANK/$WORLD_SIZE >> began; sleep 1000 & wait";
    let gang = pool.submit("-q a -g 2 --tasks 1 --max-tasks 4", script);
    let mut follow = pool.command();
    let mut follow =
        follow.args(["tasks", "-f", "-o", "json", &gang]).stdout(Stdio::piped()).spawn().unwrap();
    let told = BufReader::new(follow.stdout.take().unwrap()).lines();
    let told = await_tasks(told, &[0, 1, 2, 3]);
    let row = |id: &str| {
        pool.say("ps -o json").json().as_array().unwrap().iter().find(|row| row["id"] == id).cloned()
    };
    let explained = pool.divvy(["explain", &gang, "-o", "json"]).json();
    assert_eq!(explained["ask"], "1 to 4 tasks of 2 × any GPU");
    let now = row(&gang).unwrap();
    assert_eq!((&now["tasks"], &now["gpus"]), (&json!(4), &json!(8)), "{now}");
    let claim = pool.submit("-q b -g 6 --no-preempt", "exec sleep 1000");
    let told = await_tasks(told, &[0]);
    let gave_up = pool.divvy(["explain", &gang]);
    let text = format!("  before gave up 3 tasks to job {claim} (reclaimed) ");
    assert!(gave_up.ok().contains(&text), "{gave_up:?}");
    let has_it = pool.divvy(["explain", &claim]);
    let text = format!("  for it job {gang} gave up 3 tasks (reclaimed), no work is lost\n");
    assert!(has_it.ok().contains(&text), "{has_it:?}");
    // Neither the gang nor the listener minds that the daemon is away for a while.
    pool.say("down").ok();
    pool.up();
    pool.divvy(["cancel", &claim]).ok();
    drop(await_tasks(told, &[0, 1, 2, 3]));
    let mut gone = lines(&pool.work().join("told"));
    gone.sort();
    assert_eq!(gone, ["1", "2", "3"]);
    assert!(lines(&pool.work().join("began")).contains(&"0/1".to_owned()));
    assert_eq!(shown(&pool, &gang)["attempts"].as_array().unwrap().len(), 1);
    pool.divvy(["cancel", &gang]).ok();
    assert!(follow.wait().unwrap().success());
}

#[test]
fn what_is_guaranteed_beyond_the_pool_is_refused() {
    let pool = Pool::start();
    for (queues, why) in [
        (
            "a: {guarantee: 6}\n  b: {guarantee: 4}\n",
            "queues.yaml:3:18: a value is wrong\n  guarantee: 10 of any are guaranteed in all (a 6, b 4), and the pool has 8: lower some",
        ),
        (
            "a: {}\n  a/b: {guarantee: 6}\n  a/c: {guarantee: 4}\n",
            "queues.yaml:4:20: a value is wrong\n  guarantee: 10 of any are guaranteed in all (a/b 6, a/c 4)",
        ),
        (
            "a: {guarantee: 1}\n  b: {}\n  b/c: {guarantee: {gpu_hours: 1000, every: week}}\n  b/d: {guarantee: 3}\n",
            "9.952 of any are guaranteed in all (b/c 5.952, b/d 3, a 1)",
        ),
        ("a: {guarantee: {cpu: 1000000}}\n", "1000000 cores are guaranteed in all"),
        (
            "a: {limit: 4}\n  a/b: {guarantee: 6}\n",
            "queues.yaml:2:6: a value is wrong\n  the limit of any of a is below its guarantee",
        ),
    ] {
        std::fs::write(pool.work().join("queues.yaml"), format!("queues:\n  {queues}")).unwrap();
        for how in ["", " --dry-run"] {
            let said = pool.say(&format!("apply -f queues.yaml{how}"));
            assert!(said.code == 65 && said.err.contains(why), "{queues}: {said:?}");
        }
    }
    assert_eq!(pool.say("queues -o json").json().as_array().unwrap().len(), 1);
    let said = pool.say("run -q default -g 9 --no-preempt true");
    assert_eq!(said.code, 65, "{said:?}");
}

/// A script that counts, saves what it has counted when it hears `USR1`, and goes on from there.
const COUNTS: &str =
    "n=$(cat saved 2>/dev/null || echo 0); echo \"begins at $n, restart $DIVVY_RESTART\" >> story
    trap 'echo $n > saved; divvy checkpointed >> story; exit 85' USR1
    [ $n -ge 3 ] && exit 0
    n=3; echo on > started; sleep 1000 & wait";

#[test]
fn a_job_saves_its_work_when_it_hears_the_notice_and_goes_on_from_there() {
    let pool = Pool::start();
    let started = pool.gate("started");
    let path = std::path::Path::new(pool::DIVVY).parent().unwrap().display().to_string();
    let script = format!("PATH={path}:$PATH; {COUNTS}");
    let counts = pool.submit("-g 8 --checkpoint USR1:30s", &script);
    started.await_job();
    let urgent = pool.submit("-g 8 -p urgent", "true");
    assert_eq!(pool.divvy(["wait", &urgent]).code, 0);
    assert_eq!(pool.divvy(["wait", &counts]).code, 0);
    let story = lines(&pool.work().join("story"));
    let safe = format!("{counts}: what it has done up to now is safe");
    assert_eq!(story, ["begins at 0, restart 0", &safe, "begins at 3, restart 1"]);
}

#[test]
fn exit_code_85_of_a_job_that_saves_its_work_means_run_me_again() {
    let pool = Pool::start();
    let again =
        pool.submit("--checkpoint USR1", "echo $DIVVY_RESTART >> runs; [ $DIVVY_RESTART -gt 0 ] || exit 85");
    assert_eq!(pool.divvy(["wait", &again]).code, 0);
    assert_eq!(lines(&pool.work().join("runs")), ["0", "1"]);
    assert_eq!(shown(&pool, &again)["attempts"][0]["end"]["cause"], "checkpointed");
    // For other jobs, it is an exit code like any other.
    let plain = pool.submit("", "exit 85");
    assert_eq!(pool.divvy(["wait", &plain]).code, 85);
}

/// What `explain` says about a job's start, and about when it said so, in milliseconds since 1970.
fn expected(pool: &Pool, id: &str) -> (Value, i64) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    (pool.divvy(["explain", id, "-o", "json"]).json(), i64::try_from(now.as_millis()).unwrap())
}

#[test]
fn a_job_behind_one_with_a_limit_of_an_hour_is_expected_in_about_an_hour() {
    let pool = Pool::start();
    let started = pool.gate("started");
    let first = pool.submit("-g 8 -t 1h", "echo on > started; exec sleep 1000");
    started.await_job();
    let waits = pool.submit("-g 1", "true");
    let (said, now_ms) = expected(&pool, &waits);
    let minutes = |key: &str| (said[key].as_i64().unwrap() - now_ms) / 60_000;
    let (low, middle) = (minutes("expected_start_low_ms"), minutes("expected_start_ms"));
    let high = minutes("expected_start_high_ms");
    assert!((50..=60).contains(&middle) && low < middle && middle <= high, "{said}");
    assert_eq!(said["expected_start_by"], "by the limit or estimate of 1 job that runs");
    let text = pool.divvy(["explain", &waits]);
    assert!(text.ok().contains("when   expected ≈ "), "{text:?}");
    // The list says the same, and why there is nothing to say of what can never run.
    let never = pool.submit("-g 9 --wait-for-capacity", "true");
    let rows = pool.divvy(["ps", "--start", "-o", "json"]).json();
    let ids: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&*waits, &*never]);
    let listed_ms = rows[0]["expected_start_ms"].as_i64().unwrap();
    assert!((listed_ms - said["expected_start_ms"].as_i64().unwrap()).abs() < 60_000, "{rows}");
    assert_eq!(rows[0]["expected_start_by"], said["expected_start_by"]);
    assert!(rows[1]["expected_start_by"].as_str().unwrap().starts_with("never, as things are"), "{rows}");
    let table = pool.divvy(["ps", "--start"]).ok().to_owned();
    assert!(table.contains("STARTS") && table.contains(" ≈ ") && table.contains("never "), "{table}");
    let plain = pool.divvy(["ps", "-o", "json"]);
    assert!(!plain.ok().contains("expected_start") && !pool.divvy(["ps"]).ok().contains("STARTS"));
    pool.divvy(["cancel", &first, &never]).ok();
    assert_eq!(pool.divvy(["wait", &waits]).code, 0);
}

#[test]
fn behind_a_job_of_which_nothing_is_known_explain_says_so() {
    let pool = Pool::start();
    let first = pool.submit("-g 8", "exec sleep 1000");
    let waits = pool.submit("-g 1", "true");
    let (said, now_ms) = expected(&pool, &waits);
    let week_ms = 7 * 86_400_000;
    let wait_ms = said["expected_start_ms"].as_i64().unwrap() - now_ms;
    assert!((week_ms - 60_000..=week_ms).contains(&wait_ms), "{said}");
    let by = said["expected_start_by"].as_str().unwrap();
    assert!(by.starts_with("nothing says how long 1 job that runs will take: by then"), "{said}");
    let file = "queues:\n  default:\npolicy: {starve_after: none}\n";
    std::fs::write(pool.work().join("queues.yaml"), file).unwrap();
    pool.divvy(["apply", "-f", "queues.yaml"]).ok();
    let (said, _) = expected(&pool, &waits);
    assert_eq!(said["expected_start_ms"], Value::Null);
    let by = said["expected_start_by"].as_str().unwrap();
    assert!(by.starts_with("not known: nothing says how long 1 job that runs will take"), "{said}");
    pool.divvy(["hold", &waits]).ok();
    assert_eq!(expected(&pool, &waits).0["expected_start_by"], Value::Null);
    pool.divvy(["cancel", &first]).ok();
}

#[test]
fn by_the_order_shortest_those_go_first_of_whom_their_users_say_so() {
    let pool = Pool::start();
    std::fs::write(
        pool.work().join("queues.yaml"),
        "queues: {default: }\npolicy: {order: shortest, reserve: 0}\n",
    )
    .unwrap();
    pool.say("apply -f queues.yaml").ok();
    let (started, go) = (pool.gate("started"), pool.gate("go"));
    pool.submit("-g 8", "echo > started; read x < go");
    started.await_job();
    let note =
        |estimate: &str| pool.submit(&format!("-g 8 {estimate}"), &format!("echo '{estimate}' >> order"));
    let jobs = ["", "--estimate 10m", "--estimate 10s", "--estimate 1m"].map(note);
    go.open();
    jobs.iter().for_each(|job| assert_eq!(pool.divvy(["wait", job]).code, 0));
    let order = lines(&pool.work().join("order"));
    assert_eq!(order, ["--estimate 10s", "--estimate 1m", "--estimate 10m", ""]);
}

#[test]
fn by_the_order_shortest_those_go_first_of_whom_finished_jobs_say_so() {
    let pool = Pool::start();
    std::fs::write(
        pool.work().join("queues.yaml"),
        "queues: {default: }\npolicy: {order: shortest, reserve: 0}\n",
    )
    .unwrap();
    pool.say("apply -f queues.yaml").ok();
    let ended: Vec<_> = (0..10).map(|_| pool.submit("-g 8 --name quick", "true")).collect();
    ended.iter().for_each(|job| assert_eq!(pool.divvy(["wait", job]).code, 0));
    // What was learned is in the log, and is learned again from there.
    pool.say("down").ok();
    pool.up();
    let (started, go) = (pool.gate("started"), pool.gate("go"));
    pool.submit("-g 8", "echo > started; read x < go");
    started.await_job();
    let note = |flags: &str| pool.submit(&format!("-g 8 {flags}"), &format!("echo '{flags}' >> order"));
    let jobs = ["--estimate 10m", "--name quick"].map(note);
    let quick = shown(&pool, &jobs[1]);
    assert!(quick["foreseen_ms"].as_i64() < Some(60_000), "{quick}");
    assert!(quick["foreseen_p90_ms"].as_i64() > quick["foreseen_ms"].as_i64(), "{quick}");
    assert!(pool.say(&format!("show {}", jobs[1])).ok().contains("by finished jobs like it"));
    go.open();
    jobs.iter().for_each(|job| assert_eq!(pool.divvy(["wait", job]).code, 0));
    let order = lines(&pool.work().join("order"));
    assert_eq!(order, ["--name quick", "--estimate 10m"]);
}
