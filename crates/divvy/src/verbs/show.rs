//! `divvy show`: all there is to say about a job, and why it ended.

use divvy_api::{Attempt, Cause, Isolation, JobDetail, JobState, LastEnd, Task, paths};
use serde_json::value::RawValue;

use super::explain::OneObject;
use super::ps::priority;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{bytes, cores, gpus, local, mib, now_ms, plain, span, told};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy show 12             what job 12 is, where it ran, why it ended
  divvy show 12_3 -o json   for programs";

/// Show a job: what it is, where it ran, why it ended
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Show {
    /// The job
    #[arg(value_parser = super::job)]
    job: String,
    #[command(flatten)]
    format: OneObject,
}

impl Show {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let path = paths::job(&self.job);
        let object: Box<RawValue> =
            pool::with_client(place, async |mut client| Ok(client.get(&path).await?))?;
        self.format.print(&object, |shown| Sheet::of(shown, now_ms()).text)
    }
}

/// A job as the daemon shows it.
#[derive(Debug, serde::Deserialize)]
struct Shown {
    #[serde(flatten)]
    detail: JobDetail,
    /// The task that wrote the last lines.
    #[serde(default)]
    last_lines_task: Option<u32>,
}

/// Lines of a label and a text.
struct Sheet {
    text: String,
}

impl Sheet {
    fn of(shown: &Shown, now_ms: i64) -> Self {
        let detail = &shown.detail;
        let mut sheet = Self { text: String::new() };
        sheet.what(detail);
        sheet.asks(detail);
        sheet.times(detail, now_ms);
        sheet.place(detail);
        sheet.end(detail);
        sheet.last_lines(detail, shown.last_lines_task);
        sheet.attempts(&detail.attempts);
        sheet
    }

    fn line(&mut self, label: &str, text: impl AsRef<str>) {
        self.text += &format!("{label:<10} {}\n", plain(&told(text.as_ref())));
    }

    fn what(&mut self, detail: &JobDetail) {
        let job = &detail.job;
        self.line("job", format!("{} {}", job.id, job.name));
        let why = job.reason.as_ref().filter(|_| !job.state.is_ended());
        let why = why.map(|reason| format!(" ({}: {})", reason.code, reason.text)).unwrap_or_default();
        let position = job.position.map(|position| format!(", place {position} in line")).unwrap_or_default();
        self.line("state", format!("{}{why}{position}", job.state));
        let project = job.project.as_ref().map(|project| format!(", project {project}")).unwrap_or_default();
        self.line(
            "who",
            format!("{}, queue {}{project}, priority {}", job.user, job.queue, priority(job.priority)),
        );
        if !job.labels.is_empty() {
            let labels = job.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
            self.line("labels", labels.join(" "));
        }
        if let Some(command) = &job.command {
            self.line("command", command);
        }
        if let Some(directory) = &detail.directory {
            self.line("in", directory);
        }
        if !detail.after.is_empty() {
            self.line("after", detail.after.join(" "));
        }
    }

    fn asks(&mut self, detail: &JobDetail) {
        for role in &detail.roles {
            let mut parts = Vec::new();
            if role.max_tasks > role.tasks {
                parts.push(format!("{} to {} × {}", role.tasks, role.max_tasks, role.name));
            } else if role.tasks > 1 || detail.roles.len() > 1 {
                parts.push(format!("{} × {}", role.tasks, role.name));
            }
            let ways = role.ways.iter().map(|way| format!("{} × {}", way.gpus, way.devices));
            parts.push(match role.gpus {
                _ if !role.ways.is_empty() => ways.collect::<Vec<_>>().join(" or "),
                0 => "no GPU".into(),
                count => {
                    format!("{count} × {}", if role.devices.is_empty() { "any GPU" } else { &role.devices })
                }
            });
            parts.extend(role.cpu_milli.map(counted));
            parts.extend(role.memory_bytes.map(bytes));
            parts.extend(detail.exclusive.then(|| "a whole node for each task".to_owned()));
            self.line("asks", parts.join(", "));
        }
        if detail.roles.is_empty() {
            let s = if detail.job.gpu_milli == 1000 { "" } else { "s" };
            self.line("asks", format!("{} GPU{s}", gpus(detail.job.gpu_milli)));
        }
    }

