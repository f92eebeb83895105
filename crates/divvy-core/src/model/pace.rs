//! How fast a job runs on what it has, relative to how fast it could run, by the speeds of its ask's alternatives.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::allocation::Placement;
use super::ask::{Alternative, Ask};
use super::gang::{Group, Role};
use super::job::JobSpec;

/// Full speed.
pub const FULL_PERCENT: u32 = 100;

impl Ask {
    /// Whether some alternative is faster than another.
    pub fn has_speeds(&self) -> bool {
        let mut speeds = self.alternatives.iter().map(|alternative| alternative.speed_percent);
        let first = speeds.next();
        speeds.any(|speed| Some(speed) != first)
    }

    /// How fast a task runs by one of the alternatives, in percent of the fastest.
    pub fn pace_percent(&self, alternative: usize) -> u32 {
        let speeds = self.alternatives.iter().map(|alternative| u64::from(alternative.speed_percent));
        let (own, best) = (speeds.clone().nth(alternative), speeds.max().unwrap_or(0).max(1));
        own.map_or(FULL_PERCENT, |own| (own * u64::from(FULL_PERCENT) / best) as u32)
    }
}

impl Alternative {
    /// The same alternative for each of these models, the fastest first, equals by name. Speeds may be in any unit.
    pub fn by_speed(&self, speeds: &BTreeMap<String, u32>) -> Vec<Alternative> {
        let mut of_any = self.clone();
        of_any.devices.iter_mut().for_each(|ask| ask.class.models.clear());
        by_speed(&[of_any], speeds)
    }
}

/// These ways for each of the models that they name, or for all models if they name none: the fastest first; among equals the one named
/// first, then by name. Speeds may be in any unit.
pub fn by_speed(ways: &[Alternative], speeds: &BTreeMap<String, u32>) -> Vec<Alternative> {
    let mut all: Vec<(&Alternative, &String, u32)> = Vec::new();
    for way in ways {
        let named = way.devices.as_ref().map_or(&[][..], |ask| &ask.class.models);
        let takes = |model: &String| named.is_empty() || named.contains(model);
        let known = speeds.iter().filter(|(model, _)| takes(model));
        all.extend(known.map(|(model, speed)| (way, model, *speed)));
    }
    all.sort_by_key(|(_, _, speed)| Reverse(*speed));
    let best = all.first().map_or(1, |(_, _, best)| u64::from(*best).max(1));
    let on = |(way, model, speed): (&Alternative, &String, u32)| {
        let mut on = way.clone();
        on.devices.iter_mut().for_each(|ask| ask.class.models = vec![model.clone()]);
        on.speed_percent = ((u64::from(speed) * u64::from(FULL_PERCENT) / best) as u32).max(1);
        on
    };
    all.into_iter().map(on).collect()
}

impl Ask {
    /// The relative speed of each model, if the alternatives differ in nothing else.
    pub fn speeds(&self) -> Option<BTreeMap<String, u32>> {
        let speed = |it: &Alternative| match it.devices.as_ref()?.class.models.as_slice() {
            [model] => Some((model.clone(), it.speed_percent)),
            _ => None,
        };
        let speeds: BTreeMap<String, u32> = self.alternatives.iter().map(speed).collect::<Option<_>>()?;
        let anew = self.alternatives.first()?.by_speed(&speeds);
        (speeds.len() > 1 && anew == self.alternatives).then_some(speeds)
    }
}

impl JobSpec {
    /// Whether it runs faster on some devices than on others, as far as it says.
    pub fn has_speeds(&self) -> bool {
        has_speeds(&self.gang)
    }

    /// How fast it runs on what its tasks have, in percent of how fast it could; its slowest task determines this.
    pub fn pace_percent(&self, placements: &[Placement]) -> u32 {
        let task = |placement: &Placement| {
            let role: Option<(&Role, u32)> = self.gang.role_of(placement.rank);
            role.map(|(role, _)| role.ask.pace_percent(placement.alternative as usize))
        };
        placements.iter().filter_map(task).min().unwrap_or(FULL_PERCENT)
    }
}

fn has_speeds(group: &Group) -> bool {
    match group {
        Group::Role(role) => role.ask.has_speeds(),
        Group::Branch(branch) => branch.groups.iter().any(has_speeds),
    }
}
