//! The text of queues.yaml: how much each queue may have, and how the planner decides.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::amounts_text::{LimitText, guaranteed, limits};
use super::budget_text::{self, BudgetText};
use super::guaranteed::unkeepable;
use super::nodes::{beside_nodes, overlap};
use super::nodes_text::{self, NodesText};
use super::users_text::{self, UsersText};
use super::{Bounds, Member, Queue};
use crate::model::borrowing::BorrowEvicts;
use crate::model::job::{Requeue, priority};
use crate::model::misread;
use crate::model::newer::Newer;
use crate::model::policy::{self, BadPolicy, Nonsense, Policy, Reclaim, WithinQueue};
use crate::model::prices::Prices;
use crate::time::Span;

/// What a queues.yaml says.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// All queues of the pool.
    pub queues: Vec<Queue>,
    /// The settings of the planner, where the file has a section for them.
    pub policy: Option<Policy>,
    /// The prices of the models, where the file says them.
    pub prices: Option<Prices>,
}

impl Settings {
    /// The policy that these settings bring about, given the one in force; `None` if they do not change it.
    pub fn policy_beside(&self, now: &Policy) -> Option<Policy> {
        let Some(prices) = &self.prices else { return self.policy.clone() };
        let prices = Newer(Some(prices.clone()).filter(|prices| !prices.0.is_empty()));
        Some(Policy { prices, ..self.policy.as_ref().unwrap_or(now).clone() })
    }
}

/// What is wrong with a queues.yaml.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct BadQueues {
    /// From 1.
    pub line: u64,
    /// From 1.
    pub column: u64,
    /// What is wrong, and what to write.
    pub what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueuesText {
    queues: BTreeMap<Spannable, Option<Spanned<QueueText>>>,
    policy: Option<Spanned<Policy>>,
    prices: Option<Spanned<Prices>>,
}

/// A file with these sections only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    policy: Option<Spanned<Policy>>,
    prices: Option<Spanned<Prices>>,
}

/// A key of the file.
type Spannable = String;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct QueueText {
    guarantee: Option<Spanned<LimitText>>,
    limit: Option<Spanned<LimitText>>,
    borrow: Option<Spanned<LimitText>>,
    lend: Option<Spanned<LimitText>>,
    weight: Option<u32>,
    priority: i32,
    within_queue: Option<WithinQueue>,
    borrow_evicts: Option<BorrowEvicts>,
    reclaim: Option<Reclaim>,
    requeue: Option<Requeue>,
    max_priority: Option<Spanned<Scalar>>,
    max_time: Option<Spanned<Scalar>>,
    default_time: Option<Spanned<Scalar>>,
    max_jobs: Option<u64>,
    submit: Vec<Spanned<String>>,
    users: Option<UsersText>,
    budget: Option<BudgetText>,
    admins: Vec<Spanned<String>>,
    default_for: Vec<Spanned<String>>,
    nodes: Option<Spanned<NodesText>>,
}

/// A number or a text, as it was written.
pub(super) struct Scalar(pub(super) String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl serde::de::Visitor<'_> for Any {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or an amount such as 40Gi")
            }
            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Reads the text of queues.yaml, which lists all queues of the pool.
