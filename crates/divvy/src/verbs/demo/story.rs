//! What was seen of the demo's jobs: news as it happens, and at the end which job ran where and why it waited.

use std::collections::BTreeMap;
use std::time::Duration;

use divvy_api::{Check, Gpu, Job, JobState};

use crate::output::{Column, Listing, Look, Tone, count, gpus, plain, render, span};

/// The jobs as last seen, and what they waited for.
pub(super) struct Story {
    indices: BTreeMap<String, u32>,
    jobs: Vec<Job>,
    waited_for: BTreeMap<String, Vec<String>>,
}

impl Story {
    pub(super) fn new(gpus: &[Gpu]) -> Self {
        let indices = gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.index)).collect();
        Self { indices, jobs: Vec::new(), waited_for: BTreeMap::new() }
    }

    /// Takes the current jobs, and returns what is new about them.
    pub(super) fn take(&mut self, jobs: Vec<Job>, at: Duration) -> Vec<String> {
        let mut news: Vec<(String, String)> = Vec::new();
        for job in &jobs {
            let before = self.jobs.iter().find(|before| before.id == job.id);
            if before.map(|before| (&before.state, &before.reason)) != Some((&job.state, &job.reason)) {
                let gave_way = before.is_some_and(|before| before.attempt < job.attempt);
                gather(&mut news, job, if gave_way { self.gave_way(job) } else { self.line(job) });
            }
            if let (true, Some(reason)) = (job.state.is_waiting(), &job.reason) {
                let seen = self.waited_for.entry(job.id.clone()).or_default();
                if !seen.contains(&reason.code) {
                    seen.push(reason.code.clone());
                }
            }
        }
        self.jobs = jobs;
        news.into_iter().map(|(ids, line)| format!("{:>5.1}s  {ids:<7} {line}", at.as_secs_f32())).collect()
    }

    fn line(&self, job: &Job) -> Option<String> {
        let who = format!("{:<11} {:<7}", plain(&job.name), plain(&job.queue));
        match (&job.state, &job.reason) {
            (JobState::Pending | JobState::Held, Some(reason)) => {
                Some(format!("{who} waits     {}: {}", plain(&reason.code), plain(&reason.text)))
            }
            (JobState::Running, _) => Some(format!("{who} runs      on {}", self.place(job))),
            (state, _) if state.is_ended() => Some(format!("{who} {}", plain(state.as_str()))),
            _ => None,
        }
    }

    /// The line for a job that was stopped for another job and waits again (or has devices again by now).
    fn gave_way(&self, job: &Job) -> Option<String> {
        let by = job.last_end.as_ref().and_then(|end| end.by.as_ref());
        let Some(by) = by else { return self.line(job) };
        let now = match job.state {
            JobState::Running => format!(", runs on {}", self.place(job)),
            _ => String::new(),
        };
        let who = format!("{:<11} {:<7}", plain(&job.name), plain(&job.queue));
        Some(format!("{who} gave way  to {}{now}", plain(by)))
    }

    /// `GPU 0, 3` or `cores`
    fn place(&self, job: &Job) -> String {
        let mut indices: Vec<u32> =
            job.devices.iter().filter_map(|uuid| self.indices.get(uuid).copied()).collect();
        indices.sort_unstable();
        match indices.as_slice() {
            [] => "cores".into(),
            indices => format!("GPU {}", indices.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
        }
    }

    /// Whether every job that was submitted has ended.
    pub(super) fn is_over(&self) -> bool {
        !self.jobs.is_empty() && self.jobs.iter().all(|job| job.state.is_ended())
    }

    /// Whether every job did what it should.
    pub(super) fn all_completed(&self) -> bool {
        self.jobs.iter().all(|job| job.state == JobState::Completed)
    }

    /// The jobs that have not ended, for a report of what is stuck.
    pub(super) fn unfinished(&self) -> String {
        let open = self.jobs.iter().filter(|job| !job.state.is_ended());
        open.map(|job| format!("{} {} is {}", job.id, job.name, job.state)).collect::<Vec<_>>().join("; ")
    }

    /// Which job ran where, and why it waited.
    pub(super) fn rows(&self) -> Vec<Role> {
        let role = |job: &Job| Role {
            place: if job.started_ms.is_some() { self.place(job) } else { String::new() },
            waited_for: self.waited_for.get(&job.id).map(|codes| codes.join(", ")).unwrap_or_default(),
            job: job.clone(),
        };
        self.jobs.iter().map(role).collect()
    }

    /// The closing text: the table, and whether every law held.
    pub(super) fn ending(&self, check: &Check, colour: bool) -> String {
        let look = Look { colour, ..Look::default() };
        let mut text = format!("\nWho ran where, who waited why:\n{}\n", render(&self.rows(), &look));
        for violation in &check.violations {
            text += &format!("VIOLATED {}: {}\n", plain(&violation.law), plain(&violation.text));
        }
        let bad = self.jobs.iter().filter(|job| job.state != JobState::Completed).count();
        if bad > 0 {
            text += &format!("{bad} of {} did not complete\n", count(self.jobs.len(), "job"));
        }
        let held = if check.violations.is_empty() { "every law held" } else { "NOT every law held" };
        text + &format!(
            "{}, {}, {}: {held} (no GPU promised twice, no gang half started, …).\n",
            count(self.jobs.len(), "job"),
            count(check.events, "event"),
            count(check.cycles, "planning cycle")
        )
    }
}

/// Merges array members with the same news into one line: `10_2..5`.
fn gather(news: &mut Vec<(String, String)>, job: &Job, line: Option<String>) {
    let Some(line) = line else { return };
    let id = plain(&job.id).into_owned();
    match (news.last_mut(), id.split_once('_')) {
        (Some((ids, last)), Some((array, member)))
            if *last == line && ids.starts_with(&format!("{array}_")) =>
        {
            let first = ids.split("..").next().unwrap_or_default().to_owned();
            *ids = format!("{first}..{member}");
        }
        _ => news.push((id, line)),
    }
}

