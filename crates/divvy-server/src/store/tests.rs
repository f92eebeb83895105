//! The store under all that can happen to disks and files.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use divvy_core::event::{Event, Stamped};
use divvy_core::model::ask::{Alternative, Ask};
use divvy_core::model::gang::{Group, Role};
use divvy_core::model::job::{Cause, JobSpec, JobState, LastEnd, Owner, Process, Submission, Work};
use divvy_core::time::Time;
use proptest::prelude::*;

use super::small_disk::SmallDisk;
use super::*;

fn spec(name: &str) -> Arc<JobSpec> {
    let work =
        Work::Process(Process { argv: vec!["true".into()], directory: "/".into(), ..Process::default() });
    let ask = Ask::of(vec![Alternative { cpu_milli: Some(1000), ..Alternative::default() }]);
    let role = Role {
        name: "main".into(),
        minimum: 1,
        maximum: 1,
        ask,
        work,
        topology: None,
        spread: Default::default(),
    };
    let text = serde_json::json!({"name": name, "queue": "default", "gang": Group::Role(role)});
    Arc::new(serde_json::from_value(text).unwrap())
}

fn owner() -> Owner {
    Owner { name: "ana".into(), uid: 1000, gid: 1000, groups: vec![1000] }
}

fn submitted(number: u64) -> Event {
    let spec = spec(&format!("job-{number}"));
    Event::Submitted(Box::new(Submission {
        number,
        owner: owner().into(),
        spec,
        array: None,
        token: None,
        held: false,
    }))
}

fn began(term: u64) -> Event {
    Event::TermBegan { term: Term(term), boot_id: "b".into(), version: "0".into() }
}

/// Commits of one, two, three, … events: the first begins the term, the others submit jobs and let time pass.
fn commits(count: u64) -> Vec<Commit> {
    let (mut after, mut number) = (0, 0);
    let mut commits = Vec::new();
    for index in 0..count {
        let mut events = vec![if index == 0 { began(1) } else { Event::Tick }];
        for _ in 0..index {
            number += 1;
            events.push(submitted(number));
        }
        let events: Vec<_> =
            events.into_iter().map(|event| Stamped { at: Time(1000 + after as i64), event }).collect();
        let length = events.len() as u64;
        commits.push(Commit { term: Term(1), after: Position(after), events });
        after += length;
    }
    commits
}

fn filled(dir: &Path, count: u64) -> State {
    let (mut store, lost) = Store::open(dir).unwrap();
    assert_eq!(lost, None);
    for commit in commits(count) {
        store.append(&commit).unwrap();
    }
    store.fold().unwrap()
}

fn attempt(number: u64, state: JobState, started_at: i64, ended_at: i64) -> Attempt {
    let text = serde_json::json!({
        "job": number.to_string(), "attempt": 1, "name": "x", "user": if number.is_multiple_of(2) { "ana" } else { "ben" }, "uid": 1, "queue": "default",
        "project": null, "kind": "train", "labels": {}, "priority": 0, "command": ["true"], "submitted_at": 0, "started_at": started_at,
        "ended_at": ended_at, "time_limit_ms": null, "state": state, "exit_code": 0, "gpus": 1, "gpu_milli": 1000, "tasks": 1,
        "end": LastEnd { cause: Cause::Exit, by: None, signal: None, detail: None },
        "nodes": ["n"], "devices": ["GPU-1"], "held_milli_ms": (ended_at - started_at) * 1000, "ran_ms": ended_at - started_at,
        "cpu_ms": 10, "peak_memory_bytes": 5, "usage": [], "outputs": [], "isolation": null,
    });
    serde_json::from_value(text).unwrap()
}

fn tick(after: u64) -> Commit {
    Commit {
        term: Term(1),
        after: Position(after),
        events: vec![Stamped { at: Time(1), event: Event::Tick }],
    }
}

#[test]
fn what_was_appended_is_folded_again_after_any_number_of_openings() {
    let dir = tempfile::tempdir().unwrap();
    let state = filled(dir.path(), 6);
    assert_eq!(state.jobs.len(), 15);
    for _ in 0..2 {
        let (store, lost) = Store::open(dir.path()).unwrap();
        assert_eq!((lost, store.position(), store.term()), (None, state.position, Term(1)));
        assert_eq!(store.fold().unwrap(), state);
    }
}

