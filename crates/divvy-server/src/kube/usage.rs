//! What queues have and used, in their status: for people, and for the next scheduler, whose log begins anew.

use std::collections::BTreeMap;

use divvy_api as api;
use divvy_core::controller::{Broken, Controller};
use divvy_core::decide::Command;
use divvy_core::model::job::Owner;
use divvy_core::model::queue::{seat, user_at};
use divvy_core::model::recollection::{Recollection, Spent};
use divvy_core::time::{Span, Time};
use divvy_engine::kubernetes::objects::{BudgetUse, PledgeUse, QueueStatus, Usage, UserUse};
use jiff::Timestamp;

use super::admin;
use super::submission::NOBODY;

/// The last status that was written for each queue, by path.
#[derive(Debug, Default)]
pub(super) struct Told {
    last: BTreeMap<String, (QueueStatus, Time)>,
    looked_at: Time,
}

/// How often to look for a status that has to be written.
const LOOK_EVERY: Span = Span::seconds(5);
/// How often the usage of a queue is written while jobs run or wait in it: a crash may lose so much of it.
const KEPT_EVERY: Span = Span::seconds(60);
/// The most users in a status: those who used the most stay.
const MOST_USERS: usize = 1000;
const SECOND_MS: i64 = 1000;

impl Told {
    /// Returns the statuses to write now, by queue path. Nothing is written for a queue that never had anything.
    pub(super) fn due(&mut self, controller: &Controller, now: Time) -> Vec<(String, QueueStatus)> {
        if now.since(self.looked_at) < LOOK_EVERY {
            return Vec::new();
        }
        self.looked_at = now;
        let statuses = statuses(controller, now);
        self.last.retain(|path, _| statuses.contains_key(path));
        let is_due = |(path, status): &(String, QueueStatus)| match self.last.get(path) {
            None => *status != QueueStatus { gpus_due: status.gpus_due, ..QueueStatus::default() },
            Some((last, at)) => {
                let counts =
                    |status: &QueueStatus| (status.running, status.waiting, status.gpus, status.gpus_due);
                let kept = now.since(*at) >= KEPT_EVERY && last.running + last.waiting > 0;
                kept || counts(last) != counts(status)
            }
        };
        let due: Vec<(String, QueueStatus)> = statuses.into_iter().filter(is_due).collect();
        self.last.extend(due.iter().map(|(path, status)| (path.clone(), (status.clone(), now))));
        due
    }
}

/// Returns the status of every queue, by path.
fn statuses(controller: &Controller, now: Time) -> BTreeMap<String, QueueStatus> {
    let (state, nobody) =
        (controller.state(), Owner { name: String::new(), uid: NOBODY, gid: NOBODY, groups: Vec::new() });
    let rows = crate::wire::queue::all((state, state.now), controller.snapshot(), &nobody);
    let status = |row: &api::Queue| QueueStatus {
        conditions: Vec::new(),
        running: row.running,
        waiting: row.waiting,
        gpus: row.gpu_milli / 1000,
        gpus_due: row.gpu_milli_due.map(|milli| milli / 1000),
        usage: None,
    };
    let mut all: BTreeMap<String, QueueStatus> =
        rows.iter().map(|row| (row.queue.clone(), status(row))).collect();
    for (path, known) in state.recollections(now) {
        let (queue, user) = user_at(&path).map_or((path.as_str(), None), |(queue, user)| (queue, Some(user)));
        let Some(status) = all.get_mut(queue) else { continue };
        let usage = status.usage.get_or_insert_with(|| Usage { as_of: text(now), ..Usage::default() });
        note(usage, user, known);
    }
    for usage in all.values_mut().filter_map(|status| status.usage.as_mut()) {
        usage.users.sort_by_key(|user| (-user.gpu_seconds, user.credit_gpu_seconds));
        usage.users.truncate(MOST_USERS);
    }
    all
}

fn note(usage: &mut Usage, user: Option<&str>, known: Recollection) {
    let (used, credit) = (known.used_gpu_ms / SECOND_MS, known.credit_gpu_ms / SECOND_MS);
    match user {
        Some(name) => {
            let name = name.to_owned();
            usage.users.push(UserUse { name, gpu_seconds: used, credit_gpu_seconds: credit });
        }
        None => {
            (usage.gpu_seconds, usage.credit_gpu_seconds) = (used, credit);
            usage.budget = known.spent.map(|spent| BudgetUse {
                // Rounded up: a budget that is used up stays so for the next scheduler.
                used_gpu_seconds: (spent.used_gpu_ms + SECOND_MS - 1) / SECOND_MS,
                carried_gpu_seconds: spent.carried_gpu_ms / SECOND_MS,
                renews_at: text(spent.until),
            });
            usage.pledged = known
                .pledged
                .map(|(used, until)| PledgeUse { used_gpu_seconds: used / SECOND_MS, ends_at: text(until) });
        }
    }
}

/// Restores the queues' past usage in the core, from their status.
pub(super) fn recall<'a>(
    controller: &mut Controller,
    kept: impl Iterator<Item = (String, &'a Usage)>,
    now: Time,
) -> Result<(), Broken> {
    let mut known: BTreeMap<Time, BTreeMap<String, Recollection>> = BTreeMap::new();
    for (path, usage) in kept {
        let Some(of) = time(&usage.as_of) else { continue };
        let known = known.entry(of).or_default();
        for user in &usage.users {
            let recollection = recollection((user.gpu_seconds, user.credit_gpu_seconds));
            known.insert(seat(&path, &user.name), recollection);
        }
        let own = recollection((usage.gpu_seconds, usage.credit_gpu_seconds));
        let pledged = usage.pledged.as_ref().and_then(pledged);
        known.insert(path, Recollection { spent: usage.budget.as_ref().and_then(spent), pledged, ..own });
    }
    for (of, known) in known {
        if let Err(rejection) = controller.take(&Command::Recall(of, known, admin()), now)? {
            tracing::warn!("what queues used before is not known: {rejection}");
        }
    }
    Ok(())
}

