//! Traces on the command line: made, imported, replayed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod simulator;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use simulator::{divvy, done};

/// The small files that are written by hand.
fn by_hand() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/replay")
}

#[test]
fn five_jobs_end_as_the_manual_says() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.csv");
    for (policy, ends) in [("fifo", [1000, 1300, 1100, 1150, 1320]), ("srtf", [1460, 440, 170, 130, 60])] {
        let line = format!(
            "sim replay --cluster cluster.csv --trace jobs.csv --policy {policy} --per-job {} -o json",
            out.display()
        );
        let object: Value = serde_json::from_str(&done(&by_hand(), &line)).unwrap();
        let keys = "policy class jobs refused finished mean_jct_s p50_jct_s p90_jct_s p99_jct_s mean_wait_s makespan_s \
                    restarts preemptions gpu_utilization worst_rho unfair_fraction wall_s peak_rss_mib digest by_queue";
        for key in keys.split_whitespace() {
            assert!(object.get(key).is_some_and(|value| !value.is_null()), "{key} is missing in {object}");
        }
        let mean = ends.iter().sum::<i64>() as f64 / 5.0 - 20.0;
        assert_eq!((object["mean_jct_s"].as_f64(), object["jobs"].as_u64()), (Some(mean), Some(5)));
        let rows = std::fs::read_to_string(&out).unwrap();
        let finish = |row: &str| row.split(',').nth(2).unwrap().parse::<i64>().unwrap();
        assert_eq!(rows.lines().next(), Some("job_id,start_s,finish_s,preemptions,rho,policy,class"));
        let class = if policy == "fifo" { "N" } else { "C" };
        assert!(rows.lines().skip(1).all(|row| row.ends_with(&format!(",{policy},{class}"))), "{rows}");
        assert_eq!(rows.lines().skip(1).map(finish).collect::<Vec<_>>(), ends, "{policy}");
    }
}

#[test]
fn what_was_made_up_can_be_replayed_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    done(here, "sim generate --nodes 2x8 --nodes 2xh100:8 --jobs 60 --teams 2 --seed 3 --out made");
    let again = divvy(here, "sim generate --jobs 60 --out made");
    assert!(again.code == 64 && again.err.contains("made/cluster.csv is there already"), "{}", again.err);
    done(here, "sim generate --nodes 2x8 --nodes 2xh100:8 --jobs 60 --teams 2 --seed 3 --out made --force");
    assert_eq!(divvy(here, "sim generate --jobs 0 --out none").code, 64);
    let replay = "sim replay --cluster made/cluster.csv --trace made/jobs.csv --policy mlfq --pools shared --restart-penalty 0";
    let table = done(here, &format!("{replay} --plot made/plot.svg"));
    for part in ["(all)", "team-1", "team-2", "mlfq, class N: 60 of 60 jobs"] {
        assert!(table.contains(part), "{part} is missing in\n{table}");
    }
    assert!(
        std::fs::read_to_string(here.join("made/plot.svg")).unwrap().contains("jobs.csv: mlfq (class N)")
    );
    let rows = done(here, &format!("{replay} -o csv"));
    assert!(rows.starts_with("queue,finished,mean_jct_s,"), "{rows}");
    let header = rows.lines().next().unwrap();
    assert!(header.ends_with(",unfair_fraction,ended_by_limit,stranded,refused,policy,class"), "{rows}");
    assert!(rows.lines().skip(1).all(|row| row.ends_with(",0,mlfq,N")), "{rows}");
    let twice = done(here, &format!("{replay} --repeat 2 --shift 90d -o json"));
    assert_eq!(serde_json::from_str::<Value>(&twice).unwrap()["jobs"], 120);
}

/// Three jobs of two teams and one of a third, which has no node; one asks for more than there is.
const TWO_TEAMS: &str = "job_id,submit_s,gpus,duration_s,queue\n\
                         late,0,8,50,b\nhuge,1,64,5,a\nhome,2,8,10,c\nfirst,3,8,20,a\nsecond,4,8,20,a\n";