pub fn parse(text: &str) -> Result<Settings, BadQueues> {
    units_said(text)?;
    let read: QueuesText = serde_saphyr::from_str(text).map_err(|error| unreadable(&error, text))?;
    let (mut queues, mut places, mut of_nodes) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for (path, text) in read.queues {
        let place = text.as_ref().map_or((1, 1), placed);
        let nodes = text.as_ref().and_then(|text| text.value.nodes.as_ref());
        of_nodes.insert(path.clone(), nodes.map_or(place, placed));
        let wrong = |what| BadQueues { line: place.0, column: place.1, what };
        if let Some(what) = bad_path(&path) {
            return Err(wrong(what));
        }
        let queue = queue(&path, text.map(|text| text.value).unwrap_or_default())?;
        if let Some(what) = contradiction(&queue) {
            return Err(wrong(what));
        }
        queues.push(queue);
        places.insert(path, place);
    }
    if let Some((path, what)) = unkeepable(&queues) {
        let (line, column) = places.get(path).copied().unwrap_or((1, 1));
        return Err(BadQueues { line, column, what });
    }
    if let Some((path, what)) = overlap(&queues) {
        let (line, column) = of_nodes.get(path).copied().unwrap_or((1, 1));
        return Err(BadQueues { line, column, what });
    }
    if queues.is_empty() {
        let what = "no queue is named: a pool needs at least one".into();
        return Err(BadQueues { line: 1, column: 1, what });
    }
    let policy = read.policy.map(|policy| sound(policy, text)).transpose()?;
    Ok(Settings { queues, policy, prices: read.prices.map(priced).transpose()? })
}

/// Line and column, from 1.
fn placed<T>(text: &Spanned<T>) -> (u64, u64) {
    (text.referenced.line(), text.referenced.column())
}

/// Line and column, from 1, of each queue's guarantee in the text of a queues.yaml, or of the queue's whole entry if it has no guarantee.
/// Empty if the text cannot be read.
pub fn places(text: &str) -> BTreeMap<String, (u64, u64)> {
    let read: Option<QueuesText> = serde_saphyr::from_str(text).ok();
    let place = |text: Spanned<QueueText>| text.value.guarantee.as_ref().map_or(placed(&text), placed);
    let queues = read.into_iter().flat_map(|read| read.queues);
    queues.filter_map(|(path, text)| Some((path, place(text?)))).collect()
}

/// Line and column, from 1, of the nodes of a queue in the text of a queues.yaml.
pub fn place_of_nodes(text: &str, path: &str) -> Option<(u64, u64)> {
    let mut read: QueuesText = serde_saphyr::from_str(text).ok()?;
    read.queues.remove(path)??.value.nodes.as_ref().map(placed)
}

/// Line and column, from 1, of where the text of a queues.yaml first names a group for a queue.
pub fn place_of_group(text: &str, path: &str, group: &str) -> Option<(u64, u64)> {
    let mut read: QueuesText = serde_saphyr::from_str(text).ok()?;
    let QueueText { submit, admins, default_for, .. } = read.queues.remove(path)??.value;
    let names_it = |name: &Spanned<String>| name.value.strip_prefix("group:") == Some(group);
    let place = submit.into_iter().chain(admins).chain(default_for).find(names_it)?.referenced;
    Some((place.line(), place.column()))
}

/// Reads a file with the sections `policy` and `prices` of a queues.yaml, for pools whose queues are defined elsewhere. What it does not
/// say stays at its default.
pub fn parse_policy(text: &str) -> Result<Policy, BadQueues> {
    units_said(text)?;
    let PolicyText { policy, prices } =
        serde_saphyr::from_str(text).map_err(|error| unreadable(&error, text))?;
    let (policy, prices) = (policy.map(|policy| sound(policy, text)), prices.map(priced));
    let settings = Settings { queues: Vec::new(), policy: policy.transpose()?, prices: prices.transpose()? };
    Ok(settings.policy_beside(&Policy::default()).unwrap_or_default())
}

