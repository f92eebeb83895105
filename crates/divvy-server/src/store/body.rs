//! Rows that hold their content as JSON, each with a checksum of its own.

use rusqlite::Row;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::chain::checksum;

/// Returns what a row holds of a thing: its checksum and its text.
pub(crate) fn of<T: Serialize>(thing: &T) -> rusqlite::Result<(i64, String)> {
    let body = serde_json::to_string(thing)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    Ok((sum_of(&body), body))
}

/// Reads one row whose first columns are checksum and body. `what` is what it holds: `an attempt`.
pub(crate) fn read<T: DeserializeOwned>(row: &Row<'_>, what: &str) -> rusqlite::Result<T> {
    let (sum, body): (i64, &str) = (row.get(0)?, row.get_ref(1)?.as_str()?);
    let wrong = |error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, error)
    };
    if sum != sum_of(body) {
        return Err(wrong(format!("the checksum of {what} does not fit").into()));
    }
    serde_json::from_str(body).map_err(|error| wrong(Box::new(error)))
}

fn sum_of(body: &str) -> i64 {
    i64::from_le_bytes(checksum(body.as_bytes()).to_le_bytes())
}
