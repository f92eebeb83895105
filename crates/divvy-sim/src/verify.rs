//! Verifies a log: folds it from the beginning, and plans every recorded cycle again from the state that it saw. The digests
//! that the cycle left in the log must be those of today's fold and plan; otherwise a law is broken: L2 (the fold gives the
//! state), L3 (the plan is a function of what it sees; a kept snapshot equals one built anew; warm caches plan like cold ones).

use divvy_core::check::{Violation, Watch, check};
use divvy_core::event::{Event, Stamped};
use divvy_core::id::Position;
use divvy_core::plan;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::{Misfit, State};
use divvy_core::time::Time;
use serde::Serialize;

/// How many cycles pass between snapshots built anew, and how many events between checks of the whole state: each costs what
/// the pool holds, while everything else costs what has changed.
const COLD_EVERY_CYCLES: u64 = 64;
/// See [`COLD_EVERY_CYCLES`].
const CHECK_EVERY_EVENTS: u64 = 4096;
/// How many differences are kept; more say nothing new.
const MOST_TOLD: usize = 20;

/// What a law of the log says and what was found instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The position of the event at which it was found.
    pub position: u64,
    /// The law: `L2`.
    pub law: &'static str,
    /// What was found.
    pub text: String,
}

/// The result of verifying a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Commits.
    pub commits: u64,
    /// Events in them.
    pub events: u64,
    /// Starts of the daemon.
    pub terms: u64,
    /// Recorded cycles.
    pub cycles: u64,
    /// Of these, those planned again with the snapshot that was kept up to then.
    pub planned_again: u64,
    /// Of these, those also planned again from a snapshot built anew.
    pub planned_cold: u64,
    /// Cycles of another version of the program: folded, but not planned again, since another planner made them.
    pub of_other_versions: u64,
    /// The digest of the state at the end, in hexadecimal.
    pub digest: String,
    /// How many differences there are.
    pub differences: u64,
    /// The first of them.
    pub first: Vec<Difference>,
}

/// Follows a log, commit by commit.
pub struct Verify {
    /// The version of this program: only its own cycles are planned again.
    version: String,
    own_term: bool,
    state: State,
    snapshot: Snapshot,
    watch: Watch,
    found: Verified,
}

/// A recorded cycle: its events in the commit, and the digests that it left.
struct Cycle<'a> {
    events: &'a [Stamped],
    at: Time,
    digests: (u64, u64, u64),
    position: u64,
}

impl Verify {
    /// Begins before the first event.
    pub fn new(version: &str) -> Self {
        let state = State::default();
        Self {
            version: version.to_owned(),
            own_term: false,
            snapshot: Snapshot::new(&state),
            watch: Watch::new(&state),
            state,
            found: Verified::default(),
        }
    }

    /// Follows one commit. An error means that the log cannot be folded any further.
    pub fn commit(&mut self, events: &[Stamped]) -> Result<(), Misfit> {
        self.found.commits += 1;
        let mut rest = events;
        while let Some(end) = rest.iter().position(|stamped| matches!(stamped.event, Event::Planned { .. })) {
            let (cycle, later) = rest.split_at(end + 1);
            self.cycle(cycle)?;
            rest = later;
        }
        rest.iter().try_for_each(|stamped| self.fold(stamped))
    }

    /// What was found up to here.
    pub fn finish(mut self) -> Verified {
        self.check_all();
        self.found.digest = format!("{:016x}", self.state.digest());
        self.found
    }

    /// The state up to here.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Follows events up to the record of a cycle.
    fn cycle(&mut self, events: &[Stamped]) -> Result<(), Misfit> {
        let Some((last, before)) = events.split_last() else { return Ok(()) };
        let Event::Planned { saw, state, policy, plan } = &last.event else { return Ok(()) };
        let own = self.state.position.0;
        let seen = usize::try_from(saw.0.saturating_sub(own)).unwrap_or(usize::MAX);
        if saw.0 < own || seen > before.len() {
            let text =
                format!("the cycle saw position {saw}, which is not in its commit or the last event before");
            self.differs(own + events.len() as u64, "L3", text);
            return events.iter().try_for_each(|stamped| self.fold(stamped));
        }
        let (seen, planned) = before.split_at(seen);
        seen.iter().try_for_each(|stamped| self.fold(stamped))?;
        self.found.cycles += 1;
        if self.own_term {
            let position = saw.0 + planned.len() as u64 + 1;
            self.plan_again(&Cycle {
                events: planned,
                at: last.at,
                digests: (*state, *policy, *plan),
                position,
            });
        } else {
            self.found.of_other_versions += 1;
        }
        planned.iter().try_for_each(|stamped| self.fold(stamped))?;
        self.fold(last)
    }

    /// Plans a cycle again from the state that it saw, and compares.
    fn plan_again(&mut self, cycle: &Cycle) {
        let (state, policy, plan) = cycle.digests;
        if (self.state.digest(), self.state.policy_digest()) != (state, policy) {
            let text = format!(
                "the cycle saw a state of digest {state:016x} and a policy of {policy:016x}; the fold gives {:016x} and {:016x}",
                self.state.digest(),
                self.state.policy_digest()
            );
            self.differs(cycle.position, "L2", text);
        }
        self.snapshot.pass_time(&self.state, cycle.at);
        let again = plan::plan(&self.state, &mut self.snapshot, cycle.at).0;
        self.found.planned_again += 1;
        if self.found.planned_again % COLD_EVERY_CYCLES == 1 {
            self.plan_cold(&again, cycle);
        }
        let digest = again.digest();
        let events = again.into_events();
        let differs = first_difference(cycle.events, &events);
        if digest != plan || differs.is_some() {
            let what = differs.unwrap_or_else(|| format!("digest {digest:016x} instead of {plan:016x}"));
            self.differs(
                cycle.position,
                "L3",
                format!("planned again, the cycle gives another plan: {what}"),
            );
        }
    }

