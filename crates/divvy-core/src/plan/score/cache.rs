//! Scores that were computed before, kept while the nodes are as they were. An entry is valid by the hash of all that
//! it was computed from, so that nothing has to be invalidated: a warm cache answers as a cold one does (L3).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::facts::{Facts, Kinds, Shape};
use super::fgd::Fgd;
use super::simple::{self, Scale};
use super::waste::Waste;
use crate::model::ask::{Alternative, DeviceAsk};
use crate::model::job::JobSpec;
use crate::model::mix::Outlook;
use crate::model::score::Score;
use crate::plan::place;
use crate::plan::trial::Scope;
use crate::snapshot::{Capacity, NodeView};
use crate::state::fingerprint;

/// What is asked for one task.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Asked<'a> {
    /// By which job.
    pub(in crate::plan) spec: &'a JobSpec,
    /// By which of its alternatives.
    pub(in crate::plan) alternative: &'a Alternative,
    /// Models from which a limit keeps it.
    pub(in crate::plan) closed: &'a [String],
}

/// Which devices a task gets of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plan) enum Pick {
    /// Those that belong together; for a share, the fullest that has room.
    Near,
    /// Those of the lowest index.
    Lowest,
    /// This one, by its place on the node.
    This(usize),
}

/// The scores of nodes, by what is asked. As it is a cache, any two are equal, and a clone starts empty.
#[derive(Default)]
pub struct Scores {
    asked: BTreeMap<u64, Column>,
    facts: Vec<Facts>,
    kinds: Kinds,
    fgd: Option<Fgd>,
    waste: Option<Waste>,
}

/// Entries kept at most, over all columns: 16 bytes each.
const MOST_ENTRIES: usize = 4_000_000;

impl Clone for Scores {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Scores {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scores").field("asked", &self.asked.len()).finish_non_exhaustive()
    }
}

/// What the nodes are worth to one kind of task.
struct Column {
    shape: Shape,
    /// By kind of device: whether it is of the right class and open, once asked.
    takes: Vec<Option<bool>>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The node's stamp when it was computed; 0 before.
    stamp: u64,
    /// [`UNFIT`] if the node cannot take the task.
    score: i32,
    /// The device that a share gets.
    device: Option<u16>,
}

/// Below any score.
const UNFIT: i32 = i32::MIN;

const UNSEEN: Entry = Entry { stamp: 0, score: UNFIT, device: None };

/// How many nodes alike are recognised while a column is brought up to date: most nodes of a large pool are idle or full.
const ALIKE: usize = 64;

/// What nodes are scored by.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Rule<'a> {
    /// The policy's setting.
    pub(in crate::plan) score: &'a Score,
    /// What is to be expected.
    pub(in crate::plan) outlook: &'a Arc<Outlook>,
    /// The task.
    pub(in crate::plan) asked: &'a Asked<'a>,
}

impl Scores {
    /// The best node for a task, and which devices it gets there. `turn` makes a random choice a different
    /// one each time. Places in `skip` are left out, and so are all outside `scope`, if there is one.
    pub(in crate::plan) fn best(
        &mut self,
        capacity: &Capacity,
        rule: Rule,
        turn: u64,
        (skip, scope): (&[usize], Option<&Scope>),
    ) -> Option<(usize, Pick)> {
        let Rule { score, asked, .. } = rule;
        let column = self.bring_up_to_date(capacity, &rule);
        let entries = column.entries.iter().enumerate();
        let is_open = |place: &usize| scope.is_none_or(|scope| scope.binary_search(place).is_ok());
        let fitting =
            entries.filter(|(place, entry)| entry.score > UNFIT && !skip.contains(place) && is_open(place));
        if let Score::Random { seed } = score {
            let fitting: Vec<usize> = fitting.map(|(place, _)| place).collect();
            let place = *drawn(&fitting, (seed, turn))?;
            let node = &capacity.nodes[place];
            let ask = asked.alternative.devices.as_ref().filter(|_| column.shape.is_share());
            let having = |ask| {
                (0..node.devices.len())
                    .filter(|index| place::open(&node.devices[*index], ask, asked.closed))
                    .collect()
            };
            let having: Vec<usize> = ask.map(having).unwrap_or_default();
            return Some((
                place,
                drawn(&having, (&turn, *seed)).map_or(Pick::Lowest, |index| Pick::This(*index)),
            ));
        }
        let (mut best, mut found) = (UNFIT, None);
        for (place, entry) in fitting {
            if entry.score > best {
                (best, found) = (entry.score, Some((place, entry.device)));
            }
        }
        let any = if *score == Score::LeastWaste { Pick::Near } else { Pick::Lowest };
        found.map(|(place, device)| (place, device.map_or(any, |index| Pick::This(index.into()))))
    }

