//! Why no other job takes the place of a running job.

use divvy_core::id::JobId;
use divvy_core::model::queue::utc;
use divvy_core::state::{Job, Run, State};
use divvy_core::time::Span;

/// Returns the reason in words; `None` where another job may take its place, or where it is being stopped.
pub(super) fn why_safe(state: &State, job: &Job, (id, run): (JobId, &Run)) -> Option<String> {
    let policy = &state.policy;
    if run.stopping.is_some() {
        return None;
    }
    if !job.spec.preemptible {
        return Some("it is not preemptible".into());
    }
    if let Some(most) = policy.restarts_cap().filter(|_| run.is_at_cap(policy)) {
        return Some(format!(
            "it has given way as often as the policy lets it (most_restarts: {most}){GUARANTEED}"
        ));
    }
    if state.relief.open.is_some_and(|(relieved, _)| relieved == id) {
        let until = run.started_at.map(|started| started + policy.quantum());
        let until = until.map(|until| format!(", until {}", utc(until))).unwrap_or_default();
        return Some(format!("it had not run for long{until}{GUARANTEED}"));
    }
    let Some(until) = run.cools_until(policy).filter(|until| *until > state.now) else {
        return why_young(state, run);
    };
    let until = run.started_at.map(|_| format!(", until {}", utc(until))).unwrap_or_default();
    Some(format!("it gave way before{until}{GUARANTEED}"))
}

/// Returns why other queues take nothing from the job yet.
fn why_young(state: &State, run: &Run) -> Option<String> {
    let least = Some(Span(state.policy.min_runtime_ms)).filter(|least| least.0 > 0)?;
    let until = run.started_at.map(|started| started + least);
    until.is_none_or(|until| until > state.now).then(|| {
        let until = until.map(|until| format!(", until {}", utc(until))).unwrap_or_default();
        format!("other queues take nothing from a run of less than {least} (min_runtime){until}")
    })
}

/// The exception: what takes the job's place all the same.
const GUARANTEED: &str = ", save for what is guaranteed to another queue";

#[cfg(test)]
mod tests {
    use divvy_core::scenario::Scenario;

    use super::*;

    fn of(policy: &str, flags: &str) -> Option<String> {
        let mut scenario = Scenario::new();
        let policy = format!("policy {{half_life: none, {policy}}}");
        let job = format!("submit low default 1 {flags}");
        let end = if flags.is_empty() { "end low signal=15" } else { "plan" };
        let lines = [
            policy.as_str(),
            "node n1 1xh100",
            &job,
            "plan",
            "submit high default 1 prio=high",
            "plan",
            end,
            "end high",
            "plan",
        ];
        lines
            .iter()
            .filter(|line| flags.is_empty() || **line != "end high")
            .for_each(|line| scenario.line(line).unwrap());
        let (state, id) = (scenario.state(), JobId::single(1));
        why_safe(state, &state.jobs[&1], (id, state.run(id).unwrap()))
    }

    #[test]
    fn who_is_safe_is_told_why_and_until_when() {
        assert_eq!(of("cool_down: none, most_restarts: 2", ""), None);
        assert_eq!(
            of("most_restarts: 1", "").as_deref(),
            Some(
                "it has given way as often as the policy lets it (most_restarts: 1), save for what is guaranteed to another queue"
            )
        );
        assert_eq!(
            of("cool_down: 1h", "").as_deref(),
            Some(
                "it gave way before, until 1970-01-01 01:00 UTC, save for what is guaranteed to another queue"
            )
        );
        assert_eq!(of("reserve: 0", "fixed").as_deref(), Some("it is not preemptible"));
        assert_eq!(
            of("cool_down: none, min_runtime: 10m", "").as_deref(),
            Some(
                "other queues take nothing from a run of less than 10m (min_runtime), until 1970-01-01 00:10 UTC"
            )
        );
    }

    #[test]
    fn who_is_being_stopped_is_not_said_to_be_safe() {
        let mut scenario = Scenario::new();
        let run = ["node n1 1xh100", "submit j default 1 fixed", "plan"];
        run.iter().for_each(|line| scenario.line(line).unwrap());
        let why = |scenario: &Scenario| {
            let (state, id) = (scenario.state(), JobId::single(1));
            why_safe(state, &state.jobs[&1], (id, state.run(id).unwrap()))
        };
        assert!(why(&scenario).is_some());
        scenario.line("cancel j").unwrap();
        assert_eq!(why(&scenario), None);
    }
}
