//! An ask: what one task needs, as ordered alternatives, each complete.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::affinity::Affinity;
use super::choice::NodeChoice;
use super::device::{DeviceSpec, WHOLE_MILLI};
use super::extras::Extras;
use super::island::{IslandAsk, IslandLevel};
use super::models::Models;
use super::newer::Newer;
use super::ways::MOST_WAYS;
use crate::amount::Resource;

/// What a task needs. The alternatives are in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// At least one.
    pub alternatives: Vec<Alternative>,
    /// On which nodes it may lie.
    #[serde(default, skip_serializing_if = "is_any_node")]
    pub nodes: NodeChoice,
    /// Which tasks it wants to lie near, and which apart from.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub affinity: Newer<Arc<Affinity>>,
}

fn is_any_node(nodes: &NodeChoice) -> bool {
    *nodes == NodeChoice::default()
}

/// Hashes a choice of nodes and an affinity only where there are any, so that the classes of all other jobs stay as they were.
impl Hash for Ask {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Destructured without `..`, so that a new field is not forgotten here.
        let Self { alternatives, nodes, affinity } = self;
        alternatives.hash(hasher);
        if !is_any_node(nodes) {
            nodes.hash(hasher);
        }
        affinity.hash(hasher);
    }
}

/// An ask without the labels by which other tasks select its tasks: tasks with equal ones are alike.
pub(crate) struct Alike<'a>(pub(crate) &'a Ask);

impl Hash for Alike<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Ask { alternatives, nodes, affinity: _ } = self.0;
        let affinity = self.0.affinity();
        alternatives.hash(hasher);
        if !is_any_node(nodes) {
            nodes.hash(hasher);
        }
        if !affinity.wants_nothing() {
            (&affinity.near, &affinity.apart).hash(hasher);
        }
    }
}

impl Ask {
    /// These alternatives, wherever they are.
    pub fn of(alternatives: Vec<Alternative>) -> Self {
        Self { alternatives, ..Self::default() }
    }

    /// The number of devices of the alternative that takes most.
    pub fn most_devices(&self) -> u32 {
        let counts = self.alternatives.iter().filter_map(|way| Some(way.devices.as_ref()?.count));
        counts.max().unwrap_or(0)
    }

    /// The models that its alternatives ask for, where no other will do.
    pub fn only_models(&self) -> Option<Models> {
        let mut all = BTreeSet::new();
        for way in &self.alternatives {
            let models = &way.devices.as_ref()?.class.models;
            all.extend((!models.is_empty()).then_some(models)?.iter().cloned());
        }
        (!all.is_empty()).then(|| all.into())
    }

    /// Which tasks it wants to lie near, and which apart from.
    pub fn affinity(&self) -> &Affinity {
        static NOTHING: Affinity = Affinity::nothing();
        self.affinity.said().map_or(&NOTHING, |affinity| affinity)
    }
}

/// One complete way to satisfy a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Alternative {
    /// Its devices; a task of cores alone has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceAsk>,
    /// Milli-cores; `None` means its share of the node by devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<i64>,
    /// Bytes of host memory; `None` means its share of the node by devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<i64>,
    /// Other host amounts that it asks for.
    #[serde(default, skip_serializing_if = "Extras::is_empty")]
    pub extras: Extras,
    /// Relative speed in percent of the first alternative.
    #[serde(default = "full_speed")]
    pub speed_percent: u32,
}

fn full_speed() -> u32 {
    100
}

impl Alternative {
    /// Thousandths of devices that a task asks for by it.
    pub fn milli(&self) -> i64 {
        self.devices.as_ref().map_or(0, DeviceAsk::milli_of_all)
    }

    /// Whether it takes devices of this model only, by name.
    pub fn names_only(&self, model: &str) -> bool {
        self.devices.as_ref().is_some_and(|ask| ask.class.names_only(model))
    }

    /// How much of a resource a task asks for by it. Where several models would do, it asks for none of them by name.
    pub fn amount(&self, resource: &Resource) -> i64 {
        match resource {
            Resource::Model(model) if !self.names_only(model) => 0,
            Resource::Any | Resource::Model(_) => self.milli(),
            Resource::Cpu => self.cpu_milli.unwrap_or(0),
            Resource::Memory => self.memory_bytes.unwrap_or(0),
            Resource::Storage | Resource::Extended(_) => self.extras.of(resource),
            Resource::Pods => 0,
        }
    }
}

/// Which devices, how many, and how much of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceAsk {
    /// Which devices qualify.
    pub class: DeviceClass,
    /// How many.
    pub count: u32,
    /// How much of each.
    pub draw: DrawAsk,
    /// Where within their node the devices of a task lie.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub island: Newer<IslandAsk>,
}

impl DeviceAsk {
    /// An ask for so many of a class, wherever they lie within their node.
    pub fn of(class: DeviceClass, count: u32, draw: DrawAsk) -> Self {
        Self { class, count, draw, island: Newer::default() }
    }

