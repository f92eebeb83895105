//! Writes the text of queues.yaml so that [`parse`] reads back exactly the same settings; defaults are left out.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Bounds, Budget, Period, Queue, Settings, Users, parse};
use crate::amount::{Amount, Limits, Resource};
use crate::model::policy::{self, Policy};

/// Keys of a queue in the order in which people think of them; others follow.
const ORDER: [&str; 6] = ["guarantee", "limit", "borrow", "lend", "weight", "priority"];

/// Paths up to this many letters are padded, so that the settings of the queues line up in one column.
const WIDEST_PADDED: usize = 32;

/// Amounts by name or a setting by name, each a value that YAML can say.
type Said = Map<String, Value>;

/// Writes queues and the planner's settings as the text of queues.yaml. The section `policy` is always there: a file that lacks it
/// would leave other settings in force.
pub fn write<'a>(queues: impl IntoIterator<Item = &'a Queue>, policy: &Policy) -> String {
    let queues: Vec<(String, Said)> =
        queues.into_iter().map(|queue| (key(&queue.path), short(said(queue)))).collect();
    let padded = queues.iter().map(|(path, _)| path.len()).filter(|length| *length <= WIDEST_PADDED);
    let width = padded.max().unwrap_or(0) + 1;
    let mut text = "queues:\n".to_owned();
    for (path, said) in queues {
        let line = match said.is_empty() {
            true => format!("  {path}:"),
            false => format!("  {:<width$} {}", format!("{path}:"), flow(&Value::Object(said))),
        };
        text += &line;
        text.push('\n');
    }
    if let Some(prices) = policy.prices.said() {
        let prices = prices.0.iter().map(|(model, price)| (model.clone(), price.to_string().into()));
        text += &format!("prices: {}\n", flow(&Value::Object(prices.collect())));
    }
    let mut policy = policy::said(&policy.spelled_out());
    policy.remove("prices");
    text + &format!("policy: {}\n", flow(&Value::Object(differs(policy, &policy::said(&Policy::default())))))
}

/// Changes some settings of a queue, with the same checks as for a file. Of amounts, the named ones change and the others stay; `null`
/// removes a setting or an amount. The error says what is wrong, and what to write.
pub fn change(queue: &Queue, settings: &BTreeMap<String, Value>) -> Result<Queue, String> {
    let mut whole = said(queue);
    say_anew(&mut whole, settings.iter());
    let text = format!("queues:\n  {}: {}\n", key(&queue.path), flow(&Value::Object(whole)));
    let Settings { mut queues, .. } = parse(&text).map_err(|bad| bad.what)?;
    queues.pop().ok_or_else(|| "nothing is said of it".into())
}

fn say_anew<'a>(whole: &mut Said, settings: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (name, value) in settings {
        if let ("users", Value::Object(others)) = (name.as_str(), value) {
            let known = whole.entry(name.clone()).or_insert_with(|| Said::new().into());
            known.as_object_mut().into_iter().for_each(|users| say_anew(users, others.iter()));
            continue;
        }
        match (whole.get_mut(name), value) {
            (_, Value::Null) => drop(whole.remove(name)),
            // These replace what was there instead of adding to it.
            (_, other) if matches!(name.as_str(), "nodes" | "borrow_evicts") => {
                drop(whole.insert(name.clone(), other.clone()))
            }
            (Some(Value::Object(amounts)), Value::Object(others)) => {
                amounts.extend(others.clone());
                // The period of GPU-hours goes with them.
                let hours_go = others.get("gpu_hours").is_some_and(Value::is_null);
                amounts.retain(|key, _| key != "every" || !hours_go || others.contains_key(key));
                amounts.retain(|_, amount| !amount.is_null());
            }
            (Some(Value::Object(amounts)), amount) => {
                amounts.insert("any".into(), amount.clone());
            }
            (_, Value::Object(others)) => {
                let amounts = others.clone().into_iter().filter(|(_, amount)| !amount.is_null());
                whole.insert(name.clone(), amounts.collect());
            }
            (_, value) => drop(whole.insert(name.clone(), value.clone())),
        }
    }
}

