//! What was asked of the daemon, what it promised, and whether what it says now agrees with that.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::journal::Journal;

/// What was submitted.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    /// The job's name and the request's idempotency key.
    pub(super) token: String,
    pub(super) body: String,
    /// How many jobs come of it: an array's members.
    pub(super) members: usize,
    pub(super) tasks: u32,
    pub(super) exit: i32,
    /// Whether it runs until it is cancelled.
    pub(super) endless: bool,
    /// Whether it goes back into the queue when an attempt is lost.
    pub(super) returns: bool,
    /// The id, once the daemon has answered.
    pub(super) id: Option<String>,
    pub(super) cancel: Cancel,
}

/// How far a request to cancel got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancel {
    None,
    /// Sent; no answer came.
    Asked,
    Answered,
}

/// Everything that was asked and answered in a life.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) submissions: Vec<Submission>,
    /// Answers that no request should get.
    pub(super) refusals: Vec<String>,
    /// Jobs that lost a supervisor to a kill.
    pub(super) bereft: BTreeSet<String>,
    /// Jobs that were seen ended: their states and exit codes, which never change again.
    ended: BTreeMap<String, (String, Option<i64>)>,
    position: u64,
    /// What was left of the budget when it was last looked at, in GPU-hours.
    budget_left: Option<f64>,
}

/// A row of the daemon's list.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) state: String,
    pub(super) attempt: u32,
    pub(super) exit_code: Option<i64>,
}

/// A device, as the daemon lists it.
#[derive(Debug, Deserialize)]
pub(super) struct Gpu {
    uuid: String,
    allocations: Vec<Holding>,
}

/// What a job holds of a device.
#[derive(Debug, Deserialize)]
struct Holding {
    job: String,
    milli: u64,
}

const ENDED: [&str; 5] = ["completed", "failed", "cancelled", "timeout", "lost"];

impl Row {
    pub(super) fn is_ended(&self) -> bool {
        ENDED.contains(&self.state.as_str())
    }

    fn number(&self) -> &str {
        self.id.split('_').next().unwrap_or_default()
    }
}

impl Book {
    /// Checks that what was used of a budget stays used.
    pub(super) fn spend(&mut self, left: Option<f64>) -> Option<String> {
        let Some(left) = left else { return Some("the budget is gone".to_owned()) };
        let before = self.budget_left.replace(left);
        let grew = before.filter(|before| left > *before);
        grew.map(|before| format!("{before} GPU-hours were left of the budget, and now {left}"))
    }

    /// Compares what the daemon says after a restart with all it said before.
    pub(super) fn compare(&mut self, position: u64, rows: &[Row]) -> Vec<String> {
        let mut findings = std::mem::take(&mut self.refusals);
        if position < self.position {
            findings.push(format!("the log went back from position {} to {position}", self.position));
        }
        self.position = position;
        findings.extend(self.members(rows));
        for row in rows {
            let now = (row.state.clone(), row.exit_code);
            match self.ended.get(&row.id) {
                Some(before) if *before != now => {
                    findings.push(format!("job {} had ended as {before:?} and is {now:?} now", row.id));
                }
                None if row.is_ended() => drop(self.ended.insert(row.id.clone(), now)),
                _ => {}
            }
        }
        findings
    }

    /// Checks that each answered submission is there, once and whole, and each other one whole or not at all.
    fn members(&self, rows: &[Row]) -> Vec<String> {
        let mut by_name: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            by_name.entry(&row.name).or_default().push(row);
        }
        let mut findings = Vec::new();
        for submission in &self.submissions {
            let Submission { token, members, id, cancel, .. } = submission;
            let found = by_name.remove(token.as_str()).unwrap_or_default();
            let numbers: BTreeSet<&str> = found.iter().map(|row| row.number()).collect();
            match id {
                Some(id) if numbers != BTreeSet::from([id.as_str()]) => {
                    findings
                        .push(format!("submission {token} was answered with job {id} and is {numbers:?}"));
                }
                None if numbers.len() > 1 => {
                    findings.push(format!("submission {token} is there as jobs {numbers:?}"))
                }
                _ if !found.is_empty() && found.len() != *members => {
                    findings.push(format!("submission {token} has {} of its {members} members", found.len()));
                }
                _ => {}
            }
            if *cancel == Cancel::Answered {
                let alive = found.iter().filter(|row| !row.is_ended() && row.state != "stopping");
                findings
                    .extend(alive.map(|row| format!("job {} was cancelled and is {}", row.id, row.state)));
            }
        }
        findings.extend(by_name.keys().map(|name| format!("nobody submitted {name}")));
        findings
    }

    /// Compares how everything ended with how it had to end.
    pub(super) fn settle(&self, rows: &[Row], journal: &Journal) -> Vec<String> {
        let by_name: BTreeMap<&str, &Submission> =
            self.submissions.iter().map(|submission| (submission.token.as_str(), submission)).collect();
        let submitted = rows.iter().filter_map(|row| Some((row, *by_name.get(row.name.as_str())?)));
        let wrong = |(row, submission): (&Row, &Submission)| {
            wrong_end(row, submission, self.bereft.contains(&row.id), journal)
        };
        submitted.flat_map(wrong).collect()
    }
}

