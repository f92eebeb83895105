//! `divvy sim import`: the records of other schedulers as a trace.

use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use divvy_sim::import::{Imported, SlurmQueue, Source, import};
use divvy_sim::trace::{TraceError, jobs};
use tempfile::NamedTempFile;

use super::files::{must_differ, write_to};
use super::progress;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  sacct -aP -S 2026-01-01 -o JobID,User,Account,Partition,JobName,Submit,Start,End,Elapsed,ReqTRES,AllocTRES,State > sacct.txt
  divvy sim import slurm sacct.txt --out jobs.csv
  sacct -aP -S 2026-01-01 -o … | divvy sim import slurm - --out jobs.csv
  divvy sim import slurm jan.txt feb.txt.gz --queue account > jobs.csv
  divvy sim import philly cluster_job_log --out jobs.csv
  divvy sim import helios Venus/cluster_log.csv --out jobs.csv";

/// Turn the records of another scheduler into a trace
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Import {
    /// Whose form the files have
    #[arg(value_enum)]
    kind: Kind,
    /// The files, plain or gzipped; several become one trace; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to write the trace; standard output without it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What becomes the queue of a job of Slurm [default: partition]
    #[arg(long, value_enum, value_name = "COLUMN")]
    queue: Option<QueueColumn>,
}

/// Whose form a file has.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// What `sacct -P` prints
    Slurm,
    /// cluster_job_log of Microsoft's Philly traces
    Philly,
    /// cluster_log.csv of SenseTime's Helios traces
    Helios,
    /// A list of pods of Alibaba's cluster-trace-gpu-v2023
    Openb,
}

/// What becomes the queue.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum QueueColumn {
    /// The first partition
    #[default]
    Partition,
    /// The account
    Account,
    /// The quality of service
    Qos,
}

impl Import {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        if self.queue.is_some() && !matches!(self.kind, Kind::Slurm) {
            let what = "--queue says which column of Slurm becomes the queue: no other records have these";
            return Err(Failure::usage(what).fix("leave it out"));
        }
        must_differ(self.files.iter().map(PathBuf::as_path), self.out.as_deref())?;
        let input = self.standard_input()?;
        let input = input.as_ref().map(NamedTempFile::path);
        let spinner = progress::spinner("{spinner} reading, {elapsed}");
        let imported = import(self.source(), &self.paths(input));
        spinner.finish_and_clear();
        let imported = imported.map_err(|error| with_its_name(error, input))?;
        let out = self.out.as_deref();
        write_to(out, |to| Ok(jobs::write(&imported.jobs, to)?))?;
        said(&imported).iter().for_each(|line| say(line));
        Ok(Exit::Success)
    }

    /// A copy of standard input, if it is one of the files. Every source is opened by its path, and what the system calls
    /// /dev/stdin cannot be opened if it is a socket.
    fn standard_input(&self) -> Result<Option<NamedTempFile>, Failure> {
        match self.files.iter().filter(|file| is_standard_input(file)).count() {
            0 => Ok(None),
            1 => copied(&mut io::stdin().lock()).map(Some),
            times => {
                let what = format!("`-` is there {times} times, but standard input can be read only once");
                Err(Failure::usage(what).fix("name the other files by their paths"))
            }
        }
    }

    /// The files, with a path for standard input.
    fn paths(&self, input: Option<&Path>) -> Vec<PathBuf> {
        let path = |file: &PathBuf| input.filter(|_| is_standard_input(file)).unwrap_or(file).to_owned();
        self.files.iter().map(path).collect()
    }

    fn source(&self) -> Source {
        match self.kind {
            Kind::Slurm => Source::Slurm(match self.queue.unwrap_or_default() {
                QueueColumn::Partition => SlurmQueue::Partition,
                QueueColumn::Account => SlurmQueue::Account,
                QueueColumn::Qos => SlurmQueue::Qos,
            }),
            Kind::Philly => Source::Philly,
            Kind::Helios => Source::Helios,
            Kind::Openb => Source::Openb,
        }
    }
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new("-")
}

