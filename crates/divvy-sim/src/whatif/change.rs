//! A change of the pool, as it is written: more or fewer nodes, a queue's entitlement, another policy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use divvy_core::amount::{Limits, Resource};
use divvy_core::model::queue::{bad_path, read_amount};

use crate::generate::NodeGroup;

/// What is to be different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This many more nodes like the pool's last one.
    MoreNodes(u32),
    /// These nodes in addition.
    AddNodes(NodeGroup),
    /// This many nodes fewer, the last first.
    FewerNodes(u32),
    /// One node fewer, by its name.
    RemoveNode(String),
    /// A queue's settings.
    Queue(String, Vec<Setting>),
    /// Another policy: its name, or a file.
    Policy(String),
}

/// A setting of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// What it gets whenever it wants it.
    Guarantee(Limits),
    /// What it may hold at most.
    Limit(Limits),
    /// What it may take beyond its guarantee.
    Borrow(Limits),
    /// What of its guarantee others may use.
    Lend(Limits),
    /// Its part of the surplus among its siblings.
    Weight(u32),
    /// Its priority among its siblings.
    Priority(i32),
}

/// The names of the settings.
const KEYS: [&str; 6] = ["guarantee", "limit", "borrow", "lend", "weight", "priority"];

/// What a change begins with.
const WORDS: [&str; 3] = ["nodes", "queue", "policy"];

/// What can be written.
pub const FORMS: &str = "nodes+1 (like the last one), nodes+2xh100:8, nodes-1, nodes-NAME, \
'queue PATH guarantee=16 limit=h100:8,any:12 weight=2 priority=10 borrow=4 lend=0' (some of these) or 'policy NAME|FILE'";

/// A text that is no change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no change: {what}\n  write {FORMS}")]
pub struct NotAChange {
    text: String,
    what: String,
}

impl FromStr for Change {
    type Err = NotAChange;

    fn from_str(text: &str) -> Result<Self, NotAChange> {
        let trimmed = text.trim();
        let read = match (trimmed.strip_prefix("nodes"), trimmed.split_once(char::is_whitespace)) {
            (Some(rest), _) => nodes(rest.trim()),
            (None, Some(("queue", rest))) => queue(rest),
            (None, Some(("policy", name))) => Ok(Self::Policy(name.trim().to_owned())),
            (None, None) if trimmed == "policy" => Err("name a policy, or a file with one".to_owned()),
            (None, None) if trimmed == "queue" => Err("name a queue, and what of it is different".to_owned()),
            (None, words) => Err(unknown(words.map_or(trimmed, |(word, _)| word))),
        };
        read.map_err(|what| NotAChange { text: text.chars().take(80).collect(), what })
    }
}

fn nodes(rest: &str) -> Result<Change, String> {
    let wrong = || "say how many nodes more or less there are".to_owned();
    if let Some(more) = rest.strip_prefix('+').map(str::trim) {
        return match count(more) {
            Some(count) => Ok(Change::MoreNodes(count)),
            None => more.parse().map(Change::AddNodes).map_err(|error| format!("{error}")),
        };
    }
    match rest.strip_prefix('-').map(str::trim) {
        Some(fewer) if count(fewer).is_some() => Ok(Change::FewerNodes(count(fewer).unwrap_or(1))),
        Some(name) if is_name(name) => Ok(Change::RemoveNode(name.to_owned())),
        _ => Err(wrong()),
    }
}

/// A million, as elsewhere in the simulator.
const MOST_NODES: u32 = 1_000_000;

fn count(text: &str) -> Option<u32> {
    text.parse().ok().filter(|count| (1..=MOST_NODES).contains(count))
}

/// Whether a text names a node, and is not a number out of bounds.
fn is_name(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(word)
}

fn queue(rest: &str) -> Result<Change, String> {
    let mut words = rest.split_whitespace();
    let path = words.next().unwrap_or_default();
    if let Some(what) = bad_path(path) {
        return Err(what);
    }
    let settings = words.map(setting).collect::<Result<Vec<_>, _>>()?;
    if let Some(key) = twice(settings.iter().map(Setting::key)) {
        return Err(format!("{key} stands there twice"));
    }
    if settings.is_empty() {
        return Err(format!("say what of queue {path} is different: {}", KEYS.join(", ")));
    }
    Ok(Change::Queue(path.to_owned(), settings))
}

