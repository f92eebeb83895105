//! Phase 2, order, between queues: whose turn it is. At each fork of the tree the child that is furthest
//! below what is due to it goes first; inside a queue its own order holds.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

use super::order::{Head, Line};
use super::reclaim::{self, Rules};
use super::share::{ANY, Amounts, POOL, Shares};
use crate::id::{ClassId, JobId};
use crate::snapshot::order::displaces;
use crate::snapshot::{ClassView, OrderKey, Running, Waiting};
use crate::state::State;
use crate::time::Time;

/// While nothing has become free, room is looked for among all waiting classes only if there are at most so many.
const MOST_CLASSES_LOOKED_AT: usize = 500;

/// The lines of all queues.
pub(super) struct Turns<'a> {
    state: &'a State,
    running: &'a Running,
    /// How many classes are left out, since their verdicts stand.
    pub(super) left_out: usize,
    lines: Vec<Line<'a>>,
    /// By queue: its children in which a job waits, and itself if jobs of its own wait; the next first. Empty
    /// where there are no children: the next is known without it.
    forks: Vec<BTreeSet<Entry<'a>>>,
    /// By queue: how it stands in its parent's fork, and how its own jobs stand in its own.
    entries: Vec<(Option<Entry<'a>>, Option<Entry<'a>>)>,
    /// By queue, where that has been asked: the job for which its guarantee has room.
    owed: Vec<Option<Owed<'a>>>,
    /// How many queues have jobs of their own in line.
    open: usize,
    /// Whether no job passes one that stands before it.
    strict: bool,
    /// How many classes in line have no verdict that stands; `None` where something has become free, or the order is strict.
    untold: Option<usize>,
    /// Classes whose verdicts do not stand, though nothing has become free, since running jobs stand behind them.
    behind: BTreeSet<ClassId>,
}

/// An entry of a fork: how it stands, which child it is, and its next job.
#[derive(Clone, Copy)]
struct Entry<'a> {
    standing: Standing,
    child: usize,
    next: Next<'a>,
}

/// The class of the next job, its queue, and what it asks for of what is divided. Of two that stand alike, the one whose
/// class has the lower id goes first.
#[derive(Clone, Copy)]
struct Next<'a> {
    class: ClassId,
    queue: usize,
    asked: &'a Amounts,
}

impl Entry<'_> {
    fn stands(&self) -> (&Standing, usize, ClassId) {
        (&self.standing, self.child, self.next.class)
    }
}

impl Ord for Entry<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.stands().cmp(&other.stands())
    }
}

impl PartialOrd for Entry<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.stands() == other.stands()
    }
}

impl Eq for Entry<'_> {}

/// The first job in a queue's line for which the queue's guarantee has room. It holds as long as the queue
/// holds as much, no job has entered its line, and that job still stands there.
struct Owed<'a> {
    held: Amounts,
    entered: u64,
    first: Option<Head<'a>>,
    /// The first job that goes in its place, if any does.
    senior: Option<Head<'a>>,
}

/// Lower goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Standing {
    /// Whether its next job takes it beyond what is due to it.
    beyond_due: bool,
    /// Whether it takes it beyond its guarantee.
    beyond_guarantee: bool,
    /// The negative of its priority.
    rank: i64,
    /// What it holds of what is due to it, in millionths.
    part: i64,
    /// Of equal parts the one that holds less goes first.
    held: i64,
    /// Of those, the one that is guaranteed more, then the one with more weight.
    entitled: Reverse<(i64, u32)>,
    /// The place of its next job in its line.
    head: OrderKey,
}

impl Standing {
    /// How a queue stands with the next job of a child that stands like `below`. What is due to none there is due to
    /// none here; what is guaranteed there is due here, too: where a sibling has too much, the sibling gives back.
    fn above(self, below: &Self) -> Self {
        match (below.beyond_due, below.beyond_guarantee) {
            (true, _) => Self { beyond_due: true, part: self.part.max(below.part), ..self },
            (false, true) => self,
            (false, false) => Self { beyond_due: false, beyond_guarantee: false, ..self },
        }
    }
}