#[test]
fn rows_of_own_pools_stand_in_the_order_of_the_trace_without_those_that_never_ran() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("jobs.csv"), TWO_TEAMS).unwrap();
    let nodes = "node,model,gpus,cpu_milli,memory_mib,pool\nn1,t4,8,1,1,a\nn2,t4,8,1,1,b\n";
    std::fs::write(here.join("cluster.csv"), nodes).unwrap();
    let line = "sim replay --cluster cluster.csv --trace jobs.csv --policy fifo -o json --measure 0..2";
    let object: Value = serde_json::from_str(&done(here, &format!("{line} --per-job out.csv"))).unwrap();
    // Of the rows 0 to 2 only the first could run; the file has all that ran.
    assert_eq!((&object["jobs"], &object["finished"]), (&3.into(), &1.into()));
    assert_eq!(object["refused_ids"], serde_json::json!(["huge", "home"]));
    let rows = std::fs::read_to_string(here.join("out.csv")).unwrap();
    let cells = |row: &str| row.split(',').take(3).collect::<Vec<_>>().join(",");
    let rows: Vec<String> = rows.lines().skip(1).map(cells).collect();
    assert_eq!(rows, ["late,0,50", "first,3,23", "second,23,43"]);
}

#[test]
fn a_trace_that_can_be_read_only_once_is_replayed_as_its_file_is() {
    let hand = by_hand();
    let replay = |trace: &str, from: Stdio| {
        let line =
            format!("sim replay --cluster cluster.csv --trace {trace} --policy srtf --per-job /dev/stdout");
        let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
        let output = command.args(line.split(' ')).current_dir(&hand).stdin(from).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&std::fs::read(hand.join("jobs.csv")).unwrap()).unwrap();
    drop(writer);
    let of_file = replay("jobs.csv", Stdio::null());
    assert!(of_file.contains("5 of 5 jobs") && of_file.contains("\nE,40,60,0,"), "{of_file}");
    assert_eq!(replay("/dev/stdin", reader.into()), of_file);
}

#[test]
fn a_name_that_recurs_over_files_or_copies_is_an_error_before_anything_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let cluster = by_hand().join("cluster.csv").display().to_string();
    let header = "job_id,submit_s,gpus,duration_s,queue\n";
    std::fs::write(here.join("a.csv"), format!("{header}x,0,1,5,lab\ny,1,1,5,lab\n")).unwrap();
    std::fs::write(here.join("b.csv"), format!("{header}z,0,1,5,lab\ny,9,1,5,lab\ny~1,10,1,5,lab\n"))
        .unwrap();
    for (files, told) in [
        ("--trace a.csv --trace b.csv", "b.csv, line 3, column job_id: \"y\" was there before"),
        (
            "--trace b.csv --repeat 2 --shift 1h",
            "b.csv, line 3, column job_id: \"y~1\" was there before: copies that --repeat makes are called like that",
        ),
    ] {
        let said = divvy(here, &format!("sim replay --cluster {cluster} {files} --policy fifo"));
        assert!(said.code == 65 && said.err.contains(told), "{files}: {}", said.err);
    }
}

#[test]
fn jobs_of_slurm_become_a_trace_and_what_does_not_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let text = "JobID|Partition|Submit|Start|End|Elapsed|AllocTRES|State\n\
                1|gpu|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:01:00|00:01:00|gres/gpu=2|COMPLETED\n\
                2|gpu|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:01:00|00:01:00|cpu=2|COMPLETED\n";
    std::fs::write(folder.path().join("sacct.txt"), text).unwrap();
    let said = divvy(folder.path(), "sim import slurm sacct.txt");
    assert_eq!(
        said.out,
        "job_id,submit_s,gpus,duration_s,queue,user,name,status\n1,0,2,60,gpu,,,COMPLETED\n"
    );
    assert_eq!(said.err, "divvy: 1 job\ndivvy: left out 1 that asked for no GPU\n");
}

