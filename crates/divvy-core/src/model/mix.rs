//! The mix: which kinds of tasks have arrived. Scores learn what to expect from it alone, never from what is still to come.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ask::{Alternative, DeviceAsk, DeviceClass};
use super::device::DeviceSpec;
use super::newer::Newer;
use crate::state::fingerprint;

/// What distinguishes arrivals: a task's devices and cores, as its first alternative has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKind {
    /// Devices; none for a task of cores alone.
    pub count: u32,
    /// Thousandths of each.
    pub milli: u32,
    /// Milli-cores; none where it does not say.
    pub cpu_milli: i64,
    /// Which devices qualify.
    pub class: DeviceClass,
}

impl TaskKind {
    /// The kind of an alternative's tasks.
    pub fn of(alternative: &Alternative) -> Self {
        let mut class = alternative.devices.as_ref().map(|ask| ask.class.clone()).unwrap_or_default();
        class.models.sort_unstable();
        Self {
            count: alternative.devices.as_ref().map_or(0, |ask| ask.count),
            milli: alternative.devices.as_ref().map_or(0, DeviceAsk::milli),
            cpu_milli: alternative.cpu_milli.unwrap_or(0).max(0),
            class,
        }
    }

    /// Thousandths of all its devices.
    pub fn total_milli(&self) -> i64 {
        i64::from(self.count) * i64::from(self.milli)
    }
}

/// How many tasks of each kind have arrived, and the outlook that was last made of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Rising by kind.
    counts: Vec<(TaskKind, u64)>,
    seen: u64,
    /// The number of tasks seen at which the next outlook is due.
    due: u64,
    /// The wrapping sum of the counts' hashes.
    sum: u64,
    outlook: Arc<Outlook>,
}

/// Nothing is expected before this many arrivals: fewer say little.
const FIRST_DUE: u64 = 20;

/// Counts are halved beyond this many arrivals, so that kinds that no longer arrive are forgotten.
const MOST_SEEN: u64 = 1 << 15;

/// Counts are also halved beyond this many kinds, so that a user who submits random asks cannot fill the memory.
const MOST_KINDS: usize = 1024;

impl Default for Mix {
    fn default() -> Self {
        Self { counts: Vec::new(), seen: 0, due: FIRST_DUE, sum: 0, outlook: Arc::default() }
    }
}

impl Mix {
    /// Counts so many tasks of a kind.
    pub(crate) fn note(&mut self, kind: TaskKind, tasks: u64) {
        let tasks = tasks.min(MOST_SEEN);
        if tasks == 0 {
            return;
        }
        match self.counts.binary_search_by(|(known, _)| known.cmp(&kind)) {
            Ok(place) => {
                let entry = &mut self.counts[place];
                self.sum = self.sum.wrapping_sub(fingerprint(&*entry));
                entry.1 += tasks;
                self.sum = self.sum.wrapping_add(fingerprint(&*entry));
            }
            Err(place) => {
                let entry = (kind, tasks);
                self.sum = self.sum.wrapping_add(fingerprint(&entry));
                self.counts.insert(place, entry);
            }
        }
        self.seen += tasks;
        while self.seen > MOST_SEEN || self.counts.len() > MOST_KINDS {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.counts.iter_mut().for_each(|(_, count)| *count /= 2);
        self.counts.retain(|(_, count)| *count > 0);
        self.seen = self.counts.iter().map(|(_, count)| count).sum();
        self.sum = self.counts.iter().fold(0, |sum, entry| sum.wrapping_add(fingerprint(entry)));
        self.due = self.due.min(self.seen);
    }

    /// Whether a new outlook is due: arrivals have grown by a quarter, or half of what the old outlook was made of is forgotten.
    pub(crate) fn is_due(&self) -> bool {
        self.seen >= self.due
    }

    /// The kinds and how many of each have arrived.
    pub fn counts(&self) -> &[(TaskKind, u64)] {
        &self.counts
    }

    /// Sets what is to be expected from now on.
    pub(crate) fn look_out(&mut self, outlook: Outlook) {
        self.due = (self.seen + self.seen / 4).max(FIRST_DUE + 1);
        self.outlook = Arc::new(outlook);
    }

    /// What is to be expected.
    pub fn outlook(&self) -> &Arc<Outlook> {
        &self.outlook
    }

    /// The hash of all of it.
    pub(crate) fn digest(&self) -> u64 {
        fingerprint(&(self.sum, self.seen, self.due, self.outlook.digest))
    }
}

/// What is expected, and how the pool stood when that was computed. It stays unchanged until the next one, so that scores made from it can
/// be cached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Outlook {
    /// The hash of the rest; 0 before anything is expected.
    pub digest: u64,
    /// The kinds of tasks and how many of each have arrived.
    pub kinds: Vec<(TaskKind, u64)>,
    /// Devices of nodes that take tasks, by kind, and how many there are.
    pub devices: Vec<(DeviceKind, u64)>,
    /// Milli-cores of the nodes that have such devices.
    pub cpu_milli: i64,
    /// Devices that are neither full nor free: thousandths left, rising, and how many there are.
    pub open: Vec<(u32, u64)>,
    /// Kinds that ask for several devices (by index in `kinds`), and how many tasks of each there was room for.
    pub places: Vec<(usize, u64)>,
}

