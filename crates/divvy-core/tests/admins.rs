//! Queues with administrators of their own, and queues that are the default for some users.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_core::controller::Answer;
use divvy_core::decide::{Command, Person, Rejection, Submit};
use divvy_core::id::JobId;
use divvy_core::model::job::JobSpec;
use divvy_core::model::queue::{Queue, Settings, parse};
use divvy_core::scenario::Scenario;

const QUEUES: &str = "
queues:
  default:
  lab: {guarantee: 8, admins: [user:eva], default_for: [user:ana]}
  lab/vision: {guarantee: 4, weight: 2}
  lab/nlp: {guarantee: 2}
  other: {guarantee: 4, default_for: [user:ben]}
";

fn queues(text: &str) -> Vec<Queue> {
    parse(text).unwrap().queues
}

fn pool() -> Scenario {
    let mut scenario = Scenario::new();
    scenario.line("node n1 1xh100").unwrap();
    set(&mut scenario, QUEUES, "root").unwrap();
    scenario
}

fn person(name: &str) -> Person {
    if name == "root" { Person::administrator(name) } else { Person::user(name) }
}

fn take(pool: &mut Scenario, command: &Command) -> Result<Answer, Rejection> {
    let now = pool.now();
    pool.controller().take(command, now).unwrap()
}

fn set(pool: &mut Scenario, text: &str, by: &str) -> Result<(), Rejection> {
    take(pool, &Command::SetQueues(queues(text), person(by))).map(drop)
}

/// Submits to a queue, or to none that is named.
fn submit(pool: &mut Scenario, user: &str, queue: &str) -> JobId {
    pool.line(&format!("submit as{}{user} default 1 user={user}", pool.now().0)).unwrap();
    let job = pool.controller().state().jobs.values().last().unwrap().clone();
    let spec = JobSpec { queue: queue.to_owned(), ..(*job.spec).clone() };
    let submit = Submit {
        owner: job.owner,
        spec: Arc::new(spec),
        requeue_said: true,
        array: None,
        token: None,
        held: false,
        history: BTreeMap::new(),
    };
    pool.line("pass 1s").unwrap();
    JobId::single(take(pool, &Command::Submit(Box::new(submit))).unwrap().job.unwrap())
}

#[test]
fn what_an_administrator_of_the_pool_guaranteed_below_a_queue_stays_when_its_own_changes_other_things() {
    let before =
        "queues:\n  default:\n  lab: {weight: 2, admins: [user:eva]}\n  lab/vision: {guarantee: 4}\n";
    for (to, is_taken) in [("4, weight: 3", true), ("3", true), ("5", false), ("{any: 4, cpu: 1}", false)] {
        let mut pool = Scenario::new();
        pool.line("node n1 1xh100").unwrap();
        set(&mut pool, before, "root").unwrap();
        let text = before.replace("guarantee: 4", &format!("guarantee: {to}"));
        assert_eq!(set(&mut pool, &text, "eva").is_ok(), is_taken, "{to}");
    }
}

#[test]
fn who_administers_a_queue_sets_those_below_it_and_no_others() {
    let mut pool = pool();
    let changed = |from: &str, to: &str| QUEUES.replace(from, to);
    for (text, refused) in [
        (changed("lab/vision: {guarantee: 4", "lab/vision: {guarantee: 6"), None),
        (changed("lab/vision: {guarantee: 4", "lab/vision: {guarantee: 7"), Some("bad-spec")),
        (changed("  other:", "  lab/audio: {limit: 2}\n  other:"), None),
        (changed("  lab/nlp: {guarantee: 2}\n", ""), None),
        (changed("lab: {guarantee: 8", "lab: {guarantee: 9"), Some("not-admin")),
        (changed("other: {guarantee: 4", "other: {guarantee: 2"), Some("not-admin")),
        (changed("  other:", "  mine: {}\n  other:"), Some("not-admin")),
        (changed("weight: 2}", "weight: 2, default_for: [user:ben]}"), Some("not-admin")),
        (changed("  other:", "  lab/audio: {nodes: n1, lend: 0}\n  other:"), Some("not-admin")),
    ] {
        let taken = set(&mut pool, &text, "eva");
        assert_eq!(taken.as_ref().err().map(Rejection::code), refused, "{text}");
        set(&mut pool, QUEUES, "root").unwrap();
        assert_eq!(set(&mut pool, &text, "ana"), Err(Rejection::NotAdmin), "{text}");
    }
}

#[test]
fn who_administers_a_queue_may_repeat_the_policy_in_force_and_not_change_it() {
    let mut pool = pool();
    let mut settings = parse(&QUEUES.replace("weight: 2", "weight: 3")).unwrap();
    settings.policy = Some(pool.state().policy.clone());
    let mut apply = |settings: &Settings, by: &str| {
        take(&mut pool, &Command::Configure(Box::new(settings.clone()), person(by), None))
            .map(|taken| taken.events)
    };
    assert_eq!(apply(&settings, "eva"), Ok(1));
    settings.policy.as_mut().unwrap().reserve += 1;
    assert_eq!(apply(&settings, "eva"), Err(Rejection::NotAdmin));
    assert_eq!(apply(&settings, "root"), Ok(1));
}

#[test]
fn who_administers_a_queue_ends_holds_and_releases_its_jobs() {
    let mut pool = pool();
    let below = submit(&mut pool, "ana", "lab/vision");
    let beside = submit(&mut pool, "ben", "other");
    let mut hold = |job, by| take(&mut pool, &Command::Hold(job, person(by)));
    assert_eq!(hold(below, "ben").unwrap_err(), Rejection::NotYours(below));
    assert_eq!(hold(beside, "eva").unwrap_err(), Rejection::NotYours(beside));
    hold(below, "eva").unwrap();
    let mut release = |by| take(&mut pool, &Command::Release(below, person(by)));
    assert_eq!(release("ana").unwrap_err(), Rejection::NotAdmin);
    release("eva").unwrap();
    take(&mut pool, &Command::Cancel(below, person("eva"))).unwrap();
}

#[test]
fn jobs_that_name_no_queue_go_where_their_users_do() {
    let mut pool = pool();
    let jobs = ["ana", "ben", "eva"].map(|user| submit(&mut pool, user, ""));
    let mut queue = |job: JobId| pool.controller().state().jobs[&job.number].spec.queue.clone();
    assert_eq!(jobs.map(&mut queue), ["lab", "other", "default"]);
}