/// A job whose turn it is.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) queue: usize,
    pub(super) class: ClassId,
    /// What the jobs of its class are, and ask for.
    pub(super) view: &'a ClassView,
    pub(super) key: OrderKey,
    /// Whether running jobs might give way to its class since they stand behind it, though nothing has become free.
    pub(super) has_behind: bool,
    place: OrderKey,
}

impl Turn<'_> {
    /// The job, or its array as a whole.
    pub(super) fn job(&self) -> JobId {
        JobId::single(self.key.number)
    }
}

impl<'a> Turns<'a> {
    /// All jobs in line; `has_behind` says of a waiting class whether running jobs might give way to it since they stand behind it.
    pub(super) fn new(
        (state, waiting, running): (&'a State, &'a Waiting, &'a Running),
        now: Time,
        shares: &Shares,
        has_behind: &dyn Fn(&ClassView) -> bool,
    ) -> Self {
        let mut classes: Vec<Vec<(ClassId, &ClassView)>> = vec![Vec::new(); shares.queues.len()];
        let Open { tops: has_open, untold, behind } = open(state, waiting, shares, has_behind);
        let mut left_out = 0;
        for (queue, waits) in waiting.in_queues() {
            match has_open[shares.top(queue)] {
                true => classes[queue] = waiting.of_queue(waits).collect(),
                false => left_out += waits.classes.len(),
            }
        }
        let lines: Vec<Line> =
            classes.into_iter().map(|classes| Line::of(waiting, &state.policy, now, classes)).collect();
        let forks = vec![BTreeSet::new(); lines.len()];
        let entries = vec![(None, None); lines.len()];
        let strict = state.policy.strict;
        let owed = lines.iter().map(|_| None).collect();
        let open = 0;
        let mut turns =
            Self { state, running, left_out, lines, forks, entries, owed, open, strict, untold, behind };
        for queue in 0..turns.lines.len() {
            if turns.lines[queue].first().is_some() {
                turns.refresh(queue, shares);
            }
        }
        turns
    }

    /// Takes the next job out of its line.
    pub(super) fn take(&mut self, shares: &Shares) -> Option<Turn<'a>> {
        let mut queue = POOL;
        let class = loop {
            let Entry { child, next, .. } = *self.first(queue, shares)?;
            if child == queue {
                break next.class;
            }
            queue = child;
        };
        let Head { place, class, key, view } = self.lines[queue].take_of(class)?;
        let is_it = |head: &Option<Head>| head.is_some_and(|head| head.class == class);
        if self.owed[queue].as_ref().is_some_and(|owed| is_it(&owed.first) || is_it(&owed.senior)) {
            self.owed[queue] = None;
        }
        let has_behind = self.behind.contains(&class);
        Some(Turn { queue, class, view, key, has_behind, place })
    }

    /// Whether the next job takes its queue, or one above it, beyond what is due to it.
    pub(super) fn is_beyond_due(&self, shares: &Shares) -> bool {
        let mut queue = POOL;
        while let Some(Entry { standing, child, .. }) = self.first(queue, shares) {
            if standing.beyond_due {
                return true;
            }
            if *child == queue {
                break;
            }
            queue = *child;
        }
        false
    }

    /// The queue whose job is next.
    pub(super) fn next_queue(&self, shares: &Shares) -> Option<usize> {
        let mut queue = POOL;
        loop {
            match self.first(queue, shares)?.child {
                child if child == queue => return Some(queue),
                child => queue = child,
            }
        }
    }

