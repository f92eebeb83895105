//! The text of a queue's users in queues.yaml.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::amounts_text::{LimitText, limits};
use super::text::{BadQueues, Scalar, max_priority, span};
use super::{Bounds, Users};

/// `users: {weight: {ana: 2}, limit: 4, max_priority: high, max_time: 2d, max_jobs: 100}`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UsersText {
    weight: BTreeMap<String, u32>,
    limit: Option<Spanned<LimitText>>,
    max_priority: Option<Spanned<Scalar>>,
    max_time: Option<Spanned<Scalar>>,
    max_jobs: Option<u64>,
}

/// Reads what queues.yaml says of a queue's users.
pub(super) fn users(text: UsersText) -> Result<Users, BadQueues> {
    let bounds = Bounds {
        max_priority: text.max_priority.map(max_priority).transpose()?,
        max_time: text.max_time.map(|time| span("max_time", time)).transpose()?,
        max_jobs: text.max_jobs,
        default_time: None,
    };
    let limit = text.limit.map(|text| limits("limit of users", text)).transpose()?.unwrap_or_default();
    Ok(Users { weight: text.weight, limit, bounds })
}
