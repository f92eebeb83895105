//! `speed: {h100: 1, a100: 0.5}`: the ways in which a task may run, the fastest first.

use std::collections::BTreeMap;

use divvy_api::{JobFile, Problem, Scalar};
use divvy_core::model::ask::Alternative;
use divvy_core::model::gang::Role;
use divvy_core::model::pace::by_speed;

use super::incoming::bad;

/// Speeds are kept in thousandths.
const MILLI: f64 = 1000.0;
/// The greatest speed ratio: no model is a million times as fast as another.
const MOST: f64 = 1e6;

/// Returns a way on each model for which the job gives a speed, the fastest first; the given ways where it gives none.
pub(super) fn ways(job: &JobFile, ways: Vec<Alternative>, prefix: &str) -> Result<Vec<Alternative>, Problem> {
    let mut asks = ways.iter().filter_map(|way| way.devices.as_ref()).peekable();
    if job.speed.is_empty() || asks.peek().is_none() {
        return Ok(ways);
    }
    let read =
        |(model, speed): (&String, &Scalar)| Ok((divvy_gpu::catalogue::key(model), milli(model, speed)?));
    let speeds: BTreeMap<String, u32> = job.speed.iter().map(read).collect::<Result<_, Problem>>()?;
    let mut models = asks.flat_map(|ask| &ask.class.models);
    if let Some(unknown) = models.find(|model| !speeds.contains_key(*model)) {
        let text = format!("{unknown} is asked for, and `speed` does not say how fast it is");
        return Err(
            bad(format!("{prefix}gpus"), text).with_fix("name it in `speed`, or ask for a number alone")
        );
    }
    Ok(by_speed(&ways, &speeds))
}

/// Refuses speeds where no task has a GPU.
pub(super) fn refuse_without_gpus(job: &JobFile, roles: &[Role]) -> Result<(), Problem> {
    let has_gpus = |role: &Role| role.ask.alternatives.iter().any(|one| one.devices.is_some());
    if job.speed.is_empty() || roles.iter().any(has_gpus) {
        return Ok(());
    }
    let what = "it says how fast the job is on each model of GPU, and no GPU is asked for";
    Err(bad("speed", what).with_fix("say how many: -g 1"))
}

fn milli(model: &str, speed: &Scalar) -> Result<u32, Problem> {
    let number = speed.as_str().parse::<f64>().ok().filter(|speed| *speed > 0.0 && *speed <= MOST);
    let what = || bad(format!("speed.{model}"), format!("{:?} is no speed: write 1 or 0.5", speed.as_str()));
    number.map(|speed| (speed * MILLI).round().max(1.0) as u32).ok_or_else(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::model::ask::{DeviceAsk, DeviceClass, DrawAsk};
    use proptest::prelude::*;

    fn read(speeds: &[(&str, &str)], models: &[&str]) -> Result<Vec<(String, u32)>, Problem> {
        let named = |(model, speed): &(&str, &str)| ((*model).to_owned(), Scalar::from(*speed));
        let job = JobFile { speed: speeds.iter().map(named).collect(), ..JobFile::default() };
        let class =
            DeviceClass { models: models.iter().map(ToString::to_string).collect(), ..Default::default() };
        let devices = Some(DeviceAsk::of(class, 2, DrawAsk::Whole));
        let ways = ways(&job, vec![Alternative { devices, speed_percent: 100, ..Default::default() }], "")?;
        let way = |way: &Alternative| {
            (way.devices.clone().unwrap_or_else(|| unreachable!()).class, way.speed_percent)
        };
        Ok(ways.iter().map(way).map(|(class, speed)| (class.models.join("+"), speed)).collect())
    }

    #[test]
    fn each_model_is_a_way_of_its_own_the_fastest_first() {
        let ways = read(&[("a100", "0.5"), ("H100", "1"), ("l4", "0.3333")], &[]).unwrap();
        assert_eq!(ways, [("h100".to_owned(), 100), ("a100".into(), 50), ("l4".into(), 33)]);
        assert_eq!(read(&[("a100", "120"), ("h100", "240")], &["a100"]).unwrap(), [("a100".to_owned(), 100)]);
        assert_eq!(read(&[], &["a100", "h100"]).unwrap(), [("a100+h100".to_owned(), 100)]);
    }

    #[test]
    fn what_is_no_speed_is_refused_by_name() {
        for wrong in ["0", "-1", "fast", "NaN", "inf", ""] {
            assert_eq!(
                read(&[("a100", wrong)], &[]).unwrap_err().field.as_deref(),
                Some("speed.a100"),
                "{wrong}"
            );
        }
        assert_eq!(read(&[("a100", "1")], &["h100"]).unwrap_err().field.as_deref(), Some("gpus"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_of_speeds_panic(text in ".{0,20}") {
            let _ = read(&[("a100", &text), ("h100", "1")], &[]);
        }
    }
}
