//! The source of devices that the user chose: `--gpus nvml|none|pretend:8xH100,4xA100-40GB`.

use std::{fmt, str::FromStr};

use crate::catalogue;

/// The most devices that may be pretended: sixteen times the largest single machine, and still quick to list.
pub const MAX_PRETENDED: u32 = 1024;
/// The most devices that a set of bridges joins: more cards than bridges ever joined.
const MOST_BRIDGED: u32 = 8;

/// Where devices shall come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Choice {
    /// NVML where it is installed and its driver loaded, otherwise no devices.
    #[default]
    Auto,
    /// No devices: CPU tasks only.
    None,
    /// NVML; an error if it is not available.
    Nvml,
    /// Devices on paper.
    Pretend(Vec<PretendedGroup>),
}

/// Some devices of one kind, on paper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PretendedGroup {
    /// How many.
    pub count: u32,
    /// The catalogue's key, or a key of the user's own if a size is given.
    pub model: String,
    /// The nominal size in GB; `None` means the model's most common one.
    pub memory_gb: Option<u32>,
    /// How many devices each set of bridges joins; `None` means as the model's boards join them.
    pub bridged: Option<u32>,
}

/// What is wrong with a `--gpus` value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChoiceError {
    /// The word before the colon is unknown.
    #[error("--gpus {given}: no such source; use auto, nvml, none or pretend:8xH100")]
    UnknownSource {
        /// What was given, printable.
        given: String,
    },
    /// An item of a pretended list can't be read.
    #[error(
        "--gpus pretend: can't read {item:?}: {problem}; write [COUNTx]MODEL[-SIZEGB][/JOINED], as 8xH100, 4xA100-40GB or 4xA40/2"
    )]
    BadItem {
        /// The item, printable.
        item: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The catalogue has no such model.
    #[error("--gpus pretend: no model {model:?} is known{}; or give it a size, as {model}-24GB", .nearest.map(|key| format!("; did you mean {key}?")).unwrap_or_default())]
    UnknownModel {
        /// The model asked for, as a key.
        model: String,
        /// The key most like it.
        nearest: Option<&'static str>,
    },
    /// The model is not sold in that size.
    #[error("--gpus pretend: {model} has no size of {memory_gb}GB; it has {}", .sizes.iter().map(|gb| format!("{gb}GB")).collect::<Vec<_>>().join(", "))]
    UnknownSize {
        /// The model's key.
        model: String,
        /// The size asked for, in GB.
        memory_gb: u32,
        /// The sizes there are, in GB.
        sizes: Vec<u32>,
    },
    /// More devices than can be pretended.
    #[error(
        "--gpus pretend: {count} devices are more than the {MAX_PRETENDED} that can be pretended on one machine"
    )]
    TooMany {
        /// How many were asked for.
        count: u64,
    },
}

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let text = text.trim();
        match text.split_once(':') {
            None if text.eq_ignore_ascii_case("auto") => Ok(Self::Auto),
            None if text.eq_ignore_ascii_case("none") => Ok(Self::None),
            None if text.eq_ignore_ascii_case("nvml") => Ok(Self::Nvml),
            Some((source, items)) if source.eq_ignore_ascii_case("pretend") => {
                pretended(items).map(Self::Pretend)
            }
            _ => Err(ChoiceError::UnknownSource { given: crate::printable(text) }),
        }
    }
}

fn pretended(items: &str) -> Result<Vec<PretendedGroup>, ChoiceError> {
    let groups = items.split(',').map(|item| group(item.trim())).collect::<Result<Vec<_>, _>>()?;
    let count = groups.iter().map(|group| u64::from(group.count)).sum();
    if count > u64::from(MAX_PRETENDED) {
        return Err(ChoiceError::TooMany { count });
    }
    Ok(groups)
}

