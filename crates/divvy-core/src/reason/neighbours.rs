//! The texts of reasons about the tasks around a job's place.

use std::fmt;

use super::Reason;

/// The cheapest thing that someone can do about it.
pub(super) fn fix(reason: &Reason) -> String {
    match reason {
        Reason::NotNear(who, _) => {
            format!("wait until a task with {who} runs where there is room, or submit it without near")
        }
        Reason::NotApart(who, _) => {
            format!("wait until the tasks with {who} end, or submit it without apart")
        }
        Reason::Repelled(who, _) => {
            format!("wait until those end that lie apart from {who}, or submit it with other labels")
        }
        other => other.code().to_owned(),
    }
}

/// Writes the text of the reason.
pub(super) fn text(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
    match reason {
        Reason::NotNear(who, within) => {
            write!(f, "wants to lie near tasks with {who} (same {within}), and has no room near any")
        }
        Reason::NotApart(who, within) => write!(
            f,
            "wants to lie apart from tasks with {who} (same {within}), and they lie where it has room"
        ),
        Reason::Repelled(who, within) => {
            write!(f, "those that lie where it has room want no tasks with {who} near them (same {within})")
        }
        other => f.write_str(other.code()),
    }
}
