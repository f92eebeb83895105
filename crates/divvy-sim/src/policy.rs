//! The policies by their names: settings of the core, and how job lengths are estimated. None is code of the simulator's own.

use std::fmt;
use std::str::FromStr;
use std::string::FromUtf8Error;

use divvy_core::model::policy::{
    self, Attained, BadPolicy, Length, Order, Policy, Preempt, Shortest, Within,
};

/// What a policy may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// GPUs, queue, submit time and what the job has done so far.
    N,
    /// That and the history of jobs that have finished.
    P,
    /// Every duration: an oracle, for bounds only.
    C,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::N => "N",
            Class::P => "P",
            Class::C => "C",
        })
    }
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// First in, first out; the first job that does not fit keeps back the rest.
    Fifo,
    /// First in, first out, passing over jobs that do not fit.
    FifoScan,
    /// The shortest first, by an oracle.
    Sjf,
    /// The least remaining time first, preemptive, by an oracle.
    Srtf,
    /// The least remaining device-time first, preemptive, by an oracle.
    Srsf,
    /// Least attained service in two levels and a queue each (Tiresias, NSDI 2019).
    Las,
    /// Levels of attained service that grow fourfold; within a level, by submission.
    Mlfq,
    /// The least device-time first, estimated from how long similar jobs ran.
    Hist,
    /// The least remaining device-time first, preemptive, with the same estimate.
    HistSrsf,
    /// Guarantees first, then by submission.
    QuotaFifo,
    /// Guarantees first, then the least remaining time, by an oracle.
    QuotaSrtf,
    /// Guarantees first, then by levels of attained service.
    QuotaMlfq,
    /// Divvy's own default.
    Divvy,
    /// The same with the history of finished jobs.
    DivvyHistory,
}

/// All of them with their names.
const NAMES: [(&str, Named); 14] = [
    ("fifo", Named::Fifo),
    ("fifo-scan", Named::FifoScan),
    ("sjf", Named::Sjf),
    ("srtf", Named::Srtf),
    ("srsf", Named::Srsf),
    ("las", Named::Las),
    ("mlfq", Named::Mlfq),
    ("hist", Named::Hist),
    ("hist-srsf", Named::HistSrsf),
    ("quota-fifo", Named::QuotaFifo),
    ("quota-srtf", Named::QuotaSrtf),
    ("quota-mlfq", Named::QuotaMlfq),
    ("divvy", Named::Divvy),
    ("divvy-history", Named::DivvyHistory),
];

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name:?}; there are: {}", names().collect::<Vec<_>>().join(", "))]
pub struct NoSuchPolicy {
    name: String,
}

/// The names of all policies.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// Returns the names of those that know no more than a pool does.
pub fn names_of_class_n() -> impl Iterator<Item = &'static str> {
    NAMES.iter().filter(|(_, policy)| policy.class() == Class::N).map(|(name, _)| *name)
}

impl FromStr for Named {
    type Err = NoSuchPolicy;

    fn from_str(text: &str) -> Result<Self, NoSuchPolicy> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, policy)| *policy).ok_or_else(|| NoSuchPolicy { name: text.chars().take(40).collect() })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = NAMES.iter().find(|(_, policy)| policy == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

/// The file of Divvy's own default, which a pool uses unless told otherwise.
const OWN: &str = include_str!("../policies/divvy.yaml");

impl Named {
    /// What it may know.
    pub fn class(self) -> Class {
        match self {
            Self::Sjf | Self::Srtf | Self::Srsf | Self::QuotaSrtf => Class::C,
            Self::Hist | Self::HistSrsf | Self::DivvyHistory => Class::P,
            _ => Class::N,
        }
    }

    /// Returns whether it comes from the literature: then its own rules choose the victims.
    pub fn is_reference(self) -> bool {
        !matches!(self, Self::Divvy | Self::DivvyHistory)
    }

    /// Returns the settings of the planner for this policy.
    pub fn settings(self) -> Policy {
        let order = |order| Policy { order, ..Policy::one_line() };
        let walk = |policy| Policy { preempt: Preempt::Walk, ..policy };
        let quota = |policy| Policy { guarantees_first: true, ..walk(policy) };
        let shortest =
            |of, by_devices| Policy { shortest: Shortest { of, by_devices }, ..order(Order::Shortest) };
        match self {
            Self::Fifo => Policy { strict: true, ..Policy::one_line() },
            Self::FifoScan => Policy::one_line(),
            Self::Sjf => Policy { strict: true, ..shortest(Length::Whole, false) },
            Self::Srtf => walk(shortest(Length::Remaining, false)),
            Self::Srsf => walk(shortest(Length::Remaining, true)),
            Self::Las => walk(levels(&[3250, 7200], Within::Turn)),
            Self::Mlfq => walk(mlfq()),
            Self::Hist => shortest(Length::Whole, true),
            Self::HistSrsf => walk(shortest(Length::Remaining, true)),
            Self::QuotaFifo => Policy { borrowers_run_on: true, ..quota(Policy::one_line()) },
            Self::QuotaSrtf => quota(shortest(Length::Remaining, false)),
            Self::QuotaMlfq => quota(mlfq()),
            // The file is tested to be readable.
            Self::Divvy | Self::DivvyHistory => policy::parse(OWN).unwrap_or_default(),
        }
    }
}

/// A policy as people choose it: by name, or in a file of their own. What a file says knows no more than class N.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The name, or where the file is.
    pub name: String,
    /// The settings of the planner.
    pub settings: Policy,
    /// What it may know.
    pub class: Class,
}

