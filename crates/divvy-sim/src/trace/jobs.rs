//! The jobs of a trace: `job_id,submit_s,gpus,duration_s,queue,user,name,status`, sorted by `submit_s`.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::hash::Hash;
use std::io::Write;
use std::path::{Path, PathBuf};

use siphasher::sip128::{Hasher128, SipHasher13};

use super::decimal::Decimal;
use super::interval::Interval;
use super::table::Column;
use super::{LAST_SECOND, LONGEST_S, MOST_GPUS, Table, TraceError};

/// The columns of the file, in the order in which they are written. The last three may be missing.
pub const COLUMNS: [&str; 8] =
    ["job_id", "submit_s", "gpus", "duration_s", "queue", "user", "name", "status"];

/// What is known of a job when it is submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its name in the trace, unique.
    pub id: String,
    /// When it was submitted.
    pub submit_s: i64,
    /// How many GPUs it needs, all at once.
    pub gpus: u32,
    /// The queue whose entitlement it uses.
    pub queue: String,
    /// Who submitted it; empty where the trace does not say.
    pub user: String,
    /// What it runs; empty where the trace does not say.
    pub name: String,
}

/// What becomes of a job. Only the engine that plays the job, and an oracle, are ever given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    duration_s: i64,
    status: String,
}

/// One row of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// What anyone may know.
    pub arrival: Arrival,
    /// What only time tells.
    pub fate: Fate,
}

impl Fate {
    /// The fate of a job that needs so many seconds of undisturbed work.
    pub(crate) fn new(duration_s: i64, status: String) -> Self {
        Self { duration_s, status }
    }

    /// Seconds of undisturbed work, at least one.
    pub(crate) fn duration_s(&self) -> i64 {
        self.duration_s
    }

    /// How the trace says that the job ended; empty where it does not.
    pub(crate) fn status(&self) -> &str {
        &self.status
    }
}

/// Which of the jobs to read, and when to submit them. The default is every job as it stands.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// Only jobs that the file says were submitted within.
    pub submitted: Interval,
    /// With a rate of 4 twice as many jobs in the same time, with 1 half as many: second s becomes s·2/rate,
    /// truncated to a whole second. The files were made at a rate of 2.
    pub rate: Option<Decimal>,
    /// How many copies of all files are submitted, at least one.
    pub repeat: u32,
    /// How much later each copy is submitted than the one before it.
    pub shift_s: i64,
}

impl Default for Selection {
    fn default() -> Self {
        Self { submitted: Interval::ALL, rate: None, repeat: 1, shift_s: 0 }
    }
}

/// Reads the jobs of one file, one at a time.
pub fn read(path: &Path) -> Result<Jobs, TraceError> {
    merge(&[path.to_owned()], Selection::default())
}

/// Reads the jobs of several files as one trace, by `submit_s`. Among jobs of the same second, those of an earlier
/// copy come first, and then those of an earlier file.
pub fn merge(files: &[PathBuf], selection: Selection) -> Result<Jobs, TraceError> {
    open(files, selection, Some(HashSet::new()))
}

/// The same for callers who know that no name recurs, or check it: nothing is kept of what was read.
pub(crate) fn merge_known(files: &[PathBuf], selection: Selection) -> Result<Jobs, TraceError> {
    open(files, selection, None)
}

fn open(files: &[PathBuf], selection: Selection, seen: Option<HashSet<u128>>) -> Result<Jobs, TraceError> {
    let mut jobs = Jobs {
        files: files.to_vec(),
        selection,
        next_copy: 0,
        streams: Vec::new(),
        heads: BinaryHeap::new(),
        seen,
        failed: false,
    };
    jobs.open_next_copy()?;
    Ok(jobs)
}