    /// The job that stands first in a queue's own line and has not had its turn.
    pub(super) fn first_of(&self, queue: usize) -> Option<Head<'a>> {
        self.lines[queue].next()
    }

    /// Whether no job waits in any other queue.
    pub(super) fn is_alone(&self) -> bool {
        self.open <= 1
    }

    /// Whether the verdicts of all that are in line stand.
    pub(super) fn all_stand(&self) -> bool {
        self.untold == Some(0)
    }

    /// How many classes are in line.
    pub(super) fn left(&self) -> usize {
        self.lines.iter().map(|line| line.classes().count()).sum()
    }

    /// Goes on after a run that needs no further turn: with the next run of its job, which stands at `next`, or with the job behind it.
    pub(super) fn go_on(&mut self, turn: Turn<'a>, next: Option<OrderKey>) {
        match next {
            Some(next) => self.put_back(turn, next),
            None => self.admit_next(turn),
        }
    }

    /// Lets the job behind this one in its class into the line.
    fn admit_next(&mut self, turn: Turn<'_>) {
        if !self.lines[turn.queue].admit_next(turn.class, turn.key) {
            self.leave();
        }
    }

    /// A class is tried though its verdict stood.
    pub(super) fn reopen(&mut self) {
        self.untold = self.untold.map(|untold| untold + 1);
    }

    /// A class that was tried leaves the line.
    pub(super) fn leave(&mut self) {
        self.untold = self.untold.map(|untold| untold.saturating_sub(1));
    }

    /// Whether a job stands in the line where this run of it does.
    pub(super) fn stands_at(&self, turn: Turn<'_>, run: OrderKey) -> bool {
        self.lines[turn.queue].place_of(turn.view, run) == turn.place
    }

    /// Puts back a job whose run at `next` may start next, or the job of its class that stands before that.
    fn put_back(&mut self, turn: Turn<'a>, next: OrderKey) {
        let Turn { place, class, key, view, .. } = turn;
        match self.stands_at(turn, next) {
            true => self.lines[turn.queue].put_back(Head { place, class, key, view }),
            false => self.lines[turn.queue].fall_back(turn.class, turn.key, next),
        }
    }

    /// Takes all jobs out of a queue's line and returns their classes.
    pub(super) fn close(&mut self, queue: usize) -> impl Iterator<Item = ClassId> + use<'_, 'a> {
        std::iter::from_fn(move || self.lines[queue].take().map(|head| head.class))
    }

    /// Looks again at how a queue and those above it stand: what it holds, or its line, has changed.
    pub(super) fn refresh(&mut self, queue: usize, shares: &Shares) {
        let own = self.lines[queue].next().map(|next| {
            // Its own jobs stand beside its children as a queue without a guarantee would.
            let standing = self.standing(shares, (queue, queue), (next.place, &next.view.asked));
            let owed = if standing.beyond_due { self.owed(shares, queue) } else { None };
            let (standing, by, senior) = owed.unwrap_or((standing, next, None));
            let class = senior.unwrap_or(by).class;
            Entry { standing, child: queue, next: Next { class, queue, asked: &by.view.asked } }
        });
        let before = std::mem::replace(&mut self.entries[queue].1, own);
        self.open = self.open + usize::from(own.is_some()) - usize::from(before.is_some());
        if !shares.queues[queue].children.is_empty() {
            exchange(&mut self.forks[queue], before, own);
        }
        let mut place = queue;
        while place != POOL {
            let parent = shares.queues[place].parent;
            let entry = self.first(place, shares).map(|first| {
                let of_child = &first.standing;
                let standing = match first.child == queue {
                    // As it has just been computed.
                    true if place == queue => *of_child,
                    _ => {
                        let parties = (first.next.queue, place);
                        self.standing(shares, parties, (of_child.head, first.next.asked)).above(of_child)
                    }
                };
                Entry { standing, child: place, ..*first }
            });
            let before = std::mem::replace(&mut self.entries[place].0, entry);
            exchange(&mut self.forks[parent], before, entry);
            place = parent;
        }
    }

    /// The first job in a queue's line for which its guarantee has room, where nothing is due to the jobs
    /// before it; and the job that goes in its place. In a strict order no job passes those before it.
    fn owed(&mut self, shares: &Shares, queue: usize) -> Option<(Standing, Head<'a>, Option<Head<'a>>)> {
        let held = &shares.queues[queue].held;
        let mut has_room = held.iter().zip(&shares.queues[queue].guarantee);
        // On a queue's own nodes no other queue owes or takes anything: there room is kept for its first job.
        let is_alone = shares.queues[queue].has_nodes;
        if self.strict || is_alone || !has_room.any(|(held, guarantee)| held < guarantee) {
            return None;
        }
        let (line, known) = (&self.lines[queue], &mut self.owed[queue]);
        let entered = line.entered();
        let owed = match known {
            Some(owed) if owed.held == *held && owed.entered == entered => owed,
            _ => {
                let first = line.next_of(|view| shares.guarantees_any(queue, view));
                let senior = first.and_then(|first| {
                    let parties = (self.state, self.running);
                    // Where no job of lower priority runs, none is looked for.
                    self.running.lowest_priority(first.view.example.stand())?;
                    let senior = line.next_of(|view| may_stand_in(parties, shares, view, first.view));
                    senior.filter(|senior| *senior < first)
                });
                known.insert(Owed { held: held.clone(), entered, first, senior })
            }
        };
        let (next, senior) = (owed.first?, owed.senior);
        let standing = self.standing(shares, (queue, queue), (next.place, &next.view.asked));
        (!standing.beyond_due).then_some((standing, next, senior))
    }

    /// The entry that goes next at a fork.
    fn first(&self, queue: usize, shares: &Shares) -> Option<&Entry<'a>> {
        match shares.queues[queue].children.is_empty() {
            true => self.entries[queue].1.as_ref(),
            false => self.forks[queue].first(),
        }
    }

    /// How a queue stands with a job of a queue below it, or its own.
    fn standing(
        &self,
        shares: &Shares,
        (from, place): (usize, usize),
        (head, asked): (OrderKey, &Amounts),
    ) -> Standing {
        let queue = &shares.queues[place];
        let is_beyond = |index: usize, beside: i64, bound: &Amounts| {
            let taken = queue.held[index].saturating_add(asked[index]).saturating_add(beside);
            asked[index] > 0 && taken > bound[index]
        };
        let beyond = |bound: &Amounts| (0..asked.len()).any(|index| is_beyond(index, 0, bound));
        let kept = |index: usize| shares.kept_beside((from, place), index);
        let beyond_guarantee =
            || (0..asked.len()).any(|index| is_beyond(index, kept(index), &queue.guarantee));
        let part = |index: usize| match (queue.held[index], queue.due[index]) {
            (..=0, _) if !shares.remembers => 0,
            (_, ..=0) => i64::MAX,
            (held, due) => {
                let millionths = due.checked_sub(queue.target[index]).and_then(|owed| owed.checked_add(held));
                match millionths.and_then(|milli| milli.checked_mul(1_000_000)) {
                    Some(millionths) => millionths / due,
                    None => {
                        let owed = i128::from(due) - i128::from(queue.target[index]);
                        i64::try_from((i128::from(held) + owed) * 1_000_000 / i128::from(due))
                            .unwrap_or(i64::MAX)
                    }
                }
            }
        };
        // A job that asks for nothing that is divided stands as its queue does by its devices: hosts come with them.
        let asks = asked.iter().any(|asked| *asked > 0);
        let beyond_guarantee = if asks { beyond_guarantee() } else { !queue.has_room_in_guarantee() };
        let beyond_due = if asks { beyond(&queue.target) } else { queue.held[ANY] >= queue.target[ANY] };
        // What is guaranteed of a model counts as guaranteed, and as due, whatever is held of others.
        let by_models = beyond_guarantee && shares.guarantees_to((from, place), asked);
        let (beyond_guarantee, rank) = (beyond_guarantee && !by_models, -i64::from(queue.priority));
        if self.state.policy.lends_in_line() {
            let (beyond_due, part, held, entitled) = (beyond_guarantee, 0, 0, Reverse((0, 0)));
            return Standing { beyond_due, beyond_guarantee, rank, part, held, entitled, head };
        }
        Standing {
            beyond_due: beyond_due && !by_models,
            beyond_guarantee,
            rank,
            part: (0..asked.len())
                .filter(|index| asked[*index] > 0 || !shares.remembers || !asks && *index == ANY)
                .map(part)
                .max()
                .unwrap_or(0),
            held: queue.held.first().copied().unwrap_or(0),
            entitled: Reverse((queue.guarantee.first().copied().unwrap_or(0), queue.weight)),
            head,
        }
    }
}

