//! Peers' cases before the core: small ones of our own, which show each outcome, and the shared suites, none of which may break it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use divvy_sim::suite::{self, Judged, Must, Report};
use expect_test::expect;

fn run(path: &Path) -> Report {
    let text = std::fs::read_to_string(path).unwrap();
    let cases = suite::read(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    suite::run(&cases, None, &|| ()).unwrap()
}

fn own(name: &str) -> Report {
    run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/suites").join(name))
}

fn table(report: &Report) -> String {
    let line = |case: &Judged| {
        let likeness = format!("{}/{}", case.prefer.matched, case.prefer.of);
        format!("{} {:?} {likeness} {} {}\n", case.id, case.must, case.got, case.text)
    };
    report.cases.iter().map(line).collect()
}

#[test]
fn cases_of_jobs_and_queues_pass_fail_or_name_the_missing_word() {
    expect![[r#"
        own/starts Pass 1/2 {"p":{"start":1},"r":{"keep":1}} 
        own/either-of-two Pass 2/2 {"a":{"start":1},"b":{"wait":1}} 
        own/gang-at-rest Pass 0/0 {"g":{"start":2},"l":{"leaving":1}} 
        own/cannot-be Fail 0/0 {"a":{"wait":1}} a: got wait, wanted start
        own/partition Unsupported 0/0 null no word for partitions (MIG)
        own/unheard-of Unsupported 0/0 null no word for the field jobs.0.moon_phase
        own/after-one-that-leaves Pass 0/0 {"a":{"start_later":1},"b":{"wait":1},"l":{"leaving":1}} 
        own/memory-of-unlike-devices Pass 0/0 {"g":{"start":2},"p":{"start":1},"r":{"keep":1}} 
        own/a-broken-gang-beside-others Pass 0/0 {"p":{"wait":1},"r":{"keep":1,"start":1}} 
        own/a-gang-with-a-stuck-task Pass 0/0 {"p":{"start":1},"r":{"evict":1,"leaving":1}} 
        own/more-deserved-below-than-above Pass 0/0 {"f":{"keep":1},"p":{"wait":1},"r":{"keep":1}} 
        own/the-odd-one-is-for-the-older Pass 0/0 {"o":{"keep":1},"p":{"start_later":1},"y0":{"keep":1},"y1":{"evict":1}} 
    "#]]
    .assert_eq(&table(&own("kai.json")));
}

#[test]
fn cases_of_flavors_and_quotas_are_staged_as_devices_and_limits() {
    expect![[r#"
        own/second-flavor Pass 1/1 {"p":{"start":1},"r":{"keep":1}} 
        own/borrow-limit Pass 0/0 {"large":{"wait":1},"runs":{"keep":1},"small":{"start":1}} 
        own/fits Pass 0/0 {"fits":true,"needs_eviction":false} 
        own/available Pass 0/0 [{"amount":2000,"flavor":"default","queue":"a","resource":"cpu","when_empty":false},{"amount":3000,"flavor":"default","queue":"a","resource":"cpu","when_empty":true},{"amount":2000,"flavor":"default","queue":"all","resource":"cpu","when_empty":false},{"amount":3000,"flavor":"default","queue":"all","resource":"cpu","when_empty":true},{"amount":5000,"flavor":"default","queue":"b","resource":"cpu","when_empty":false},{"amount":6000,"flavor":"default","queue":"b","resource":"cpu","when_empty":true}] 
        own/shares Pass 0/0 [{"borrowing":true,"node":"a","share_permille":112},{"borrowing":false,"node":"all","share_permille":0},{"borrowing":false,"node":"b","share_permille":0},{"borrowing":true,"node":"c","share_permille":"infinite"}] 
        own/two-amounts-of-a-flavor Pass 1/1 {"a":{"start":1},"b":{"wait":1}} 
        own/flavors-that-share-a-node Pass 0/0 {"a":{"start":1},"b":{"wait":1}} 
        own/quota-of-tasks Pass 0/0 {"a":{"start":1},"b":{"wait":1}} 
        own/one-flavor-for-both Pass 0/0 {"fits":false,"needs_eviction":false} 
        own/chosen-flavor Pass 0/0 {"high":{"keep":1},"low":{"keep":1},"p":{"wait":1}} 
        own/beside-others-of-a-flavor Pass 0/0 {"p":{"start":1}} 
        own/beside-odd-amounts Pass 0/0 {"p":{"wait":1}} 
        own/beside-an-odd-number Pass 0/0 {"p":{"wait":1}} 
        own/without-a-queue Pass 1/1 [{"count":2,"fits":true,"nodes":["y","y"],"podset":"main"}] 
        own/trees-apart Pass 0/0 [{"amount":4000,"flavor":"default","queue":"apart","resource":"cpu","when_empty":false},{"amount":5000,"flavor":"default","queue":"apart","resource":"cpu","when_empty":true},{"amount":0,"flavor":"default","queue":"holds","resource":"cpu","when_empty":false},{"amount":2000,"flavor":"default","queue":"holds","resource":"cpu","when_empty":true},{"amount":5000,"flavor":"default","queue":"keeps","resource":"cpu","when_empty":false},{"amount":8000,"flavor":"default","queue":"keeps","resource":"cpu","when_empty":true},{"amount":0,"flavor":"default","queue":"one","resource":"cpu","when_empty":false},{"amount":2000,"flavor":"default","queue":"one","resource":"cpu","when_empty":true},{"amount":4000,"flavor":"default","queue":"other","resource":"cpu","when_empty":false},{"amount":5000,"flavor":"default","queue":"other","resource":"cpu","when_empty":true}] 
        own/start-in-a-tree-apart Pass 0/0 {"a":{"keep":1},"h":{"keep":1},"p":{"start":1}} 
        own/a-queue-named-like-its-cohort Pass 0/0 {"a":{"start":1}} 
        own/a-node-of-which-too-much-is-held Pass 0/0 {"p":{"wait":1},"r":{"keep":1}} 
    "#]]
    .assert_eq(&table(&own("kueue.json")));
}

#[test]
fn what_did_not_pass_is_counted_as_failed_whether_or_not_there_was_a_word_for_it() {
    let report = own("kai.json");
    assert_eq!((report.passed, report.failed, report.unsupported), (9, 3, 2));
}

#[test]
fn a_policy_that_is_given_takes_the_place_of_the_one_built_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/suites/kueue.json");
    let cases = suite::read(&std::fs::read_to_string(path).unwrap()).unwrap();
    let outcome = |policy: &str| {
        let report = suite::run(&cases, Some(&suite::read_policy(policy).unwrap()), &|| ()).unwrap();
        report.cases.into_iter().find(|case| case.id == "own/borrow-limit").map(|case| case.must)
    };
    // The small job starts although the large one before it cannot yet, unless jobs start strictly in order.
    assert_eq!(outcome("strict: false"), Some(Must::Pass));
    assert_eq!(outcome("strict: true"), Some(Must::Fail));
}

#[test]
fn a_case_is_answered_the_same_whatever_it_is_called_and_expects() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/suites/kai.json");
    let text = std::fs::read_to_string(path).unwrap();
    let renamed =
        text.replace("own/", "other/").replace("\"start\"", "\"wait\"").replace("\"plain\"", "\"peer\"");
    let answers = |text: &str| -> Vec<_> {
        let report = suite::run(&suite::read(text).unwrap(), None, &|| ()).unwrap();
        report.cases.into_iter().map(|case| case.got).collect()
    };
    assert_eq!(answers(&text), answers(&renamed));
}

/// For each suite and strength: how many pass, how many there are, how many of these have no word.
type Counts = BTreeMap<(String, String), (usize, usize, usize)>;

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_cases =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cases-"));
    let mut files: Vec<PathBuf> = entries.filter(is_cases).collect();
    files.sort();
    files
}

#[test]
fn every_case_of_the_shared_suites_is_answered_and_no_fewer_pass_than_before() {
    let Some(folder) = divvy_sim::testdata::shared("suites") else { return };
    let mut counts = Counts::new();
    for suite in ["kai", "kueue", "dra"] {
        for file in files(&folder.join(suite)) {
            let report = run(&file);
            assert_eq!(report.passed + report.failed, report.cases.len(), "{}", file.display());
            for case in &report.cases {
                assert_eq!(case.text.is_empty(), case.must == Must::Pass, "{}: {}", case.id, case.text);
                assert!(case.prefer.matched <= case.prefer.of, "{}", case.id);
                let count = counts.entry((suite.to_owned(), case.strength.clone())).or_default();
                count.0 += usize::from(case.must == Must::Pass);
                count.1 += 1;
                count.2 += usize::from(case.must == Must::Unsupported);
            }
        }
    }
    // At least this many pass. If a change makes more pass, raise the number.
    let floor = [
        ("kai", "plain", 27),
        ("kai", "policy", 92),
        ("kueue", "must", 3),
        ("kueue", "plain", 41),
        ("kueue", "policy", 69),
        ("kueue", "peer", 23),
    ];
    for (suite, strength, least) in floor {
        let (passed, all, unsupported) = counts[&(suite.to_owned(), strength.to_owned())];
        assert!(
            passed >= least,
            "{suite} {strength}: {passed} of {all} pass ({unsupported} without a word), at least {least} did before"
        );
    }
}