#[test]
fn a_commit_that_does_not_follow_the_last_or_has_a_lower_term_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    store.append(&commits(1)[0]).unwrap();
    assert!(matches!(store.append(&tick(5)), Err(LogError::Overtaken(_))));
    assert!(matches!(store.append(&Commit { term: Term(0), ..tick(1) }), Err(LogError::Overtaken(_))));
    store.append(&tick(1)).unwrap();
}

/// Copies a state directory as a crash would leave it: including the write-ahead log.
fn crashed(from: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() && !entry.file_name().to_string_lossy().ends_with("-shm") {
            fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
    }
    dir
}

#[test]
fn a_torn_tail_is_recovered_and_said_with_its_positions() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    for commit in commits(5) {
        store.append(&commit).unwrap();
    }
    let torn = crashed(dir.path());
    let wal = torn.path().join("divvy.db-wal");
    let length = fs::metadata(&wal).unwrap().len();
    OpenOptions::new().write(true).open(&wal).unwrap().set_len(length - 100).unwrap();
    let (reopened, lost) = Store::open(torn.path()).unwrap();
    let Some(Lost::Tail { from, to }) = lost else { panic!("{lost:?}") };
    assert_eq!((from.0, to), (reopened.position().0 + 1, store.position()));
    assert!(reopened.position() < store.position());
    assert_eq!(reopened.fold().unwrap().position, reopened.position());
    drop(reopened);
    assert_eq!(Store::open(torn.path()).unwrap().1, None, "it is said once");
}

#[test]
fn a_log_put_there_from_elsewhere_is_noticed() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    filled(one.path(), 3);
    let (mut store, _) = Store::open(other.path()).unwrap();
    let mut first = commits(1).remove(0);
    first.events[0].at = Time(5);
    store.append(&first).unwrap();
    for after in 1..9 {
        store.append(&tick(after)).unwrap();
    }
    drop(store);
    fs::copy(other.path().join("divvy.db"), one.path().join("divvy.db")).unwrap();
    let (_, lost) = Store::open(one.path()).unwrap();
    assert_eq!(lost, Some(Lost::Exchanged(Position(6))));
}

#[test]
fn a_log_of_a_newer_program_is_refused_and_says_which() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 2);
    let db = Connection::open(dir.path().join("divvy.db")).unwrap();
    db.execute_batch("UPDATE meta SET value = '9.9.9' WHERE key = 'program'; UPDATE meta SET value = '2' WHERE key = 'format'").unwrap();
    let refused = Store::open(dir.path()).unwrap_err();
    assert!(
        matches!(refused, StoreError::Newer { .. }) && refused.to_string().contains("9.9.9"),
        "{refused}"
    );
}

#[test]
fn events_of_a_newer_version_are_refused_and_say_which() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 1);
    let db = Connection::open(dir.path().join("divvy.db")).unwrap();
    let covered = Covered {
        first: Position(2),
        last: Position(2),
        term: Term(1),
        version: 7,
        body: b"{\"at\":1,\"event\":\"moon\"}\n",
    };
    let before: i64 = db.query_row("SELECT checksum FROM log", [], |row| row.get(0)).unwrap();
    let link = Link::from_sql(before).next(&covered).to_sql();
    let sql = "INSERT INTO log (last, first, term, version, checksum, body) VALUES (2, 2, 1, 7, ?1, ?2)";
    db.execute(sql, params![link, std::str::from_utf8(covered.body).unwrap()]).unwrap();
    let refused = Store::open(dir.path()).unwrap_err();
    assert!(
        matches!(refused, StoreError::Newer { .. }) && refused.to_string().contains("version 7"),
        "{refused}"
    );
}

#[test]
fn damage_inside_names_file_place_and_remedy_and_the_doctor_repairs_it() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 5);
    let db = Connection::open(dir.path().join("divvy.db")).unwrap();
    db.execute("UPDATE log SET body = replace(body, 'job-2', 'job-9') WHERE last = 6", []).unwrap();
    drop(db);
    let refused = Store::open(dir.path()).unwrap_err().to_string();
    assert!(
        refused.contains("divvy.db is damaged after position 3") && refused.contains("divvy doctor --state"),
        "{refused}"
    );

    let report = doctor::check(dir.path()).unwrap();
    assert!(!report.is_good() && report.position == Position(3) && report.commits == 2, "{report:?}");
    let repair = doctor::repair(dir.path()).unwrap();
    assert_eq!(repair.position, Position(3));
    assert!(repair.copy.unwrap().exists());
    assert!(doctor::check(dir.path()).unwrap().is_good());
    let (store, lost) = Store::open(dir.path()).unwrap();
    assert_eq!(lost, Some(Lost::Tail { from: Position(4), to: Position(15) }));
    assert_eq!(store.fold().unwrap().jobs.len(), 1);
    assert!(doctor::repair(dir.path()).unwrap().damage.is_none(), "a good log is left as it is");
}

