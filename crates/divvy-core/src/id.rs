//! Identities. None is ever reused; identities from outside (uuid, pid, pod uid) are fields, never keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number_id!(
    /// Names a node of the pool; given by the state when the node joins.
    NodeId, u32);
number_id!(
    /// Names a device of the pool; the same uuid that leaves and comes back keeps it.
    DeviceId, u32);
number_id!(
    /// Names an allocation. Its upper half is the term that made it, so that a lost tail of the log reuses none.
    AllocationId, u64);
number_id!(
    /// Counts the starts of the daemon (or the terms of leadership). Engines refuse actions of a lower term.
    Term, u64);
number_id!(
    /// A place in the log: the number of events up to and including this one.
    Position, u64);
number_id!(
    /// Waiting jobs of one queue, priority and ask: they share one verdict.
    ClassId, u64);

impl AllocationId {
    /// The first allocation of a term.
    pub fn first_of(term: Term) -> Self {
        Self(term.0 << 32)
    }
}

/// A job, or one member of an array job: `12` or `12_3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The number given at submission.
    pub number: u64,
    /// The member, for a job of an array.
    pub member: Option<u32>,
}

impl JobId {
    /// The id of a job that is not part of an array (or of an array as a whole).
    pub fn single(number: u64) -> Self {
        Self { number, member: None }
    }

    /// The id of one member of an array.
    pub fn member(number: u64, member: u32) -> Self {
        Self { number, member: Some(member) }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.member {
            None => write!(f, "{}", self.number),
            Some(member) => write!(f, "{}_{member}", self.number),
        }
    }
}

/// What is wrong with a text that should have been a job id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a job id: write a number such as 12, or 12_3 for a member of an array")]
pub struct NotAJobId(pub String);

impl FromStr for JobId {
    type Err = NotAJobId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotAJobId(text.chars().take(40).collect());
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let (number, member) = match text.split_once('_') {
            None => (text, None),
            Some((number, member)) => (number, Some(member)),
        };
        if !digits(number) || !member.is_none_or(digits) {
            return Err(wrong());
        }
        let number = number.parse().map_err(|_| wrong())?;
        let member = member.map(str::parse).transpose().map_err(|_| wrong())?;
        Ok(Self { number, member })
    }
}

impl Serialize for JobId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_job_id_reads_back_as_written(number: u64, member: Option<u32>) {
            let id = JobId { number, member };
            prop_assert_eq!(id.to_string().parse::<JobId>(), Ok(id));
        }

        #[test]
        fn no_text_makes_the_job_id_parser_panic(text in ".*") {
            let _ = text.parse::<JobId>();
        }
    }

    #[test]
    fn signs_spaces_and_empty_parts_are_no_job_ids() {
        for text in ["", "_", "1_", "_1", "+1", " 1", "1_2_3", "-1", "99999999999999999999"] {
            assert!(text.parse::<JobId>().is_err(), "{text:?}");
        }
    }
}