/// The first item that occurred before.
fn twice<T: Ord>(all: impl IntoIterator<Item = T>) -> Option<T> {
    let mut seen = BTreeSet::new();
    let mut all = all.into_iter();
    all.find_map(|one| seen.replace(one))
}

/// What more than one change sets, if anything.
pub(super) fn contradiction(changes: &[Change]) -> Option<String> {
    let set = changes.iter().flat_map(|change| match change {
        Change::Queue(path, settings) => {
            settings.iter().map(|setting| format!("{} of queue {path}", setting.key())).collect()
        }
        Change::Policy(_) => vec!["the policy".to_owned()],
        _ => Vec::new(),
    });
    twice(set)
}

fn setting(word: &str) -> Result<Setting, String> {
    let (key, value) =
        word.split_once('=').ok_or_else(|| format!("{word:?} lacks its value: write {word}=8"))?;
    let number = || format!("{key} is a whole number, not {value:?}");
    match key {
        "guarantee" => limits(key, value).map(Setting::Guarantee),
        "limit" => limits(key, value).map(Setting::Limit),
        "borrow" => limits(key, value).map(Setting::Borrow),
        "lend" => limits(key, value).map(Setting::Lend),
        "weight" => value.parse().map(Setting::Weight).map_err(|_| number()),
        "priority" => value.parse().map(Setting::Priority).map_err(|_| number()),
        other => Err(format!("a queue has no setting {other:?}; {}", hint(other, &KEYS))),
    }
}

/// Reads `16`, or `h100:8,any:12`.
fn limits(key: &str, text: &str) -> Result<Limits, String> {
    let amount = |resource: &str, amount: &str| {
        let resource = Resource::from(resource);
        let read = read_amount(&resource, amount).map_err(|error| format!("{key} of {resource}: {error}"))?;
        Ok((resource, read))
    };
    let one = |part: &str| match part.split_once(':') {
        None => amount("any", part),
        Some((resource, text)) => amount(resource, text),
    };
    let pairs: Vec<_> = text.split(',').map(one).collect::<Result<_, String>>()?;
    let count = pairs.len();
    let limits: BTreeMap<_, _> = pairs.into_iter().collect();
    if limits.len() < count { Err(format!("{key} names a resource twice")) } else { Ok(limits) }
}

fn unknown(word: &str) -> String {
    let word: String = word.chars().take(40).collect();
    format!("it begins with {word:?}; {}", hint(&word, &WORDS))
}

/// The nearest of some names, or all of them.
pub(super) fn hint<T: AsRef<str>>(wrong: &str, names: &[T]) -> String {
    let distance = |name: &&T| strsim::damerau_levenshtein(name.as_ref(), wrong);
    match names.iter().min_by_key(distance).filter(|name| distance(name) <= 3) {
        Some(name) => format!("did you mean {}?", name.as_ref()),
        None => format!("there are {}", names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")),
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MoreNodes(count) => write!(f, "nodes+{count}"),
            Self::AddNodes(group) => write!(f, "nodes+{}x{}:{}", group.count, group.model, group.gpus),
            Self::FewerNodes(count) => write!(f, "nodes-{count}"),
            Self::RemoveNode(name) => write!(f, "nodes-{name}"),
            Self::Queue(path, settings) => {
                write!(f, "queue {path}")?;
                settings.iter().try_for_each(|setting| write!(f, " {setting}"))
            }
            Self::Policy(name) => write!(f, "policy {name}"),
        }
    }
}

impl Setting {
    fn key(&self) -> &'static str {
        match self {
            Self::Guarantee(_) => "guarantee",
            Self::Limit(_) => "limit",
            Self::Borrow(_) => "borrow",
            Self::Lend(_) => "lend",
            Self::Weight(_) => "weight",
            Self::Priority(_) => "priority",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key();
        match self {
            Self::Guarantee(limits) | Self::Limit(limits) | Self::Borrow(limits) | Self::Lend(limits) => {
                write!(f, "{key}={}", written(limits))
            }
            Self::Weight(weight) => write!(f, "{key}={weight}"),
            Self::Priority(priority) => write!(f, "{key}={priority}"),
        }
    }
}

