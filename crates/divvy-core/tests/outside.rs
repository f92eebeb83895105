//! Tasks that are run by other means, on nodes that others use as well: the core's side of a cluster with other schedulers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "only tests live here")]

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_core::action::Action;
use divvy_core::amount::Resource;
use divvy_core::controller::Controller;
use divvy_core::decide::{Adopt, Command, Submit};
use divvy_core::engine::Observation;
use divvy_core::event::Event;
use divvy_core::id::{JobId, Term};
use divvy_core::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DrawAsk};
use divvy_core::model::device::{DeviceSpec, Occupant};
use divvy_core::model::extras::Extras;
use divvy_core::model::gang::{Group, Role};
use divvy_core::model::job::{
    Cause, JobSpec, JobState, Kind, Lifetime, Owner, Requeue, StopOrder, Work, priority,
};
use divvy_core::model::newer::Newer;
use divvy_core::model::node::{NodeSpec, OthersHold};
use divvy_core::reason::Reason;
use divvy_core::state::State;
use divvy_core::time::Time;

const NOW: Time = Time(1_000_000);

/// A pool with a node of 8 devices without names, 64 cores and 4 fast network cards.
fn pool() -> Controller {
    let mut controller = Controller::open(State::default());
    controller.check_every(1);
    controller.keep_books();
    let begin = Command::Begin { term: Term(7), boot_id: String::new(), version: "test".into() };
    controller.take(&begin, NOW).unwrap().unwrap();
    let spec = NodeSpec {
        name: "n1".into(),
        cpu_milli: 64_000,
        memory_bytes: 1 << 39,
        most_tasks: Some(10),
        extras: nics(4),
        ..NodeSpec::default()
    };
    let device = |index: u32| DeviceSpec {
        uuid: format!("n1/{index}"),
        index,
        model: "h100".into(),
        ..DeviceSpec::default()
    };
    controller.see(&Observation::Node(spec, (0..8).map(device).collect()), NOW).unwrap();
    controller
}

fn nics(count: i64) -> Extras {
    [(Resource::from("example.com/nic"), count)].into_iter().collect()
}

/// What a gang of so many tasks asks for: each so many devices and cards, and a core.
fn submit(tasks: &[&str], (devices, cards): (u32, i64)) -> Submit {
    let (class, draw) = (DeviceClass::default(), DrawAsk::Whole);
    let alternative = Alternative {
        devices: (devices > 0).then_some(DeviceAsk::of(class, devices, draw)),
        cpu_milli: Some(1000),
        memory_bytes: Some(0),
        extras: nics(cards),
        speed_percent: 100,
    };
    let count = tasks.len() as u32;
    let role = Role {
        name: "main".into(),
        minimum: count,
        maximum: count,
        ask: Ask::of(vec![alternative]),
        work: Work::External(tasks.iter().map(|task| (*task).to_owned()).collect()),
        topology: None,
        spread: Newer::default(),
    };
    let spec = JobSpec {
        name: tasks[0].to_owned(),
        queue: "default".into(),
        project: None,
        kind: Kind::default(),
        labels: BTreeMap::new(),
        priority: priority::NORMAL,
        preemptible: true,
        resumable: false,
        lifetime: Lifetime::default(),
        gang: Group::Role(role).into(),
        time_limit: None,
        estimate: None,
        requeue: Requeue::Lost,
        most_restarts: u32::MAX,
        after: Vec::new(),
        start_after: None,
        stop: StopOrder::default(),
        checkpoint: None,
        wait_for_capacity: true,
        exclusive: false,
        seat: Newer::default(),
        kept_to: Newer::default(),
        deadline: Newer::default(),
        preempts: Newer::default(),
    };
    let owner = Owner { name: "team".into(), uid: 1, gid: 1, groups: Vec::new() };
    let spec = Arc::new(spec);
    Submit {
        owner: owner.into(),
        spec,
        requeue_said: true,
        array: None,
        token: None,
        held: false,
        history: BTreeMap::new(),
    }
}

fn start(controller: &mut Controller, submit: Submit) -> JobId {
    let answer = controller.take(&Command::Submit(Box::new(submit)), NOW).unwrap().unwrap();
    controller.cycle(NOW).unwrap();
    JobId::single(answer.job.unwrap())
}

fn others(controller: &mut Controller, hold: OthersHold) {
    controller.see(&Observation::Others("n1".into(), hold), NOW).unwrap();
}

fn state_of(controller: &Controller, job: JobId) -> JobState {
    controller.state().run(job).unwrap().state
}

fn why(controller: &Controller, job: JobId) -> &Reason {
    &controller.state().verdicts[&controller.state().jobs[&job.number].class]
}

fn occupied(controller: &Controller) -> Vec<u32> {
    let theirs = controller.state().devices.values().filter(|it| it.occupant == Some(Occupant::Others));
    theirs.map(|device| device.spec.index).collect()
}

