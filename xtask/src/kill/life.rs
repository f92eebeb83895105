//! A life: kills and restarts over one state directory, after which everything must have come out right.

use std::fmt;
use std::fs;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::book::{self, Book, Gpu, Row, Submission};
use super::draw::Draw;
use super::hunt;
use super::journal::Journal;
use super::load::{self, Client, held};
use super::site::{Daemon, Site};
use super::wire;

/// How long a daemon that serves lives at most.
const SERVES_MOST: Duration = Duration::from_millis(250);
/// Clients at once: enough that a kill falls between any two steps of a request.
const CLIENTS: u64 = 4;
/// How many kills in a hundred fall into the start of the daemon.
const IN_START_PERCENT: u64 = 30;
/// Everything that was submitted ends within seconds, or never.
const ENDS_WITHIN: Duration = Duration::from_secs(180);

/// What is left of a job that has ended is gone at once.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) kills: u64,
    kills_while_starting: u64,
    submissions: u64,
    jobs: u64,
    tasks_started: u64,
    cancelled: u64,
    supervisors_killed: u64,
    jobs_lost: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.kills += other.kills;
        self.kills_while_starting += other.kills_while_starting;
        self.submissions += other.submissions;
        self.jobs += other.jobs;
        self.tasks_started += other.tasks_started;
        self.cancelled += other.cancelled;
        self.supervisors_killed += other.supervisors_killed;
        self.jobs_lost += other.jobs_lost;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, kills_while_starting, submissions, jobs, tasks_started, cancelled, .. } = self;
        let Self { supervisors_killed, jobs_lost, .. } = self;
        write!(
            f,
            "{kills} kills ({kills_while_starting} while starting) and {supervisors_killed} of supervisors, \
             {submissions} submissions, {jobs} jobs ({cancelled} cancelled, {jobs_lost} lost), {tasks_started} task starts"
        )
    }
}

/// Runs one life. If it does not hold, its directory stays.
pub(super) fn live(program: &Path, seed: u64, rounds: u32) -> Result<Tally> {
    let mut site = Site::new(program, seed)?;
    let book = Mutex::new(Book::default());
    let stop = AtomicBool::new(seed.is_multiple_of(2));
    let lived = std::thread::scope(|scope| {
        let hunter = scope.spawn(|| hunt::hunt(&site, &book, &mut Draw::new(seed, 2), &stop));
        let in_start = rounds_of(&site, &book, seed, rounds);
        stop.store(true, Ordering::Relaxed);
        let killed = hunter.join().unwrap_or_default();
        in_start.map(|in_start| (in_start, killed))
    });
    let lived = lived.and_then(|(in_start, killed)| {
        let mut tally = end(&site, &book)?;
        (tally.kills, tally.kills_while_starting) = (u64::from(rounds), in_start);
        tally.supervisors_killed = killed;
        Ok(tally)
    });
    site.keep = lived.is_err();
    lived.with_context(|| {
        format!("the life of seed {seed} does not hold; what is left of it: {}", site.root().display())
    })
}

/// Kills the daemon so many times; returns how many of the kills hit its start.
fn rounds_of(site: &Site, book: &Mutex<Book>, seed: u64, rounds: u32) -> Result<u64> {
    let mut draw = Draw::new(seed, 0);
    let mut start_takes = SERVES_MOST;
    let mut in_start = 0;
    for round in 0..rounds {
        let mut daemon = site.start()?;
        if round > 0 && draw.percent(IN_START_PERCENT) {
            std::thread::sleep(draw.moment_below(start_takes));
            in_start += 1;
            daemon.kill().with_context(|| format!("in round {round}"))?;
        } else {
            start_takes = daemon.wait_until_ready(site)?;
            if round == 0 {
                divide(site)?;
            }
            compare(site, book).with_context(|| format!("in round {round}"))?;
            serve(site, book, &mut draw, daemon).with_context(|| format!("in round {round}"))?;
        }
    }
    Ok(in_start)
}

/// Everything that is accounted over time: budgets, past use, what is pledged, all by prices.
const QUEUES: &str = "queues:
  default: {users: {}, budget: {gpu_hours: 200000, every: 5000d}, guarantee: {gpu_hours: 24, every: day}}
  other: {guarantee: 1}
prices: {h100: 2.90}
policy: {half_life: 1h, catch_up: 1m}
";

/// Puts queues in force.
fn divide(site: &Site) -> Result<()> {
    let answer = wire::ask(&site.socket(), "PUT /v1/queues", None, QUEUES).context("setting the queues")?;
    if answer.status != 200 {
        bail!("the queues were refused: {answer:?}");
    }
    Ok(())
}

/// What is left of the budget of the queue that all jobs are in, in GPU-hours.
fn budget_left(site: &Site) -> Result<Option<f64>> {
    let queues = wire::get(&site.socket(), "/v1/queues").context("listing the queues")?.body;
    let queue = queues.as_array().into_iter().flatten().find(|queue| queue["queue"] == "default");
    Ok(queue.and_then(|queue| queue["budget_left_gpu_hours"].as_f64()))
}

/// Lets clients send requests, and kills the daemon under them.
fn serve(site: &Site, book: &Mutex<Book>, draw: &mut Draw, daemon: Daemon) -> Result<()> {
    let moment = draw.moment_below(SERVES_MOST);
    std::thread::scope(|scope| {
        // Submissions without an answer are sent again, with the same key.
        scope
            .spawn(|| unanswered(book).iter().all(|submission| load::send(&site.socket(), book, submission)));
        for _ in 0..CLIENTS {
            let client =
                Client { site, book, draw: Draw::new(draw.below(u64::MAX), 1), socket: site.socket() };
            scope.spawn(|| client.run());
        }
        std::thread::sleep(moment);
        daemon.kill()
    })
}

