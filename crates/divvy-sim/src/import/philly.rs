//! Microsoft's Philly traces: `cluster_job_log`, one array of jobs in JSON.

use std::fmt;
use std::io::BufReader;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::{LeftOut, Record, Records, civil};
use crate::trace::{LONGEST_S, MOST_GPUS, TraceError, open_unbounded, quoted};

#[derive(Deserialize)]
struct Job {
    status: String,
    vc: String,
    jobid: String,
    attempts: Vec<Attempt>,
    submitted_time: Option<String>,
    user: Option<String>,
}

#[derive(Deserialize)]
struct Attempt {
    start_time: Option<String>,
    end_time: Option<String>,
    detail: Vec<Server>,
}

#[derive(Deserialize)]
struct Server {
    gpus: Vec<String>,
}

/// Reads one file, job by job. The virtual cluster becomes the queue; the duration is the sum of the attempts.
pub(super) fn read(path: &Path, records: &mut Records) -> Result<(), TraceError> {
    let text = BufReader::new(open_unbounded(path)?);
    let mut json = serde_json::Deserializer::from_reader(text);
    let mut misfit = None;
    let read = json.deserialize_seq(Jobs { records, misfit: &mut misfit }).and_then(|()| json.end());
    read.map_err(|error| wrong(path, error, misfit))
}

fn wrong(path: &Path, error: serde_json::Error, misfit: Option<String>) -> TraceError {
    let (path, line) = (path.to_owned(), error.line() as u64);
    if error.is_io() {
        return TraceError::Read { path, line, source: error.into() };
    }
    if let Some(what) = misfit {
        return TraceError::Line { path, line, what };
    }
    // The text ends with the place, which the error states in front already.
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    let what = format!(
        "{what}; expected a cluster_job_log of Philly: [{{\"status\":…,\"vc\":…,\"jobid\":…,\"attempts\":[…],\"submitted_time\":…,\"user\":…}},…]"
    );
    TraceError::Line { path, line, what }
}

/// Takes the jobs one by one, so that only what is kept of them is in memory.
struct Jobs<'a> {
    records: &'a mut Records,
    /// What is wrong with a well-formed job: an error of the parser would state the place once more.
    misfit: &'a mut Option<String>,
}

impl<'de> Visitor<'de> for Jobs<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut jobs: A) -> Result<(), A::Error> {
        while let Some(job) = jobs.next_element::<Job>()? {
            let id = quoted(&job.jobid);
            match job.record() {
                Ok(Ok(record)) => self.records.kept.push(record),
                Ok(Err(why)) => self.records.leave_out(why),
                Err(what) => {
                    let what = format!("job {id}: {what}");
                    *self.misfit = Some(what.clone());
                    return Err(serde::de::Error::custom(what));
                }
            }
        }
        Ok(())
    }
}

impl Job {
    /// Returns the job as a record, or why it is left out, or what is wrong with it.
    fn record(self) -> Result<Result<Record, LeftOut>, String> {
        let Some(submit_s) = moment(self.submitted_time.as_deref())? else {
            return Ok(Err(LeftOut::NoSubmission));
        };
        let gpus = self.attempts.iter().map(Attempt::gpus).find(|gpus| *gpus > 0);
        let (mut duration_s, mut started) = (0i64, false);
        for (at, attempt) in self.attempts.iter().enumerate() {
            let start_s = moment(attempt.start_time.as_deref())?;
            let end_s = moment(attempt.end_time.as_deref())?;
            if start_s.is_some() && end_s.is_none() && at + 1 == self.attempts.len() {
                return Ok(Err(LeftOut::NotEnded));
            }
            if let Some((start_s, end_s)) = start_s.zip(end_s) {
                if end_s < start_s {
                    // Times are local ones, and in one night of the log the clocks were put back.
                    return Ok(Err(LeftOut::EndsFirst));
                }
                started = true;
                duration_s = duration_s.saturating_add(end_s - start_s);
            }
        }
        if duration_s > LONGEST_S {
            return Err(format!("its attempts took {duration_s} s; expected {LONGEST_S} at most"));
        }
        if !started {
            return Ok(Err(LeftOut::NeverStarted));
        }
        let Some(gpus) = gpus else { return Ok(Err(LeftOut::NoGpu)) };
        if self.jobid.trim().is_empty() {
            return Err("its jobid is empty; expected a name".into());
        }
        let Self { status, vc: queue, jobid: id, user, .. } = self;
        let (user, name) = (user.unwrap_or_default(), String::new());
        Ok(Ok(Record { id, submit_s, gpus, duration_s, queue, user, name, status }))
    }
}

impl Attempt {
    fn gpus(&self) -> u32 {
        let count: usize = self.detail.iter().map(|server| server.gpus.len()).sum();
        u32::try_from(count).unwrap_or(MOST_GPUS).min(MOST_GPUS)
    }
}

fn moment(text: Option<&str>) -> Result<Option<i64>, String> {
    match text {
        None => Ok(None),
        Some(text) if civil::is_none(text) => Ok(None),
        Some(text) => civil::seconds(text)
            .map(Some)
            .ok_or_else(|| format!("{} is not {}", quoted(text), civil::EXPECTED)),
    }
}
