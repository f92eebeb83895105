//! Whole lives from a seed: the laws hold after every event, the snapshot kept is the one built anew, a warm planner plans like a
//! cold one, the fold of the log is the state, and planning again without news does nothing.

use divvy_core::check::{Watch, check, waiting_without_reason};
use divvy_core::event::Event;
use divvy_core::model::allocation::Placement;
use divvy_core::plan::plan;
use divvy_core::scenario::Scenario;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::State;
use proptest::prelude::*;

/// A job that is submitted.
fn submit() -> impl Strategy<Value = String> {
    (0usize..12, 0u32..4, 0u32..5, 1u32..4, prop::sample::select(vec!["low", "normal", "high"]), 0u32..19)
        .prop_map(|(job, queue, gpus, tasks, prio, extra)| {
            let extra = match extra {
                0 => "array=0-5%2",
                1 => "array=0-3",
                2 => "held",
                3 => "start=+10m",
                4 => "limit=20m",
                5 => "requeue=failure",
                6 => "cpu=20 mem=40",
                7 => "wait",
                8 => "fixed",
                9 => "within=rack",
                10 => "near=node",
                11 => "within=zone near=rack wait",
                12 => "within=zone slice=1:node",
                13 => "within=nvlink wait",
                14 => "within=rack,numa near=nvlink",
                15 => "spread=1:rack",
                16 => "within=zone spread=2:rack wait",
                17 => "spread=rack",
                _ => "",
            };
            let queue = ["default", "a", "a/b", "c"][queue as usize];
            format!("submit j{job} {queue} {gpus} tasks={tasks} prio={prio} {extra}")
        })
}

/// One step of a life, as a line of a scenario.
fn step() -> impl Strategy<Value = String> {
    let job = 0usize..12;
    let after = (job.clone(), job.clone(), prop::sample::select(vec!["ok", "fail", "any"]))
        .prop_map(|(job, on, how)| format!("submit j{job} default 1 after=j{on}:{how}"));
    let end = (
        job.clone(),
        0u32..6,
        prop::option::of(0u32..3),
        prop::sample::select(vec!["exit=0", "exit=1", "signal=9", "lost", "reboot"]),
    )
        .prop_map(|(job, member, rank, how)| {
            let rank = rank.map(|rank| format!("/{rank}")).unwrap_or_default();
            if member < 3 {
                format!("end j{job}_{member}{rank} {how}")
            } else {
                format!("end j{job}{rank} {how}")
            }
        });
    let change = (
        job,
        0u32..8,
        prop::sample::select(vec!["cancel", "hold", "release"]),
        prop::sample::select(vec!["ana", "root", "eve"]),
    )
        .prop_map(|(job, member, verb, by)| {
            if member < 3 {
                format!("{verb} j{job}_{member} by={by}")
            } else {
                format!("{verb} j{job} by={by}")
            }
        });
    let device = (0u32..2, 0u32..4, prop::sample::select(vec!["down", "foreign", "ok", "ok"]))
        .prop_map(|(node, index, how)| format!("device n{node}:{index} {how}"));
    let other = prop::sample::select(vec![
        "plan",
        "plan",
        "plan",
        "plan",
        "pass 5m",
        "pass 30m",
        "restart",
        "drain on",
        "drain off",
        "node n2 2xa100 zone=z2 rack=r3",
        "node n3 2xh100 zone=z2 rack=r3",
    ]);
    prop_oneof![5 => submit(), 2 => after, 6 => end, 3 => change, 1 => device, 8 => other.prop_map(String::from)]
}

/// The lines that a life begins with.
const BEGINNING: [&str; 5] = [
    "node n0 4xh100 linked=2 numa=32:256,32:256 zone=z1 rack=r1",
    "node n1 4xh100 linked=0+1:2,1+2:1,2+3:2 cpu=32 mem=64 zone=z1 rack=r2",
    "queue a limit=6 guarantee=3",
    "queue a/b limit=3 guarantee=1 weight=2",
    "queue c cpu=40 guarantee=2",
];

/// Whether what a job is given, or promised, lies in one domain where its only role requires that.
fn lies_together(state: &State, event: &Event) -> bool {
    let (job, placements) = match event {
        Event::Placed { job, placements, .. } => (job, placements),
        Event::Promised(promise) => (&promise.job, &promise.placements),
        _ => return true,
    };
    let spec = state.jobs.get(&job.number).map(|job| &job.spec);
    let ask = spec.and_then(|spec| spec.gang.topology()).filter(|ask| ask.required);
    ask.is_none_or(|ask| {
        let domain = |placement: &Placement| {
            let levels = &state.nodes[&placement.node].spec.domains;
            levels.iter().find(|(level, _)| *level == ask.within).map(|(_, domain)| domain.clone())
        };
        let found: Vec<Option<String>> = placements.iter().map(domain).collect();
        found[0].is_some() && found.iter().all(|domain| *domain == found[0])
    })
}