fn recollection((used, credit): (i64, i64)) -> Recollection {
    Recollection { used_gpu_ms: ms(used.max(0)), credit_gpu_ms: ms(credit), ..Recollection::default() }
}

fn pledged(pledge: &PledgeUse) -> Option<(i64, Time)> {
    Some((ms(pledge.used_gpu_seconds), time(&pledge.ends_at)?))
}

fn spent(budget: &BudgetUse) -> Option<Spent> {
    let (used_gpu_ms, carried_gpu_ms) = (ms(budget.used_gpu_seconds), ms(budget.carried_gpu_seconds));
    Some(Spent { used_gpu_ms, carried_gpu_ms, until: time(&budget.renews_at)? })
}

fn ms(seconds: i64) -> i64 {
    seconds.saturating_mul(SECOND_MS)
}

fn text(at: Time) -> String {
    Timestamp::from_millisecond(at.0).unwrap_or_default().to_string()
}

fn time(text: &str) -> Option<Time> {
    Some(Time(text.parse::<Timestamp>().ok()?.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::event::{Event, Stamped};
    use divvy_core::id::{DeviceId, NodeId};
    use divvy_core::model::device::DeviceSpec;
    use divvy_core::model::queue;
    use divvy_core::state::State;

    const HOUR_S: i64 = 3600;

    fn controller() -> Controller {
        let mut state = State::default();
        let spec = DeviceSpec::default();
        let device = Event::DeviceSeen { device: DeviceId(1), node: NodeId(1), spec: spec.into() };
        state.apply(&Stamped { at: Time(1), event: device }).unwrap();
        let mut controller = Controller::open(state);
        let text = "queues: {lab: {}, lab/vision: {users: {}, budget: {gpu_hours: 10, every: day}, guarantee: {gpu_hours: 10, every: day}}}";
        let queues = queue::parse(text).unwrap().queues;
        controller.take(&Command::SetQueues(queues, admin()), Time(1)).unwrap().unwrap();
        controller
    }

    fn usage() -> Usage {
        let user = |name: &str, gpu_seconds, credit_gpu_seconds| UserUse {
            name: name.to_owned(),
            gpu_seconds,
            credit_gpu_seconds,
        };
        Usage {
            as_of: "1970-01-01T01:00:00Z".into(),
            gpu_seconds: 0,
            credit_gpu_seconds: 0,
            budget: Some(BudgetUse {
                used_gpu_seconds: 4 * HOUR_S,
                carried_gpu_seconds: -HOUR_S,
                renews_at: "1970-01-02T00:00:00Z".into(),
            }),
            pledged: Some(PledgeUse { used_gpu_seconds: HOUR_S, ends_at: "1970-01-02T00:00:00Z".into() }),
            users: vec![user("ana", 3 * HOUR_S, -60), user("ben", HOUR_S, 60)],
        }
    }

    #[test]
    fn what_was_kept_is_known_to_the_next_and_kept_by_it() {
        let mut controller = controller();
        let now = Time(HOUR_S * SECOND_MS);
        recall(&mut controller, [("lab/vision".to_owned(), &usage())].into_iter(), now).unwrap();
        let mut told = Told::default();
        let due = told.due(&controller, now);
        assert_eq!(due.len(), 1, "{due:?}");
        assert_eq!((due[0].0.as_str(), due[0].1.usage.as_ref()), ("lab/vision", Some(&usage())));
        // Nothing runs and nothing waits: nothing is written again.
        assert_eq!(told.due(&controller, now + Span::seconds(600)), []);
    }

    #[test]
    fn a_queue_with_queues_below_it_keeps_its_budget_beside_what_its_own_jobs_used() {
        let mut controller = controller();
        let text = "queues: {lab: {budget: {gpu_hours: 10, every: day}}, lab/vision: {}}";
        let queues = queue::parse(text).unwrap().queues;
        controller.take(&Command::SetQueues(queues, admin()), Time(1)).unwrap().unwrap();
        let now = Time(HOUR_S * SECOND_MS);
        let kept = Usage { gpu_seconds: 4 * HOUR_S, pledged: None, users: Vec::new(), ..usage() };
        recall(&mut controller, [("lab".to_owned(), &kept)].into_iter(), now).unwrap();
        let due = Told::default().due(&controller, now);
        let lab = due.iter().find(|(path, _)| path == "lab").and_then(|(_, status)| status.usage.as_ref());
        assert_eq!(lab, Some(&kept));
    }

    #[test]
    fn what_makes_no_sense_in_a_status_is_not_taken() {
        let mut controller = controller();
        let strange = Usage { as_of: "yesterday".into(), ..usage() };
        let far = Usage { as_of: "9999-12-30T22:00:00Z".into(), gpu_seconds: i64::MIN, ..usage() };
        let gone = [("lab".to_owned(), &strange), ("lab/vision".to_owned(), &far), ("gone".to_owned(), &far)];
        recall(&mut controller, gone.into_iter(), Time(5)).unwrap();
        let known = controller.state().recollections(Time(5));
        assert!(
            known.values().all(|known| known.used_gpu_ms >= 0) && !known.contains_key("gone"),
            "{known:?}"
        );
    }
}
