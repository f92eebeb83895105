use std::path::PathBuf;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::trace::jobs;

/// Writes texts into files, imports them, and shows the result.
fn shown(source: Source, texts: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let write = |(at, text): (usize, &&str)| -> PathBuf {
        let path = folder.path().join(format!("{at}.txt"));
        std::fs::write(&path, text).unwrap();
        path
    };
    let files: Vec<_> = texts.iter().enumerate().map(write).collect();
    let imported = match import(source, &files) {
        Ok(imported) => imported,
        Err(error) => return error.to_string().replace(&format!("{}/", folder.path().display()), ""),
    };
    let mut text = Vec::new();
    jobs::write(&imported.jobs, &mut text).unwrap();
    let mut text = String::from_utf8(text).unwrap();
    for (why, count) in &imported.left_out {
        text.push_str(&format!("left out: {count} {why}\n"));
    }
    let counts = [("steps", imported.steps), ("shares", imported.shares), ("recurred", imported.recurred)];
    for (what, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        text.push_str(&format!("{what}: {count}\n"));
    }
    text
}

#[track_caller]
fn check(source: Source, texts: &[&str], expected: Expect) {
    expected.assert_eq(&shown(source, texts));
}

const SLURM: Source = Source::Slurm(SlurmQueue::Partition);

const SACCT: &str = "JobID|User|Account|Partition|JobName|Submit|Start|End|Elapsed|ReqTRES|AllocTRES|State\n";

#[test]
fn slurm_jobs_have_their_gpus_from_what_was_allocated_or_else_requested() {
    let text = format!(
        "{SACCT}\
        8|ann|vision|gpu|train|2024-05-01T10:00:10|2024-05-01T10:00:20|2024-05-02T11:00:20|1-01:00:00||billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,mem=64G,node=1|COMPLETED\n\
        8.batch||vision|||2024-05-01T10:00:20|2024-05-01T10:00:20|2024-05-02T11:00:20|1-01:00:00||cpu=8,gres/gpu=4|COMPLETED\n\
        7|bob|text|gpu,long|a|b|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T10:01:30|00:01:30|gres/gpu:a100=1,gres/gpu:h100=2||CANCELLED by 1000\n\
        9|bob|text|cpu|prep|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T10:01:30|00:01:30|cpu=4|cpu=4|COMPLETED\n"
    );
    check(
        SLURM,
        &[&text],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        7,0,3,90,gpu,bob,a|b,CANCELLED
        8,10,4,90000,gpu,ann,train,COMPLETED
        left out: 1 that asked for no GPU
    "#]],
    );
    let by_account = shown(Source::Slurm(SlurmQueue::Account), &[&text]);
    assert!(by_account.contains("7,0,3,90,text,bob"), "{by_account}");
}

#[test]
fn slurm_jobs_that_wait_run_or_never_started_are_left_out_and_counted() {
    let text = format!(
        "{SACCT}\
        1_[3-9%2]|u|a|p|n|2024-05-01T10:00:00|Unknown|Unknown|00:00:00|gres/gpu=1||PENDING\n\
        1_1|u|a|p|n|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T10:00:00|00:00:00|gres/gpu=1|gres/gpu=1|FAILED\n\
        1_2|u|a|p|n|2024-05-01T10:00:00|2024-05-01T10:00:00|Unknown|5-00:00:00|gres/gpu=1|gres/gpu=1|RUNNING\n\
        2|u|a|p|n|2024-05-01T10:00:00|None|2024-05-01T10:00:07|00:00:00|gres/gpu=1||CANCELLED by 7\n"
    );
    check(
        SLURM,
        &[&text],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        1_1,0,1,1,p,u,n,FAILED
        left out: 2 that never started
        left out: 1 that had not ended
    "#]],
    );
}

#[test]
fn slurm_runs_of_a_requeued_job_add_up_components_run_side_by_side_and_exports_may_overlap() {
    let header = "JobID|Account|Partition|Submit|Start|End|ElapsedRaw|AllocTRES|State\n";
    let may = format!(
        "{header}\
        5|a|p|1714557600|1714557600|1714557700|100|gres/gpu=2|NODE_FAIL\n\
        5|a|p|1714557700|1714557800|1714558000|200|gres/gpu=2|COMPLETED\n\
        6+0|a|p|1714557601|1714557700|1714557800|100|gres/gpu=8|COMPLETED\n\
        6+1|a|p|1714557601|1714557700|1714557790|90|gres/gpu=1|COMPLETED\n\
        7|a|p|1714557602|1714557700|Unknown|10|gres/gpu=1|RUNNING\n"
    );
    let june = format!(
        "{header}\
        5|a|p|1714557700|1714557800|1714558000|200|gres/gpu=2|COMPLETED\n\
        7|a|p|1714557602|1714557700|1714558700|1000|gres/gpu=1|TIMEOUT\n"
    );
    check(
        SLURM,
        &[&may, &june],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        5,0,2,300,p,,,COMPLETED
        6,1,9,100,p,,,COMPLETED
        7,2,1,1000,p,,,TIMEOUT
    "#]],
    );
}

