//! Which job is submitted when: sized to the pool, so that there is always slightly too much work.

use std::time::Duration;

use divvy_api::{Command, Gpu, GpuState, Gpus, JobFile, Scalar, StopFile};

use super::throwaway::ThrowAway;
use crate::failure::Failure;

/// The scenes that are still to come, soonest first.
pub(super) struct Script {
    scenes: Vec<Scene>,
    free: u32,
    gang: Option<String>,
    sweep: Option<String>,
}

/// A job, and when it is submitted.
struct Scene {
    at: Duration,
    team: &'static str,
    name: String,
    part: Part,
    seconds: f32,
}

/// What kind of job it is.
enum Part {
    /// One task with so many GPUs.
    Plain(u32),
    /// Four tasks with so many GPUs each, together or not at all.
    Gang(u32),
    /// Goes before everything else.
    Urgent(u32),
    /// Many members, at most so many at once.
    Array(u32),
    /// Starts when the gang has completed.
    AfterGang,
    /// Starts when the array has completed; needs no GPU.
    AfterSweep,
}

impl Script {
    /// Makes the script for the devices that are free.
    pub(super) fn for_pool(gpus: &[Gpu]) -> Self {
        let free = gpus.iter().filter(|gpu| gpu.state == GpuState::Free).count();
        let free = u32::try_from(free).unwrap_or(u32::MAX).min(8);
        let per_team = free.div_ceil(2);
        let mut scenes = Vec::new();
        let mut scene = |at_ms: u64, team, name: &str, part, seconds| {
            scenes.push(Scene { at: Duration::from_millis(at_ms), team, name: name.into(), part, seconds });
        };
        for number in 1..=per_team {
            scene(0, "vision", &format!("train-{number}"), Part::Plain(1), 2.0 + 0.4 * number as f32);
        }
        for number in 1..=free - per_team {
            scene(0, "speech", &format!("tune-{number}"), Part::Plain(1), 1.6 + 0.4 * number as f32);
        }
        scene(600, "speech", "gang", Part::Gang(u32::from(free >= 4)), 2.0);
        scene(1000, "vision", "sweep", Part::Array(2), 0.5);
        scene(1400, "speech", "evaluate", Part::AfterGang, 0.5);
        scene(1600, "vision", "report", Part::AfterSweep, 0.2);
        scene(2000, "vision", "urgent-fix", Part::Urgent(free.min(2)), 1.0);
        scenes.reverse();
        Self { scenes, free, gang: None, sweep: None }
    }

    /// The teams' queues. Their limits add up to more than the pool, as they should if not everyone always wants everything.
    pub(super) fn queues(&self) -> String {
        let limit = (self.free * 3).div_ceil(4).max(4.min(self.free)).max(1);
        format!(
            "queues:\n  vision: {{limit: {{any: {limit}}}, max_priority: urgent}}\n  speech: {{limit: {{any: {limit}}}}}\n"
        )
    }

    /// Tells the reader what is to come.
    pub(super) fn cast(&self) -> &'static str {
        "Two teams, vision and speech, fill it with short jobs. Then come a gang of four tasks that start together or\n\
         not at all, an array of six (two at a time), two jobs that depend on others, and an urgent one for which\n\
         others give way."
    }

    /// Whether everything has been submitted.
    pub(super) fn is_told(&self) -> bool {
        self.scenes.is_empty()
    }

    /// Submits what is due by now.
    pub(super) async fn submit_what_is_due(
        &mut self,
        stage: &mut ThrowAway,
        now: Duration,
    ) -> Result<(), Failure> {
        while let Some(scene) = self.scenes.pop_if(|scene| scene.at <= now) {
            let id = stage.submit(self.job(&scene)).await?;
            match scene.part {
                Part::Gang(_) => self.gang = Some(id),
                Part::Array(_) => self.sweep = Some(id),
                _ => {}
            }
        }
        Ok(())
    }

    fn job(&self, scene: &Scene) -> JobFile {
        let after = |id: &Option<String>| id.iter().map(|id| Scalar(format!("{id}:ok"))).collect::<Vec<_>>();
        let gpus = |count: u32| (count > 0).then(|| Gpus::from(count.to_string()));
        let mut job = JobFile {
            name: Some(scene.name.clone()),
            queue: Some(scene.team.into()),
            command: Some(Command::Argv(vec!["sleep".into(), scene.seconds.to_string()])),
            // Small enough for the smallest machine that runs the demo.
            cpus: Some("0.01".into()),
            memory: Some("16Mi".into()),
            time_limit: Some("30s".into()),
            stop: Some(StopFile { grace: Some("1s".into()), ..StopFile::default() }),
            ..JobFile::default()
        };
        match scene.part {
            Part::Plain(count) => job.gpus = gpus(count),
            Part::Gang(count) => (job.tasks, job.gpus) = (Some(4), gpus(count)),
            Part::Urgent(count) => (job.priority, job.gpus) = (Some("urgent".into()), gpus(count)),
            Part::Array(at_once) => {
                job.array = Some(Scalar(format!("0-5%{at_once}")));
                job.gpus = gpus(1.min(self.free));
            }
            Part::AfterGang => (job.after, job.gpus) = (after(&self.gang), gpus(1.min(self.free))),
            Part::AfterSweep => job.after = after(&self.sweep),
        }
        job
    }
}
