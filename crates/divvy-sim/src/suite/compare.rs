//! Compares with what must come out, leniently: a plan that starts the same jobs and takes less from those that run is as good.

use std::collections::{BTreeMap, BTreeSet};

use super::answer::{Answer, Available, JobFate, Outcome, Share, TaskFate};
use super::expected::{Expected, Fared, MustBe, Tally};

/// Checks all facts; the error is the first that does not hold, in words. Of a case without jobs there are none.
pub(super) fn must(answer: &Answer, expected: &Expected) -> Result<(), String> {
    let is_empty = matches!(answer, Answer::Fates { jobs, .. } if jobs.is_empty());
    if expected.must.is_empty() && !is_empty {
        return Err("the case states no facts of this kind".to_owned());
    }
    expected.must.iter().try_for_each(|fact| holds(answer, fact))?;
    expected.for_whom.as_ref().map_or(Ok(()), |job| gets_a_place(answer, job))
}

/// Taking less from running jobs is as good only if the same job is served.
fn gets_a_place(answer: &Answer, job: &str) -> Result<(), String> {
    let Answer::Fates { jobs, .. } = answer else { return Ok(()) };
    let fate = jobs.iter().find(|fate| fate.name == job);
    let starts = |fate: &JobFate| {
        let is_start = |task: &TaskFate| matches!(task.outcome, Outcome::Start | Outcome::StartLater);
        !fate.tasks.is_empty() && fate.tasks.iter().all(is_start)
    };
    match fate {
        Some(fate) if starts(fate) => Ok(()),
        Some(fate) => Err(format!("{job}: got {}, wanted a place", words(&tally_of(fate, false)))),
        None => Err(format!("{job}: the case has no such job")),
    }
}

fn holds(answer: &Answer, fact: &MustBe) -> Result<(), String> {
    match (fact, answer) {
        (MustBe::Class { jobs, tallies }, Answer::Fates { jobs: fates, settled }) => {
            class(fates, *settled, jobs, tallies)
        }
        (MustBe::Placement { podset, fits, count }, Answer::Placements { podsets, .. }) => {
            let got = podsets.iter().find(|got| got.podset == *podset);
            match got {
                Some(got) if got.fits == *fits && got.nodes.len() == *count => Ok(()),
                Some(got) => {
                    Err(format!("{podset}: {} of its pods get a place, wanted {count}", got.nodes.len()))
                }
                None => Err(format!("{podset}: not in the answer")),
            }
        }
        (MustBe::Choice { fits, needs_eviction }, Answer::Choice { fits: got, needs_eviction: evicts }) => {
            let words = |fits: bool, evicts: bool| match (fits, evicts) {
                (true, _) => "it fits",
                (_, true) => "it fits after evictions",
                _ => "it does not fit",
            };
            let same = (fits, needs_eviction) == (got, evicts);
            same.then_some(())
                .ok_or_else(|| format!("{}, wanted: {}", words(*got, *evicts), words(*fits, *needs_eviction)))
        }
        (MustBe::Available(want), Answer::Amounts(amounts)) => {
            let is_it = |it: &&Available| {
                (&it.queue, &it.flavor, &it.resource, it.when_empty)
                    == (&want.queue, &want.flavor, &want.resource, want.when_empty)
            };
            let got = amounts.iter().find(is_it).map(|it| it.amount);
            let (queue, resource) = (&want.queue, &want.resource);
            match got {
                Some(amount) if amount == want.amount => Ok(()),
                Some(amount) => {
                    let empty = if want.when_empty { " of an empty pool" } else { "" };
                    Err(format!("{queue} could take {amount} of {resource}{empty}, wanted {}", want.amount))
                }
                None => Err(format!("{queue}: {resource} is not in the answer")),
            }
        }
        (MustBe::Share(want), Answer::Shares(shares)) => {
            match shares.iter().find(|share| share.node == want.node) {
                Some(share) if share == want => Ok(()),
                Some(share) => {
                    let borrows = |it: &Share| if it.borrowing { "borrows" } else { "borrows nothing" };
                    let told =
                        |it: &Share| format!("a share of {}, and {}", it.permille.shown(), borrows(it));
                    Err(format!("{} has {}, wanted {}", want.node, told(share), told(want)))
                }
                None => Err(format!("{}: not in the answer", want.node)),
            }
        }
        _ => Err("the answer is of another kind than the facts".to_owned()),
    }
}

/// Checks that the jobs can be matched one to one with the tallies.
fn class(fates: &[JobFate], settled: bool, jobs: &[String], tallies: &[Tally]) -> Result<(), String> {
    let of = |name: &String| fates.iter().find(|fate| fate.name == *name);
    let fates: Vec<&JobFate> = jobs.iter().filter_map(of).collect();
    if fates.len() != jobs.len() {
        return Err(format!("{}: the case has no such job", jobs.join(", ")));
    }
    let good = |fate: &JobFate, tally: &Tally| is_as_good(fate, tally, settled);
    if tallies.len() == fates.len() && matches_all(&fates, tallies, good) {
        return Ok(());
    }
    let got: Vec<String> = fates.iter().map(|fate| words(&tally_of(fate, false))).collect();
    let want: Vec<String> = tallies.iter().map(words).collect();
    Err(format!("{}: got {}, wanted {}", jobs.join(", "), got.join(" | "), want.join(" | ")))
}