#[test]
fn slurm_exports_may_be_read_in_any_order() {
    let header = "JobID|Partition|Submit|Start|End|ElapsedRaw|AllocTRES|State\n";
    let waits = format!("{header}7|p,q|1714557602|Unknown|Unknown|0|gres/gpu=1|PENDING\n");
    let runs = format!("{header}7|q|1714557602|1714557700|Unknown|10|gres/gpu=1|RUNNING\n");
    let later = format!("{header}7|q|1714557602|1714557700|Unknown|90|gres/gpu=1|RUNNING\n");
    let ended = format!("{header}7|q|1714557602|1714557700|1714558700|1000|gres/gpu=1|TIMEOUT\n");
    let whole = "job_id,submit_s,gpus,duration_s,queue,user,name,status\n7,0,1,1000,q,,,TIMEOUT\n";
    for texts in [[&ended, &runs, &waits], [&waits, &ended, &runs], [&runs, &later, &ended]] {
        assert_eq!(shown(SLURM, &texts.map(String::as_str)), whole);
    }
    let open = shown(SLURM, &[&later, &waits, &runs]);
    assert!(open.ends_with("left out: 1 that had not ended\n"), "{open}");
}

#[test]
fn slurm_jobs_that_share_an_id_are_told_apart_by_user_and_by_when_they_were_submitted() {
    let text = format!(
        "{SACCT}\
        7|ann|a|p|x|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T11:00:00|01:00:00||gres/gpu=1|NODE_FAIL\n\
        7|ann|a|p|x|2024-05-01T11:00:00|2024-05-01T11:00:00|2024-05-01T11:00:30|00:00:30||gres/gpu=1|COMPLETED\n\
        7|ann|a|p|x|2026-05-01T10:00:00|2026-05-01T10:00:00|2026-05-01T10:01:00|00:01:00||gres/gpu=2|COMPLETED\n\
        7|bob|a|p|x|2024-05-01T11:00:01|2024-05-01T12:00:00|2024-05-01T12:00:07|00:00:07||gres/gpu=4|COMPLETED\n\
        7|ann|a|p|y|2024-05-01T12:00:00|2024-05-01T12:00:00|2024-05-01T12:00:05|00:00:05||gres/gpu=8|COMPLETED\n"
    );
    check(
        SLURM,
        &[&text],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        7,0,1,3630,p,ann,x,COMPLETED
        7#2,3601,4,7,p,bob,x,COMPLETED
        7#3,7200,8,5,p,ann,y,COMPLETED
        7#4,63072000,2,60,p,ann,x,COMPLETED
        recurred: 3
    "#]],
    );
}

#[test]
fn slurm_lines_without_an_id_are_errors_and_only_a_whole_header_is_one() {
    let header = "Account|JobID|Partition|Submit|ElapsedRaw|AllocTRES|State\n";
    let row = |account: &str, id: &str| format!("{account}|{id}|p|7|60|gres/gpu=1|COMPLETED\n");
    for id in ["", " +1"] {
        let told = shown(SLURM, &[&format!("{header}{}", row("a", id))]);
        let expected = "is not the id of a job, like 7 or 7_1";
        assert_eq!(told, format!("0.txt, line 2, column JobID: {:?} {expected}", id.trim()));
    }
    check(
        SLURM,
        &[&format!("{header}{}{header}", row("Account", "1"))],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        1,0,1,60,p,,,COMPLETED
    "#]],
    );
}