fn group(item: &str) -> Result<PretendedGroup, ChoiceError> {
    let bad = |problem| ChoiceError::BadItem { item: crate::printable(item), problem };
    let (count, rest) = split_count(item).map_err(bad)?;
    let (rest, bridged) = split_bridges(rest).map_err(bad)?;
    let (name, memory_gb) = split_size(rest).map_err(bad)?;
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_ ".contains(c)) {
        return Err(bad("a model's name is letters, digits and hyphens"));
    }
    let model = catalogue::key(name);
    if model.is_empty() || model.len() > 64 {
        return Err(bad("the model's name is missing or too long"));
    }
    match (catalogue::by_key(&model), memory_gb) {
        (Some(known), Some(gb)) => require_size(known, gb)?,
        (None, None) => return Err(ChoiceError::UnknownModel { nearest: nearest_key(&model), model }),
        (Some(_), None) | (None, Some(_)) => {}
    }
    Ok(PretendedGroup { count, model, memory_gb, bridged })
}

/// Splits `8xH100` into 8 and `H100`; without a count there is one. ("xavier" is a name, not a count.)
fn split_count(item: &str) -> Result<(u32, &str), &'static str> {
    let digits = item.len() - item.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Some(rest) = item[digits..].strip_prefix(['x', 'X']).filter(|_| digits > 0) else {
        return Ok((1, item));
    };
    match item[..digits].parse() {
        Ok(0) => Err("the count is zero"),
        Ok(count) => Ok((count, rest.trim())),
        Err(_) => Err("the count is too large"),
    }
}

/// Splits `A40/2` into `A40` and 2.
fn split_bridges(text: &str) -> Result<(&str, Option<u32>), &'static str> {
    let Some((name, joined)) = text.rsplit_once('/') else { return Ok((text, None)) };
    match joined.trim().parse() {
        Ok(joined @ 2..=MOST_BRIDGED) => Ok((name.trim(), Some(joined))),
        _ => Err("behind the / stands how many each are joined by bridges, from 2 to 8"),
    }
}

/// Splits `A100-40GB` into `A100` and 40.
fn split_size(text: &str) -> Result<(&str, Option<u32>), &'static str> {
    let Some((name, size)) = text.rsplit_once('-') else { return Ok((text, None)) };
    let digits = size.to_ascii_lowercase();
    let Some(digits) = digits.strip_suffix("gb") else { return Ok((text, None)) };
    match digits.parse() {
        Ok(gb @ 1..=4096) => Ok((name, Some(gb))),
        _ => Err("the size is not between 1GB and 4096GB"),
    }
}

fn require_size(known: &'static catalogue::Model, memory_gb: u32) -> Result<(), ChoiceError> {
    let sizes: Vec<u32> = known.variants.iter().map(|variant| variant.memory_gb).collect();
    if sizes.contains(&memory_gb) {
        return Ok(());
    }
    Err(ChoiceError::UnknownSize { model: known.key.to_owned(), memory_gb, sizes })
}