#[test]
fn what_no_pool_could_take_is_told_before_anything_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
    write("quote.csv", "job_id,submit_s,gpus,duration_s,queue\na,0,1,5,lab\nb,1,\"1,5,lab\nc,1,1,5,lab\n");
    write("much.yaml", "queues:\n  lab: {guarantee: 8}\n  lab/a: {guarantee: 4}\n  other: {guarantee: 4}\n");
    let [cluster, jobs] = ["cluster.csv", "jobs.csv"].map(|name| by_hand().join(name).display().to_string());
    for (flags, code, told) in [
        (
            "--trace quote.csv".to_owned(),
            65,
            "quote.csv, line 3: there are 3 cells; expected 5, as in the header: is a quote opened there that is not closed?",
        ),
        ("--trace -".to_owned(), 64, "they are read more than once\n  fix: write them to files first"),
        (
            format!("--trace {jobs} --pools shared --queues much.yaml"),
            65,
            "much.yaml: line 4, column 22: 12 of any are guaranteed in all (lab 8, other 4), and the pool has 8: lower some",
        ),
    ] {
        let said = divvy(folder.path(), &format!("sim replay --cluster {cluster} --policy fifo {flags}"));
        assert!(said.code == code && said.err.contains(told), "{flags}: {}", said.err);
    }
    // With own pools, each queue has its pool to itself.
    done(
        folder.path(),
        &format!("sim replay --cluster {cluster} --policy fifo --trace {jobs} --queues much.yaml"),
    );
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_ends_with_its_own_code() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let hand = by_hand();
    std::fs::write(
        here.join("jobs.csv"),
        "job_id,submit_s,gpus,duration_s,queue\na,0,1,5,lab\nb,-1,1,5,lab\n",
    )
    .unwrap();
    let [cluster, jobs] = ["cluster.csv", "jobs.csv"].map(|name| hand.join(name).display().to_string());
    let cases = [
        (format!("--cluster {cluster} --trace none.csv --policy fifo"), 66, "cannot open none.csv"),
        (
            format!("--cluster {cluster} --trace jobs.csv --policy fifo"),
            65,
            "jobs.csv, line 3, column submit_s: \"-1\" is not a whole number of seconds",
        ),
        (format!("--cluster {cluster} --trace jobs.csv --policy fcfs"), 64, "quota-mlfq"),
        (format!("--cluster {cluster} --trace jobs.csv --policy fifo --submitted 9"), 64, "write A..B"),
        (format!("--cluster {cluster} --trace jobs.csv --policy fifo --repeat 2"), 64, "--shift"),
        (
            format!("--cluster {cluster} --trace jobs.csv --policy fifo --rate -1"),
            64,
            "\"-1\" is not a decimal",
        ),
        (
            format!("--cluster {cluster} --trace jobs.csv --policy fifo --restart-penalty -30s"),
            64,
            "invalid value '-30s' for '--restart-penalty <SPAN>'",
        ),
        (
            format!("--cluster {cluster} --trace {jobs} --policy ./none.yaml"),
            66,
            "--policy: there is no file ./none.yaml",
        ),
        (format!("--cluster {cluster} --trace {jobs} --policy {cluster}"), 65, "cluster.csv: "),
        (
            format!("--cluster {cluster} --trace {jobs} --policy fifo --repeat 99999999999 --shift 1d"),
            64,
            "that is too large",
        ),
        (
            format!("--cluster {cluster} --trace {jobs} --policy fifo --measure 4000..4999"),
            65,
            "there is no job to measure in the rows 4000..4999: they are 0..4",
        ),
        ("--cluster jobs.csv --trace jobs.csv --policy fifo".into(), 65, "line 3, column submit_s"),
        (format!("--cluster {jobs} --trace {jobs} --policy fifo"), 65, "there is no column \"node\""),
    ];
    for (line, code, text) in cases {
        let said = divvy(here, &format!("sim replay {line}"));
        assert_eq!(said.code, code, "{line}: {}", said.err);
        assert!(said.err.contains(text), "{line}: {}", said.err);
    }
}

#[test]
fn jobs_that_no_node_and_no_limit_lets_run_are_counted_apart_and_the_others_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let [cluster, jobs] = ["cluster.csv", "jobs.csv"].map(|name| by_hand().join(name).display().to_string());
    std::fs::write(
        here.join("big.csv"),
        "job_id,submit_s,gpus,duration_s,queue\na,0,64,5,lab\nb,1,1,5,lab\nc,1,1,5,x\n",
    )
    .unwrap();
    std::fs::write(here.join("queues.yaml"), "queues:\n  lab: { limit: { generic: 4 } }\n").unwrap();
    let said = divvy(
        here,
        &format!("sim replay --cluster {cluster} --trace {jobs} --queues queues.yaml --policy fifo-scan"),
    );
    assert_eq!(said.code, 0, "{}", said.err);
    let told = "job A never ran: it asks for 8 GPUs, and the limit of queue lab leaves it 4 of the models that it may use";
    assert!(said.err.contains(told), "{}", said.err);
    let said = divvy(here, &format!("sim replay --cluster {cluster} --trace big.csv --policy fifo"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("1 of 3 jobs"), "{}", said.out);
    assert!(said.err.contains("job c never ran: no node is of the pool x"), "{}", said.err);
    assert!(said.err.contains("job a never ran: it asks for 64 GPUs, and the nodes"), "{}", said.err);
    assert!(said.out.ends_with("\n2 refused: a, c\n"), "{}", said.out);
    let told = done(here, &format!("sim replay --cluster {cluster} --trace big.csv --policy fifo -o json"));
    let object: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&object["refused"], &object["refused_ids"]), (&2.into(), &serde_json::json!(["a", "c"])));
    let queues = &object["by_queue"];
    assert_eq!((&queues["lab"]["refused"], &queues["x"]["refused"]), (&1.into(), &1.into()));
}

