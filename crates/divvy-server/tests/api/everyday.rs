//! What users do every day.

use divvy_api::attach::{Frame, FrameReader};
use divvy_api::{JobState, paths};
use serde_json::{Value, json};

use crate::Sentence;
use crate::daemon::{Daemon, ask, submission};

pub(crate) const TESTS: &[Sentence] = &[
    (
        "an_attached_job_streams_its_output_and_says_how_it_ended",
        an_attached_job_streams_its_output_and_says_how_it_ended,
    ),
    ("a_stream_that_broke_off_is_taken_up_at_any_byte", a_stream_that_broke_off_is_taken_up_at_any_byte),
    (
        "a_waiting_job_is_explained_and_starts_when_its_turn_comes",
        a_waiting_job_is_explained_and_starts_when_its_turn_comes,
    ),
    ("an_array_is_a_row_per_member_and_waits_as_a_whole", an_array_is_a_row_per_member_and_waits_as_a_whole),
    (
        "listings_come_in_pages_that_lose_and_repeat_nothing",
        listings_come_in_pages_that_lose_and_repeat_nothing,
    ),
    ("jobs_are_held_released_and_cancelled", jobs_are_held_released_and_cancelled),
    ("an_ended_job_still_says_all_that_it_asked_for", an_ended_job_still_says_all_that_it_asked_for),
    (
        "the_last_lines_of_a_gang_name_the_task_that_wrote_them",
        the_last_lines_of_a_gang_name_the_task_that_wrote_them,
    ),
    ("a_job_starts_after_another_even_one_long_gone", a_job_starts_after_another_even_one_long_gone),
    ("the_same_key_submits_once", the_same_key_submits_once),
    ("a_dry_run_says_what_would_happen_and_logs_nothing", a_dry_run_says_what_would_happen_and_logs_nothing),
    ("output_is_read_by_byte_and_by_line_and_followed", output_is_read_by_byte_and_by_line_and_followed),
    ("events_resume_behind_the_last_one_seen", events_resume_behind_the_last_one_seen),
    ("no_secret_leaves_its_file", no_secret_leaves_its_file),
    ("queues_are_set_by_file_and_the_difference_is_told", queues_are_set_by_file_and_the_difference_is_told),
    ("history_adds_up_what_was_used", history_adds_up_what_was_used),
    ("every_listing_of_the_pool_answers", every_listing_of_the_pool_answers),
];

fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut reader = FrameReader::default();
    reader.push(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        frames.push(frame);
    }
    frames
}

fn output_of(frames: &[Frame]) -> String {
    let pieces = frames
        .iter()
        .filter_map(|frame| if let Frame::Output(bytes) = frame { Some(bytes.as_slice()) } else { None });
    String::from_utf8(pieces.collect::<Vec<_>>().concat()).unwrap()
}

fn an_attached_job_streams_its_output_and_says_how_it_ended() {
    let daemon = Daemon::start();
    let mut body = submission(json!({"command": "echo $CUDA_VISIBLE_DEVICES; echo two; exit 3", "gpus": 1}));
    body["attached"] = json!(true);
    let reply = daemon.post("/v1/jobs", &body);
    assert!(reply.status == 200 && reply.head.contains(paths::ATTACH_TYPE), "{reply:?}");
    let frames = frames(&reply.body);
    let Some(Frame::Submitted(submitted)) = frames.first() else { panic!("{frames:?}") };
    assert_eq!(submitted.id, "1");
    let output = output_of(&frames);
    assert!(output.starts_with("GPU-") && output.ends_with("\ntwo\n"), "{output:?}");
    let Some(Frame::Ended(waited)) = frames.last() else { panic!("{frames:?}") };
    assert_eq!((waited.ended, waited.exit_code, &waited.state), (true, Some(3), &JobState::Failed));
    let shown = daemon.get("/v1/jobs/1").json();
    assert_eq!(
        (&shown["state"], &shown["exit_code"], &shown["last_lines"][1]),
        (&json!("failed"), &json!(3), &json!("two"))
    );
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1);
}

fn a_stream_that_broke_off_is_taken_up_at_any_byte() {
    let daemon = Daemon::start();
    let id = daemon.submit(json!({"command": "printf abcdef"}));
    daemon.wait(&id);
    for from in 0..=6 {
        let frames = frames(&daemon.get(&format!("/v1/jobs/{id}/attach?from={from}")).body);
        assert!(
            matches!(frames.first(), Some(Frame::Submitted(_)))
                && matches!(frames.last(), Some(Frame::Ended(_)))
        );
        assert_eq!(output_of(&frames), "abcdef"[from..]);
    }
}

