//! Walks the log: every commit in order, with its checksum verified on the raw bytes.

use std::path::Path;

use divvy_core::event::{self, Event, Stamped};
use divvy_core::id::{Position, Term};
use divvy_core::time::Time;
use rusqlite::{Connection, Row};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::chain::{Covered, Link};
use super::error::StoreError;

/// How far a walk has come: the last good commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) position: Position,
    pub(crate) link: Link,
    pub(crate) term: Term,
}

/// A commit as it is stored in the log.
pub(crate) struct RawCommit<'a> {
    pub(crate) first: Position,
    pub(crate) last: Position,
    pub(crate) term: Term,
    pub(crate) version: u16,
    pub(crate) link: Link,
    pub(crate) body: &'a [u8],
}

/// A walk that had to stop: how far it came, and why it stopped.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) at: Place,
    pub(crate) error: StoreError,
}

/// Walks all commits after `from` and passes each good one to `see`. Stops at the first bad commit.
pub(crate) fn walk(
    db: &Connection,
    file: &Path,
    from: Place,
    mut see: impl FnMut(&RawCommit<'_>) -> Result<(), StoreError>,
) -> Result<Place, Box<Stopped>> {
    let mut at = from;
    let broken = |at: Place, what: String| {
        Box::new(Stopped {
            at,
            error: StoreError::Damaged { file: file.to_owned(), after: at.position, what },
        })
    };
    let unread = |at: Place, error| {
        Box::new(Stopped { at, error: StoreError::database("read the log", file, at.position)(error) })
    };
    let sql = "SELECT first, last, term, version, checksum, body FROM log WHERE last > ?1 ORDER BY last";
    let mut statement = db.prepare(sql).map_err(|error| unread(at, error))?;
    let start = i64::try_from(from.position.0).unwrap_or(i64::MAX);
    let mut rows = statement.query([start]).map_err(|error| unread(at, error))?;
    while let Some(row) = rows.next().map_err(|error| unread(at, error))? {
        let commit = raw(row).map_err(|error| unread(at, error))?;
        if let Some(what) = wrong_with(&commit, at) {
            return Err(broken(at, what));
        }
        see(&commit).map_err(|error| Box::new(Stopped { at, error }))?;
        at = Place { position: commit.last, link: commit.link, term: commit.term };
    }
    Ok(at)
}

fn raw<'a>(row: &'a Row<'_>) -> rusqlite::Result<RawCommit<'a>> {
    // What is no position or version becomes one that fits nowhere; the chain would not fit either.
    let position = |at| row.get::<_, i64>(at).map(|value| Position(u64::try_from(value).unwrap_or(u64::MAX)));
    Ok(RawCommit {
        first: position(0)?,
        last: position(1)?,
        term: Term(u64::try_from(row.get::<_, i64>(2)?).unwrap_or(u64::MAX)),
        version: u16::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
        link: Link::from_sql(row.get(4)?),
        body: row
            .get_ref(5)?
            .as_bytes()
            .map_err(|_| rusqlite::Error::InvalidColumnType(5, "body".into(), rusqlite::types::Type::Text))?,
    })
}

fn wrong_with(commit: &RawCommit<'_>, before: Place) -> Option<String> {
    let RawCommit { first, last, term, version, body, .. } = *commit;
    let expected = before.link.next(&Covered { first, last, term, version, body });
    if first.0 != before.position.0.saturating_add(1) || last < first {
        Some(format!("the next commit claims positions {first} to {last}"))
    } else if expected != commit.link {
        Some(format!("the checksum of positions {first} to {last} does not fit"))
    } else if term < before.term {
        Some(format!("term {term} follows term {}", before.term))
    } else {
        None
    }
}

/// An event as the log stores it, not parsed yet.
#[derive(Deserialize)]
struct RawEvent<'a> {
    at: Time,
    #[serde(borrow)]
    event: &'a RawValue,
}

/// Returns the events of a commit as its body.
pub(crate) fn body_of(events: &[Stamped]) -> Result<String, serde_json::Error> {
    let mut body = String::new();
    for event in events {
        body.push_str(&serde_json::to_string(event)?);
        body.push('\n');
    }
    Ok(body)
}

/// Reads the events of a commit, lifted to this program's version.
pub(crate) fn events_of(commit: &RawCommit<'_>, file: &Path) -> Result<Vec<Stamped>, StoreError> {
    let damaged = |what: String| StoreError::Damaged {
        file: file.to_owned(),
        after: Position(commit.first.0.saturating_sub(1)),
        what,
    };
    let text = std::str::from_utf8(commit.body).map_err(|error| damaged(error.to_string()))?;
    let mut events = Vec::new();
    for line in text.lines() {
        let raw: RawEvent<'_> = serde_json::from_str(line).map_err(|error| damaged(error.to_string()))?;
        let read = || serde_json::from_str::<Event>(raw.event.get());
        let event =
            event::upcast(commit.version, kind_of(raw.event.get()), read).map_err(|error| match error {
                event::Unreadable::Newer(version) => StoreError::Newer {
                    file: file.to_owned(),
                    program: "of a newer version".into(),
                    what: format!(
                        "events of version {version}, this program knows version {}",
                        event::VERSION
                    ),
                },
                error => damaged(error.to_string()),
            })?;
        events.push(Stamped { at: raw.at, event });
    }
    let counted = commit.last.0.saturating_sub(commit.first.0).saturating_add(1);
    if events.len() as u64 != counted {
        return Err(damaged(format!(
            "positions {} to {} hold {} events",
            commit.first,
            commit.last,
            events.len()
        )));
    }
    Ok(events)
}

/// Returns the kind that an event's text claims: its only key, or the text itself if it has no data.
fn kind_of(text: &str) -> &str {
    text.split('"').nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kind_is_read_off_the_text_as_the_event_says_it() {
        let events = [Event::Tick, Event::Held { job: divvy_core::id::JobId::single(3), by: "ana".into() }];
        for event in events {
            assert_eq!(kind_of(&serde_json::to_string(&event).unwrap()), event.kind());
        }
    }

    fn read(version: u16, first: u64, last: u64, body: &[u8]) -> Result<Vec<Stamped>, StoreError> {
        let (first, last) = (Position(first), Position(last));
        let commit = RawCommit { first, last, term: Term(1), version, link: Link(0), body };
        events_of(&commit, Path::new("/x/divvy.db"))
    }

    #[test]
    fn records_of_a_newer_version_are_refused_by_name() {
        let body = body_of(&[Stamped { at: Time(1), event: Event::Tick }]).unwrap();
        assert_eq!(read(1, 1, 1, body.as_bytes()).unwrap().len(), 1);
        assert!(matches!(read(999, 1, 1, body.as_bytes()), Err(StoreError::Newer { .. })));
        assert!(matches!(read(1, 1, 2, body.as_bytes()), Err(StoreError::Damaged { .. })));
    }

    proptest! {
        #[test]
        fn no_record_makes_the_reader_panic(body: Vec<u8>, first: u64, last: u64, version: u16) {
            let _ = read(version, first, last, &body);
        }

        #[test]
        fn no_text_like_a_record_makes_the_reader_panic(lines in proptest::collection::vec(
            "\\{\"at\":-?[0-9]{1,4},\"event\":(\"tick\"|\\{\"(held|planned|placed)\":[a-z0-9{}\":,]{0,20}\\})\\}", 0..4)) {
            let body = lines.join("\n");
            let _ = read(1, 1, lines.len() as u64, body.as_bytes());
        }
    }
}
