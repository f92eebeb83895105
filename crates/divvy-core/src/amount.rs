//! Quantities. Limits saturate and may be unlimited; holdings are exact and checked.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is counted. Devices are counted in milli (1000 = one whole device), `cpu` in milli-cores, memory and storage in bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Devices of every model, the named ones included.
    Any,
    /// Devices of one model, by its catalogue key.
    Model(String),
    /// Milli-cores.
    Cpu,
    /// Bytes of host memory.
    Memory,
    /// Bytes of local storage.
    Storage,
    /// Tasks on a node (Kubernetes' pods).
    Pods,
    /// Whatever else nodes count, by a name with a domain (`example.com/nic`) or `hugepages-2Mi`.
    Extended(String),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Any => "any",
            Resource::Model(model) => model,
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
            Resource::Storage => "storage",
            Resource::Pods => "pods",
            Resource::Extended(name) => name,
        })
    }
}

impl From<&str> for Resource {
    fn from(name: &str) -> Self {
        match name {
            "any" => Resource::Any,
            "cpu" => Resource::Cpu,
            "memory" => Resource::Memory,
            "storage" => Resource::Storage,
            "pods" => Resource::Pods,
            name if is_extended(name) => Resource::Extended(name.to_owned()),
            model => Resource::Model(model.to_owned()),
        }
    }
}

/// No model has a slash in its name.
fn is_extended(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-")
}

impl Serialize for Resource {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Resource::from(std::borrow::Cow::<str>::deserialize(deserializer)?.as_ref()))
    }
}

/// A limit or guarantee: a quantity that may be unlimited. Arithmetic on it saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// At most so much, in the resource's unit.
    Finite(i64),
    /// No bound.
    Unlimited,
}

impl Amount {
    /// Whether a holding stays within this limit.
    pub fn allows(self, held: i64) -> bool {
        match self {
            Amount::Unlimited => true,
            Amount::Finite(limit) => held <= limit,
        }
    }

    /// What is left below the limit when so much is held; never negative.
    pub fn left(self, held: i64) -> Amount {
        match self {
            Amount::Unlimited => Amount::Unlimited,
            Amount::Finite(limit) => Amount::Finite(limit.saturating_sub(held).max(0)),
        }
    }
}

/// Limits by resource; a resource that is absent is not limited (or not guaranteed).
pub type Limits = BTreeMap<Resource, Amount>;

/// Holdings by resource, exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Holdings(pub BTreeMap<Resource, i64>);

/// An exact sum left the range of its integer, or fell below zero.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the holdings of {resource} are out of range: {before} {change:+}")]
pub struct OutOfRange {
    resource: Resource,
    before: i64,
    change: i64,
}

impl Holdings {
    /// What is held of a resource.
    pub fn of(&self, resource: &Resource) -> i64 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    /// Adds (or, with a negative change, takes away) and refuses to leave 0..=i64::MAX.
    pub fn change(&mut self, resource: &Resource, change: i64) -> Result<(), OutOfRange> {
        let known = self.0.get_mut(resource);
        let before = known.as_deref().copied().unwrap_or(0);
        let after = before.checked_add(change).filter(|after| *after >= 0);
        let after = after.ok_or_else(|| OutOfRange { resource: resource.clone(), before, change })?;
        match known {
            Some(_) if after == 0 => drop(self.0.remove(resource)),
            Some(known) => *known = after,
            None if after == 0 => {}
            None => drop(self.0.insert(resource.clone(), after)),
        }
        Ok(())
    }

    /// The resources that are held, with their amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&Resource, i64)> {
        self.0.iter().map(|(resource, amount)| (resource, *amount))
    }
}

/// Bytes, as users write them: `40G` is 10⁹, `40Gi` is 2³⁰.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub i64);

/// What is wrong with a text that should have been an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an amount of memory: write 40G (10⁹ bytes), 40Gi (2³⁰ bytes), 512Mi or 1.5T")]
pub struct NotBytes(String);

impl FromStr for Bytes {
    type Err = NotBytes;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotBytes(text.chars().take(40).collect());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(split);
        let suffix = suffix.trim_start();
        let scale: i64 = match suffix.strip_suffix('B').unwrap_or(suffix) {
            "" if !suffix.is_empty() || split == trimmed.len() => 1,
            "k" | "K" => 1000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            "T" => 1_000_000_000_000,
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            "Ti" => 1 << 40,
            _ => return Err(wrong()),
        };
        scaled(number, scale).map(Bytes).ok_or_else(wrong)
    }
}

/// Bytes of memory that a job asks for. A number without a unit is a size only from 1 MiB on: who writes 16 means 16G.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemorySize(pub i64);

/// What is wrong with a text that should have been a size of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMemorySize {
    /// It would be a few bytes.
    #[error("{0:?} has no unit: write 16G (10⁹ bytes) or 16Gi (2³⁰ bytes)")]
    NoUnit(String),
    /// It cannot be read.
    #[error(transparent)]
    NotBytes(#[from] NotBytes),
}

/// The least size that is taken without a unit, in bytes.
const LEAST_WITHOUT_UNIT_BYTES: i64 = 1 << 20;