#[test]
fn a_job_larger_than_the_limit_of_its_queue_is_refused_and_the_others_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("queues.yaml");
    std::fs::write(&file, "queues:\n  lab: {limit: 4}\npolicy: {order: attained}\n").unwrap();
    let line = "sim replay --cluster cluster.csv --trace jobs.csv --policy fifo --queues";
    let said = divvy(&by_hand(), &format!("{line} {}", file.display()));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.ends_with("\n2 refused: A, E\n"), "{}", said.out);
    assert!(
        said.err.contains("job A never ran: it asks for 8 GPUs, and the limit of queue lab is 4"),
        "{}",
        said.err
    );
    assert!(said.err.contains("only its queues are used: --policy says how to decide"), "{}", said.err);
}

#[test]
fn jobs_that_no_setting_of_the_queues_ever_lets_in_are_told_with_the_reason_and_the_others_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("queues.yaml");
    std::fs::write(&file, "queues:\n  lab: {guarantee: 4, borrow: 0}\n  other: {guarantee: 4, lend: 0}\n")
        .unwrap();
    let line = "sim replay --cluster cluster.csv --trace jobs.csv --pools shared --policy divvy --queues";
    let said = divvy(&by_hand(), &format!("{line} {}", file.display()));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("jobs A, E would wait for ever: DV-"), "{}", said.err);
    assert!(
        said.out.contains("3 of 5 jobs") && said.out.ends_with("\n2 would wait for ever\n"),
        "{}",
        said.out
    );
    let told = done(&by_hand(), &format!("{line} {} -o json", file.display()));
    let object: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&object["stranded"], &object["stranded_ids"]), (&2.into(), &serde_json::json!(["A", "E"])));
    let reasons = object["stranded_by_reason"].as_object().unwrap();
    assert!(reasons.values().all(|reason| reason["jobs"] == 2 && reason["first"] == "A"), "{reasons:?}");
}

#[test]
fn what_cannot_be_written_is_told_before_anything_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().display().to_string();
    for (flag, file) in [("--per-job", "none/out.csv"), ("--plot", "none/out.svg"), ("--per-job", "")] {
        let line =
            format!("sim replay --cluster cluster.csv --trace none.csv --policy fifo {flag} {there}/{file}");
        let said = divvy(&by_hand(), &line);
        assert_eq!(said.code, 73, "{line}: {}", said.err);
        assert!(said.err.contains(&format!("cannot write {there}")), "{line}: {}", said.err);
    }
    let kept = folder.path().join("kept.csv");
    std::fs::write(&kept, "kept").unwrap();
    let line = "sim replay --cluster cluster.csv --trace none.csv --policy fifo --plot";
    for (file, left) in [("kept.csv", Some("kept")), ("new.csv", None)] {
        assert_eq!(divvy(&by_hand(), &format!("{line} {there}/{file}")).code, 66);
        assert_eq!(std::fs::read_to_string(folder.path().join(file)).ok().as_deref(), left);
    }
}

