//! Seats: where jobs stand below a queue that is divided among its users; and below one that has other queues below it, so that its own
//! jobs and these have their parts beside each other. They follow from the queues and from who has submitted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::apply::Applied;
use super::class::class_of;
use super::{Job, State};
use crate::amount::Limits;
use crate::model::newer::Newer;
use crate::model::queue::{Queue, Users, seat, user_at};
use crate::time::Time;

/// How a queue with queues below it is divided that is not divided among its users: all of these stand in one place.
static TOGETHER: LazyLock<Users> = LazyLock::new(Users::default);
/// The name in the seat that they share.
const ALL: &str = "";

impl State {
    /// Whether any queue is divided among its users, or between its own jobs and queues below it.
    pub fn has_seats(&self) -> bool {
        let is_below = |path: &String| path.contains('/');
        self.queues.iter().any(|(path, queue)| !queue.users.is_unsaid() || is_below(path))
    }

    /// How a queue is divided among seats, if it is.
    pub(crate) fn seating(&self, queue: &str) -> Option<&Users> {
        let users = self.queues.get(queue)?.users.said();
        users.or_else(|| self.has_below(queue).then(|| &*TOGETHER))
    }

    /// Whether there are queues below a queue.
    fn has_below(&self, queue: &str) -> bool {
        let above = format!("{queue}/");
        self.queues.range(above.clone()..).next().is_some_and(|(path, _)| path.starts_with(&above))
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
            None => Some(&self.seating(user_at(path)?.0)?.limit),
        }
    }

    /// The seat of a user in a queue, if the queue is divided among its users; the one of all its users, if there are queues below it.
    pub fn seat_in(&self, queue: &str, user: &str) -> Newer<Arc<str>> {
        let user = if self.users_of(queue).is_some() { user } else { ALL };
        Newer(self.seating(queue).map(|_| seat(queue, user).into()))
    }

    /// Where the jobs of a queue stand whose users are not told apart; the path itself for a seat.
    pub(super) fn stand_of_own(&self, path: &str) -> String {
        let seat = self.users_of(path).is_none().then(|| self.seat_in(path, ALL));
        seat.and_then(|seat| seat.said().map(|seat| seat.to_string())).unwrap_or_else(|| path.to_owned())
    }

    /// What is charged by path: to queues, or to users in queues that are divided among them.
    pub(super) fn charges(&self, now: Time) -> BTreeMap<Cow<'_, str>, i128> {
        let mut charges: BTreeMap<Cow<str>, i128> = BTreeMap::new();
        for (queue, users) in self.charging().of_queues() {
            let told_apart = self.users_of(queue).is_some();
            let together = if told_apart { None } else { Some(self.stand_of_own(queue)) };
            for (user, account) in users {
                let path = match &together {
                    Some(stand) if stand == queue => Cow::Borrowed(queue),
                    Some(stand) => Cow::Owned(stand.clone()),
                    None => Cow::Owned(seat(queue, user)),
                };
                *charges.entry(path).or_default() += account.charged_at(now);
            }
        }
        charges
    }

    /// Puts other queues in force, with the seats that follow from them.
    pub(super) fn change_queues(&mut self, queues: &[Queue], at: Time) -> Applied {
        let (had_seats, kept_nodes) = (self.has_seats(), self.keeps_nodes());
        self.set_queues(queues.to_vec());
        let has_seats = had_seats || self.has_seats();
        if has_seats || kept_nodes || self.keeps_nodes() {
            self.seat_anew()?;
        }
        if has_seats {
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
        let seats = std::mem::take(&mut self.seats);
        let stays = |path: &String| {
            let seat = user_at(path).map(|(queue, user)| self.seat_in(queue, user));
            seat.is_some_and(|seat| seat.said().is_some_and(|seat| **seat == **path))
        };
        self.seats = seats.into_iter().filter(stays).collect();
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