    /// Prepares what the score is computed from; what was kept of another outlook is forgotten.
    fn prepare(&mut self, rule: &Rule) {
        if let Score::Fgd { typical } = rule.score
            && !self.fgd.as_ref().is_some_and(|fgd| fgd.is_of(typical))
        {
            self.fgd = Some(Fgd::new(typical));
        }
        if *rule.score == Score::LeastWaste
            && !self.waste.as_ref().is_some_and(|waste| waste.is_of(rule.outlook))
        {
            self.waste = Some(Waste::new(rule.outlook));
            self.asked.clear();
            self.facts.iter_mut().for_each(|facts| facts.waste = None);
        }
    }

    /// Scores the nodes that have changed again.
    fn bring_up_to_date(&mut self, capacity: &Capacity, rule: &Rule) -> &Column {
        let nodes = capacity.nodes.len();
        if self.asked.len() * nodes > MOST_ENTRIES {
            self.asked.clear();
        }
        self.prepare(rule);
        let (cpu_milli, devices) = capacity.sizes().span();
        let scale = Scale { cpu_milli, devices_milli: 1000 * devices };
        let asked = rule.asked;
        let of_task = (asked.alternative, asked.spec.exclusive, asked.closed);
        let key = fingerprint(&(rule.score, (scale.cpu_milli, scale.devices_milli), of_task));
        let Self { asked: columns, facts, kinds, fgd, waste } = self;
        facts.resize_with(nodes, Facts::default);
        let column = columns.entry(key).or_insert_with(|| Column::new(asked));
        column.entries.resize(nodes, UNSEEN);
        let mut alike = [UNSEEN; ALIKE];
        for (place, stamp) in capacity.stamps().iter().enumerate() {
            if column.entries[place].stamp == *stamp {
                continue;
            }
            let known = &mut alike[*stamp as usize % ALIKE];
            if known.stamp != *stamp {
                let (view, facts) = (&capacity.nodes[place], &mut facts[place]);
                if facts.stamp != *stamp {
                    facts.read(view, *stamp, kinds);
                }
                let learned = Learned { scale, kinds, fgd: fgd.as_mut(), waste: waste.as_mut() };
                let (score, device) =
                    column.value(view, facts, asked, (rule, learned)).unwrap_or((UNFIT, None));
                *known = Entry { stamp: *stamp, score, device: device.map(|index| index as u16) };
            }
            column.entries[place] = *known;
        }
        column
    }
}

/// What scores are computed from besides node and task.
struct Learned<'a> {
    scale: Scale,
    kinds: &'a Kinds,
    fgd: Option<&'a mut Fgd>,
    waste: Option<&'a mut Waste>,
}

/// One of these, by a hash.
fn drawn<T>(of: &[T], by: impl std::hash::Hash) -> Option<&T> {
    let count = (of.len() as u64).max(1);
    of.get((fingerprint(&by) % count) as usize)
}

impl Column {
    fn new(asked: &Asked) -> Self {
        let Alternative { devices, cpu_milli, memory_bytes, .. } = asked.alternative;
        let exclusive = asked.spec.exclusive;
        let shape = Shape {
            cpu_milli: *cpu_milli,
            memory_bytes: *memory_bytes,
            exclusive,
            ..Shape::of(devices.as_ref())
        };
        Self { shape, takes: Vec::new(), entries: Vec::new() }
    }