/// Devices of which more is held than there is, by what the daemon says.
pub(super) fn held_twice(gpus: &[Gpu]) -> Vec<String> {
    let twice = gpus.iter().filter(|gpu| gpu.allocations.iter().map(|held| held.milli).sum::<u64>() > 1000);
    twice
        .map(|gpu| {
            let jobs: Vec<&str> = gpu.allocations.iter().map(|held| held.job.as_str()).collect();
            format!("{} is held by jobs {}", gpu.uuid, jobs.join(" and "))
        })
        .collect()
}

/// What is wrong with how a job ended. If only daemons were killed, no attempt is lost.
fn wrong_end(row: &Row, submission: &Submission, is_bereft: bool, journal: &Journal) -> Vec<String> {
    let Row { id, state, attempt, exit_code, .. } = row;
    let was_cancelled = submission.cancel != Cancel::None && state == "cancelled";
    if was_cancelled || (is_bereft && !submission.returns && state == "lost") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let expected = if submission.exit == 0 { "completed" } else { "failed" };
    if state != expected || *exit_code != Some(submission.exit.into()) {
        let exit = submission.exit;
        findings
            .push(format!("job {id} is {state} with exit code {exit_code:?}, not {expected} with {exit}"));
    }
    if *attempt != 1 && !(is_bereft && submission.returns) {
        findings.push(format!("job {id} took {attempt} attempts"));
    }
    // The first task of a gang to fail ends the others.
    let may_break = submission.tasks > 1 && submission.exit != 0;
    for rank in (0..submission.tasks).filter(|_| !may_break) {
        let run = (id.clone(), *attempt, rank);
        let (started, ended) = (journal.starts.contains_key(&run), journal.ends.contains_key(&run));
        if !(started && ended) {
            findings
                .push(format!("job {id}, task {rank}: started {started}, ended {ended} by its own account"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission(token: &str, id: Option<&str>) -> Submission {
        Submission {
            token: token.into(),
            body: String::new(),
            members: 1,
            tasks: 1,
            exit: 3,
            endless: false,
            returns: false,
            id: id.map(str::to_owned),
            cancel: Cancel::None,
        }
    }

    fn row(id: &str, name: &str, state: &str, exit_code: Option<i64>) -> Row {
        Row { id: id.into(), name: name.into(), state: state.into(), attempt: 1, exit_code }
    }

    #[test]
    fn what_was_promised_and_is_gone_doubled_or_changed_is_found() {
        let mut book =
            Book { submissions: vec![submission("a", Some("1")), submission("b", None)], ..Book::default() };
        assert_eq!(book.compare(5, &[row("1", "a", "failed", Some(3))]), [""; 0]);
        assert_eq!(
            book.compare(6, &[row("1", "a", "failed", Some(3)), row("2", "b", "running", None)]),
            [""; 0]
        );
        let later =
            [row("1", "a", "completed", Some(0)), row("2", "b", "held", None), row("3", "b", "held", None)];
        let findings = book.compare(4, &later);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(book.compare(4, &[])[0].contains("was answered with job 1"));
    }

    #[test]
    fn a_device_of_two_jobs_is_found() {
        let gpu = |jobs: &[&str]| Gpu {
            uuid: "GPU-1".into(),
            allocations: jobs.iter().map(|job| Holding { job: (*job).into(), milli: 1000 }).collect(),
        };
        assert_eq!(held_twice(&[gpu(&["1"]), gpu(&[])]), [""; 0]);
        assert_eq!(held_twice(&[gpu(&["1", "2_3"])]), ["GPU-1 is held by jobs 1 and 2_3"]);
    }

    #[test]
    fn an_end_has_to_be_the_one_that_was_to_come() {
        let run = ("1".to_owned(), 1, 0);
        let journal = Journal { starts: [(run.clone(), 1)].into(), ends: [(run, 1)].into(), twice: vec![] };
        let wrong = |state, code, cancel, is_bereft, journal: &Journal| {
            let submission = Submission { cancel, ..submission("a", None) };
            wrong_end(&row("1", "a", state, code), &submission, is_bereft, journal).len()
        };
        assert_eq!(wrong("failed", Some(3), Cancel::None, false, &journal), 0);
        assert_eq!(wrong("failed", Some(3), Cancel::None, false, &Journal::default()), 1);
        assert_eq!(wrong("lost", Some(137), Cancel::None, false, &journal), 1);
        assert_eq!(wrong("lost", Some(137), Cancel::None, true, &journal), 0);
        assert_eq!(wrong("cancelled", Some(143), Cancel::None, false, &journal), 1);
        assert_eq!(wrong("cancelled", Some(143), Cancel::Asked, false, &Journal::default()), 0);
    }
}