#[test]
fn each_task_is_bound_by_its_outside_name() {
    let mut controller = pool();
    start(&mut controller, submit(&["pod-a", "pod-b"], (4, 0)));
    let actions = controller.drain().unwrap().actions;
    let bound: Vec<_> = actions
        .iter()
        .map(|action| match action {
            Action::Bind(_, bind) => (bind.task.as_str(), bind.node.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(bound, [("pod-a", "n1"), ("pod-b", "n1")]);
}

#[test]
fn what_others_hold_is_not_given_out_and_free_again_when_they_go() {
    let mut controller = pool();
    others(&mut controller, OthersHold { devices: 6, tasks: 1, ..OthersHold::default() });
    assert_eq!(occupied(&controller), [2, 3, 4, 5, 6, 7]);
    let job = start(&mut controller, submit(&["pod"], (3, 0)));
    assert_eq!(state_of(&controller, job), JobState::Pending);
    others(&mut controller, OthersHold::default());
    controller.cycle(NOW).unwrap();
    assert_eq!(state_of(&controller, job), JobState::Starting);
    assert!(occupied(&controller).is_empty());
}

#[test]
fn cores_tasks_and_extras_of_others_count_as_well() {
    for hold in [
        OthersHold { cpu_milli: 63_500, ..OthersHold::default() },
        OthersHold { tasks: 10, ..OthersHold::default() },
        OthersHold { extras: nics(4), ..OthersHold::default() },
    ] {
        let mut controller = pool();
        others(&mut controller, hold.clone());
        let job = start(&mut controller, submit(&["pod"], (1, 1)));
        assert_eq!(state_of(&controller, job), JobState::Pending, "{hold:?}");
        assert!(matches!(why(&controller, job), Reason::HostBusy(..)), "{:?}", why(&controller, job));
    }
}

#[test]
fn extras_are_given_once_and_their_want_is_named() {
    let mut controller = pool();
    let first = start(&mut controller, submit(&["a"], (1, 3)));
    let second = start(&mut controller, submit(&["b"], (1, 2)));
    let third = start(&mut controller, submit(&["c"], (1, 5)));
    assert_eq!(state_of(&controller, first), JobState::Starting);
    assert_eq!(*why(&controller, second), Reason::HostBusy(Resource::from("example.com/nic"), 2));
    assert_eq!(*why(&controller, third), Reason::TooMuchHost(Resource::from("example.com/nic"), 5, 4));
}

#[test]
fn where_others_take_too_much_the_youngest_goes_and_no_more_than_needed() {
    let mut controller = pool();
    let old = start(&mut controller, submit(&["old"], (3, 0)));
    let young = start(&mut controller, submit(&["young"], (3, 0)));
    controller.drain();
    others(&mut controller, OthersHold { devices: 3, tasks: 1, ..OthersHold::default() });
    assert_eq!(state_of(&controller, young), JobState::Stopping);
    assert_eq!(state_of(&controller, old), JobState::Starting);
    let events = controller.drain().unwrap().commit.events;
    assert!(events.iter().any(|stamped| matches!(
        stamped.event,
        Event::Stopping { cause: Cause::Crowded, requeue: false, .. }
    )));
}

#[test]
fn others_who_exceed_the_node_by_themselves_cost_nobody_his_place() {
    let mut controller = pool();
    let job = start(&mut controller, submit(&["pod"], (1, 0)));
    others(&mut controller, OthersHold { cpu_milli: 65_000, ..OthersHold::default() });
    assert_eq!(state_of(&controller, job), JobState::Starting);
}

#[test]
fn what_runs_when_a_term_begins_has_what_it_holds() {
    let mut controller = pool();
    let adopt = |names: &[&str], devices| Adopt {
        submit: submit(names, (devices, 0)),
        nodes: names.iter().map(|_| "n1".to_owned()).collect(),
        since: Time(5),
    };
    let job = controller.adopt(&adopt(&["a", "b"], 3), NOW).unwrap().unwrap().job.unwrap();
    let run = controller.state().run(JobId::single(job)).unwrap();
    assert_eq!((run.state, run.started_at), (JobState::Running, Some(Time(5))));
    assert!(controller.drain().unwrap().actions.is_empty());
    // What is left is two devices: no more is taken over than fits.
    assert!(controller.adopt(&adopt(&["c"], 3), NOW).unwrap().is_err());
    let waiting = start(&mut controller, submit(&["d"], (3, 0)));
    assert_eq!(state_of(&controller, waiting), JobState::Pending);
}

#[test]
fn a_node_that_is_gone_takes_nothing() {
    let mut controller = pool();
    controller.see(&Observation::NodeGone("n1".into()), NOW).unwrap();
    let job = start(&mut controller, submit(&["pod"], (1, 0)));
    assert_eq!(*why(&controller, job), Reason::NoNode);
}