#[test]
fn what_is_cut_off_or_not_awaited_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let write = |name: &str, text: &str| std::fs::write(here.join(name), text).unwrap();
    let header = "job_id,submit_s,gpus,duration_s,queue\n";
    write("cluster.csv", "node,model,gpus,cpu_milli,memory_mib,pool\nn1,t4,8,1,1,a\n");
    write("long.csv", &format!("{header}first,0,8,72000000,a\nsecond,1,8,10,a\n"));
    write("queues.yaml", "queues:\n  a: {budget: {gpu_hours: 1, every: 1h}}\n");
    let replay = "sim replay --cluster cluster.csv --pools shared --policy divvy --trace";
    let said = divvy(here, &format!("{replay} long.csv --queues queues.yaml"));
    assert!(said.err.contains("DV-OVER-BUDGET") && said.err.contains("10000 renewals"), "{}", said.err);
    let many: String = (0..150).map(|queue| format!("j{queue},0,1,10,q{queue}\n")).collect();
    write("many.csv", &format!("{header}{many}"));
    let said = divvy(here, &format!("{replay} many.csv"));
    assert!(said.out.contains("50 more queues are not in the table"), "{}", said.out);
    assert_eq!(said.out.lines().filter(|line| line.starts_with('q')).count(), 100);
    assert!(done(here, &format!("{replay} many.csv -o csv")).lines().count() == 152);
}

#[test]
fn what_replay_and_generate_cannot_take_ends_with_the_code_that_belongs_to_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bytes.yaml"), b"queues:\n  a: {}\n\xff").unwrap();
    let bytes = folder.path().join("bytes.yaml").display().to_string();
    let replay = "sim replay --cluster cluster.csv --trace jobs.csv";
    for (line, code, told) in [
        (format!("{replay} --policy fifo --queues {bytes}"), 65, "bytes.yaml: line 3, byte"),
        (format!("{replay} --policy {bytes}"), 65, "bytes.yaml: line 3, byte"),
        (format!("{replay} --policy fifo --repeat 2 --shift 1500ms"), 64, "whole seconds"),
        (format!("{replay} --policy fifo --restart-penalty 1500ms"), 64, "whole seconds"),
        (format!("sim generate --out {bytes}/made"), 73, "cannot write"),
    ] {
        let said = divvy(&by_hand(), &line);
        assert!(said.code == code && said.err.contains(told), "{line}: {} {}", said.code, said.err);
    }
}

#[test]
fn a_kind_of_job_without_speeds_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("speeds.csv");
    std::fs::write(&file, "name,gpus,model,steps_per_s\nx,8,h100,1\n").unwrap();
    let line = "sim replay --cluster cluster.csv --trace jobs.csv --policy fifo --speeds";
    let said = divvy(&by_hand(), &format!("{line} {}", file.display()));
    assert_eq!(said.code, 65, "{}", said.err);
    assert!(said.err.contains("job A never ran: --speeds has no row of"), "{}", said.err);
}

#[test]
fn a_case_that_is_in_two_files_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let case = r#"[{"id": "x", "suite": "dra", "topic": "t", "expected": {"strength": "plain"}}]"#;
    std::fs::write(folder.path().join("a.json"), case).unwrap();
    std::fs::write(folder.path().join("b.json"), format!("\n{case}")).unwrap();
    done(folder.path(), "sim suite a.json");
    for (files, told) in [
        (
            "a.json b.json",
            "b.json: line 2, case \"x\": it is in a.json, line 1, too; expected each only once",
        ),
        (
            "a.json a.json",
            "a.json: line 1, case \"x\": it is in a.json, line 1, too; expected each only once",
        ),
    ] {
        let said = divvy(folder.path(), &format!("sim suite {files}"));
        assert!(said.code == 65 && said.err.contains(told), "{}", said.err);
    }
}

