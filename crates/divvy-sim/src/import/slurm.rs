//! Slurm's accounting: what `sacct -P` prints.

mod ledger;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use divvy_core::time::Span;

use self::ledger::{Ledger, Run};
use super::{Records, civil};
use crate::trace::{LONGEST_RECORD, LONGEST_S, MOST_GPUS, TraceError, open_unbounded, quoted};

/// Which column becomes the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlurmQueue {
    /// The first of the partitions.
    #[default]
    Partition,
    /// The account.
    Account,
    /// The quality of service.
    Qos,
}

impl SlurmQueue {
    fn column(self) -> &'static str {
        match self {
            Self::Partition => "Partition",
            Self::Account => "Account",
            Self::Qos => "QOS",
        }
    }
}

/// Reads files as one: monthly exports may overlap, and a requeued job has several lines.
pub(super) fn read(files: &[PathBuf], queue: SlurmQueue, records: &mut Records) -> Result<(), TraceError> {
    let mut ledger = Ledger::default();
    for file in files {
        Lines::open(file, queue)?.read_into(&mut ledger)?;
    }
    ledger.into_records(records);
    Ok(())
}

/// One file, line by line.
struct Lines {
    path: PathBuf,
    text: BufReader<Box<dyn Read + Send>>,
    line: u64,
    header: Vec<String>,
    columns: Columns,
}

/// Where the columns that matter are.
#[derive(Clone, Copy)]
struct Columns {
    id: usize,
    submit: usize,
    elapsed: Elapsed,
    queue: usize,
    state: usize,
    /// Allocated, then requested.
    tres: [Option<usize>; 2],
    start: Option<usize>,
    end: Option<usize>,
    user: Option<usize>,
    name: Option<usize>,
}

#[derive(Clone, Copy)]
enum Elapsed {
    Seconds(usize),
    Clock(usize),
}

impl Elapsed {
    fn place(self) -> usize {
        let (Self::Seconds(at) | Self::Clock(at)) = self;
        at
    }

    fn column(self) -> &'static str {
        match self {
            Self::Seconds(_) => "ElapsedRaw",
            Self::Clock(_) => "Elapsed",
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Seconds(_) => "a whole number of seconds",
            Self::Clock(_) => "a time like 1-02:03:04 or 03:04",
        }
    }
}

impl Lines {
    fn open(path: &Path, queue: SlurmQueue) -> Result<Self, TraceError> {
        let text = BufReader::new(open_unbounded(path)?);
        let columns = Columns {
            id: 0,
            submit: 0,
            elapsed: Elapsed::Clock(0),
            queue: 0,
            state: 0,
            tres: [None; 2],
            start: None,
            end: None,
            user: None,
            name: None,
        };
        let mut lines = Self { path: path.to_owned(), text, line: 0, header: Vec::new(), columns };
        let header = lines.next_line()?.unwrap_or_default();
        lines.header = header.split('|').map(|column| column.trim().to_owned()).collect();
        lines.columns = lines.find_columns(queue)?;
        Ok(lines)
    }

    fn find_columns(&self, queue: SlurmQueue) -> Result<Columns, TraceError> {
        let find = |name: &'static str| self.place(name);
        let need = |name: &'static str| find(name)?.ok_or_else(|| self.no_column(name, queue));
        let elapsed = match find("ElapsedRaw")? {
            Some(at) => Elapsed::Seconds(at),
            None => Elapsed::Clock(need("Elapsed")?),
        };
        let tres = [find("AllocTRES")?, find("ReqTRES")?];
        if tres == [None; 2] {
            need("AllocTRES")?;
        }
        Ok(Columns {
            id: need("JobID")?,
            submit: need("Submit")?,
            elapsed,
            queue: need(queue.column())?,
            state: need("State")?,
            tres,
            start: find("Start")?,
            end: find("End")?,
            user: find("User")?,
            name: find("JobName")?,
        })
    }

    /// Returns where a column is, if anywhere. Two of one name are an error: it is unclear which is meant.
    fn place(&self, column: &'static str) -> Result<Option<usize>, TraceError> {
        let mut places = self.header.iter().enumerate().filter(|(_, there)| *there == column);
        let (first, second) = (places.next(), places.next());
        match first.zip(second) {
            None => Ok(first.map(|(at, _)| at)),
            Some(((first, _), (second, _))) => {
                let (path, line) = (self.path.clone(), self.line);
                Err(TraceError::ColumnTwice { path, line, column, first: first + 1, second: second + 1 })
            }
        }
    }

    fn no_column(&self, column: &'static str, queue: SlurmQueue) -> TraceError {
        let expected =
            format!("JobID,Submit,State,{},Elapsed or ElapsedRaw,AllocTRES or ReqTRES", queue.column());
        let found = quoted(&self.header.join("|"));
        TraceError::NoColumn { path: self.path.clone(), line: 1, column, found, expected }
    }

