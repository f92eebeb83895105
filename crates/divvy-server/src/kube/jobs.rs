//! Which pods form which job: a pod, or the pods of a gang, are one job. Ranks follow the names of the pods.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use divvy_core::action::Action;
use divvy_core::controller::{Broken, Controller};
use divvy_core::decide::{Adopt, Command, Rejection};
use divvy_core::id::{AllocationId, ClassId, JobId};
use divvy_core::model::job::JobSpec;
use divvy_core::reason::Reason;
use divvy_core::state::State;
use divvy_core::time::{Span, Time};
use divvy_engine::kubernetes::objects::Condition;
use divvy_engine::kubernetes::{Gang, PodNews, Running, Subject, Waiting};

use super::full::Full;
use super::submission::submission;
use super::{admin, words};

/// The pods that have no node yet, and the jobs that they belong to in the core.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pods: HashMap<String, Entry>,
    /// The pods of each job, by rank.
    jobs: BTreeMap<u64, Vec<String>>,
    classes: BTreeMap<ClassId, BTreeSet<u64>>,
    /// Pods that are in no job yet.
    loose: BTreeSet<String>,
    /// Whether anything has happened since the loose pods were last looked at.
    news: bool,
    /// Pods whose condition may have changed.
    to_say: BTreeSet<String>,
    told: Told,
    /// How many pods start together, for each group that has an object of its own.
    groups: HashMap<String, u32>,
    /// The jobs of gangs that wait or run.
    gangs: BTreeMap<Gang, u64>,
    /// What starts the jobs of a class, and the reason that it is for.
    advice: BTreeMap<ClassId, (Reason, String)>,
    /// Classes without such advice, each with one of its jobs.
    to_advise: BTreeMap<ClassId, u64>,
    /// Gangs that lack pods and whose pods have not been told so yet.
    incomplete: BTreeMap<Gang, Incomplete>,
    full: Full,
}

/// A gang that lacks pods.
#[derive(Debug)]
struct Incomplete {
    pods: Vec<String>,
    minimum: u32,
    /// When its last pod came.
    since: Time,
}

/// How long no pod of a gang must have come before the present ones are told: while a controller creates hundreds of pods,
/// each new pod would be news to all of them.
const QUIET_MS: i64 = 2_000;

/// The most jobs of a class for which advice is sought: with more jobs, it would help one and not the others, and each job
/// costs one more write.
const FEW: usize = 20;

/// A message about a pod: its uid, its condition, and the subject of the event that tells the owner.
pub(super) type Said = (String, Condition, Option<Subject>);

/// Why the pods of an owner and a class wait, as the last event said: one event is enough for all of them.
#[derive(Debug, Default)]
struct Told(HashMap<(String, Option<ClassId>), String>);

impl Told {
    /// Returns whether this is news.
    fn note(&mut self, owner: &str, class: Option<ClassId>, reason: &str) -> bool {
        let last = self.0.insert((owner.to_owned(), class), reason.to_owned());
        last.as_deref() != Some(reason)
    }

    /// Now and then, forgets owners without waiting pods.
    fn forget(&mut self, pods: &HashMap<String, Entry>) {
        if self.0.len() > 2 * pods.len() + 1000 {
            let there: HashSet<&str> = pods.values().map(|it| it.waiting.subject.uid.as_str()).collect();
            self.0.retain(|(owner, _), _| there.contains(owner.as_str()));
        }
    }
}

#[derive(Debug)]
struct Entry {
    waiting: Waiting,
    job: Option<u64>,
    /// Why it is in no job.
    refused: Option<Condition>,
    /// The last message: reason and text.
    said: (String, String),
}

impl Jobs {
    /// Returns how many pods wait.
    pub(super) fn waiting(&self) -> usize {
        self.pods.len()
    }

    /// Returns the pods of each job, by rank.
    pub(super) fn of_jobs(&self) -> impl Iterator<Item = (u64, &[String])> {
        self.jobs.iter().map(|(job, pods)| (*job, pods.as_slice()))
    }

    /// Returns the pods that are in no job, and why.
    pub(super) fn in_none(&self) -> impl Iterator<Item = (&Waiting, Option<&Condition>)> {
        let loose = self.pods.values().filter(|entry| entry.job.is_none());
        loose.map(|entry| (&entry.waiting, entry.refused.as_ref()))
    }