#[test]
fn a_repair_keeps_the_history_that_follows_from_what_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let all = commits(3);
    store.append_with(&all[0], &[attempt(1, JobState::Completed, 0, 10)]).unwrap();
    store.append_with(&all[1], &[attempt(2, JobState::Completed, 0, 10)]).unwrap();
    store.append_with(&all[2], &[attempt(3, JobState::Completed, 0, 10)]).unwrap();
    drop(store);
    let db = Connection::open(dir.path().join("divvy.db")).unwrap();
    db.execute("UPDATE log SET checksum = 1 WHERE last = 6", []).unwrap();
    drop(db);
    doctor::repair(dir.path()).unwrap();
    let kept = Reader::new(dir.path()).ended(&EndedJobs::default(), 10).unwrap();
    assert_eq!(kept.iter().map(|attempt| attempt.job.number).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn history_that_was_changed_is_found_and_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let all = commits(2);
    store.append_with(&all[0], &[attempt(1, JobState::Completed, 0, 10)]).unwrap();
    store.append_with(&all[1], &[attempt(2, JobState::Completed, 0, 10)]).unwrap();
    drop(store);
    for (change, left) in [("user = 'mallory'", vec![1, 2]), ("body = replace(body, '2', '3')", vec![1])] {
        let sql = format!("UPDATE attempts SET {change} WHERE number = 2");
        Connection::open(dir.path().join("divvy.db")).unwrap().execute_batch(&sql).unwrap();
        let report = doctor::check(dir.path()).unwrap();
        assert!(report.is_good() && !report.is_whole() && report.beside.len() == 1, "{report:?}");
        assert!(doctor::repair(dir.path()).unwrap().copy.unwrap().exists());
        assert!(doctor::check(dir.path()).unwrap().is_whole());
        let kept = Reader::new(dir.path()).ended(&EndedJobs::default(), 10).unwrap();
        assert_eq!(kept.iter().map(|attempt| attempt.job.number).collect::<Vec<_>>(), left);
    }
}

#[test]
fn what_was_submitted_is_kept_as_it_was_logged_and_survives_a_repair() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 5);
    let reader = Reader::new(dir.path());
    let Event::Submitted(logged) = submitted(10) else { panic!() };
    assert_eq!(reader.submission(10).unwrap(), Some(*logged));
    assert_eq!(reader.submission(11).unwrap(), None);
    reader.rest();
    let db = Connection::open(dir.path().join("divvy.db")).unwrap();
    db.execute("UPDATE submissions SET body = replace(body, 'job-1', 'job-7') WHERE number = 1", []).unwrap();
    assert!(Reader::new(dir.path()).submission(1).is_err(), "a row that was changed is not believed");
    let report = doctor::check(dir.path()).unwrap();
    assert!(report.is_good() && !report.is_whole() && report.beside.len() == 1, "{report:?}");
    db.execute("UPDATE log SET checksum = 1 WHERE last = 6", []).unwrap();
    drop(db);
    doctor::repair(dir.path()).unwrap();
    assert!(doctor::check(dir.path()).unwrap().is_whole());
    let repaired = Reader::new(dir.path());
    assert_eq!(repaired.submission(1).unwrap().map(|kept| kept.spec.name.clone()), Some("job-1".into()));
    assert_eq!(repaired.submission(2).unwrap(), None, "what was cut off was not submitted");
}

#[test]
fn a_database_from_before_submissions_were_kept_opens_and_knows_none() {
    let dir = tempfile::tempdir().unwrap();
    let state = filled(dir.path(), 3);
    let db = Connection::open(dir.path().join("divvy.db")).unwrap();
    db.execute_batch("DROP TABLE submissions").unwrap();
    drop(db);
    let report = doctor::check(dir.path()).unwrap();
    assert!(report.is_whole() && report.remarks.is_empty(), "{report:?}");
    let (mut store, lost) = Store::open(dir.path()).unwrap();
    assert_eq!((lost, store.fold().unwrap()), (None, state.clone()));
    let event = Stamped { at: Time(9), event: submitted(4) };
    store.append(&Commit { term: Term(1), after: state.position, events: vec![event] }).unwrap();
    let reader = Reader::new(dir.path());
    assert_eq!([3, 4].map(|number| reader.submission(number).unwrap().is_some()), [false, true]);
}