/// The settings of a queue that differ from their defaults; amounts by resource.
fn said(queue: &Queue) -> Said {
    let Queue {
        path,
        limit,
        guarantee,
        borrow,
        lend,
        bounds,
        submit,
        users,
        budget,
        pledge,
        admins,
        default_for,
        nodes,
        ..
    } = queue;
    let mut said = differs(object(queue), &object(&Queue::named(path)));
    for (name, limits) in [("guarantee", guarantee), ("limit", limit), ("borrow", borrow), ("lend", lend)] {
        if !limits.is_empty() {
            said.insert(name.into(), amounts(limits));
        }
    }
    if let Some(pledge) = pledge.said() {
        let whole = said.entry("guarantee").or_insert_with(|| Said::new().into());
        whole.as_object_mut().into_iter().for_each(|whole| {
            whole.insert("gpu_hours".into(), hours(pledge.milli_gpu_hours));
            whole.insert("every".into(), every(pledge.every));
        });
    }
    said.remove("pledge");
    said.remove("bounds");
    said.extend(bounds_said(bounds));
    let members = [("submit", Some(submit)), ("admins", admins.said()), ("default_for", default_for.said())];
    for (name, members) in members {
        if let Some(members) = members.filter(|members| !members.is_empty()) {
            said.insert(name.into(), members.iter().map(ToString::to_string).collect());
        }
    }
    if let Some(users) = users.said() {
        said.insert("users".into(), Value::Object(users_said(users)));
    }
    if let Some(budget) = budget.said() {
        said.insert("budget".into(), Value::Object(budget_said(budget)));
    }
    said.extend(nodes.said().map(|nodes| ("nodes".into(), serde_json::to_value(nodes).unwrap_or_default())));
    said
}

/// A queue's budget, by the keys of the file.
fn budget_said(budget: &Budget) -> Said {
    let mut said = Said::new();
    said.insert("gpu_hours".into(), hours(budget.milli_gpu_hours));
    said.insert("every".into(), every(budget.every));
    if budget.carry_milli != Some(0) {
        said.insert("carry".into(), budget.carry_milli.map_or_else(|| "all".into(), hours));
    }
    said
}

fn hours(milli: i64) -> Value {
    amount_text(&Resource::Any, Amount::Finite(milli)).into()
}

fn every(period: Period) -> Value {
    match period {
        Period::Span(span) => span.written().into(),
        named => named.to_string().into(),
    }
}

/// The settings for a queue's users, by the keys of the file.
fn users_said(users: &Users) -> Said {
    let mut said: Said = bounds_said(&users.bounds).collect();
    if !users.weight.is_empty() {
        let weights = users.weight.iter().map(|(user, weight)| (user.clone(), Value::from(*weight)));
        said.insert("weight".into(), weights.collect());
    }
    if !users.limit.is_empty() {
        said.insert("limit".into(), amounts(&users.limit));
    }
    said
}

/// What a queue allows its jobs, by the keys of the file.
fn bounds_said(bounds: &Bounds) -> impl Iterator<Item = (String, Value)> {
    let Bounds { max_priority, max_time, default_time, max_jobs } = *bounds;
    let said = [
        ("max_priority", max_priority.map(Value::from)),
        ("max_time", max_time.map(|time| time.written().into())),
        ("default_time", default_time.map(|time| time.written().into())),
        ("max_jobs", max_jobs.map(Value::from)),
    ];
    said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)))
}

/// Writes amounts that are for all GPUs alone as the plain number that stands for them.
fn short(mut said: Said) -> Said {
    for (name, value) in &mut said {
        if let ("users", Value::Object(users)) = (name.as_str(), &mut *value) {
            *users = short(std::mem::take(users));
        } else if let ("weight", Value::Object(_)) = (name.as_str(), &*value) {
            // A user may have the name `any`.
        } else if name == "nodes" {
            // So may a label.
        } else if let Value::Object(amounts) = value
            && amounts.len() == 1
            && let Some(any) = amounts.remove("any")
        {
            *value = any;
        }
    }
    said
}

