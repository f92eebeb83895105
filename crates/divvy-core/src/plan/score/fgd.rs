//! The fragmentation gradient: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, sections 3 and 4. The fragmentation of a
//! node is the part of what is left of its devices that expected tasks cannot use; the node where it grows least is best.
//!
//! Gains of exactly zero decide ties, so sums run in one order, over the tasks as they are listed and over the causes of
//! fragmentation as the paper numbers them.

use std::sync::Arc;

use super::facts::{Facts, Kinds, Shape};
use super::simple::drawn;
use crate::model::device::WHOLE_MILLI;
use crate::model::score::Typical;
use crate::snapshot::NodeView;

/// Why an expected task cannot use what is left: the paper's order, without the part that it can use.
#[derive(Clone, Copy)]
enum Cause {
    LacksBoth,
    LacksDevices,
    LacksCores,
    CoresAloneFit,
    CoresAloneDoNot,
    NoAccess,
}

/// How many causes there are.
const CAUSES: usize = 6;

/// A task to be expected.
#[derive(Debug)]
struct Expected {
    cpu_milli: i64,
    /// Its place among the sizes, if it asks for devices.
    size: Option<usize>,
    count: usize,
    probability: f64,
}

/// The tasks to be expected, prepared.
#[derive(Debug)]
pub(super) struct Fgd {
    typical: Arc<Typical>,
    tasks: Vec<Expected>,
    /// The thousandths of a device that tasks ask for, rising.
    sizes: Vec<i32>,
    /// The milli-cores that tasks ask for, rising.
    cpu_steps: Vec<i64>,
    /// By kind of device: which tasks may use it.
    access: Vec<Vec<bool>>,
    /// By size: what is left on devices too small for it, and how many are large enough. Scratch.
    fits: Vec<(i32, usize)>,
    /// Devices that are neither full nor free. Scratch.
    open: Vec<i32>,
}

impl Fgd {
    pub(super) fn new(typical: &Arc<Typical>) -> Self {
        let listed: u64 = typical.tasks().iter().map(|task| task.seen).sum();
        let of = typical.of() as f64;
        let sorted = |values: Vec<i64>| {
            let mut values = values;
            values.sort_unstable();
            values.dedup();
            values
        };
        let gpu = typical.tasks().iter().filter(|task| task.count > 0);
        let sizes: Vec<i32> = sorted(gpu.map(|task| i64::from(task.milli)).collect())
            .into_iter()
            .map(|size| size as i32)
            .collect();
        let tasks = typical.tasks().iter().map(|task| Expected {
            cpu_milli: task.cpu_milli,
            size: (task.count > 0).then(|| sizes.partition_point(|size| *size < task.milli as i32)),
            count: task.count as usize,
            probability: (task.seen as f64 / of) / (listed as f64 / of),
        });
        Self {
            tasks: tasks.collect(),
            fits: vec![(0, 0); sizes.len()],
            sizes,
            cpu_steps: sorted(typical.tasks().iter().map(|task| task.cpu_milli).collect()),
            access: Vec::new(),
            open: Vec::new(),
            typical: Arc::clone(typical),
        }
    }

    /// Whether it was prepared from these tasks.
    pub(super) fn is_of(&self, typical: &Arc<Typical>) -> bool {
        Arc::ptr_eq(&self.typical, typical) || self.typical == *typical
    }

    /// Learns which tasks may use devices of the kinds that are new.
    pub(super) fn learn(&mut self, kinds: &Kinds, kind: u16) {
        while self.access.len() <= usize::from(kind) {
            let model = kinds.model(self.access.len() as u16);
            let may = |models: &Vec<String>| models.is_empty() || models.iter().any(|other| other == model);
            self.access.push(self.typical.tasks().iter().map(|task| may(&task.models)).collect());
        }
    }

    /// The fragmentation of a node of such devices, with so many milli-cores and so much of each device left, in thousandths.
    fn measure(&mut self, kind: u16, cpu_milli: i64, left_milli: &[i32]) -> f64 {
        let total: i32 = left_milli.iter().sum();
        let Some(access) = self.access.get(usize::from(kind)).filter(|_| total > 0) else { return 0.0 };
        weigh_sizes(&self.sizes, left_milli, (&mut self.open, &mut self.fits));
        let mut sums = [0.0; CAUSES];
        for (task, access) in self.tasks.iter().zip(access) {
            let has_cores = task.cpu_milli <= cpu_milli;
            let (cause, lost) = match task.size.map(|size| self.fits[size]) {
                None if has_cores => (Cause::CoresAloneFit, total),
                None => (Cause::CoresAloneDoNot, total),
                Some(_) if !access => (Cause::NoAccess, total),
                Some((small, fit)) if fit >= task.count && has_cores => (Cause::LacksDevices, small),
                Some((_, fit)) if fit >= task.count => (Cause::LacksCores, total),
                Some(_) if has_cores => (Cause::LacksDevices, total),
                Some(_) => (Cause::LacksBoth, total),
            };
            sums[cause as usize] += task.probability * f64::from(lost);
        }
        sums.iter().fold(0.0, |sum, part| sum + part)
    }

    /// The fragmentation of a node as it is.
    fn now(&mut self, facts: &mut Facts) -> f64 {
        let Some(kind) = facts.kind() else { return 0.0 };
        let measured = facts.fragmentation;
        let now = measured.unwrap_or_else(|| self.measure(kind, facts.cpu_milli.1, &facts.left_milli));
        facts.fragmentation = Some(now);
        now
    }

