//! The expected waste: what of a node's devices is likely to be unused in the end, judging by the tasks that have arrived.
//! The node and device where a task adds least to it are best. See the planner's README for the rule and its terms.
//!
//! All of it is integers: amounts in millionths of a device, chances in 2^-32, so that it is the same on every machine.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::facts::{Facts, Kinds, Shape};
use super::simple::drawn;
use crate::model::ask::DeviceClass;
use crate::model::device::{DeviceSpec, WHOLE_MILLI};
use crate::model::mix::{Outlook, TaskKind};

/// Gaps are told apart by hundredths of a device: what is asked is rounded up to them, what is left is rounded down.
const SLOT_MILLI: usize = 10;
/// A whole device in slots.
const SLOTS: usize = WHOLE_MILLI as usize / SLOT_MILLI;
/// Millionths of a device per thousandth.
const MICRO: i64 = 1000;
/// In how many steps what is to come is dealt out: more change nothing (16 to 64 were tried).
const STEPS: i64 = 32;
/// A chance of one.
const SURE: i64 = 1 << 32;
/// Competitors that a gap has at least, as a part of the pool: the first gaps of a size are not filled by all that is to come.
const RIVALS: i128 = 128;
/// Rent in billionths per thousandth drawn, per unit of demand over supply: a twentieth.
const RENT_NANO: i128 = 50_000;
/// What a place for a task of several devices is worth to it, in millionths per device, where places are short: a fiftieth.
const PLACE_MICRO: i128 = 20_000;

/// What is left unused of a device with so many slots left, in the end, in millionths.
type Row = [i64; SLOTS + 1];

/// What to expect of devices of one kind.
struct Prospect {
    /// By step of cores.
    rows: Vec<Arc<Row>>,
    /// In billionths per thousandth drawn.
    rent_nano: i64,
    /// Kinds of tasks that want several of these devices.
    large: Vec<Large>,
}

/// A kind of task that wants several devices of one node.
struct Large {
    count: i64,
    cpu_milli: i64,
    /// What a place for it is worth.
    micro: i64,
}

/// The outlook, prepared.
pub(super) struct Waste {
    outlook: Arc<Outlook>,
    /// Cores that tasks with devices asked for, rising: a device's prospects change at these.
    cpu_steps: Vec<i64>,
    /// How much of a device, in billionths, a milli-core is expected to go with; 0 while no task asks for cores.
    nano_per_core: i64,
    /// How scarce cores are in the pool as a whole, in 2^-32.
    scarcity: i64,
    /// Tasks with devices, and thousandths that they asked for.
    tasks: i128,
    demand_milli: i128,
    prospects: Vec<Prospect>,
    /// Rows by what they were computed from: most kinds of devices and steps of cores have the same.
    rows: BTreeMap<Chances, Arc<Row>>,
}

impl Waste {
    pub(super) fn new(outlook: &Arc<Outlook>) -> Self {
        let on_devices = || outlook.kinds.iter().filter(|(kind, _)| kind.count > 0);
        let sum = |of: fn(&TaskKind) -> i64| {
            on_devices().map(|(kind, seen)| i128::from(of(kind)) * i128::from(*seen)).sum::<i128>()
        };
        let (demand_milli, cores) = (sum(TaskKind::total_milli), sum(|kind| kind.cpu_milli));
        let mut cpu_steps: Vec<i64> = on_devices().map(|(kind, _)| kind.cpu_milli).collect();
        cpu_steps.push(0);
        cpu_steps.sort_unstable();
        cpu_steps.dedup();
        Self {
            outlook: Arc::clone(outlook),
            cpu_steps,
            nano_per_core: ratio(demand_milli * 1_000_000, cores),
            scarcity: scarcity(outlook, demand_milli),
            tasks: sum(|_| 1),
            demand_milli,
            prospects: Vec::new(),
            rows: BTreeMap::new(),
        }
    }

    /// Whether it was prepared from this outlook.
    pub(super) fn is_of(&self, outlook: &Outlook) -> bool {
        self.outlook.digest == outlook.digest
    }

