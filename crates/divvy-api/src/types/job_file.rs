//! `job.yaml`: what a user wants to run. `POST /v1/jobs` carries the same.
//!
//! Numbers with units are text as users write it (`2h`, `40Gi`, `h100:2`); the daemon has the one parser for each.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::open::open_enum;

/// What a user wants to run. All but a command can be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobFile {
    /// A name for people; the command's name if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A list is program and arguments; a text is a line for `sh -c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// Further arguments, put behind the command. Behind a line for `sh -c` they are `$1`, `$2`, ….
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Where it starts; relative to where it is submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Variables put into its environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// A file of `NAME=value` lines, read when submitting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_file: Option<String>,
    /// Which variables of the submitting shell it gets: `ALL` (if unsaid), `NONE` or `A,B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
    /// Devices per task: `2`, `h100:2`, `a100,h100:40GB..80GB:2`; several ways in order of preference: `[h100:2, l4:4]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Gpus>,
    /// How fast it runs on each model, in any one unit: `{h100: 1, a100: 0.5}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub speed: BTreeMap<String, Scalar>,
    /// The least memory of each whole device: `40Gi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Scalar>,
    /// The least speed of the memory of each device: `900GB/s`, `3.35TB/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_bandwidth: Option<Scalar>,
    /// Cores per task: `16`, `0.5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Scalar>,
    /// Host memory per task: `64G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Scalar>,
    /// The queue's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `low`, `normal`, `high`, `urgent` or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Scalar>,
    /// The longest an attempt may run: `2h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Scalar>,
    /// How long it will probably run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Scalar>,
    /// What it is charged to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// `train` (if unsaid), `infer`, `interactive` or `data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Words for reports.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When it goes back into the queue by itself: `never`, `lost` (not its own doing) or `failure` (any bad end).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue: Option<RequeueWhen>,
    /// How often it may go back, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_restarts: Option<u32>,
    /// Jobs that must end before: `12`, `12:ok`, `12:fail`, `12:any`; one or a list.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    pub after: Vec<Scalar>,
    /// Members of an array: `0-99`, `0-99%8`, `1,3,7-9`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<Scalar>,
    /// Whether it starts its life held.
    #[serde(skip_serializing_if = "is_false")]
    pub hold: bool,
    /// Whether it may be taken back; yes if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// Whether it can go on where it was stopped; no if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumable: Option<bool>,
    /// Whether it waits for capacity that the pool does not have.
    #[serde(skip_serializing_if = "is_false")]
    pub wait_for_capacity: bool,
    /// Whether it wants its nodes for itself: it gets, and is charged for, all that they have.
    #[serde(skip_serializing_if = "is_false")]
    pub exclusive: bool,
    /// How it is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopFile>,
    /// How its work survives a stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointFile>,
    /// The file that takes its output, with `%j %A %a %x %u`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// When it may start: a moment (`2026-11-21T18:00:00+01:00`) or a time from now (`2h`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_after: Option<Scalar>,
    /// When it should be over: a moment or a time from now. Nothing is decided by it; `explain` says whether that looks possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Scalar>,
    /// Tasks that start together or not at all; 1 if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// The most tasks that it may grow to while it runs; as many as it starts with if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u32>,
    /// Different tasks that start together or not at all. What a role leaves out is taken from the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleFile>,
    /// Where the tasks must lie, and the devices of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyFiles>,
    /// How the tasks are spread over racks, nodes or another level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<SpreadFile>,
    /// Tasks, of other jobs or its own: each of its tasks must have some of them near it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<OthersFile>,
    /// Tasks, of other jobs or its own: none of its tasks may have any of them near it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<OthersFile>,
}

/// A group of identical tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoleFile {
    /// Its name, unique in the job.
    pub name: String,
    /// How many; 1 if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// How many it may grow to while the job runs; no more than it starts with if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u32>,
    /// A list is program and arguments; a text is a line for `sh -c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// Further arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables put into the environment of its tasks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Devices per task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Gpus>,
    /// The least memory of each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Scalar>,
    /// The least speed of the memory of each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_bandwidth: Option<Scalar>,
    /// Cores per task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Scalar>,
    /// Host memory per task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Scalar>,
    /// Where its tasks must lie, and the devices of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyFiles>,
    /// How its tasks are spread, beside what the job says of all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<SpreadFile>,
    /// Tasks of which each of its tasks must have some near it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<OthersFile>,
    /// Tasks of which none of its tasks may have any near it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<OthersFile>,
}

/// How a job is stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopFile {
    /// The signal that announces it: `TERM` (if unsaid), `INT`, `USR1`, ….
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// How long until everything is killed: `10s` (if unsaid).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<Scalar>,
}

/// How a job saves its work: it hears a signal, and exits with 85 once its work is safe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointFile {
    /// The signal that asks for it: `USR1` (if unsaid).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// How long it may take until everything is killed: `60s` (if unsaid).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<Scalar>,
    /// How often it saves its work by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Scalar>,
}

/// Where tasks must lie, and the devices of each: one level, or two, of which one is within a node.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum TopologyFiles {
    /// `{within: rack, required: true}`.
    One(TopologyFile),
    /// `[{within: rack}, {within: nvlink, required: true}]`.
    Several(Vec<TopologyFile>),
}

impl TopologyFiles {
    /// Returns all levels.
    pub fn levels(&self) -> &[TopologyFile] {
        match self {
            TopologyFiles::One(one) => std::slice::from_ref(one),
            TopologyFiles::Several(several) => several,
        }
    }
}

