//! Staying with a job: its output to standard output, what it waits for to standard error, its exit code in the end.

use std::io::IsTerminal;
use std::time::Duration;

use divvy_api::attach::{Frame, Progress};
use divvy_api::client::{Ask, FrameStream};
use divvy_api::{Cause, Client, ClientError, JobState, Sockets, Submit, Waited, paths};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;

use super::gang::{self, Lines};
use super::pty::{News, Terminal};
use super::{request, tell_notices, write_some};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::say;
use crate::pool::{self, Place};
use crate::verbs::change::change;
use crate::verbs::ps::over_in_short;
use crate::verbs::wait::exit_of;

/// Submits a job and stays with it until it is over.
pub(super) fn run(place: &Place, mut submit: Submit, pty: bool) -> Result<Exit, Failure> {
    let sockets = place.sockets();
    pool::runtime()?.block_on(async {
        let mut terminal = if pty { Some(Terminal::listen()?) } else { None };
        submit.terminal = terminal.as_ref().map(Terminal::address).transpose()?;
        let mut signals = Signals::new()?;
        let client = Client::connect(&sockets).await?;
        let (mut watch, told) = begin(client, &submit, &mut signals).await?;
        let tasks = gang::most_tasks(&submit.job);
        if tasks > 1 && !pty {
            watch.first = Some(Lines::of(0));
            watch.others = Some(gang::others(&sockets, &watch.id, tasks));
        }
        // A signal that came before the answer takes effect now that the job is known.
        match told.and_then(|told| watch.obey(told, &sockets)) {
            Some(exit) => Ok(exit),
            None => watch.until_over(&sockets, &mut signals, terminal.as_mut()).await,
        }
    })
}

/// How long a signal waits for the answer that says which job it is about.
const ANSWER_AFTER_SIGNAL: Duration = Duration::from_secs(2);

/// Submits, and returns the signal that came meanwhile, if one did: the job may run already.
async fn begin(
    client: Client,
    submit: &Submit,
    signals: &mut Signals,
) -> Result<(Watch, Option<Told>), Failure> {
    let mut begin = std::pin::pin!(Watch::begin(client, submit));
    let told = tokio::select! {
        watch = &mut begin => return Ok((watch?, None)),
        told = signals.next() => told,
    };
    match tokio::time::timeout(ANSWER_AFTER_SIGNAL, begin).await {
        Ok(watch) => Ok((watch?, Some(told))),
        Err(_) => Err(left_early(told)),
    }
}

fn left_early(signal: Told) -> Failure {
    Failure::new(signal.exit(), "left before the daemon had answered; the job may be in its queue")
        .fix("look with `divvy ps`")
}

/// What a signal tells this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Ctrl-C.
    Interrupt,
    /// `kill`.
    Terminate,
    /// The terminal is gone.
    Hangup,
}

impl Told {
    fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::of_signal(2),
            Self::Terminate => Exit::of_signal(15),
            Self::Hangup => Exit::of_signal(1),
        }
    }
}

/// The signals that this process handles.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Begins to listen for them.
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::Interrupt,
            _ = self.terminate.recv() => Told::Terminate,
            _ = self.hangup.recv() => Told::Hangup,
        }
    }
}

/// Cancels a job on a separate connection: the first one is busy with the output.
pub(super) fn cancel(sockets: &Sockets, id: &str) {
    say(&format!("cancelling job {id}; once more leaves at once"));
    let (sockets, id) = (sockets.clone(), id.to_owned());
    tokio::spawn(async move {
        let cancelled = async {
            let mut client = Client::connect(&sockets).await?;
            change(&mut client, &id, "cancel").await
        };
        if let Err(failure) = cancelled.await {
            failure.report();
        }
    });
}

/// Leaves although the job may still be stopping.
pub(super) fn leave(id: &str, told: Told) -> Exit {
    say(&format!("left; job {id} may still be stopping: divvy wait {id}"));
    told.exit()
}

/// A job that is being watched.
struct Watch {
    client: Client,
    frames: FrameStream,
    id: String,
    /// Output that has not been passed on yet.
    pending: Vec<u8>,
    /// Bytes of output that have arrived.
    seen_bytes: u64,
    /// The lines of a gang's first task.
    first: Option<Lines>,
    /// The lines of its other tasks, as long as there may be more.
    others: Option<Receiver<Vec<u8>>>,
    /// How the job ended.
    ended: Option<Waited>,
    /// The first signal that asked for the job's end.
    cancelled: Option<Told>,
    /// The last message about its wait.
    said: Option<String>,
    /// Whether a person reads standard error.
    person: bool,
}

impl Watch {
    /// Submits. If the daemon goes away before it answers, a retry with the same key does not submit twice.
    async fn begin(mut client: Client, submit: &Submit) -> Result<Self, Failure> {
        let ask = request(submit);
        let first = pool::patiently(&mut client, async |client| first_frame(client, &ask).await);
        let (frames, submitted) = first.await?;
        tell_notices(&submitted);
        let person = std::io::stderr().is_terminal();
        Ok(Self {
            client,
            frames,
            id: submitted.id,
            pending: Vec::new(),
            seen_bytes: 0,
            first: None,
            others: None,
            ended: None,
            cancelled: None,
            said: None,
            person,
        })
    }