fn a_waiting_job_is_explained_and_starts_when_its_turn_comes() {
    let daemon = Daemon::start();
    let first = daemon.submit(json!({"command": "read x < /tmp/never 2>/dev/null; sleep 60", "gpus": 2}));
    let second = daemon.submit(json!({"command": "true", "gpus": 1, "name": "second"}));
    let explained = daemon.get(&format!("/v1/jobs/{second}/explain")).json();
    assert_eq!((&explained["verdict"], &explained["position"]), (&json!("later"), &json!(1)));
    assert_eq!(explained["blockers"][0]["code"], "DV-GPUS-BUSY");
    assert_eq!(explained["funnel"][0], json!({"step": "in pool", "devices": 2, "nodes": 1}));
    let rows = daemon.get("/v1/jobs").json();
    assert_eq!(rows["items"][1]["reason"]["code"], "DV-GPUS-BUSY");
    assert_eq!(daemon.post(&format!("/v1/jobs/{first}/cancel"), &json!({})).json()["changed"], true);
    assert_eq!(daemon.wait(&second)["exit_code"], 0);
    assert_eq!(daemon.wait(&first)["last_end"]["cause"], "cancelled");
    assert_eq!(daemon.get(&format!("/v1/jobs/{second}/explain")).json()["verdict"], "ended");
}

fn an_array_is_a_row_per_member_and_waits_as_a_whole() {
    let daemon = Daemon::start();
    let reply = daemon
        .post(
            "/v1/jobs",
            &submission(json!({"command": "exit $DIVVY_ARRAY_INDEX", "array": "0-3%2", "gpus": 1})),
        )
        .json();
    assert_eq!((&reply["id"], &reply["members"]), (&json!("1"), &json!(4)));
    let waited = daemon.wait("1");
    assert_eq!((&waited["exit_code"], &waited["state"]), (&json!(1), &json!("failed")));
    let rows = daemon.get("/v1/jobs?all=true").json();
    let ids: Vec<_> =
        rows["items"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["1_0", "1_1", "1_2", "1_3"]);
    assert_eq!(daemon.wait("1_3")["exit_code"], 3);
    for path in ["/v1/jobs/1", "/v1/jobs/1/explain", "/v1/jobs/1/output"] {
        let whole = daemon.get(path);
        assert_eq!(whole.code(), "bad-spec", "{path}: a member has to be named");
    }
    assert_eq!(daemon.get("/v1/jobs/1_3").json()["exit_code"], 3);
    assert_eq!(daemon.get("/v1/jobs/1_9").code(), "no-such-job");
}

fn listings_come_in_pages_that_lose_and_repeat_nothing() {
    let daemon = Daemon::start();
    daemon.submit(json!({"command": "true", "array": "0-6"}));
    daemon.wait("1");
    daemon.submit(json!({"command": "true", "array": "0-4", "hold": true}));
    daemon.submit(json!({"command": "true", "hold": true}));
    let listed = |query: &str| {
        let (mut after, mut ids) = (String::new(), Vec::new());
        loop {
            let page = daemon.get(&format!("/v1/jobs?all=true&limit=4{query}{after}")).json();
            ids.extend(
                page["items"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()),
            );
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return ids,
            }
        }
    };
    let mut expected: Vec<String> = (0..7)
        .map(|n| format!("1_{n}"))
        .chain((0..5).map(|n| format!("2_{n}")))
        .chain(["3".to_owned()])
        .collect();
    assert_eq!(listed(""), expected);
    expected.reverse();
    assert_eq!(listed("&newest=true"), expected);
    let count =
        |query: &str| daemon.get(&format!("/v1/jobs?{query}")).json()["items"].as_array().unwrap().len();
    assert_eq!(
        (
            count(""),
            count("state=held"),
            count("state=completed"),
            count("job=2_3"),
            count("user=nobody&all=true")
        ),
        (6, 6, 7, 1, 0)
    );
    assert_eq!(daemon.get("/v1/jobs?state=sleepy").code(), "bad-spec");
}