/// Finds the key that a misspelt one most likely means: at most a third of it differs.
fn nearest_key(model: &str) -> Option<&'static str> {
    let (distance, key) =
        catalogue::keys().map(|key| (strsim::damerau_levenshtein(key, model), key)).min()?;
    (distance * 3 <= model.len()).then_some(key)
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = match self {
            Self::Auto => return f.write_str("auto"),
            Self::None => return f.write_str("none"),
            Self::Nvml => return f.write_str("nvml"),
            Self::Pretend(groups) => groups,
        };
        for (i, group) in groups.iter().enumerate() {
            let lead = if i == 0 { "pretend:" } else { "," };
            write!(f, "{lead}{}x{}", group.count, group.model)?;
            if let Some(gb) = group.memory_gb {
                write!(f, "-{gb}GB")?;
            }
            if let Some(joined) = group.bridged {
                write!(f, "/{joined}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pretend(groups: &[(u32, &str, Option<u32>)]) -> Choice {
        let group = |&(count, model, memory_gb): &(u32, &str, Option<u32>)| PretendedGroup {
            count,
            model: model.to_owned(),
            memory_gb,
            bridged: None,
        };
        Choice::Pretend(groups.iter().map(group).collect())
    }

    #[test]
    fn the_documented_forms_are_read() {
        let cases = [
            ("auto", Choice::Auto),
            (" NVML ", Choice::Nvml),
            ("none", Choice::None),
            ("pretend:8xH100", pretend(&[(8, "h100", None)])),
            ("pretend:64xh100", pretend(&[(64, "h100", None)])),
            ("pretend:8xH100,4xA100-40GB", pretend(&[(8, "h100", None), (4, "a100", Some(40))])),
            (
                "pretend:RTX4090, 2xrtx-6000-ada-48GB",
                pretend(&[(1, "rtx4090", None), (2, "rtx-6000-ada", Some(48))]),
            ),
            ("pretend:2xtpu-16gb", pretend(&[(2, "tpu", Some(16))])),
        ];
        for (text, choice) in cases {
            assert_eq!(text.parse(), Ok(choice), "{text}");
        }
    }

    #[test]
    fn mistakes_are_answered_with_what_to_write() {
        let cases = [
            ("gpu", "no such source; use auto, nvml, none or pretend:8xH100"),
            ("pretend", "no such source"),
            ("pretend:", "the model's name is missing"),
            ("pretend:8x", "the model's name is missing"),
            ("pretend:0xH100", "the count is zero"),
            ("pretend:99999999999xH100", "the count is too large"),
            ("pretend:4000xH100", "4000 devices are more than the 1024"),
            ("pretend:8xH10O", "did you mean h100?"),
            ("pretend:8xfoobar", "no model \"foobar\" is known; or give it a size, as foobar-24GB"),
            ("pretend:8xA100-48GB", "a100 has no size of 48GB; it has 80GB, 40GB"),
            ("pretend:8xA100-0GB", "the size is not between"),
            ("pretend:8xH100;rm", "letters, digits and hyphens"),
            ("pretend:8xH100/1", "how many each are joined by bridges"),
            ("pretend:8xH100/", "how many each are joined by bridges"),
            ("pretend:\x1b[2J", "letters, digits and hyphens"),
        ];
        for (text, expected) in cases {
            let Err(error) = text.parse::<Choice>() else { panic!("{text} was accepted") };
            let message = error.to_string();
            assert!(message.contains(expected), "{text}: {message}");
            assert!(!message.contains('\x1b'), "{text}: {message:?}");
        }
    }

    fn known_group() -> impl Strategy<Value = PretendedGroup> {
        let models: Vec<&'static catalogue::Model> =
            catalogue::keys().filter_map(catalogue::by_key).collect();
        let sizes = any::<Option<prop::sample::Index>>();
        let bridged = prop::option::of(2..=MOST_BRIDGED);
        (1u32..=32, prop::sample::select(models), sizes, bridged).prop_map(|(count, model, size, bridged)| {
            PretendedGroup {
                count,
                model: model.key.to_owned(),
                memory_gb: size.map(|index| index.get(model.variants).memory_gb),
                bridged,
            }
        })
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "\\PC*|pretend:[0-9xXhHaA,\\-gGbB ]*") {
            if let Err(error) = text.parse::<Choice>() {
                prop_assert!(!error.to_string().is_empty());
            }
        }

        #[test]
        fn what_is_displayed_reads_back_the_same(groups in prop::collection::vec(known_group(), 1..8)) {
            let choice = Choice::Pretend(groups);
            prop_assert_eq!(choice.to_string().parse::<Choice>(), Ok(choice));
        }

        #[test]
        fn whatever_is_accepted_reads_back_the_same(text in "pretend:([1-9]{1,2}x)?[a-zA-Z0-9\\-]{1,12}(-[0-9]{1,3}GB)?") {
            if let Ok(choice) = text.parse::<Choice>() {
                prop_assert_eq!(choice.to_string().parse::<Choice>(), Ok(choice));
            }
        }
    }
}