    fn times(&mut self, detail: &JobDetail, now_ms: i64) {
        let job = &detail.job;
        self.line("submitted", local(job.submitted_ms));
        if let Some(started) = job.started_ms {
            // If the job has run before, not all of that time was spent waiting.
            let again = detail.attempts.last().is_some_and(|attempt| attempt.attempt > 1);
            let after = (!again).then(|| format!(", after {}", span(started - job.submitted_ms)));
            self.line("started", format!("{}{}", local(started), after.unwrap_or_default()));
        }
        if let Some(ended) = job.ended_ms {
            let ran =
                job.started_ms.map(|started| format!(", ran {}", span(ended - started))).unwrap_or_default();
            self.line("ended", format!("{}{ran}", local(ended)));
        }
        let mut limits = Vec::new();
        let awaited = detail.start_after_ms.filter(|at| *at > now_ms);
        limits.extend(awaited.map(|at| format!("not before {}", local(at))));
        limits.extend(detail.deadline_ms.map(|at| format!("to be over by {}", local(at))));
        limits.extend(job.time_limit_ms.map(|limit| format!("limit {}", span(limit))));
        limits.extend(detail.estimate_ms.map(|estimate| format!("estimate {}", span(estimate))));
        if let (Some(middle), Some(most)) = (detail.foreseen_ms, detail.foreseen_p90_ms) {
            let (middle, most) = (span(middle), span(most));
            limits.push(format!("≈ {middle} by finished jobs like it (nine of ten: at most {most})"));
        }
        if let (Some(started), None, Some(limit)) = (job.started_ms, job.ended_ms, job.time_limit_ms) {
            limits.push(format!("{} left", span(started + limit - now_ms)));
        }
        if !limits.is_empty() {
            self.line("time", limits.join(", "));
        }
        if let Some(stopped) = &detail.stopped_for {
            self.line("ends", super::explain::stopped_for(stopped));
        }
        self.saves(detail, now_ms);
    }

    /// How the job's work is saved, and when it last was.
    fn saves(&mut self, detail: &JobDetail, now_ms: i64) {
        let mut parts = Vec::new();
        if let Some(checkpoint) = &detail.checkpoint {
            let every = checkpoint.every_ms.map(|every| format!(", by itself every {}", span(every)));
            let (notice, grace) = (&checkpoint.notice, span(checkpoint.grace_ms));
            parts.push(format!("told by {notice}, in {grace}{}", every.unwrap_or_default()));
        }
        parts.extend(detail.resumable.then(|| "goes on where it was (resumable)".to_owned()));
        parts.extend(detail.saved_ms.map(|at| format!("last safe {} ago", span((now_ms - at).max(0)))));
        if !parts.is_empty() {
            self.line("saves", parts.join(", "));
        }
    }

    fn place(&mut self, detail: &JobDetail) {
        let tasks = detail.attempts.last().map(|attempt| attempt.tasks.as_slice()).unwrap_or_default();
        for task in tasks {
            self.line(&format!("task {}", task.task), where_it_ran(task));
        }
        if let Some(Isolation { level, reason }) = &detail.isolation {
            let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            self.line("isolation", format!("{level}{reason}"));
        }
        if let Some(output) = &detail.output {
            self.line("output", output);
        }
    }

    fn end(&mut self, detail: &JobDetail) {
        let job = &detail.job;
        if let (Some(end), true) = (&job.last_end, job.state.is_ended()) {
            self.line("end", why_it_ended(&job.state, end, job.exit_code) + asked_again(detail));
        } else if let (true, Some(code)) = (job.state.is_ended(), job.exit_code) {
            self.line("end", format!("exit code {code}"));
        } else if let Some(end) = &job.last_end {
            self.line("last end", why_it_ended(&job.state, end, None));
        }
    }

    fn last_lines(&mut self, detail: &JobDetail, task: Option<u32>) {
        let job = &detail.job;
        if detail.last_lines.is_empty() || !job.state.is_ended() || job.state == JobState::Completed {
            return;
        }
        let task = task.filter(|_| job.tasks > 1).map(|task| format!(" of task {task}"));
        self.text += &format!("last lines{}\n", task.unwrap_or_default());
        for line in &detail.last_lines {
            self.text += &format!("  | {}\n", plain(line));
        }
    }

    fn attempts(&mut self, attempts: &[Attempt]) {
        for attempt in attempts.iter().filter(|attempt| attempts.len() > 1 || attempt.ended_ms.is_some()) {
            self.line(&format!("attempt {}", attempt.attempt), used(attempt));
        }
    }
}

fn counted(cpu_milli: i64) -> String {
    format!("{} core{}", cores(cpu_milli), if cpu_milli == 1000 { "" } else { "s" })
}