/// A job in the demo's table.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Role {
    job: Job,
    place: String,
    waited_for: String,
}

impl Listing for Role {
    const PATHS: &'static [&'static str] = &[];
    const EMPTY: &'static str = "nothing yet";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("JOB", |role, _| role.job.id.clone()),
            Column::<Self>::new("NAME", |role, _| role.job.name.clone()),
            Column::<Self>::new("TEAM", |role, _| role.job.queue.clone()),
            Column::<Self>::new("GPUS", |role, _| gpus(role.job.gpu_milli)).right(),
            Column::<Self>::new("STATE", |role, _| role.job.state.to_string())
                .tone(|role| Tone::of_job(&role.job.state)),
            Column::<Self>::new("WAITED", |role, look| waited(&role.job, look)).right(),
            Column::<Self>::new("RAN", |role, look| ran(&role.job, look)).right(),
            Column::<Self>::new("WHERE", |role, _| role.place.clone()),
            Column::<Self>::new("WAITED FOR", |role, _| role.waited_for.clone()),
        ]
    }
}

fn waited(job: &Job, look: &Look) -> String {
    let until = job.started_ms.or(job.ended_ms).unwrap_or(look.now_ms);
    span(until - job.submitted_ms)
}

fn ran(job: &Job, look: &Look) -> String {
    match (job.started_ms, job.ended_ms) {
        (Some(started), ended) if !job.state.is_waiting() => span(ended.unwrap_or(look.now_ms) - started),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_api::{GpuState, Violation};
    use expect_test::expect;
    use serde_json::json;

    fn job(id: &str, state: &str, reason: serde_json::Value) -> Job {
        let started = if state == "pending" { json!(null) } else { json!(500) };
        let ended = if state == "completed" { json!(2500) } else { json!(null) };
        serde_json::from_value(json!({
            "id": id, "name": "gang", "user": "ana", "queue": "speech", "priority": 0, "state": state, "gpus": 2,
            "gpu_milli": 2000, "tasks": 2, "attempt": 1, "submitted_ms": 0, "started_ms": started, "ended_ms": ended,
            "devices": if state == "pending" { json!([]) } else { json!(["GPU-b", "GPU-a"]) }, "reason": reason,
        }))
        .unwrap()
    }

    #[test]
    fn a_job_that_was_stopped_for_another_says_for_which() {
        let mut story = Story::new(&[]);
        let _ = story.take(vec![job("7", "running", json!(null))], Duration::ZERO);
        let mut again = job("7", "pending", json!({"code": "DV-GPUS-BUSY", "text": "busy"}));
        again.attempt = 2;
        again.last_end = serde_json::from_value(json!({"cause": "preempted", "by": "13"})).unwrap();
        let news = story.take(vec![again], Duration::ZERO);
        assert!(news[0].contains("gave way  to 13"), "{news:?}");
    }

    fn gpu(index: u32, uuid: &str) -> Gpu {
        serde_json::from_value(
            json!({"node": "n", "index": index, "uuid": uuid, "model": "h100", "memory_mib": 1,
            "state": GpuState::Free, "free_milli": 1000, "allocations": [], "source": "pretend"}),
        )
        .unwrap()
    }

    #[test]
    fn members_of_an_array_share_a_line_where_the_same_is_said_of_them() {
        let mut story = Story::new(&[]);
        let jobs = ["8", "10_0", "10_1", "10_2"].map(|id| job(id, "completed", json!(null)));
        let news = story.take(jobs.to_vec(), Duration::ZERO);
        assert_eq!(news.len(), 2, "{news:?}");
        assert!(news[1].contains("10_0..2"), "{news:?}");
    }

    #[test]
    fn news_are_told_once_and_the_ending_says_who_waited_why() {
        let mut story = Story::new(&[gpu(0, "GPU-a"), gpu(3, "GPU-b")]);
        let busy = json!({"code": "DV-DEVICES-BUSY", "text": "1 of 2 is free"});
        let at = |ms| Duration::from_millis(ms);
        let mut news = story.take(vec![job("7", "pending", busy.clone())], at(100));
        news.extend(story.take(vec![job("7", "pending", busy)], at(200)));
        news.extend(story.take(vec![job("7", "running", json!(null))], at(600)));
        assert!(!story.is_over());
        news.extend(story.take(vec![job("7", "completed", json!(null))], at(2600)));
        assert!(story.is_over() && story.all_completed());
        expect![[r#"
            |  0.1s  7       gang        speech  waits     DV-DEVICES-BUSY: 1 of 2 is free
            |  0.6s  7       gang        speech  runs      on GPU 0, 3
            |  2.6s  7       gang        speech  completed
        "#]]
        .assert_eq(&news.iter().map(|line| format!("|{line}\n")).collect::<String>());
        expect![[r#"

            Who ran where, who waited why:
            JOB  NAME  TEAM    GPUS  STATE      WAITED   RAN  WHERE     WAITED FOR
            7    gang  speech     2  completed    0.5s  2.0s  GPU 0, 3  DV-DEVICES-BUSY

            1 job, 40 events, 9 planning cycles: every law held (no GPU promised twice, no gang half started, …).
        "#]].assert_eq(&story.ending(&Check { violations: vec![], events: 40, cycles: 9 }, false));
        let violated = Check {
            violations: vec![Violation { law: "L7".into(), text: "x".into() }],
            events: 1,
            cycles: 1,
        };
        assert!(story.ending(&violated, false).contains("VIOLATED L7: x"));
    }
}