/// Whether jobs of class `senior` go in the place of a `junior` of lower priority for which their queue's guarantee
/// has room: if running jobs of lower priority that give way to them leave enough of what is due to the queue.
fn may_stand_in(
    (state, running): (&State, &Running),
    shares: &Shares,
    senior: &ClassView,
    junior: &ClassView,
) -> bool {
    let (spec, queue) = (&*senior.example, &shares.queues[senior.queue]);
    let rules = Rules::among(shares, &state.policy, senior.queue);
    if spec.priority <= junior.example.priority || !reclaim::may_take_juniors(&rules, &state.policy, spec) {
        return false;
    }
    let juniors = running.lower_milli(spec.stand(), spec.priority);
    juniors > 0 && (queue.held[ANY] - juniors).saturating_add(senior.asked[ANY]) <= queue.target[ANY]
}

/// The jobs that are looked at.
struct Open {
    /// Of the pool's own children: whether a job without a verdict that stands waits in them, or below them.
    tops: Vec<bool>,
    untold: Option<usize>,
    behind: BTreeSet<ClassId>,
}

/// Where all verdicts in one of the pool's own children stand, no job there is tried in this cycle, and none changes
/// anything for the others. In a strict order all count: a job that waits keeps back those behind it. So do the jobs
/// for which room is kept, unless there are so many classes that looking at all of them costs more than it is worth:
/// then room is kept from jobs below the same child of the pool, and from all once something becomes free.
fn open(state: &State, waiting: &Waiting, shares: &Shares, has_behind: &dyn Fn(&ClassView) -> bool) -> Open {
    let keeps = state.policy.reserve > 0 && waiting.classes.len() <= MOST_CLASSES_LOOKED_AT;
    let all = state.freed || state.policy.strict || keeps;
    let mut open = Open { tops: vec![all; shares.queues.len()], untold: None, behind: BTreeSet::new() };
    if state.freed || state.policy.strict && !displaces(&state.policy) {
        return open;
    }
    if displaces(&state.policy) {
        // Both are in the order of their ids.
        let mut judged = state.verdicts.iter().peekable();
        let falls = |(class, view): &(&ClassId, &ClassView)| {
            while judged.next_if(|(other, _)| other < class).is_some() {}
            let verdict = judged.peek().filter(|(other, reason)| other == class && reason.lasts());
            verdict.is_some_and(|(_, reason)| reason.may_be_taken_for() && has_behind(view))
        };
        let falling = waiting.classes.iter().filter(falls);
        open.behind = falling
            .inspect(|(_, view)| open.tops[shares.top(view.queue)] = true)
            .map(|(class, _)| *class)
            .collect();
    }
    let untold = waiting.untold().inspect(|(_, view)| open.tops[shares.top(view.queue)] = true).count();
    open.untold = (!state.policy.strict).then_some(untold + open.behind.len());
    open
}

fn exchange<'a>(fork: &mut BTreeSet<Entry<'a>>, before: Option<Entry<'a>>, after: Option<Entry<'a>>) {
    if before != after {
        // A set that is never empty in between keeps its memory.
        fork.extend(after);
        if let Some(before) = before {
            fork.remove(&before);
        }
    }
}