    /// The level at which one domain must hold all devices of a task, if any; a single device is always in one domain.
    pub fn required_island(&self) -> Option<IslandLevel> {
        self.island.said().filter(|ask| ask.required && self.count > 1).map(|ask| ask.level)
    }

    /// Thousandths of each device; a partition counts as its whole device.
    pub fn milli(&self) -> u32 {
        match self.draw {
            DrawAsk::Share { milli, .. } => milli,
            DrawAsk::Whole | DrawAsk::Partition(_) => WHOLE_MILLI,
        }
    }

    /// Thousandths of all its devices.
    pub fn milli_of_all(&self) -> i64 {
        i64::from(self.count) * i64::from(self.milli())
    }
}

/// A class of devices. Empty fields restrict nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceClass {
    /// Model keys, any of which will do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// The smallest size in GB (nominal).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_gb: Option<u32>,
    /// The largest size in GB (nominal).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_gb: Option<u32>,
    /// The least memory of each whole device in MiB, as reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_memory_mib: Option<u64>,
    /// A claim of the engine's own kind (DRA) that stands for the devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The least memory bandwidth of each device, in GB/s.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub least_gb_s: Newer<u32>,
}

impl DeviceClass {
    /// Whether it asks for a model by name, and for no other.
    pub(crate) fn names_only(&self, model: &str) -> bool {
        matches!(&self.models[..], [only] if only == model)
    }
}

/// How much of each device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrawAsk {
    /// All of it.
    Whole,
    /// Part of its time and memory.
    Share {
        /// Thousandths of the device.
        milli: u32,
        /// MiB of its memory; `None` means the same part of it as of its time.
        memory_mib: Option<u64>,
    },
    /// A partition of a profile (`1g.10gb`).
    Partition(String),
}

impl DeviceClass {
    /// Whether a device is one of them.
    pub fn takes(&self, device: &DeviceSpec) -> bool {
        self.takes_model(device) && self.takes_memory(device)
    }

    /// Whether the model is right.
    pub fn takes_model(&self, device: &DeviceSpec) -> bool {
        self.models.is_empty() || self.models.contains(&device.model)
    }

    /// Whether the device's memory is within the bounds on size and bandwidth. A device of unknown bandwidth meets no bound on it.
    pub fn takes_memory(&self, device: &DeviceSpec) -> bool {
        self.least_gb.is_none_or(|least| device.size_gb() >= least)
            && self.most_gb.is_none_or(|most| device.size_gb() <= most)
            && self.least_memory_mib.is_none_or(|least| device.memory_mib >= least)
            && self.least_gb_s.said().is_none_or(|least| device.bandwidth_gb_s.said() >= Some(least))
    }
}

/// What `-g` takes: `2`, `h100:2`, `a100,h100:40GB..80GB:2`, `24GB..:1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceText {
    /// The devices.
    pub class: DeviceClass,
    /// How many; 1 if unsaid.
    pub count: u32,
}

/// The most devices that one task can ask for. No node has more; a larger number is a typing error.
pub const MOST_DEVICES_PER_TASK: u32 = 4096;

/// What is wrong with a text that should have named devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDevices {
    /// A part that is no model, memory or count, or stands in the wrong place.
    #[error(
        "in {text:?}, {part:?} is out of place: write a count (2), model:count (h100:2) or models:memory:count (a100,h100:40GB..80GB:2)"
    )]
    Part {
        /// The whole.
        text: String,
        /// What cannot be read.
        part: String,
    },
    /// Zero, or more than a node can have.
    #[error("{0} GPUs per task cannot be: write a number from 1 to {MOST_DEVICES_PER_TASK}")]
    Count(String),
    /// A range with its ends the wrong way round.
    #[error("the memory range {0:?} is empty: its first bound is above its second")]
    EmptyRange(String),
    /// Two ways that the same devices could serve.
    #[error("the same GPUs could serve {0:?} and {1:?}: name models in each, every model once")]
    SameDevices(String, String),
    /// More than [`MOST_WAYS`].
    #[error("{0} ways are more than anybody can prefer in order: write at most {MOST_WAYS}")]
    TooManyWays(usize),
}

impl FromStr for DeviceText {
    type Err = NotDevices;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut read = Self { class: DeviceClass::default(), count: 1 };
        // What may still come, in order: models, memory, count.
        let mut stage = 0;
        for part in text.trim().split(':') {
            if stage <= 2 && !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
                read.count = count(part)?;
                stage = 3;
            } else if let (true, Some(bounds)) = (stage <= 1, memory_bounds(part)) {
                (read.class.least_gb, read.class.most_gb) = bounds?;
                stage = 2;
            } else if let (0, Some(models)) = (stage, models(part)) {
                read.class.models = models;
                stage = 1;
            } else {
                let short = |s: &str| s.chars().take(60).collect();
                return Err(NotDevices::Part { text: short(text), part: short(part) });
            }
        }
        Ok(read)
    }
}

fn count(part: &str) -> Result<u32, NotDevices> {
    let count = part.parse().ok().filter(|count| (1..=MOST_DEVICES_PER_TASK).contains(count));
    count.ok_or_else(|| NotDevices::Count(part.chars().take(20).collect()))
}