    /// Learns what to expect of the kinds of devices that are new.
    pub(super) fn learn(&mut self, kinds: &Kinds) {
        while let Some(spec) = kinds.spec(self.prospects.len() as u16) {
            let prospect = self.prospect(&spec);
            self.prospects.push(prospect);
        }
    }

    fn prospect(&mut self, spec: &DeviceSpec) -> Prospect {
        let may = |kind: &TaskKind| kind.class.takes(spec);
        let mut rows = Vec::with_capacity(self.cpu_steps.len());
        for step in 0..self.cpu_steps.len() {
            let chances = self.chances(|kind| kind.cpu_milli <= self.cpu_steps[step] && may(kind));
            let row = self.rows.get(&chances).cloned().unwrap_or_else(|| Arc::new(self.row(&chances)));
            self.rows.insert(chances, Arc::clone(&row));
            rows.push(row);
        }
        Prospect { rows, rent_nano: self.rent(may), large: self.large(may) }
    }

    /// Which tasks will come that can use a device.
    fn chances(&self, can: impl Fn(&TaskKind) -> bool) -> Chances {
        let mut chances = Chances::default();
        for (kind, seen) in self.outlook.kinds.iter().filter(|(kind, _)| kind.count > 0 && can(kind)) {
            chances.usable += seen;
            if kind.count == 1 && kind.milli < WHOLE_MILLI {
                *chances.shares.entry((kind.milli as usize).div_ceil(SLOT_MILLI)).or_default() += seen;
            }
        }
        // It matters only where cores are scarce: without it, fewer rows differ.
        if self.scarcity == 0 {
            chances.usable = 0;
        }
        chances
    }

    /// What is expected to be left of each gap when the arrivals of half a pool of devices have been dealt out.
    fn row(&self, chances: &Chances) -> Row {
        let rates = self.rates(chances);
        let mut row: [i64; SLOTS + 1] =
            std::array::from_fn(|slots| (slots * SLOT_MILLI) as i64 * MICRO * MICRO);
        for _ in 0..STEPS {
            // From the largest down: what is left of a gap is looked up as it was before the step.
            for gap in (1..SLOTS).rev() {
                let (mut filled, mut sum) = (0, 0);
                for (size, rate) in rates.iter().take_while(|(size, _)| *size <= gap) {
                    filled += rate * row[gap - size];
                    sum += rate;
                }
                row[gap] = (filled + (SURE - sum) * row[gap]) / SURE;
            }
        }
        row.iter_mut().for_each(|nano| *nano /= MICRO);
        row[SLOTS] = self.free(chances, &row);
        row
    }

    /// What a free device is expected to leave: what the next share leaves of it; and, where cores are scarce, that it stays free
    /// as two tasks in a row cannot use it.
    fn free(&self, chances: &Chances, row: &Row) -> i64 {
        let count: i128 = chances.shares.values().map(|seen| i128::from(*seen)).sum();
        let sum = chances
            .shares
            .iter()
            .map(|(size, seen)| i128::from(row[SLOTS.saturating_sub(*size)]) * i128::from(*seen));
        let unfit = (self.tasks - i128::from(chances.usable)).max(0);
        let idle = i128::from(i64::from(WHOLE_MILLI) * MICRO) * unfit * unfit;
        let scarce = ratio(idle, self.tasks * self.tasks) as i128 * i128::from(self.scarcity);
        ratio(sum.sum(), count) + (scarce / i128::from(SURE)) as i64
    }

    /// The chance per step that a gap gets a share of each size: those to come, divided among the gaps that could take them.
    fn rates(&self, chances: &Chances) -> Vec<(usize, i64)> {
        let devices: i128 = self.outlook.devices.iter().map(|(_, count)| i128::from(*count)).sum();
        let rate = |(size, seen): (&usize, &u64)| {
            let gaps: i128 = self
                .outlook
                .open
                .iter()
                .filter(|(left, _)| *left as usize >= size * SLOT_MILLI)
                .map(|(_, count)| i128::from(*count))
                .sum();
            let to_come = i128::from(*seen) * devices * (RIVALS / 2) * i128::from(SURE);
            let among = self.tasks * (RIVALS * gaps + devices) * i128::from(STEPS);
            (*size, to_come / among.max(1))
        };
        let rates: Vec<(usize, i128)> = chances.shares.iter().map(rate).collect();
        let sum = rates.iter().map(|(_, rate)| rate).sum::<i128>().max(i128::from(SURE));
        rates.into_iter().map(|(size, rate)| (size, (rate * i128::from(SURE) / sum) as i64)).collect()
    }

