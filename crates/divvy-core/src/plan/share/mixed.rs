//! Part of phase 1, share: gangs whose roles are served by different alternatives, where the queue may not have all by the same number.

use smallvec::SmallVec;

use super::{Amounts, POOL, Shares};
use crate::model::allocation::Placement;
use crate::model::gang::{Group, Role};
use crate::model::job::JobSpec;

/// How many ways to serve the roles of a gang are kept at most: as many as five roles with two alternatives each have.
const MOST_MIXES: usize = 32;
/// How many steps are made at most to find them; each counts one more role.
const MOST_STEPS: u32 = 256;
/// By how many of these ways a gang takes the places of others at most: each is a claim of its own.
const MOST_CLAIMS: usize = 4;

/// The number of the alternative by which each role is served, in their order.
pub(in crate::plan) type Mix = SmallVec<[usize; 4]>;

/// Ways to serve the roles of a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mixes {
    /// Of each role, the rank that follows its last.
    ends: SmallVec<[u32; 4]>,
    ways: Vec<Mix>,
}

impl Mixes {
    pub(super) fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    /// Adds a way by alternatives of the same number.
    pub(super) fn add(&mut self, gang: &Group, number: usize) {
        let last = |role: &&Role| role.ask.alternatives.len().saturating_sub(1);
        self.ways.push(gang.roles().iter().map(|role| number.min(last(role))).collect());
    }

    /// Whether the role of this rank may be served by an alternative beside what has been placed so far.
    pub(super) fn allow<'p>(
        &self,
        (rank, number): (u32, usize),
        placed: impl Iterator<Item = &'p Placement>,
    ) -> bool {
        let mut chosen: SmallVec<[Option<usize>; 4]> = SmallVec::from_elem(None, self.ends.len());
        let placed = placed.map(|placement| (placement.rank, placement.alternative as usize));
        for (rank, number) in placed.chain([(rank, number)]) {
            let role = self.ends.partition_point(|end| *end <= rank);
            if let Some(chosen) = chosen.get_mut(role) {
                *chosen = Some(number);
            }
        }
        let agrees = |way: &Mix| {
            way.iter().zip(&chosen).all(|(number, chosen)| chosen.is_none_or(|chosen| chosen == *number))
        };
        self.ways.iter().any(agrees)
    }
}

/// The search for ways: role by role, the first alternatives first.
struct Search<'a> {
    shares: &'a Shares,
    roles: &'a [&'a Role],
    exclusive: bool,
    may_have: &'a dyn Fn(&Amounts) -> bool,
    most: usize,
    steps_left: u32,
    found: Vec<Mix>,
}

impl Search<'_> {
    /// Goes on from what the roles before ask for by the numbers that were chosen for them.
    fn go_on(&mut self, mix: &mut Mix, asked: &Amounts) {
        let Some(role) = self.roles.get(mix.len()).copied() else {
            self.found.push(mix.clone());
            return;
        };
        for number in 0..role.ask.alternatives.len() {
            if self.found.len() >= self.most || self.steps_left == 0 {
                return;
            }
            self.steps_left -= 1;
            let more = self.shares.asked_of((&[role], self.exclusive), |role| role.minimum, number);
            let asked = asked.iter().zip(&more).map(|(asked, more)| asked.saturating_add(*more)).collect();
            // More of the same is not allowed where less is not.
            if (self.may_have)(&asked) {
                mix.push(number);
                self.go_on(mix, &asked);
                mix.pop();
            }
        }
    }
}

/// Whether the roles of a gang could be served by different alternatives: all are needed, and several have more than one.
pub(super) fn may_mix(gang: &Group) -> bool {
    let choosy = |role: &&&Role| role.ask.alternatives.len() > 1;
    let roles = gang.roles();
    roles.iter().filter(choosy).count() > 1 && gang.required_roles().len() == roles.len()
}

impl Shares {
    /// The first ways to serve the roles of a gang that ask for no more than `may_have` allows.
    fn ways_of(
        &self,
        (roles, exclusive): (&[&Role], bool),
        most: usize,
        may_have: &dyn Fn(&Amounts) -> bool,
    ) -> Vec<Mix> {
        let nothing = self.resources.iter().map(|_| 0).collect();
        let (shares, steps_left) = (self, MOST_STEPS);
        let mut search = Search { shares, roles, exclusive, may_have, most, steps_left, found: Vec::new() };
        search.go_on(&mut Mix::new(), &nothing);
        search.found
    }

    /// The ways to serve the roles of a job that ask for no more than `may_have` allows; none where the roles have no choice.
    pub(super) fn mixes(&self, spec: &JobSpec, may_have: &dyn Fn(&Amounts) -> bool) -> Mixes {
        if !may_mix(&spec.gang) {
            return Mixes::default();
        }
        let roles = spec.gang.roles();
        let mut end = 0u32;
        let ends = roles.iter().map(|role| {
            end = end.saturating_add(role.maximum);
            end
        });
        Mixes { ends: ends.collect(), ways: self.ways_of((&roles, spec.exclusive), MOST_MIXES, may_have) }
    }

    /// Ways to serve the roles of a job, not all by alternatives of the same number, that its queue could
    /// have if others gave way: the pool has so much, and the queue may have so much.
    pub(in crate::plan) fn mixed_claims(&self, place: usize, spec: &JobSpec) -> Vec<Mix> {
        // Of devices of any model every mix asks for the same amounts as its parts.
        if self.resources.len() < 2 || !may_mix(&spec.gang) {
            return Vec::new();
        }
        let most = |place: usize, index: usize| {
            let queue = &self.queues[place];
            let borrow = self.loans.as_ref().map_or(i64::MAX, |loans| loans.borrow(place)[index]);
            queue.limit[index].min(queue.guarantee[index].saturating_add(borrow))
        };
        let bound = |index| {
            let most = self.upwards(place).map(|place| most(place, index));
            most.fold(self.queues[POOL].due[index], i64::min)
        };
        let bounds: Amounts = (0..self.resources.len()).map(bound).collect();
        let could_have = |asked: &Amounts| asked.iter().zip(&bounds).all(|(asked, most)| asked <= most);
        let roles = spec.gang.roles();
        let uniform = roles.iter().map(|role| role.ask.alternatives.len()).max().unwrap_or(0);
        let mut ways = self.ways_of((&roles, spec.exclusive), MOST_CLAIMS + uniform, &could_have);
        ways.retain(|mix| !is_uniform(&roles, mix));
        ways.truncate(MOST_CLAIMS);
        ways
    }
}

/// Whether these are alternatives of the same number, where the last of a role stands for all numbers that it does not have.
fn is_uniform(roles: &[&Role], mix: &Mix) -> bool {
    let most = mix.iter().copied().max().unwrap_or(0);
    let last = |role: &Role| role.ask.alternatives.len().saturating_sub(1);
    roles.iter().zip(mix).all(|(role, number)| *number == most.min(last(role)))
}