    /// Returns the pod that has a rank in a job.
    pub(super) fn pod(&self, job: JobId, rank: u32) -> Option<&str> {
        Some(self.jobs.get(&job.number)?.get(rank as usize)?.as_str())
    }

    /// Adds a pod that waits for a node.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        let uid = waiting.uid.clone();
        let said = waiting.scheduled.as_ref().map(|it| (it.reason.clone(), it.message.clone()));
        self.loose.insert(uid.clone());
        self.news = true;
        self.to_say.insert(uid.clone());
        self.pods.insert(uid, Entry { waiting, job: None, refused: None, said: said.unwrap_or_default() });
    }

    /// Notes the size of a group, or that the group is gone.
    pub(super) fn group(&mut self, name: String, minimum: Option<u32>) {
        self.news = true;
        match minimum {
            Some(minimum) => drop(self.groups.insert(name, minimum)),
            None => drop(self.groups.remove(&name)),
        }
    }

    /// Removes a pod that no longer waits; returns the job that cannot start without it.
    pub(super) fn gone(&mut self, uid: &str) -> Option<u64> {
        self.news |= self.loose.remove(uid);
        self.to_say.remove(uid);
        self.pods.remove(uid)?.job
    }

    /// Returns the time limits that tasks about to be bound have from their queues, where their pods have none.
    pub(super) fn limits(&self, state: &State, actions: &[Action]) -> Vec<(AllocationId, Span)> {
        let limit = |action: &Action| {
            let Action::Bind(fence, bind) = action else { return None };
            let limit = state.jobs.get(&bind.job.number)?.spec.time_limit?;
            let pod = &self.pods.get(&bind.task)?.waiting;
            pod.time_limit.is_none().then_some((fence.allocation, limit))
        };
        actions.iter().filter_map(limit).collect()
    }

    /// Notes that a job is over: its pods that still wait become loose.
    pub(super) fn ended(&mut self, job: u64, still_waits: impl Fn(&str) -> bool) {
        self.news = true;
        self.full.open();
        self.gangs.retain(|_, known| *known != job);
        for uid in self.jobs.remove(&job).unwrap_or_default() {
            if !still_waits(&uid) {
                self.pods.remove(&uid);
                continue;
            }
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.job = None;
                self.loose.insert(uid);
            }
        }
        self.classes.retain(|_, jobs| {
            jobs.remove(&job);
            !jobs.is_empty()
        });
    }

    /// Makes all refused pods loose, to look at them again.
    pub(super) fn retry_refused(&mut self) {
        self.news = true;
        self.full.clear();
        let refused = self.pods.iter().filter(|(_, entry)| entry.refused.is_some());
        self.loose.extend(refused.map(|(uid, _)| uid.clone()));
    }

    /// Returns the classes whose reason has no advice yet, each with one of its jobs.
    pub(super) fn unadvised(&mut self) -> BTreeMap<ClassId, u64> {
        std::mem::take(&mut self.to_advise)
    }

    /// Takes the advice for a class: what starts its jobs.
    pub(super) fn advised(&mut self, class: ClassId, (reason, way): (Reason, String)) {
        let classes = &self.classes;
        self.advice.retain(|known, _| classes.contains_key(known));
        self.advice.insert(class, (reason, way));
        self.judged(std::iter::once(class));
    }

    /// Notes that the verdicts of these classes have changed.
    pub(super) fn judged(&mut self, classes: impl Iterator<Item = ClassId>) {
        for job in classes.filter_map(|class| self.classes.get(&class)).flatten() {
            self.to_say.extend(self.jobs.get(job).into_iter().flatten().cloned());
        }
    }

    /// Makes jobs of loose pods, where possible.
    pub(super) fn submit(&mut self, controller: &mut Controller, now: Time) -> Result<(), Broken> {
        let again = self.full.next(now);
        if !std::mem::take(&mut self.news) && again.is_empty() {
            return Ok(());
        }
        let is_loose = |uid: &String| self.pods.get(uid).is_some_and(|entry| entry.job.is_none());
        self.loose.extend(again.into_iter().filter(is_loose));
        for (gang, mut pods) in self.in_line() {
            match gang {
                Some(gang) => self.submit_gang(controller, &gang, pods, now)?,
                None => pods.drain(..).try_for_each(|pod| self.submit_one(controller, vec![pod], now))?,
            }
        }
        Ok(())
    }

    /// Returns the loose pods by creation time; a gang stands together, at the time of its last pod.
    fn in_line(&mut self) -> Vec<(Option<Gang>, Vec<Waiting>)> {
        let loose = std::mem::take(&mut self.loose);
        let mut pods: Vec<Waiting> =
            loose.iter().filter_map(|uid| self.pods.get(uid)).map(|entry| entry.waiting.clone()).collect();
        pods.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
        let mut gangs: BTreeMap<Gang, Vec<Waiting>> = BTreeMap::new();
        let mut line: Vec<(String, Option<Gang>, Vec<Waiting>)> = Vec::new();
        for pod in pods {
            match pod.gang.clone() {
                None => line.push((pod.created.clone(), None, vec![pod])),
                Some(gang) => gangs.entry(gang).or_default().push(pod),
            }
        }
        let made = |pods: &[Waiting]| pods.last().map(|pod| pod.created.clone()).unwrap_or_default();
        line.extend(gangs.into_iter().map(|(gang, pods)| (made(&pods), Some(gang), pods)));
        // Stable: pods of the same second are ordered by name.
        line.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        line.into_iter().map(|(_, gang, pods)| (gang, pods)).collect()
    }

    /// Makes a job of a gang's pods if all are there. Otherwise they stay loose: the next pod may complete the gang.
    fn submit_gang(
        &mut self,
        controller: &mut Controller,
        gang: &Gang,
        mut pods: Vec<Waiting>,
        now: Time,
    ) -> Result<(), Broken> {
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        let Some(minimum) = self.minimum(gang) else {
            self.keep_loose(pods, &words::group_missing(&gang.of));
            return Ok(());
        };
        let run = self.gangs.get(gang).and_then(|job| controller.state().run(JobId::single(*job)));
        if let Some(runs) = run.map(|run| run.is_active() && run.stopping.is_none()) {
            // A late pod joins a running gang, as a job of its own. While the gang waits or stops, its members are still open.
            return match runs {
                true => pods.into_iter().try_for_each(|pod| self.submit_one(controller, vec![pod], now)),
                false => {
                    self.keep_loose(pods, &words::beyond_the_gang(minimum));
                    Ok(())
                }
            };
        }
        if pods.len() < minimum as usize {
            self.await_others(gang, (pods, minimum), now);
            return Ok(());
        }
        self.incomplete.remove(gang);
        let more = pods.split_off(minimum as usize);
        self.keep_loose(more, &words::beyond_the_gang(minimum));
        let first = pods.first().map(|pod| pod.uid.clone());
        self.submit_one(controller, pods, now)?;
        let job = first.and_then(|uid| self.pods.get(&uid)?.job);
        self.gangs.extend(job.map(|job| (gang.clone(), job)));
        Ok(())
    }

    /// Returns how many pods of a gang start together.
    pub(super) fn minimum(&self, gang: &Gang) -> Option<u32> {
        gang.minimum.or_else(|| self.groups.get(&gang.of).copied())
    }

    /// Whether a gang waits or runs.
    pub(super) fn has(&self, gang: &Gang) -> bool {
        self.gangs.contains_key(gang)
    }

    /// Notes that a job was placed: pods that came late to its gang may join now.
    pub(super) fn placed(&mut self) {
        self.news = true;
    }

    fn await_others(&mut self, gang: &Gang, (pods, minimum): (Vec<Waiting>, u32), now: Time) {
        let pods: Vec<String> = pods.into_iter().map(|pod| pod.uid).collect();
        self.loose.extend(pods.iter().cloned());
        if self.incomplete.get(gang).is_none_or(|known| known.pods != pods) {
            self.incomplete.insert(gang.clone(), Incomplete { pods, minimum, since: now });
        }
    }

    /// Tells the pods of gangs that are incomplete and that no pod has joined for a while.
    fn tell_incomplete(&mut self, now: Time) {
        let is_quiet = |known: &Incomplete| now.since(known.since).0 >= QUIET_MS;
        let quiet: Vec<Gang> = self
            .incomplete
            .iter()
            .filter(|(_, known)| is_quiet(known))
            .map(|(gang, _)| gang.clone())
            .collect();
        for gang in quiet {
            let Some(known) = self.incomplete.remove(&gang) else { continue };
            let condition = words::gang_incomplete(known.pods.len(), known.minimum);
            known.pods.iter().for_each(|uid| self.refuse(uid, condition.clone()));
        }
    }

    fn keep_loose(&mut self, pods: Vec<Waiting>, why: &Condition) {
        for pod in pods {
            self.refuse(&pod.uid, why.clone());
            self.loose.insert(pod.uid);
        }
    }

    fn submit_one(
        &mut self,
        controller: &mut Controller,
        pods: Vec<Waiting>,
        now: Time,
    ) -> Result<(), Broken> {
        let uids: Vec<String> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let taken = match submission(controller, &pods) {
            Err(why) => Err(why),
            Ok(submit) => {
                let answer = controller.take(&Command::Submit(Box::new(submit)), now)?;
                if let Err(Rejection::QueueFull { .. }) = &answer {
                    self.full.refused(&pods);
                }
                answer.map_err(|rejection| told(&rejection))
            }
        };
        match taken.map(|answer| answer.job) {
            Ok(Some(job)) => self.joined(controller, job, uids),
            Ok(None) => {}
            Err(why) => uids.iter().for_each(|uid| self.refuse(uid, words::refused(&why))),
        }
        Ok(())
    }

    /// Notes that these pods are a job from now on.
    fn joined(&mut self, controller: &Controller, job: u64, uids: Vec<String>) {
        if let Some(known) = controller.state().jobs.get(&job) {
            self.classes.entry(known.class).or_default().insert(job);
        }
        for uid in &uids {
            let Some(entry) = self.pods.get_mut(uid) else { continue };
            (entry.job, entry.refused) = (Some(job), None);
            self.to_say.insert(uid.clone());
        }
        self.jobs.insert(job, uids);
    }

    fn refuse(&mut self, uid: &str, condition: Condition) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.refused = Some(condition);
            self.to_say.insert(uid.to_owned());
        }
    }

    /// Returns the news about waiting pods.
    pub(super) fn said(&mut self, controller: &Controller, now: Time) -> Vec<Said> {
        self.tell_incomplete(now);
        let state = controller.state();
        let mut choices: HashMap<ClassId, words::Choice> = HashMap::new();
        let mut new = Vec::new();
        for uid in std::mem::take(&mut self.to_say) {
            let Some(entry) = self.pods.get_mut(&uid) else { continue };
            let job = entry.job.and_then(|job| state.jobs.get(&job));
            let waits = job.is_some_and(|job| job.run(None).is_some_and(|run| !run.is_active()));
            let job = job.filter(|_| waits);
            let judged = job.and_then(|job| Some((job, state.verdicts.get(&job.class)?)));
            let (condition, code) = match (judged, entry.refused.clone()) {
                (Some((job, reason)), _) => {
                    let choice = choices.entry(job.class).or_insert_with(|| choice(controller, &job.spec));
                    let known = self.advice.get(&job.class).filter(|(about, _)| about == reason);
                    if known.is_none() && self.classes.get(&job.class).is_some_and(|it| it.len() <= FEW) {
                        self.to_advise.insert(job.class, job.number);
                    }
                    let known = known.map(|(_, way)| way.as_str());
                    (words::waits((reason, state), choice, known), reason.code().to_owned())
                }
                (None, Some(refused)) => {
                    let code = refused.reason.clone();
                    (refused, code)
                }
                (None, None) => continue,
            };
            let said = (condition.reason.clone(), condition.message.clone());
            if entry.said != said {
                entry.said = said;
                let subject = &entry.waiting.subject;
                let is_news = self.told.note(&subject.uid, job.map(|job| job.class), &code);
                new.push((uid, condition, is_news.then(|| subject.clone())));
            }
        }
        self.told.forget(&self.pods);
        new
    }

    /// Adopts pods that are on nodes already, as one job; the inner error says why not.
    pub(super) fn adopt(
        &mut self,
        controller: &mut Controller,
        gang: &[Running],
        now: Time,
    ) -> Result<Result<(), String>, Broken> {
        let pods: Vec<Waiting> = gang.iter().map(|running| running.pod.clone()).collect();
        // A pod whose queue is gone runs on anyway.
        let homeless = || {
            let mut pods = pods.clone();
            pods.iter_mut().for_each(|pod| pod.queue = None);
            submission(controller, &pods)
        };
        let submit = match submission(controller, &pods).or_else(|_| homeless()) {
            Ok(submit) => submit,
            Err(why) => return Ok(Err(why)),
        };
        let since = gang.iter().filter_map(|running| running.since.parse::<jiff::Timestamp>().ok()).min();
        let since = since.map_or(now, |since| Time(since.as_millisecond()));
        let nodes = gang.iter().map(|running| running.node.clone()).collect();
        let answer = controller.adopt(&Adopt { submit, nodes, since }, now)?;
        Ok(answer.map_err(|rejection| rejection.to_string()).map(|answer| {
            if let Some(job) = answer.job {
                let gang = pods.first().and_then(|pod| pod.gang.clone()).filter(|_| pods.len() > 1);
                self.gangs.extend(gang.map(|gang| (gang, job)));
                self.jobs.insert(job, pods.into_iter().map(|pod| pod.uid).collect());
            }
        }))
    }

    /// Returns the allocation of a pod that was just adopted, by its rank.
    pub(super) fn allocation(&self, controller: &Controller, uid: &str, rank: u32) -> Option<AllocationId> {
        let (job, _) = self.jobs.iter().next_back().filter(|(_, pods)| pods.iter().any(|pod| pod == uid))?;
        let run = controller.state().run(JobId::single(*job))?;
        run.placements.iter().find(|placement| placement.rank == rank).map(|placement| placement.allocation)
    }
}

