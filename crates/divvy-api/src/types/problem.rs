//! Errors in the form of RFC 9457.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::open::open_enum;

open_enum! {
    /// What kind of problem it is; stable.
    ProblemCode {
        /// The request itself cannot be understood.
        BadRequest = "bad-request",
        /// A value in a job, query or queues.yaml is wrong.
        BadSpec = "bad-spec",
        /// There is no such queue.
        UnknownQueue = "unknown-queue",
        /// There is no such job.
        NoSuchJob = "no-such-job",
        /// There is no such path.
        NoSuchPath = "no-such-path",
        /// The job belongs to another user.
        NotYours = "not-yours",
        /// The user may not submit to the queue, or may not do this at all.
        NotMember = "not-member",
        /// The pool can never run it as it is.
        CannotFit = "cannot-fit",
        /// The working directory cannot be entered by the user.
        BadDirectory = "bad-directory",
        /// Nothing can be written.
        DiskFull = "disk-full",
        /// The daemon is going down.
        ShuttingDown = "shutting-down",
        /// The request is too long.
        TooLarge = "too-large",
        /// There are too many requests at once.
        Busy = "busy",
        /// The job is not in a state that allows this.
        Conflict = "conflict",
        /// The output is not there (any more).
        NoOutput = "no-output",
        /// The daemon made a mistake.
        Internal = "internal",
    }
}

/// An error: what, why, and what helps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A link that names the kind of problem: `https://divvy.dev/problems/unknown-queue`, or `about:blank`.
    #[serde(rename = "type", default = "blank")]
    pub kind: String,
    /// What, in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What exactly, with names and numbers.
    #[serde(default)]
    pub detail: String,
    /// Stable; programs look here.
    pub code: ProblemCode,
    /// The reason, where there is a page about it: `DV-TOO-MANY-GPUS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// The part of the request that it is about: `roles[0].gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Where in the text that was sent, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Where in that line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
}

fn blank() -> String {
    "about:blank".into()
}

impl Problem {
    /// Makes a problem of a kind, with its usual status and title.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        let (status, title) = usual(&code);
        let kind = format!("https://divvy.dev/problems/{code}");
        Self {
            kind,
            title: title.into(),
            status,
            detail: detail.into(),
            code,
            reason: None,
            fix: None,
            field: None,
            line: None,
            column: None,
        }
    }

    /// Names the reason.
    pub fn with_reason(mut self, code: Option<&str>) -> Self {
        self.reason = code.map(str::to_owned);
        self
    }

    /// Says what helps.
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Names the part of the request that it is about.
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }
}

fn usual(code: &ProblemCode) -> (u16, &'static str) {
    use ProblemCode as C;
    match code {
        C::BadRequest => (400, "the request cannot be understood"),
        C::BadSpec => (422, "a value is wrong"),
        C::UnknownQueue => (422, "there is no such queue"),
        C::NoSuchJob => (404, "there is no such job"),
        C::NoSuchPath => (404, "there is no such path"),
        C::NotYours => (403, "the job belongs to another user"),
        C::NotMember => (403, "you may not do this"),
        C::CannotFit => (422, "the pool can never run this"),
        C::BadDirectory => (422, "the working directory cannot be used"),
        C::DiskFull => (507, "the disk is full"),
        C::ShuttingDown => (503, "the pool is going down"),
        C::TooLarge => (413, "the request is too long"),
        C::Busy => (503, "the daemon is busy"),
        C::Conflict => (409, "not possible in this state"),
        C::NoOutput => (404, "the output is not there"),
        C::Internal | C::Other(_) => (500, "the daemon made a mistake"),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