fn queue(path: &str, text: QueueText) -> Result<Queue, BadQueues> {
    let amounts = |name, text: Option<Spanned<LimitText>>| {
        text.map(|text| limits(name, text)).transpose().map(Option::unwrap_or_default)
    };
    let bounds = Bounds {
        max_priority: text.max_priority.map(max_priority).transpose()?,
        max_time: text.max_time.map(|time| span("max_time", time)).transpose()?,
        default_time: text.default_time.map(|time| span("default_time", time)).transpose()?,
        max_jobs: text.max_jobs,
    };
    let (guarantee, pledge) = match text.guarantee {
        Some(text) => guaranteed(text)?,
        None => Default::default(),
    };
    Ok(Queue {
        guarantee,
        pledge: Newer(pledge),
        limit: amounts("limit", text.limit)?,
        borrow: amounts("borrow", text.borrow)?,
        lend: amounts("lend", text.lend)?,
        weight: text.weight.unwrap_or(1),
        priority: text.priority,
        within_queue: text.within_queue,
        borrow_evicts: text.borrow_evicts,
        reclaim: text.reclaim,
        requeue: text.requeue.unwrap_or_default(),
        bounds,
        submit: text.submit.into_iter().map(|name| member("submit", name)).collect::<Result<_, _>>()?,
        users: Newer(text.users.map(users_text::users).transpose()?),
        budget: Newer(text.budget.map(budget_text::budget).transpose()?),
        admins: members("admins", text.admins)?,
        default_for: members("default_for", text.default_for)?,
        nodes: Newer(text.nodes.map(nodes_text::nodes).transpose()?),
        ..Queue::named(path)
    })
}

fn members(key: &str, names: Vec<Spanned<String>>) -> Result<Newer<Vec<Member>>, BadQueues> {
    let members: Vec<Member> = names.into_iter().map(|name| member(key, name)).collect::<Result<_, _>>()?;
    Ok(Newer((!members.is_empty()).then_some(members)))
}

/// Finds settings of a queue that contradict each other.
fn contradiction(queue: &Queue) -> Option<String> {
    let is_longer = queue.bounds.default_time > queue.bounds.max_time.or(queue.bounds.default_time);
    let longer =
        is_longer.then(|| "default_time is longer than max_time: lower the one or raise the other".into());
    longer.or_else(|| beside_nodes(queue))
}

pub(super) fn max_priority(text: Spanned<Scalar>) -> Result<i32, BadQueues> {
    let wrong = || {
        format!(
            "max_priority: {:?} is no priority: write low, normal, high, urgent or a number",
            text.value.0
        )
    };
    let (line, column) = placed(&text);
    priority::parse(&text.value.0).ok_or_else(|| BadQueues { line, column, what: wrong() })
}

