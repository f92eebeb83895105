//! The contract of engines: one suite of checks that every implementation of [`Engine`] runs in its tests.

use std::collections::BTreeSet;

use crate::action::{Action, Bind, Fence, Launch, Stop};
use crate::engine::{EndedHow, Engine, Observation};
use crate::id::{AllocationId, Term};

/// How a task begins: engines that start processes launch it, engines that place what others run bind it.
#[derive(Clone, Debug)]
pub enum Begin {
    /// It is launched.
    Launch(Box<Launch>),
    /// It is bound.
    Bind(Box<Bind>),
}

impl Begin {
    fn action(&self, fence: Fence) -> Action {
        match self {
            Begin::Launch(launch) => Action::Launch(fence, launch.clone()),
            Begin::Bind(bind) => Action::Bind(fence, bind.clone()),
        }
    }
}

/// What a test must offer so that the suite can drive an engine.
pub trait Harness {
    /// The engine, as of the last start.
    fn engine(&mut self) -> &mut dyn Engine;

    /// Ends the engine without warning and starts it again with this term, or with the next that it gets where the test cannot choose
    /// it; returns the term. What ran goes on.
    fn restart(&mut self, term: Term) -> Term;

    /// For an engine that does not keep its allocations: those that the last restart has found running.
    fn found(&mut self) -> Vec<AllocationId> {
        Vec::new()
    }

    /// Waits until there may be something to observe; panics when nothing comes within the test's deadline.
    fn wait(&mut self);

    /// A task that runs until it is told to stop, and ends at once when it is.
    fn patient(&mut self, allocation: AllocationId) -> Begin;

    /// A task that exits by itself with this code.
    fn brief(&mut self, allocation: AllocationId, code: i32) -> Begin;

    /// A task that ignores the notice of its end and leaves children behind.
    fn stubborn(&mut self, allocation: AllocationId) -> Begin;

    /// How many times the task of an allocation was begun, and how many of its processes are there now.
    fn processes(&mut self, allocation: AllocationId) -> (usize, usize);
}

/// What the suite has seen so far.
struct Course<'a> {
    harness: &'a mut dyn Harness,
    seen: Vec<Observation>,
    term: Term,
    next: u64,
}

/// Runs the whole suite; panics with the law that does not hold.
pub fn engine(harness: &mut dyn Harness) {
    let mut course = Course { harness, seen: Vec::new(), term: Term(0), next: 1 };
    course.restart();
    a_task_starts_once_however_often_it_is_launched(&mut course);
    an_end_is_told_again_until_it_is_forgotten(&mut course);
    a_stale_term_is_refused(&mut course);
    a_restart_reports_everything_that_runs(&mut course);
    a_stop_is_notice_and_then_kill_of_the_whole_tree(&mut course);
    a_stop_before_its_launch_leaves_nothing_to_start(&mut course);
}

impl Course<'_> {
    /// Restarts the engine; returns the allocations that it carries.
    fn restart(&mut self) -> Vec<AllocationId> {
        let before = self.term;
        self.seen.clear();
        self.term = self.harness.restart(Term(before.0 + 1));
        assert!(self.term > before, "L5: the term is {:?} after {before:?}", self.term);
        if !self.keeps_allocations() {
            return self.harness.found();
        }
        let inventory =
            self.until("the inventory after a start", |seen| matches!(seen, Observation::Inventory(_)));
        let Observation::Inventory(known) = inventory else { unreachable!("asked for the inventory") };
        known
    }

    fn keeps_allocations(&mut self) -> bool {
        self.harness.engine().abilities().keeps_allocations
    }

    fn begin(&mut self, id: AllocationId, begin: &Begin) {
        let fence = self.fence(id, 1);
        self.submit(begin.action(fence));
    }

    fn allocation(&mut self) -> AllocationId {
        self.next += 1;
        AllocationId(self.next)
    }

    fn fence(&self, allocation: AllocationId, seq: u32) -> Fence {
        Fence { term: self.term, allocation, seq }
    }

    fn submit(&mut self, action: Action) {
        self.harness.engine().submit(&[action]);
    }

    fn until(&mut self, what: &str, wanted: impl Fn(&Observation) -> bool) -> Observation {
        loop {
            let found = self.seen.iter().position(&wanted);
            if let Some(place) = found {
                return self.seen.remove(place);
            }
            let news = self.harness.engine().observe();
            if news.is_empty() {
                self.harness.wait();
            }
            assert!(self.seen.len() < 10_000, "no {what} among {} observations", self.seen.len());
            self.seen.extend(news);
        }
    }

    fn until_started(&mut self, id: AllocationId) {
        self.until("start", |seen| matches!(seen, Observation::Started(other, _) if *other == id));
    }

    fn until_ended(&mut self, id: AllocationId) -> EndedHow {
        match self.until("end", |seen| matches!(seen, Observation::Ended(other, _) if *other == id)) {
            Observation::Ended(_, end) => end.how,
            other => unreachable!("asked for an end: {other:?}"),
        }
    }
}