/// The files of a folder, each with its content.
fn contents(dir: &Path) -> std::collections::BTreeMap<std::ffi::OsString, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file());
    files.map(|path| (path.file_name().unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

#[test]
fn whoever_only_looks_changes_nothing_and_sees_all_that_was_committed() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    filled(dir.path(), 3);
    let seen = |dir: &Path| {
        let before = contents(dir);
        let at = doctor::each_commit(dir, |_| {}).unwrap();
        assert!(doctor::check(dir).unwrap().is_good());
        assert!(contents(dir).keys().eq(before.keys()), "of {:?}", before.keys());
        (at, contents(dir) == before)
    };
    assert_eq!(seen(dir.path()), (Position(6), true));
    // While a daemon runs, and where it was killed.
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let event = Stamped { at: Time(9), event: submitted(9) };
    store.append(&Commit { term: Term(1), after: Position(6), events: vec![event] }).unwrap();
    assert_eq!(seen(dir.path()).0, Position(7));
    for name in ["divvy.db", "divvy.db-wal"] {
        fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    assert_eq!(seen(copy.path()), (Position(7), true));
    fs::copy(dir.path().join("divvy.db-shm"), copy.path().join("divvy.db-shm")).unwrap();
    assert_eq!(seen(copy.path()).0, Position(7));
    drop(store);
    assert_eq!(seen(dir.path()), (Position(7), true));
}

#[test]
fn no_doctor_touches_a_log_that_a_daemon_uses() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 2);
    let _claim = place::claim(dir.path(), 0o700).unwrap();
    let refused = doctor::repair(dir.path()).unwrap_err();
    assert!(matches!(refused, StoreError::Place(place::PlaceError::Taken { .. })), "{refused}");
}

#[test]
fn a_snapshot_saves_the_fold_and_is_ignored_when_it_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let state = filled(dir.path(), 4);
    let (mut store, _) = Store::open(dir.path()).unwrap();
    store.snapshot(state.clone())().unwrap();
    store.append(&tick(10)).unwrap();
    let whole = store.fold().unwrap();
    assert_eq!(whole.position, Position(11));
    drop(store);
    let path = dir.path().join("snapshots").join(format!("{:020}", 10));
    let good = fs::read(&path).unwrap();
    for at in [0, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, bad).unwrap();
        assert_eq!(Store::open(dir.path()).unwrap().0.fold().unwrap(), whole);
    }
    // A log with other events: the same position, another chain.
    let other = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(other.path()).unwrap();
    store.append(&commits(1)[0]).unwrap();
    for after in 1..12 {
        store.append(&tick(after)).unwrap();
    }
    fs::create_dir(other.path().join("snapshots")).unwrap();
    fs::write(other.path().join("snapshots").join(format!("{:020}", 10)), &good).unwrap();
    assert!(store.fold().unwrap().jobs.is_empty());
}

#[test]
fn a_full_disk_refuses_commits_keeps_what_is_there_and_recovers() {
    let Some(disk) = SmallDisk::of_kib(512) else { return };
    let dir = disk.0.path();
    let ballast = dir.join("ballast");
    fs::write(&ballast, vec![1u8; 128 << 10]).unwrap();
    let (mut store, _) = Store::open(dir).unwrap();
    store.append(&commits(1)[0]).unwrap();
    let full = loop {
        let after = store.position().0;
        let mut commit = tick(after);
        commit.events.push(Stamped {
            at: Time(1),
            event: Event::QueuesSet { queues: vec![], by: "x".repeat(20_000), note: None },
        });
        if let Err(error) = store.append(&commit) {
            break error;
        }
    };
    assert!(matches!(full, LogError::Full(_)), "{full}");
    let position = store.position();
    assert_eq!(Reader::new(dir).position().unwrap(), position);
    fs::remove_file(&ballast).unwrap();
    store.append(&tick(position.0)).unwrap();
    drop(store);
    let (store, lost) = Store::open(dir).unwrap();
    assert_eq!((lost, store.position().0), (None, position.0 + 1));
}

fn by(keys: &[GroupBy]) -> Grouping {
    Grouping { by: keys.to_owned(), utc_offset_ms: 0 }
}

