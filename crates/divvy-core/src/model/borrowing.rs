//! By what right a job takes devices of other queues while its own queue borrows.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::job::priority;

/// By what right a job takes devices of other queues beyond what is guaranteed to its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowEvicts {
    /// Whether it may take what is due to its queue, from queues that hold more than is due to them.
    pub due: bool,
    /// The highest priority at which jobs of other queues that borrow give way to a job of higher priority, whatever is due to either
    /// queue; `None` if none give way.
    pub lower: Option<i32>,
}

/// Jobs of any lower priority.
const ALL: i32 = i32::MAX;

impl BorrowEvicts {
    /// A borrowing queue takes nothing.
    pub const NEVER: Self = Self { due: false, lower: None };
    /// A borrowing queue takes what is due to it.
    pub const DUE: Self = Self { due: true, lower: None };

    /// Takes by priority, from jobs of at most this priority if one is given.
    pub fn lower(up_to: Option<i32>) -> Self {
        Self { due: false, lower: Some(up_to.unwrap_or(ALL)) }
    }

    /// The highest priority at which jobs of other queues that borrow give way to a job of this priority; always below it.
    pub fn lower_than(self, priority: i32) -> Option<i32> {
        Some(self.lower?.min(priority.checked_sub(1)?))
    }

    /// Whether a job of `priority` may take the devices of a job of priority `other`, by priority alone.
    pub fn goes_before(self, priority: i32, other: i32) -> bool {
        self.lower_than(priority).is_some_and(|most| other <= most)
    }

    /// Whether it gives no right that the other does not give.
    pub fn is_within(self, other: Self) -> bool {
        (!self.due || other.due) && self.lower <= other.lower
    }

    /// The setting's word, and the priority beside it.
    fn said(self) -> (&'static str, Option<i32>) {
        let word = match (self.due, self.lower) {
            (false, None) => "never",
            (true, None) => "due",
            (false, Some(_)) => "lower",
            (true, Some(_)) => "due_or_lower",
        };
        (word, self.lower.filter(|most| *most != ALL))
    }

    fn of(word: &str, lower: i32) -> Option<Self> {
        Some(match word {
            "never" => Self::NEVER,
            "due" => Self::DUE,
            "lower" => Self { due: false, lower: Some(lower) },
            "due_or_lower" => Self { due: true, lower: Some(lower) },
            _ => return None,
        })
    }
}

impl fmt::Display for BorrowEvicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.said() {
            ("never", _) => f.write_str("false"),
            ("due", _) => f.write_str("true"),
            (word, None) => f.write_str(word),
            (word, Some(most)) => write!(f, "{word}={most}"),
        }
    }
}

/// Hashes like the boolean that this setting once was, so that digests of settings that say no more than that stay as they were.
impl Hash for BorrowEvicts {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.due.hash(hasher);
        if let Some(lower) = self.lower {
            lower.hash(hasher);
        }
    }
}

/// Written as a boolean where it says no more than yes or no, as before there was more to say.
impl Serialize for BorrowEvicts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.said() {
            ("never", _) => serializer.serialize_bool(false),
            ("due", _) => serializer.serialize_bool(true),
            (word, None) => serializer.serialize_str(word),
            (word, Some(most)) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(word, &most)?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for BorrowEvicts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl<'de> Visitor<'de> for Word {
            type Value = BorrowEvicts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("never (false), due (true), lower, due_or_lower, or the latter two with a priority, as {lower: high}")
            }

            fn visit_bool<E>(self, is_due: bool) -> Result<BorrowEvicts, E> {
                Ok(if is_due { BorrowEvicts::DUE } else { BorrowEvicts::NEVER })
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<BorrowEvicts, E> {
                let unknown = || E::invalid_value(serde::de::Unexpected::Str(word), &self);
                BorrowEvicts::of(word, ALL).ok_or_else(unknown)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BorrowEvicts, A::Error> {
                let Some((word, most)) = map.next_entry::<String, UpTo>()? else {
                    return Err(A::Error::invalid_length(0, &self));
                };
                let said = BorrowEvicts::of(&word, most.0).filter(|said| said.lower.is_some());
                let said = said.filter(|_| matches!(map.next_key::<String>(), Ok(None)));
                said.ok_or_else(|| A::Error::invalid_value(serde::de::Unexpected::Str(&word), &self))
            }
        }
        deserializer.deserialize_any(Word)
    }
}