/// Whether each row can have a column of its own (by augmenting paths).
fn matches_all<R, C>(rows: &[&R], columns: &[C], good: impl Fn(&R, &C) -> bool) -> bool {
    let mut owner: Vec<Option<usize>> = vec![None; columns.len()];
    (0..rows.len()).all(|row| {
        let mut tried = BTreeSet::new();
        settle(row, &mut owner, &mut tried, &|row, column| good(rows[row], &columns[column]))
    })
}

fn settle(
    row: usize,
    owner: &mut [Option<usize>],
    tried: &mut BTreeSet<usize>,
    good: &dyn Fn(usize, usize) -> bool,
) -> bool {
    for column in 0..owner.len() {
        if !good(row, column) || !tried.insert(column) {
            continue;
        }
        let free = match owner[column] {
            None => true,
            Some(other) => settle(other, owner, tried, good),
        };
        if free {
            owner[column] = Some(row);
            return true;
        }
    }
    false
}

/// How a job's tasks fared; by group, if the case distinguishes groups.
pub(super) fn tally_of(fate: &JobFate, by_group: bool) -> Tally {
    let mut tally = Tally::new();
    for task in &fate.tasks {
        let group = task.group.clone().filter(|_| by_group);
        *tally.entry(Fared { group, outcome: task.outcome }).or_default() += 1;
    }
    tally
}

/// Whether a job fared as well as the tally has it, or better at nobody's cost.
fn is_as_good(fate: &JobFate, want: &Tally, settled: bool) -> bool {
    let by_group = want.keys().any(|fared| fared.group.is_some());
    let got = tally_of(fate, by_group);
    let groups: BTreeSet<&Option<String>> = want.keys().chain(got.keys()).map(|fared| &fared.group).collect();
    groups.into_iter().all(|group| {
        let sums = |tally: &Tally| -> BTreeMap<Outcome, u32> {
            let here = tally.iter().filter(|(fared, _)| fared.group == *group);
            here.map(|(fared, count)| (fared.outcome, *count)).collect()
        };
        group_is_as_good(&sums(&got), &sums(want), settled)
    })
}

fn group_is_as_good(got: &BTreeMap<Outcome, u32>, want: &BTreeMap<Outcome, u32>, settled: bool) -> bool {
    use Outcome::{Evict, Finished, Keep, Leaving, Move, Start, StartLater, Wait};
    let sum = |tally: &BTreeMap<Outcome, u32>, of: &[Outcome]| -> u32 {
        of.iter().filter_map(|outcome| tally.get(outcome)).sum()
    };
    let same = |of: &[Outcome]| sum(got, of) == sum(want, of);
    let no_more = |of: &[Outcome]| sum(got, of) <= sum(want, of);
    // Once the pool is at rest, a job that was moved runs like one that was kept.
    let hurt: &[Outcome] = if settled { &[Evict] } else { &[Evict, Move] };
    same(&[Start, StartLater])
        && same(&[Wait])
        && same(&[Leaving])
        && same(&[Finished])
        && same(&[Keep, Move, Evict])
        && no_more(&[Evict])
        && no_more(hurt)
}

