//! `divvy run`: submits a job, and stays with it unless it is detached.

mod attached;
mod environment;
mod flags;
mod gang;
mod pty;
mod shell;

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use divvy_api::client::Ask;
use divvy_api::{Client, JobFile, Submit, Submitted, Trial, Verdict, paths, read};
use serde_json::value::RawValue;

pub(crate) use self::attached::{Signals, Told};
pub(crate) use self::flags::{REQUEUE_WORDS, Run};
use super::explain::{OneObject, render_trial};
use super::wait;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{count, plain, say};
use crate::pool::{self, Place};

impl Run {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let mut job = match &self.file {
            Some(file) => read::job_file(&read_text(file)?).map_err(|error| Failure::text(file, &error))?,
            None => JobFile::default(),
        };
        self.put_over(&mut job)?;
        if job.command.is_none() && job.roles.iter().all(|role| role.command.is_none()) {
            return Err(Failure::usage("there is nothing to run")
                .fix("write a command: divvy run -g 1 -- python train.py"));
        }
        let submit = self.submit(job)?;
        if self.dry_run {
            return dry_run(place, &submit, self.format);
        }
        if self.detach {
            return detached(place, &submit, self.format);
        }
        if submit.job.array.is_some() {
            return array(place, &submit);
        }
        attached::run(place, submit, self.pty)
    }

    fn submit(&self, job: JobFile) -> Result<Submit, Failure> {
        // An array has no single output to watch: its members write to files, as if detached.
        let attached = !self.detach && !self.dry_run && job.array.is_none();
        let environment = environment::of_job(&job, std::env::vars_os())?;
        Ok(Submit {
            environment,
            directory: shell::directory()?,
            umask: shell::umask(),
            limits: shell::limits(),
            terminal: None,
            attached,
            dry_run: self.dry_run,
            job,
        })
    }
}

/// Reads a file that a user names; `-` is standard input.
pub(crate) fn read_text(file: &Path) -> Result<String, Failure> {
    if file != Path::new("-") {
        return read_file(file);
    }
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes).map_err(|error| Failure::file("read", file, &error))?;
    String::from_utf8(bytes).map_err(|error| Failure::not_utf8(file, &error))
}

fn read_file(file: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(file).map_err(|error| Failure::file("read", file, &error))?;
    String::from_utf8(bytes).map_err(|error| Failure::not_utf8(file, &error))
}

fn dry_run(place: &Place, submit: &Submit, format: OneObject) -> Result<Exit, Failure> {
    let object: Box<RawValue> =
        pool::with_client(place, async |mut client| Ok(client.ask(&Ask::post(paths::JOBS, submit)).await?))?;
    format.print(&object, |trial: &Trial| render_trial(trial))?;
    let trial: Trial = serde_json::from_str(object.get())?;
    // A job that waits for machines that are yet to come may be submitted.
    let never = trial.verdict == Verdict::NoFit && !submit.job.wait_for_capacity;
    Ok(if never { Exit::BadData } else { Exit::Success })
}

/// Prints the id, and nothing else, to standard output.
fn detached(place: &Place, submit: &Submit, format: OneObject) -> Result<Exit, Failure> {
    let submitted = pool::with_client(place, async |mut client| send(&mut client, submit).await)?;
    if format.is_json() {
        writeln!(io::stdout(), "{}", serde_json::to_string(&submitted)?)?;
        return Ok(Exit::Success);
    }
    writeln!(io::stdout(), "{}", plain(&submitted.id))?;
    tell_notices(&submitted);
    Ok(Exit::Success)
}

/// Submits an array and waits for all of its members. Ctrl-C cancels them.
fn array(place: &Place, submit: &Submit) -> Result<Exit, Failure> {
    let sockets = place.sockets();
    pool::with_client(place, async |mut client| {
        let submitted = send(&mut client, submit).await?;
        tell_notices(&submitted);
        say(&format!(
            "array job {} with {}; their output goes to files",
            submitted.id,
            count(submitted.members, "member")
        ));
        let mut signals = attached::Signals::new()?;
        let mut told = false;
        loop {
            tokio::select! {
                waited = wait::until_over(&mut client, &submitted.id) => return Ok(wait::exit_of(&waited?)),
                signal = signals.next() => match signal {
                    attached::Told::Hangup => return Ok(Exit::Success),
                    signal if told => return Ok(attached::leave(&submitted.id, signal)),
                    _ => attached::cancel(&sockets, &submitted.id),
                },
            }
            told = true;
            // The wait was cut off in the middle of its answer; the next one needs a new connection.
            pool::reconnect(&mut client).await?;
        }
    })
}

/// Submits. The key makes it safe to ask again when the daemon went away before it answered.
async fn send(client: &mut Client, submit: &Submit) -> Result<Submitted, Failure> {
    let ask = request(submit);
    pool::patiently(client, async |client| client.ask(&ask).await).await
}

fn request(submit: &Submit) -> Ask {
    Ask::post(paths::JOBS, submit).header(paths::IDEMPOTENCY_KEY, shell::fresh_key())
}

fn tell_notices(submitted: &Submitted) {
    for notice in &submitted.notices {
        say(notice);
    }
}

/// Bytes that a writable pipe always has room for: one page (`pipe(7)`).
const SURE_ROOM: usize = 4096;

/// Passes bytes on to standard output unchanged, without blocking the rest of the program while nobody reads them.
pub(crate) async fn write_through(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = write_some(bytes).await?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Writes the first bytes to standard output once it accepts some, and returns how many. Can be dropped and called
/// again without loss.
async fn write_some(bytes: &[u8]) -> io::Result<usize> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    let stdout = rustix::stdio::stdout();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let written = match poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], Some(&at_once)) {
            Ok(0) => Err(Errno::AGAIN),
            Ok(_) => rustix::io::write(stdout, &bytes[..bytes.len().min(SURE_ROOM)]),
            Err(error) => Err(error),
        };
        match written {
            Ok(written) => return Ok(written),
            Err(Errno::AGAIN | Errno::INTR) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) => return Err(error.into()),
        }
    }
}