/// The jobs of a trace in the order of their submission. After an error there is nothing more.
pub struct Jobs {
    files: Vec<PathBuf>,
    selection: Selection,
    /// Copies are opened when their time comes, so that few files are open at once.
    next_copy: u32,
    /// What is open: copy by copy, and within each the files in their order.
    streams: Vec<Stream>,
    /// The next job of each stream, the earliest on top.
    heads: BinaryHeap<Reverse<Head>>,
    /// Hashes of the names so far, if names are checked: one false alarm in 10^20 for a billion jobs.
    seen: Option<HashSet<u128>>,
    failed: bool,
}

/// The next job of a stream; only time and stream decide the order.
struct Head {
    stream: usize,
    row: Row,
}

impl Head {
    fn key(&self) -> (i64, usize) {
        (self.row.job.arrival.submit_s, self.stream)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Iterator for Jobs {
    type Item = Result<TraceJob, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.take().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

impl Jobs {
    fn take(&mut self) -> Result<Option<TraceJob>, TraceError> {
        self.open_due_copies()?;
        let Some(Reverse(Head { stream, row })) = self.heads.pop() else { return Ok(None) };
        self.refill(stream)?;
        let Row { job, line } = row;
        let recurs = |seen: &mut HashSet<u128>| !seen.insert(fingerprint(&job.arrival.id));
        if self.seen.as_mut().is_some_and(recurs) {
            let path = self.files[self.streams[stream].file].clone();
            let found = job.arrival.id;
            let is_copy = self.selection.repeat > 1 && is_named_as_a_copy(&found);
            return Err(match is_copy {
                true => TraceError::NamedAsACopy { path, line, found },
                false => TraceError::Duplicate { path, line, column: COLUMNS[0], found },
            });
        }
        Ok(Some(job))
    }

    /// Opens every copy that may hold a job not later than the earliest known: no job of copy k is submitted before
    /// k shifts.
    fn open_due_copies(&mut self) -> Result<(), TraceError> {
        while self.next_copy < self.selection.repeat.max(1) {
            let earliest_s = self.selection.shift_of(self.next_copy);
            let head_s = self.heads.peek().map(|Reverse(head)| head.row.job.arrival.submit_s);
            if head_s.is_some_and(|head_s| i128::from(head_s) < earliest_s) {
                break;
            }
            self.open_next_copy()?;
        }
        Ok(())
    }

    fn open_next_copy(&mut self) -> Result<(), TraceError> {
        let copy = self.next_copy;
        self.next_copy += 1;
        for file in 0..self.files.len() {
            let rows = Some(Rows::open(&self.files[file]).map_err(|error| too_many(error, copy))?);
            self.streams.push(Stream { file, copy, rows });
            self.refill(self.streams.len() - 1)?;
        }
        Ok(())
    }

    /// Reads the next wanted job of a stream, and closes the file after the last.
    fn refill(&mut self, at: usize) -> Result<(), TraceError> {
        let stream = &mut self.streams[at];
        while let Some(rows) = &mut stream.rows {
            let Some(mut row) = rows.next_row()? else {
                stream.rows = None;
                break;
            };
            if !self.selection.submitted.contains(row.job.arrival.submit_s) {
                continue;
            }
            let arrival = &mut row.job.arrival;
            let path = &self.files[stream.file];
            let late = || TraceError::OutOfTime { path: path.clone(), line: row.line };
            arrival.submit_s = self.selection.moved(arrival.submit_s, stream.copy).ok_or_else(late)?;
            if stream.copy > 0 {
                arrival.id = format!("{}~{}", arrival.id, stream.copy);
            }
            self.heads.push(Reverse(Head { stream: at, row }));
            break;
        }
        Ok(())
    }
}

impl Selection {
    fn shift_of(&self, copy: u32) -> i128 {
        i128::from(copy) * i128::from(self.shift_s)
    }

    /// When a job is submitted whose file says `submit_s`; `None` beyond the end of time.
    fn moved(&self, submit_s: i64, copy: u32) -> Option<i64> {
        let at_rate = self.rate.map_or(i128::from(submit_s), |rate| rate.divides(2 * submit_s));
        let moved = at_rate + self.shift_of(copy);
        i64::try_from(moved).ok().filter(|moved| (0..=LAST_SECOND).contains(moved))
    }
}

/// Says what can be done if no more files can be opened because copies are.
pub(super) fn too_many(error: TraceError, copy: u32) -> TraceError {
    /// EMFILE of Linux.
    const TOO_MANY_OPEN_FILES: i32 = 24;
    match error {
        TraceError::Open { path, source }
            if copy > 0 && source.raw_os_error() == Some(TOO_MANY_OPEN_FILES) =>
        {
            TraceError::TooManyCopies { path, copy }
        }
        other => other,
    }
}

fn is_named_as_a_copy(id: &str) -> bool {
    let copy = id.rsplit_once('~').map_or("", |(_, copy)| copy);
    !copy.is_empty() && copy.bytes().all(|byte| byte.is_ascii_digit())
}

fn fingerprint(id: &str) -> u128 {
    let mut hasher = SipHasher13::new();
    id.hash(&mut hasher);
    hasher.finish128().as_u128()
}

/// One copy of one file; closed once it is read to its end.
struct Stream {
    file: usize,
    copy: u32,
    rows: Option<Rows>,
}

/// A job with the line that it stands in.
struct Row {
    job: TraceJob,
    line: u64,
}

/// The rows of one file.
struct Rows {
    table: Table,
    columns: [Column; 5],
    optional: [Option<Column>; 3],
    before_s: i64,
}

impl Rows {
    fn open(path: &Path) -> Result<Self, TraceError> {
        let table = Table::open(path)?;
        let [required @ .., user, name, status] = COLUMNS;
        let columns = table.columns(required)?;
        let optional = [table.column(user)?, table.column(name)?, table.column(status)?];
        Ok(Self { table, columns, optional, before_s: 0 })
    }

    fn next_row(&mut self) -> Result<Option<Row>, TraceError> {
        if !self.table.advance()? {
            return Ok(None);
        }
        let job = self.job()?;
        let (submit_s, before_s) = (job.arrival.submit_s, self.before_s);
        if submit_s < before_s {
            let (path, line) = self.table.place();
            return Err(TraceError::Unsorted { path, line, submit_s, before_s });
        }
        self.before_s = submit_s;
        Ok(Some(Row { job, line: self.table.line() }))
    }

    fn job(&self) -> Result<TraceJob, TraceError> {
        let table = &self.table;
        let [id, submit_s, gpus, duration_s, queue] = self.columns;
        let [user, name, status] = self.optional.map(|column| match column {
            Some(column) => table.text(column).to_owned(),
            None => String::new(),
        });
        let seconds = "a whole number of seconds";
        let arrival = Arrival {
            id: table.name(id)?,
            submit_s: table.whole(submit_s, 0..=LAST_SECOND, seconds)?,
            gpus: table.whole(gpus, 1..=i64::from(MOST_GPUS), "a whole number of GPUs")? as u32,
            queue: table.name(queue)?,
            user,
            name,
        };
        let duration_s = table.whole(duration_s, 1..=LONGEST_S, seconds)?;
        Ok(TraceJob { arrival, fate: Fate::new(duration_s, status) })
    }
}

/// Writes jobs so that [`read`] reads them back.
pub fn write<J: Borrow<TraceJob>>(
    jobs: impl IntoIterator<Item = J>,
    to: impl Write,
) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(to);
    writer.write_record(COLUMNS)?;
    for job in jobs {
        let TraceJob { arrival, fate } = job.borrow();
        let Arrival { id, submit_s, gpus, queue, user, name } = arrival;
        let numbers = [*submit_s, i64::from(*gpus), fate.duration_s()].map(|number| number.to_string());
        let [submit_s, gpus, duration_s] = &numbers;
        writer.write_record([id, submit_s, gpus, duration_s, queue, user, name, fate.status()])?;
    }
    Ok(writer.flush()?)
}