type Bounds = (Option<u32>, Option<u32>);

/// `None` if the part does not describe memory; otherwise its bounds in GB, or what is wrong with them.
fn memory_bounds(part: &str) -> Option<Result<Bounds, NotDevices>> {
    let gb = |bound: &str| -> Option<u32> {
        let lower = bound.to_ascii_lowercase();
        let digits = lower.strip_suffix("gb").or_else(|| lower.strip_suffix('g')).unwrap_or(&lower);
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let (least, most) = match part.split_once("..") {
        Some(("", "")) => return None,
        Some(("", most)) => (None, Some(gb(most)?)),
        Some((least, "")) => (Some(gb(least)?), None),
        Some((least, most)) => (Some(gb(least)?), Some(gb(most)?)),
        None => (Some(gb(part)?), Some(gb(part)?)),
    };
    if matches!((least, most), (Some(least), Some(most)) if least > most) {
        return Some(Err(NotDevices::EmptyRange(part.to_owned())));
    }
    Some(Ok((least, most)))
}

fn models(part: &str) -> Option<Vec<String>> {
    let good = |model: &str| {
        model.starts_with(|c: char| c.is_ascii_alphabetic())
            && model.len() <= 40
            && model.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let models: Vec<String> = part.split(',').map(|model| model.trim().to_ascii_lowercase()).collect();
    models.iter().all(|model| good(model)).then_some(models)
}

/// Writes the class as `-g` would take it, without the count, and what it needs beside: `a100,h100:40GB..80GB`,
/// `h100 with at least 40 GiB`; `any GPU` if nothing is asked.
impl fmt::Display for DeviceClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = match (self.least_gb, self.most_gb) {
            (None, None) => None,
            (Some(least), Some(most)) if least == most => Some(format!("{least}GB")),
            (least, most) => {
                let bound = |gb: Option<u32>| gb.map(|gb| format!("{gb}GB")).unwrap_or_default();
                Some(format!("{}..{}", bound(least), bound(most)))
            }
        };
        let mut parts = Vec::new();
        if !self.models.is_empty() {
            parts.push(self.models.join(","));
        }
        parts.extend(size);
        f.write_str(if parts.is_empty() { "any GPU".into() } else { parts.join(":") }.as_str())?;
        let memory = self.least_memory_mib.map(|mib| match mib % 1024 {
            0 => format!("{} GiB", mib / 1024),
            _ => format!("{mib} MiB"),
        });
        let bandwidth = self.least_gb_s.said().map(|gb_s| format!("{gb_s} GB/s"));
        let least: Vec<String> = memory.into_iter().chain(bandwidth).collect();
        if least.is_empty() { Ok(()) } else { write!(f, " with at least {}", least.join(" and ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> DeviceText {
        text.parse().unwrap()
    }

    #[test]
    fn device_texts_name_models_memory_and_count_in_that_order() {
        assert_eq!(read("2"), DeviceText { class: DeviceClass::default(), count: 2 });
        assert_eq!(read("h100").count, 1);
        let full = read("A100,h100:40GB..80GB:2");
        assert_eq!(full.class.models, ["a100", "h100"]);
        assert_eq!((full.class.least_gb, full.class.most_gb, full.count), (Some(40), Some(80), 2));
        assert_eq!(read("24GB..:1").class.least_gb, Some(24));
        assert_eq!(read("80GB").class.most_gb, Some(80));
        assert_eq!(full.class.to_string(), "a100,h100:40GB..80GB");
    }

    #[test]
    fn nonsense_names_the_part_that_is_wrong() {
        for text in [
            "",
            ":",
            "h100:",
            "2:h100",
            "h100:2:3",
            "h100:x",
            "0",
            "h100:99999",
            "80GB..40GB",
            "h100::2",
            "..",
            "h 1",
            "-1",
            "0.5",
        ] {
            assert!(text.parse::<DeviceText>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_size_compares_with_what_is_sold_or_with_the_reported_rounded_up() {
        let class = read("80GB").class;
        let known = DeviceSpec { memory_mib: 81_559, nominal_gb: Some(80), ..Default::default() };
        let unknown = DeviceSpec { memory_mib: 81_559, ..Default::default() };
        let small = DeviceSpec { memory_mib: 40_960, ..Default::default() };
        assert!(class.takes_memory(&known) && class.takes_memory(&unknown) && !class.takes_memory(&small));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_device_parser_panic(text in ".*") {
            let _ = text.parse::<DeviceText>();
        }

        #[test]
        fn a_class_reads_back_as_displayed(models in proptest::collection::vec("[a-z][a-z0-9-]{0,8}", 1..4), least in 1u32..200, more in 0u32..200, count in 1u32..64) {
            let class = DeviceClass { models, least_gb: Some(least), most_gb: Some(least + more), ..Default::default() };
            prop_assert_eq!(format!("{class}:{count}").parse::<DeviceText>(), Ok(DeviceText { class, count }));
        }
    }
}