fn jobs_are_held_released_and_cancelled() {
    let daemon = Daemon::start();
    let id = daemon.submit(json!({"command": "true", "hold": true}));
    assert_eq!(daemon.get(&format!("/v1/jobs/{id}")).json()["reason"]["code"], "DV-HELD");
    let released = daemon.post(&format!("/v1/jobs/{id}/release"), &json!({})).json();
    assert_eq!((&released["changed"], &released["members"]), (&json!(true), &json!(1)));
    daemon.wait(&id);
    let again = daemon.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).json();
    assert_eq!((&again["changed"], &again["state"]), (&json!(false), &json!("completed")));
    let array = daemon.submit(json!({"command": "true", "array": "0-9", "hold": true}));
    let cancelled = daemon.post(&format!("/v1/jobs/{array}/cancel"), &json!({})).json();
    assert_eq!((&cancelled["members"], &cancelled["state"]), (&json!(10), &json!("cancelled")));
    assert_eq!(daemon.post("/v1/jobs/99/cancel", &json!({})).code(), "no-such-job");
    assert_eq!(daemon.post("/v1/jobs/x/cancel", &json!({})).code(), "bad-spec");
}

/// Returns the parts of a job's details that do not change with its state.
fn wanted(detail: &Value) -> Vec<Value> {
    let keys = [
        "argv",
        "directory",
        "roles",
        "estimate_ms",
        "after",
        "start_after_ms",
        "requeue",
        "preemptible",
        "stop",
        "deadline_ms",
    ];
    keys.iter().map(|key| detail[key].clone()).collect()
}

fn an_ended_job_still_says_all_that_it_asked_for() {
    let mut daemon = Daemon::start();
    let first = daemon.submit(json!({"command": "true"}));
    let spec = json!({"hold": true, "directory": "/usr", "estimate": "2h", "deadline": "9h", "requeue": "failure", "after": [first],
        "stop": {"signal": "INT", "grace": "3s"},
        "roles": [{"name": "lead", "gpus": "h100:1", "cpus": 0.5, "memory": "64Mi", "command": "pwd"},
            {"name": "hand", "tasks": 2, "cpus": 0.25, "command": "true"}]});
    let id = daemon.submit(spec);
    let array = daemon.submit(json!({"command": "true", "array": "0-1", "hold": true, "directory": "/usr"}));
    let jobs = [format!("/v1/jobs/{id}"), format!("/v1/jobs/{array}_1")];
    let open = jobs.clone().map(|path| wanted(&daemon.get(&path).json()));
    assert_eq!(
        (&open[0][1], &open[0][2][1]["tasks"], &open[0][6]),
        (&json!("/usr"), &json!(2), &json!("failure"))
    );
    for id in [&id, &array] {
        daemon.post(&format!("/v1/jobs/{id}/release"), &json!({}));
        assert_eq!(daemon.wait(id)["exit_code"], 0);
    }
    assert_eq!(jobs.clone().map(|path| wanted(&daemon.get(&path).json())), open);
    daemon.leave();
    let again = Daemon::on(&daemon.state).unwrap();
    assert_eq!(jobs.map(|path| wanted(&again.get(&path).json())), open, "after a restart, too");
}

fn the_last_lines_of_a_gang_name_the_task_that_wrote_them() {
    let daemon = Daemon::start();
    let command = "test $RANK = 0 || { echo rank $RANK; exit 3; }";
    let id = daemon.submit(json!({"command": command, "tasks": 2, "cpus": 0.5}));
    assert_eq!(daemon.wait(&id)["exit_code"], 3);
    let shown = daemon.get(&format!("/v1/jobs/{id}")).json();
    assert_eq!((&shown["last_lines"], &shown["last_lines_task"]), (&json!(["rank 1"]), &json!(1)));
    let silent = daemon.submit(json!({"command": "true"}));
    daemon.wait(&silent);
    let shown = daemon.get(&format!("/v1/jobs/{silent}")).json();
    assert_eq!((&shown["last_lines"], &shown["last_lines_task"]), (&json!([]), &Value::Null));
}

fn a_job_starts_after_another_even_one_long_gone() {
    let mut daemon = Daemon::start();
    let good = daemon.submit(json!({"command": "true"}));
    let bad = daemon.submit(json!({"command": "false"}));
    daemon.wait(&good);
    daemon.wait(&bad);
    daemon.leave();
    let again = Daemon::on(&daemon.state).unwrap();
    let after = again.submit(json!({"command": "true", "after": [good, format!("{bad}:fail")]}));
    assert_eq!(again.wait(&after)["exit_code"], 0);
    let hopeless = again.post("/v1/jobs", &submission(json!({"command": "true", "after": bad})));
    assert!(hopeless.code() == "bad-spec" && hopeless.json()["field"] == "after", "{hopeless:?}");
    assert_eq!(
        again.post("/v1/jobs", &submission(json!({"command": "true", "after": "77"}))).code(),
        "bad-spec"
    );
}