    async fn until_over(
        &mut self,
        sockets: &Sockets,
        signals: &mut Signals,
        mut terminal: Option<&mut Terminal>,
    ) -> Result<Exit, Failure> {
        loop {
            if let (Some(waited), None, true) = (&self.ended, &self.others, self.pending.is_empty()) {
                return Ok(self.over(waited, terminal).await);
            }
            // Each branch can be dropped without loss; what has arrived is handled below.
            tokio::select! {
                frame = self.frames.next(), if self.pending.is_empty() && self.ended.is_none() => {
                    self.take(frame, terminal.is_some()).await?;
                }
                lines = next_lines(&mut self.others), if self.pending.is_empty() => match lines {
                    Some(lines) => self.pending = lines,
                    None => self.others = None,
                },
                written = write_some(&self.pending), if !self.pending.is_empty() => match written {
                    Ok(written) => drop(self.pending.drain(..written)),
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(self.unread()),
                    Err(error) => return Err(error.into()),
                },
                told = signals.next() => {
                    if let Some(exit) = self.obey(told, sockets) {
                        return Ok(exit);
                    }
                }
                news = news(&mut terminal) => {
                    if let Some(terminal) = &mut terminal {
                        terminal.take(news?).await?;
                    }
                }
            }
        }
    }

    /// Cancels at the first signal and leaves at the second. A lost terminal only detaches.
    fn obey(&mut self, told: Told, sockets: &Sockets) -> Option<Exit> {
        match (told, self.cancelled) {
            (Told::Hangup, _) => Some(Exit::Success),
            (told, Some(_)) => Some(leave(&self.id, told)),
            (told, None) => {
                self.cancelled = Some(told);
                cancel(sockets, &self.id);
                None
            }
        }
    }

    /// Handles a frame. The last one says how the job ended.
    async fn take(&mut self, frame: Result<Option<Frame>, ClientError>, pty: bool) -> Result<(), Failure> {
        match frame {
            Ok(Some(Frame::Output(bytes))) => {
                self.seen_bytes += bytes.len() as u64;
                // With a terminal of its own, the output has already arrived there.
                if !pty {
                    self.pending = match &mut self.first {
                        Some(lines) => lines.take(&bytes),
                        None => bytes,
                    };
                }
            }
            Ok(Some(Frame::Progress(progress))) => self.tell(&progress),
            Ok(Some(Frame::Ended(waited))) => {
                self.pending = self.first.as_mut().map(Lines::finish).unwrap_or_default();
                self.ended = Some(waited);
            }
            Ok(Some(Frame::Submitted(_))) => {}
            // The daemon is restarting. The job runs on, and watching resumes where it stopped.
            Ok(None) | Err(ClientError::Broken { .. }) => self.resume().await?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        if self.person {
            say(&format!("the daemon is away; job {} runs on without it", self.id));
        }
        let path =
            paths::with_query(&paths::attach(&self.id), &[("from", Some(self.seen_bytes.to_string()))]);
        let ask = Ask::get(path);
        let bytes = pool::patiently(&mut self.client, async |client| client.stream(&ask).await).await?;
        self.frames = FrameStream::new(bytes);
        Ok(())
    }

    /// Says once what the job waits for, and that it runs if it had waited.
    fn tell(&mut self, progress: &Progress) {
        if !self.person {
            return;
        }
        let text = match (&progress.state, &progress.reason) {
            (JobState::Pending | JobState::Held, Some(reason)) => {
                let place =
                    progress.position.map(|place| format!(", place {place} in line")).unwrap_or_default();
                format!("waits: {}: {}{place}", reason.code, reason.text)
            }
            (JobState::Running, _) if self.said.is_some() => format!("runs on {}", progress.nodes.join(", ")),
            _ => return,
        };
        if self.said.as_ref() != Some(&text) {
            say(&format!("job {} {text}", self.id));
            self.said = Some(text);
        }
    }

    async fn over(&self, waited: &Waited, terminal: Option<&mut Terminal>) -> Exit {
        if let Some(terminal) = terminal {
            terminal.finish().await;
        }
        let own_doing =
            waited.last_end.as_ref().is_none_or(|end| end.cause == Cause::Exit && end.detail.is_none());
        if waited.state != JobState::Completed && !own_doing {
            let end = waited.last_end.as_ref();
            let short = end.map(|end| over_in_short(end, waited.exit_code)).unwrap_or_default();
            let detail =
                end.and_then(|end| end.detail.as_ref()).map(|text| format!(": {text}")).unwrap_or_default();
            say(&format!("job {} {}: {short}{detail}", self.id, waited.state));
        }
        // The code is that of the first task to fail, which need not be task 0.
        if let Some(task) = waited.failed_task.filter(|task| *task > 0 && waited.state != JobState::Completed)
        {
            say(&format!("task {task} failed: divvy logs --task {task} {}", self.id));
        }
        match (self.cancelled, &waited.state, waited.exit_code, waited.signal) {
            (Some(told), JobState::Cancelled, None, None) => told.exit(),
            _ => exit_of(waited),
        }
    }

    fn unread(&self) -> Exit {
        let id = &self.id;
        say(&format!(
            "nobody reads the output any more; job {id} runs on: divvy logs {id}, divvy cancel {id}"
        ));
        Exit::Success
    }
}

async fn first_frame(
    client: &mut Client,
    ask: &Ask,
) -> Result<(FrameStream, divvy_api::Submitted), ClientError> {
    let mut frames = FrameStream::new(client.stream(ask).await?);
    loop {
        match frames.next().await? {
            Some(Frame::Submitted(submitted)) => return Ok((frames, submitted)),
            Some(_) => {}
            None => {
                let what = "it ended before it said which job it is".into();
                return Err(ClientError::Answer { path: paths::JOBS.into(), what });
            }
        }
    }
}

/// The next lines of other tasks, if there are others.
async fn next_lines(others: &mut Option<Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match others {
        Some(others) => others.recv().await,
        None => std::future::pending().await,
    }
}

/// The next news from the terminal, if there is a terminal.
async fn news(terminal: &mut Option<&mut Terminal>) -> Result<News, Failure> {
    match terminal {
        Some(terminal) => terminal.news().await,
        None => std::future::pending().await,
    }
}
