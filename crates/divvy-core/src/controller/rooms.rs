//! The room that was kept for each job, as it is told to people: from when on, and from when it was to be before. It is in no log:
//! a restarted daemon has not said anything yet.

use std::collections::BTreeMap;

use crate::id::JobId;
use crate::plan::{Keeps, Room};
use crate::state::State;
use crate::time::Time;

/// So many jobs are remembered, those that were noted last: room is kept for a few at a time.
const MOST_JOBS: usize = 64;

/// What was kept for jobs that still wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    of: BTreeMap<JobId, Noted>,
}

/// What is kept for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// As it was seen last.
    pub room: Room,
    /// When that was.
    pub at: Time,
    /// How it changed the last time, if it did.
    pub moved: Option<Shifted>,
}

/// Room that was to be kept from another moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shifted {
    /// From when on it was kept before.
    pub from: Time,
    /// When it was seen that it is no longer.
    pub at: Time,
    /// The job that runs on beyond the end that was reckoned with, if that is why.
    pub outrun_by: Option<JobId>,
}

impl Rooms {
    /// What was noted of a job.
    pub fn of(&self, job: JobId) -> Option<&Noted> {
        self.of.get(&job)
    }

    /// Takes in what a cycle keeps.
    pub(super) fn note(&mut self, state: &State, rooms: &[Room], now: Time) {
        if rooms.is_empty() {
            return;
        }
        self.of.retain(|job, _| state.run(*job).is_some_and(|run| run.waits()));
        for room in rooms {
            let noted = noted(self.of(room.job), state, *room, now);
            self.of.insert(room.job, noted);
        }
        while self.of.len() > MOST_JOBS {
            let oldest = self.of.iter().min_by_key(|(job, noted)| (noted.at, **job)).map(|(job, _)| *job);
            oldest.map(|job| self.of.remove(&job));
        }
    }
}

/// What is to be said of a room, given what was said of it before.
pub(crate) fn noted(before: Option<&Noted>, state: &State, room: Room, now: Time) -> Noted {
    let moved = before.and_then(|before| match before.room.keeps {
        Keeps::From(from) if room.keeps != before.room.keeps => {
            let runs = |job: &JobId| now >= from && state.run(*job).is_some_and(|run| run.is_active());
            Some(Shifted { from, at: now, outrun_by: before.room.awaits.filter(runs) })
        }
        _ => before.moved,
    });
    Noted { room, at: now, moved }
}