fn where_it_ran(task: &Task) -> String {
    let indices = task.devices.iter().map(|device| device.index.to_string()).collect::<Vec<_>>().join(", ");
    let gpus = if indices.is_empty() { String::new() } else { format!(", GPU {indices}") };
    let pid = task.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    let share = match (task.cpu_milli, task.memory_bytes) {
        (0, 0) => String::new(),
        // A share of the cores that yields to others is not a number of cores.
        (0, memory) => format!(", {}", bytes(memory)),
        (milli, memory) => format!(", {}, {}", counted(milli), bytes(memory)),
    };
    let end = match (task.signal, task.exit_code) {
        (Some(signal), _) => format!(", signal {signal}"),
        (None, Some(code)) => format!(", exit {code}"),
        _ => String::new(),
    };
    format!("{} on {}{gpus}{share}{pid}{end}", task.state, task.node)
}

/// Why a job ended, in a sentence that needs no manual.
pub(super) fn why_it_ended(state: &JobState, end: &LastEnd, exit_code: Option<i32>) -> String {
    let by = |otherwise: &str| end.by.clone().unwrap_or_else(|| otherwise.into());
    let mut text = match &end.cause {
        Cause::Exit => match (end.signal, exit_code) {
            (Some(signal), _) => format!("ended by signal {}", signal_name(signal)),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => "it exited".into(),
        },
        Cause::Signal => {
            format!("ended by signal {} from outside the pool", end.signal.map_or("?".into(), signal_name))
        }
        Cause::Cancelled => format!("cancelled by {}", by("someone")),
        Cause::TimeLimit => "it reached its time limit".into(),
        Cause::OutOfMemory => "out of host memory".into(),
        Cause::OutOfGpuMemory => "out of GPU memory".into(),
        Cause::DeviceFault => "its GPU failed".into(),
        Cause::NodeReboot => "the machine was restarted".into(),
        Cause::SupervisorLost => "its supervisor vanished, and with it the processes".into(),
        Cause::LaunchFailed => "it could not be started".into(),
        Cause::BrokenGang => "another task of its gang failed".into(),
        Cause::Dependency => format!("what it waited for can no longer happen ({})", by("see `after`")),
        Cause::Policy => "its queue no longer takes it".into(),
        Cause::Preempted => format!("its GPUs went to job {}, which is more urgent", by("?")),
        Cause::Reclaimed => format!("its GPUs were borrowed, and went back to the queue of job {}", by("?")),
        Cause::Order => format!("its GPUs went to job {}, which is before it in the order", by("?")),
        Cause::Moved => format!("it goes on elsewhere, so that job {} has room", by("?")),
        Cause::Crowded => "tasks of another scheduler took what it held of its node".into(),
        Cause::Faster => "it goes on on faster GPUs".into(),
        Cause::Starved => {
            format!("its GPUs went to job {}, which had not run for the longest time", by("?"))
        }
        Cause::Checkpointed => "it saved its work and asked to be run again".into(),
        Cause::Shutdown => format!("the pool was taken down by {}", by("someone")),
        Cause::Drain => {
            let by = end.by.as_ref().map(|by| format!(" ({by})")).unwrap_or_default();
            format!("its GPUs were drained, or reserved for others{by}")
        }
        Cause::Other(word) => word.clone(),
    };
    if let Some(detail) = &end.detail {
        text += &format!(": {detail}");
    }
    if let (Some(code), false) = (exit_code, matches!(end.cause, Cause::Exit)) {
        text += &format!(" (exit code {code})");
    }
    if *state == JobState::Pending {
        text += "; it waits to run again";
    }
    text
}

/// The exit code by which a job asks to be run again.
const RUN_ME_AGAIN: i32 = 85;

/// Why a job that saved its work and asked to be run again is not.
pub(super) const RESTARTS_USED_UP: &str = "; its restarts (max_restarts) are used up";

/// Why a job that asked to be run again is not.
fn asked_again(detail: &JobDetail) -> &'static str {
    match detail.job.exit_code {
        Some(RUN_ME_AGAIN) if detail.checkpoint.is_some() => RESTARTS_USED_UP,
        Some(RUN_ME_AGAIN) => "; that asks to be run again only if the job says checkpoint",
        _ => "",
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        6 => "ABRT",
        7 => "BUS",
        8 => "FPE",
        9 => "KILL",
        10 => "USR1",
        11 => "SEGV",
        12 => "USR2",
        13 => "PIPE",
        14 => "ALRM",
        15 => "TERM",
        _ => return signal.to_string(),
    };
    format!("{signal} ({name})")
}

