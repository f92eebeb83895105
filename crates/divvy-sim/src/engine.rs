//! The simulated engine: tasks that run in virtual time, as long as their course says. It starts, stops and remembers as the
//! local engine does; it never chooses.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::action::{Action, Fence, Launch};
use divvy_core::engine::{Abilities, EndedHow, Engine, Isolation, Observation, TaskEnd, TaskStart, Usage};
use divvy_core::id::{AllocationId, JobId, Term};
use divvy_core::time::{Span, Time};

/// What becomes of a job when nobody interferes. Known to the engine alone; nothing here reaches the planner before it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// How long it works undisturbed, in milliseconds on a device of speed one.
    pub work_ms: i64,
    /// The exit code of its tasks.
    pub exit_code: i32,
    /// Whether a stopped attempt's work counts for the next one.
    pub resumes: bool,
    /// How fast it works on a device model, as a fraction of speed one: over and under the line. Models that are absent have speed one.
    pub speeds: BTreeMap<String, (u64, u64)>,
}

impl Course {
    /// Works so long on any device, loses nothing when it is stopped, and ends well.
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
    /// Of jobs, and of members that have one of their own.
    courses: BTreeMap<JobId, Course>,
    tasks: BTreeMap<AllocationId, Task>,
    timers: BTreeSet<(Time, Turn, AllocationId)>,
    told: Vec<Observation>,
}

/// A task that was begun before the engine was, under the same fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Who gave the last word about it.
    pub fence: Fence,
    /// Its job.
    pub job: JobId,
    /// Which of the job's attempts it belongs to.
    pub attempt: u32,
    /// Since when that attempt works; `None` while it has not begun.
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
    started: Option<TaskStart>,
    ended: Option<TaskEnd>,
    /// Whether it was told to stop.
    stopped: bool,
}

impl SimulatedEngine {
    /// An engine at a moment. Speeds are looked up by the model of a device: `models` names it by uuid.
    pub fn new(now: Time, costs: Costs, models: BTreeMap<String, String>) -> Self {
        Self {
            now,
            term: Term(0),
            costs,
            models,
            jobs: BTreeMap::new(),
            courses: BTreeMap::new(),
            tasks: BTreeMap::new(),
            timers: BTreeSet::new(),
            told: Vec::new(),
        }
    }

    /// Says what becomes of a job (of each member, for an array). A job of which nothing is said ends at once.
    pub fn set_course(&mut self, number: u64, course: Course) {
        self.set_member_course(JobId::single(number), course);
    }

    /// Says what becomes of one member of an array.
    pub fn set_member_course(&mut self, job: JobId, course: Course) {
        self.courses.insert(job, course);
    }

    fn course(&self, job: JobId) -> Option<&Course> {
        self.courses.get(&job).or_else(|| self.courses.get(&JobId::single(job.number)))
    }

