//! The simulated engine: tasks run in virtual time for as long as their course says. It starts and stops tasks and remembers
//! them as the local engine does; it never chooses.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::action::{Action, Fence, Launch};
use divvy_core::engine::{Abilities, EndedHow, Engine, Isolation, Observation, TaskEnd, TaskStart, Usage};
use divvy_core::id::{AllocationId, JobId, Term};
use divvy_core::time::{Span, Time};

/// What becomes of a job when nobody interferes. Only the engine knows it; nothing here reaches the planner before it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// How long it works undisturbed, in milliseconds on a device of speed one.
    pub work_ms: i64,
    /// The exit code of its tasks.
    pub exit_code: i32,
    /// Whether a stopped attempt's work counts for the next one.
    pub resumes: bool,
    /// How fast it works on a device model, as a fraction of speed one: numerator and denominator. Absent models have speed one.
    pub speeds: BTreeMap<String, (u64, u64)>,
}

impl Course {
    /// Returns a course that works this long on any device, loses nothing when stopped, and ends well.
    pub fn of_length(work_ms: i64) -> Self {
        Self { work_ms, exit_code: 0, resumes: true, speeds: BTreeMap::new() }
    }
}

/// What every attempt costs besides its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// From launch to running, for the first attempt.
    pub start_ms: i64,
    /// The same for later ones.
    pub restart_ms: i64,
}

/// Tasks in virtual time.
#[derive(Debug)]
pub struct SimulatedEngine {
    now: Time,
    term: Term,
    costs: Costs,
    models: BTreeMap<String, String>,
    jobs: BTreeMap<JobId, Progress>,
    tasks: BTreeMap<AllocationId, Task>,
    timers: BTreeSet<(Time, Turn, AllocationId)>,
    told: Vec<Observation>,
}

/// A task that began before this engine did, under the same fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// The fence of the last command about it.
    pub fence: Fence,
    /// Its job.
    pub job: JobId,
    /// Which of the job's attempts it belongs to.
    pub attempt: u32,
    /// When that attempt began to work; `None` while it has not.
    pub working_since: Option<Time>,
    /// Whether it was told to stop: it does so at once.
    pub stopping: bool,
}

/// What a timer is for; ends come before starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Ends,
    Starts,
}

/// How far a job has come over its attempts.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// A member without a course of its own has that of its array.
    course: Option<Course>,
    attempt: u32,
    done_ms: i64,
    /// When the running attempt's work began (or will).
    working_since: Option<Time>,
    speed: Option<(u64, u64)>,
    /// Tasks of the attempt that were not told to stop and have not ended.
    running: u32,
}

/// A task that was launched and not forgotten.
#[derive(Clone, Debug)]
struct Task {
    fence: Fence,
    job: JobId,
    ends_at: Time,
    /// The exit code if nobody interferes.
    code: i32,
    started: Option<Time>,
    ended: Option<(Time, EndedHow)>,
    /// Whether it was told to stop.
    stopped: bool,
}

impl Task {
    /// What to report of its start, if it has started.
    fn start(&self) -> Option<TaskStart> {
        let isolation = Isolation::Advisory("simulated".into());
        self.started.map(|at| TaskStart { at, pid: 1, isolation, output: None })
    }

    /// What to report of its end, if it has ended.
    fn end(&self) -> Option<TaskEnd> {
        let (at, how) = self.ended.clone()?;
        let ran_ms = self.started.map_or(0, |started| at.since(started).0);
        Some(TaskEnd { at, how, ran_ms, usage: Usage::default() })
    }
}

impl SimulatedEngine {
    /// Returns an engine at a moment. Speeds go by device model: `models` names it by uuid.
    pub fn new(now: Time, costs: Costs, models: BTreeMap<String, String>) -> Self {
        Self {
            now,
            term: Term(0),
            costs,
            models,
            jobs: BTreeMap::new(),
            tasks: BTreeMap::new(),
            timers: BTreeSet::new(),
            told: Vec::new(),
        }
    }

    /// Sets what becomes of a job (of each member, for an array). A job without a course ends at once.
    pub fn set_course(&mut self, number: u64, course: Course) {
        self.set_member_course(JobId::single(number), course);
    }

    /// Sets what becomes of one member of an array.
    pub fn set_member_course(&mut self, job: JobId, course: Course) {
        self.jobs.entry(job).or_default().course = Some(course);
    }

    fn course(&self, job: JobId) -> Option<&Course> {
        let own = self.jobs.get(&job).and_then(|progress| progress.course.as_ref());
        own.or_else(|| self.course_of_array(job))
    }

    fn course_of_array(&self, job: JobId) -> Option<&Course> {
        job.member.and_then(|_| self.jobs.get(&JobId::single(job.number))?.course.as_ref())
    }