#[test]
fn what_is_read_or_written_already_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for name in ["cluster.csv", "jobs.csv"] {
        std::fs::copy(by_hand().join(name), here.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("jobs.csv", here.join("link.csv")).unwrap();
    let before = std::fs::read(here.join("jobs.csv")).unwrap();
    let replay = "sim replay --cluster cluster.csv --trace jobs.csv --policy fifo";
    for (more, name) in [
        ("--per-job jobs.csv", "jobs.csv is read"),
        ("--plot cluster.csv", "cluster.csv is read"),
        ("--per-job link.csv", "link.csv is read"),
        ("--per-job both --plot ./both", "./both is written"),
        ("--per-job -", "standard output has the figures"),
    ] {
        let said = divvy(here, &format!("{replay} {more}"));
        assert!(said.code == 64 && said.err.contains(name), "{more}: {}", said.err);
    }
    assert_eq!(std::fs::read(here.join("jobs.csv")).unwrap(), before);
    assert!(!here.join("both").exists());
}

/// Runs a command with files as its streams: it reads the first, and appends to the other two.
fn with_streams(here: &Path, line: &str, [input, output, error]: [&str; 3]) -> i32 {
    let append =
        |name: &str| std::fs::File::options().append(true).create(true).open(here.join(name)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
    command.args(line.split(' ')).current_dir(here);
    command.stdin(std::fs::File::open(here.join(input)).unwrap());
    command.stdout(append(output)).stderr(append(error)).status().unwrap().code().unwrap()
}

#[test]
fn nothing_is_lost_where_a_file_is_behind_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for name in ["cluster.csv", "jobs.csv"] {
        std::fs::copy(by_hand().join(name), here.join(name)).unwrap();
    }
    let text = |name: &str| std::fs::read_to_string(here.join(name)).unwrap();
    std::fs::write(here.join("out"), "what was there\n").unwrap();
    let replay = "sim replay --cluster cluster.csv --trace jobs.csv --policy fifo";
    let streams = ["jobs.csv", "out", "err"];
    assert_eq!(with_streams(here, &format!("{replay} --per-job /dev/stdout -o csv"), streams), 0);
    let out = text("out");
    assert!(out.starts_with("what was there\nqueue,finished,") && out.contains("\njob_id,start_s,"), "{out}");
    assert_eq!(with_streams(here, &format!("{replay} --per-job /dev/stderr"), ["jobs.csv", "out", "err"]), 0);
    assert!(text("err").starts_with("job_id,start_s,"), "{}", text("err"));
    for (more, told) in [
        ("--per-job out", "out is standard output of the same command"),
        ("--plot err", "err is standard error of the same command"),
    ] {
        let before = (text("out"), text("err"));
        assert_eq!(with_streams(here, &format!("{replay} {more}"), streams), 64);
        assert!(text("err").starts_with(&before.1) && text("err").contains(told), "{}", text("err"));
        assert_eq!(text("out"), before.0);
    }
}

#[test]
fn what_is_imported_from_standard_input_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let sacct = "JobID|Partition|Submit|Elapsed|AllocTRES|State\n1|gpu|2026-01-01T00:00:00|00:01:00|gres/gpu=2|COMPLETED\n";
    std::fs::write(here.join("sacct"), sacct).unwrap();
    let streams = ["sacct", "out", "err"];
    assert_eq!(with_streams(here, "sim import slurm - --out sacct", streams), 64);
    assert_eq!(std::fs::read_to_string(here.join("sacct")).unwrap(), sacct);
    assert_eq!(with_streams(here, "sim import slurm - --out jobs.csv", streams), 0);
    assert_eq!(std::fs::read_to_string(here.join("jobs.csv")).unwrap().lines().count(), 2);
}

#[test]
fn what_is_written_to_a_link_is_written_where_it_leads() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for name in ["cluster.csv", "jobs.csv"] {
        std::fs::copy(by_hand().join(name), here.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("made.csv", here.join("link.csv")).unwrap();
    let replay = "sim replay --cluster cluster.csv --trace jobs.csv --policy fifo --per-job link.csv";
    let twice = divvy(here, &format!("{replay} --plot made.csv"));
    assert!(twice.code == 64 && twice.err.contains("made.csv is written by"), "{}", twice.err);
    assert!(!here.join("made.csv").exists());
    done(here, replay);
    assert!(std::fs::read_to_string(here.join("made.csv")).unwrap().starts_with("job_id,start_s,"));
}

#[test]
fn where_models_differ_in_speed_a_job_that_never_waits_has_no_wait_and_uses_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let write = |name: &str, text: &str| std::fs::write(here.join(name), text).unwrap();
    write("cluster.csv", "node,model,gpus,cpu_milli,memory_mib,pool\nn1,h100,1,1,1,a\nn2,k80,1,1,1,a\n");
    write("jobs.csv", "job_id,submit_s,gpus,duration_s,queue,name\nx,0,1,100,a,m\ny,0,1,100,a,m\n");
    write("speeds.csv", "name,gpus,model,steps_per_s\nm,1,v100,1.0\nm,1,h100,4.0\nm,1,k80,0.5\n");
    let line = "sim replay --cluster cluster.csv --trace jobs.csv --speeds speeds.csv --policy fifo -o json";
    let object: Value = serde_json::from_str(&done(here, line)).unwrap();
    assert_eq!((object["mean_wait_s"].as_f64(), object["mean_jct_s"].as_f64()), (Some(0.0), Some(112.5)));
    assert_eq!(object["gpu_utilization"].as_f64(), Some(225.0 / 400.0));
}