#[test]
fn slurm_jobs_without_elapsed_took_the_time_from_start_to_end() {
    let job =
        |rest: &str| format!("{SACCT}1|u|a|p|n|2024-05-01T10:00:00|{rest}|gres/gpu=1|gres/gpu=1|COMPLETED\n");
    check(
        SLURM,
        &[&job("2024-05-01T10:00:00|2024-05-01T10:01:00|")],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        1,0,1,60,p,u,n,COMPLETED
    "#]],
    );
    check(
        SLURM,
        &[&job("2024-05-01T10:00:00|Unknown|")],
        expect![[
            r#"0.txt, line 2, column Elapsed: "" is not a time like 1-02:03:04 or 03:04, nor are Start and End there to tell it"#
        ]],
    );
    check(
        SLURM,
        &[&job("2024-05-01T10:00:00|2024-05-01T09:59:59|")],
        expect![[
            r#"0.txt, line 2, column End: "2024-05-01T09:59:59" is not a time after Start, by a hundred years at most"#
        ]],
    );
    check(
        SLURM,
        &["JobID|Partition|Submit|ElapsedRaw|ReqTRES|State\n1|p|7||gres/gpu=1|CANCELLED by 7\n"],
        expect![[
            r#"0.txt, line 2, column ElapsedRaw: "" is not a whole number of seconds, nor are Start and End there to tell it"#
        ]],
    );
}

#[test]
fn slurm_jobs_that_wait_or_run_need_no_elapsed() {
    let text = format!(
        "{SACCT}\
        1|u|a|p|n|2024-05-01T10:00:00|Unknown|Unknown||gres/gpu=1||PENDING\n\
        2|u|a|p|n|2024-05-01T10:00:00|2024-05-01T10:00:00|Unknown||gres/gpu=1|gres/gpu=1|RUNNING\n\
        3|u|a|p|n|2024-05-01T10:00:00|None|2024-05-01T10:00:07||gres/gpu=1||CANCELLED by 7\n"
    );
    check(
        SLURM,
        &[&text],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        left out: 2 that never started
        left out: 1 that had not ended
    "#]],
    );
}

#[test]
fn slurm_says_how_long_a_job_took_with_days_and_hours_or_without() {
    let row = |(at, elapsed): (usize, &&str)| format!("{at}|p|7|{elapsed}|gres/gpu=1|COMPLETED\n");
    let rows: String = ["00:30", "01:00:30", "2-01:00:30", "2-01:30"].iter().enumerate().map(row).collect();
    let header = "JobID|Partition|Submit|Elapsed|AllocTRES|State\n";
    check(
        SLURM,
        &[&format!("{header}{rows}")],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        0,0,1,30,p,,,COMPLETED
        1,0,1,3630,p,,,COMPLETED
        2,0,1,176430,p,,,COMPLETED
        3,0,1,172890,p,,,COMPLETED
    "#]],
    );
    for refused in ["30", "00:60", "1:2:3:4", "1-30", "-00:30"] {
        let told = shown(SLURM, &[&format!("{header}{}", row((1, &refused)))]);
        let place = "0.txt, line 2, column Elapsed: ";
        assert_eq!(told, format!("{place}{refused:?} is not a time like 1-02:03:04 or 03:04"));
    }
}

#[test]
fn slurm_steps_whose_job_stands_in_no_file_are_counted_once() {
    let header = "JobID|Partition|Submit|Elapsed|AllocTRES|State\n";
    let row = |id: &str| format!("{id}|p|7|00:01:00|gres/gpu=1|COMPLETED\n");
    let steps = ["12_3.batch", "7.0+1", "6+0.batch", "12_3.batch", "12_3.0"].map(row).concat();
    check(
        SLURM,
        &[&format!("{header}{steps}"), &format!("{header}{steps}{}{}", row("7"), row("6+0"))],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        7,0,1,60,p,,,COMPLETED
        6,0,1,60,p,,,COMPLETED
        steps: 2
    "#]],
    );
}

#[test]
fn slurm_output_that_is_something_else_is_refused_with_the_place() {
    check(
        SLURM,
        &["JobID|Partition|Submit|Elapsed|State\n"],
        expect![[
            r#"0.txt, line 1: there is no column "AllocTRES" among "JobID|Partition|Submit|Elapsed|State"; expected at least JobID,Submit,State,Partition,Elapsed or ElapsedRaw,AllocTRES or ReqTRES"#
        ]],
    );
    let line = "1|u|a|p|n|yesterday|x|y|00:01:00|gres/gpu=1||COMPLETED";
    check(
        SLURM,
        &[&format!("{SACCT}{line}\n")],
        expect![[
            r#"0.txt, line 2, column Submit: "yesterday" is not a time like 2017-10-07 01:12:09, or seconds"#
        ]],
    );
    let line = "1|u|a|p|n|1714557600|x|y|00:01:00|gres/gpu=1|cpu=2,gres/gpu=x|COMPLETED";
    check(
        SLURM,
        &[&format!("{SACCT}{line}\n")],
        expect![[
            r#"0.txt, line 2, column AllocTRES: "cpu=2,gres/gpu=x" is not a list like cpu=8,gres/gpu=4, with a whole number of GPUs up to 1000000"#
        ]],
    );
    check(
        SLURM,
        &["JobID|Partition|Submit|Elapsed|State|ReqTRES|Submit\n"],
        expect![
            "0.txt, line 1, column Submit: it is there twice, as number 3 and 7; expected each only once"
        ],
    );
    check(
        SLURM,
        &[&format!("{SACCT}1|2|3\n")],
        expect!["0.txt, line 2: there are 3 cells; expected 12, as in the header"],
    );
    check(
        SLURM,
        &[&format!("{SACCT}1\n")],
        expect!["0.txt, line 2: there is 1 cell; expected 12, as in the header"],
    );
}