fn a_task_starts_once_however_often_it_is_launched(course: &mut Course) {
    let id = course.allocation();
    let task = course.harness.patient(id);
    for _ in 0..3 {
        course.begin(id, &task);
    }
    course.until_started(id);
    // The answer was lost: the shell starts again and repeats what it had said.
    let known = course.restart();
    course.begin(id, &task);
    if course.keeps_allocations() {
        course.until_started(id);
    }
    assert!(known.contains(&id), "after a restart the engine knows {known:?}, and not {id}");
    assert_eq!(course.harness.processes(id).0, 1, "L5: a second launch began the task again");
    course.submit(Action::Stop(course.fence(id, 2), Stop { signal: "TERM".into(), grace_ms: 10_000 }));
    course.until_ended(id);
    course.submit(Action::Forget(course.fence(id, u32::MAX)));
}

fn an_end_is_told_again_until_it_is_forgotten(course: &mut Course) {
    let id = course.allocation();
    let task = course.harness.brief(id, 7);
    course.begin(id, &task);
    assert_eq!(course.until_ended(id), EndedHow::Exited(7));
    if !course.keeps_allocations() {
        return course.submit(Action::Forget(course.fence(id, u32::MAX)));
    }
    course.restart();
    assert_eq!(course.until_ended(id), EndedHow::Exited(7), "L5: an end was lost with its answer");
    course.submit(Action::Forget(course.fence(id, u32::MAX)));
    // A task behind it: once this one has ended, the forgetting is over.
    let marker = course.allocation();
    let task = course.harness.brief(marker, 0);
    course.begin(marker, &task);
    course.until_ended(marker);
    course.submit(Action::Forget(course.fence(marker, u32::MAX)));
    course.restart();
    let again = |seen: &&Observation| matches!(seen, Observation::Ended(other, _) if *other == id);
    assert_eq!(course.seen.iter().find(again), None, "a forgotten end was told again");
}

fn a_stale_term_is_refused(course: &mut Course) {
    let (stale, id) = (course.term, course.allocation());
    course.restart();
    let task = course.harness.brief(id, 0);
    course.submit(task.action(Fence { term: stale, allocation: id, seq: 1 }));
    let marker = course.allocation();
    let task = course.harness.brief(marker, 0);
    course.begin(marker, &task);
    course.until_ended(marker);
    assert_eq!(course.harness.processes(id).0, 0, "L5: an action of a term that is over was carried out");
    course.submit(Action::Forget(course.fence(marker, u32::MAX)));
}

fn a_restart_reports_everything_that_runs(course: &mut Course) {
    let ids: BTreeSet<AllocationId> = (0..3).map(|_| course.allocation()).collect();
    for id in &ids {
        let task = course.harness.patient(*id);
        course.begin(*id, &task);
    }
    ids.iter().for_each(|id| course.until_started(*id));
    let known = course.restart();
    assert!(ids.iter().all(|id| known.contains(id)), "after a restart the engine knows {known:?} of {ids:?}");
    for id in &ids {
        if course.keeps_allocations() {
            course.until_started(*id);
        }
        course.submit(Action::Stop(course.fence(*id, 2), Stop { signal: "TERM".into(), grace_ms: 10_000 }));
    }
    for id in ids {
        course.until_ended(id);
        course.submit(Action::Forget(course.fence(id, u32::MAX)));
    }
}

fn a_stop_is_notice_and_then_kill_of_the_whole_tree(course: &mut Course) {
    if !course.harness.engine().abilities().runs_processes {
        return;
    }
    let id = course.allocation();
    let task = course.harness.stubborn(id);
    course.begin(id, &task);
    course.until_started(id);
    course.submit(Action::Stop(course.fence(id, 2), Stop { signal: "TERM".into(), grace_ms: 50 }));
    assert_eq!(
        course.until_ended(id),
        EndedHow::Signalled(9),
        "what ignores the notice is killed after the grace"
    );
    assert_eq!(course.harness.processes(id).1, 0, "processes of the tree were left behind");
    course.submit(Action::Forget(course.fence(id, u32::MAX)));
}

fn a_stop_before_its_launch_leaves_nothing_to_start(course: &mut Course) {
    let id = course.allocation();
    let task = course.harness.patient(id);
    course.submit(Action::Stop(course.fence(id, 2), Stop { signal: "TERM".into(), grace_ms: 0 }));
    assert_eq!(course.until_ended(id), EndedHow::NeverStarted);
    course.begin(id, &task);
    let marker = course.allocation();
    let task = course.harness.brief(marker, 0);
    course.begin(marker, &task);
    course.until_ended(marker);
    assert_eq!(course.harness.processes(id).0, 0, "a task was started after its stop");
}
