//! The checker beside a scenario: it folds the log by itself and looks at every event, so that no golden text holds
//! an answer that breaks a law.

use crate::check::{Violation, Watch, check};
use crate::event::{Event, Stamped};
use crate::state::State;

/// The checker's own state of the pool, and its books.
pub(super) struct Books {
    state: State,
    watch: Watch,
    /// What was found since the last look.
    found: Vec<String>,
}

impl Books {
    /// Opens the books on a pool as it is: what holds there is taken as right, what comes is checked.
    pub(super) fn open(state: &State) -> Self {
        Self { state: state.clone(), watch: Watch::new(state), found: Vec::new() }
    }

    /// Follows what was logged.
    pub(super) fn follow(&mut self, events: &[Stamped]) {
        for stamped in events {
            if let Err(misfit) = self.state.apply(stamped) {
                self.found.push(misfit.to_string());
                return;
            }
            let found = self.watch.follow(&self.state, stamped);
            self.note(found);
            if matches!(stamped.event, Event::Planned { .. }) {
                self.note(check(&self.state));
            }
        }
    }

    /// What was found since the last call.
    pub(super) fn found(&mut self) -> Option<String> {
        let found = std::mem::take(&mut self.found);
        (!found.is_empty()).then(|| found.join("; "))
    }

    fn note(&mut self, found: Vec<Violation>) {
        self.found.extend(found.into_iter().map(|violation| violation.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;
    use super::*;
    use crate::id::AllocationId;

    #[test]
    fn a_device_that_is_given_twice_is_found() {
        let mut scenario = Scenario::new();
        for line in ["node n1 1xh100", "submit a default 1", "submit b default 1", "plan"] {
            scenario.line(line).unwrap();
        }
        let placed = scenario.log.iter().find_map(|stamped| match &stamped.event {
            Event::Placed { job, placements, .. } => Some((*job, placements.clone())),
            _ => None,
        });
        let (first, mut placements) = placed.unwrap();
        let state = scenario.state();
        let job = state.jobs.values().find(|job| job.id() != first).unwrap().id();
        placements[0].allocation = AllocationId(state.next_allocation.0);
        let at = scenario.now();
        let forged = Stamped { at, event: Event::Placed { job, placements, port: 0 } };
        scenario.books.as_mut().unwrap().follow(&[forged]);
        let error = scenario.line("pass 1s").unwrap_err();
        assert!(error.contains("L7") && error.contains("does not hold"), "{error}");
    }
}