/// Returns how many nodes a job may use, and how many GPUs pass each step of the funnel.
fn choice(controller: &Controller, spec: &JobSpec) -> words::Choice {
    let nodes = &controller.snapshot().capacity.nodes;
    let roles = spec.gang.roles();
    let chosen = nodes.iter().filter(|node| roles.iter().any(|role| role.ask.nodes.takes(&node.face)));
    let funnel = divvy_core::plan::funnel(controller.state(), controller.snapshot(), spec);
    words::Choice { chosen: chosen.count(), all: nodes.len(), funnel }
}

/// Cancels a job that has no devices, so that it does not get any.
pub(super) fn cancel_if_it_waits(controller: &mut Controller, job: u64, now: Time) -> Result<(), Broken> {
    let id = JobId::single(job);
    let waits = controller.state().run(id).is_some_and(|run| !run.is_active());
    if waits && let Err(rejection) = controller.take(&Command::Cancel(id, admin()), now)? {
        tracing::warn!("job {id} was not cancelled: {rejection}");
    }
    Ok(())
}

/// Groups running pods by gang, up to the number that start together; each further pod stands alone.
pub(super) fn by_gang(running: Vec<Running>, minimum: impl Fn(&Gang) -> Option<u32>) -> Vec<Vec<Running>> {
    let mut gangs: Vec<Vec<Running>> = Vec::new();
    let mut places: BTreeMap<Gang, usize> = BTreeMap::new();
    for running in running {
        match running.pod.gang.clone() {
            None => gangs.push(vec![running]),
            Some(gang) => match places.get(&gang) {
                Some(place) if gangs[*place].len() >= minimum(&gang).unwrap_or(u32::MAX) as usize => {
                    gangs.push(vec![running]);
                }
                Some(place) => gangs[*place].push(running),
                None => {
                    places.insert(gang, gangs.len());
                    gangs.push(vec![running]);
                }
            },
        }
    }
    gangs
}

/// Whether a pod of the gang waits for a node.
pub(super) fn any_waits(news: &[PodNews], gang: &Gang) -> bool {
    news.iter().any(|news| matches!(news, PodNews::Waits(waiting) if waiting.gang.as_ref() == Some(gang)))
}

/// Says why pods are refused, in the terms of a cluster.
fn told(rejection: &Rejection) -> String {
    match rejection {
        Rejection::NotAMember { user, queue, .. } => {
            format!(
                "queue {queue} does not take pods of namespace {user}: name another, or add it to its namespaces"
            )
        }
        other => other.to_string(),
    }
}