#[test]
fn a_job_that_was_run_again_counts_once_in_history_and_under_the_state_it_ended_in() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let hour = 3_600_000;
    let mut rows =
        vec![attempt(1, JobState::Pending, 0, hour), attempt(1, JobState::Completed, 25 * hour, 26 * hour)];
    rows[1].attempt = 2;
    rows.push(attempt(2, JobState::Pending, 0, 2 * hour));
    store.append_with(&commits(1)[0], &rows).unwrap();
    let reader = Reader::new(dir.path());
    let groups = |grouping: Grouping, since: i64| -> Vec<_> {
        let window = Window { since: Time(since), until: Time(i64::MAX) };
        let rows = reader.usage(window, &grouping).unwrap();
        rows.into_iter().map(|(keys, sums)| (keys.join(" "), sums.jobs, sums.attempts)).collect()
    };
    let row = |key: &str, jobs, attempts| (key.to_owned(), jobs, attempts);
    assert_eq!(groups(by(&[GroupBy::State]), 0), [row("completed", 1, 2), row("open", 1, 1)]);
    assert_eq!(groups(by(&[GroupBy::Day]), 0), [row("1970-01-01", 2, 2), row("1970-01-02", 0, 1)]);
    assert_eq!(groups(by(&[GroupBy::Day]), 3 * hour), [row("1970-01-02", 1, 1)]);
    let west = Grouping { utc_offset_ms: -2 * hour, ..by(&[GroupBy::Day, GroupBy::User]) };
    assert_eq!(groups(west, 3 * hour), [row("1970-01-01 ben", 1, 1)]);
}

#[test]
fn history_lists_ended_jobs_by_id_and_sums_what_lies_in_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let hour = 3_600_000;
    let rows: Vec<_> = (1..=6).map(|number| attempt(number, JobState::Completed, 0, hour)).collect();
    store.append_with(&commits(1)[0], &rows).unwrap();
    let reader = Reader::new(dir.path());
    let page = reader
        .ended(
            &EndedJobs { after: Some(JobId::single(2)), user: Some("ana".into()), ..EndedJobs::default() },
            1,
        )
        .unwrap();
    assert_eq!(page.iter().map(|attempt| attempt.job.number).collect::<Vec<_>>(), [4]);
    let half = Window { since: Time(hour / 2), until: Time(i64::MAX) };
    let sums = reader.usage(half, &by(&[GroupBy::User])).unwrap();
    let hours: Vec<_> =
        sums.iter().map(|(key, sums)| (key[0].as_str(), sums.jobs, sums.held_milli_ms / 3.6e9)).collect();
    assert_eq!(hours, [("ana", 3, 1.5), ("ben", 3, 1.5)]);
    assert_eq!(reader.usage(half, &by(&[])).unwrap()[0].1.jobs, 6);
    for key in GroupBy::ALL {
        let sums = reader.usage(half, &by(&[key])).unwrap();
        assert_eq!(sums.iter().map(|(_, sums)| sums.jobs).sum::<u64>(), 6, "{key:?}");
    }
    assert!(reader.knows(3).unwrap() && !reader.knows(7).unwrap());
    assert_eq!(reader.summary(3).unwrap(), (1, None));
}

use divvy_core::id::JobId;

#[test]
fn the_lengths_of_the_jobs_that_ended_last_are_read_with_what_they_have_in_common() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 6);
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let ended = |number: u64, length: i64| attempt(number, JobState::Completed, 100, 100 + length);
    let attempts = [ended(1, 10), ended(2, 30), ended(3, 20), attempt(4, JobState::Pending, 100, 200)];
    store.append_with(&tick(store.position().0), &attempts).unwrap();
    let lengths = Reader::new(dir.path()).lengths(2).unwrap();
    let of: Vec<_> = lengths.iter().map(|(job, ms)| (job.user.as_str(), job.devices, *ms)).collect();
    assert_eq!(of, [("ben", 1, 20), ("ana", 1, 30)], "the last two, oldest first");
    assert_eq!((lengths[0].0.queue.as_str(), lengths[0].0.name.as_str()), ("default", "x"));
}

