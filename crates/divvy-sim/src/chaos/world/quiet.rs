//! The end of a life: the faults stop, and everything that can run has to.

use std::collections::BTreeSet;

use divvy_core::decide::Command;
use divvy_core::model::job::JobSpec;

use super::*;

/// How many of the last starts are looked at where the pool does not come to rest.
const LAST_STARTS: usize = 100;

impl World {
    /// Ends the faults: everything is whole again, what was held is released, and all takes its course.
    pub(super) fn be_quiet(&mut self) -> Done {
        (self.crash, self.disk_full) = (None, false);
        self.engine.heal_all();
        // Whatever was lost on the way is reported again.
        self.restart()?;
        self.turns(Vec::new())?;
        let state = self.controller.state();
        let mut commands = vec![Command::SetDrain(false, root())];
        commands.extend(calendar::all_back(state, &root()));
        commands.extend(state.jobs.values().flat_map(held).map(|job| Command::Release(job, root())));
        self.turns(commands)?;
        for _ in 0..MOST_QUIET_TURNS {
            let Some(due) = self.next_due() else { return Ok(()) };
            self.pass_to(due);
            self.turns(Vec::new())?;
        }
        let busy = self.who_starts_on_and_on();
        Err(broken(
            "rest",
            format!("the pool does not come to rest after the faults: jobs {busy} go on starting"),
        ))
    }

    /// The jobs that started last, each once.
    fn who_starts_on_and_on(&self) -> String {
        let placed = self.log.iter().rev().filter_map(|stamped| match &stamped.event {
            Event::Placed { job, .. } => Some(*job),
            _ => None,
        });
        let jobs: BTreeSet<JobId> = placed.take(LAST_STARTS).collect();
        jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Checks that what is left could not run in the empty pool within its queue's limits, or waits for such a job.
    pub(super) fn all_that_fits_has_run(&mut self) -> Done {
        let state = self.controller.state();
        if let Some(device) =
            state.devices.values().find(|device| device.health != Health::Ok || device.occupant.is_some())
        {
            return Err(broken("liveness", format!("device {} does not heal", device.spec.uuid)));
        }
        let live = self.engine.live();
        if let Some((id, held)) = state.allocations.iter().next() {
            let runs = if live.contains(id) { "runs" } else { "does not run" };
            return Err(broken(
                "liveness",
                format!("allocation {id} of job {} is never over; its task {runs}", held.job),
            ));
        }
        if let Some(id) = live.first() {
            return Err(broken("L5", format!("allocation {id} runs, and the pool knows nothing of it")));
        }
        let waiting: Vec<_> = state
            .jobs
            .values()
            .filter(|job| job.own_blockers(state, self.now).is_empty())
            .map(|job| (job.id(), job.spec.clone(), state.verdicts.get(&job.class) == Some(&Reason::InLine)))
            .collect();
        // In a strict order, a job that never fits keeps back all behind it in its line.
        let mut blocked: BTreeSet<String> = BTreeSet::new();
        let mut fits = Vec::new();
        for (id, spec, in_line) in waiting {
            match self.controller.dry_run(&spec) {
                Ok(_) => fits.push((id, spec, in_line)),
                Err(_) => drop(blocked.insert(self.line_of(&spec).to_owned())),
            }
        }
        let stuck =
            fits.iter().find(|(_, spec, in_line)| !(*in_line && blocked.contains(self.line_of(spec))));
        stuck.map_or(Ok(()), |(id, ..)| {
            let reason = self.reason(*id);
            Err(broken("liveness", format!("job {id} fits the empty pool and waits for ever: {reason}")))
        })
    }

    /// The line that a job stands in: its queue's, or the one line for all where nothing is divided.
    fn line_of<'a>(&self, spec: &'a JobSpec) -> &'a str {
        if self.controller.state().policy.divides() { spec.stand() } else { "" }
    }

    fn reason(&self, id: JobId) -> String {
        let state = self.controller.state();
        let explained = divvy_core::explain::explain(state, self.controller.snapshot(), id);
        let verdict = state.jobs.get(&id.number).and_then(|job| state.verdicts.get(&job.class));
        format!("verdict {verdict:?}, blockers {:?}", explained.map(|explained| explained.blockers))
    }
}

/// The held runs of a job.
fn held(job: &divvy_core::state::Job) -> Vec<JobId> {
    match &job.runs {
        Runs::Single(run) => (run.state == JobState::Held).then(|| job.id()).into_iter().collect(),
        Runs::Array(array) => {
            let touched = array.touched.iter().filter(|(_, run)| run.state == JobState::Held);
            let members = touched.map(|(member, _)| JobId::member(job.number, *member));
            array.held.is_some().then(|| job.id()).into_iter().chain(members).collect()
        }
    }
}
