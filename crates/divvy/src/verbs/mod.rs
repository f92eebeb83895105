//! What can be done, a file per verb.

pub(crate) mod apply;
pub(crate) mod change;
#[cfg(feature = "kubernetes")]
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod explain;
pub(crate) mod gpus;
pub(crate) mod history;
#[cfg(feature = "kubernetes")]
pub(crate) mod kube;
pub(crate) mod logs;
pub(crate) mod ps;
pub(crate) mod queues;
pub(crate) mod reserve;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod sim;
pub(crate) mod tasks;
pub(crate) mod top;
pub(crate) mod up;
pub(crate) mod wait;

/// Reads the name of a job; an empty text is an error.
fn job(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a job has a number: 12, or 12_3 for a member of an array (divvy ps lists them)".into()),
        _ => Ok(text.to_owned()),
    }
}
