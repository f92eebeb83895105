//! Which jobs are alike: how long finished jobs ran tells how long similar jobs will run.

use divvy_core::state::Job;
use divvy_insight::Likeness;

/// How many finished jobs the forecast learns from: the latest ones.
pub(crate) const LEARNED_FROM: usize = 5_000;

/// Returns what a job has in common with others.
pub(crate) fn likeness(job: &Job) -> Likeness {
    named_alike(Likeness {
        queue: job.spec.queue.clone(),
        user: job.owner.name.clone(),
        name: job.spec.name.clone(),
        devices: job.spec.devices_asked(),
    })
}

/// Treats jobs whose names differ only in their numbers as alike: `train-17` and `train-18`.
pub(crate) fn named_alike(job: Likeness) -> Likeness {
    let is_number = |letter: char| letter.is_ascii_digit() || matches!(letter, '-' | '_' | '.');
    let name = job.name.trim_end_matches(is_number).to_owned();
    Likeness { name, ..job }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_their_numbers_alone_are_alike() {
        let named = |name: &str| {
            let (queue, user) = ("q".to_owned(), "ana".to_owned());
            named_alike(Likeness { queue, user, name: name.into(), devices: 1 }).name
        };
        assert_eq!(
            ["train-17", "train-18", "train", "llama3.1", "17"].map(named),
            ["train", "train", "train", "llama", ""]
        );
    }
}
