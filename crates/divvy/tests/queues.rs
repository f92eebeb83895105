//! Changing queues, looking back at the changes, and undoing them, with the real daemon.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod pool;

use pool::Pool;
use serde_json::{Value, json};

const FILE: &str = "queues:
  lab:        {guarantee: 6, limit: 8}
  lab/vision: {guarantee: {h100: 4}, weight: 2, submit: ['user:ana']}
  default:
policy: {min_runtime: 10m}
";

/// A pool in which that file is in force.
fn with_queues() -> Pool {
    let pool = Pool::start();
    std::fs::write(pool.work().join("queues.yaml"), FILE).unwrap();
    pool.divvy(["apply", "-f", "queues.yaml", "--note", "a lab of our own"]).ok();
    pool
}

fn yaml(pool: &Pool) -> String {
    pool.say("queues -o yaml").ok().to_owned()
}

fn changes(pool: &Pool) -> Vec<Value> {
    pool.say("queues --history -o json").json().as_array().unwrap().clone()
}

#[test]
fn one_queue_is_changed_and_all_else_stays_as_it_is() {
    let pool = with_queues();
    let said = pool.say("queues set lab/vision --limit 5,memory=64Gi --weight 3 --dry-run");
    assert!(said.ok().ends_with("dry run: nothing was changed"), "{said:?}");
    let said = pool.say("queues set lab/vision --limit 5,memory=64Gi --weight 3");
    let told = "~ lab/vision limit any: unlimited → 5\n~ lab/vision limit memory: unlimited → 64Gi\n~ lab/vision weight: 2 → 3\nin force";
    assert_eq!(said.ok(), told);
    pool.say("queues set lab/vision --limit memory=none --submit everyone").ok();
    let expected = "queues:
  default:
  lab:        {guarantee: 6, limit: 8}
  lab/vision: {guarantee: {h100: 4}, limit: 5, weight: 3}
policy: {min_runtime: 10m}";
    assert_eq!(yaml(&pool), expected);
    assert_eq!(pool.say("queues set lab/vision --weight 3").ok(), "nothing changes");
    let said = pool.say("queues set lab/asr --create --guarantee 2 --submit user:nobody-is-called-so");
    assert!(
        said.ok().contains("note: queue lab/asr: the machine has no user \"nobody-is-called-so\"\n"),
        "{said:?}"
    );
    assert!(!pool.say("queues set lab/asr --submit everyone").ok().contains("note:"));
    assert!(yaml(&pool).contains("  lab/asr:    {guarantee: 2}\n"), "{}", yaml(&pool));
    let beyond = pool.say("reserve -g 6 --queue lab/vision --for 1h");
    assert!(beyond.code == 65 && beyond.err.contains("the rest would stand idle"), "{beyond:?}");
    pool.say("reserve -g 5 --queue lab/vision --for 1h").ok();
}

#[test]
fn what_cannot_be_of_a_queue_is_refused_in_words() {
    let pool = with_queues();
    let refused = |line: &str, code: i32, why: &str| {
        let said = pool.say(line);
        assert!(said.code == code && said.err.contains(why), "{line}: {said:?}");
    };
    refused("queues set lab/vison --limit 5", 65, "there is no queue \"lab/vison\"");
    refused("queues set lab --limit 4", 65, "the limit of any of lab is below its guarantee");
    refused("queues set default --guarantee 7", 65, "are guaranteed in all");
    refused("queues set lab --limit many", 65, "is not an amount");
    refused("queues set lab --reclaim perhaps", 65, "perhaps");
    refused("queues set lab", 64, "nothing is to be changed");
    refused("queues set lab --submit ana", 65, "names nobody");
    refused("queues set lab --admins ana", 65, "admins: \"ana\" names nobody");
    refused("queues set default --nodes nosuch --lend 0", 65, "  nodes: the pool has no node \"nosuch\"");
    refused("queues set default --users false --user-limit 3", 64, "--users false removes all");
    refused("queues set default --limit memory=64", 65, "has no unit: write 16G");
    refused("queues --as-of 1", 64, "-o yaml");
    refused("queues -o yaml lab", 64, "has all queues, not one");
    refused("apply --as-of 99", 65, "there is no change 99");
    refused("apply --as-of 2001-01-01", 65, "it was made later");
    refused("apply", 64, "--file <FILE>");
    assert_eq!(changes(&pool).len(), 2);
}

#[test]
fn a_group_that_there_is_not_is_told_with_its_place() {
    let pool = Pool::start();
    let text = "queues:\n  a: {guarantee: 1}\n  b: {submit: [user:ana, group:no-such], weight: 2}\n";
    std::fs::write(pool.work().join("queues.yaml"), text).unwrap();
    let said = pool.say("apply -f queues.yaml");
    assert_eq!(said.code, 65);
    let told = "queues.yaml:3:26: a value is wrong\n  group: queue b: the machine has no group \"no-such\"";
    assert!(said.err.contains(told), "{said:?}");
}