fn words(tally: &Tally) -> String {
    let word = |(fared, count): (&Fared, &u32)| {
        let group = fared.group.as_ref().map(|group| format!("@{group}")).unwrap_or_default();
        if *count == 1 {
            format!("{}{group}", fared.outcome)
        } else {
            format!("{count} {}{group}", fared.outcome)
        }
    };
    tally.iter().map(word).collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::expected::Ranks;

    fn job(name: &str, outcomes: &[Outcome]) -> JobFate {
        let task = |(rank, outcome): (usize, &Outcome)| TaskFate {
            id: format!("{name}-{rank}"),
            group: Some(format!("g{rank}")),
            outcome: *outcome,
            node: None,
            devices: Vec::new(),
            alternative: None,
        };
        JobFate {
            name: name.into(),
            tasks: outcomes.iter().enumerate().map(task).collect(),
            podsets: Vec::new(),
            cause: None,
        }
    }

    fn tally(text: &str) -> Tally {
        serde_json::from_str(text).unwrap()
    }

    fn check(jobs: &[JobFate], tallies: &[&str]) -> Result<(), String> {
        let names: Vec<String> = jobs.iter().map(|job| job.name.clone()).collect();
        let tallies: Vec<Tally> = tallies.iter().map(|text| tally(text)).collect();
        class(jobs, false, &names, &tallies)
    }

    #[test]
    fn like_jobs_may_share_their_fates_in_any_order() {
        use Outcome::{Evict, Keep, Wait};
        let jobs = [job("a", &[Keep]), job("b", &[Evict]), job("c", &[Wait])];
        assert_eq!(check(&jobs, &[r#"{"wait": 1}"#, r#"{"evict": 1}"#, r#"{"keep": 1}"#]), Ok(()));
        let wrong = check(&jobs, &[r#"{"wait": 1}"#, r#"{"keep": 1}"#, r#"{"keep": 1}"#]);
        assert_eq!(wrong.unwrap_err(), "a, b, c: got keep | evict | wait, wanted wait | keep | keep");
    }

    #[test]
    fn a_match_is_found_where_the_first_guess_would_block_it() {
        use Outcome::{Evict, Keep};
        // `a` would do for either tally, `b` only for the second.
        let jobs = [job("a", &[Keep]), job("b", &[Evict])];
        assert_eq!(check(&jobs, &[r#"{"evict": 1}"#, r#"{"keep": 1}"#]), Ok(()));
    }

    #[test]
    fn who_runs_may_fare_better_than_expected_and_who_waits_may_not() {
        use Outcome::{Evict, Keep, Move, Start, StartLater, Wait};
        assert_eq!(check(&[job("a", &[Keep])], &[r#"{"evict": 1}"#]), Ok(()));
        assert_eq!(check(&[job("a", &[Move])], &[r#"{"evict": 1}"#]), Ok(()));
        assert!(check(&[job("a", &[Move])], &[r#"{"keep": 1}"#]).is_err());
        assert!(check(&[job("a", &[Evict])], &[r#"{"move": 1}"#]).is_err());
        assert_eq!(check(&[job("a", &[Start])], &[r#"{"start_later": 1}"#]), Ok(()));
        assert_eq!(check(&[job("a", &[StartLater])], &[r#"{"start": 1}"#]), Ok(()));
        assert!(check(&[job("a", &[Start])], &[r#"{"wait": 1}"#]).is_err());
        assert!(check(&[job("a", &[Wait])], &[r#"{"start": 1}"#]).is_err());
    }

    #[test]
    fn to_stop_nobody_is_as_good_only_if_the_one_for_whom_they_go_gets_a_place() {
        use Outcome::{Keep, StartLater, Wait};
        let expected = |tallies: &str| {
            let text =
                format!(r#"{{"strength": "policy", "must": [{{"jobs": ["a"], "tallies": [{tallies}]}}]}}"#);
            crate::suite::expected::read(serde_json::from_str(&text).unwrap(), Some("in"), &Ranks::new())
                .unwrap()
        };
        let answer =
            |outcome| Answer::Fates { jobs: vec![job("a", &[Keep]), job("in", &[outcome])], settled: false };
        let evicts = expected(r#"{"evict": 1}"#);
        assert_eq!(must(&answer(StartLater), &evicts), Ok(()));
        assert_eq!(must(&answer(Wait), &evicts).unwrap_err(), "in: got wait, wanted a place");
        // Where no job is to go, it may wait.
        assert_eq!(must(&answer(Wait), &expected(r#"{"keep": 1}"#)), Ok(()));
    }

    #[test]
    fn which_of_those_of_one_queue_and_priority_go_is_the_peers_choice_where_the_case_says_so() {
        use Outcome::{Evict, Keep};
        let must =
            r#"[{"jobs": ["a"], "tallies": [{"evict": 1}]}, {"jobs": ["b"], "tallies": [{"keep": 1}]}]"#;
        let ranks =
            |priority| Ranks::from([("a".into(), ("q".into(), 0)), ("b".into(), ("q".into(), priority))]);
        let expected = |specific: &str, ranks: &Ranks| {
            let text = format!(r#"{{"strength": "policy", "must": {must}, "peer_specific": {specific}}}"#);
            crate::suite::expected::read(serde_json::from_str(&text).unwrap(), None, ranks).unwrap()
        };
        let answer = Answer::Fates { jobs: vec![job("a", &[Keep]), job("b", &[Evict])], settled: false };
        assert_eq!(super::must(&answer, &expected(r#"["victim_choice"]"#, &ranks(0))), Ok(()));
        assert!(super::must(&answer, &expected(r#"["victim_choice"]"#, &ranks(1))).is_err());
        assert!(super::must(&answer, &expected("[]", &ranks(0))).is_err());
    }

    #[test]
    fn groups_are_told_apart_where_the_case_names_them() {
        use Outcome::{Start, Wait};
        let jobs = [job("a", &[Start, Wait])];
        assert_eq!(check(&jobs, &[r#"{"start@g0": 1, "wait@g1": 1}"#]), Ok(()));
        assert!(check(&jobs, &[r#"{"start@g1": 1, "wait@g0": 1}"#]).is_err());
        assert_eq!(check(&jobs, &[r#"{"start": 1, "wait": 1}"#]), Ok(()));
    }
}