    /// Forgets a job that has ended.
    pub fn forget_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.courses.remove(&job);
    }

    /// When something happens next by itself.
    pub fn next_due(&self) -> Option<Time> {
        self.timers.first().map(|(at, ..)| *at)
    }

    /// Lets time pass: what is due by then has happened.
    pub fn advance_to(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some((at, turn, id)) = self.timers.first().copied().filter(|(at, ..)| *at <= self.now) {
            self.timers.remove(&(at, turn, id));
            match turn {
                Turn::Starts => self.start(id, at),
                Turn::Ends => self.end_by_itself(id, at),
            }
        }
    }

    /// Begins a term: from here on, what an earlier one says is refused, and all that is known is told again.
    pub fn restart(&mut self, term: Term) {
        self.term = self.term.max(term);
        self.tell_all_again();
    }

    /// What an engine says after its daemon has started again: all that it knows, as if nothing had been said.
    pub fn tell_all_again(&mut self) {
        self.told = vec![Observation::Inventory(self.tasks.keys().copied().collect())];
        for (id, task) in &self.tasks {
            self.told.extend(task.started.clone().map(|start| Observation::Started(*id, start)));
            self.told.extend(task.ended.clone().map(|end| Observation::Ended(*id, end)));
        }
    }

    /// The tasks that have not ended.
    pub fn live(&self) -> impl Iterator<Item = AllocationId> {
        self.tasks.iter().filter(|(_, task)| task.ended.is_none()).map(|(id, _)| *id)
    }

    /// Ends a task as something from outside would.
    pub fn strike(&mut self, id: AllocationId, how: EndedHow) {
        self.end(id, self.now, how);
    }

    /// Refuses what an earlier term says, and what was said before.
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
        let (starts_at, ends_at) = self.begin(launch);
        let task = Task { fence, job: launch.job, ends_at, started: None, ended: None, stopped: false };
        self.tasks.insert(fence.allocation, task);
        self.timers.insert((starts_at, Turn::Starts, fence.allocation));
    }

    /// When an attempt starts and ends by itself; all tasks of it at the same moments.
    fn begin(&mut self, launch: &Launch) -> (Time, Time) {
        let cost = if launch.restart > 0 { self.costs.restart_ms } else { self.costs.start_ms };
        let course = self.course(launch.job);
        let work_ms = course.map_or(0, |course| course.work_ms);
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
        (since, since + Span(left))
    }

    /// Takes over a task that was begun before. What an earlier attempt has done is not known here: the course is to leave it out.
    pub fn adopt(&mut self, adopted: Adopted) {
        let Adopted { fence, job, attempt, working_since, stopping } = adopted;
        self.term = self.term.max(fence.term);
        let work_ms = self.course(job).map_or(0, |course| course.work_ms);
        let since = working_since.unwrap_or(self.now + Span(self.costs.start_ms));
        let progress = self.jobs.entry(job).or_default();
        (progress.attempt, progress.working_since) = (attempt, Some(since));
        progress.running += u32::from(!stopping);
        let ends_at = if stopping { self.now } else { (since + Span(work_ms)).max(self.now) };
        let isolation = Isolation::Advisory("simulated".into());
        let started = working_since.map(|at| TaskStart { at, pid: 1, isolation, output: None });
        let timer = if started.is_some() || stopping { (ends_at, Turn::Ends) } else { (since, Turn::Starts) };
        self.timers.insert((timer.0, timer.1, fence.allocation));
        let task = Task { fence, job, ends_at, started, ended: None, stopped: stopping };
        self.tasks.insert(fence.allocation, task);
    }

    fn start(&mut self, id: AllocationId, at: Time) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.ended.is_none()) else { return };
        let isolation = Isolation::Advisory("simulated".into());
        let start = TaskStart { at, pid: 1, isolation, output: None };
        task.started = Some(start.clone());
        self.timers.insert((task.ends_at, Turn::Ends, id));
        self.told.push(Observation::Started(id, start));
    }

    fn end_by_itself(&mut self, id: AllocationId, at: Time) {
        let job = self.tasks.get(&id).map(|task| task.job);
        let code = job.and_then(|job| self.course(job)).map_or(0, |course| course.exit_code);
        self.end(id, at, EndedHow::Exited(code));
    }

    /// A task yields at its notice: what follows in reality within the grace follows here at once.
    fn stop(&mut self, fence: Fence) {
        if !self.is_news(fence) {
            return;
        }
        // A stop that comes before its launch is remembered, so that the launch begins nothing.
        let (job, ends_at) = (JobId::single(0), self.now);
        let unknown = Task { fence, job, ends_at, started: None, ended: None, stopped: false };
        let task = self.tasks.entry(fence.allocation).or_insert(unknown);
        let ran = !std::mem::replace(&mut task.stopped, true) && task.ended.is_none();
        if let Some(progress) = self.jobs.get_mut(&task.job).filter(|_| ran) {
            progress.running = progress.running.saturating_sub(1);
        }
        let started = self.tasks.get(&fence.allocation).is_some_and(|task| task.started.is_some());
        let how = if started { EndedHow::Signalled(15) } else { EndedHow::NeverStarted };
        self.end(fence.allocation, self.now, how);
    }

    fn end(&mut self, id: AllocationId, at: Time, how: EndedHow) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.ended.is_none()) else { return };
        let ran_ms = task.started.as_ref().map_or(0, |start| at.since(start.at).0);
        let end = TaskEnd { at, how, ran_ms, usage: Usage::default() };
        task.ended = Some(end.clone());
        let (job, ends_at, was_told) = (task.job, task.ends_at, task.stopped);
        self.timers.remove(&(ends_at, Turn::Ends, id));
        self.told.push(Observation::Ended(id, end));
        let Some(progress) = self.jobs.get_mut(&job) else { return };
        if !was_told {
            progress.running = progress.running.saturating_sub(1);
        }
        // Where a task was told to go and others run on, so does the clock.
        if !was_told || progress.running == 0 {
            self.keep_progress(job, at);
        }
    }

    /// The first task of an attempt to end stops the clock of its work.
    fn keep_progress(&mut self, job: JobId, at: Time) {
        let resumes = self.course(job).is_some_and(|course| course.resumes);
        let Some(progress) = self.jobs.get_mut(&job) else { return };
        if let Some(since) = progress.working_since.take().filter(|_| resumes) {
            progress.done_ms += work_in(at.since(since).0.max(0), progress.speed);
        }
    }
}

/// How long so much work takes at a speed, rounded up to a second where the speed is not one.
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
