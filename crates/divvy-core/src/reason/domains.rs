//! The texts of reasons about domains: those within which everything must lie (domains of nodes for tasks, islands of a node for
//! devices), and those over which tasks must be spread.

use std::fmt;

use super::{Reason, plural};

/// The cheapest thing that someone can do about it.
pub(super) fn fix(reason: &Reason) -> String {
    match reason {
        Reason::NoDomain(level, _, 0) => {
            format!("ask for a level that the pool's nodes have, or only prefer one {level}")
        }
        Reason::NoDomain(level, tasks, most) if most < tasks => {
            format!(
                "ask for at most {most} task{} within one {level}, or only prefer one {level}",
                plural(*most)
            )
        }
        Reason::NoDomain(level, ..) => {
            format!("wait for running jobs to end, or only prefer one {level} instead of requiring it")
        }
        Reason::NoIsland(level, asked, most) if most < asked => match most {
            0 | 1 => format!("only prefer {level} instead of requiring it"),
            most => format!("ask for at most {most} GPUs per task, or only prefer {level}"),
        },
        Reason::NoIsland(level, ..) => {
            format!("wait for running jobs to end, or only prefer {level} instead of requiring it")
        }
        Reason::NotSpread(level, _, _, 0) => {
            format!("spread over a level that the pool's nodes have, or do not require it over {level}")
        }
        Reason::NotSpread(level, most, tasks, held) => {
            let first = match held < tasks {
                true => format!("ask for at most {held} task{}", plural(*held)),
                false => "wait for running jobs to end".to_owned(),
            };
            format!("{first}, let more than {most} lie in one {level}, or do not require it")
        }
        other => other.code().to_owned(),
    }
}

/// Writes the text of the reason.
pub(super) fn text(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
    match reason {
        Reason::NoDomain(level, tasks, most) => {
            let tasks_text = format!("{tasks} task{}", plural(*tasks));
            match most < tasks {
                true => write!(f, "{tasks_text} must lie within one {level}; none holds more than {most}"),
                false => write!(f, "no {level} has room for {tasks_text} that must lie within one"),
            }
        }
        Reason::NoIsland(level, asked, most) => {
            let island = level.island();
            match most < asked {
                true => write!(
                    f,
                    "{asked} GPUs of a task must lie within one {island}; none has more than {most} that would do"
                ),
                false => write!(
                    f,
                    "no {island} has {asked} GPUs free that would do, and a task's must lie within one"
                ),
            }
        }
        Reason::NotSpread(level, most, tasks, held) => {
            write!(f, "of {tasks} task{} no more than {most} may lie in one {level}; ", plural(*tasks))?;
            match held < tasks {
                true => write!(f, "the empty pool holds {held} so"),
                false => f.write_str("there is no room for all of them so"),
            }
        }
        other => f.write_str(other.code()),
    }
}