impl FromStr for MemorySize {
    type Err = NotMemorySize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Bytes(bytes) = text.parse()?;
        let number = text.trim();
        let has_unit = number.ends_with(|c: char| c.is_ascii_alphabetic());
        // Nothing needs no unit.
        if has_unit || number == "0" || bytes >= LEAST_WITHOUT_UNIT_BYTES {
            return Ok(Self(bytes));
        }
        Err(NotMemorySize::NoUnit(number.chars().take(40).collect()))
    }
}

/// A decimal number times a scale, exact to the unit (what is below is cut off); `None` if unreadable or too large.
pub(crate) fn scaled(number: &str, scale: i64) -> Option<i64> {
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if (integer.is_empty() && fraction.is_empty())
        || !digits(integer)
        || !digits(fraction)
        || fraction.len() > 15
    {
        return None;
    }
    let integer: i128 = if integer.is_empty() { 0 } else { integer.parse().ok()? };
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scale = i128::from(scale);
    let below = part * scale / 10i128.pow(u32::try_from(fraction.len()).ok()?);
    i64::try_from(integer.checked_mul(scale)?.checked_add(below)?).ok()
}

/// Whether a text that was read as this amount said more than nothing, and nothing is left of it.
pub(crate) fn is_cut_to_nothing(text: &str, amount: i64) -> bool {
    amount == 0 && text.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

/// Writes the largest binary unit that leaves a short number: `64Gi`, `1.5Gi`, `512Mi`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("Ti", 40u32), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
        for (unit, shift) in units {
            let whole = self.0 >> shift;
            if whole > 0 {
                let tenths = ((self.0 - (whole << shift)) * 10) >> shift;
                return if tenths == 0 {
                    write!(f, "{whole}{unit}")
                } else {
                    write!(f, "{whole}.{tenths}{unit}")
                };
            }
        }
        write!(f, "{}", self.0)
    }
}

/// Memory bandwidth as users write it: `900GB/s`, `3.35TB/s`; in GB/s, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bandwidth(pub u32);

/// What is wrong with a text that should have been a bandwidth.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a bandwidth: write 900GB/s or 3.35TB/s")]
pub struct NotBandwidth(String);

impl FromStr for Bandwidth {
    type Err = NotBandwidth;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let amount = text.trim().strip_suffix("B/s")?;
            let (number, scale) = match amount.strip_suffix('T') {
                Some(number) => (number, 1000),
                None => (amount.strip_suffix('G')?, 1),
            };
            let gb_s = scaled(number.trim_end(), scale)?;
            u32::try_from(gb_s).ok().filter(|gb_s| *gb_s > 0).map(Self)
        };
        read().ok_or_else(|| NotBandwidth(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_know_decimal_and_binary_units() {
        let cases = [
            ("40G", 40_000_000_000),
            ("40Gi", 40 << 30),
            ("80GB", 80_000_000_000),
            ("1.5Ki", 1536),
            ("7", 7),
            ("512MiB", 512 << 20),
            ("0", 0),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "G", "-1G", "1GG", "1e3", "99999999999999T", "1.2.3G", "4 0G"] {
            assert!(text.parse::<Bytes>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_size_of_a_few_bytes_is_taken_for_one_without_its_unit() {
        for (text, bytes) in
            [("16G", 16_000_000_000), ("64000000000", 64_000_000_000), ("512Ki", 1 << 19), ("0", 0)]
        {
            assert_eq!(text.parse::<MemorySize>(), Ok(MemorySize(bytes)), "{text}");
        }
        let wrong = |text: &str| text.parse::<MemorySize>().unwrap_err().to_string();
        assert_eq!(wrong(" 16 "), "\"16\" has no unit: write 16G (10⁹ bytes) or 16Gi (2³⁰ bytes)");
        assert!(wrong("0.5").contains("no unit") && wrong("40960").contains("no unit"));
        assert!(wrong("big").contains("not an amount of memory"));
    }

    #[test]
    fn bandwidths_have_their_unit() {
        for (text, gb_s) in [("900GB/s", 900), ("3.35TB/s", 3350), (" 1 TB/s", 1000), ("1.5GB/s", 1)] {
            assert_eq!(text.parse::<Bandwidth>(), Ok(Bandwidth(gb_s)), "{text}");
        }
        for text in [
            "",
            "900",
            "900GB",
            "0GB/s",
            "0.5GB/s",
            "900MB/s",
            "-1GB/s",
            "99999999999GB/s",
            "GB/s",
            "900 Gbit/s",
        ] {
            assert!(text.parse::<Bandwidth>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn holdings_never_fall_below_nothing() {
        let mut held = Holdings::default();
        held.change(&Resource::Cpu, 5).unwrap();
        assert!(held.change(&Resource::Cpu, -6).is_err());
        assert_eq!(held.of(&Resource::Cpu), 5);
        assert!(held.change(&Resource::Cpu, i64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in ".*") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Bandwidth>();
        }

        #[test]
        fn whole_gibibytes_read_back(gib in 1i64..1023) {
            prop_assert_eq!(Bytes(gib << 30).to_string().parse::<Bytes>(), Ok(Bytes(gib << 30)));
        }
    }
}