    /// The rent for a device, for the sake of tasks that may use only some models, so that others stay away from these: demand over supply.
    fn rent(&self, may: impl Fn(&TaskKind) -> bool) -> i64 {
        let mut demand: BTreeMap<&DeviceClass, i128> = BTreeMap::new();
        let restricted = self
            .outlook
            .kinds
            .iter()
            .filter(|(kind, _)| kind.count > 0 && kind.class != DeviceClass::default());
        for (kind, seen) in restricted.filter(|(kind, _)| may(kind)) {
            *demand.entry(&kind.class).or_default() += i128::from(kind.total_milli()) * i128::from(*seen);
        }
        let all: i128 = self.outlook.devices.iter().map(|(_, count)| i128::from(*count)).sum();
        let rents = demand.into_iter().map(|(class, milli)| {
            let takes = |spec: &DeviceSpec| class.takes(spec);
            let supply = self.outlook.devices.iter().filter(|(kind, _)| takes(&kind.example()));
            let supply: i128 = supply.map(|(_, count)| i128::from(*count)).sum();
            ratio(RENT_NANO * milli * all, self.demand_milli * supply)
        });
        rents.fold(0, i64::saturating_add)
    }

    /// What places for tasks of several devices are worth: more, the fewer there are for those to come.
    fn large(&self, may: impl Fn(&TaskKind) -> bool) -> Vec<Large> {
        let devices: i128 = self.outlook.devices.iter().map(|(_, count)| i128::from(*count)).sum();
        let worth = |(place, places): &(usize, u64)| {
            let (kind, seen) = self.outlook.kinds.get(*place).filter(|(kind, _)| may(kind))?;
            let full = PLACE_MICRO * i128::from(kind.count);
            let among = 2 * self.tasks * (i128::from(*places) + 1);
            let micro = i128::from(ratio(full * i128::from(*seen) * devices, among)).min(full) as i64;
            Some(Large { count: kind.count.into(), cpu_milli: kind.cpu_milli.max(1), micro })
        };
        self.outlook.places.iter().filter_map(worth).collect()
    }

    /// What a device of a kind with so much left is expected to leave, on a node with so many steps of cores left.
    fn of_device(&self, kind: u16, step: usize, left_milli: i32) -> i64 {
        let row = self.prospects.get(usize::from(kind)).and_then(|prospect| prospect.rows.get(step));
        let slots = (left_milli.unsigned_abs() as usize / SLOT_MILLI).min(SLOTS);
        row.map_or(i64::from(left_milli) * MICRO, |row| row[slots])
    }

    /// What all devices of a node are expected to leave, and how many are free, with so many steps of cores left.
    fn of_devices(&self, facts: &Facts, step: usize) -> (i64, i64) {
        let devices = facts.slots.iter().zip(&facts.left_milli);
        devices.fold((0, 0), |(waste, free), (slot, left)| {
            (waste + self.of_device(slot.kind, step, *left), free + i64::from(*left == WHOLE_MILLI as i32))
        })
    }

    /// What of so much left on a node the cores left will not reach, less what the node is worth to large tasks.
    fn of_node(&self, kind: u16, cpu_milli: i64, (total_milli, free): (i64, i64)) -> i64 {
        let reached = match self.nano_per_core {
            0 => i64::MAX,
            nano => cpu_milli.saturating_mul(nano) / MICRO,
        };
        let places = |large: &Large| (free / large.count).min(cpu_milli / large.cpu_milli);
        let large = self.prospects.get(usize::from(kind)).map_or(&[][..], |prospect| &prospect.large);
        let worth: i64 = large.iter().map(|large| large.micro * places(large)).sum();
        (total_milli * MICRO).saturating_sub(reached).max(0) - worth
    }

