//! Why a request was refused, as the API says it.

use divvy_api::{Problem, ProblemCode};
use divvy_core::decide::Rejection;
use divvy_core::log::LogError;
use divvy_core::reason::Reason;

use crate::control::Refusal;
use crate::store::StoreError;

/// Returns the problem for a refusal.
pub(crate) fn problem(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Rejected(rejection) => rejected(&rejection),
        Refusal::Log(LogError::Full(what)) => disk_full(&what),
        Refusal::Log(error) => Problem::new(ProblemCode::Internal, error.to_string()),
        Refusal::Ending => {
            Problem::new(ProblemCode::ShuttingDown, "the daemon is ending and takes nothing new")
                .with_fix("start it again (`divvy up`) and repeat the request")
        }
    }
}

/// The disk is full: nothing can be written.
pub(crate) fn disk_full(what: &str) -> Problem {
    Problem::new(ProblemCode::DiskFull, format!("{what}. Nothing was changed; running jobs go on"))
        .with_fix("make room on the disk of the state directory, then repeat the request")
}

/// Returns the problem with a file of the daemon's own.
pub(crate) fn own_file(error: &std::io::Error) -> Problem {
    use std::io::ErrorKind as K;
    match error.kind() {
        K::StorageFull | K::QuotaExceeded | K::FileTooLarge => {
            disk_full(&format!("the state directory cannot be written: {error}"))
        }
        _ => Problem::new(ProblemCode::Internal, format!("the state directory cannot be used: {error}")),
    }
}

/// Returns the problem that history cannot be read.
pub(crate) fn store(error: &StoreError) -> Problem {
    Problem::new(ProblemCode::Internal, error.to_string())
}

/// There is no such job, as far as the user may know.
pub(crate) fn no_such_job(id: &str) -> Problem {
    Problem::new(ProblemCode::NoSuchJob, format!("there is no job {id}"))
        .with_fix("`divvy ps -a` lists all jobs")
}

fn rejected(rejection: &Rejection) -> Problem {
    use ProblemCode as C;
    let said = |code| Problem::new(code, rejection.to_string()).with_reason(rejection.reason_code());
    match rejection {
        Rejection::UnknownQueue { .. } => {
            said(C::UnknownQueue).with_field("queue").with_fix("name one that is there: `divvy queues`")
        }
        Rejection::NotAMember { .. } => said(C::NotMember)
            .with_field("queue")
            .with_fix("use another queue (`divvy queues`), or ask an administrator"),
        Rejection::BeyondQueue { what, .. } => said(C::BadSpec)
            .with_field(if *what == "priority" { "priority" } else { "time_limit" })
            .with_fix("ask for less, or use another queue (`divvy queues`)"),
        Rejection::BeyondArrays { .. } => said(C::BadSpec)
            .with_field("array")
            .with_fix("submit a smaller array, or use another queue (`divvy queues`)"),
        Rejection::NoLeave { queue, .. } => said(C::BadSpec).with_field("priority").with_fix(format!(
            "ask for `high`, or have an administrator allow it: `divvy queues set {queue} --max-priority urgent`"
        )),
        Rejection::QueueFull { .. } => said(C::Conflict)
            .with_field("queue")
            .with_fix("wait until jobs of the queue have ended, or use another queue (`divvy queues`)"),
        // No machine that might be added makes it possible.
        Rejection::CannotFit { reason: reason @ Reason::Unsupported(_), .. } => {
            said(C::CannotFit).with_fix(reason.fix())
        }
        Rejection::CannotFit { reason, .. } => said(C::CannotFit).with_fix(format!(
            "{}; or keep it waiting for new machines with --wait-for-capacity",
            reason.fix()
        )),
        Rejection::UnknownDependency(_) | Rejection::HopelessDependency(_) => {
            said(C::BadSpec).with_field("after")
        }
        Rejection::Repeated(_) => said(C::Conflict),
        Rejection::NoSuchJob(job) => no_such_job(&job.to_string()),
        Rejection::NotYours(_) => said(C::NotYours),
        Rejection::NotAdmin => said(C::NotMember).with_fix("ask root, or a member of the group divvy"),
        Rejection::HeldByAdmin(_) => {
            said(C::NotMember).with_fix("ask who administers its queue (`divvy queues -o wide`), or the pool")
        }
        Rejection::WrongState { .. }
        | Rejection::QueueInUse { .. }
        | Rejection::QueueReserved { .. }
        | Rejection::NoSuchNode(_) => said(C::Conflict),
        Rejection::BadSpec { field, what } => Problem::new(C::BadSpec, what.clone()).with_field(*field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_new_machines_could_bring_may_be_waited_for() {
        let fix = |reason| {
            let there = String::new();
            rejected(&Rejection::CannotFit { reason, there }).fix.unwrap()
        };
        assert!(!fix(Reason::Unsupported("shares of a GPU".into())).contains("wait"));
        assert!(fix(Reason::TooManyTasks(3, 2)).contains("--wait-for-capacity"));
    }

    #[test]
    fn a_refusal_names_the_reason_of_which_there_is_a_page() {
        let (user, queue) = ("bob".to_owned(), "research".to_owned());
        let not_a_member = Rejection::NotAMember { user, queue, takes: vec!["user:ana".into()] };
        assert_eq!(rejected(&not_a_member).reason.unwrap(), "DV-NOT-A-MEMBER");
        let too_many = Rejection::CannotFit { reason: Reason::TooManyTasks(3, 2), there: String::new() };
        assert_eq!(rejected(&too_many).reason.unwrap(), "DV-TOO-MANY-TASKS");
        assert_eq!(rejected(&Rejection::NotAdmin).reason, None);
    }
}