fn the_same_key_submits_once() {
    let daemon = Daemon::start();
    let body = submission(json!({"command": "true", "array": "0-2"})).to_string();
    let send =
        || ask(&daemon.socket(), "POST", "/v1/jobs", &[("idempotency-key", "k1")], body.as_bytes()).json();
    let (first, second) = (send(), send());
    assert_eq!((&first["id"], &second["id"], &second["members"]), (&json!("1"), &json!("1"), &json!(3)));
    daemon.wait("1");
    assert_eq!(send()["members"], 3);
    assert_eq!(daemon.get("/v1/jobs?all=true").json()["items"].as_array().unwrap().len(), 3);
}

fn a_dry_run_says_what_would_happen_and_logs_nothing() {
    let daemon = Daemon::start();
    let before = daemon.get("/v1/pool").json()["position"].clone();
    let run = |gpus: &str| {
        let mut body = submission(json!({"command": "true", "gpus": gpus}));
        body["dry_run"] = json!(true);
        daemon.post("/v1/jobs", &body).json()
    };
    let fits = run("2");
    assert_eq!((&fits["verdict"], &fits["placements"][0]["indices"]), (&json!("fit"), &json!([0, 1])));
    let never = run("a100:1");
    assert_eq!(
        (&never["verdict"], &never["blockers"][0]["code"]),
        (&json!("no_fit"), &json!("DV-NO-SUCH-MODEL"))
    );
    assert_eq!(daemon.get("/v1/pool").json()["position"], before);
    let limited = b"queues: {default: {limit: 1}}";
    ask(&daemon.socket(), "PUT", "/v1/queues", &[], limited);
    let before = daemon.get("/v1/pool").json()["position"].clone();
    let beyond = run("2");
    assert_eq!(
        (&beyond["verdict"], &beyond["blockers"][0]["code"], &beyond["placements"]),
        (&json!("no_fit"), &json!("DV-QUEUE-LIMIT"), &json!([]))
    );
    assert_eq!(daemon.get("/v1/pool").json()["position"], before);
}

fn output_is_read_by_byte_and_by_line_and_followed() {
    let daemon = Daemon::start();
    let held = daemon.submit(json!({"command": "true", "hold": true}));
    assert_eq!(daemon.get(&format!("/v1/jobs/{held}/output")).code(), "no-output");
    let id = daemon.submit(json!({"command": "seq 1 5; sleep 0.2; echo end"}));
    let followed = daemon.get(&format!("/v1/jobs/{id}/output?follow=true"));
    assert_eq!(followed.text(), "1\n2\n3\n4\n5\nend\n");
    let part = daemon.get(&format!("/v1/jobs/{id}/output?from=4"));
    assert!(part.text() == "3\n4\n5\nend\n" && part.head.contains("x-divvy-offset: 4"), "{part:?}");
    let last = daemon.get(&format!("/v1/jobs/{id}/output?lines=2"));
    assert!(last.text() == "5\nend\n" && last.head.contains("x-divvy-offset: 8"), "{last:?}");
    assert_eq!(daemon.get(&format!("/v1/jobs/{id}/output?task=7")).code(), "no-output");
}

fn events_resume_behind_the_last_one_seen() {
    let daemon = Daemon::start();
    let id = daemon.submit(json!({"command": "true", "name": "n"}));
    daemon.wait(&id);
    let completed = |event: &Value| event["job"] == "1" && event["state"] == "completed";
    let all = daemon.events_until(0, completed);
    let positions: Vec<u64> = all.iter().map(|event| event["position"].as_u64().unwrap()).collect();
    assert!(positions.windows(2).all(|pair| pair[0] < pair[1]) && positions.len() > 4, "{positions:?}");
    let middle = positions[positions.len() / 2];
    let rest: Vec<u64> = daemon
        .events_until(middle, completed)
        .iter()
        .map(|event| event["position"].as_u64().unwrap())
        .collect();
    assert_eq!(rest, positions[positions.len() / 2 + 1..]);
    let last = all.last().unwrap();
    assert_eq!((&last["name"], &last["user"], &last["kind"]), (&json!("n"), &json!("root"), &json!("job")));
}

