//! What has happened since the last cycle, as far as it makes the next one look again.

use super::State;
use crate::event::Event;
use crate::id::{ClassId, Position};
use crate::reason::Reason;
use crate::time::Time;

impl State {
    /// Whether these verdicts newly find jobs that could not start even in an idle pool: what was due to them is then due to others, if any
    /// wait.
    pub(super) fn gives_up(&self, event: &Event) -> bool {
        let Event::Judged { classes } = event else { return false };
        let is_known = |class: &ClassId| self.verdicts.get(class).is_some_and(Reason::is_for_good);
        let is_new = |(class, reason): &(ClassId, Option<Reason>)| {
            reason.as_ref().is_some_and(Reason::is_for_good) && !is_known(class)
        };
        let mut told = classes.iter().filter_map(|(_, reason)| reason.as_ref());
        let mut might_start = || told.any(|reason| !reason.is_for_good()) || self.anyone_might_start();
        self.policy.divides() && classes.iter().any(is_new) && might_start()
    }

    /// Whether a job waits that could start in an idle pool, as far as is known.
    fn anyone_might_start(&self) -> bool {
        self.verdicts.values().any(|reason| !reason.is_for_good())
    }

    /// Notes whether the last event may let a job start that could not before, and whether it changed the pool.
    pub(super) fn note_news(&mut self, event: &Event, frees: bool) {
        if frees {
            (self.freed, self.freed_at) = (true, self.position);
        }
        if event.changes_pool() {
            self.changed_at = self.position;
            self.in_doubt |= self.policy.divides() && self.verdicts.values().any(Reason::is_for_good);
        }
    }

    /// Whether anything has happened since the last cycle but that what it placed has started, or time has passed since.
    pub(crate) fn is_news(&self, now: Time) -> bool {
        self.position > self.cycled_at || now > self.now
    }

    /// Whether the pool has changed since the last cycle saw it: verdicts that jobs cannot start in it are then out of date.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed_at > self.cycled_at
    }

    /// Whether it is still being found out which jobs want something of a pool that has changed. Until that is known no job gives way: what
    /// is due to others may turn out to be more.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt && self.is_changed()
    }

    /// Ends a cycle that saw everything up to a position; what its own plan freed, it has not seen. If it saw the pool change, jobs that
    /// turn out to have no use for it, as before, still had a part of it, and no job gave way.
    pub(super) fn end_cycle(&mut self, saw: Position) {
        let had_a_part = self.is_changed() && self.policy.divides();
        let is_in_vain = || self.verdicts.values().any(Reason::is_for_good);
        let frees = had_a_part && (self.in_doubt || is_in_vain()) && self.anyone_might_start();
        (self.cycles, self.freed) = (self.cycles + 1, self.freed_at > saw || frees);
        self.in_doubt = false;
        self.cycled_at = Position(self.position.0 + 1);
        self.past.end_wait();
    }
}
