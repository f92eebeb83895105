//! Which settings were in force when: the changes of queues and policy, read from the log.

use divvy_core::event::{Event, Stamped};
use divvy_core::id::Position;
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::Queue;
use divvy_core::state::State;
use divvy_core::time::Time;

/// The settings in force from one change to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    /// The number of the change; 1 is what the pool began with.
    pub change: u64,
    /// Its last position in the log.
    pub position: Position,
    /// When it was put in force.
    pub at: Time,
    /// By whom.
    pub by: String,
    /// The reason, if one was given.
    pub note: Option<String>,
    /// The queues, by path.
    pub queues: Vec<Queue>,
    /// The settings of the planner.
    pub policy: Policy,
}

/// Collects the events that change settings, in log order, into the settings that were in force, oldest first. Ignores others.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    last: Option<InForce>,
}

impl Changes {
    /// Takes the next event; returns the settings before it, once no further event can belong to them.
    pub(crate) fn note(&mut self, position: Position, stamped: Stamped) -> Option<InForce> {
        let at = stamped.at;
        match stamped.event {
            Event::QueuesSet { mut queues, by, note } => {
                queues.sort_by(|a, b| a.path.cmp(&b.path));
                let policy = self.last.as_ref().map_or_else(Policy::default, |last| last.policy.clone());
                self.next(InForce { change: 0, position, at, by, note, queues, policy })
            }
            Event::PolicySet { policy, by, note } => {
                let queues = self.last.as_ref().map_or_else(first_queues, |last| last.queues.clone());
                let next = InForce { change: 0, position, at, by, note, queues, policy: *policy };
                match &mut self.last {
                    Some(last) if next.completes(last) => {
                        *last = InForce { change: last.change, ..next };
                        None
                    }
                    _ => self.next(next),
                }
            }
            _ => None,
        }
    }

    /// Returns the last settings that were put in force.
    pub(crate) fn last(self) -> Option<InForce> {
        self.last
    }

    fn next(&mut self, next: InForce) -> Option<InForce> {
        let change = self.last.as_ref().map_or(1, |last| last.change + 1);
        self.last.replace(InForce { change, ..next })
    }
}

impl InForce {
    /// Returns whether this is the second half of one file's change: queues first, then the policy.
    fn completes(&self, first: &InForce) -> bool {
        let who = |it: &InForce| (it.by.clone(), it.note.clone(), it.at);
        first.position.0 + 1 == self.position.0 && first.policy != self.policy && who(first) == who(self)
    }
}

/// Returns the queues that a pool begins with.
fn first_queues() -> Vec<Queue> {
    State::default().queues.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::model::queue::DEFAULT;

    fn at(ms: i64, event: Event) -> Stamped {
        Stamped { at: Time(ms), event }
    }

    #[test]
    fn a_file_that_sets_queues_and_policy_is_one_change_and_others_are_their_own() {
        let policy = |reserve| Policy { reserve, ..Policy::default() };
        let set_policy = |reserve, by: &str| Event::PolicySet {
            policy: Box::new(policy(reserve)),
            by: by.into(),
            note: None,
        };
        let queues = |path: &str| vec![Queue::named("z"), Queue::named(path)];
        let set_queues =
            |path, by: &str| Event::QueuesSet { queues: queues(path), by: by.into(), note: None };
        let mut changes = Changes::default();
        let log = [
            (2, at(5, set_policy(4, "divvy"))),
            (3, at(5, Event::Tick)),
            (7, at(9, set_queues("a", "ana"))),
            (8, at(9, set_policy(5, "ana"))),
            (9, at(9, set_policy(6, "ben"))),
            (12, at(11, set_queues("b", "ana"))),
        ];
        let mut found: Vec<InForce> = log
            .into_iter()
            .filter_map(|(position, stamped)| changes.note(Position(position), stamped))
            .collect();
        found.extend(changes.last());
        let paths = |change: &InForce| {
            change.queues.iter().map(|queue| queue.path.clone()).collect::<Vec<_>>().join(" ")
        };
        let told: Vec<_> = found
            .iter()
            .map(|change| {
                (change.change, change.position.0, change.by.clone(), paths(change), change.policy.reserve)
            })
            .collect();
        let expected = [
            (1, 2, "divvy", DEFAULT, 4),
            (2, 8, "ana", "a z", 5),
            (3, 9, "ben", "a z", 6),
            (4, 12, "ana", "b z", 6),
        ];
        let expected: Vec<_> = expected
            .map(|(n, at, by, paths, reserve)| (n, at, by.to_owned(), paths.to_owned(), reserve))
            .into();
        assert_eq!(told, expected);
    }
}