/// A priority, by its name or as a number.
struct UpTo(i32);

impl<'de> Deserialize<'de> for UpTo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Priority;
        impl Visitor<'_> for Priority {
            type Value = UpTo;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a priority: low, normal, high, urgent or a number")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<UpTo, E> {
                let wrong = |_| E::invalid_value(serde::de::Unexpected::Signed(number), &self);
                i32::try_from(number).map(UpTo).map_err(wrong)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<UpTo, E> {
                let wrong = |_| E::invalid_value(serde::de::Unexpected::Unsigned(number), &self);
                i32::try_from(number).map(UpTo).map_err(wrong)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<UpTo, E> {
                let wrong = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                priority::parse(text).map(UpTo).ok_or_else(wrong)
            }
        }
        deserializer.deserialize_any(Priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::fingerprint;

    fn read(json: &str) -> Result<BorrowEvicts, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn what_was_yes_or_no_is_read_written_and_hashed_as_it_was() {
        for (json, said) in [("true", BorrowEvicts::DUE), ("false", BorrowEvicts::NEVER)] {
            assert_eq!(read(json), Ok(said));
            assert_eq!(serde_json::to_string(&said).unwrap(), json);
            assert_eq!(fingerprint(&said), fingerprint(&said.due));
        }
        assert_eq!(read("\"never\""), Ok(BorrowEvicts::NEVER));
        assert_eq!(read("\"due\""), Ok(BorrowEvicts::DUE));
    }

    #[test]
    fn a_priority_may_stand_beside_what_goes_by_priority_and_nothing_else() {
        for (json, due, lower) in [
            ("\"lower\"", false, ALL),
            ("\"due_or_lower\"", true, ALL),
            ("{\"lower\":-3}", false, -3),
            ("{\"due_or_lower\":100}", true, 100),
        ] {
            let said = BorrowEvicts { due, lower: Some(lower) };
            assert_eq!(read(json), Ok(said));
            assert_eq!(serde_json::to_string(&said).unwrap(), json);
        }
        assert_eq!(read("{\"lower\":\"high\"}"), read("{\"lower\":100}"));
        for json in ["\"higher\"", "{}", "{\"due\":3}", "{\"lower\":\"x\"}", "{\"lower\":1,\"due\":1}", "7"] {
            assert!(read(json).is_err(), "{json}");
        }
    }

    #[test]
    fn what_gives_less_is_within_what_gives_more() {
        let lower = |due, lower| BorrowEvicts { due, lower };
        let all = [BorrowEvicts::NEVER, BorrowEvicts::lower(Some(0)), BorrowEvicts::lower(None)];
        for (place, one) in all.into_iter().enumerate() {
            for (other_place, other) in all.into_iter().enumerate() {
                assert_eq!(one.is_within(other), place <= other_place, "{one} {other}");
            }
            assert!(one.is_within(lower(true, one.lower)) && !lower(true, one.lower).is_within(one));
        }
        assert!(!BorrowEvicts::lower(Some(0)).is_within(BorrowEvicts::DUE));
    }

    #[test]
    fn nobody_goes_before_an_equal() {
        let lower = BorrowEvicts::lower(Some(0));
        assert!(lower.goes_before(5, 0) && !lower.goes_before(5, 1) && !lower.goes_before(0, 0));
        assert!(BorrowEvicts::lower(None).goes_before(5, 4));
        assert!(!BorrowEvicts::DUE.goes_before(5, 0) && !BorrowEvicts::NEVER.goes_before(5, 0));
        assert!(!BorrowEvicts::lower(None).goes_before(i32::MIN, i32::MIN));
    }
}
