//! The texts of reasons about what queues, and their users, may have.

use std::fmt;

use super::{Reason, gpu_hours, shown};
use crate::amount::Resource;
use crate::model::queue::{user_at, utc};

impl Reason {
    /// Says what helps a job that asks for more than the settings allow, so that no end of other jobs does.
    pub fn lasting_fix(&self) -> String {
        match self {
            Reason::BorrowLimit(_, resource, most, _) => {
                format!("ask for {}, or {}", less(resource), borrow_more(resource, &shown(resource, *most)))
            }
            Reason::NotLent(queue, resource, ..) => {
                format!("ask for {}, {}", less(resource), lend_more(queue, resource))
            }
            other => other.fix(),
        }
    }

    /// Says what gives a queue more of a resource than this amount.
    pub(super) fn fix_entitlement(
        &self,
        (queue, resource): (&str, &Resource),
        (amount, asked): (String, String),
    ) -> String {
        let way = match self {
            Reason::BeyondGuarantee(..) => {
                format!("submit it as preemptible, or raise {queue}'s guarantee of {resource} above {amount}")
            }
            Reason::BorrowLimit(..) => {
                format!("wait for jobs of {queue} to end, or {}", borrow_more(resource, &amount))
            }
            Reason::NotLent(..) => {
                format!("wait for jobs that borrow to end, {}", lend_more(queue, resource))
            }
            _ if self.keeps_back_for_ever() => {
                format!("ask for {}, or have {queue}'s limit of {amount} raised", less(resource))
            }
            _ => format!("wait for jobs of {queue} to end, or raise its limit of {resource} above {amount}"),
        };
        format!("{way} (this job asks for {asked})")
    }

    /// Says what gives a queue what is guaranteed to it.
    pub(super) fn fix_own(&self) -> &'static str {
        match self {
            Reason::Scarce(..) => {
                "wait until the nodes and GPUs that are missing are back (divvy gpus), or have other queues lend more"
            }
            _ => "wait until they give it back, at the latest when their jobs end: divvy explain says when",
        }
    }

    /// Says what gives a user more, or a queue over time.
    pub(super) fn fix_bound(&self) -> String {
        match self {
            Reason::UserLimit(seat, resource, most, asked) if asked > most => format!(
                "ask for {}, or have the limit of {} that each user of {} has raised (this job asks for {})",
                less(resource),
                shown(resource, *most),
                user_at(seat).map_or(seat.as_str(), |(queue, _)| queue),
                shown(resource, *asked)
            ),
            Reason::UserLimit(seat, resource, most, asked) => format!(
                "wait for your jobs in {} to end, or have its users' limit of {resource} raised above {} (this job asks for {})",
                user_at(seat).map_or(seat.as_str(), |(queue, _)| queue),
                shown(resource, *most),
                shown(resource, *asked)
            ),
            Reason::OverBudget(queue, 0, _) => format!("have the budget of {queue} raised"),
            Reason::OverBudget(queue, _, until) => {
                format!("wait until {}, or have the budget of {queue} raised", utc(*until))
            }
            other => other.code().to_owned(),
        }
    }

    /// Writes what a queue may not have more of.
    pub(super) fn fmt_entitlement(
        &self,
        f: &mut fmt::Formatter<'_>,
        (queue, resource): (&str, &Resource),
        (amount, asked): (i64, i64),
    ) -> fmt::Result {
        let more = amount_of(resource, amount);
        match self {
            Reason::BeyondGuarantee(..) => {
                write!(f, "is not preemptible, and queue {queue} is guaranteed {more} for such jobs")
            }
            Reason::BorrowLimit(..) => {
                write!(f, "queue {queue} would borrow more than the {more} that it may")
            }
            Reason::NotLent(..) => {
                let (amount, what) = more.split_once(' ').unwrap_or((&more, ""));
                write!(f, "queue {queue} would have to borrow, and the others lend {amount} more {what}")
            }
            _ if asked > amount => {
                // Memory that nobody asked for comes with devices.
                let takes = if *resource == Resource::Memory { "takes" } else { "asks for" };
                write!(f, "queue {queue} has a limit of {more}, and it {takes} {}", shown(resource, asked))
            }
            _ => write!(f, "queue {queue} is at its limit of {more}"),
        }
    }

    /// Writes what a user, or a queue over time, may not have more of.
    pub(super) fn fmt_bound(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::UserLimit(seat, resource, most, asked) => {
                let (queue, user) = user_at(seat).unwrap_or((seat, "its user"));
                let (is_beyond, most) = (asked > most, amount_of(resource, *most));
                if is_beyond {
                    let asked = shown(resource, *asked);
                    return write!(
                        f,
                        "a user has a limit of {most} in queue {queue}, and this job of {user} asks for {asked}"
                    );
                }
                write!(f, "{user} is at the limit of {most} that a user has in queue {queue}")
            }
            Reason::OverBudget(queue, 0, _) => write!(f, "queue {queue} has a budget of 0 GPU-hours"),
            Reason::OverBudget(queue, budget, until) => {
                let (hours, until) = (gpu_hours(*budget), utc(*until));
                write!(f, "queue {queue} has used its budget of {hours}; it has more from {until} on")
            }
            other => f.write_str(other.code()),
        }
    }
}

/// Writes that others have what a queue has lent.
pub(super) fn fmt_lent(f: &mut fmt::Formatter<'_>, queue: &str, resource: &Resource) -> fmt::Result {
    let of = if *resource == Resource::Any { String::new() } else { format!(" of {resource}") };
    write!(f, "what is guaranteed to queue {queue}{of} is lent to others, who are safe for now")
}

/// Writes that the pool has too little for all guarantees, and that other queues keep what is left.
pub(super) fn fmt_scarce(f: &mut fmt::Formatter<'_>, queue: &str, resource: &Resource) -> fmt::Result {
    let is_counted = matches!(resource, Resource::Any | Resource::Model(_) | Resource::Pods);
    let (few, noun) = (if is_counted { "few" } else { "little" }, noun(resource));
    write!(
        f,
        "the pool now has too {few} {noun} for all guarantees, and other queues keep them from queue {queue}"
    )
}

fn borrow_more(resource: &Resource, most: &str) -> String {
    format!("let it borrow more {} than {most}", noun(resource))
}

fn lend_more(queue: &str, resource: &Resource) -> String {
    format!("have other queues lend more {}, or raise {queue}'s guarantee", noun(resource))
}

/// `GPUs`, `h100`, `memory`: what there is more or less of.
fn noun(resource: &Resource) -> String {
    match resource {
        Resource::Any => "GPUs".into(),
        Resource::Cpu => "cores".into(),
        other => other.to_string(),
    }
}

/// `fewer GPUs`, `less memory`.
fn less(resource: &Resource) -> String {
    let is_counted = matches!(resource, Resource::Any | Resource::Model(_) | Resource::Pods | Resource::Cpu);
    format!("{} {}", if is_counted { "fewer" } else { "less" }, noun(resource))
}

/// `4 GPUs`, `64 cores`.
fn amount_of(resource: &Resource, amount: i64) -> String {
    let amount = shown(resource, amount);
    let what = match (resource, amount.as_str()) {
        (Resource::Any, "1") => "GPU".into(),
        (Resource::Any, _) => "GPUs".into(),
        (Resource::Cpu, "1") => "core".into(),
        (Resource::Cpu, _) => "cores".into(),
        (other, _) => other.to_string(),
    };
    format!("{amount} {what}")
}