fn copied(input: &mut impl io::Read) -> Result<NamedTempFile, Failure> {
    let mut file = NamedTempFile::new().map_err(|error| Failure::making(&std::env::temp_dir(), &error))?;
    let copied = io::copy(input, &mut file);
    copied.map_err(|error| {
        let what = format!("cannot copy standard input to {}", file.path().display());
        Failure::new(Exit::Io, what).because(error.to_string())
    })?;
    Ok(file)
}

/// Names standard input in an error that is about its copy.
fn with_its_name(mut error: TraceError, input: Option<&Path>) -> TraceError {
    use TraceError as E;
    let (E::Open { path, .. }
    | E::Read { path, .. }
    | E::NoColumn { path, .. }
    | E::ColumnTwice { path, .. }
    | E::Cell { path, .. }
    | E::Line { path, .. }
    | E::Unsorted { path, .. }
    | E::Duplicate { path, .. }
    | E::NamedAsACopy { path, .. }
    | E::TooManyCopies { path, .. }
    | E::OutOfTime { path, .. }) = &mut error;
    if input == Some(path) {
        *path = "standard input".into();
    }
    error
}

/// The messages besides the trace: nothing that was read is dropped silently.
fn said(imported: &Imported) -> Vec<String> {
    let jobs = |count: usize| if count == 1 { "1 job".into() } else { format!("{count} jobs") };
    let mut lines = vec![jobs(imported.jobs.len())];
    lines.extend(imported.left_out.iter().map(|(why, count)| format!("left out {count} {why}")));
    match imported.steps {
        0 => {}
        1 => lines.push("left out 1 step whose job is not there".into()),
        steps => lines.push(format!("left out {steps} steps whose job is not there")),
    }
    if imported.shares > 0 {
        lines.push(format!("{} with a part of a GPU: a trace counts a whole one", jobs(imported.shares)));
    }
    if imported.recurred > 0 {
        let jobs = jobs(imported.recurred);
        lines.push(format!("{jobs} with an id that was there before: told apart as ID#2, ID#3 and so on"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_files(files: &[&str]) -> Import {
        let files = files.iter().map(PathBuf::from).collect();
        Import { kind: Kind::Helios, files, out: None, queue: None }
    }

    #[test]
    fn all_that_became_no_job_or_another_one_is_counted() {
        let mut imported = Imported { steps: 1, shares: 1, recurred: 1, ..Imported::default() };
        assert_eq!(
            said(&imported),
            [
                "0 jobs",
                "left out 1 step whose job is not there",
                "1 job with a part of a GPU: a trace counts a whole one",
                "1 job with an id that was there before: told apart as ID#2, ID#3 and so on",
            ]
        );
        (imported.steps, imported.recurred) = (2, 2);
        assert_eq!(said(&imported)[1], "left out 2 steps whose job is not there");
        assert!(said(&imported)[3].starts_with("2 jobs with an id"), "{:?}", said(&imported));
    }

    #[test]
    fn standard_input_is_one_of_the_files_and_errors_call_it_so() {
        let copy = copied(&mut "job_id,user\n".as_bytes()).unwrap();
        let (import, input) = (of_files(&["a.csv", "-"]), Some(copy.path()));
        assert_eq!(import.paths(input), [Path::new("a.csv"), copy.path()]);
        let error = divvy_sim::import::import(import.source(), &import.paths(input)[1..]).unwrap_err();
        let told = with_its_name(error, input).to_string();
        assert!(told.starts_with("standard input, line 1: there is no column"), "{told}");
    }

    #[test]
    fn a_column_of_slurm_is_refused_for_other_records() {
        let import = Import { queue: Some(QueueColumn::Account), ..of_files(&["a.csv"]) };
        assert_eq!(import.run().unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn standard_input_is_read_only_once() {
        let refused = of_files(&["-", "a.csv", "-"]).standard_input().unwrap_err();
        assert_eq!(
            refused.render(),
            "divvy: `-` is there 2 times, but standard input can be read only once\n  fix: name the other files by their paths\n"
        );
        assert!(of_files(&["a.csv"]).standard_input().unwrap().is_none());
    }
}