    /// What a node is worth, and which device a share gets; `None` if it cannot take the task.
    fn value(
        &mut self,
        view: &NodeView,
        facts: &mut Facts,
        asked: &Asked,
        (rule, learned): (&Rule, Learned),
    ) -> Option<(i32, Option<usize>)> {
        self.learn(view, facts, asked);
        let least = self.room(view, facts, asked)?;
        let (shape, scale) = (&self.shape, learned.scale);
        let least_milli = least.map_or(0, |index| facts.left_milli[index]);
        let device = least.filter(|_| shape.is_share());
        let takes = |facts: &Facts, index: usize| self.is_right(facts, index);
        let score = match (rule.score, learned.fgd, learned.waste) {
            (Score::Fgd { .. }, Some(fgd), _) => {
                facts.kind().into_iter().for_each(|kind| fgd.learn(learned.kinds, kind));
                return Some(fgd.score(facts, shape, takes));
            }
            (Score::LeastWaste, _, Some(waste)) => {
                waste.learn(learned.kinds);
                return Some(waste.score(facts, shape, takes));
            }
            (Score::BestFit, ..) => simple::best_fit(facts, shape, scale),
            (Score::DotProduct, ..) => simple::dot_product(facts, shape, scale),
            (Score::GpuPacking, ..) => simple::gpu_packing(facts, shape, least_milli),
            (Score::GpuClustering, ..) => simple::gpu_clustering(facts, shape, scale),
            _ => 0,
        };
        Some((score, device))
    }

    /// Learns whether devices of the kinds on this node will do.
    fn learn(&mut self, view: &NodeView, facts: &Facts, asked: &Asked) {
        let Some(ask) = &asked.alternative.devices else { return };
        for (slot, device) in facts.slots.iter().zip(&view.devices) {
            let kind = usize::from(slot.kind);
            if self.takes.len() <= kind {
                self.takes.resize(kind + 1, None);
            }
            if self.takes[kind].is_none() {
                self.takes[kind] = Some(place::is_right(device, ask, asked.closed));
            }
        }
    }

    fn is_right(&self, facts: &Facts, index: usize) -> bool {
        self.takes.get(usize::from(facts.slots[index].kind)).copied().flatten() == Some(true)
    }

    /// Whether a node has room for the task, and which of the devices that fit has the least left (`None`
    /// within for a task without devices).
    fn room(&self, view: &NodeView, facts: &Facts, asked: &Asked) -> Option<Option<usize>> {
        let shape = &self.shape;
        let cpu_milli = simple::drawn(facts, shape).0;
        let memory_bytes = shape.memory_bytes.unwrap_or(0);
        let has_host = cpu_milli <= facts.cpu_milli.1 && memory_bytes <= facts.memory_bytes.1;
        let has_host = has_host && asked.alternative.extras.beyond(&view.extras.1).is_none();
        if !facts.takes_tasks || !has_host || shape.exclusive && !facts.is_idle {
            return None;
        }
        let (mut fitting, mut least) = (0, None);
        for (index, slot) in facts.slots.iter().enumerate().filter(|_| shape.count > 0) {
            let left = facts.left_milli[index];
            if shape.fits(slot, left) && self.is_right(facts, index) {
                fitting += 1;
                if least.is_none_or(|(so_far, _)| left < so_far) {
                    least = Some((left, index));
                }
            }
        }
        // Memory that is not stated depends on the devices, and so do islands: only the draw itself can tell.
        let draws = || place::draw_of(view, asked, Pick::Lowest).is_some();
        let has_island = || asked.alternative.devices.as_ref().and_then(DeviceAsk::required_island).is_some();
        let is_certain = shape.memory_bytes.is_some() && !has_island();
        let fits = fitting >= shape.count && (is_certain || draws());
        fits.then_some(least.map(|(_, index)| index))
    }
}