/// Folds what is new in the log into a second state, checking the laws after every event.
fn follow(
    (second, watch): (&mut State, &mut Watch),
    scenario: &Scenario,
    from: usize,
) -> Result<(), TestCaseError> {
    for stamped in &scenario.log[from..] {
        let text =
            serde_json::to_string(&stamped.event).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let read: Event =
            serde_json::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
        prop_assert_eq!(&read, &stamped.event);
        second.apply(stamped).map_err(|misfit| TestCaseError::fail(misfit.to_string()))?;
        let violations = check(second);
        prop_assert!(violations.is_empty(), "after {}: {violations:?}", text);
        let violations = watch.follow(second, stamped);
        prop_assert!(lies_together(second, &stamped.event), "not in one domain: {}", text);
        prop_assert!(violations.is_empty(), "the books after {}: {violations:?}", text);
    }
    Ok(())
}

fn live(lines: &[String]) -> Result<(), TestCaseError> {
    let mut scenario = Scenario::new();
    for line in BEGINNING {
        scenario.line(line).map_err(TestCaseError::fail)?;
    }
    let mut second = State::default();
    let mut watch = Watch::new(&second);
    let mut followed = 0;
    for line in lines {
        // A line about a job that was never submitted makes no sense, and does nothing.
        let _ = scenario.line(line).is_err();
        follow((&mut second, &mut watch), &scenario, followed)?;
        followed = scenario.log.len();
        prop_assert_eq!(&second, scenario.state());
        let mut anew = Snapshot::new(scenario.state());
        let mut kept = scenario.controller().snapshot().clone();
        // Time passes in a snapshot when a cycle begins.
        let now = scenario.now();
        kept.pass_time(scenario.state(), now);
        anew.pass_time(scenario.state(), now);
        prop_assert!(kept.same_as(&anew), "the snapshot kept is not the one built anew, after {line}");
        let state = scenario.state().clone();
        let cold = plan(&state, &mut anew, now).0;
        let again = plan(&state, &mut kept, now).0;
        prop_assert_eq!(&cold, &again);
        if line == "plan" {
            prop_assert!(cold.is_empty(), "a second plan without news: {cold:?}");
            prop_assert!(
                waiting_without_reason(&state).is_empty(),
                "waits without reason: {:?}",
                waiting_without_reason(&state)
            );
        }
    }
    let text =
        serde_json::to_string(scenario.state()).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let read: State = serde_json::from_str(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&read, scenario.state());
    Ok(())
}

/// What once was planned without news: a job kept back by a reservation, once the array before it had started.
#[test]
fn who_is_kept_back_for_others_does_not_start_without_news() {
    let lines = [
        "submit j0 a 3 tasks=1 prio=low start=+10m",
        "submit j0 a 1 tasks=2 prio=low within=rack",
        "submit j0 c 1 tasks=1 prio=low limit=20m",
        "submit j0 default 2 tasks=2 prio=low start=+10m",
        "plan",
        "submit j0 default 0 tasks=1 prio=low array=0-5%2",
        "submit j0 a/b 2 tasks=2 prio=low array=0-5%2",
        "submit j0 default 0 tasks=1 prio=low array=0-5%2",
        "submit j0 c 1 tasks=1 prio=low start=+10m",
        "pass 30m",
        "node n3 2xh100 zone=z2 rack=r3",
        "submit j0 c 2 tasks=1 prio=normal limit=20m",
        "submit j0 default 0 tasks=1 prio=low array=0-5%2",
        "plan",
    ];
    live(&lines.map(str::to_owned)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, ..ProptestConfig::default() })]
    #[test]
    fn the_laws_hold_through_any_life(lines in prop::collection::vec(step(), 1..60)) {
        live(&lines)?;
    }
}

/// A task's end took the job's time limit out of the snapshot, and it never came back: the job would have run for ever.
#[test]
fn a_gang_keeps_its_time_limit_when_one_of_its_tasks_ends() {
    let lines = ["submit j8 default 0 tasks=2 limit=20m", "plan", "end j8/0 exit=0"].map(String::from);
    live(&lines).unwrap();
}

/// A gang that a limit of cores kept out fitted once others had taken the cores it would have got: the second plan placed it.
#[test]
fn a_second_plan_without_news_places_nothing_even_where_it_could() {
    let lines =
        ["node n2 2xa100", "submit j0 c 1 tasks=2 prio=low", "submit j1 default 0 array=0-5%2", "plan"]
            .map(String::from);
    live(&lines).unwrap();
}
