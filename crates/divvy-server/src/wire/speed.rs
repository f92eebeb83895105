//! `speed: {h100: 1, a100: 0.5}`: the ways in which a task may run, the fastest first.

use std::collections::BTreeMap;

use divvy_api::{JobFile, Problem, Scalar};
use divvy_core::model::ask::Alternative;

use super::incoming::bad;

/// Speeds are kept to a thousandth.
const MILLI: f64 = 1000.0;
/// No model is a million times as fast as another.
const MOST: f64 = 1e6;

/// One way on each model that the job names with its speed; the one way there is where it names none.
pub(super) fn ways(job: &JobFile, one: Alternative, prefix: &str) -> Result<Vec<Alternative>, Problem> {
    let Some(devices) = one.devices.as_ref().filter(|_| !job.speed.is_empty()) else { return Ok(vec![one]) };
    let read =
        |(model, speed): (&String, &Scalar)| Ok((divvy_gpu::catalogue::key(model), milli(model, speed)?));
    let mut speeds: BTreeMap<String, u32> = job.speed.iter().map(read).collect::<Result<_, Problem>>()?;
    let models = &devices.class.models;
    if let Some(unknown) = models.iter().find(|model| !speeds.contains_key(*model)) {
        let text = format!("{unknown} is asked for, and `speed` does not say how fast it is");
        return Err(
            bad(format!("{prefix}gpus"), text).with_fix("name it in `speed`, or ask for a number alone")
        );
    }
    speeds.retain(|model, _| models.is_empty() || models.contains(model));
    Ok(one.by_speed(&speeds))
}

fn milli(model: &str, speed: &Scalar) -> Result<u32, Problem> {
    let number = speed.as_str().parse::<f64>().ok().filter(|speed| *speed > 0.0 && *speed <= MOST);
    let what = || bad(format!("speed.{model}"), format!("{:?} is no speed: write 1 or 0.5", speed.as_str()));
    number.map(|speed| (speed * MILLI).round().max(1.0) as u32).ok_or_else(what)
}