    fn plan_cold(&mut self, warm: &plan::Plan, cycle: &Cycle) {
        self.found.planned_cold += 1;
        let mut anew = Snapshot::new(&self.state);
        anew.pass_time(&self.state, cycle.at);
        if !self.snapshot.same_as(&anew) {
            self.differs(cycle.position, "L3", "the snapshot kept is not the one built anew".into());
        }
        if plan::plan(&self.state, &mut anew, cycle.at).0 != *warm {
            self.differs(
                cycle.position,
                "L3",
                "planned from a snapshot built anew, the plan is another".into(),
            );
        }
    }

    fn fold(&mut self, stamped: &Stamped) -> Result<(), Misfit> {
        if let Event::TermBegan { version, .. } = &stamped.event {
            self.found.terms += 1;
            self.own_term = *version == self.version;
        }
        let before = self.snapshot.expect(&self.state, &stamped.event);
        self.state.apply(stamped)?;
        self.snapshot.follow(&self.state, &stamped.event, before);
        self.found.events += 1;
        let violations = self.watch.follow(&self.state, stamped);
        self.tell(violations);
        if self.found.events.is_multiple_of(CHECK_EVERY_EVENTS) {
            self.check_all();
        }
        Ok(())
    }

    fn check_all(&mut self) {
        let violations = check(&self.state);
        self.tell(violations);
    }

    fn tell(&mut self, violations: Vec<Violation>) {
        let Position(position) = self.state.position;
        violations.into_iter().for_each(|violation| self.differs(position, violation.law, violation.text));
    }

    fn differs(&mut self, position: u64, law: &'static str, text: String) {
        self.found.differences += 1;
        if self.found.first.len() < MOST_TOLD {
            self.found.first.push(Difference { position, law, text });
        }
    }
}

/// Returns where two plans first differ.
fn first_difference(logged: &[Stamped], again: &[Event]) -> Option<String> {
    let words = |event: Option<&Event>| match event {
        None => "nothing".to_owned(),
        Some(event) => serde_json::to_string(event).unwrap_or_else(|_| event.kind().to_owned()),
    };
    (0..logged.len().max(again.len())).find_map(|at| {
        let (logged, again) = (logged.get(at).map(|stamped| &stamped.event), again.get(at));
        (logged != again).then(|| format!("{} instead of {}", words(again), words(logged)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use divvy_core::scenario::Scenario;

    fn log() -> Vec<Stamped> {
        let mut scenario = Scenario::new();
        let lines = "node n1 4xh100\nsubmit a default 2 tasks=2\nsubmit b default 1 array=0-3%2\nsubmit c default 1 after=a:ok\nplan\npass 5m\nend a\nplan\nend b_0\nplan\nrestart\nplan";
        lines.lines().for_each(|line| scenario.line(line).unwrap());
        scenario.log
    }

    fn verify(log: &[Stamped]) -> Verified {
        let mut verify = Verify::new("0");
        verify.commit(log).unwrap();
        verify.finish()
    }

    #[test]
    fn a_log_that_the_core_wrote_is_folded_and_planned_again_without_a_difference() {
        let log = log();
        let found = verify(&log);
        assert_eq!((found.differences, found.first.as_slice()), (0, [].as_slice()));
        assert_eq!((found.events, found.terms), (log.len() as u64, 2));
        assert!(found.cycles >= 3 && found.planned_again == found.cycles, "{found:?}");
    }

    #[test]
    fn a_plan_that_was_changed_afterwards_is_found_with_its_position() {
        let mut log = log();
        let at = log.iter().position(|stamped| matches!(stamped.event, Event::Placed { .. })).unwrap();
        let Event::Placed { port, .. } = &mut log[at].event else { unreachable!("just found") };
        *port += 1;
        let found = verify(&log);
        assert_eq!(found.first[0].law, "L3");
        assert!(found.first[0].text.contains("placed") && found.first[0].position > at as u64, "{found:?}");
    }

    #[test]
    fn an_input_that_was_changed_afterwards_breaks_the_digest_of_the_state() {
        let mut log = log();
        for stamped in &mut log {
            if let Event::Submitted(submission) = &mut stamped.event {
                Arc::make_mut(&mut submission.owner).name = "eve".into();
            }
        }
        assert_eq!(verify(&log).first[0].law, "L2");
    }

    #[test]
    fn cycles_of_another_version_are_folded_and_not_planned_again() {
        let mut log = log();
        let Event::TermBegan { version, .. } = &mut log[0].event else { unreachable!("a log begins so") };
        *version = "9".into();
        let found = verify(&log);
        assert!(found.of_other_versions > 0 && found.differences == 0, "{found:?}");
        assert_eq!(found.of_other_versions + found.planned_again, found.cycles);
    }
}
