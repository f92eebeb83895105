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

/// What the administrator of `lab` is told, who puts a file in force in a pool of these queues; nothing if it is taken.
fn told(before: &str, after: &str, policy: &str) -> String {
    let mut pool = Scenario::new();
    pool.line(&format!("policy {{{policy}}}")).unwrap();
    pool.line("node n1 8xh100").unwrap();
    set(&mut pool, before, "root").unwrap();
    set(&mut pool, after, "eva").err().map(|refused| refused.to_string()).unwrap_or_default()
}

#[test]
fn what_is_given_below_a_queue_counts_at_every_depth_and_in_gpu_hours() {
    let lab = "queues:\n  default:\n  lab: {guarantee: 4, lend: 0, admins: [user:eva]}\n  lab/x:\n";
    let more = |of: &str, how: &str| {
        format!(
            "guarantee: more {of} is guaranteed below lab than to it{how}: lower it, or ask an administrator"
        )
    };
    let hours = ", with GPU-hours as the GPUs that make them up";
    for (below, refused) in [
        ("lab/x: {guarantee: {gpu_hours: 672, every: week}}", String::new()),
        ("lab/x: {guarantee: {gpu_hours: 1000, every: week}}", more("any", hours)),
        (
            "lab/x: {guarantee: {any: 3, gpu_hours: 672, every: week}}\n  lab/y: {guarantee: 1}",
            more("any", hours),
        ),
        ("lab/x:\n  lab/n: {}\n  lab/n/m: {guarantee: 4}", String::new()),
        ("lab/x:\n  lab/n: {}\n  lab/n/m: {guarantee: 6}", more("any", "")),
        ("lab/x: {guarantee: 1}\n  lab/n/m/o: {guarantee: 4}", more("any", "")),
        ("lab/x/y: {guarantee: 2}\n  lab/x: {guarantee: 3}\n  lab/z: {guarantee: 1}", String::new()),
        ("lab/x: {guarantee: unlimited}", more("any", "")),
        ("lab/x: {guarantee: {h100: 1}}", more("h100", "")),
    ] {
        assert_eq!(told(lab, &lab.replace("lab/x:", below), ""), refused, "{below}");
    }
    let of_hours = lab.replace("guarantee: 4", "guarantee: {gpu_hours: 1000, every: week}");
    for (below, refused) in [
        ("lab/x: {guarantee: {gpu_hours: 800, every: week}}", String::new()),
        ("lab/x: {guarantee: 2}", more("any", "")),
    ] {
        assert_eq!(told(&of_hours, &of_hours.replace("lab/x:", below), ""), refused, "{below}");
    }
}

#[test]
fn what_nodes_below_a_queue_have_is_no_part_of_what_it_is_guaranteed() {
    let before =
        "queues:\n  default:\n  lab: {guarantee: 2, admins: [user:eva]}\n  lab/own: {nodes: n1, lend: 0}\n";
    let below = |text: &str| told(before, &format!("{before}{text}"), "");
    assert_eq!(below("  lab/own/a: {guarantee: 6}\n  lab/b: {guarantee: 2}\n"), "");
    assert!(below("  lab/own/a: {guarantee: 6}\n  lab/b: {guarantee: 3}\n").contains("more any"));
}

#[test]
fn who_administers_a_queue_gives_no_right_over_others_that_it_has_not() {
    let lab = "queues:\n  default:\n  lab: {guarantee: 4, admins: [user:eva]}\n  lab/x:\n";
    let has_not = |field: &str, said: &str| {
        format!("{field}: lab/x would have {field}: {said}, which lab has not: ask an administrator")
    };
    for (lab_has, x_had, x_gets, policy, refused) in [
        ("", "", "borrow_evicts: lower", "", has_not("borrow_evicts", "lower")),
        ("", "", "borrow_evicts: {lower: 5}", "", has_not("borrow_evicts", "lower=5")),
        ("", "", "borrow_evicts: never", "", String::new()),
        ("borrow_evicts: never", "", "borrow_evicts: due", "", String::new()),
        ("borrow_evicts: lower", "", "borrow_evicts: {lower: 5}", "", String::new()),
        (
            "borrow_evicts: lower",
            "",
            "borrow_evicts: due_or_lower",
            "",
            has_not("borrow_evicts", "due_or_lower"),
        ),
        ("", "", "borrow_evicts: due", "borrow_evicts: false", has_not("borrow_evicts", "true")),
        ("", "", "borrow_evicts: lower", "borrow_evicts: due_or_lower", String::new()),
        ("", "borrow_evicts: lower", "borrow_evicts: lower, weight: 2", "", String::new()),
        ("", "", "reclaim: any", "reclaim: lower", has_not("reclaim", "any")),
        ("", "", "reclaim: never", "reclaim: lower", String::new()),
        ("reclaim: any", "", "reclaim: any", "reclaim: lower", String::new()),
    ] {
        let comma = if lab_has.is_empty() { "" } else { ", " };
        let before = lab.replace("guarantee: 4", &format!("guarantee: 4{comma}{lab_has}"));
        let before = before.replace("lab/x:", &format!("lab/x: {{{x_had}}}"));
        let after = before.replace(&format!("lab/x: {{{x_had}}}"), &format!("lab/x: {{{x_gets}}}"));
        assert_eq!(told(&before, &after, policy), refused, "{before}{after}{policy}");
    }
}

#[test]
fn who_administers_a_queue_gives_no_priority_above_those_that_it_allows() {
    let lab = "queues:\n  default:\n  lab: {admins: [user:eva]}\n  lab/x:\n";
    let most = |most: i32| {
        format!(
            "max_priority: the highest priority that lab/x can be given here is {most}: write no more, or ask an administrator"
        )
    };
    for (lab_has, x_had, x_gets, refused) in [
        ("", "", "max_priority: 999", String::new()),
        ("", "", "max_priority: urgent", most(999)),
        ("", "", "users: {max_priority: urgent}", most(999)),
        ("max_priority: high, ", "", "max_priority: 101", most(100)),
        ("max_priority: urgent, ", "", "max_priority: urgent", String::new()),
        ("", "max_priority: urgent", "max_priority: urgent, weight: 2", String::new()),
        ("", "max_priority: low", "weight: 2", String::new()),
    ] {
        let before = lab.replace("{admins", &format!("{{{lab_has}admins"));
        let before = before.replace("lab/x:", &format!("lab/x: {{{x_had}}}"));
        let after = before.replace(&format!("lab/x: {{{x_had}}}"), &format!("lab/x: {{{x_gets}}}"));
        assert_eq!(told(&before, &after, ""), refused, "{before}{after}");
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
    assert_eq!(release("ana").unwrap_err(), Rejection::HeldByAdmin(below));
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

#[test]
fn what_has_ended_has_no_work_to_save() {
    let mut pool = pool();
    pool.line("submit x other 1 user=ben").unwrap();
    pool.line("plan").unwrap();
    let job = pool.state().jobs.values().last().unwrap().id();
    let saved = |pool: &mut Scenario| take(pool, &Command::Checkpointed(job, person("ben")));
    saved(&mut pool).unwrap();
    pool.line("end x").unwrap();
    assert!(matches!(saved(&mut pool).unwrap_err(), Rejection::WrongState { .. } | Rejection::NoSuchJob(_)));
}