    /// Returns how much work a job's past attempts have done, in milliseconds on a device of speed one.
    pub fn done_ms(&self, job: JobId) -> i64 {
        self.jobs.get(&job).map_or(0, |progress| progress.done_ms)
    }

    /// Forgets a job that has ended.
    pub fn forget_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// Returns when something next happens by itself.
    pub fn next_due(&self) -> Option<Time> {
        self.timers.first().map(|(at, ..)| *at)
    }

    /// Lets time pass: everything due by then happens.
    pub fn advance_to(&mut self, now: Time) {
        self.now = self.now.max(now);
        while self.next_due().is_some_and(|at| at <= self.now) {
            let Some((at, turn, id)) = self.timers.pop_first() else { return };
            match turn {
                Turn::Starts => self.start(id, at),
                Turn::Ends => self.end(id, at, None),
            }
        }
    }

    /// Begins a term: from here on an earlier term's commands are refused; all that is known is told again.
    pub fn restart(&mut self, term: Term) {
        self.term = self.term.max(term);
        self.tell_all_again();
    }

    /// Reports everything it knows, as if nothing had been reported: its daemon has started again.
    pub fn tell_all_again(&mut self) {
        self.told = vec![Observation::Inventory(self.tasks.keys().copied().collect())];
        for (id, task) in &self.tasks {
            self.told.extend(task.start().map(|start| Observation::Started(*id, start)));
            self.told.extend(task.end().map(|end| Observation::Ended(*id, end)));
        }
    }

    /// Replaces the contents of a list by what [`Engine::observe`] returns, to use its memory again.
    pub(crate) fn observe_into(&mut self, observed: &mut Vec<Observation>) {
        observed.clear();
        std::mem::swap(&mut self.told, observed);
    }

    /// Whether it matters on which devices tasks run.
    pub(crate) fn looks_at_devices(&self) -> bool {
        !self.models.is_empty()
    }

    /// The tasks that have not ended.
    pub fn live(&self) -> impl Iterator<Item = AllocationId> {
        self.tasks.iter().filter(|(_, task)| task.ended.is_none()).map(|(id, _)| *id)
    }

    /// Ends a task as something from outside would.
    pub fn strike(&mut self, id: AllocationId, how: EndedHow) {
        self.end(id, self.now, Some(how));
    }

