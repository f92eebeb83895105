//! Part of phase 1, share: what queues missed in the past is due to them beside what is due to them now, a part at a time; and
//! what is due now is noted for later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::share::{POOL, QueueShare, Shares};
use crate::snapshot::Waiting;
use crate::state::State;

/// What is divided by the past, too: devices of all models.
const ANY: usize = 0;

/// Aims at what is due now and, within the time in which a queue catches up, what it missed; at less where it had more than
/// its due. What is guaranteed stays so.
pub(super) fn aim(state: &State, shares: &mut Shares) {
    for queue in &mut shares.queues {
        queue.keeps.clone_from(&queue.due);
        queue.target.clone_from(&queue.due);
    }
    if !shares.remembers {
        return;
    }
    shares.note_missed(state);
    let missed = Arc::clone(&shares.missed.of_queues);
    for (queue, more) in shares.queues.iter_mut().zip(missed.iter()).skip(1) {
        let QueueShare { due, keeps, target, guarantee, .. } = queue;
        keeps[ANY] = due[ANY].saturating_add(*more);
        target[ANY] = keeps[ANY].max(guarantee[ANY].min(due[ANY]));
    }
}

/// What queues missed, with those below them: as much as each is to hold more, in thousandths of devices, to catch up in time. It stands
/// until the past changes, so a tree keeps it.
#[derive(Clone, Debug, Default)]
pub(super) struct Missed {
    /// By place.
    of_queues: Arc<Vec<i64>>,
    /// Of which past, and for how long a time to catch up.
    as_of: Option<(u64, i64)>,
}

impl Missed {
    fn of(state: &State, shares: &Shares) -> Vec<i64> {
        let mut credits = vec![0i128; shares.queues.len()];
        let mut places = shares.in_order();
        for (path, record) in state.past.records() {
            if let Some(place) = places.place(path) {
                credits[place] += record.credit_milli_ms;
            }
        }
        for place in (1..credits.len()).rev() {
            credits[shares.queues[place].parent] += credits[place];
        }
        let more = |credit: i128| credit / i128::from(state.policy.catch_up_ms.max(1));
        let most = |more: i128| if more < 0 { i64::MIN } else { i64::MAX };
        credits.into_iter().map(more).map(|more| i64::try_from(more).unwrap_or(most(more))).collect()
    }
}

impl Shares {
    /// Notes what queues missed, if that is not known.
    pub(super) fn note_missed(&mut self, state: &State) {
        let as_of = state.past.digest().map(|past| (past, state.policy.catch_up_ms));
        let is_known = as_of.is_some() && self.missed.as_of == as_of;
        if !is_known || self.missed.of_queues.len() != self.queues.len() {
            self.missed = Missed { of_queues: Arc::new(Missed::of(state, self)), as_of };
        }
    }

    /// Whether a queue, and each above it, is to hold so much more; always where the past does not count.
    pub(super) fn owes(&self, place: usize, asked: &[i64]) -> bool {
        let stays = |place: usize| {
            let QueueShare { held, target, .. } = &self.queues[place];
            held[ANY].saturating_add(asked[ANY]) <= target[ANY]
        };
        !self.remembers || self.upwards(place).all(stays)
    }

    /// How a queue, and those above it up to `up_to`, stand by what is due to them once so much stops: of
    /// devices or, where none are asked for, of what is asked for.
    pub(super) fn short(&self, (from, up_to): (usize, usize), (draws, asked): (&[i64], &[i64])) -> Short {
        let below = self.upwards(from).take_while(|place| *place != self.queues[up_to].parent);
        let asks = |index: &usize| asked[ANY] == 0 && asked[*index] > 0 && draws[*index] > 0;
        let of = |place: usize, index: usize| {
            let QueueShare { running, keeps, .. } = &self.queues[place];
            match running[index] {
                running if running <= keeps[index] => Short::Already,
                running if running.saturating_sub(draws[index]) < keeps[index] => Short::Becomes,
                _ => Short::Not,
            }
        };
        let worst = |place: usize| {
            let of_hosts = (0..asked.len()).filter(asks).map(|index| of(place, index)).max();
            of_hosts.unwrap_or_else(|| of(place, ANY))
        };
        below.map(worst).max().unwrap_or_default()
    }
}

/// Whether a queue has less than is due to it once a job gives way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Short {
    #[default]
    Not,
    /// It has more now, and less then.
    Becomes,
    /// It has no more even now: what is taken from it stays due to it, and it could take that back from queues that have more.
    Already,
}

/// The worst so far among the jobs of one queue, those of lower priority first: a job of higher priority
/// counts no better than one of lower, since it would take that one's place.
pub(super) struct Worst {
    below: Short,
    here: Short,
    priority: i32,
}

impl Default for Worst {
    fn default() -> Self {
        Self { below: Short::Not, here: Short::Not, priority: i32::MIN }
    }
}

impl Worst {
    /// How the next job, of this priority, counts.
    pub(super) fn with(&mut self, priority: i32, short: Short) -> Short {
        if priority > self.priority {
            self.below = self.below.max(self.here);
            self.priority = priority;
        }
        self.here = self.here.max(short);
        short.max(self.below)
    }
}

/// What is due to each queue for which that has changed since the last tick: to the thousandth of a device,
/// so that nothing is lost by rounding; `None` for queues that have all that they want.
pub(super) fn changed_dues(
    state: &State,
    (waiting, shares): (&Waiting, Option<&Shares>),
) -> Vec<(String, Option<i64>)> {
    if !state.past.is_awaited() {
        return Vec::new();
    }
    let now: BTreeMap<&str, i64> = shares.map(|shares| dues(waiting, shares)).unwrap_or_default();
    let over =
        state.past.records().filter(|(queue, record)| record.due_milli.is_some() && !now.contains_key(queue));
    let over = over.map(|(queue, _)| (queue.to_owned(), None));
    let is_known =
        |queue: &str, due| state.past.record(queue).and_then(|record| record.due_milli) == Some(due);
    let changed = now.iter().filter(|(queue, due)| !is_known(queue, **due));
    over.chain(changed.map(|(queue, due)| ((*queue).to_owned(), Some(*due)))).collect()
}

/// What is due to the own jobs of each queue in which a job waits that could start in an idle pool, or that has more than its due.
fn dues<'a>(waiting: &Waiting, shares: &'a Shares) -> BTreeMap<&'a str, i64> {
    let mut due = vec![0i64; shares.queues.len()];
    due[POOL] = shares.queues[POOL].due[ANY];
    let (mut own, mut wanted) = (due.clone(), vec![0i64; due.len()]);
    for queue in 0..shares.queues.len() {
        let parts = shares.parts((queue, ANY), due[queue], 1);
        let QueueShare { children, wanted: in_all, .. } = &shares.queues[queue];
        own[queue] = (due[queue] - parts.iter().sum::<i64>()).max(0);
        wanted[queue] =
            in_all[ANY] - children.iter().map(|child| shares.queues[*child].wants_above(ANY)).sum::<i64>();
        for (child, part) in children.iter().zip(parts) {
            due[*child] = part;
        }
    }
    let waiting = waiting.classes.values().filter(|view| !view.is_left_out).map(|view| view.queue);
    let waits: BTreeSet<usize> = waiting.filter(|place| !shares.queues[*place].is_spent).collect();
    let is_short = |place: usize| waits.contains(&place) || own[place] < wanted[place];
    shares.paths().filter(|(_, place)| is_short(*place)).map(|(queue, place)| (queue, own[place])).collect()
}
