//! What is wrong with settings of the planner that can each be read.

use super::{Attained, Policy, Preempt};

/// What is wrong with the value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonsense {
    /// The setting's name, after those of the settings that it is in.
    pub key: &'static [&'static str],
    /// What is wrong, and what to write.
    pub what: String,
}

/// What is wrong with settings that are each well-formed, if anything. What is unsaid has to be at its default.
pub fn nonsense(policy: &Policy) -> Option<Nonsense> {
    wrong_levels(policy)
        .or_else(|| below_nothing(policy))
        .or_else(|| nothing(policy))
        .or_else(|| starves_for_nothing(policy))
}

/// What is wrong with the settings of a pool besides: what only simulations may set.
pub fn nonsense_in_a_pool(policy: &Policy) -> Option<Nonsense> {
    let ageless = || {
        let what = "with none no priority would count in the order: write 6048s, the default, or the more the less a wait is to count, as 365d";
        wrong(&["ageing"], what.to_owned())
    };
    nonsense(policy).or_else(|| (policy.ageing_ms_per_point == 0).then(ageless))
}

/// A mistake in the innermost of the named settings.
fn wrong(key: &'static [&'static str], what: String) -> Nonsense {
    let name = key.last().copied().unwrap_or_default();
    Nonsense { key, what: format!("{name}: {what}") }
}

fn wrong_levels(policy: &Policy) -> Option<Nonsense> {
    let Attained { levels_device_ms, foreseen, .. } = &policy.attained;
    let all: [(&'static [&str], &[i64]); 2] = [
        (&["attained", "levels"], levels_device_ms),
        (&["attained", "foreseen", "levels"], &foreseen.levels_device_ms),
    ];
    all.into_iter().find_map(|(key, levels)| match levels {
        [first, ..] if *first < 0 => Some(wrong(key, "they must not be below 0".to_owned())),
        _ if levels.windows(2).any(|pair| pair[0] >= pair[1]) => {
            Some(wrong(key, "they must rise: each ends later than the one before it".to_owned()))
        }
        _ => None,
    })
}

/// Lengths of time that may be nothing, but not less.
fn below_nothing(policy: &Policy) -> Option<Nonsense> {
    let Attained { head_start_ms, hold_ms, foreseen, .. } = &policy.attained;
    let unsaid_or = |said: Option<&i64>| said.copied().unwrap_or(0);
    let spans: [(&'static [&str], i64); 11] = [
        (&["ageing"], policy.ageing_ms_per_point),
        (&["broken_gang_grace"], policy.broken_gang_grace_ms),
        (&["half_life"], policy.half_life_ms),
        (&["min_runtime"], policy.min_runtime_ms),
        (&["collect_after"], policy.collect_after_ms),
        (&["attained", "head_start"], *head_start_ms),
        (&["attained", "hold"], *hold_ms),
        (&["attained", "foreseen", "hold"], foreseen.hold_ms),
        (&["starve_after"], unsaid_or(policy.starve_after_ms.said())),
        (&["cool_down"], unsaid_or(policy.cool_down_ms.said())),
        (&["quantum"], unsaid_or(policy.quantum_ms.said())),
    ];
    let (key, _) = spans.into_iter().find(|(_, ms)| *ms < 0)?;
    Some(wrong(key, "it must not be below 0".to_owned()))
}

/// Lengths of time that may not be nothing.
fn nothing(policy: &Policy) -> Option<Nonsense> {
    let spans: [(&'static [&str], Option<i64>, &str); 4] = [
        (&["step"], Some(policy.step_ms), "1s"),
        (&["catch_up"], Some(policy.catch_up_ms), "1h"),
        (&["quantum"], policy.quantum_ms.said().copied(), "1h"),
        (&["moves", "every"], policy.moves.said().map(|moves| moves.every_ms), "1h"),
    ];
    let is_nothing = |(_, ms, _): &(_, Option<i64>, _)| ms.is_some_and(|ms| ms <= 0);
    let (key, _, usual) = spans.into_iter().find(is_nothing)?;
    Some(wrong(key, format!("it must be above 0: write a time such as {usual}, the default")))
}

/// What is wrong with the settings for jobs that wait long, if anything.
fn starves_for_nothing(policy: &Policy) -> Option<Nonsense> {
    let after = policy.starve_after_ms.said().filter(|ms| **ms > 0);
    if after.is_some() && policy.preempt == Preempt::Off {
        let what = "it needs jobs that give way: preempt must not be off";
        return Some(wrong(&["starve_after"], what.to_owned()));
    }
    // Where it is unsaid, the default holds.
    let after = policy.clone().completed().starve_after()?;
    let longer = policy.quantum_ms.said().is_some_and(|quantum| *quantum > after.0);
    longer.then(|| {
        wrong(&["quantum"], format!("it must not be above starve_after, which is {}", after.written()))
    })
}