#[test]
fn philly_jobs_work_for_the_sum_of_their_attempts() {
    let text = r#"[
      {"status": "Pass", "vc": "ee9e8c", "jobid": "application_2", "submitted_time": "2017-10-07 01:11:39", "user": "ce2f4c",
       "attempts": [
         {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23", "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}, {"ip": "m48", "gpus": ["gpu0"]}]},
         {"start_time": "2017-10-07 01:13:30", "end_time": "2017-10-09 06:53:12", "detail": [{"ip": "m412", "gpus": ["gpu0", "gpu1", "gpu2"]}]}]},
      {"status": "Killed", "vc": "ee9e8c", "jobid": "application_1", "submitted_time": "2017-10-07 01:00:00", "user": null,
       "attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:09", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
      {"status": "Failed", "vc": "x", "jobid": "application_3", "submitted_time": "2017-10-07 01:00:00", "user": "u", "attempts": []},
      {"status": "Pass", "vc": "x", "jobid": "application_4", "submitted_time": "2017-10-07 01:00:00", "user": "u",
       "attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": null, "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}
    ]"#;
    check(
        Source::Philly,
        &[text],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        application_1,0,1,60,ee9e8c,,,Killed
        application_2,699,3,193256,ee9e8c,ce2f4c,,Pass
        left out: 1 that never started
        left out: 1 that had not ended
    "#]],
    );
}

#[test]
fn a_philly_log_that_is_something_else_is_refused_with_the_line() {
    let refused = shown(Source::Philly, &["[\n{\"status\": 5}]"]);
    assert!(refused.starts_with("0.txt, line 2: invalid type: integer `5`, expected a string"), "{refused}");
    let refused = shown(
        Source::Philly,
        &["[{\"status\":\"\",\"vc\":\"\",\"jobid\":\"\",\"attempts\":[],\"submitted_time\":\"soon\"}]"],
    );
    assert_eq!(
        refused,
        "0.txt, line 1: job \"\": \"soon\" is not a time like 2017-10-07 01:12:09, or seconds"
    );
    assert!(shown(Source::Philly, &["[] []"]).contains("trailing characters"));
    for text in ["[\n{\"status\": 5}]", "[\n{\"status\"", "[] []", "7"] {
        let refused = shown(Source::Philly, &[text]);
        assert_eq!(refused.matches("line ").count(), 1, "{refused}");
        assert!(refused.contains("; expected a cluster_job_log of Philly"), "{refused}");
    }
}

#[test]
fn a_philly_job_with_an_attempt_that_ends_before_it_starts_is_left_out() {
    let job = |end: &str| {
        format!(
            "[{{\"status\":\"Pass\",\"vc\":\"x\",\"jobid\":\"application_3\",\"submitted_time\":\"2017-10-07 01:00:00\",\n\
            \"attempts\":[{{\"start_time\":\"2017-10-07 01:12:09\",\"end_time\":\"{end}\",\"detail\":[{{\"gpus\":[\"gpu0\"]}}]}}]}}]"
        )
    };
    check(
        Source::Philly,
        &[&job("2017-10-07 01:12:08")],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        left out: 1 with an end before its start
    "#]],
    );
    assert!(shown(Source::Philly, &[&job("2017-10-07 01:12:09")]).contains("\napplication_3,0,1,1,x,"));
}

#[test]
fn a_philly_job_that_ran_but_was_submitted_nobody_knows_when_is_left_out_as_such() {
    let text = r#"[{"status": "Pass", "vc": "x", "jobid": "application_3", "submitted_time": "None", "user": "u",
      "attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:09", "detail": [{"gpus": ["gpu0"]}]}]}]"#;
    check(
        Source::Philly,
        &[text],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        left out: 1 whose time of submission is unknown
    "#]],
    );
}

