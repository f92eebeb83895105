//! The texts of reasons about nodes that are kept for queues.

use std::fmt;

use super::Reason;

/// The cheapest thing that someone can do about it.
pub(super) fn fix(reason: &Reason) -> String {
    match reason {
        Reason::OtherNodes(_, Some(other)) => {
            format!("submit it to queue {other}, or have nodes that would do taken out of that queue's")
        }
        Reason::OtherNodes(..) => {
            "submit it to a queue without nodes of its own, or ask for what the nodes of its queue have"
                .into()
        }
        Reason::NodesAbsent(queue) => {
            format!(
                "wait for them, or have other nodes kept for {queue}: divvy queues {queue} shows which are meant"
            )
        }
        other => other.code().to_owned(),
    }
}

pub(super) fn text(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
    match reason {
        Reason::OtherNodes(None, Some(other)) => {
            write!(f, "the nodes that would do are kept for queue {other}")
        }
        Reason::OtherNodes(Some(own), Some(other)) => {
            write!(f, "no node of queue {own} would do, and those that would are kept for queue {other}")
        }
        Reason::OtherNodes(own, None) => {
            let own = own.as_deref().unwrap_or_default();
            write!(f, "no node of queue {own} would do, and it may use no others")
        }
        Reason::NodesAbsent(queue) => write!(f, "none of the nodes is there that are kept for queue {queue}"),
        other => f.write_str(other.code()),
    }
}