impl<'de> Deserialize<'de> for TopologyFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrSeveral;

        impl<'de> Visitor<'de> for OneOrSeveral {
            type Value = TopologyFiles;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a level ({within: rack, required: true}) or a list of two")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TopologyFiles, A::Error> {
                TopologyFile::deserialize(MapAccessDeserializer::new(map)).map(TopologyFiles::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<TopologyFiles, A::Error> {
                let mut several = Vec::new();
                while let Some(one) = items.next_element()? {
                    several.push(one);
                }
                Ok(TopologyFiles::Several(several))
            }
        }

        deserializer.deserialize_any(OneOrSeveral)
    }
}

/// A level within which tasks, or the devices of each, must lie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TopologyFile {
    /// The level within which all must lie: `node`, `rack`, or another that the pool's nodes name; for the devices of each task
    /// `nvlink` or `numa`.
    pub within: String,
    /// Whether it must be so, or would merely be better.
    pub required: bool,
}

/// How tasks are spread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpreadFile {
    /// The level over whose domains they are spread: `node`, `rack`, or another that the pool's nodes name.
    pub over: String,
    /// How many may lie in one domain at most; if unsaid, as evenly as there is room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Whether `most` must be kept (if unsaid), or would merely be better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

/// Tasks, selected by the labels of their jobs, and what near means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OthersFile {
    /// Their jobs have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// On one `node` (if unsaid), in one `rack` or other level that the pool's nodes name, or on nodes of which a label says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

open_enum! {
    /// After which ends a job goes back into its queue. `Other` is refused by the daemon.
    RequeueWhen {
        /// None.
        Never = "never",
        /// Ends that were not its doing.
        Lost = "lost",
        /// Those, and its own failure.
        Failure = "failure",
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What to run: program and arguments, or a line for the shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Command {
    /// Program and arguments, without a shell.
    Argv(Vec<String>),
    /// A line for `sh -c`.
    Shell(String),
}

impl Command {
    /// Whether it is a line for a shell with nothing in it.
    pub fn is_blank(&self) -> bool {
        matches!(self, Self::Shell(line) if line.trim().is_empty())
    }

    /// Returns program and arguments, followed by the further arguments of the job.
    pub fn argv(&self, args: &[String]) -> Vec<String> {
        let mut argv = match self {
            Self::Argv(argv) => argv.clone(),
            // `$0` is `sh`, so that further arguments begin at `$1`.
            Self::Shell(line) if !args.is_empty() => ["sh", "-c", line, "sh"].map(String::from).to_vec(),
            Self::Shell(line) => ["sh", "-c", line].map(String::from).to_vec(),
        };
        argv.extend_from_slice(args);
        argv
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;

        impl<'de> Visitor<'de> for Words {
            type Value = Command;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list (program and arguments) or a text (a line for sh -c)")
            }

            fn visit_str<E>(self, line: &str) -> Result<Command, E> {
                Ok(Command::Shell(line.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<Command, A::Error> {
                let mut argv = Vec::new();
                while let Some(word) = words.next_element::<Word>()? {
                    argv.push(word.0);
                }
                Ok(Command::Argv(argv))
            }
        }

        deserializer.deserialize_any(Words)
    }
}

/// An argument: in YAML any scalar as it is written (`1.50` stays `1.50`), in JSON a string.
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Word)
    }
}

/// A value that users write with or without a unit: text, or a number taken as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Scalar(pub String);

impl Scalar {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Scalar {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar(text.to_owned()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

impl utoipa::PartialSchema for Scalar {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{OneOfBuilder, Type};
        let of = |kind: Type| utoipa::openapi::ObjectBuilder::new().schema_type(kind).build();
        OneOfBuilder::new().item(of(Type::String)).item(of(Type::Number)).into()
    }
}

impl ToSchema for Scalar {}

/// The devices of a task: one way to serve it, or several, the preferred first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Gpus {
    /// `2`, `h100:2`, or several ways in one text: `h100:2,l4:4`.
    One(Scalar),
    /// `[h100:2, l4:4]`.
    Ways(Vec<Scalar>),
}

impl<T: Into<Scalar>> From<T> for Gpus {
    fn from(one: T) -> Self {
        Self::One(one.into())
    }
}

impl<'de> Deserialize<'de> for Gpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrWays;

        impl<'de> Visitor<'de> for OneOrWays {
            type Value = Gpus;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of GPUs, a text (h100:2) or a list of these in order of preference")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Gpus, E> {
                ScalarVisitor.visit_str(text).map(Gpus::One)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Gpus, E> {
                ScalarVisitor.visit_u64(number).map(Gpus::One)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Gpus, E> {
                ScalarVisitor.visit_i64(number).map(Gpus::One)
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Gpus, E> {
                ScalarVisitor.visit_f64(number).map(Gpus::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Gpus, A::Error> {
                let mut ways = Vec::new();
                while let Some(way) = items.next_element()? {
                    ways.push(way);
                }
                Ok(Gpus::Ways(ways))
            }
        }

        deserializer.deserialize_any(OneOrWays)
    }
}

/// Takes `after: 12:ok` as well as `after: [12:ok, 13]`.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Scalar>, D::Error> {
    struct OneOrMany;

    impl<'de> Visitor<'de> for OneOrMany {
        type Value = Vec<Scalar>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a job (12, 12:ok) or a list of jobs")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            ScalarVisitor.visit_str(text).map(|one| vec![one])
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
            ScalarVisitor.visit_u64(number).map(|one| vec![one])
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
            ScalarVisitor.visit_i64(number).map(|one| vec![one])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                all.push(item);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_any(OneOrMany)
}
