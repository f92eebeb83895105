//! What a scenario prints.

use std::fmt::Write as _;

use super::words::Words;
use super::{Done, Scenario};
use crate::controller::{Noted, Shifted};
use crate::decide::Rejection;
use crate::event::Event;
use crate::explain;
use crate::id::{DeviceId, JobId, NodeId};
use crate::model::allocation::Placement;
use crate::model::device::Draw;
use crate::model::job::Cause;
use crate::plan::Keeps;
use crate::time::Span;

impl Scenario {
    /// The name of a job (`j1`, or `j1_3` for a member), as its line had it.
    pub fn name_of(&self, id: JobId) -> String {
        let name = self.names.iter().find(|(_, number)| **number == id.number).map_or("?", |(name, _)| name);
        id.member.map_or(name.to_owned(), |member| format!("{name}_{member}"))
    }

    /// A refusal, with the name of the job where it has its number.
    pub fn in_words(&self, rejection: &Rejection) -> String {
        let text = rejection.to_string();
        let Some(job) = rejection.job() else { return text };
        text.replacen(&format!("job {job}"), &format!("job {}", self.name_of(job)), 1)
    }

    /// The devices of each task, or the node of one that has none.
    pub fn places(&self, placements: &[Placement]) -> String {
        let device = |(id, _): &(DeviceId, Draw)| {
            self.state().devices.get(id).map_or(String::new(), |device| device.spec.uuid.clone())
        };
        let node = |id: NodeId| self.state().nodes.get(&id).map(|node| node.spec.name.clone());
        let task = |placement: &Placement| match placement.devices.is_empty() {
            true => node(placement.node).unwrap_or_default(),
            false => placement.devices.iter().map(device).collect::<Vec<_>>().join("+"),
        };
        placements.iter().map(task).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn print(&mut self, event: &Event) {
        let line = match event {
            Event::Placed { job, placements, .. } => {
                format!("place {} {}", self.name_of(*job), self.places(placements))
            }
            Event::Grown { job, placements } => {
                format!("grow {} {}", self.name_of(*job), self.places(placements))
            }
            Event::Promised(promise) if promise.grows => {
                format!("promise {} to grow {}", self.name_of(promise.job), self.places(&promise.placements))
            }
            Event::Promised(promise) => {
                format!("promise {} {}", self.name_of(promise.job), self.places(&promise.placements))
            }
            Event::Stopping { job, cause, by, .. } => {
                format!("stop {} {cause:?}{}", self.name_of(*job), self.taker(*cause, by.as_deref()))
            }
            Event::Shrinking { job, allocations, cause, by } => {
                let held = allocations.iter().filter_map(|id| self.state().allocations.get(id));
                let held: Vec<Placement> = held.map(|held| held.placement.clone()).collect();
                let taker = self.taker(*cause, by.as_deref());
                // What is over holds nothing any more.
                let by = if held.is_empty() { "a task".to_owned() } else { self.places(&held) };
                format!("shrink {} by {by} {cause:?}{taker}", self.name_of(*job))
            }
            Event::Overdue { allocation } => {
                let held = self.state().allocations.get(allocation);
                let task = held.map(|held| format!("{}/{}", self.name_of(held.job), held.placement.rank));
                format!("overdue {}", task.unwrap_or_default())
            }
            Event::ReservationBegan { id } => format!("reservation {id} begins"),
            Event::ReservationEnded { id, .. } => format!("reservation {id} is over"),
            Event::Dropped { job, end, .. } => format!("drop {} {:?}", self.name_of(*job), end.cause),
            Event::Relieved { job } => format!("first {}", self.name_of(*job)),
            Event::Judged { classes } => {
                let reasons: Vec<String> = classes
                    .iter()
                    .filter_map(|(_, reason)| reason.as_ref())
                    .map(|reason| format!("wait {}: {reason}", reason.code()))
                    .collect();
                reasons.join("\n")
            }
            _ => return,
        };
        if !line.is_empty() {
            self.say(&line);
        }
    }

    /// ` by j1`, where a job gives way to another one.
    fn taker(&self, cause: Cause, by: Option<&str>) -> String {
        let taker = by.and_then(|by| by.parse().ok()).map(|by| self.name_of(by));
        let taker = taker.filter(|_| cause.takes() || matches!(cause, Cause::Moved | Cause::Order));
        taker.map(|taker| format!(" by {taker}")).unwrap_or_default()
    }

    pub(super) fn say(&mut self, line: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "{line}");
    }

    pub(super) fn explain(&mut self, words: &Words) -> Done {
        words.only(2, "", "")?;
        let id = self.job(words.at(1, "the job")?)?;
        let explained = explain::explain(self.controller.state(), self.controller.snapshot(), id)
            .ok_or("the job is not there any more")?;
        self.say(explained.verdict.name());
        if let Some(ahead) = explained.ahead {
            let next = self.name_of(ahead.next);
            self.say(&format!("  behind {} of its array; the next is {next}", ahead.members));
        }
        for blocker in explained.blockers {
            self.say(&format!("  {} {blocker} | {}", blocker.code(), blocker.fix()));
        }
        let steps: Vec<String> = explained
            .funnel
            .0
            .iter()
            .map(|(step, devices, _)| format!("{devices} {}", step.name()))
            .collect();
        self.say(&format!("  {}", steps.join(" > ")));
        let (state, noted) = (self.controller.state(), self.controller.rooms().of(id));
        if let Some(line) =
            explain::room(state, self.controller.snapshot(), id, noted).and_then(|it| self.room(&it))
        {
            self.say(&format!("  {line}"));
        }
        Ok(())
    }

    /// `room from 2h, not 1h: j1 runs on`
    fn room(&self, noted: &Noted) -> Option<String> {
        let text = match noted.room.keeps {
            Keeps::From(from) => format!("room from {}", Span(from.0)),
            Keeps::AsItComes => "room as it becomes free".to_owned(),
            Keeps::Nothing => "no room is foretold".to_owned(),
        };
        let Some(Shifted { from, outrun_by, .. }) = noted.moved else {
            return (noted.room.keeps != Keeps::Nothing).then_some(text);
        };
        let why = outrun_by.map(|job| format!(": {} runs on", self.name_of(job))).unwrap_or_default();
        Some(format!("{text}, not from {}{why}", Span(from.0)))
    }
}