    /// The step of cores that so many milli-cores reach.
    fn step(&self, cpu_milli: i64) -> usize {
        self.cpu_steps.partition_point(|step| *step <= cpu_milli).saturating_sub(1)
    }

    /// What of a node as it is is expected to be unused in the end, in millionths.
    fn now(&self, facts: &mut Facts, kind: u16) -> i64 {
        let cpu_milli = facts.cpu_milli.1.max(0);
        let reckon = || {
            let (waste, free) = self.of_devices(facts, self.step(cpu_milli));
            waste + self.of_node(kind, cpu_milli, (facts.total_milli.into(), free))
        };
        let now = facts.waste.unwrap_or_else(reckon);
        facts.waste = Some(now);
        now
    }

    /// Scores a node for a task: minus its cost in millionths. For a share, also returns which device it
    /// gets. `takes` says which devices may be had.
    pub(super) fn score(
        &self,
        facts: &mut Facts,
        shape: &Shape,
        takes: impl Fn(&Facts, usize) -> bool,
    ) -> (i32, Option<usize>) {
        let Some(kind) = facts.kind() else { return (0, None) };
        let (cpu_milli, milli) = drawn(facts, shape);
        let cpu_left = (facts.cpu_milli.1 - cpu_milli).max(0);
        let total_left = i64::from(facts.total_milli) - milli;
        let rent_nano = self.prospects.get(usize::from(kind)).map_or(0, |prospect| prospect.rent_nano);
        // Among equals the node with the least left: a millionth for each thousandth.
        let fixed = rent_nano.saturating_mul(milli) / MICRO + total_left - self.now(facts, kind);
        let (facts, left) = (&*facts, &facts.left_milli);
        let step = self.step(cpu_left);
        let (waste, free) = self.of_devices(facts, step);
        let score = |chosen: &[usize]| {
            let (mut waste, mut free) = (waste, free);
            for index in chosen {
                let device = |left| self.of_device(facts.slots[*index].kind, step, left);
                waste += device(left[*index] - shape.milli) - device(left[*index]);
                free -= i64::from(left[*index] == WHOLE_MILLI as i32);
            }
            as_score(fixed + waste + self.of_node(kind, cpu_left, (total_left, free)))
        };
        let fits = |index: &usize| takes(facts, *index) && shape.fits(&facts.slots[*index], left[*index]);
        let mut fitting: Vec<usize> = (0..left.len()).filter(fits).collect();
        fitting.sort_by_key(|index| left[*index]);
        if !shape.is_share() || shape.count != 1 {
            return (score(fitting.get(..shape.count).unwrap_or(&fitting)), None);
        }
        // Devices with as much left cost the same, and the first wins.
        fitting.dedup_by_key(|index| (left[*index], facts.slots[*index].kind));
        let scored = fitting.iter().map(|index| (score(&[*index]), Reverse(*index)));
        scored.max().map_or((i32::MIN, None), |(best, Reverse(index))| (best, Some(index)))
    }
}

/// Tasks to come that can use a device: all with devices, and shares by size in slots.
#[derive(Default, PartialEq, Eq, PartialOrd, Ord)]
struct Chances {
    usable: u64,
    shares: BTreeMap<usize, u64>,
}

/// The quotient, or 0 where there is nothing to divide by; far beyond any amount it stays where it is.
fn ratio(part: i128, of: i128) -> i64 {
    if of <= 0 { 0 } else { (part / of).clamp(0, i128::from(i64::MAX >> 8)) as i64 }
}

/// How scarce cores are, in 2^-32: 0 where tasks ask for less than 95 percent of what the pool has for as many devices, 1 where for
/// all of it or more.
fn scarcity(outlook: &Outlook, demand_milli: i128) -> i64 {
    let asked: i128 =
        outlook.kinds.iter().map(|(kind, seen)| i128::from(kind.cpu_milli) * i128::from(*seen)).sum();
    let devices: i128 = outlook.devices.iter().map(|(_, count)| i128::from(*count)).sum();
    let there = i128::from(outlook.cpu_milli) * demand_milli;
    let percent = ratio(100 * asked * devices * i128::from(WHOLE_MILLI) * 1000, there).min(1 << 40);
    (percent - 95_000).clamp(0, 5000) * SURE / 5000
}

