//! The chain of checksums: the checksum of a commit covers its bytes and the checksum before it. A commit that changes, vanishes
//! or moves therefore shows in a later one.

use std::hash::Hasher;

use divvy_core::id::{Position, Term};
use twox_hash::XxHash3_64;

/// A link of the chain: the checksum of everything up to a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link(pub(crate) u64);

/// The parts of a commit that the chain covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered<'a> {
    /// The positions of its first and last event.
    pub(crate) first: Position,
    pub(crate) last: Position,
    pub(crate) term: Term,
    /// The version of the forms of its events.
    pub(crate) version: u16,
    /// Its events as text.
    pub(crate) body: &'a [u8],
}

impl Link {
    /// Returns the link after this one.
    pub(crate) fn next(self, commit: &Covered<'_>) -> Link {
        let mut hasher = XxHash3_64::with_seed(self.0);
        let mut head = [0u8; 26];
        head[..8].copy_from_slice(&commit.first.0.to_le_bytes());
        head[8..16].copy_from_slice(&commit.last.0.to_le_bytes());
        head[16..24].copy_from_slice(&commit.term.0.to_le_bytes());
        head[24..].copy_from_slice(&commit.version.to_le_bytes());
        hasher.write(&head);
        hasher.write(commit.body);
        Link(hasher.finish())
    }

    /// Returns the link as the database keeps it: the same bits as a signed number.
    pub(crate) fn to_sql(self) -> i64 {
        i64::from_le_bytes(self.0.to_le_bytes())
    }

    /// Restores a link from the database's number.
    pub(crate) fn from_sql(kept: i64) -> Link {
        Link(u64::from_le_bytes(kept.to_le_bytes()))
    }
}

/// Returns a checksum of bytes outside the chain.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_changes_with_every_part_of_its_commit_and_with_the_link_before() {
        let commit =
            Covered { first: Position(1), last: Position(2), term: Term(1), version: 1, body: b"x\n" };
        let link = Link(7).next(&commit);
        let others = [
            Link(8).next(&commit),
            Link(7).next(&Covered { first: Position(2), ..commit }),
            Link(7).next(&Covered { last: Position(3), ..commit }),
            Link(7).next(&Covered { term: Term(2), ..commit }),
            Link(7).next(&Covered { version: 2, ..commit }),
            Link(7).next(&Covered { body: b"y\n", ..commit }),
        ];
        assert!(others.iter().all(|other| *other != link));
        assert_eq!(Link::from_sql(link.to_sql()), link);
    }
}