/// Submissions that the daemon may or may not have.
fn unanswered(book: &Mutex<Book>) -> Vec<Submission> {
    held(book).submissions.iter().filter(|submission| submission.id.is_none()).cloned().collect()
}

/// Compares what the daemon says with all that it said before.
fn compare(site: &Site, book: &Mutex<Book>) -> Result<Vec<Row>> {
    let check = wire::get(&site.socket(), "/v1/pool/check").context("asking for the laws")?.body;
    let position =
        wire::get(&site.socket(), "/v1/pool").context("asking for the pool")?.body["position"].as_u64();
    let rows = list(site).context("listing all jobs")?;
    let journal = journal(site)?;
    let mut findings = held(book).compare(position.unwrap_or(0), &rows);
    findings.extend(held(book).spend(budget_left(site)?));
    findings.extend(journal.findings());
    let gpus = wire::get(&site.socket(), "/v1/gpus").context("listing the devices")?.body;
    findings.extend(book::held_twice(&serde_json::from_value::<Vec<Gpu>>(gpus)?));
    match check["violations"].as_array() {
        Some(violations) => {
            findings.extend(violations.iter().map(|violation| format!("a law is broken: {violation}")))
        }
        None => findings.push(format!("the laws were not checked: {check}")),
    }
    fail_on(&findings)?;
    Ok(rows)
}

fn fail_on(findings: &[String]) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let more = findings.len().saturating_sub(20);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    let shown: Vec<&str> = findings.iter().take(20).map(String::as_str).collect();
    bail!("{}{more}", shown.join("\n  "))
}

fn journal(site: &Site) -> Result<Journal> {
    let text = fs::read_to_string(site.journal()).unwrap_or_default();
    Journal::read(&text).map_err(anyhow::Error::msg)
}

/// All jobs that the daemon knows.
fn list(site: &Site) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/jobs?all=true&limit=1000{after}");
        let mut page = wire::get(&site.socket(), &path)?.body;
        rows.append(
            &mut serde_json::from_value(page["items"].take()).with_context(|| format!("reading {path}"))?,
        );
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(rows),
        }
    }
}

/// Lets everything end, and compares how it ended with how it had to end.
fn end(site: &Site, book: &Mutex<Book>) -> Result<Tally> {
    let mut daemon = site.start()?;
    daemon.wait_until_ready(site)?;
    compare(site, book).context("after the last round")?;
    let all = held(book).submissions.clone();
    for submission in all.iter().filter(|submission| submission.id.is_none()) {
        load::send(&site.socket(), book, submission);
    }
    let endless: Vec<Submission> = held(book).submissions.iter().filter(|s| s.endless).cloned().collect();
    for submission in endless {
        load::cancel(&site.socket(), book, &submission);
    }
    for row in list(site)?.iter().filter(|row| row.state == "held") {
        wire::ask(&site.socket(), &format!("POST /v1/jobs/{}/release", row.id), None, "")?;
    }
    wait_until_all_ended(site)?;
    compare(site, book).context("when all had ended")?;
    wait_until_nothing_is_left(site, &daemon)?;
    daemon.kill()?;

    // How everything ended is known for good, also to the next daemon.
    let mut daemon = site.start()?;
    daemon.wait_until_ready(site)?;
    let rows = compare(site, book).context("in the end")?;
    let journal = journal(site)?;
    fail_on(&held(book).settle(&rows, &journal)).context("in the end")?;
    // Not killed, so that nothing of the life is left on the machine.
    daemon.end()?;
    Ok(Tally {
        submissions: held(book).submissions.len() as u64,
        jobs: rows.len() as u64,
        tasks_started: journal.starts.len() as u64,
        cancelled: rows.iter().filter(|row| row.state == "cancelled").count() as u64,
        jobs_lost: rows.iter().filter(|row| row.state == "lost").count() as u64,
        ..Tally::default()
    })
}

fn wait_until_all_ended(site: &Site) -> Result<()> {
    let begun = Instant::now();
    loop {
        let pool = wire::get(&site.socket(), "/v1/pool")?.body;
        if pool["running"] == 0 && pool["waiting"] == 0 {
            return Ok(());
        }
        if begun.elapsed() > ENDS_WITHIN {
            let stuck: Vec<Row> = list(site)?.into_iter().filter(|row| !row.is_ended()).take(5).collect();
            bail!("not everything ends: {stuck:#?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until every device is free and only the daemon runs. A supervisor exits a moment after its job.
fn wait_until_nothing_is_left(site: &Site, daemon: &Daemon) -> Result<()> {
    let begun = Instant::now();
    loop {
        match left_behind(site, daemon) {
            Err(_) if begun.elapsed() < GONE_WITHIN => std::thread::sleep(Duration::from_millis(5)),
            found => return found,
        }
    }
}

fn left_behind(site: &Site, daemon: &Daemon) -> Result<()> {
    let gpus = wire::get(&site.socket(), "/v1/gpus")?.body;
    let held = gpus.as_array().into_iter().flatten().filter(|gpu| gpu["state"] != "free");
    let mut findings: Vec<String> = held.map(|gpu| format!("a device is not free: {gpu}")).collect();
    let others = site.processes().into_iter().filter(|pid| *pid != daemon.pid());
    findings.extend(others.map(|pid| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        format!("process {pid} is left: {}", command.replace('\0', " "))
    }));
    fail_on(&findings)
}
