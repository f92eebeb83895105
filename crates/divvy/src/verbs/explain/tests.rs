//! Tests of the text of an explanation.

use super::*;
use expect_test::expect;

fn explained() -> Explained {
    serde_json::from_value(serde_json::json!({
        "job": "12", "name": "ft", "verdict": "later", "state": "pending", "ask": "4 × h100, queue vision",
        "position": 2, "submitted_ms": 0,
        "blockers": [
            {"code": "DV-OVER-LIMIT", "text": "queue vision has 30 of 32 GPUs", "fix": "wait for 9 (2 GPUs), or raise the limit"},
            {"code": "DV-DEVICES-BUSY", "text": "3 h100 are free, 4 are needed on one node", "fix": "wait for 9 or 11"},
        ],
        "funnel": [
            {"step": "in pool", "devices": 64, "nodes": 8}, {"step": "right model", "devices": 40, "nodes": 5},
            {"step": "enough memory", "devices": 40, "nodes": 5}, {"step": "healthy", "devices": 38, "nodes": 5},
            {"step": "free", "devices": 3, "nodes": 2}, {"step": "on one node", "devices": 0, "nodes": 0},
        ],
    })).unwrap()
}

#[test]
fn the_usual_answer_fits_in_eight_lines() {
    let text = render(&explained(), 125_000);
    expect![[r#"
        12 (ft) is pending: it starts when something ends
          asks   4 × h100, queue vision, 2nd in line, submitted 2m05s ago
          1.     DV-OVER-LIMIT  queue vision has 30 of 32 GPUs
          fix    wait for 9 (2 GPUs), or raise the limit
          2.     DV-DEVICES-BUSY  3 h100 are free, 4 are needed on one node
          fix    wait for 9 or 11
          GPUs   64 in pool → 40 right model → 40 enough memory → 38 healthy → 3 free → 0 on one node
    "#]]
    .assert_eq(&text);
    assert!(text.lines().count() <= 8);
}

#[test]
fn who_waits_for_a_moment_alone_is_told_so_whatever_else_would_do() {
    let mut one = explained();
    one.blockers.truncate(1);
    let of_time = serde_json::json!({"who": "time", "changes": [{"kind": "wait"}]});
    let by_user = serde_json::json!({"who": "user", "changes": [{"kind": "start_now"}]});
    one.blockers[0].ways = serde_json::from_value(serde_json::json!([by_user, of_time])).unwrap();
    one.remedy = serde_json::from_value(by_user).unwrap();
    assert!(headline(&one).ends_with("it starts when its time has come\n"));
    one.blockers[0].ways.pop();
    assert!(headline(&one).ends_with("it starts when something ends\n"));
}

#[test]
fn a_job_that_never_starts_is_told_whether_settings_or_the_pool_keep_it_from_that() {
    let never = |from: i64| {
        let raise = serde_json::json!({"kind": "raise_budget", "from": from, "to": 2000});
        let ways = serde_json::json!([{"who": "administrator", "text": "", "changes": [raise]}]);
        let mut one = explained();
        one.verdict = Verdict::NoFit;
        one.blockers[0].code = "DV-OVER-BUDGET".into();
        one.blockers[0].ways = serde_json::from_value(ways).unwrap();
        headline(&one)
    };
    assert!(never(0).ends_with("as things are set it never starts\n"));
    assert!(never(1000).ends_with("the pool as it is can never run it\n"));
}

#[test]
fn a_job_beyond_what_is_lent_never_starts_as_things_are_set() {
    let mut one = explained();
    one.verdict = Verdict::NoFit;
    for code in ["DV-BORROW-LIMIT", "DV-NOT-LENT"] {
        one.blockers[0].code = code.into();
        assert!(headline(&one).ends_with("as things are set it never starts\n"), "{code}");
    }
}

#[test]
fn a_member_behind_others_of_its_array_is_told_whom_the_answer_is_about() {
    let priority = serde_json::json!({"kind": "prioritise", "to": 1});
    let mut one = Explained { job: "2_5".into(), ..explained() };
    (one.members_before, one.next_member) = (3, Some("2_2".into()));
    one.blockers.truncate(1);
    one.blockers[0].ways = serde_json::from_value(serde_json::json!([
        {"who": "user", "text": "priority 1 for it", "changes": [priority]},
    ]))
    .unwrap();
    one.funnel.clear();
    expect![[r#"
        2_5 (ft) is pending: it starts when something ends
          asks   4 × h100, queue vision, its array 2nd in line, submitted 2m05s ago
          array  3 members go before it; for the next of them, 2_2:
          why    DV-OVER-LIMIT  queue vision has 30 of 32 GPUs
          fix    priority 1 for it (divvy set 2 --priority 1, which sets that of its whole array)
    "#]]
    .assert_eq(&render(&one, 125_000));
}

#[test]
fn each_way_out_says_who_it_takes_and_until_when() {
    let mut one = explained();
    one.blockers.truncate(1);
    one.blockers[0].ways = serde_json::from_value(serde_json::json!([
        {"who": "user", "text": "accept a100, too"},
        {"who": "time", "text": "wait for job 9 to end"},
        {"who": "administrator", "text": "2 more GPUs of limit for vision (to 34)"},
    ]))
    .unwrap();
    one.displaced = Some(Displaced {
        cause: "reclaimed".into(),
        by: Some("14".into()),
        at_ms: Some(0),
        lost_gpu_seconds: 5400.0,
        back_ms: None,
    });
    one.funnel.clear();
    expect![[r#"
        12 (ft) is pending: it starts when something ends
          asks   4 × h100, queue vision, 2nd in line, submitted 2m05s ago
          why    DV-OVER-LIMIT  queue vision has 30 of 32 GPUs
          fix    accept a100, too
          or     wait for job 9 to end
          or     an administrator: 2 more GPUs of limit for vision (to 34)
          before gave way to job 14 (reclaimed), 1.50 GPU-hours of work are to be done again
    "#]]
    .assert_eq(&render(&one, 125_000));
}

#[test]
fn who_made_room_is_told_with_what_that_cost_and_of_many_the_first_ones() {
    let one = |job: &str, at_ms, lost_gpu_seconds| MadeRoom {
        job: job.into(),
        cause: "reclaimed".into(),
        at_ms,
        tasks: None,
        lost_gpu_seconds,
    };
    let two = [one("3", Some(0), 5400.0), one("4", None, 0.0)];
    assert_eq!(
        made_room(&two),
        "job 3 gave way (reclaimed), 1.50 GPU-hours of work are to be done again; \
         job 4 gives way (reclaimed), no work is lost"
    );
    let part = MadeRoom { tasks: Some(2), ..one("5", Some(0), 0.0) };
    assert_eq!(made_room(&[part]), "job 5 gave up 2 tasks (reclaimed), no work is lost");
    let many = ["3", "4", "5", "6", "7"].map(|job| one(job, Some(0), 1800.0));
    assert!(made_room(&many).ends_with("; 2 more, 1.00 GPU-hours of work are to be done again"));
}

#[test]
fn a_deadline_says_whether_it_can_be_met() {
    let hour_ms = 3_600_000;
    let asked = Explained { deadline_ms: Some(9 * hour_ms), ..explained() };
    let said = |job: &Explained, now_ms| deadline(job, now_ms).unwrap();
    assert!(said(&asked, 0).ends_with("give it a time limit or an estimate"));
    let known = Explained { length_ms: Some(2 * hour_ms), ..asked };
    assert!(said(&known, 0).ends_with("nobody can say when it starts"));
    let early = Explained { expected_end_ms: Some(8 * hour_ms), ..known.clone() };
    assert!(said(&early, 0).ends_with(", in time"), "{}", said(&early, 0));
    let late = Explained { expected_end_ms: Some(11 * hour_ms), ..known };
    assert!(said(&late, 0).ends_with(", 2h00m too late"), "{}", said(&late, 0));
    assert!(said(&late, 10 * hour_ms).ends_with("missed 1h00m ago"));
    assert_eq!(deadline(&explained(), 0), None);
}

#[test]
fn the_expected_start_has_its_spread_and_what_it_rests_on_or_why_there_is_none() {
    let expected = ExpectedStart {
        expected_start_ms: Some(3_600_000),
        expected_start_low_ms: Some(3_000_000),
        expected_start_by: Some("by 40 finished jobs like those that run".into()),
        ..ExpectedStart::default()
    };
    let said = start(&expected, 0).unwrap();
    assert!(said.starts_with("expected ≈ ") && said.contains("–open), by 40 finished"), "{said}");
    let high = ExpectedStart { expected_start_high_ms: Some(7_200_000), ..expected };
    assert_eq!(start(&high, 0).unwrap().matches(':').count(), 3);
    let (low, at) = (Some(7_200_000), Some(7_200_000));
    let certain = ExpectedStart { expected_start_low_ms: low, expected_start_ms: at, ..high };
    assert!(!start(&certain, 0).unwrap().contains('–'));
    let why_not = Some("not known: nothing says".into());
    let unknown = ExpectedStart { expected_start_by: why_not, ..ExpectedStart::default() };
    assert_eq!(start(&unknown, 0).unwrap(), "expected: not known: nothing says");
    assert_eq!(start(&ExpectedStart::default(), 0), None);
}

#[test]
fn room_that_is_kept_is_told_with_when_it_was_to_be_before_and_who_runs_on() {
    let from = Room { from_ms: Some(7_200_000), awaits: Some("9".into()), ..Room::default() };
    let said = kept(&from, 0);
    assert!(said.starts_with("kept from ≈ ") && said.ends_with(" on, when job 9 is to end"), "{said}");
    let moved = Room { was_from_ms: Some(3_600_000), outrun_by: Some("7".into()), ..from };
    let said = kept(&moved, 0);
    assert!(said.contains("; it was ≈ ") && said.ends_with(", but job 7 runs on"), "{said}");
    let lost = kept(&Room { from_ms: None, ..moved }, 0);
    assert!(lost.starts_with("nothing says any more") && lost.ends_with("but job 7 runs on"), "{lost}");
    assert_eq!(kept(&Room::default(), 0), "collected for it as it becomes free");
}

#[test]
fn a_held_job_starts_when_it_is_released_and_not_before() {
    let mut held = Explained { state: Some(JobState::Held), blockers: Vec::new(), ..explained() };
    assert_eq!(headline(&held), "12 (ft) is held: it starts when it is released\n");
    let blocker = |code: &str| serde_json::from_value(serde_json::json!({"code": code, "text": ""})).unwrap();
    held.blockers = vec![blocker("DV-HELD"), blocker("DV-OVER-BUDGET")];
    assert_eq!(headline(&held), "12 (ft) is held: once it is released, it goes on waiting\n");
}

#[test]
fn a_dry_run_says_where_or_why_not() {
    let trial: Trial = serde_json::from_value(serde_json::json!({
        "verdict": "fit",
        "placements": [{"task": 0, "node": "n1", "indices": [2, 3], "devices": ["GPU-a", "GPU-b"]}],
        "notices": ["gets 8 cores and 32Gi"],
    }))
    .unwrap();
    expect![[r#"
        would start at once
          task 0 GPU 2, 3 on n1
          note   gets 8 cores and 32Gi
        dry run: nothing was submitted
    "#]]
    .assert_eq(&render_trial(&trial));
}

#[test]
fn places_in_line_are_ordinal_numbers() {
    assert_eq!(
        [1, 2, 3, 4, 11, 12, 21, 102, 111].map(ordinal).join(" "),
        "1st 2nd 3rd 4th 11th 12th 21st 102nd 111th"
    );
}

#[test]
fn a_job_that_is_over_is_told_how_it_ended_where_it_ran_and_how_long_it_had_waited() {
    let mut one: Explained = serde_json::from_value(serde_json::json!({
        "job": "12", "name": "ft", "verdict": "ended", "state": "failed", "ask": "4 × h100", "submitted_ms": 0,
        "nodes": ["n1"], "blockers": [], "funnel": [],
        "ended": {"end": {"cause": "exit"}, "exit_code": 3, "failed_task": 2, "attempts": 1, "started_ms": 60000,
            "ended_ms": 180_000, "waited_ms": 60000},
    }))
    .unwrap();
    let told = |one: &Explained| {
        let moments = [60_000, 180_000].map(local);
        render(one, 300_000).replace(&moments[0], "START").replace(&moments[1], "END")
    };
    expect![[r#"
        12 (ft) is failed: exit code 3, of task 2
          asked  4 × h100, submitted 5m00s ago
          waited 1m00s before it started
          ran    on n1, from START on, for 2m00s
          ended  END, 2m00s ago
    "#]]
    .assert_eq(&told(&one));
    let ended = one.ended.as_mut().unwrap();
    (ended.started_ms, ended.exit_code, ended.failed_task, ended.waited_ms) = (None, None, None, 180_000);
    ended.end = serde_json::from_value(serde_json::json!({"cause": "cancelled", "by": "ana"})).unwrap();
    one.state = Some(JobState::Cancelled);
    expect![[r#"
        12 (ft) is cancelled: cancelled by ana
          asked  4 × h100, submitted 5m00s ago
          waited 3m00s, and did not run
          ended  END, 2m00s ago
    "#]]
    .assert_eq(&told(&one));
}

#[test]
fn a_job_to_which_devices_are_promised_is_told_so_at_once() {
    let mut one = explained();
    one.blockers.truncate(1);
    one.blockers[0].code = "DV-PROMISED".into();
    assert!(headline(&one).ends_with("its devices are promised to it\n"));
}