/// Why a text is neither the name of a policy nor a file that holds one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPolicy {
    /// It names no policy, and there is no such file.
    #[error("{0}; a path to a file that says one would do, too")]
    Unknown(#[from] NoSuchPolicy),
    /// It is a path, and there is no file.
    #[error("there is no file {0}")]
    Missing(String),
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Unreadable(String, String),
    /// It is not text, from this line and byte on.
    #[error("{0}: line {1}, byte {2} of the file: it is not UTF-8 from there on")]
    NoText(String, usize, usize),
    /// It does not say a policy.
    #[error("{0}: {1}")]
    Bad(String, BadPolicy),
}

impl FromStr for Chosen {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Self, NoPolicy> {
        let unknown = match text.parse::<Named>() {
            Ok(named) => return Ok(named.into()),
            Err(unknown) => unknown,
        };
        match std::fs::read(text) {
            Ok(bytes) => {
                let read = String::from_utf8(bytes).map_err(|error| no_text(text, &error))?;
                let settings = policy::parse(&read).map_err(|bad| NoPolicy::Bad(text.to_owned(), bad))?;
                Ok(Self { name: text.to_owned(), settings, class: Class::N })
            }
            // No name has a dot or a slash.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(if text.contains(['.', '/']) {
                NoPolicy::Missing(text.to_owned())
            } else {
                unknown.into()
            }),
            Err(error) => Err(NoPolicy::Unreadable(text.to_owned(), error.to_string())),
        }
    }
}

fn no_text(file: &str, error: &FromUtf8Error) -> NoPolicy {
    let at = error.utf8_error().valid_up_to();
    let line = 1 + error.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
    NoPolicy::NoText(file.to_owned(), line, at)
}

impl From<Named> for Chosen {
    fn from(named: Named) -> Self {
        Self { name: named.to_string(), settings: named.settings(), class: named.class() }
    }
}

/// A policy whose levels end at these device-seconds.
fn levels(device_s: &[i64], within: Within) -> Policy {
    let levels_device_ms = device_s.iter().map(|seconds| seconds * 1000).collect();
    let attained = Attained { levels_device_ms, head_start_ms: 0, within, ..Attained::default() };
    Policy { order: Order::Attained, attained, ..Policy::one_line() }
}

fn mlfq() -> Policy {
    let thresholds: Vec<i64> = (0..=8).map(|level| 600 * 4_i64.pow(level)).collect();
    levels(&thresholds, Within::Submit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_and_a_wrong_one_lists_those_that_exist() {
        for name in names() {
            assert_eq!(name.parse::<Named>().unwrap().to_string(), name);
        }
        let wrong = "fcfs".parse::<Named>().unwrap_err().to_string();
        assert!(wrong.contains("quota-mlfq") && wrong.contains("fcfs"), "{wrong}");
    }

    #[test]
    fn the_committed_policy_can_be_read() {
        assert!(policy::parse(OWN).is_ok());
    }

    #[test]
    fn a_file_is_a_policy_of_class_n_and_a_bad_one_names_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        std::fs::write(path("own.yaml"), "order: attained\nreserve: 0\n").unwrap();
        std::fs::write(path("bad.yaml"), "order: attained\nreserv: 0\n").unwrap();
        let own = path("own.yaml").parse::<Chosen>().unwrap();
        assert_eq!((own.class, own.settings.order, own.settings.reserve), (Class::N, Order::Attained, 0));
        let bad = path("bad.yaml").parse::<Chosen>().unwrap_err().to_string();
        assert!(bad.contains("bad.yaml: policy, line 2") && bad.contains("reserv"), "{bad}");
        std::fs::write(path("bytes.yaml"), b"order: attained\n\xff").unwrap();
        let bytes = path("bytes.yaml").parse::<Chosen>().unwrap_err().to_string();
        assert!(bytes.contains("bytes.yaml: line 2, byte 16 of the file"), "{bytes}");
        let missing = path("none.yaml").parse::<Chosen>().unwrap_err();
        assert!(matches!(&missing, NoPolicy::Missing(file) if file.ends_with("none.yaml")), "{missing}");
        let unknown = "none".parse::<Chosen>().unwrap_err().to_string();
        assert!(unknown.contains("quota-mlfq") && unknown.contains("a file"), "{unknown}");
        assert_eq!("divvy".parse::<Chosen>().unwrap().settings, Named::Divvy.settings());
    }
}