fn used(attempt: &Attempt) -> String {
    let mut parts = Vec::new();
    if let (Some(started), Some(ended)) = (attempt.started_ms, attempt.ended_ms) {
        parts.push(format!("ran {}", span(ended - started)));
    }
    parts.extend(attempt.end.as_ref().map(|end| super::ps::end_in_short(end, attempt.exit_code)));
    if attempt.gpu_seconds > 0.0 {
        parts.push(format!("{:.2} GPU-hours", attempt.gpu_seconds / 3600.0));
    }
    if attempt.lost_gpu_seconds > 0.0 {
        parts.push(format!("{:.2} of them lost", attempt.lost_gpu_seconds / 3600.0));
    }
    parts.extend(attempt.mean_utilization_percent.map(|percent| format!("{percent:.0}% busy")));
    parts.extend(attempt.peak_gpu_memory_mib.map(|peak| format!("peak {} GPU memory", mib(peak))));
    let host = attempt.peak_memory_bytes.map(|peak| i64::try_from(peak).unwrap_or(i64::MAX));
    parts.extend(host.map(|peak| format!("peak {} memory", bytes(peak))));
    if parts.is_empty() { "running".into() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_job_that_asked_to_be_run_again_says_why_it_is_not() {
        let detail = |checkpoint: serde_json::Value| -> JobDetail {
            let ended = serde_json::json!({
                "id": "12", "name": "ft", "user": "ana", "queue": "vision", "priority": 0, "state": "failed", "gpus": 2,
                "gpu_milli": 2000, "tasks": 1, "attempt": 4, "submitted_ms": 0, "exit_code": 85, "checkpoint": checkpoint,
            });
            serde_json::from_value(ended).unwrap()
        };
        assert!(asked_again(&detail(serde_json::Value::Null)).contains("only if the job says checkpoint"));
        let tells = serde_json::json!({"notice": "USR1", "grace_ms": 60000});
        assert!(asked_again(&detail(tells)).contains("max_restarts"));
    }

    #[test]
    fn an_ended_job_says_why_with_its_last_lines() {
        let mut shown: Shown = serde_json::from_value(serde_json::json!({
            "id": "12", "name": "ft\u{1b}[2J", "user": "ana", "queue": "vision", "project": "asr", "labels": {"k": "v"},
            "priority": 100, "state": "failed", "gpus": 2, "gpu_milli": 2000, "devices": ["GPU-a", "GPU-b"],
            "nodes": ["n1"], "tasks": 1, "attempt": 1, "submitted_ms": 0, "started_ms": 1000, "ended_ms": 61000,
            "exit_code": 137, "last_end": {"cause": "out_of_memory", "signal": 9, "detail": "peak 63.9Gi, limit 64Gi"},
            "command": "python train.py",
            "roles": [{"name": "main", "tasks": 1, "gpus": 2, "devices": "h100", "cpu_milli": 16000, "memory_bytes": 68719476736i64}],
            "isolation": {"level": "advisory", "reason": "pretended devices"},
            "attempts": [{"attempt": 1, "started_ms": 1000, "ended_ms": 61000, "gpu_seconds": 120.0,
                "end": {"cause": "out_of_memory", "signal": 9},
                "tasks": [{"task": 0, "state": "ended", "node": "n1", "devices": [{"index": 0}, {"index": 1}], "signal": 9}]}],
            "last_lines": ["epoch 3", "Killed\r"],
        }))
        .unwrap();
        let text = Sheet::of(&shown, 70_000).text;
        let steady: String =
            text.lines().filter(|line| !line.contains("1970")).map(|line| format!("{line}\n")).collect();
        expect![[r#"
            job        12 ft\u{1b}[2J
            state      failed
            who        ana, queue vision, project asr, priority high
            labels     k=v
            command    python train.py
            asks       2 × h100, 16 cores, 64Gi
            task 0     ended on n1, GPU 0, 1, signal 9
            isolation  advisory: pretended devices
            end        out of host memory: peak 63.9Gi, limit 64Gi (exit code 137)
            last lines
              | epoch 3
              | Killed\r
            attempt 1  ran 1m00s, out of memory, 0.03 GPU-hours
        "#]]
        .assert_eq(&steady);
        (shown.detail.job.tasks, shown.last_lines_task) = (4, Some(2));
        assert!(Sheet::of(&shown, 70_000).text.contains("last lines of task 2\n  | epoch 3\n"));
    }
}