#[test]
fn a_model_that_nobody_knows_is_told_where_it_is_named_anew() {
    let pool = Pool::start();
    let text = "queues:\n  a: {limit: {h10: 4, l4: 2, cpu: 4}, guarantee: {h100: 1}}\n  default:\nprices: {h100: 2, warp9: 1}\n";
    std::fs::write(pool.work().join("queues.yaml"), text).unwrap();
    let told = "limit of a names \"h10\", and no GPU of that name is there or known: did you mean h100?";
    for (line, notes) in
        [("apply -f queues.yaml --dry-run", 2), ("apply -f queues.yaml", 2), ("queues set a --weight 2", 0)]
    {
        let said = pool.say(line);
        let found: Vec<&str> = said.ok().lines().filter_map(|line| line.strip_prefix("note: ")).collect();
        assert_eq!(found.len(), notes, "{line}: {said:?}");
        assert!(notes == 0 || found[0] == told && found[1].starts_with("prices names \"warp9\""), "{said:?}");
    }
}

#[test]
fn the_table_fits_a_usual_terminal_and_has_budgets_where_there_are_any() {
    let pool = with_queues();
    let table = pool.say("queues");
    let head = "QUEUE       GPUS  LIMIT  GUARANTEE  DUE  BORROWED  CREDIT  RUNNING  WAITING";
    assert_eq!(table.ok().lines().next(), Some(head));
    assert!(pool.say("queues -o wide").ok().contains("BUDGET LEFT"), "all columns");
    pool.say("queues set lab --budget 0/week").ok();
    assert!(pool.say("queues").ok().contains("0.0h of 0h/week"), "{:?}", pool.say("queues"));
}

#[test]
fn every_change_says_who_when_what_and_why_and_can_be_undone() {
    let pool = with_queues();
    let first = yaml(&pool);
    pool.divvy(["queues", "set", "lab/vision", "--guarantee", "h100=2", "--note", "until Friday"]).ok();
    pool.divvy(["down"]).ok();
    pool.up();
    let told = changes(&pool);
    let notes: Vec<&Value> = told.iter().map(|change| &change["note"]).collect();
    assert_eq!(notes, [&Value::Null, &json!("a lab of our own"), &json!("until Friday")], "{told:?}");
    assert_eq!(told[2]["diff"], json!(["~ lab/vision guarantee h100: 4 → 2"]));
    assert_eq!((&told[0]["by"], &told[0]["change"]), (&json!("divvy"), &json!(1)));
    assert!(
        told[1]["diff"].as_array().unwrap().contains(&json!("~ policy min_runtime: none → 10m")),
        "{told:?}"
    );
    assert!(told[2]["at_ms"].as_i64().unwrap() > told[1]["at_ms"].as_i64().unwrap());
    let text = pool.say("queues --history -n 1");
    let lines: Vec<&str> = text.ok().lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("3  ") && lines[0].ends_with("  until Friday"),
        "{text:?}"
    );
    assert_eq!(pool.say("queues -o yaml --as-of 2").ok(), first);
    assert!(pool.say("apply --as-of 2 --dry-run").ok().starts_with("~ lab/vision guarantee h100: 2 → 4"));
    pool.say("apply --as-of 2").ok();
    assert_eq!(yaml(&pool), first);
    assert_eq!(changes(&pool).last().unwrap()["note"], "as of change 2");
    let then = told[2]["at_ms"].as_i64().unwrap();
    let then = jiff::Timestamp::from_millisecond(then).unwrap().to_string();
    pool.divvy(["apply", "--as-of", &then]).ok();
    assert_eq!(yaml(&pool), first.replace("h100: 4", "h100: 2"));
    pool.say("apply --as-of 1").ok();
    assert_eq!(yaml(&pool), "queues:\n  default:\npolicy: {}");
}

#[test]
fn the_file_that_is_written_is_the_file_that_is_taken() {
    let pool = with_queues();
    std::fs::write(pool.work().join("again.yaml"), yaml(&pool)).unwrap();
    assert_eq!(pool.say("apply -f again.yaml").ok(), "nothing changes");
    assert_eq!(changes(&pool).len(), 2);
}

#[test]
fn users_and_budgets_of_a_queue_are_set_shown_and_written_back() {
    let pool = with_queues();
    let first = yaml(&pool);
    let said =
        pool.say("queues set lab --budget 100/week --budget-carry 20 --user-weight ana=2 --user-limit 3");
    let told = "~ lab budget: none → 100 GPU-hours every week, 20 carried\n~ lab users: together → divided\n~ lab users.limit any: unlimited → 3\n~ lab users.weight ana: 1 → 2\nin force";
    assert_eq!(said.ok(), told);
    pool.say("queues set lab --user-max-time 2d --budget 50/week").ok();
    let said = "  lab:        {guarantee: 6, limit: 8, budget: {carry: 20, every: week, gpu_hours: 50}, users: {limit: 3, weight: {ana: 2}, max_time: 2d}}\n";
    assert!(yaml(&pool).contains(said), "{}", yaml(&pool));
    std::fs::write(pool.work().join("again.yaml"), yaml(&pool)).unwrap();
    assert_eq!(pool.say("apply -f again.yaml").ok(), "nothing changes");
    let rows = pool.say("queues -o json").json();
    let lab = rows.as_array().unwrap().iter().find(|row| row["queue"] == "lab").unwrap();
    assert_eq!(
        (&lab["budget_gpu_hours"], &lab["budget_left_gpu_hours"], &lab["budget_every"]),
        (&json!(50.0), &json!(50.0), &json!("week"))
    );
    assert!(pool.say("queues lab").ok().contains("50.0h of 50h/week"), "{:?}", pool.say("queues lab"));
    pool.say("queues set lab --users false --budget none").ok();
    assert_eq!(yaml(&pool), first);
}