fn amounts(limits: &Limits) -> Value {
    limits
        .iter()
        .map(|(resource, amount)| (resource.to_string(), Value::from(amount_text(resource, *amount))))
        .collect()
}

/// An amount as `read_amount` reads it, to the last unit.
fn amount_text(resource: &Resource, amount: Amount) -> String {
    let Amount::Finite(amount) = amount else { return "unlimited".into() };
    match resource {
        Resource::Memory | Resource::Storage => {
            let units = [("Ti", 1i64 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
            let even = units.iter().find(|(_, unit)| amount > 0 && amount % unit == 0);
            // A few bytes need their unit.
            even.map_or_else(
                || format!("{amount}{}", if amount == 0 { "" } else { "B" }),
                |(name, unit)| format!("{}{name}", amount / unit),
            )
        }
        Resource::Pods => amount.to_string(),
        _ if amount % 1000 == 0 => (amount / 1000).to_string(),
        _ => format!("{}.{:03}", amount / 1000, amount % 1000).trim_end_matches('0').to_owned(),
    }
}

fn object(settings: &impl serde::Serialize) -> Said {
    match serde_json::to_value(settings) {
        Ok(Value::Object(object)) => object,
        _ => Said::new(),
    }
}

/// Keeps the settings that differ from the usual ones.
fn differs(mut settings: Said, usual: &Said) -> Said {
    settings.retain(|name, value| usual.get(name) != Some(value));
    settings
}

/// A value in YAML's flow style, on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(object) => {
            let place = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
            let mut pairs: Vec<(&String, &Value)> = object.iter().collect();
            pairs.sort_by_key(|(name, _)| (place(name), *name));
            let pair = |(name, value): (&String, &Value)| match name.as_str() {
                "nodes" => format!("nodes: {}", names(value)),
                _ => format!("{}: {}", key(name), flow(value)),
            };
            format!("{{{}}}", pairs.into_iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

/// Names of nodes, or labels with their values, each as a text even if it looks like a number.
fn names(nodes: &Value) -> String {
    match nodes {
        Value::Array(all) => format!("[{}]", all.iter().map(names).collect::<Vec<_>>().join(", ")),
        Value::Object(labels) => {
            let label = |(label, value): (&String, &Value)| format!("{}: {}", key(label), names(value));
            format!("{{{}}}", labels.iter().map(label).collect::<Vec<_>>().join(", "))
        }
        Value::String(name) => key(name),
        other => key(&other.to_string()),
    }
}

/// Words that YAML (in one version or another) takes for something other than text.
const NO_TEXTS: [&str; 11] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"];

/// Numbers of up to this many letters keep their value when YAML reads them as numbers.
const LONGEST_NUMBER: usize = 15;

/// What may follow a number.
const UNITS: [&str; 10] = ["", "Ki", "Mi", "Gi", "Ti", "ms", "s", "m", "h", "d"];

/// A text, bare if YAML reads it as the same text, or as a number with the same value; else in quotes.
fn scalar(text: &str) -> String {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_whole = whole == "0" || whole.starts_with(|first| matches!(first, '1'..='9'));
    let is_number = is_whole && !fraction.is_empty() && !fraction.contains('.');
    let is_amount = is_number && number.len() <= LONGEST_NUMBER && UNITS.contains(&unit);
    if is_amount { text.to_owned() } else { key(text) }
}

/// A name, bare where it is a word.
fn key(text: &str) -> String {
    let is_word = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte))
        && !text.ends_with(':')
        && !NO_TEXTS.contains(&text.to_ascii_lowercase().as_str());
    if is_word { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' | '\u{a1}'..='\u{d7ff}' if !matches!(letter, '\u{2028}' | '\u{2029}') => {
                quoted.push(letter)
            }
            other => quoted += &format!("\\U{:08X}", u32::from(other)),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::borrowing::BorrowEvicts;
    use crate::model::job::Requeue;
    use crate::model::newer::Newer;
    use crate::model::policy::{Order, Reclaim, WithinQueue};
    use crate::model::queue::nodes::overlap;
    use crate::model::queue::{Member, Nodes, Pledge, unkeepable};
    use crate::time::Span;
    use proptest::option::of;
    use proptest::prelude::*;

    fn settings(text: &str) -> Settings {
        parse(text).unwrap()
    }

    #[test]
    fn prices_are_written_beside_the_policy_and_none_takes_them_back() {
        let read = settings("queues: {a: }\nprices: {h100: 2.90, l4: 0.55}\n");
        let policy = read.policy_beside(&Policy { reserve: 7, ..Policy::default() }).unwrap();
        let written = write(&read.queues, &policy);
        assert_eq!(written, "queues:\n  a:\nprices: {h100: 2.9, l4: 0.55}\npolicy: {reserve: 7}\n");
        assert_eq!(settings(&written).policy_beside(&Policy::default()), Some(policy.clone()));
        let none = settings("queues: {a: }\nprices: {}\n").policy_beside(&policy).unwrap();
        assert_eq!((none.reserve, none.prices.is_unsaid()), (7, true));
        assert_eq!(settings("queues: {a: }\n").policy_beside(&policy), None);
        let bad = parse("queues: {a: }\nprices: {h100: -1}\n").unwrap_err();
        assert!(bad.what.contains("no price") && bad.line == 2, "{bad}");
    }

    #[test]
    fn what_is_in_force_reads_as_somebody_would_have_written_it() {
        let text = "queues:\n  b/c: {submit: ['user:ana'], lend: {any: 0}, limit: {h100: 2.50, memory: 65536Mi}, weight: 2}\n  b: {guarantee: 6}\n  default: {priority: 0, weight: 1, requeue: lost}\npolicy: {min_runtime: 5ms, attained: {hold: 3ms}, reserve: 4}\n";
        let Settings { queues, policy, .. } = settings(text);
        let written = write(&queues, &policy.unwrap());
        let (written, policy) = written.split_once("policy: ").unwrap();
        expect_test::expect![[r#"
            queues:
              b:       {guarantee: 6}
              b/c:     {limit: {h100: 2.5, memory: 64Gi}, lend: 0, weight: 2, submit: [user:ana]}
              default:
        "#]]
        .assert_eq(written);
        assert!(policy.starts_with("{attained: {") && policy.ends_with("min_runtime: 5ms}\n"), "{policy}");
        assert_eq!(write(&[Queue::named("a")], &Policy::default()), "queues:\n  a:\npolicy: {}\n");
    }

    #[test]
    fn what_is_said_anew_of_a_queue_leaves_the_rest_as_it_is() {
        let queue = settings("queues:\n  a: {limit: {any: 8, h100: 2}, weight: 3, submit: [user:ana]}\n")
            .queues
            .remove(0);
        let said = |text: &str| change(&queue, &serde_json::from_str(text).unwrap());
        let limit = |text: &str| write(&[said(text).unwrap()], &Policy::default());
        let line = |text: &str| limit(text).lines().nth(1).unwrap_or_default().to_owned();
        assert_eq!(
            line(r#"{"limit": {"h100": "4"}}"#),
            "  a: {limit: {any: 8, h100: 4}, weight: 3, submit: [user:ana]}"
        );
        assert_eq!(line(r#"{"limit": "6", "submit": null}"#), "  a: {limit: {any: 6, h100: 2}, weight: 3}");
        assert_eq!(
            line(r#"{"limit": {"any": null, "h100": null}, "weight": 1}"#),
            "  a: {submit: [user:ana]}"
        );
        assert_eq!(
            line(r#"{"guarantee": {"any": "2"}, "limit": null}"#),
            "  a: {guarantee: 2, weight: 3, submit: [user:ana]}"
        );
        assert_eq!(
            line(
                r#"{"limit": null, "submit": null, "users": {"limit": {"any": "4"}, "weight": {"ana": 2, "any": 3}, "max_time": "2d"}}"#
            ),
            "  a: {weight: 3, users: {limit: 4, weight: {ana: 2, any: 3}, max_time: 2d}}"
        );
        let hours =
            settings("queues:\n  a: {guarantee: {any: 2, gpu_hours: 900, every: week}}\n").queues.remove(0);
        let taken_back = |text: &str| {
            let changed = change(&hours, &serde_json::from_str(text).unwrap()).unwrap();
            write(&[changed], &Policy::default()).lines().nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(taken_back(r#"{"guarantee": {"gpu_hours": null}}"#), "  a: {guarantee: 2}");
        assert_eq!(taken_back(r#"{"guarantee": {"gpu_hours": null, "any": null}}"#), "  a:");
        assert!(said(r#"{"limti": "4"}"#).unwrap_err().contains("did you mean limit?"));
        assert!(said(r#"{"guarantee": {"h100": "4"}}"#).unwrap_err().contains("below its guarantee"));
        assert!(said(r#"{"limit": {"h100": "many"}}"#).unwrap_err().contains("is not an amount"));
    }

    fn limits() -> impl Strategy<Value = Limits> {
        let resource = "(any|cpu|memory|storage|pods|h100|null|1.5|[ -~äß\u{7f}\u{2028}\\n]{0,5})"
            // Models are read in lower case, and some words are refused because they mean something else.
            .prop_map(|name| name.to_ascii_lowercase())
            .prop_filter("meant otherwise", |name| crate::model::queue::amounts_text::named(name).is_ok())
            .prop_map(|name| Resource::from(name.as_str()));
        let amount = prop_oneof![
            Just(Amount::Unlimited),
            (0..64i64).prop_map(|whole| Amount::Finite(whole * 1000)),
            (0..=i64::MAX).prop_map(Amount::Finite),
            (0..2000i64).prop_map(|gib| Amount::Finite(gib << 30)),
        ];
        proptest::collection::btree_map(resource, amount, 0..3)
    }

    fn member() -> impl Strategy<Value = Member> {
        let name = "[a-z ,\\]:#'\"{äπ]{1,6}";
        prop_oneof![name.prop_map(Member::User), name.prop_map(|name| Member::Group(name, None))]
    }

    fn members() -> impl Strategy<Value = Vec<Member>> {
        proptest::collection::vec(member(), 0..3)
    }

    fn if_any(members: Vec<Member>) -> Newer<Vec<Member>> {
        Newer((!members.is_empty()).then_some(members))
    }

    prop_compose! {
        fn bounds()(
            (max_priority, max_jobs) in (of(any::<i32>()), of(any::<u32>())),
            default_ms in of(prop_oneof![1i64..9, (1i64..99).prop_map(|minutes| minutes * 60_000)]),
            more_ms in of(0i64..99_999_999),
        ) -> Bounds {
            let max_time = more_ms.map(|more_ms| Span(default_ms.unwrap_or(1) + more_ms));
            Bounds { max_priority, max_time, default_time: default_ms.map(Span), max_jobs: max_jobs.map(u64::from) }
        }
    }

    prop_compose! {
        fn budget()(
            milli_gpu_hours in 0i64..9_999_999,
            every in prop_oneof![
                Just(Period::Day),
                Just(Period::Week),
                Just(Period::Month),
                (3_600_000i64..99_999_999).prop_map(|ms| Period::Span(Span(ms))),
            ],
            carry_milli in of(0i64..9_999_999),
        ) -> Budget {
            Budget { milli_gpu_hours, every, carry_milli }
        }
    }

    fn nodes() -> impl Strategy<Value = Nodes> {
        let name = || "[a-z0-9.]{1,4}|any|true|1.50|a b|#";
        prop_oneof![
            proptest::collection::btree_set(name(), 1..3).prop_map(Nodes::Named),
            proptest::collection::btree_map(name(), name(), 1..3).prop_map(Nodes::Labelled),
        ]
    }

    prop_compose! {
        fn users()(
            limit in limits(),
            weight in proptest::collection::btree_map("any|[a-z @']{1,5}", 0u32..9, 0..3),
            bounds in bounds(),
        ) -> Users {
            Users { weight, limit, bounds: Bounds { default_time: None, ..bounds } }
        }
    }

    prop_compose! {
        fn any_queue()(
            path in "[a-zA-Z0-9_.-]{1,5}(/[a-z0-9]{1,3}){0,2}|null|true|no|1e3|-",
            (limit, borrow, lend) in (limits(), limits(), limits()),
            guarantee in limits(),
            (weight, priority) in (0u32..9, -9i32..9),
            within_queue in of(prop_oneof![Just(WithinQueue::Never), Just(WithinQueue::LowerOrNewer)]),
            reclaim in of(prop_oneof![Just(Reclaim::Never), Just(Reclaim::Any)]),
            borrow_evicts in of((any::<bool>(), of(any::<i32>())).prop_map(|(due, lower)| BorrowEvicts { due, lower })),
            requeue in prop_oneof![Just(Requeue::Never), Just(Requeue::Lost), Just(Requeue::Failure)],
            (submit, admins, default_for) in (members(), members(), members()),
            bounds in bounds(),
            users in of(users()),
            (budget, pledge) in (of(budget()), of(budget())),
            nodes in proptest::option::weighted(0.2, nodes()),
        ) -> Queue {
            let pledge = Newer(pledge.map(|Budget { milli_gpu_hours, every, .. }| Pledge { milli_gpu_hours, every }));
            let queue = Queue { path, limit, guarantee, pledge, borrow, lend, weight, priority, within_queue, reclaim, borrow_evicts, requeue, bounds, submit, users: Newer(users), budget: Newer(budget),
                admins: if_any(admins), default_for: if_any(default_for), nodes: Newer(None) };
            unbound(vec![match nodes {
                None => queue,
                Some(nodes) => Queue { guarantee: Limits::new(), borrow: Limits::new(), pledge: Newer(None),
                    lend: [(Resource::Any, Amount::Finite(0))].into(), nodes: Newer(Some(nodes)), ..queue },
            }]).remove(0)
        }
    }

    /// Drops limits and budgets that are below guarantees: those cannot be in force.
    fn unbound(mut queues: Vec<Queue>) -> Vec<Queue> {
        while let Some(path) = unkeepable(&queues).map(|(path, _)| path.to_owned()) {
            let beyond = queues.iter_mut().filter(|queue| queue.path == path);
            beyond.for_each(|queue| (queue.limit, queue.budget) = (Limits::new(), Newer(None)));
        }
        while let Some(path) = overlap(&queues).map(|(path, _)| path.to_owned()) {
            queues.iter_mut().filter(|queue| queue.path == path).for_each(|queue| queue.nodes = Newer(None));
        }
        queues
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_as_it_was(
            queues in proptest::collection::btree_map("[a-z]{3}", any_queue(), 1..5),
            (strict, reserve, min_runtime_ms) in (any::<bool>(), 0u32..9, 0..=10_000 * 366 * 86_400_000i64),
            attained in any::<bool>(),
        ) {
            let by_path: BTreeMap<String, Queue> = queues.into_values().map(|queue| (queue.path.clone(), queue)).collect();
            let all = unbound(by_path.into_values().collect());
            let order = if attained { Order::Attained } else { Order::Arrival };
            let policy = Policy { strict, reserve, min_runtime_ms, order, ..Policy::default() };
            let text = write(&all, &policy);
            let read = parse(&text).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
            prop_assert_eq!(read.queues, all, "{}", text);
            prop_assert_eq!(read.policy, Some(policy));
        }

        #[test]
        fn a_queue_of_which_nothing_is_said_anew_stays_as_it_is(queue in any_queue()) {
            prop_assert_eq!(change(&queue, &BTreeMap::new()), Ok(queue));
        }
    }
}
