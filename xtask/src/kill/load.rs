//! The load: requests that are sent until the daemon stops answering.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::book::{Book, Cancel, Submission};
use super::draw::Draw;
use super::journal::SCRIPT;
use super::site::Site;
use super::wire::{self, Answer};

/// The longest pause between two requests of a client: four clients then give the daemon something to do all the time,
/// and the machine something to run, without a backlog that takes minutes to end.
const PAUSE_MOST: Duration = Duration::from_millis(16);

/// A client.
pub(super) struct Client<'a> {
    pub(super) site: &'a Site,
    pub(super) book: &'a Mutex<Book>,
    pub(super) draw: Draw,
    pub(super) socket: PathBuf,
}

impl Client<'_> {
    /// Sends requests until one gets no answer, which is when the daemon has been killed.
    pub(super) fn run(mut self) {
        loop {
            let answered = match self.draw.below(100) {
                0..60 => self.submit(),
                60..75 => self.cancel(),
                75..80 => self.change("hold"),
                80..90 => self.change("release"),
                90..95 => self.submit_again(),
                _ => wire::get(&self.socket, "/v1/jobs?limit=100").is_ok(),
            };
            if !answered {
                return;
            }
            std::thread::sleep(self.draw.moment_below(PAUSE_MOST));
        }
    }

    fn submit(&mut self) -> bool {
        // Noted in the book before it is sent: the daemon may take it and die without an answer.
        let submission = {
            let mut book = held(self.book);
            let number = book.submissions.len();
            let submission = drawn(&mut self.draw, self.site, number);
            book.submissions.push(submission.clone());
            submission
        };
        send(&self.socket, self.book, &submission)
    }

    /// Sends an earlier request again, with the same key.
    fn submit_again(&mut self) -> bool {
        match self.any(|_| true) {
            Some(submission) => send(&self.socket, self.book, &submission),
            None => true,
        }
    }

    fn cancel(&mut self) -> bool {
        match self.any(|submission| submission.id.is_some()) {
            Some(submission) => cancel(&self.socket, self.book, &submission),
            None => true,
        }
    }

    fn change(&mut self, verb: &str) -> bool {
        let Some(id) = self.any(|submission| submission.id.is_some()).and_then(|submission| submission.id)
        else {
            return true;
        };
        wire::ask(&self.socket, &format!("POST /v1/jobs/{id}/{verb}"), None, "").is_ok()
    }

    /// One of the latest submissions that fit.
    fn any(&mut self, fits: impl Fn(&Submission) -> bool) -> Option<Submission> {
        let book = held(self.book);
        let latest: Vec<&Submission> = book.submissions.iter().rev().filter(|s| fits(s)).take(12).collect();
        let at = self.draw.below(latest.len() as u64);
        latest.get(usize::try_from(at).unwrap_or(0)).map(|submission| (*submission).clone())
    }
}

/// Sends a submission, and notes the answer. False if none came.
pub(super) fn send(socket: &Path, book: &Mutex<Book>, submission: &Submission) -> bool {
    let token = &submission.token;
    let Ok(answer) = wire::ask(socket, "POST /v1/jobs", Some(token), &submission.body) else { return false };
    let mut book = held(book);
    let Answer { status: 201, body } = &answer else {
        book.refusals.push(format!("submission {token} was refused: {answer:?}"));
        return true;
    };
    let id = body["id"].as_str().unwrap_or_default().to_owned();
    let mut doubled = None;
    if let Some(noted) = book.submissions.iter_mut().find(|noted| noted.token == *token) {
        let before = noted.id.replace(id.clone());
        doubled = before.filter(|before| *before != id);
    }
    if let Some(before) = doubled {
        book.refusals
            .push(format!("submission {token} was answered with job {before}, and again with job {id}"));
    }
    true
}

/// Cancels a submission, and notes the answer. False if none came.
pub(super) fn cancel(socket: &Path, book: &Mutex<Book>, submission: &Submission) -> bool {
    let Some(id) = &submission.id else { return true };
    let note = |to: Cancel| {
        let mut book = held(book);
        let noted = book.submissions.iter_mut().find(|noted| noted.token == submission.token);
        noted
            .into_iter()
            .filter(|noted| noted.cancel != Cancel::Answered)
            .for_each(|noted| noted.cancel = to);
    };
    note(Cancel::Asked);
    let Ok(answer) = wire::ask(socket, &format!("POST /v1/jobs/{id}/cancel"), None, "") else { return false };
    if answer.status == 200 {
        note(Cancel::Answered);
    } else {
        held(book).refusals.push(format!("the wish to cancel job {id} was refused: {answer:?}"));
    }
    true
}

/// Draws a job: most are short and single, some are arrays, gangs, or run until they are cancelled.
fn drawn(draw: &mut Draw, site: &Site, number: usize) -> Submission {
    let token = format!("job-{number}");
    let endless = draw.percent(6);
    let seconds = match draw.below(10) {
        _ if endless => "600",
        0..4 => "0",
        4..8 => "0.02",
        8 => "0.1",
        _ => "0.4",
    };
    let exit = if draw.percent(25) { 1 + i32::try_from(draw.below(90)).unwrap_or(1) } else { 0 };
    let returns = draw.percent(50);
    let mut job = json!({
        "name": token,
        "command": ["sh", "-c", SCRIPT, "sh", seconds, exit.to_string()],
        "gpus": draw.below(3).to_string(),
        "cpus": "0.1",
        "memory": "64Mi",
        "log": "/dev/null",
        "stop": {"grace": "2s"},
        "requeue": if returns { "lost" } else { "never" },
        "max_restarts": 1000,
    });
    let (mut members, mut tasks) = (1, 1);
    match draw.below(10) {
        0 => {
            members = 2 + draw.below(5);
            job["array"] = Value::from(format!("0-{}%{}", members - 1, 1 + draw.below(4)));
        }
        1 => {
            tasks = 2 + u32::try_from(draw.below(3)).unwrap_or(0);
            (job["tasks"], job["gpus"]) = (Value::from(tasks), Value::from("1"));
        }
        _ => {}
    }
    let environment =
        json!({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "JOURNAL": site.journal(), "HELD": site.locks()});
    let body = json!({"job": job, "directory": site.work(), "environment": environment}).to_string();
    let members = usize::try_from(members).unwrap_or(1);
    Submission { token, body, members, tasks, exit, endless, returns, id: None, cancel: Cancel::None }
}

/// The book, even if the thread that last held it has panicked.
pub(super) fn held(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}