#[test]
fn helios_jobs_have_their_virtual_cluster_as_queue() {
    let text = "\
        job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n\
        1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n\
        1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n\
        1425513,uXBbc,vcJkd,0,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n";
    check(
        Source::Helios,
        &[text],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        1425511,0,1,36848,vcJkd,uXBbc,,COMPLETED
        1425512,26,4,249,vchbv,uVMrF,,FAILED
        left out: 1 that asked for no GPU
    "#]],
    );
}

#[test]
fn openb_pods_count_a_part_of_a_gpu_as_a_whole_one() {
    let text = "\
        name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
        openb-pod-0002,1,1,2,1000,,LS,Running,700,900,800.0\n\
        openb-pod-0001,1,1,1,460,,LS,Succeeded,600,650,610\n\
        openb-pod-0003,1,1,1,1000,,LS,Pending,700,900,\n\
        openb-pod-0004,1,1,1,1000,,LS,Running,700,,800\n\
        openb-pod-0005,1,1,0,0,,LS,Running,700,900,800\n";
    check(
        Source::Openb,
        &[text],
        expect![[r#"
        job_id,submit_s,gpus,duration_s,queue,user,name,status
        openb-pod-0001,0,1,40,all,,,Succeeded
        openb-pod-0002,100,2,100,all,,,Running
        left out: 1 that asked for no GPU
        left out: 1 that never started
        left out: 1 that had not ended
        shares: 1
    "#]],
    );
}

#[test]
fn names_that_recur_are_told_apart_and_counted() {
    let header = "job_id,user,vc,gpu_num,state,submit_time,duration\n";
    let row = |id: &str| format!("{id},u,q,1,COMPLETED,2020-06-09 18:41:01,10\n");
    let rows = ["7", "7", "7#2", "7~1", "7", "7#2"].map(row).concat();
    let text = shown(Source::Helios, &[&format!("{header}{rows}")]);
    let (rows, counts) = text.split_at(text.find("recurred").unwrap());
    let ids: Vec<_> = rows.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(ids, ["7", "7#3", "7#2", "7~1", "7#4", "7#2#2"]);
    assert_eq!(counts, "recurred: 3\n");
}

#[test]
fn a_trace_with_names_that_recurred_can_be_repeated() {
    let row = "7,u,q,1,COMPLETED,2020-06-09 18:41:01,10\n";
    let text = format!("job_id,user,vc,gpu_num,state,submit_time,duration\n{}", row.repeat(4));
    let folder = tempfile::tempdir().unwrap();
    let [log, trace] = ["log.csv", "jobs.csv"].map(|name| folder.path().join(name));
    std::fs::write(&log, text).unwrap();
    let imported = import(Source::Helios, &[log]).unwrap();
    jobs::write(&imported.jobs, std::fs::File::create(&trace).unwrap()).unwrap();
    let selection = jobs::Selection { repeat: 3, ..jobs::Selection::default() };
    let repeated: Result<Vec<_>, _> = jobs::merge(&[trace], selection).unwrap().collect();
    assert_eq!(repeated.unwrap().len(), 12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_text_makes_an_importer_panic(text in ".{0,200}") {
        for source in [SLURM, Source::Philly, Source::Helios, Source::Openb] {
            let _ = shown(source, &[&text]);
        }
    }

    #[test]
    fn no_cells_make_the_slurm_reader_panic(cells in proptest::collection::vec("[-0-9a-z+_:=,/.|\\[\\] ]{0,12}", 12..48)) {
        let rows: String = cells.chunks(12).map(|row| format!("{}\n", row.join("|"))).collect();
        let _ = shown(SLURM, &[&format!("{SACCT}{rows}")]);
        let id = |row: &[String]| format!("1{}|u|a|p|n|1714557600|1|2|9|{}|gres/gpu={}|{}\n", row[0], row[1], row[2], row[3]);
        let rows: String = cells.chunks_exact(4).map(id).collect();
        let _ = shown(SLURM, &[&format!("{SACCT}{rows}")]);
    }
}

#[test]
fn what_was_submitted_nobody_knows_when_is_left_out_and_counted() {
    let text = format!(
        "{SACCT}\
        1|u|a|p|n|Unknown|2024-05-01T10:00:00|2024-05-01T10:01:00|00:01:00||gres/gpu=1|COMPLETED\n\
        2|u|a|p|n|2024-05-01T10:00:00|2024-05-01T10:00:00|2024-05-01T10:01:00|00:01:00||gres/gpu=1|COMPLETED\n"
    );
    check(
        SLURM,
        &[&text],
        expect![[r#"
            job_id,submit_s,gpus,duration_s,queue,user,name,status
            2,0,1,60,p,u,n,COMPLETED
            left out: 1 whose time of submission is unknown
        "#]],
    );
    let text = "job_id,user,vc,gpu_num,state,submit_time,duration\n1,u,v,1,COMPLETED,,9\n";
    check(
        Source::Helios,
        &[text],
        expect![[r#"
            job_id,submit_s,gpus,duration_s,queue,user,name,status
            left out: 1 whose time of submission is unknown
        "#]],
    );
}

#[test]
fn slurm_jobs_that_were_cancelled_while_they_waited_never_started() {
    let job = |id: u32, end: &str, allocated: &str| {
        let start = "2024-05-01T10:00:05";
        format!(
            "{id}|u|a|p|n|2024-05-01T10:00:00|{start}|{start}{end}|00:00:00|gres/gpu=1|{allocated}|CANCELLED by 7\n"
        )
    };
    let text = format!("{SACCT}{}{}", job(1, "", ""), job(2, "", "gres/gpu=1"));
    check(
        SLURM,
        &[&text],
        expect![[r#"
            job_id,submit_s,gpus,duration_s,queue,user,name,status
            2,0,1,1,p,u,n,CANCELLED
            left out: 1 that never started
        "#]],
    );
}

#[test]
fn slurm_runs_of_a_requeued_job_without_a_start_are_told_apart_by_their_submission() {
    let text = "JobID|Partition|Submit|ElapsedRaw|AllocTRES|State\n\
        5|p|1714557600|100|gres/gpu=2|NODE_FAIL\n\
        5|p|1714557700|200|gres/gpu=2|COMPLETED\n\
        5|p|1714557700|200|gres/gpu=2|COMPLETED\n";
    check(
        SLURM,
        &[text],
        expect![[r#"
            job_id,submit_s,gpus,duration_s,queue,user,name,status
            5,0,2,300,p,,,COMPLETED
        "#]],
    );
}

#[test]
fn a_time_with_an_offset_is_the_moment_that_it_says() {
    for (text, seconds) in [
        ("2024-05-01T10:00:00", Some(1_714_557_600)),
        ("2024-05-01T10:00:00Z", Some(1_714_557_600)),
        ("2024-05-01T11:00:00+01:00", Some(1_714_557_600)),
        ("2024-05-01T08:30:00-0130", Some(1_714_557_600)),
        ("2024-05-01T10:00:00[Europe/Berlin]", None),
    ] {
        assert_eq!(civil::seconds(text), seconds, "{text}");
    }
}

#[test]
fn what_is_imported_can_be_replayed() {
    let attempt = |end: &str| {
        format!(
            r#"{{"start_time": "2017-10-03 21:01:42", "end_time": "{end}", "detail": [{{"ip": "m1", "gpus": ["g1"]}}]}}"#
        )
    };
    let philly = |id: &str, end: &str| {
        format!(
            r#"[{{"status": "Pass", "vc": " x ", "jobid": "{id}", "submitted_time": "2017-10-03 21:01:42", "user": "u", "attempts": [{}]}}]"#,
            attempt(end)
        )
    };
    let day = "2017-10-04 21:01:42";
    check(
        Source::Philly,
        &[&philly(" a ", day), &philly("a", day)],
        expect![[r#"
            job_id,submit_s,gpus,duration_s,queue,user,name,status
            a,0,1,86400,x,u,,Pass
            a#2,0,1,86400,x,u,,Pass
            recurred: 1
        "#]],
    );
    let told = shown(Source::Philly, &[&philly(" ", day)]);
    assert!(told.contains("its jobid is empty"), "{told}");
    let told = shown(Source::Philly, &[&philly("a", "2217-10-04 21:01:42")]);
    assert!(
        told.contains("job \"a\": its attempts took 6311433600 s; expected 3162240000 at most"),
        "{told}"
    );
    let pod = "name,num_gpu,gpu_milli,pod_phase,creation_time,deletion_time,scheduled_time\np,1,1000,Running,0,3162240002,1\n";
    let told = shown(Source::Openb, &[pod]);
    assert!(
        told.contains("column deletion_time: \"3162240002\" is not a time no more than 3162240000 s"),
        "{told}"
    );
}