#[test]
fn what_earlier_attempts_did_for_good_counts_in_the_length_of_a_job() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 6);
    let (mut store, _) = Store::open(dir.path()).unwrap();
    let first = Attempt { lost_milli_ms: 30_000, ..attempt(1, JobState::Pending, 0, 100) };
    let second = Attempt { attempt: 2, lost_milli_ms: 50_000, ..attempt(1, JobState::Pending, 200, 250) };
    let last = Attempt { attempt: 3, ..attempt(1, JobState::Completed, 300, 307) };
    store.append_with(&tick(store.position().0), &[first, second, last]).unwrap();
    let reader = Reader::new(dir.path());
    let (_, length_ms) = reader.length_of(JobId::single(1)).unwrap().unwrap();
    assert_eq!(length_ms, 70 + 7, "of the second nothing was saved");
    assert_eq!(reader.lengths(5).unwrap()[0].1, length_ms);
    assert_eq!(reader.length_of(JobId::single(2)).unwrap(), None);
}

#[test]
fn events_are_read_from_any_position_on() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 4);
    let reader = Reader::new(dir.path());
    let all = reader.events_after(Position(0), 1000).unwrap();
    assert_eq!(all.iter().map(|(position, _)| position.0).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    for after in 0..=10 {
        let tail = reader.events_after(Position(after), 1000).unwrap();
        assert_eq!(tail, all[after as usize..]);
    }
    let piece = reader.events_after(Position(0), 2).unwrap();
    assert_eq!(piece, all[..piece.len()]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_flipped_bit_is_detected_or_does_no_harm(at in any::<prop::sample::Index>(), bit in 0u8..8, in_wal: bool) {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(dir.path()).unwrap();
        for commit in commits(4) {
            store.append(&commit).unwrap();
        }
        let whole = Reader::new(dir.path()).events_after(Position(0), 1000).unwrap();
        let copy = if in_wal {
            crashed(dir.path())
        } else {
            drop(store);
            crashed(dir.path())
        };
        let path = copy.path().join(if in_wal { "divvy.db-wal" } else { "divvy.db" });
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let at = at.index(usize::try_from(file.metadata().unwrap().len()).unwrap()) as u64;
        let mut byte = [0u8];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
        // A refusal is fine. If opened, the log is a prefix of what was written, and a loss was reported.
        if let Ok((store, lost)) = Store::open(copy.path()) {
            let there = Reader::new(copy.path()).events_after(Position(0), 1000).unwrap();
            prop_assert_eq!(&there[..], &whole[..there.len()]);
            prop_assert_eq!(lost.is_some(), there.len() < whole.len());
            prop_assert_eq!(store.fold().unwrap().position.0, there.len() as u64);
        }
    }
}

/// Builds a log as an earlier program wrote it: a line of JSON per commit, `testdata/log-v*.jsonl`.
fn golden(dir: &Path, text: &str) {
    drop(Store::open(dir).unwrap());
    let db = Connection::open(dir.join("divvy.db")).unwrap();
    for line in text.lines() {
        let commit: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| commit[key].as_i64().unwrap();
        let sql =
            "INSERT INTO log (last, first, term, version, checksum, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let row = params![
            number("last"),
            number("first"),
            number("term"),
            number("version"),
            number("checksum"),
            commit["body"].as_str().unwrap()
        ];
        db.execute(sql, row).unwrap();
    }
}

/// The log of version 1 is that of a pool of three pretended devices: short jobs, an array, a gang, a time limit, a dependency,
/// queues, a restart, and a last daemon that was told to stop everything.
#[test]
fn a_log_of_version_1_folds_to_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    golden(dir.path(), include_str!("../../testdata/log-v1.jsonl"));
    let (store, lost) = Store::open(dir.path()).unwrap();
    assert_eq!(lost, None);
    let state = store.fold().unwrap();
    let open: Vec<_> = state
        .jobs
        .values()
        .map(|job| (job.number, job.spec.name.as_str(), job.open_members().count()))
        .collect();
    assert_eq!(open, [(13, "left", 9)]);
    assert_eq!((state.term, state.next_job, state.draining, state.allocations.len()), (Term(2), 14, true, 0));
    assert_eq!(state.queues.keys().collect::<Vec<_>>(), ["default", "vision"]);
    let outcomes: String = (1..=12)
        .map(
            |number| {
                if state.outcomes.of(number) == Some(divvy_core::state::Outcome::Ok) { '+' } else { '-' }
            },
        )
        .collect();
    assert_eq!(outcomes, "+--++-++--+-");
    assert_eq!(divvy_core::check::check(&state), []);
    assert_eq!(state.entities(), state.entities_anew(), "the digest kept is that of the content");
}
