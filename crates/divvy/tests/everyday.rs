//! What people do every day, with the real daemon and the real command line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod pool;

use std::process::{Command, Stdio};

use pool::{DIVVY, Pool, Said, finish, lines, signal};
use rustix::process::Signal;
use serde_json::{Value, json};

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[track_caller]
fn has_keys(object: &Value, wanted: &str) {
    let present = keys(object);
    for key in wanted.split_whitespace() {
        assert!(present.contains(&key), "{key} is missing in {object}");
    }
}

#[test]
fn a_run_streams_its_output_and_ends_with_the_jobs_exit_code() {
    let pool = Pool::start();
    let said = pool.divvy(["run", "-g", "1", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((said.code, said.out.as_str()), (7, "out\nerr\n"), "{said:?}");
    assert_eq!(pool.divvy(["run", "--", "true"]).code, 0);
    assert_eq!(pool.divvy(["run", "--", "sh", "-c", "kill -9 $$"]).code, 137);
    assert_eq!(pool.say("wait 1").code, 7);
}

#[test]
fn every_byte_of_the_output_arrives_unchanged() {
    let pool = Pool::start();
    let mut command = pool.command();
    command.args([
        "run",
        "--",
        "sh",
        "-c",
        "head -c 3000000 /dev/zero | tr '\\0' '\\377'; printf '\\000\\033[31m\\n'",
    ]);
    let output = command.stderr(Stdio::null()).output().unwrap();
    assert_eq!(output.stdout.len(), 3_000_007);
    assert!(output.stdout.ends_with(b"\xff\x00\x1b[31m\n"));
}

#[test]
fn jobs_see_their_devices_by_uuid_and_an_empty_list_without_any() {
    let pool = Pool::start();
    let script = "echo \"$CUDA_VISIBLE_DEVICES|$NVIDIA_VISIBLE_DEVICES|$DIVVY_JOB_ID|${CUDA_DEVICE_ORDER}\"";
    let said = pool.divvy(["run", "-g", "2", "--", "sh", "-c", script]);
    let parts: Vec<&str> = said.ok().split('|').collect();
    assert!(parts[0].split(',').count() == 2 && parts[0].starts_with("GPU-"), "{said:?}");
    assert_eq!((parts[0], parts[2], parts[3]), (parts[1], "1", "PCI_BUS_ID"));
    let said = pool.divvy(["run", "--", "sh", "-c", "echo \"[${CUDA_VISIBLE_DEVICES-unset}]\""]);
    assert_eq!(said.ok(), "[]");
}

#[test]
fn a_job_that_wants_its_node_for_itself_gets_all_of_it_and_is_told_so() {
    let pool = Pool::start();
    let gate = pool.gate("on");
    let said = pool.divvy([
        "run",
        "-d",
        "-g",
        "1",
        "--exclusive",
        "--",
        "sh",
        "-c",
        "echo $DIVVY_GPUS > on; exec sleep 1000",
    ]);
    assert!(said.err.contains("gets all of its node, such as 8 GPUs, "), "{said:?}");
    assert_eq!(gate.await_job(), "8");
    let id = said.out.trim();
    let job = pool.job(id);
    assert_eq!((&job["gpus"], job["devices"].as_array().unwrap().len()), (&json!(8), 8), "{job}");
    let shown = pool.divvy(["show", id]);
    assert!(shown.ok().contains("asks       1 × any GPU, a whole node for each task"), "{shown:?}");
    let queues = pool.say("queues -o json").json();
    assert_eq!(queues[0]["gpu_milli"], 8000, "{queues}");
}

#[test]
fn a_detached_job_prints_its_id_alone_and_writes_where_it_was_submitted() {
    let pool = Pool::start();
    let id = pool.submit("-n train", "echo hello; pwd");
    assert_eq!(id, "1");
    assert_eq!(pool.say("wait 1").ok(), "1 completed");
    let file = pool.work().join("divvy-1.out");
    assert_eq!(lines(&file), ["hello", pool.work().to_str().unwrap()]);
    assert_eq!(pool.say("logs 1").out, std::fs::read_to_string(file).unwrap());
    assert_eq!(pool.say("logs -n 1 1").ok(), pool.work().to_str().unwrap());
    pool.submit("-n x --log out-%x-%j.txt", "echo named");
    assert_eq!(pool.say("wait 2").code, 0);
    assert_eq!(lines(&pool.work().join("out-x-2.txt")), ["named"]);
}

#[test]
fn logs_follow_a_job_until_it_ends() {
    let pool = Pool::start();
    let gate = pool.gate("gate");
    let id = pool.submit("", "echo first; read x < gate; echo last");
    let mut command = pool.command();
    let follower =
        command.args(["logs", "-f", &id]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    gate.open();
    assert_eq!(finish(follower).ok(), "first\nlast");
}

#[test]
fn a_job_that_waits_to_run_again_shows_what_it_wrote_and_how_it_saves_its_work() {
    let pool = Pool::start();
    let (began, blocks) = (pool.gate("began"), pool.gate("blocks"));
    let script = "echo attempt $DIVVY_RESTART\n[ $DIVVY_RESTART -gt 0 ] && exit 0\ntrap 'exit 85' USR1\necho > began\n\
        while :; do sleep 0.05; done\n";
    let job = "gpus: 8\ncheckpoint: {notice: USR1, grace: 60s, every: 30m}\ncommand: [sh, job.sh]\n";
    std::fs::write(pool.work().join("job.sh"), script).unwrap();
    std::fs::write(pool.work().join("job.yaml"), job).unwrap();
    let id = pool.say("run -d -f job.yaml").ok().to_owned();
    began.await_job();
    let blocker = pool.submit("-g 8 -p high", "echo > blocks; exec sleep 1000");
    blocks.await_job();
    assert_eq!(pool.job(&id)["state"], "pending");
    let written = pool.divvy(["logs", &id]);
    assert!(written.ok().starts_with("attempt 0") && !written.ok().contains("attempt 1"), "{written:?}");
    let shown = pool.divvy(["show", &id]);
    assert!(shown.ok().contains("told by USR1, in 1m00s, by itself every 30m00s"), "{shown:?}");
    assert_eq!(pool.divvy(["show", &id, "-o", "json"]).json()["checkpoint"]["every_ms"], 1_800_000);
    pool.divvy(["cancel", &blocker]).ok();
    assert_eq!(pool.divvy(["wait", &id]).code, 0);
    assert!(pool.divvy(["logs", &id]).ok().ends_with("attempt 1"));
}

#[test]
fn cancelling_ends_what_runs_and_what_waits_and_show_says_by_whom() {
    let pool = Pool::start();
    let started = pool.gate("started");
    let running = pool.submit("-g 8", "echo up > started; exec sleep 600");
    started.await_job();
    let waiting = pool.submit("-g 1", "true");
    assert_eq!(pool.job(&waiting)["state"], "pending");
    assert!(pool.job(&waiting)["reason"]["code"].as_str().unwrap().starts_with("DV-"));
    assert!(pool.divvy(["cancel", &waiting]).ok().contains("cancelled"));
    // It may be gone by the time the answer is read.
    let told = pool.divvy(["cancel", &running]);
    assert!(["stopping", "cancelled"].iter().any(|state| told.ok().contains(state)), "{told:?}");
    let waited = pool.divvy(["wait", &running]);
    assert_eq!(waited.code, 143, "{waited:?}");
    let shown = pool.divvy(["show", &running]);
    assert!(shown.ok().contains("cancelled by "), "{shown:?}");
    assert_eq!(pool.job(&running)["state"], "cancelled");
    assert_eq!(pool.job(&running)["last_end"]["cause"], "cancelled");
    assert!(pool.divvy(["cancel", &running]).ok().contains("had ended"));
}

#[test]
fn an_array_has_a_row_per_member_and_runs_so_many_at_once() {
    let pool = Pool::start();
    let id =
        pool.submit("--array 0-5%2 -g 1", "echo $DIVVY_ARRAY_INDEX $DIVVY_JOB_ID > m-$DIVVY_ARRAY_INDEX");
    assert_eq!(pool.divvy(["wait", &id]).code, 0);
    let rows = pool.say("ps -a -o json").json();
    let mut ids: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["1_0", "1_1", "1_2", "1_3", "1_4", "1_5"]);
    assert_eq!(lines(&pool.work().join("m-3")), ["3 1_3"]);
    assert_eq!(pool.divvy(["run", "--array", "0-3", "--", "sh", "-c", "exit $DIVVY_ARRAY_INDEX"]).code, 1);
    assert_eq!(pool.say("wait 2_3").code, 3);
}

#[test]
fn dependencies_wait_for_the_right_kind_of_end() {
    let pool = Pool::start();
    let gate = pool.gate("gate");
    let first = pool.submit("", "read x < gate; exit 3");
    let ok = pool.submit(&format!("--after {first}:ok"), "touch ok");
    let fail = pool.submit(&format!("--after {first}:fail"), "touch fail");
    let any = pool.submit(&format!("--after {first}:any"), "touch any");
    assert_eq!(pool.job(&any)["state"], "pending");
    gate.open();
    assert_eq!(pool.divvy(["wait", &any, &fail]).code, 0);
    assert_ne!(pool.divvy(["wait", &ok]).code, 0);
    assert_eq!(pool.job(&ok)["last_end"]["cause"], "dependency");
    assert!(
        pool.work().join("any").exists()
            && pool.work().join("fail").exists()
            && !pool.work().join("ok").exists()
    );
}

#[test]
fn a_held_job_starts_when_it_is_released() {
    let pool = Pool::start();
    let id = pool.submit("--hold", "true");
    assert_eq!(pool.job(&id)["state"], "held");
    assert!(pool.divvy(["explain", &id]).ok().contains("it starts when it is released"));
    pool.divvy(["release", &id]).ok();
    assert_eq!(pool.divvy(["wait", &id]).code, 0);
    let gate = pool.gate("gate");
    let blocker = pool.submit("-g 8", "read x < gate");
    let held = pool.submit("-g 1", "true");
    assert!(pool.divvy(["hold", &held]).ok().contains("held"));
    gate.open();
    assert_eq!(pool.divvy(["wait", &blocker]).code, 0);
    assert_eq!(pool.job(&held)["state"], "held");
}

#[test]
fn a_gang_starts_whole_with_ranks_and_a_place_to_meet() {
    let pool = Pool::start();
    let script = "echo $RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $CUDA_VISIBLE_DEVICES > rank-$RANK";
    let id = pool.submit("--tasks 4 -g 2", script);
    assert_eq!(pool.divvy(["wait", &id]).code, 0);
    let rows: Vec<Vec<String>> = (0..4)
        .map(|rank| {
            lines(&pool.work().join(format!("rank-{rank}")))[0].split(' ').map(str::to_owned).collect()
        })
        .collect();
    let mut devices: Vec<&str> = rows.iter().flat_map(|row| row[3].split(',')).collect();
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices.len(), 8, "no device was given twice: {rows:?}");
    assert!(
        rows.iter()
            .enumerate()
            .all(|(rank, row)| row[0] == rank.to_string() && row[1] == "4" && row[2] == rows[0][2])
    );
}

#[test]
fn an_attached_gang_streams_all_tasks_by_lines_and_a_single_task_as_it_is() {
    let pool = Pool::start();
    let script = "for n in 1 2 3; do echo $n of $RANK; done; printf 'end of %s' $RANK";
    let said = pool.divvy(["run", "--tasks", "3", "-g", "1", "--", "sh", "-c", script]);
    assert_eq!(said.code, 0, "{said:?}");
    for rank in 0..3 {
        let prefix = format!("[t{rank}] ");
        let lines: Vec<&str> = said.out.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        let wanted = ["1", "2", "3", "end"].map(|word| format!("{word} of {rank}"));
        assert_eq!(lines, wanted, "{said:?}");
    }
    assert_eq!(said.out.lines().count(), 12, "{said:?}");
    let alone = pool.divvy(["run", "--tasks", "1", "--", "printf", "no end"]);
    assert_eq!(alone.out, "no end");
}

#[test]
fn an_attached_gang_says_which_other_task_failed_and_how_to_read_it() {
    let pool = Pool::start();
    let script = "if [ $RANK = 1 ]; then echo 'no such file' ; exit 3; fi; exec sleep 1000";
    let said = pool.divvy(["run", "--tasks", "2", "-g", "1", "--", "sh", "-c", script]);
    assert_eq!((said.code, said.out.as_str()), (3, "[t1] no such file\n"), "{said:?}");
    assert!(said.err.contains("task 1 failed: divvy logs --task 1 1\n"), "{said:?}");
    assert_eq!(pool.say("logs --task 1 1").ok(), "no such file");
    let alone = pool.divvy(["run", "--", "sh", "-c", "exit 3"]);
    assert!(alone.code == 3 && !alone.err.contains("task"), "{alone:?}");
}

#[test]
fn a_job_file_runs_roles_with_their_environment_and_its_mistakes_are_located() {
    let pool = Pool::start();
    let file = pool.work().join("job.yaml");
    let text = "name: pair\nenv: {BOTH: b}\nroles:\n  - name: trainer\n    gpus: 2\n    env: {WHO: t}\n    \
                command: [sh, -c, 'echo $WHO$BOTH$DIVVY_ROLE > trainer.txt']\n  - name: scout\n    tasks: 2\n    \
                command: echo $DIVVY_ROLE $RANK > scout-$RANK.txt\n";
    std::fs::write(&file, text).unwrap();
    assert_eq!(pool.say("run -f job.yaml").code, 0);
    assert_eq!(lines(&pool.work().join("trainer.txt")), ["tbtrainer"]);
    assert_eq!(lines(&pool.work().join("scout-2.txt")), ["scout 2"]);
    std::fs::write(&file, "command: [true]\ngpu: 2\n").unwrap();
    let said = pool.say("run -f job.yaml");
    assert_eq!(said.code, 65);
    assert!(
        said.err.contains("job.yaml: line 2, column 1: unknown key \"gpu\" (did you mean gpus?)"),
        "{said:?}"
    );
}

#[test]
fn files_that_are_no_text_are_wrong_data_and_the_place_is_told() {
    let pool = Pool::start();
    std::fs::write(pool.work().join("job.yaml"), b"command: [true]\nname: caf\xe9\n").unwrap();
    std::fs::write(pool.work().join("vars"), b"A=\xff\n").unwrap();
    let said = pool.say("run -f job.yaml");
    assert_eq!(said.code, 65, "{said:?}");
    assert!(said.err.contains("job.yaml: line 2, byte 25 of the file: it is not UTF-8"), "{said:?}");
    let said = pool.say("run --env-file vars true");
    assert!(said.code == 65 && said.err.contains("vars: line 1, byte 2 "), "{said:?}");
    let said = pool.say("apply -f job.yaml");
    assert!(said.code == 65 && said.err.contains("job.yaml: line 2"), "{said:?}");
    assert_eq!(pool.say("run -f not-there.yaml").code, 66);
}

#[test]
fn what_can_never_run_is_refused_at_submit_naming_what_there_is() {
    let pool = Pool::start();
    for flags in ["-g 9", "-g a100:1", "-q nowhere", "-g nonsense:x:y", "-t soon", "-C /not/there"] {
        let words = ["run"].into_iter().chain(flags.split(' ')).chain(["--", "true"]);
        let said = pool.divvy(words);
        assert_eq!(said.code, 65, "{flags}: {said:?}");
        assert!(said.err.starts_with("divvy: "), "{flags}: {said:?}");
    }
    assert!(pool.say("run -g a100:1 true").err.contains("h100"));
    let id = pool.submit("-g a100:1 --wait-for-capacity", "true");
    assert_eq!(pool.job(&id)["state"], "pending");
}

#[test]
fn a_dry_run_says_where_and_submits_nothing() {
    let pool = Pool::start();
    let said = pool.say("run --dry-run -g 2 true");
    assert!(said.ok().contains("would start at once") && said.ok().contains("GPU"), "{said:?}");
    let trial = pool.say("run --dry-run -g 2 -o json true").json();
    assert_eq!(
        (trial["verdict"].as_str(), trial["placements"][0]["devices"].as_array().map(Vec::len)),
        (Some("fit"), Some(2))
    );
    assert_eq!(pool.say("ps -a -o json").json(), json!([]));
    let started = pool.gate("started");
    let runs = pool.submit("-g 8 -p low", "echo > started; exec sleep 600");
    started.await_job();
    let said = pool.say("run --dry-run -g 1 true");
    assert!(said.ok().contains(&format!("would start when job {runs} gave way")), "{said:?}");
    let said = pool.say("run --dry-run -g 1 -p low true");
    assert!(said.ok().contains("would wait\n") && said.ok().contains("DV-GPUS-BUSY"), "{said:?}");
}

#[test]
fn queues_are_applied_shown_and_obeyed() {
    let pool = Pool::start();
    let file = pool.work().join("queues.yaml");
    std::fs::write(&file, "queues:\n  default: {}\n  vision: {limit: {any: 2}}\n").unwrap();
    let said = pool.say("apply -f queues.yaml --dry-run");
    assert!(said.ok().contains("vision") && said.ok().contains("dry run"), "{said:?}");
    assert_eq!(pool.say("run -q vision true").code, 65);
    assert!(pool.say("apply -f queues.yaml").ok().contains("in force"));
    assert!(pool.say("apply -f queues.yaml").ok().contains("nothing changes"));
    let started = pool.gate("started");
    let first = pool.submit("-q vision -g 2", "echo > started; exec sleep 600");
    started.await_job();
    let second = pool.submit("-q vision -g 1", "true");
    let explained = pool.divvy(["explain", &second, "-o", "json"]).json();
    has_keys(&explained, "job verdict blockers funnel");
    assert_eq!(explained["job"], second.as_str());
    let blocker = &explained["blockers"][0];
    assert!(
        blocker["code"].as_str().unwrap().starts_with("DV-") && !blocker["fix"].as_str().unwrap().is_empty()
    );
    let text = pool.divvy(["explain", &second]);
    assert!(text.ok().lines().count() <= 10, "{text:?}");
    let beyond = pool.say("run -d -q vision -g 3 true");
    let never = "as things are set it never starts";
    let why = format!("{never}: queue vision has a limit of 2 GPUs, and it asks for 3; ask for fewer GPUs");
    assert!(beyond.err.contains(&why), "{beyond:?}");
    assert!(pool.divvy(["explain", beyond.ok()]).ok().contains(never), "{beyond:?}");
    pool.divvy(["cancel", beyond.ok()]).ok();
    let queues = pool.say("queues -o json").json();
    let vision = queues.as_array().unwrap().iter().find(|queue| queue["queue"] == "vision").unwrap();
    assert_eq!((&vision["running"], &vision["waiting"]), (&json!(1), &json!(1)));
    pool.divvy(["cancel", &first]).ok();
    assert_eq!(pool.divvy(["wait", &second]).code, 0);
    std::fs::write(&file, "queues:\n  vision: {limt: {any: 2}}\n").unwrap();
    let said = pool.say("apply -f queues.yaml");
    assert!(said.code == 65 && said.err.contains("queues.yaml:2:"), "{said:?}");
}

#[test]
fn listings_have_their_fixed_keys_in_json_and_a_head_in_csv() {
    let pool = Pool::start();
    assert_eq!(pool.divvy(["run", "-g", "1", "-l", "a=b", "--", "true"]).code, 0);
    let jobs = pool.say("ps -a -o json").json();
    has_keys(
        &jobs[0],
        "id name user queue project labels priority state gpus gpu_milli devices nodes tasks attempt position \
         submitted_ms started_ms ended_ms time_limit_ms exit_code last_end reason",
    );
    assert_eq!(
        (&jobs[0]["exit_code"], &jobs[0]["id"], &jobs[0]["labels"]["a"]),
        (&json!(0), &json!("1"), &json!("b"))
    );
    let gpus = pool.say("gpus -o json").json();
    assert_eq!(gpus.as_array().unwrap().len(), 8);
    has_keys(
        &gpus[0],
        "node index uuid model memory_mib memory_used_mib utilization_percent temperature_c power_w state free_milli \
         allocations source",
    );
    assert_eq!(
        (&gpus[0]["source"], &gpus[0]["state"], &gpus[0]["model"]),
        (&json!("pretend"), &json!("free"), &json!("h100"))
    );
    for listing in ["ps -a", "gpus", "queues", "history"] {
        let csv = pool.say(&format!("{listing} -o csv"));
        let mut records = csv.ok().lines();
        let head = records.next().unwrap().split(',').count();
        assert!(head > 5 && records.count() >= 1, "{csv:?}");
        assert_eq!(pool.say(&format!("{listing} -o wide")).code, 0);
        assert!(!pool.say(listing).out.contains('\x1b'));
    }
    let shown = pool.say("show 1 -o json").json();
    has_keys(&shown, "id state exit_code attempts isolation");
    let usage = pool.say("history --by user,queue -o json").json();
    has_keys(&usage[0], "user queue jobs gpu_hours");
    let heads = |keys: &str| {
        let table = pool.say(&format!("history --by {keys}"));
        table.ok().lines().next().unwrap().split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(heads("queue,user,queue"), ["QUEUE", "USER", "JOBS"]);
    assert_eq!(heads("state,day"), ["STATE", "DAY", "JOBS"]);
    // These clocks are 26 hours apart, and so are on different days at every moment.
    let day = |zone: &str| {
        let asked = pool.command().args(["history", "--by", "day", "-o", "json"]).env("TZ", zone).output();
        Said::from(asked.unwrap()).json()[0]["day"].as_str().unwrap().to_owned()
    };
    assert!(day("<+14>-14") > day("<-12>12"));
    assert!(pool.say("history --by day,user -o csv").ok().starts_with("day,user,jobs,attempts,"));
}

#[test]
fn names_never_reach_a_terminal_raw() {
    let pool = Pool::start();
    let said = pool.divvy(["run", "-d", "-n", "evil\x1b[31mname", "--", "true"]);
    if said.code == 0 {
        assert_eq!(pool.say("wait 1").code, 0);
        for command in ["ps -a", "show 1", "explain 1", "ps -a -o wide"] {
            let said = pool.say(command);
            assert!(!said.out.contains('\x1b') && !said.err.contains('\x1b'), "{said:?}");
        }
    } else {
        assert!(said.code == 65 && !said.err.contains('\x1b'), "{said:?}");
    }
}

#[test]
fn a_command_that_is_not_there_fails_with_127_and_says_so() {
    let pool = Pool::start();
    let said = pool.divvy(["run", "--", "surely-no-such-command"]);
    assert_eq!(said.code, 127, "{said:?}");
    assert!(said.err.contains("surely-no-such-command"), "{said:?}");
    let job = pool.job("1");
    assert_eq!((&job["state"], &job["exit_code"]), (&json!("failed"), &json!(127)));
}

#[test]
fn a_time_limit_ends_a_job() {
    let pool = Pool::start();
    let said = pool.divvy(["run", "-t", "300ms", "--", "sleep", "600"]);
    assert_eq!(said.code, 143, "{said:?}");
    assert!(said.err.contains("time limit"), "{said:?}");
    assert_eq!(pool.job("1")["state"], "timeout");
}

/// Starts an attached job that tells when it runs.
fn attached(pool: &Pool, script: &str) -> std::process::Child {
    let mut command = pool.command();
    command.args(["run", "-g", "1", "--", "sh", "-c", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn ctrl_c_cancels_and_a_lost_terminal_only_detaches() {
    let pool = Pool::start();
    let started = pool.gate("started");
    let child = attached(&pool, "echo > started; exec sleep 600");
    started.await_job();
    signal(child.id(), Signal::INT);
    let said = finish(child);
    assert_eq!(said.code, 143, "{said:?}");
    assert_eq!(pool.job("1")["state"], "cancelled");

    let gate = pool.gate("gate");
    let child = attached(&pool, "echo > started; read x < gate; exit 5");
    started.await_job();
    signal(child.id(), Signal::HUP);
    finish(child);
    // The job runs, but the log may not say so yet.
    assert!(["starting", "running"].contains(&pool.job("2")["state"].as_str().unwrap()));
    gate.open();
    assert_eq!(pool.say("wait 2").code, 5);
}

#[test]
fn a_second_ctrl_c_leaves_a_job_that_takes_its_time_to_stop() {
    let pool = Pool::start();
    let (started, told, gate) = (pool.gate("started"), pool.gate("told"), pool.gate("gate"));
    let child = attached(
        &pool,
        "trap 'echo > told; read x < gate; exit 9' TERM; echo > started; while :; do sleep 0.01; done",
    );
    started.await_job();
    signal(child.id(), Signal::INT);
    told.await_job();
    signal(child.id(), Signal::INT);
    let said = finish(child);
    assert_eq!(said.code, 130, "{said:?}");
    assert!(said.err.contains("may still be stopping"), "{said:?}");
    gate.open();
    assert_eq!(pool.say("wait 1").code, 9);
}

#[test]
fn a_run_survives_a_restart_of_the_daemon() {
    let pool = Pool::start();
    let (started, gate) = (pool.gate("started"), pool.gate("gate"));
    let child = attached(&pool, "echo before; echo > started; read x < gate; echo after; exit 4");
    started.await_job();
    let down = pool.say("down");
    assert!(down.ok().contains("1 job runs on"), "{down:?}");
    pool.up();
    gate.open();
    let said = finish(child);
    assert_eq!((said.code, said.out.as_str()), (4, "before\nafter\n"), "{said:?}");
}

#[test]
fn without_a_daemon_every_question_says_how_to_start_one() {
    let pool = Pool::unstarted();
    for command in ["ps", "gpus", "run true", "wait 1", "down", "top"] {
        let said = pool.say(command);
        // `top` asks for a terminal first.
        assert!(said.code == 69 || command == "top" && said.code == 64, "{said:?}");
        assert!(said.code == 64 || said.err.contains("divvy up --detach"), "{said:?}");
    }
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused_naming_the_first() {
    let pool = Pool::start();
    let shown = pool.command().args(["up", "--gpus", "none"]).output().unwrap();
    let said = Said::from(shown);
    let pid = std::fs::read_dir(pool.state()).unwrap().count();
    assert!(pid > 0 && said.code == 73 && said.err.contains("pid"), "{said:?}");
}

#[test]
fn jobs_that_do_not_exist_are_told_with_66() {
    let pool = Pool::start();
    for command in ["show 99", "logs 99", "wait 99", "cancel 99", "explain 99", "hold 99", "show 1_2"] {
        let said = pool.say(command);
        assert_eq!(said.code, 66, "{command}: {said:?}");
    }
    assert_eq!(pool.say("show ../../etc").code, 65);
    for verb in ["show", "logs", "cancel", "wait", "explain"] {
        let empty = pool.divvy([verb, ""]);
        assert!(empty.code == 64 && empty.err.contains("a job has a number: 12"), "{verb}: {empty:?}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let pool = Pool::start();
    pool.submit("--array 0-999 --hold", "true");
    let line = format!("{DIVVY} ps -a -o json | head -c 1; exit ${{PIPESTATUS[0]}}");
    let output = Command::new("bash").args(["-c", &line]).env("DIVVY_STATE", pool.state()).output().unwrap();
    let said = Said::from(output);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "[", ""));
}

#[test]
fn all_pages_are_listed_in_json_and_people_are_told_that_there_is_more() {
    let pool = Pool::start();
    pool.submit("--array 0-2499 --hold", "true");
    assert_eq!(pool.say("ps -o json").json().as_array().unwrap().len(), 2500);
    assert_eq!(pool.say("ps -o json --limit 1200").json().as_array().unwrap().len(), 1200);
    let said = pool.say("ps");
    assert!(said.ok().lines().count() <= 101 && said.err.contains("--limit"), "{}", said.err);
}

#[test]
fn a_pool_that_comes_up_with_fewer_gpus_says_that_the_others_are_missing() {
    let pool = Pool::start();
    assert_eq!(pool.say("down").code, 0);
    let up = pool.say("up --detach --gpus pretend:4xH100");
    assert!(up.err.contains("GPUs   4 × h100, PRETENDED\n       4 more are known and missing"), "{up:?}");
}

#[test]
fn a_log_folder_that_is_not_there_is_named_with_the_reason_and_the_cure() {
    let pool = Pool::start();
    let said = pool.say("run -d --log logs/%x-%j.out -- true");
    let folder = pool.work().canonicalize().unwrap().join("logs");
    assert!(said.code == 0 && said.err.contains("No such file or directory"), "{said:?}");
    assert!(said.err.contains(&format!("`mkdir {}` before you submit", folder.display())), "{said:?}");
}

#[test]
fn people_who_look_back_see_the_newest_at_the_bottom() {
    let pool = Pool::start();
    for _ in 0..3 {
        assert_eq!(pool.say("run true").code, 0);
    }
    let ids = |said: &Said| -> Vec<String> {
        said.json().as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&pool.say("ps -a --limit 2 -o json")), ["2", "3"]);
    assert_eq!(ids(&pool.say("ps -a -n 1 -o json")), ["3"]);
    let one = pool.say("ps -a -n 1");
    assert!(
        one.err.contains("there are more") && one.ok().lines().last().unwrap().starts_with('3'),
        "{one:?}"
    );
    assert_eq!(ids(&pool.say("ps -a -o json")), ["1", "2", "3"]);
    let table = pool.say("ps -a --limit 2");
    assert!(
        table.ok().lines().last().unwrap().starts_with('3') && table.err.contains("there are more"),
        "{table:?}"
    );
}

#[test]
fn secrets_stay_out_of_listings_and_the_exported_environment_arrives() {
    let pool = Pool::start();
    let run = |flags: &[&str], script: &str| {
        let mut command = pool.command();
        command
            .env("SECRET", "s3cret")
            .env("OTHER", "o")
            .args(["run"])
            .args(flags)
            .args(["--", "sh", "-c", script]);
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    assert_eq!(run(&[], "echo $SECRET$OTHER").ok(), "s3creto");
    assert_eq!(run(&["--export", "OTHER"], "echo $SECRET$OTHER").ok(), "o");
    assert_eq!(
        run(&["--export", "NONE", "--env", "X=y", "--env", "SECRET"], "echo $SECRET$OTHER$X").ok(),
        "s3crety"
    );
    assert_eq!(
        run(&[], "umask").ok(),
        Said::from(Command::new("sh").args(["-c", "umask"]).output().unwrap()).ok()
    );
    let quiet = run(&["--env", "MINE=s3cret"], "test ${#SECRET} = 6 && test ${#MINE} = 6");
    assert_eq!((quiet.code, quiet.out.as_str()), (0, ""));
    for command in ["ps -a -o json", "show 5 -o json", "history -o json", "explain 5 -o json"] {
        assert!(!pool.say(command).out.contains("s3cret"), "{command}");
    }
    // Nor is it in the state directory, except in what the jobs themselves wrote.
    let found = Command::new("grep")
        .args(["-rl", "s3cret", "--exclude-dir=output"])
        .arg(pool.state())
        .output()
        .unwrap();
    assert_eq!(Said::from(found).out, "");
}

#[test]
fn a_drain_that_evicts_sends_jobs_back_into_their_queue() {
    let pool = Pool::start();
    let started = pool.gate("started");
    let id = pool.submit("-g 8", "echo $DIVVY_RESTART > started; [ $DIVVY_RESTART = 1 ] || exec sleep 1000");
    assert_eq!(started.await_job(), "0");
    let node = pool.say("gpus -o json").json()[0]["node"].as_str().unwrap().to_owned();
    let drained = pool.divvy(["gpus", "drain", &node, "--evict"]);
    assert!(drained.ok().ends_with(&format!("; {id} has to leave")), "{drained:?}");
    let refused = pool.say("gpus undrain 3");
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("is not drained") || refused.err.contains("together"), "{refused:?}");
    pool.divvy(["gpus", "undrain", &node]).ok();
    assert_eq!(started.await_job(), "1");
    assert_eq!(pool.divvy(["wait", &id]).code, 0);
    let end = &pool.divvy(["show", &id, "-o", "json"]).json()["attempts"][0]["end"];
    assert_eq!((&end["cause"], &end["by"]), (&"drain".into(), &"reservation 1".into()), "{end}");
}

#[test]
fn what_is_reserved_for_a_queue_is_for_its_jobs_alone() {
    let pool = Pool::start();
    std::fs::write(pool.work().join("queues.yaml"), "queues: {default: {}, course: {}}\n").unwrap();
    pool.say("apply -f queues.yaml").ok();
    let made = pool.say("reserve -g 6 --queue course --for 2h --note lecture");
    assert!(made.ok().starts_with("reservation 1: "), "{made:?}");
    let waits = pool.submit("-g 4", "true");
    assert!(pool.divvy(["explain", &waits]).ok().contains("DV-BOOKED"));
    assert_eq!(pool.say("run -q course -g 6 -- true").code, 0);
    let rows = pool.say("reserve -o json").json();
    assert_eq!(
        (&rows[0]["gpus"], &rows[0]["queue"], &rows[0]["state"]),
        (&6.into(), &"course".into(), &"active".into())
    );
    let refused = pool.say("reserve -g 3 --queue course");
    assert!(refused.err.contains("2 GPUs can be reserved"), "{refused:?}");
    let on = rows[0]["on"][0].as_str().unwrap();
    let twice = pool.divvy(["reserve", "--on", on, "--queue", "default", "--from", "1h"]);
    assert!(twice.ok().contains("note: reservation 1 keeps "), "{twice:?}");
    pool.say("reserve --cancel 1,2").ok();
    assert_eq!(pool.divvy(["wait", &waits]).code, 0);
    assert_eq!(pool.say("reserve --cancel 1").code, 65);
}

#[test]
fn only_administrators_and_sensible_times_are_taken() {
    let pool = Pool::start();
    for (line, what) in [
        ("gpus drain 9", "no node or GPU"),
        ("gpus drain 0 --at tomorrow", "is no moment"),
        ("gpus drain 0 --for -2h", ""),
        ("reserve -g 1 --queue nobody", "there is no queue"),
    ] {
        let refused = pool.say(line);
        assert_ne!(refused.code, 0, "{line}");
        assert!(refused.err.contains(what), "{refused:?}");
    }
    let listed = Command::new(DIVVY).args(["reserve", "--help"]).output().unwrap();
    assert!(String::from_utf8(listed.stdout).unwrap().contains("--cancel"));
}

#[test]
fn a_job_of_two_gpus_gets_two_that_are_bridged() {
    let pool = Pool::unstarted();
    pool.say("up --detach --gpus pretend:4xA40/2").ok();
    let gpus = pool.say("gpus -o json").json();
    assert_eq!((&gpus[2]["nvlinks"][0]["index"], &gpus[2]["nvlinks"][1]), (&json!(3), &Value::Null));
    assert!(pool.say("gpus -o wide").ok().contains("3×"));
    let gate = pool.gate("gate");
    let single = pool.submit("-g 1", "read x < gate");
    let said = pool.divvy(["run", "-g", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    let uuid = |index: usize| gpus[index]["uuid"].as_str().unwrap().to_owned();
    assert_eq!(said.ok(), format!("{},{}", uuid(2), uuid(3)));
    let submit = |gpus: u32, level: &str| {
        let job = format!("command: 'true'\ngpus: {gpus}\ntopology: {{within: {level}, required: true}}\n");
        std::fs::write(pool.work().join("job.yaml"), job).unwrap();
        pool.say("run -d -f job.yaml")
    };
    let refused = submit(3, "nvlink");
    assert!(refused.code != 0 && refused.err.contains("within one NVLink island"), "{refused:?}");
    let refused = submit(1, "device");
    assert!(refused.code != 0 && refused.err.contains("no level that several GPUs share"), "{refused:?}");
    // One GPU of each pair is left: two are free, but not in the same pair.
    let (other_gate, third_gate) = (pool.gate("other"), pool.gate("third"));
    let other = pool.submit("-g 1", "read x < other");
    let third = pool.submit("-g 1", "read x < third");
    other_gate.open();
    assert_eq!(pool.say(&format!("wait {other}")).code, 0);
    let id = submit(2, "nvlink").ok().to_owned();
    assert!(pool.say(&format!("explain {id}")).out.contains("DV-ISLAND"));
    gate.open();
    assert_eq!(pool.say(&format!("wait {single}")).code, 0);
    assert_eq!(pool.say(&format!("wait {id}")).code, 0);
    third_gate.open();
    assert_eq!(pool.say(&format!("wait {third}")).code, 0);
}