    /// Whether a command is new: refuses those of an earlier term, and those that came before.
    fn is_news(&mut self, fence: Fence) -> bool {
        if fence.term < self.term {
            return false;
        }
        self.term = fence.term;
        match self.tasks.get_mut(&fence.allocation) {
            Some(task) if fence.seq > task.fence.seq => {
                task.fence = fence;
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    fn launch(&mut self, fence: Fence, launch: &Launch) {
        if !self.is_news(fence) || self.tasks.contains_key(&fence.allocation) {
            return;
        }
        let (starts_at, ends_at, code) = self.begin(launch);
        let task = Task { fence, job: launch.job, ends_at, code, started: None, ended: None, stopped: false };
        self.tasks.insert(fence.allocation, task);
        self.timers.insert((starts_at, Turn::Starts, fence.allocation));
    }

    /// When an attempt starts and ends by itself, all its tasks at the same moments; and its exit code.
    fn begin(&mut self, launch: &Launch) -> (Time, Time, i32) {
        let cost = if launch.restart > 0 { self.costs.restart_ms } else { self.costs.start_ms };
        let course = self.course(launch.job);
        let (work_ms, code) = course.map_or((0, 0), |course| (course.work_ms, course.exit_code));
        let model = launch.devices.first().and_then(|device| self.models.get(&device.uuid));
        let speed = course.zip(model).and_then(|(course, model)| course.speeds.get(model).copied());
        let progress = self.jobs.entry(launch.job).or_default();
        if progress.attempt != launch.attempt {
            let since = self.now + Span(cost);
            progress.attempt = launch.attempt;
            progress.working_since = Some(since);
            progress.speed = speed;
            progress.running = 0;
        }
        progress.running += 1;
        let since = progress.working_since.unwrap_or(self.now);
        let left = time_for((work_ms - progress.done_ms).max(0), progress.speed);
        (since, since + Span(left), code)
    }

    /// Takes over a task that began earlier. The work of earlier attempts is not known here, so the course must leave it out.
    pub fn adopt(&mut self, adopted: Adopted) {
        let Adopted { fence, job, attempt, working_since, stopping } = adopted;
        self.term = self.term.max(fence.term);
        let (work_ms, code) = self.course(job).map_or((0, 0), |course| (course.work_ms, course.exit_code));
        let since = working_since.unwrap_or(self.now + Span(self.costs.start_ms));
        let progress = self.jobs.entry(job).or_default();
        (progress.attempt, progress.working_since) = (attempt, Some(since));
        progress.running += u32::from(!stopping);
        let ends_at = if stopping { self.now } else { (since + Span(work_ms)).max(self.now) };
        let begun = working_since.is_some();
        let timer = if begun || stopping { (ends_at, Turn::Ends) } else { (since, Turn::Starts) };
        self.timers.insert((timer.0, timer.1, fence.allocation));
        let (started, ended, stopped) = (working_since, None, stopping);
        let task = Task { fence, job, ends_at, code, started, ended, stopped };
        self.tasks.insert(fence.allocation, task);
    }

    fn start(&mut self, id: AllocationId, at: Time) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.ended.is_none()) else { return };
        task.started = Some(at);
        self.timers.insert((task.ends_at, Turn::Ends, id));
        self.told.extend(task.start().map(|start| Observation::Started(id, start)));
    }

    /// Stops a task at its notice: what in reality follows within the grace follows here at once.
    fn stop(&mut self, fence: Fence) {
        if !self.is_news(fence) {
            return;
        }
        // A stop that comes before its launch is remembered, so that the launch begins nothing.
        let (job, ends_at) = (JobId::single(0), self.now);
        let unknown = Task { fence, job, ends_at, code: 0, started: None, ended: None, stopped: false };
        let task = self.tasks.entry(fence.allocation).or_insert(unknown);
        let ran = !std::mem::replace(&mut task.stopped, true) && task.ended.is_none();
        if let Some(progress) = self.jobs.get_mut(&task.job).filter(|_| ran) {
            progress.running = progress.running.saturating_sub(1);
        }
        let started = self.tasks.get(&fence.allocation).is_some_and(|task| task.started.is_some());
        let how = if started { EndedHow::Signalled(15) } else { EndedHow::NeverStarted };
        self.end(fence.allocation, self.now, Some(how));
    }

    /// Ends a task in this way; without one, as it ends by itself when its timer is due.
    fn end(&mut self, id: AllocationId, at: Time, how: Option<EndedHow>) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.ended.is_none()) else { return };
        if how.is_some() {
            self.timers.remove(&(task.ends_at, Turn::Ends, id));
        }
        task.ended = Some((at, how.unwrap_or(EndedHow::Exited(task.code))));
        self.told.extend(task.end().map(|end| Observation::Ended(id, end)));
        let (job, was_told) = (task.job, task.stopped);
        let resumes = self.course_of_array(job).is_some_and(|course| course.resumes);
        let Some(progress) = self.jobs.get_mut(&job) else { return };
        if !was_told {
            progress.running = progress.running.saturating_sub(1);
        }
        // If the task was told to go and others run on, so does the clock.
        if !was_told || progress.running == 0 {
            progress.stop_clock(at, resumes);
        }
    }
}

impl Progress {
    /// Stops the clock of an attempt's work, as its first task to end does; `resumes` is what its array says.
    fn stop_clock(&mut self, at: Time, resumes: bool) {
        let resumes = self.course.as_ref().map_or(resumes, |course| course.resumes);
        if let Some(since) = self.working_since.take().filter(|_| resumes) {
            self.done_ms += work_in(at.since(since).0.max(0), self.speed);
        }
    }
}

/// How long this much work takes at a speed, rounded up to a second where the speed is not one.
fn time_for(work_ms: i64, speed: Option<(u64, u64)>) -> i64 {
    let Some((over, under)) = speed else { return work_ms };
    let exact = i128::from(work_ms) * i128::from(under);
    let second = i128::from(over) * 1000;
    i64::try_from((exact + second - 1) / second * 1000).unwrap_or(i64::MAX)
}

/// How much work is done in a time at a speed.
fn work_in(time_ms: i64, speed: Option<(u64, u64)>) -> i64 {
    let Some((over, under)) = speed else { return time_ms };
    i64::try_from(i128::from(time_ms) * i128::from(over) / i128::from(under)).unwrap_or(i64::MAX)
}

impl Engine for SimulatedEngine {
    fn submit(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Launch(fence, launch) => self.launch(*fence, launch),
                // Nothing here runs by other means.
                Action::Bind(..) => {}
                Action::Stop(fence, _) => self.stop(*fence),
                Action::Forget(fence) => {
                    if fence.term >= self.term
                        && self.tasks.get(&fence.allocation).is_some_and(|task| task.ended.is_some())
                    {
                        self.tasks.remove(&fence.allocation);
                    }
                }
            }
        }
        self.advance_to(self.now);
    }

    fn observe(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.told)
    }

    fn abilities(&self) -> Abilities {
        Abilities { names_devices: true, runs_processes: false, keeps_allocations: true }
    }
}
