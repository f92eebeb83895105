//! The text in queues.yaml for amounts by resource.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::Pledge;
use super::budget_text;
use super::text::{BadQueues, Scalar};
use crate::amount::{Amount, Limits, MemorySize, NotMemorySize, Resource, is_cut_to_nothing, scaled};

/// `8`, or `{h100: 4, memory: 64Gi}`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum LimitText {
    All(Scalar),
    Each(BTreeMap<String, Scalar>),
}

/// Reads a guarantee of GPUs, of GPU-hours in a period, or of both.
pub(super) fn guaranteed(mut text: Spanned<LimitText>) -> Result<(Limits, Option<Pledge>), BadQueues> {
    let place = (text.referenced.line(), text.referenced.column());
    let wrong = |what: &str| BadQueues { line: place.0, column: place.1, what: format!("guarantee: {what}") };
    let (mut hours, mut every) = (None, None);
    if let LimitText::Each(pairs) = &mut text.value {
        (hours, every) = (pairs.remove("gpu_hours"), pairs.remove("every"));
    }
    let pledge = match (hours, every) {
        (None, None) => None,
        (Some(hours), Some(every)) => Some(Pledge {
            milli_gpu_hours: budget_text::milli_hours(&hours.0).ok_or_else(|| {
                wrong(&format!("{:?} is no number of GPU-hours: write 2000 or 0.5", hours.0))
            })?,
            every: budget_text::period_of(&every.0).map_err(|what| wrong(&what))?,
        }),
        _ => return Err(wrong("gpu_hours and every go together, as in {gpu_hours: 1500, every: week}")),
    };
    Ok((limits("guarantee", text)?, pledge))
}

/// Reads amounts by resource. `what` is their key.
pub(super) fn limits(what: &str, text: Spanned<LimitText>) -> Result<Limits, BadQueues> {
    let place = (text.referenced.line(), text.referenced.column());
    let wrong = |what| BadQueues { line: place.0, column: place.1, what };
    let pairs = match text.value {
        LimitText::All(amount) => BTreeMap::from([("any".to_owned(), amount)]),
        LimitText::Each(pairs) => pairs,
    };
    let mut limits = Limits::new();
    for (name, amount) in pairs {
        let resource = named(&name).map_err(|meant| {
            wrong(format!("{what} names {name:?}, which is no resource: did you mean {meant}?"))
        })?;
        let amount =
            read_amount(&resource, &amount.0).map_err(|error| wrong(format!("{what} of {name}: {error}")))?;
        if limits.insert(resource.clone(), amount).is_some() {
            return Err(wrong(format!("{what} names {resource} twice: capitals make no difference")));
        }
    }
    Ok(limits)
}

/// Reads a resource's name as flags take it; models may be in capitals. The error is the right name for a word often used instead.
pub(super) fn named(name: &str) -> Result<Resource, &'static str> {
    match (Resource::from(name), name.to_ascii_lowercase().as_str()) {
        (Resource::Model(_), "gpu" | "gpus" | "device" | "devices" | "all") => Err("any"),
        (Resource::Model(_), "mem" | "ram" | "memory") => Err("memory"),
        (Resource::Model(_), "cpus" | "core" | "cores") => Err("cpu"),
        (Resource::Model(_), "disk") => Err("storage"),
        (Resource::Model(_), model) => Ok(Resource::Model(model.to_owned())),
        (other, _) => Ok(other),
    }
}

/// What is wrong with a text that should have been an amount of a resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAmount {
    /// It cannot be read.
    #[error("{0:?} is not an amount: write {1}")]
    Unreadable(String, &'static str),
    /// It would be a few bytes.
    #[error(transparent)]
    FewBytes(NotMemorySize),
    /// It is more than nothing, and less than what is counted.
    #[error("{0:?} is less than the least that is counted: write 0, or {1} or more")]
    TooLittle(String, &'static str),
}

fn example(resource: &Resource) -> &'static str {
    match resource {
        Resource::Memory | Resource::Storage => "512Gi, or unlimited",
        Resource::Cpu => "64 or 0.5, or unlimited",
        _ => "8, or unlimited",
    }
}

/// Reads one amount: devices and cores whole or decimal, memory in bytes with their unit.
pub fn read_amount(resource: &Resource, text: &str) -> Result<Amount, NotAmount> {
    if text == "unlimited" {
        return Ok(Amount::Unlimited);
    }
    let unreadable = || NotAmount::Unreadable(text.to_owned(), example(resource));
    let (finite, least) = match resource {
        Resource::Memory | Resource::Storage => match text.parse::<MemorySize>() {
            Ok(MemorySize(bytes)) => (Some(bytes), "1Ki"),
            Err(error @ NotMemorySize::NoUnit(_)) => return Err(NotAmount::FewBytes(error)),
            Err(NotMemorySize::NotBytes(_)) => (None, ""),
        },
        Resource::Pods => (scaled(text, 1), "1"),
        _ => (scaled(text, 1000), "0.001"),
    };
    let finite = finite.ok_or_else(unreadable)?;
    match is_cut_to_nothing(text, finite) {
        true => Err(NotAmount::TooLittle(text.to_owned(), least)),
        false => Ok(Amount::Finite(finite)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::queue::parse;

    fn limit(text: &str) -> Result<Limits, String> {
        let read = parse(&format!("queues:\n  a: {{limit: {text}}}\n"));
        read.map(|mut read| read.queues.remove(0).limit).map_err(|bad| bad.what)
    }

    #[test]
    fn memory_needs_its_unit() {
        for text in ["{memory: 64}", "{memory: 0.5}", "{storage: 1000}"] {
            let bad = limit(text).unwrap_err();
            assert!(bad.contains("has no unit: write 16G"), "{text}: {bad}");
        }
        let of = |text: &str| limit(&format!("{{memory: {text}}}")).unwrap()[&Resource::Memory];
        assert_eq!(["0", "64000000000", "64Gi", "65B"].map(of), {
            [0, 64_000_000_000, 64 << 30, 65].map(Amount::Finite)
        });
    }

    #[test]
    fn what_is_less_than_is_counted_is_not_taken_for_nothing() {
        for text in ["0.0001", "{cpu: 0.0001}", "{pods: 0.5}", "{memory: 0.0001Ki}"] {
            let bad = limit(text).unwrap_err();
            assert!(bad.contains("is less than the least that is counted: write 0, or"), "{text}: {bad}");
        }
        assert_eq!(limit("0.001").unwrap()[&Resource::Any], Amount::Finite(1));
        assert_eq!(limit("0.000").unwrap()[&Resource::Any], Amount::Finite(0));
        for text in ["guarantee: {gpu_hours: 0.0001, every: week}", "budget: {gpu_hours: 0.0001, every: day}"]
        {
            let bad = parse(&format!("queues:\n  a: {{{text}}}\n")).unwrap_err();
            assert!(bad.what.contains("is no number of GPU-hours"), "{text}: {bad}");
        }
    }

    #[test]
    fn a_model_is_named_once_in_capitals_or_not() {
        let bad = limit("{H100: 2, h100: 3}").unwrap_err();
        assert_eq!(bad, "limit names h100 twice: capitals make no difference");
    }
}