/// Writes amounts as they are read.
fn written(limits: &Limits) -> String {
    use divvy_core::amount::Amount;
    let amount = |resource: &Resource, amount: &Amount| match (resource, amount) {
        (_, Amount::Unlimited) => "unlimited".to_owned(),
        (Resource::Memory | Resource::Storage | Resource::Pods, Amount::Finite(whole)) => whole.to_string(),
        (_, Amount::Finite(milli)) if milli % 1000 == 0 => (milli / 1000).to_string(),
        (_, Amount::Finite(milli)) => format!("{}.{:03}", milli / 1000, milli % 1000),
    };
    if let [(Resource::Any, limit)] = limits.iter().collect::<Vec<_>>()[..] {
        return amount(&Resource::Any, limit);
    }
    let pairs = limits.iter().map(|(resource, limit)| format!("{resource}:{}", amount(resource, limit)));
    pairs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::amount::Amount;
    use proptest::prelude::*;

    fn read(text: &str) -> Change {
        text.parse().unwrap()
    }

    #[test]
    fn nodes_come_and_go_by_count_by_shape_and_by_name() {
        let group = NodeGroup { count: 2, model: "h100".into(), gpus: 8 };
        assert_eq!(read("nodes+2xh100:8"), Change::AddNodes(group));
        assert_eq!(read("nodes + 1"), Change::MoreNodes(1));
        assert_eq!(read("nodes-3"), Change::FewerNodes(3));
        assert_eq!(read("nodes-gpu07.rack-2"), Change::RemoveNode("gpu07.rack-2".into()));
    }

    #[test]
    fn a_queue_has_several_settings_in_one_change() {
        let any = |amount| Limits::from([(Resource::Any, amount)]);
        let settings = vec![Setting::Guarantee(any(Amount::Finite(16_000))), Setting::Weight(2)];
        assert_eq!(read("queue a/b guarantee=16 weight=2"), Change::Queue("a/b".into(), settings));
        let Change::Queue(_, settings) = read("queue a limit=h100:0.5,any:unlimited") else { panic!() };
        let two = [(Resource::Model("h100".into()), Amount::Finite(500)), (Resource::Any, Amount::Unlimited)];
        assert_eq!(settings, [Setting::Limit(Limits::from(two))]);
    }

    #[test]
    fn nonsense_names_the_nearest_word_and_all_forms() {
        let said = |text: &str| text.parse::<Change>().unwrap_err().to_string();
        assert!(said("node+1").contains("did you mean nodes?"), "{}", said("node+1"));
        assert!(said("queue a garantee=3").contains("did you mean guarantee?"));
        assert!(said("queue a colour=3").contains("there are guarantee, limit"));
        for text in [
            "",
            "nodes",
            "nodes+",
            "nodes-",
            "nodes+0",
            "nodes-0",
            "nodes+2x",
            "queue",
            "queue a",
            "queue a b",
            "queue a limit=x",
            "queue a limit=1,2",
            "queue a limit=1 limit=2",
            "queue a//b limit=1",
            "queue a weight=-1",
            "policy",
            "polcy fifo",
        ] {
            assert!(said(text).contains("nodes+2xh100:8"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_of_changes_panic(text in ".{0,80}") {
            let _ = text.parse::<Change>();
            let _ = format!("nodes{text}").parse::<Change>();
            let _ = format!("queue {text}").parse::<Change>();
            let _ = format!("queue a limit={text}").parse::<Change>();
        }

        #[test]
        fn a_change_reads_back_as_it_is_written(
            count in 1u32..1000, gpus in 1u32..17, path in "[a-z]{1,8}(/[a-z]{1,8}){0,2}", milli in 0i64..1_000_000,
            weight: u32, priority: i32, which in 0usize..4, cpu: bool,
        ) {
            let mut limits = Limits::from([(Resource::Any, Amount::Finite(milli))]);
            limits.extend(cpu.then_some((Resource::Cpu, Amount::Unlimited)));
            let key = [Setting::Guarantee, Setting::Limit, Setting::Borrow, Setting::Lend][which];
            let changes = [
                Change::MoreNodes(count),
                Change::FewerNodes(count),
                Change::AddNodes(NodeGroup { count, model: "h100".into(), gpus }),
                Change::Queue(path, vec![key(limits), Setting::Weight(weight), Setting::Priority(priority)]),
            ];
            for change in changes {
                prop_assert_eq!(change.to_string().parse::<Change>(), Ok(change));
            }
        }
    }
}