fn no_secret_leaves_its_file() {
    let daemon = Daemon::start();
    let job = json!({"command": ["sh", "-c", "test $TOKEN = s3cret-value && test $MINE = s3cret-value"], "hold": true, "env": {"MINE": "s3cret-value"}});
    let id = daemon.submit(job);
    let kept = std::fs::read_to_string(daemon.state.join("environments/1.json")).unwrap();
    assert!(kept.contains("s3cret-value"));
    let looks = ["/v1/jobs", "/v1/jobs/1", "/v1/jobs/1/explain", "/v1/pool", "/v1/history?by=name"];
    for path in looks {
        // The command line is the user's own; they may see the value in it. It may appear nowhere else.
        let text =
            daemon.get(path).text().replace("test $TOKEN = s3cret-value && test $MINE = s3cret-value", "");
        assert!(!text.contains("s3cret-value"), "{path}: {text}");
    }
    let events = daemon.events_until(0, |event| event["job"] == "1");
    assert!(!format!("{events:?}").contains("s3cret-value"));
    daemon.post(&format!("/v1/jobs/{id}/release"), &json!({}));
    assert_eq!(daemon.wait(&id)["exit_code"], 0);
    assert!(!daemon.state.join("environments/1.json").exists(), "it goes with the job");
}

fn queues_are_set_by_file_and_the_difference_is_told() {
    let daemon = Daemon::start();
    let put = |query: &str, text: &str| {
        ask(&daemon.socket(), "PUT", &format!("/v1/queues{query}"), &[], text.as_bytes())
    };
    let text = "queues:\n  default: {}\n  vision: {limit: 1, submit: ['user:root']}\n";
    let dry = put("?dry_run=true", text).json();
    assert_eq!(
        (&dry["applied"], &dry["diff"]),
        (&json!(false), &json!(["+ vision limit any=1 submit user:root"]))
    );
    assert_eq!(put("", text).json()["applied"], true);
    assert_eq!(put("", text).json()["applied"], false);
    let rows = daemon.get("/v1/queues").json();
    assert_eq!(
        (&rows[1]["queue"], &rows[1]["limit"]["any"], &rows[1]["may_submit"]),
        (&json!("vision"), &json!("1"), &json!(true))
    );
    let without = put("?dry_run=true", "queues:\n  vision: {limit: 1, submit: ['user:root']}\n").json();
    assert!(without["notices"][0].as_str().unwrap().contains("no queue is called default"), "{without}");
    let bad = put("", "queues:\n  a: {limti: 3}\n");
    assert!(bad.code() == "bad-spec" && bad.json()["line"] == 2, "{bad:?}");
    assert_eq!(put("", "queues:\n  a: {submit: ['group:no-such-group']}\n").code(), "bad-spec");
    let unknown = daemon.post("/v1/jobs", &submission(json!({"command": "true", "queue": "nope"})));
    assert!(unknown.code() == "unknown-queue" && unknown.text().contains("vision"), "{unknown:?}");
}

fn history_adds_up_what_was_used() {
    let daemon = Daemon::start();
    for project in ["asr", "ocr"] {
        let id = daemon.submit(json!({"command": "sleep 0.1", "gpus": 1, "project": project}));
        daemon.wait(&id);
    }
    let rows = daemon.get("/v1/history?by=project,user").json();
    assert_eq!(
        (rows.as_array().unwrap().len(), &rows[0]["project"], &rows[0]["user"], &rows[0]["jobs"]),
        (2, &json!("asr"), &json!("root"), &json!(1))
    );
    assert!(rows[0]["gpu_hours"].as_f64().unwrap() >= 0.1 / 3600.0, "{rows}");
    assert_eq!(daemon.get("/v1/history?since=9999999999999").json()[0]["jobs"], 0);
    assert_eq!(daemon.get("/v1/history?by=colour").code(), "bad-spec");
}

fn every_listing_of_the_pool_answers() {
    let daemon = Daemon::start();
    let gpus = daemon.get("/v1/gpus").json();
    assert_eq!(
        (gpus.as_array().unwrap().len(), &gpus[0]["state"], &gpus[0]["source"]),
        (2, &json!("free"), &json!("pretend"))
    );
    let pool = daemon.get("/v1/pool").json();
    assert_eq!(
        (&pool["gpus"], &pool["accepts"], &pool["api"]["major"]),
        (&json!(2), &json!(true), &json!(1))
    );
    assert!(pool["warnings"].to_string().contains("pretended"));
    assert_eq!(daemon.get("/v1/pool/check").json()["violations"], json!([]));
    assert!(daemon.get("/v1/reasons").json().as_array().unwrap().len() > 10);
    let document = daemon.get("/v1/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    assert_eq!(daemon.get("/v1/nothing").code(), "no-such-path");
    let wrong = ask(&daemon.socket(), "DELETE", "/v1/jobs", &[], b"");
    assert!(wrong.status == 405 && wrong.code() == "bad-request", "{wrong:?}");
}