/// What distinguishes devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceKind {
    /// The catalogue's key of the model.
    pub model: String,
    /// Memory as reported, in MiB.
    pub memory_mib: u64,
    /// The size the model is sold with, in GB.
    pub nominal_gb: Option<u32>,
    /// How fast its memory is, in GB/s.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub bandwidth_gb_s: Newer<u32>,
}

impl DeviceKind {
    /// The kind of a device.
    pub fn of(spec: &DeviceSpec) -> Self {
        let (model, nominal_gb) = (spec.model.clone(), spec.nominal_gb);
        Self { model, memory_mib: spec.memory_mib, nominal_gb, bandwidth_gb_s: spec.bandwidth_gb_s }
    }

    /// Whether a device is of this kind.
    pub fn is_of(&self, spec: &DeviceSpec) -> bool {
        let memory = (spec.memory_mib, spec.nominal_gb, spec.bandwidth_gb_s);
        (self.memory_mib, self.nominal_gb, self.bandwidth_gb_s) == memory && self.model == spec.model
    }

    /// A device of this kind.
    pub fn example(&self) -> DeviceSpec {
        DeviceSpec {
            model: self.model.clone(),
            memory_mib: self.memory_mib,
            nominal_gb: self.nominal_gb,
            bandwidth_gb_s: self.bandwidth_gb_s,
            ..DeviceSpec::default()
        }
    }
}

impl Outlook {
    /// The outlook with its hash filled in.
    pub(crate) fn sealed(self) -> Self {
        let digest = fingerprint(&self).max(1);
        Self { digest, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(cpu_milli: i64) -> TaskKind {
        TaskKind { count: 1, milli: 1000, cpu_milli, class: DeviceClass::default() }
    }

    fn is_consistent(mix: &Mix) -> bool {
        let sum = mix.counts.iter().fold(0_u64, |sum, entry| sum.wrapping_add(fingerprint(entry)));
        let seen: u64 = mix.counts.iter().map(|(_, count)| count).sum();
        (mix.sum, mix.seen) == (sum, seen)
    }

    #[test]
    fn an_outlook_is_due_at_twenty_arrivals_and_with_each_quarter_more() {
        let mut mix = Mix::default();
        let mut looked = Vec::new();
        for arrival in 1..=60 {
            mix.note(kind(arrival % 3), 1);
            if mix.is_due() {
                mix.look_out(Outlook::default());
                looked.push(arrival);
            }
        }
        assert_eq!(looked, [20, 25, 31, 38, 47, 58]);
        assert!(is_consistent(&mix));
    }

    #[test]
    fn kinds_that_come_no_more_are_forgotten_and_their_number_is_bounded() {
        let mut mix = Mix::default();
        mix.note(kind(-1), 3);
        for arrival in 0..5000 {
            mix.note(kind(arrival), 1);
        }
        assert!(mix.counts.len() <= MOST_KINDS && is_consistent(&mix), "{}", mix.counts.len());
        mix.note(kind(7), 10 * MOST_SEEN);
        assert_eq!(mix.counts.len(), 1);
        assert!(mix.seen <= MOST_SEEN && mix.is_due() && is_consistent(&mix));
    }
}
