//! Lives that once broke a law.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::path::{Path, PathBuf};

use divvy_sim::chaos::life::Life;
use divvy_sim::chaos::live;

#[test]
fn no_kept_life_breaks_a_law_again() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/chaos");
    let mut files: Vec<PathBuf> = dir.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let life: Life = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(live(&life).violation, None, "{}: {}", file.display(), life.story);
    }
}

#[test]
fn lives_in_which_queues_have_users_and_budgets_break_no_law() {
    for seeds in [6..8, 14..16] {
        assert_eq!(divvy_sim::chaos::run(seeds, 500, 1).violations, []);
    }
}

#[test]
fn lives_in_which_jobs_are_spread_over_racks_and_nodes_break_no_law() {
    for seed in [13, 20, 27] {
        assert_eq!(divvy_sim::chaos::run(seed..seed + 1, 800, 1).violations, []);
    }
}

/// In this life a job is chosen that has not run for a long time, in a cycle that takes back a promise to another.
#[test]
fn who_was_chosen_stays_so_when_another_loses_its_promise() {
    assert_eq!(divvy_sim::chaos::run(142..143, 1500, 1).violations, []);
}

#[test]
fn lives_in_which_devices_are_joined_in_part_break_no_law() {
    for seed in [6, 13, 20, 27, 34, 41] {
        assert_eq!(divvy_sim::chaos::run(seed..seed + 1, 1000, 1).violations, []);
    }
}

/// In this life a job was passed by the job behind it in its queue, for which alone the guarantee seemed to have room, and took that
/// job's place in the next cycle.
#[test]
fn who_fits_by_his_second_alternative_is_not_passed_and_then_made_room_for() {
    assert_eq!(divvy_sim::chaos::run(713..714, 10_000, 1).violations, []);
}

/// In the first of these lives two jobs that lose all their work took each other's places under the walk, because each had outrun its
/// estimate; in the second jobs of two users' seats did, by priority within a seat and for its guarantee in turns.
#[test]
fn lives_in_which_jobs_might_take_places_in_turns_come_to_rest() {
    for seed in [563, 643] {
        assert_eq!(divvy_sim::chaos::run(seed..seed + 1, 10_000, 1).violations, []);
    }
}

/// In this life a job got what was kept for another, as that would have had room in place of a third job, which stayed.
#[test]
fn what_is_kept_for_one_is_not_had_by_others_who_might_have_gone() {
    assert_eq!(divvy_sim::chaos::run(264..265, 10_000, 1).violations, []);
}

/// In this life what was kept for a job was computed while others were counted as gone for a third, and stood so for the rest of the cycle.
#[test]
fn what_is_kept_is_told_by_who_runs() {
    assert_eq!(divvy_sim::chaos::run(1857..1858, 10_000, 1).violations, []);
}

/// In this life gangs grew on an idle node because it was due to their queue, and a job ahead of them in that queue would have taken it
/// from them in the next cycle.
#[test]
fn gangs_do_not_grow_before_those_who_would_take_it_from_them() {
    assert_eq!(divvy_sim::chaos::run(6577..6578, 10_000, 1).violations, []);
}

/// In the first of these lives a job was displaced with no other news than that tasks had started; in the second a gang that was chosen
/// because it had not run for a long time began its run when the last of its tasks that had not started was told to go.
#[test]
fn that_tasks_have_started_is_no_news_and_that_the_last_one_goes_begins_a_run() {
    for seed in [1529, 2174] {
        assert_eq!(divvy_sim::chaos::run(seed..seed + 1, 10_000, 1).violations, []);
    }
}

/// In this life an estimate turns out wrong between two cycles, so that less is kept for others: a job could go on faster there.
#[test]
fn that_an_estimate_was_wrong_is_no_news_by_which_a_job_moves() {
    assert_eq!(divvy_sim::chaos::run(54_056..54_057, 10_000, 1).violations, []);
}

/// In these lives a job that may only run near another one waits first in the one strict line of all queues, and keeps them all back.
#[test]
fn who_never_fits_keeps_back_all_queues_where_they_stand_in_one_strict_line() {
    for seed in [4627, 9948, 11_300, 12_524] {
        assert_eq!(divvy_sim::chaos::run(seed..seed + 1, 100, 1).violations, []);
    }
}
