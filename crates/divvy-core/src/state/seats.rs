//! Seats: where jobs stand below a queue that is divided among its users. They follow from the queues and from which users have submitted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::apply::Applied;
use super::class::class_of;
use super::{Job, State};
use crate::amount::Limits;
use crate::model::newer::Newer;
use crate::model::queue::{Queue, Users, seat, user_at};
use crate::time::Time;

impl State {
    /// Whether any queue is divided among its users.
    pub fn has_users(&self) -> bool {
        self.queues.values().any(|queue| !queue.users.is_unsaid())
    }

    /// How a queue is divided among its users, if it is.
    pub fn users_of(&self, queue: &str) -> Option<&Users> {
        self.queues.get(queue)?.users.said()
    }

    /// The seats of a queue's users.
    pub fn seats_of(&self, queue: &str) -> impl Iterator<Item = &str> {
        let first = seat(queue, "");
        let end = first.clone();
        let seats = self.seats.range(first..).map(String::as_str);
        seats.take_while(move |seat| seat.starts_with(&end))
    }

    /// Whether any queue, or any user of one, has a limit.
    pub(crate) fn has_limits(&self) -> bool {
        let of_users = |queue: &Queue| queue.users.said().is_some_and(|users| !users.limit.is_empty());
        self.queues.values().any(|queue| !queue.limit.is_empty() || of_users(queue))
    }

    /// The limits at a path: those of a queue together with the queues below it, or those of a user.
    pub fn limit_at(&self, path: &str) -> Option<&Limits> {
        match self.queues.get(path) {
            Some(queue) => Some(&queue.limit),
            None => Some(&self.users_of(user_at(path)?.0)?.limit),
        }
    }

    /// The seat of a user in a queue, if the queue is divided among its users.
    pub fn seat_in(&self, queue: &str, user: &str) -> Newer<Arc<str>> {
        Newer(self.users_of(queue).map(|_| seat(queue, user).into()))
    }

    /// What is charged by path: to queues, or to users in queues that are divided among them.
    pub(super) fn charges(&self, now: Time) -> BTreeMap<Cow<'_, str>, i128> {
        let mut charges: BTreeMap<Cow<str>, i128> = BTreeMap::new();
        for (queue, user, account) in self.charging().accounts() {
            let path = match self.users_of(queue) {
                Some(_) => Cow::Owned(seat(queue, user)),
                None => Cow::Borrowed(queue),
            };
            *charges.entry(path).or_default() += account.charged_at(now);
        }
        charges
    }

    /// Puts other queues in force, with the seats that follow from them.
    pub(super) fn change_queues(&mut self, queues: &[Queue], at: Time) -> Applied {
        let (had_users, kept_nodes) = (self.has_users(), self.keeps_nodes());
        self.set_queues(queues.to_vec());
        let has_users = had_users || self.has_users();
        if has_users || kept_nodes || self.keeps_nodes() {
            self.seat_anew()?;
        }
        if has_users {
            self.rebase_past(at);
        }
        self.review_budgets(at);
        self.review_pledges(at);
        self.review_past(at);
        Ok(())
    }

    /// Whether jobs can stand at a path: whether it is a queue or a seat.
    pub(super) fn is_stand(&self, path: &str) -> bool {
        self.queues.contains_key(path) || self.seats.contains(path)
    }

    /// Seats all jobs by the queues that are in force now, and keeps them to the nodes that these name.
    fn seat_anew(&mut self) -> Applied {
        let queues = &self.queues;
        let stays = |path: &String| {
            let queue = user_at(path).and_then(|(queue, _)| queues.get(queue));
            queue.is_some_and(|queue| !queue.users.is_unsaid())
        };
        let kept = std::mem::take(&mut self.seats).into_iter().filter(stays).collect();
        self.seats = kept;
        let stand = |job: &Job| {
            let (queue, user) = (&job.spec.queue, &job.owner.name);
            let now = (self.seat_in(queue, user), self.kept_to(queue));
            (job.number, now, (job.spec.seat.clone(), job.spec.kept_to.clone()))
        };
        let jobs: Vec<_> = self.jobs.values().map(stand).collect();
        let heeded = self.heeded.clone();
        for (number, now, before) in jobs {
            self.seats.extend(now.0.said().map(|seat| seat.to_string()));
            if now != before {
                self.change_job(number, |job| {
                    let spec = Arc::make_mut(&mut job.spec);
                    (spec.seat, spec.kept_to) = now;
                    job.class = class_of(&job.spec, &heeded);
                })?;
            }
        }
        Ok(())
    }
}