    fn read_into(mut self, ledger: &mut Ledger) -> Result<(), TraceError> {
        while let Some(line) = self.next_line()? {
            let cells: Vec<&str> = line.split('|').collect();
            // Outputs that were put one after the other repeat the header.
            if line.trim().is_empty() || cells.iter().map(|cell| cell.trim()).eq(&self.header) {
                continue;
            }
            self.note(&self.cells(cells)?, ledger)?;
        }
        Ok(())
    }

    /// The next line without its end, of bounded length.
    fn next_line(&mut self) -> Result<Option<String>, TraceError> {
        let mut bytes = Vec::new();
        let read = self.text.by_ref().take(LONGEST_RECORD).read_until(b'\n', &mut bytes);
        let path = || self.path.clone();
        let count = read.map_err(|source| TraceError::Read { path: path(), line: self.line, source })?;
        if count == 0 {
            return Ok(None);
        }
        self.line += 1;
        let line = self.line;
        if count as u64 == LONGEST_RECORD {
            let what = "the line is longer than 4 MiB; expected what sacct -P prints".into();
            return Err(TraceError::Line { path: path(), line, what });
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']).trim_start_matches('\u{feff}');
        Ok(Some(text.to_owned()))
    }

    /// The cells of a line, as many as the header has: sacct does not escape a `|` in the name of a job.
    fn cells(&self, mut cells: Vec<&str>) -> Result<Vec<String>, TraceError> {
        let (count, expected) = (cells.len(), self.header.len());
        let name = match self.columns.name {
            _ if count == expected => {
                return Ok(cells.into_iter().map(|cell| cell.trim().to_owned()).collect());
            }
            Some(name) if count > expected => name,
            _ => {
                let there = if count == 1 { "is 1 cell".into() } else { format!("are {count} cells") };
                let what = format!("there {there}; expected {expected}, as in the header");
                return Err(self.wrong(what));
            }
        };
        let after = cells.split_off(name + 1 + count - expected);
        let whole_name = cells.split_off(name).join("|");
        let all = cells.into_iter().chain([whole_name.as_str()]).chain(after);
        Ok(all.map(|cell| cell.trim().to_owned()).collect())
    }

    fn note(&self, cells: &[String], ledger: &mut Ledger) -> Result<(), TraceError> {
        let id = cells[self.columns.id].as_str();
        // Steps, like 7.batch and 7.0, are parts of a job that has a line of its own.
        if id.contains('.') {
            ledger.note_step(id);
            return Ok(());
        }
        let (job, component) = id.split_once('+').unwrap_or((id, ""));
        if job.trim().is_empty() {
            return Err(self.cell("JobID", id, "the id of a job, like 7 or 7_1"));
        }
        let run = self.run(component, cells)?;
        ledger.note(job.trim_end(), run);
        Ok(())
    }

    fn run(&self, component: &str, cells: &[String]) -> Result<Run, TraceError> {
        let columns = &self.columns;
        let state = state(&cells[columns.state]);
        let there = |at: Option<usize>| at.is_none_or(|at| !civil::is_none(&cells[at]));
        let elapsed_s = self.elapsed(cells)?;
        let gpus = self.gpus(cells)?;
        let waits = matches!(state, "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "CANCELLED");
        let runs =
            matches!(state, "RUNNING" | "SUSPENDED" | "COMPLETING" | "STOPPED" | "RESIZING" | "SIGNALING");
        let never = waits && elapsed_s.unwrap_or(0) == 0 && self.says_never(cells, elapsed_s.is_some());
        let started = there(columns.start) && !never && state != "PENDING";
        let ended = there(columns.end) && !runs;
        let elapsed_s = match elapsed_s {
            Some(elapsed_s) => elapsed_s,
            // The job will be left out, so its duration does not matter.
            None if (waits || runs) && !(started && ended) => 0,
            None => self.start_to_end(cells)?,
        };
        let submit_s = match civil::is_none(&cells[columns.submit]) {
            true => None,
            false => Some(self.time(cells, columns.submit, "Submit")?),
        };
        let told = |at: Option<usize>| at.map_or("", |at| cells[at].as_str());
        let from_s = civil::seconds(told(columns.start)).or(submit_s);
        Ok(Run {
            component: component.to_owned(),
            submit_s,
            start: told(columns.start).to_owned(),
            until_s: civil::seconds(told(columns.end)).or(from_s.map(|from_s| from_s + elapsed_s)),
            gpus,
            elapsed_s,
            started,
            ended,
            queue: cells[columns.queue].split(',').next().unwrap_or_default().to_owned(),
            user: told(columns.user).to_owned(),
            name: told(columns.name).to_owned(),
            status: state.to_owned(),
        })
    }

    /// Whether the line of a job that took no time says that it never started: a job cancelled while it waited is said to have
    /// started when it ended, with nothing.
    fn says_never(&self, cells: &[String], has_elapsed: bool) -> bool {
        let Columns { start, end, tres: [allocated, _], .. } = self.columns;
        let Some(start) = start else { return has_elapsed };
        let had_nothing = allocated.is_none_or(|at| civil::is_none(&cells[at]));
        had_nothing && end.is_some_and(|end| cells[end] == cells[start])
    }

    /// The GPUs that were allocated or, where the line does not say, requested.
    fn gpus(&self, cells: &[String]) -> Result<u32, TraceError> {
        for (at, column) in self.columns.tres.iter().zip(["AllocTRES", "ReqTRES"]) {
            let Some(list) = at.map(|at| cells[at].as_str()).filter(|list| !list.is_empty()) else {
                continue;
            };
            let expected = "a list like cpu=8,gres/gpu=4, with a whole number of GPUs up to 1000000";
            return gpus(list).ok_or_else(|| self.cell(column, list, expected));
        }
        Ok(0)
    }

    /// The seconds that a job took, if the line says so.
    fn elapsed(&self, cells: &[String]) -> Result<Option<i64>, TraceError> {
        let elapsed = self.columns.elapsed;
        let text = cells[elapsed.place()].as_str();
        if civil::is_none(text) {
            return Ok(None);
        }
        let seconds = match elapsed {
            Elapsed::Seconds(_) => text.parse().ok(),
            Elapsed::Clock(_) => clock(text),
        };
        let seconds = seconds.filter(|seconds| (0..=LONGEST_S).contains(seconds));
        seconds.map(Some).ok_or_else(|| self.cell(elapsed.column(), text, elapsed.expected()))
    }

    /// The duration of a job whose line says only when it started and ended.
    fn start_to_end(&self, cells: &[String]) -> Result<i64, TraceError> {
        let known = |at: Option<usize>| at.filter(|at| !civil::is_none(&cells[*at]));
        let Some((start, end)) = known(self.columns.start).zip(known(self.columns.end)) else {
            let elapsed = self.columns.elapsed;
            let expected = format!("{}, nor are Start and End there to tell it", elapsed.expected());
            return Err(self.cell(elapsed.column(), &cells[elapsed.place()], &expected));
        };
        let seconds = self.time(cells, end, "End")? - self.time(cells, start, "Start")?;
        let expected = "a time after Start, by a hundred years at most";
        let seconds = Some(seconds).filter(|seconds| (0..=LONGEST_S).contains(seconds));
        seconds.ok_or_else(|| self.cell("End", &cells[end], expected))
    }

    fn time(&self, cells: &[String], at: usize, column: &'static str) -> Result<i64, TraceError> {
        civil::seconds(&cells[at]).ok_or_else(|| self.cell(column, &cells[at], civil::EXPECTED))
    }

    fn cell(&self, column: &'static str, found: &str, expected: &str) -> TraceError {
        let (path, line) = (self.path.clone(), self.line);
        TraceError::Cell { path, line, column, found: found.into(), expected: expected.into() }
    }

    fn wrong(&self, what: String) -> TraceError {
        TraceError::Line { path: self.path.clone(), line: self.line, what }
    }
}

/// The first word of a state: `CANCELLED` for `CANCELLED by 1000`.
fn state(cell: &str) -> &str {
    cell.split_whitespace().next().unwrap_or_default()
}

/// Seconds of a time like `1-02:03:04`. sacct's manual gives it as `[DD-[HH:]]MM:SS`: the hours may be missing.
fn clock(text: &str) -> Option<i64> {
    let (days, rest) = text.split_at(text.find('-').map_or(0, |dash| dash + 1));
    let hours = if rest.matches(':').count() == 1 { "00:" } else { "" };
    let span: Span = format!("{days}{hours}{rest}").parse().ok()?;
    Some(span.0 / 1000)
}

/// The GPUs of a list like `billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G`: the total where it is given, else
/// the sum over models; `None` where it is no number, or more than any job has.
fn gpus(list: &str) -> Option<u32> {
    let (mut total, mut by_model) = (None, 0u32);
    for (name, count) in list.split(',').filter_map(|entry| entry.split_once('=')) {
        let count = || count.trim().parse::<u32>().ok();
        match name.trim() {
            "gres/gpu" => total = Some(count()?),
            name if name.starts_with("gres/gpu:") => by_model = by_model.saturating_add(count()?),
            _ => {}
        }
    }
    Some(total.unwrap_or(by_model)).filter(|gpus| *gpus <= MOST_GPUS)
}