    /// Scores a node for a task, 0 to 100; for a share, also returns which device it gets. `takes` says which devices may be had.
    pub(super) fn score(
        &mut self,
        facts: &mut Facts,
        shape: &Shape,
        takes: impl Fn(&Facts, usize) -> bool,
    ) -> (i32, Option<usize>) {
        let cpu_left = facts.cpu_milli.1 - drawn(facts, shape).0;
        let Some(kind) = facts.kind() else { return (steepness(0.0), None) };
        if shape.count == 0 && self.step(cpu_left) == self.step(facts.cpu_milli.1) {
            return (steepness(0.0), None);
        }
        let before = self.now(facts);
        let mut left = std::mem::take(&mut facts.left_milli);
        let mut best = (-1, None);
        if shape.is_share() && shape.count == 1 {
            for index in 0..left.len() {
                let fits = |index: usize| takes(facts, index) && shape.fits(&facts.slots[index], left[index]);
                // A device with as much left as one before it scores the same, and the first wins.
                let again = || (0..index).any(|other| left[other] == left[index] && fits(other));
                if !fits(index) || again() {
                    continue;
                }
                left[index] -= shape.milli;
                let score = steepness(before - self.measure(kind, cpu_left, &left));
                left[index] += shape.milli;
                if score > best.0 {
                    best = (score, Some(index));
                }
            }
        } else {
            let fitting =
                |index: &usize| takes(facts, *index) && shape.fits(&facts.slots[*index], left[*index]);
            let chosen: Vec<usize> = (0..left.len()).filter(fitting).take(shape.count).collect();
            chosen.iter().for_each(|index| left[*index] -= shape.milli);
            best.0 = steepness(before - self.measure(kind, cpu_left, &left));
            chosen.iter().for_each(|index| left[*index] += shape.milli);
        }
        facts.left_milli = left;
        best
    }

    /// How many of the tasks' sizes in cores fit in so many milli-cores: fragmentation depends on the cores only by that.
    fn step(&self, cpu_milli: i64) -> usize {
        self.cpu_steps.partition_point(|step| *step <= cpu_milli)
    }
}

/// For each size, rising: what is left on devices too small for it, and how many devices are large enough.
fn weigh_sizes(sizes: &[i32], left_milli: &[i32], (open, fits): (&mut Vec<i32>, &mut [(i32, usize)])) {
    let whole = WHOLE_MILLI as i32;
    open.clear();
    open.extend(left_milli.iter().copied().filter(|left| (1..whole).contains(left)));
    open.sort_unstable();
    let free = left_milli.iter().filter(|left| **left >= whole).count();
    let (mut small, mut passed) = (0, 0);
    for (size, fit) in sizes.iter().zip(fits) {
        while let Some(left) = open.get(passed).filter(|left| *left < size) {
            small += left;
            passed += 1;
        }
        *fit = (small, free + open.len() - passed);
    }
}

/// A gain of so many thousandths as a score: a sigmoid from 0 to 100 with 50 for no change, cut off.
fn steepness(gain_milli: f64) -> i32 {
    (100.0 * (1.0 / (1.0 + libm::exp(-gain_milli / 1000.0)))) as i32
}

/// The measure of fragmentation by itself, for reports.
pub struct Fragmentation {
    fgd: Fgd,
    kinds: Kinds,
    facts: Facts,
}

impl Fragmentation {
    /// By these tasks.
    pub fn new(typical: &Arc<Typical>) -> Self {
        Self { fgd: Fgd::new(typical), kinds: Kinds::default(), facts: Facts::default() }
    }

    /// How much of what is left of a node's devices expected tasks cannot use, in millionths of a device.
    pub fn micro(&mut self, view: &NodeView) -> i64 {
        self.facts.read(view, 0, &mut self.kinds);
        if let Some(kind) = self.facts.kind() {
            self.fgd.learn(&self.kinds, kind);
        }
        libm::rint(self.fgd.now(&mut self.facts) * 1000.0) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::score::TypicalTask;

    fn typical() -> Arc<Typical> {
        let task =
            |cpu_milli, milli, count, seen| TypicalTask { cpu_milli, milli, count, models: vec![], seen };
        Arc::new(Typical::new(vec![task(4000, 500, 1, 2), task(8000, 1000, 2, 1), task(1000, 0, 0, 1)], 5))
    }

    #[test]
    fn fragmentation_is_what_expected_tasks_cannot_use() {
        let mut fgd = Fgd::new(&typical());
        let mut kinds = Kinds::default();
        kinds.of(&device());
        fgd.learn(&kinds, 0);
        // Half of the tasks use 1000 of the 1300 left, a quarter would need two free devices, a quarter needs none.
        let measured = fgd.measure(0, 10_000, &[1000, 300]);
        assert_eq!(measured, 0.5 * 300.0 + 0.25 * 1300.0 + 0.25 * 1300.0);
        // Without cores nothing can be used.
        assert_eq!(fgd.measure(0, 0, &[1000, 300]), 1300.0);
        assert_eq!(fgd.measure(0, 10_000, &[0, 0]), 0.0);
    }

    fn device() -> crate::snapshot::DeviceView {
        crate::snapshot::DeviceView {
            id: crate::id::DeviceId(0),
            index: 0,
            site: Default::default(),
            spec: std::sync::Arc::default(),
            unusable: None,
            free_milli: 1000,
            free_memory_mib: 0,
            host_share: (0, 0),
            model: 0,
            is_counted: false,
        }
    }

    #[test]
    fn no_change_scores_fifty_and_a_whole_device_lost_twenty_six() {
        assert_eq!([0.0, -1000.0, 1000.0, -1e-9].map(steepness), [50, 26, 73, 49]);
    }
}
