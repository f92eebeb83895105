//! What must come out of a case, and what its peer chose beyond that.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

use super::answer::{Available, Outcome, Share};
use super::read::strictly;

/// What a case expects.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) strength: String,
    pub(super) must: Vec<MustBe>,
    /// The job for which others go, where the facts speak only of those others.
    pub(super) for_whom: Option<String>,
    pub(super) prefer: Vec<Prefer>,
    /// What must come out, as the case has it.
    pub(super) shown: Value,
}

/// One fact.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum MustBe {
    /// Jobs that are alike, and what becomes of them, in any order.
    Class { jobs: Vec<String>, tallies: Vec<Tally> },
    /// How many pods of a set get a place.
    Placement { podset: String, fits: bool, count: usize },
    /// How much a queue could still take.
    #[serde(skip)]
    Available(Available),
    /// How much of what others lend a queue has.
    #[serde(skip)]
    Share(Share),
    /// Whether a job fits.
    Choice { fits: bool, needs_eviction: bool },
}

/// How many tasks of a job (of one of its groups, where the outcome names it) fare how.
pub(super) type Tally = BTreeMap<Fared, u32>;

/// An outcome, within a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fared {
    pub(super) group: Option<String>,
    pub(super) outcome: Outcome,
}

impl<'de> Deserialize<'de> for Fared {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let (word, group) =
            text.split_once('@').map_or((text.as_ref(), None), |(word, group)| (word, Some(group)));
        let outcome = Outcome::read(word)
            .ok_or_else(|| D::Error::custom(format!("{word:?} is no outcome of a task")))?;
        Ok(Self { group: group.map(str::to_owned), outcome })
    }
}

/// One choice of the peer: what it is about, and what was chosen.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Prefer {
    pub(super) job: Option<String>,
    pub(super) task: Option<String>,
    pub(super) podset: Option<String>,
    pub(super) outcome: Option<String>,
    pub(super) tally: Option<Tally>,
    pub(super) node: Option<String>,
    pub(super) gpu_groups: Option<Vec<String>>,
    pub(super) reason: Option<String>,
    pub(super) flavors: Option<BTreeMap<String, String>>,
    pub(super) placement: Option<Spread>,
}

/// Where pods go: how many to each domain.
#[derive(Debug, Deserialize)]
pub(super) struct Spread {
    pub(super) levels: Vec<String>,
    pub(super) domains: Vec<Domain>,
}

/// A domain, by its labels on those levels, and its pods.
#[derive(Debug, Deserialize)]
pub(super) struct Domain {
    pub(super) values: Vec<String>,
    pub(super) count: usize,
}

#[derive(Deserialize)]
struct ExpectedText {
    strength: String,
    #[serde(default)]
    must: Vec<MustBe>,
    #[serde(default)]
    prefer: Vec<Prefer>,
    #[serde(default)]
    peer_specific: Vec<String>,
    #[serde(default)]
    available: Vec<Available>,
    #[serde(default)]
    available_when_empty: Vec<Available>,
    #[serde(default)]
    shares: Vec<Share>,
}

impl ExpectedText {
    /// All facts.
    fn facts(&mut self) -> Vec<MustBe> {
        let mut facts = std::mem::take(&mut self.must);
        let empty = self.available_when_empty.drain(..).map(|it| Available { when_empty: true, ..it });
        facts.extend(self.available.drain(..).chain(empty).map(MustBe::Available));
        facts.extend(self.shares.drain(..).map(MustBe::Share));
        facts
    }
}

/// The queue and the priority of each job of a case, by its name.
pub(super) type Ranks = BTreeMap<String, (String, i32)>;

/// Merges facts about running jobs of one queue and priority: that some of them go must be, but which is the peer's choice.
fn together(facts: Vec<MustBe>, ranks: &Ranks) -> Vec<MustBe> {
    type Alike = (Vec<String>, Vec<Tally>);
    let mut running: BTreeMap<&(String, i32), Alike> = BTreeMap::new();
    let mut others = Vec::new();
    for fact in facts {
        let rank = match &fact {
            MustBe::Class { jobs, tallies } => {
                let runs = |fared: &Fared| matches!(fared.outcome, Outcome::Keep | Outcome::Evict);
                let all_run = tallies.iter().flat_map(Tally::keys).all(runs);
                jobs.first().and_then(|job| ranks.get(job)).filter(|_| all_run)
            }
            _ => None,
        };
        match (rank, fact) {
            (Some(rank), MustBe::Class { jobs, tallies }) => {
                let alike = running.entry(rank).or_default();
                alike.0.extend(jobs);
                alike.1.extend(tallies);
            }
            (_, fact) => others.push(fact),
        }
    }
    let running = running.into_values().map(|(jobs, tallies)| MustBe::Class { jobs, tallies });
    others.into_iter().chain(running).collect()
}

/// Reads what is expected of a case that can be asked; `incoming` is the job that a case about victims names.
pub(super) fn read(value: Value, incoming: Option<&str>, ranks: &Ranks) -> Result<Expected, String> {
    let shown = shown(&value);
    let (mut read, _): (ExpectedText, _) = strictly(value).map_err(|what| format!("expected.{what}"))?;
    let mut must = read.facts();
    if read.peer_specific.iter().any(|what| what == "victim_choice") {
        must = together(must, ranks);
    }
    let evicts = |fact: &MustBe| match fact {
        MustBe::Class { tallies, .. } => {
            tallies.iter().flat_map(Tally::keys).any(|fared| fared.outcome == Outcome::Evict)
        }
        _ => false,
    };
    let for_whom = incoming.filter(|_| must.iter().any(evicts)).map(str::to_owned);
    Ok(Expected { strength: read.strength, must, for_whom, prefer: read.prefer, shown })
}

/// Keeps what is expected of a case that cannot be asked.
pub(super) fn unread(value: Value) -> Expected {
    let strength = value.get("strength").and_then(Value::as_str).unwrap_or_default().to_owned();
    Expected { strength, must: Vec::new(), for_whom: None, prefer: Vec::new(), shown: shown(&value) }
}

/// The facts or, for kinds of cases that have no list of facts, the amounts.
fn shown(value: &Value) -> Value {
    let field = |name: &str| value.get(name).filter(|value| **value != Value::Array(Vec::new())).cloned();
    let first = ["must", "available", "shares"].into_iter().find_map(field);
    first.unwrap_or(Value::Null)
}