/// Less cost is better; below what any node can cost it makes no difference.
fn as_score(cost_micro: i64) -> i32 {
    (-cost_micro).clamp(i64::from(i32::MIN) + 1, i64::from(i32::MAX)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::mix::DeviceKind;

    fn share(milli: u32) -> TaskKind {
        TaskKind { count: 1, milli, cpu_milli: 4000, class: DeviceClass::default() }
    }

    /// A pool of a hundred devices and five cores for each, after these arrivals.
    fn waste(kinds: Vec<(TaskKind, u64)>) -> Waste {
        let devices = vec![(DeviceKind::default(), 100)];
        let places =
            (0..kinds.len()).filter(|place| kinds[*place].0.count > 1).map(|place| (place, 3)).collect();
        let outlook = Outlook { kinds, devices, cpu_milli: 500_000, places, ..Outlook::default() };
        Waste::new(&Arc::new(outlook.sealed()))
    }

    fn row(waste: &mut Waste) -> Row {
        let prospect = waste.prospect(&DeviceSpec::default());
        **prospect.rows.last().unwrap()
    }

    #[test]
    fn a_gap_wastes_what_the_shares_to_come_will_leave_of_it() {
        let row = row(&mut waste(vec![(share(700), 50), (share(300), 50)]));
        let left_milli = |milli: usize| row[milli / SLOT_MILLI] / MICRO;
        // Nothing fits below 300, so all of it stays; 300 and 600 are filled in the end.
        assert_eq!([0, 10, 290, 300, 350, 600].map(left_milli), [0, 10, 290, 0, 50, 0]);
        // Of a gap of 700 half is filled at once, and half by two of 300.
        assert_eq!(left_milli(700), 50);
        // A free device becomes a gap of 700 or 300.
        assert_eq!(left_milli(1000), 25);
    }

    #[test]
    fn no_gap_is_expected_to_waste_more_than_itself_or_less_than_nothing() {
        let kinds = (1..=40).map(|size| (share(size * 24), u64::from(size * size % 17))).collect();
        let row = row(&mut waste(kinds));
        for (slots, left) in row[..SLOTS].iter().enumerate() {
            assert!((0..=(slots * SLOT_MILLI) as i64 * MICRO).contains(left), "{slots}: {row:?}");
        }
    }

    #[test]
    fn nothing_is_expected_before_the_first_outlook() {
        let mut waste = Waste::new(&Arc::default());
        let row = row(&mut waste);
        assert_eq!((row[50], row[SLOTS], waste.nano_per_core, waste.scarcity), (500_000, 0, 0, 0));
    }

    #[test]
    fn places_for_large_tasks_are_worth_more_the_fewer_there_are() {
        let large = |seen| {
            let whole = TaskKind { count: 8, milli: 1000, cpu_milli: 0, class: DeviceClass::default() };
            let waste = waste(vec![(whole, seen), (share(500), 100 - seen)]);
            waste.large(|_| true)[0].micro
        };
        // Of the next fifty tasks one is large, and there are three places (and one to be sure): an eighth of the full worth.
        assert_eq!((large(1), large(2)), (20_000, 40_000));
        assert_eq!(large(90), 8 * 20_000);
    }

    #[test]
    fn cores_are_scarce_where_tasks_ask_for_more_than_the_pool_has() {
        let scarcity = |cores: u64| {
            let alone = TaskKind { cpu_milli: 1000, ..TaskKind::default() };
            waste(vec![(share(1000), 100), (alone, cores)]).scarcity
        };
        // Four cores go with each device asked for, five are there: 95 percent is reached with 75 cores more.
        assert_eq!((scarcity(0), scarcity(75), scarcity(100)), (0, 0, SURE));
        assert!(scarcity(90) > 0 && scarcity(90) < SURE);
    }
}