pub(super) fn span(name: &str, text: Spanned<Scalar>) -> Result<Span, BadQueues> {
    let (line, column) = placed(&text);
    let wrong = |what: String| BadQueues { line, column, what: format!("{name}: {what}") };
    match text.value.0.parse::<Span>() {
        Ok(Span(..=0)) => Err(wrong("must be longer than nothing".into())),
        Ok(span) => Ok(span),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Checks that all lengths of time have units.
fn units_said(text: &str) -> Result<(), BadQueues> {
    match policy::without_unit(text, Some("policy")) {
        None => Ok(()),
        Some(BadPolicy { line, column, what }) => Err(BadQueues { line, column, what }),
    }
}

fn sound(policy: Spanned<Policy>, text: &str) -> Result<Policy, BadQueues> {
    let place = placed(&policy);
    let of_key = |key: &[&str]| policy::place_of(text, &[&["policy"], key].concat()).unwrap_or(place);
    let mut policy = policy.value;
    if let Some(Nonsense { key, what }) = policy::nonsense_in_a_pool(&policy) {
        let (line, column) = of_key(key);
        return Err(BadQueues { line, column, what });
    }
    if let Some(prices) = policy.prices.0.take() {
        let (line, column) = of_key(&["prices"]);
        policy.prices = Newer(Some(prices.by_key().map_err(|what| BadQueues { line, column, what })?));
    }
    Ok(policy.completed())
}

/// Prices whose models may be in capitals.
fn priced(prices: Spanned<Prices>) -> Result<Prices, BadQueues> {
    let (line, column) = placed(&prices);
    prices.value.by_key().map_err(|what| BadQueues { line, column, what })
}

fn unreadable(error: &serde_saphyr::Error, text: &str) -> BadQueues {
    let (line, column, what) = misread::told(error, text);
    BadQueues { line, column, what }
}

/// What is wrong with a queue's path, if anything.
pub fn bad_path(path: &str) -> Option<String> {
    let good = |part: &str| {
        (1..=63).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let short: String = path.chars().take(60).collect();
    match path.split('/').count() {
        1..=8 if path.split('/').all(good) => None,
        1..=8 => Some(format!(
            "{short:?} is no queue's path: write letters, digits, '-', '_' and '.', parts joined by '/'"
        )),
        _ => Some(format!("{short:?} is deeper than 8 levels")),
    }
}

fn member(key: &str, text: Spanned<String>) -> Result<Member, BadQueues> {
    let read = match text.value.split_once(':') {
        Some(("user", name)) if !name.is_empty() => Some(Member::User(name.to_owned())),
        Some(("group", name)) if !name.is_empty() => Some(Member::Group(name.to_owned(), None)),
        _ => None,
    };
    let what = format!("{key}: {:?} names nobody: write user:NAME or group:NAME", text.value);
    read.ok_or(BadQueues { line: text.referenced.line(), column: text.referenced.column(), what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::{Amount, Resource};
    use proptest::prelude::*;

    #[test]
    fn resources_by_words_that_are_often_meant_are_refused_and_models_may_be_in_capitals() {
        let of = |key: &str| parse(&format!("queues:\n  a: {{limit: {{{key}: 4}}}}\n"));
        for (key, meant) in [("gpus", "any"), ("mem", "memory"), ("Cores", "cpu")] {
            let bad = of(key).unwrap_err();
            assert!(bad.line == 2 && bad.what.ends_with(&format!("did you mean {meant}?")), "{bad}");
        }
        let queues = of("H100").unwrap().queues;
        assert_eq!(queues[0].limit[&Resource::Model("h100".into())], Amount::Finite(4000));
    }

    #[test]
    fn users_and_models_may_have_the_names_of_lengths_of_time() {
        let text =
            "queues:\n  a: {limit: {step: 2}, users: {weight: {hold: 2, quantum: 1}}}\nprices: {levels: 2}\n";
        assert!(parse(text).is_ok(), "{:?}", parse(text));
        assert!(parse_policy("prices: {every: 3}\npolicy: {prices: {step: 2}}\n").is_ok());
        let bad = parse("queues:\n  a:\npolicy: {quantum: 60}\n").unwrap_err();
        assert_eq!((bad.line, bad.column), (3, 19), "{bad}");
    }

    #[test]
    fn a_queues_file_names_limits_requeue_and_who_may_submit() {
        let text = "queues:\n  vision: {limit: {any: 8, h100: 2.5, memory: 64Gi}, requeue: failure, submit: [user:ana, group:cv]}\n  nlp: {limit: 4}\n  research/asr:\n";
        let queues = parse(text).unwrap().queues;
        let vision = queues.iter().find(|queue| queue.path == "vision").unwrap();
        assert_eq!(vision.limit[&Resource::Any], Amount::Finite(8000));
        assert_eq!(vision.limit[&Resource::Model("h100".into())], Amount::Finite(2500));
        assert_eq!(vision.limit[&Resource::Memory], Amount::Finite(64 << 30));
        assert_eq!(vision.requeue, Requeue::Failure);
        assert_eq!(vision.submit, [Member::User("ana".into()), Member::Group("cv".into(), None)]);
        assert_eq!(queues[0].limit[&Resource::Any], Amount::Finite(4000));
        assert_eq!(queues.len(), 3);
    }

    #[test]
    fn a_policy_file_says_how_is_decided_and_what_models_cost_and_nothing_of_queues() {
        let policy = parse_policy("policy: {strict: true}\nprices: {h100: 2.90}\n").unwrap();
        let prices = Newer(Some(Prices([("h100".to_owned(), crate::model::prices::Price(2_900))].into())));
        assert_eq!(policy, Policy { strict: true, prices, ..Policy::default() });
        assert_eq!(parse_policy("{}"), Ok(Policy::default()));
        for (text, line, what) in [
            ("queues: {a: {}}\n", 1, "queues"),
            ("policy:\n  stricd: true\n", 2, "did you mean strict?"),
            ("prices: {h100: free}\n", 1, "free"),
            ("policy: [", 1, ""),
        ] {
            let wrong = parse_policy(text).unwrap_err();
            assert!(wrong.line == line && wrong.what.contains(what), "{wrong}");
        }
    }

    #[test]
    fn a_queues_file_names_what_is_guaranteed_lent_and_borrowed_and_how_the_planner_decides() {
        let text = "queues:\n  vision: {guarantee: {h100: 8, any: 12}, lend: 2, borrow: 4, weight: 3, priority: 1, within_queue: never, reclaim: lower, borrow_evicts: false}\npolicy: {share: none, min_runtime: 5ms}\n";
        let settings = parse(text).unwrap();
        let vision = &settings.queues[0];
        assert_eq!(vision.guarantee[&Resource::Any], Amount::Finite(12_000));
        assert_eq!(
            (vision.lend[&Resource::Any], vision.borrow[&Resource::Any]),
            (Amount::Finite(2000), Amount::Finite(4000))
        );
        assert_eq!((vision.weight, vision.priority), (3, 1));
        assert_eq!((vision.within_queue, vision.reclaim), (Some(WithinQueue::Never), Some(Reclaim::Lower)));
        assert_eq!(vision.borrow_evicts, Some(BorrowEvicts::NEVER));
        let text =
            "queues:\n  vision: {borrow_evicts: {lower: high}}\npolicy: {borrow_evicts: due_or_lower}\n";
        let Settings { queues, policy, .. } = parse(text).unwrap();
        assert_eq!(queues[0].borrow_evicts, Some(BorrowEvicts::lower(Some(100))));
        assert_eq!(policy.unwrap().borrow_evicts, BorrowEvicts { due: true, ..BorrowEvicts::lower(None) });
        assert_eq!(settings.policy.unwrap().min_runtime_ms, 5);
    }

    #[test]
    fn a_queues_file_bounds_what_jobs_may_ask_for() {
        let text = "queues:\n  vision: {max_priority: high, max_time: 2d, default_time: 8h, max_jobs: 100}\n";
        let bounds = parse(text).unwrap().queues[0].bounds;
        assert_eq!((bounds.max_priority, bounds.max_jobs), (Some(100), Some(100)));
        assert_eq!((bounds.max_time, bounds.default_time), (Some(Span(172_800_000)), Some(Span(28_800_000))));
    }

    #[test]
    fn a_wrong_key_names_line_column_and_the_nearest_key() {
        let error = parse("queues:\n  a:\n    limti: 3\n").unwrap_err();
        assert_eq!((error.line, error.column), (3, 5));
        assert!(error.what.contains("did you mean limit?"), "{error}");
    }

    #[test]
    fn what_a_value_has_to_be_is_said_in_the_words_of_the_file() {
        for (text, said) in [
            ("", "the text ends here"),
            ("queues: []", "queues: keys with their values are expected"),
            (
                "queues:\n  a: {weight: -1}\n",
                "weight: a whole number from 0 to 4294967295 is expected, as in weight: 2",
            ),
            ("queues:\n  a: {priority: 1.5}\n", "priority: a whole number from -2147483648 to"),
            (
                "queues:\n  a: {submit: user:ana}\n",
                "submit: a list is expected, as in submit: [user:ana, group:asr]",
            ),
            (
                "queues:\n  a: {budget: 10}\n",
                "budget: keys with their values are expected, as in budget: {gpu_hours",
            ),
            ("queues:\n  a: {budget: {gpu_hours: 10}}\n", "every is missing: write it, as in every: week"),
            (
                "queues:\n  a:\n    budget:\n      gpu_hours: 10\n",
                "every is missing: write it, as in every: week",
            ),
            (
                "queues:\n  a: {requeue: sometimes}\n",
                "requeue: \"sometimes\" is not known: write one of never, lost, failure",
            ),
            ("queues: {a: {}}\n---\nqueues: {}\n", "a second document begins here"),
            (
                "queues:\n  a: {limit: [1]}\n",
                "limit: a value of another form is expected, as in limit: {h100",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("line ") && error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_mistake_is_told_at_its_key_and_by_its_name() {
        for (text, place, what) in [
            ("queues:\n  a: {admins: [ana]}\n", (2, 16), "admins: \"ana\" names nobody"),
            ("queues:\n  a:\npolicy:\n  reserve: 1\n  step: none\n", (5, 9), "step: it must be above 0"),
            ("queues:\n  a:\npolicy: {ageing: none}\n", (3, 18), "ageing: with none no priority"),
            ("queues:\n  a:\npolicy: {quantum: 8d}\n", (3, 19), "quantum: it must not be above"),
            ("queues:\n  a:\nprices: {l4: 1, L4: 2}\n", (3, 9), "prices names l4 twice"),
            ("queues:\n  a:\npolicy: {prices: {l4: 1, L4: 2}}\n", (3, 18), "prices names l4 twice"),
            (
                "queues:\n  a: {nodes: n1, lend: 0}\n  b: {weight: 2, nodes: n1, lend: 0}\n",
                (3, 25),
                "nodes: node n1 would be kept for a and for b",
            ),
        ] {
            let bad = parse(text).unwrap_err();
            assert_eq!((bad.line, bad.column), place, "{text}: {bad}");
            assert!(bad.what.starts_with(what), "{text}: {bad}");
        }
        let prices = parse("queues:\n  a:\nprices: {H100: 3}\n").unwrap().prices.unwrap();
        assert_eq!(prices.0.keys().collect::<Vec<_>>(), ["h100"]);
    }

    #[test]
    fn nonsense_in_a_queues_file_names_its_place() {
        for text in [
            "",
            "queues: {}",
            "queues: [",
            "queues:\n  a: {limit: x}\n",
            "queues:\n  a: {limit: -1}\n",
            "queues:\n  'a b': {}\n",
            "queues:\n  a: {}\n  a: {}\n",
            "queues:\n  a: {submit: [ana]}\n",
            "queues:\n  a: {requeue: maybe}\n",
            "queues:\n  a//b: {}\n",
            "queues:\n  a: {limit: 2, guarantee: 3}\n",
            "queues:\n  a: {limit: 4, guarantee: {h100: 8}}\n",
            "queues:\n  a: {limit: 4}\n  a/b: {guarantee: 3}\n  a/c: {guarantee: 2}\n",
            "queues:\n  a: {weight: -1}\n",
            "queues:\n  a: {max_priority: highest}\n",
            "queues:\n  a: {max_time: 60}\n",
            "queues:\n  a: {max_time: 1h, default_time: 2h}\n",
            "queues:\n  a: {reclaim: perhaps}\n",
            "queues:\n  a: {nodes: [n1]}\n",
            "queues:\n  a: {nodes: [n1], lend: 1}\n",
            "queues:\n  a: {nodes: [], lend: 0}\n",
            "queues:\n  a: {nodes: {}, lend: 0}\n",
            "queues:\n  a: {nodes: n1, lend: 0, guarantee: 2}\n",
            "queues:\n  a: {nodes: n1, lend: 0, borrow: 2}\n",
            "queues:\n  a: {nodes: n1, lend: 0}\n  b: {nodes: [n2, n1], lend: 0}\n",
            "queues:\n  a: {nodes: {x: y}, lend: 0}\n  b: {nodes: {z: y}, lend: 0}\n",
            "queues:\n  a: {nodes: n1, lend: 0}\n  a/b: {nodes: n2, lend: 0}\n",
            "queues:\n  a: {}\npolicy: {step: 0}\n",
            "queues:\n  a: {}\npolicy: {shear: fill}\n",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.line >= 1 && !error.what.is_empty(), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_queues_parser_panic(text in ".{0,200}") {
            let _ = parse(&text);
            let _ = parse(&format!("queues:\n  a: {text}"));
        }
    }
}
