//! The text of a policy: settings by name, with lengths of time as people write them.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::{NO_CAP, Nonsense, Policy, nonsense};
use crate::model::misread;
use crate::model::newer::Newer;
use crate::time::Span;

/// The names under which people write settings that the log keeps in milliseconds. Texts may use either name.
const SPANS: [(&str, &str); 14] = [
    ("half_life_ms", "half_life"),
    ("catch_up_ms", "catch_up"),
    ("collect_after_ms", "collect_after"),
    ("min_runtime_ms", "min_runtime"),
    ("ageing_ms_per_point", "ageing"),
    ("step_ms", "step"),
    ("broken_gang_grace_ms", "broken_gang_grace"),
    ("starve_after_ms", "starve_after"),
    ("quantum_ms", "quantum"),
    ("cool_down_ms", "cool_down"),
    ("levels_device_ms", "levels"),
    ("head_start_ms", "head_start"),
    ("hold_ms", "hold"),
    ("every_ms", "every"),
];

/// Returns all settings of a policy under the names that [`parse`] reads, with lengths of time as `7d` or `none`.
pub fn said(policy: &Policy) -> Map<String, Value> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(settings)) => in_words(settings),
        _ => Map::new(),
    }
}

fn in_words(settings: Map<String, Value>) -> Map<String, Value> {
    let word =
        |(name, value): (String, Value)| match SPANS.iter().find(|(milliseconds, _)| *milliseconds == name) {
            Some((_, name)) => ((*name).to_owned(), span_text(value)),
            None => match value {
                Value::Object(inner) => (name, Value::Object(in_words(inner))),
                value => (name, value),
            },
        };
    settings.into_iter().map(word).collect()
}

/// Milliseconds, or several of them, as lengths of time.
fn span_text(value: Value) -> Value {
    match value {
        Value::Array(spans) => spans.into_iter().map(span_text).collect(),
        value => match value.as_i64() {
            Some(0) => "none".into(),
            Some(ms) if ms > 0 => Span(ms).written().into(),
            _ => value,
        },
    }
}

/// Reads a length of time: milliseconds as a number, `7d` or `none`.
pub(in crate::model) fn span_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    struct Ms;
    impl Visitor<'_> for Ms {
        type Value = i64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a length of time such as 7d or 12h, or none")
        }
        fn visit_i64<E>(self, ms: i64) -> Result<i64, E> {
            Ok(ms)
        }
        fn visit_u64<E: serde::de::Error>(self, ms: u64) -> Result<i64, E> {
            i64::try_from(ms).map_err(E::custom)
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<i64, E> {
            match text {
                "none" => Ok(0),
                _ => text.parse::<Span>().map(|span| span.0).map_err(E::custom),
            }
        }
    }
    deserializer.deserialize_any(Ms)
}

/// Reads a length of time that may be unsaid, likewise.
pub(super) fn newer_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Newer<i64>, D::Error> {
    span_ms(deserializer).map(|ms| Newer(Some(ms)))
}

/// Reads several lengths of time, likewise.
pub(super) fn spans_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i64>, D::Error> {
    #[derive(Deserialize)]
    struct Ms(#[serde(deserialize_with = "span_ms")] i64);
    let spans = Vec::<Ms>::deserialize(deserializer)?;
    Ok(spans.into_iter().map(|Ms(ms)| ms).collect())
}

/// Reads a bound on how often something happens: a number, or `none`.
pub(super) fn cap<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Newer<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Cap {
        Number(u32),
        Word(String),
    }
    match Cap::deserialize(deserializer) {
        Ok(Cap::Number(most)) => Ok(Newer(Some(most))),
        Ok(Cap::Word(word)) if word == "none" => Ok(Newer(Some(NO_CAP))),
        _ => Err(serde::de::Error::custom("most_restarts is a whole number, or none")),
    }
}

/// Writes such a bound likewise.
pub(super) fn cap_said<S: serde::Serializer>(most: &Newer<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    match most.said() {
        Some(&NO_CAP) | None => serializer.serialize_str("none"),
        Some(most) => serializer.serialize_u32(*most),
    }
}

/// What is wrong with the text of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy, line {line}, column {column}: {what}")]
pub struct BadPolicy {
    /// From 1.
    pub line: u64,
    /// From 1.
    pub column: u64,
    /// What is wrong.
    pub what: String,
}

/// Reads the text of a policy file (YAML): settings by name; those that it leaves out stay at their defaults.
pub fn parse(text: &str) -> Result<Policy, BadPolicy> {
    if let Some(bad) = without_unit(text, None) {
        return Err(bad);
    }
    let policy: Policy = serde_saphyr::from_str(text).map_err(|error| {
        let (line, column, what) = misread::told(&error, text);
        BadPolicy { line, column, what }
    })?;
    match nonsense(&policy) {
        None => Ok(policy.completed()),
        Some(Nonsense { key, what }) => {
            let (line, column) = place_of(text, key).unwrap_or((1, 1));
            Err(BadPolicy { line, column, what })
        }
    }
}

/// Line and column, from 1, of the value of a setting in a text; its name stands after those of the settings that it is in.
pub(in crate::model) fn place_of(text: &str, key: &[&str]) -> Option<(u64, u64)> {
    let (name, above) = key.split_last()?;
    let tree: Tree = serde_saphyr::from_str(text).ok()?;
    let inner = above.iter().try_fold(&tree, |tree, name| Some(&tree.at(name)?.value))?;
    let place = &inner.at(name)?.referenced;
    Some((place.line(), place.column()))
}

/// Finds the first length of time in the text of a policy, or in a section of a text, that is a number without a unit: it could be seconds
/// or minutes. Only the names in milliseconds take plain numbers.
pub(in crate::model) fn without_unit(text: &str, section: Option<&str>) -> Option<BadPolicy> {
    let tree: Tree = serde_saphyr::from_str(text).ok()?;
    bare_number(match section {
        None => &tree,
        Some(name) => &tree.at(name)?.value,
    })
}

fn bare_number(tree: &Tree) -> Option<BadPolicy> {
    let Tree::Keys(pairs) = tree else { return None };
    // Models can have any name.
    pairs.iter().filter(|(name, _)| name != "prices").find_map(|(name, value)| {
        let is_span = SPANS.iter().any(|(_, word)| word == name);
        if !is_span || !value.value.is_a_number() {
            return bare_number(&value.value);
        }
        let (line, column) = (value.referenced.line(), value.referenced.column());
        let what = format!("{name}: a length of time needs its unit: write 90s, 30m, 2h or 7d, or none");
        Some(BadPolicy { line, column, what })
    })
}

/// The shape of a text: where it has numbers.
enum Tree {
    Number,
    Keys(Vec<(String, Spanned<Tree>)>),
    Items(Vec<Tree>),
    Other,
}

impl Tree {
    /// The value of a key, by either of its names.
    fn at(&self, key: &str) -> Option<&Spanned<Self>> {
        let Self::Keys(pairs) = self else { return None };
        let in_ms = SPANS.iter().find(|(_, word)| *word == key).map(|(name, _)| *name);
        pairs.iter().find(|(name, _)| name == key || Some(&**name) == in_ms).map(|(_, value)| value)
    }

    fn is_a_number(&self) -> bool {
        match self {
            Self::Number => true,
            Self::Items(items) => items.iter().any(Self::is_a_number),
            Self::Keys(_) | Self::Other => false,
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyTree)
    }
}

struct AnyTree;

impl<'de> Visitor<'de> for AnyTree {
    type Value = Tree;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_i64<E>(self, number: i64) -> Result<Tree, E> {
        Ok(if number == 0 { Tree::Other } else { Tree::Number })
    }
    fn visit_u64<E>(self, number: u64) -> Result<Tree, E> {
        Ok(if number == 0 { Tree::Other } else { Tree::Number })
    }
    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Number)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Other)
    }
    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Other)
    }
    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Other)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element()? {
            read.push(item);
        }
        Ok(Tree::Items(read))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Tree, A::Error> {
        let mut read = Vec::new();
        while let Some(pair) = pairs.next_entry()? {
            read.push(pair);
        }
        Ok(Tree::Keys(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::moves::Moves;
    use crate::model::policy::{Order, Preempt, Within};
    use proptest::prelude::*;

    #[test]
    fn a_policy_file_names_what_differs_from_the_default() {
        let policy = parse(
            "order: attained\nattained: {levels_device_ms: [1000, 2000], within: turn}\npreempt: walk\n",
        )
        .unwrap();
        assert_eq!(
            (policy.order, policy.preempt, policy.attained.within),
            (Order::Attained, Preempt::Walk, Within::Turn)
        );
        assert_eq!(policy.attained.levels_device_ms, [1000, 2000]);
        assert_eq!(policy.broken_gang_grace_ms, Policy::default().broken_gang_grace_ms);
        assert_eq!(parse("{}").unwrap(), Policy::default());
    }

    #[test]
    fn what_came_later_is_written_only_where_it_is_said_and_read_back() {
        let policy =
            parse("starve_after: 3d\ncool_down: none\nmost_restarts: none\nmoves: {every: 2h}\n").unwrap();
        let moves = Moves { every_ms: 7_200_000, ..Moves::default() };
        assert_eq!(policy.moves, Newer(Some(moves)));
        assert_eq!((policy.starve_after(), policy.quantum()), (Some(Span(3 * 86_400_000)), Span(3_600_000)));
        assert!(policy.cool_down().is_none() && policy.restarts_cap().is_none() && !policy.counts_restarts());
        let text = serde_json::to_string(&policy).unwrap();
        assert!(text.contains(r#""cool_down_ms":0,"most_restarts":"none""#), "{text}");
        assert!(!text.contains("quantum_ms"), "{text}");
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
        assert_eq!(parse("starve_after: 10m").unwrap().quantum(), Span(600_000));
    }

    #[test]
    fn lengths_of_time_are_written_as_people_say_them_and_read_back() {
        let text = "order: attained\nattained: {levels: [2000s, 4h], head_start: 14m, foreseen: {hold: 5m}}\nmin_runtime: 10m\ncollect_after: none\nageing: 1h40m\nhalf_life: none\nmoves: {every: 2h}\n";
        let policy = parse(text).unwrap();
        assert_eq!(policy.attained.levels_device_ms, [2_000_000, 14_400_000]);
        let spans = (policy.min_runtime_ms, policy.collect_after_ms, policy.ageing_ms_per_point);
        assert_eq!(spans, (600_000, 0, 6_000_000));
        let said = said(&policy);
        assert_eq!((&said["min_runtime"], &said["half_life"]), (&"10m".into(), &"none".into()));
        assert_eq!(said["attained"]["levels"][0], "2000s");
        assert_eq!(said["moves"]["every"], "2h");
        assert_eq!(parse(&serde_json::to_string(&said).unwrap()).unwrap(), policy);
        let in_ms = "{min_runtime_ms: 600000, attained: {hold_ms: 1}}";
        assert_eq!(
            (parse(in_ms).unwrap().min_runtime_ms, parse("min_runtime: 0").unwrap().min_runtime_ms),
            (600_000, 0)
        );
    }

    #[test]
    fn a_length_of_time_without_its_unit_is_refused_where_it_stands() {
        for (text, place) in [
            ("min_runtime: 600", (1, 14)),
            ("order: attained\nattained: {levels: [1s, 2]}", (2, 20)),
            ("moves:\n  every: 3600", (2, 10)),
        ] {
            let bad = parse(text).unwrap_err();
            assert_eq!((bad.line, bad.column), place, "{text}: {bad}");
            assert!(bad.what.contains("needs its unit"), "{bad}");
        }
    }

    #[test]
    fn a_log_from_before_there_was_a_setting_means_that_there_is_none_and_a_text_means_the_default() {
        let old = serde_json::from_str::<Policy>("{}").unwrap();
        assert!(old.starve_after().is_none() && !old.counts_restarts());
        let text = serde_json::to_string(&old.spelled_out()).unwrap();
        let read = parse(&text).unwrap();
        assert!(read.starve_after().is_none() && !read.counts_restarts());
        let new = parse("{}").unwrap();
        assert!(new.starve_after().is_some() && new.cool_down().is_some() && new.restarts_cap().is_none());
        assert!(parse("preempt: off").unwrap().starve_after().is_none());
    }

    #[test]
    fn an_unknown_setting_is_told_with_those_that_people_write() {
        let near = parse("ordr: attained").unwrap_err().to_string();
        assert!(near.ends_with("unknown key \"ordr\": did you mean order?"), "{near}");
        let far = parse("policy: {order: attained}").unwrap_err().to_string();
        assert!(far.contains("write one of order, ") && far.contains(", half_life, "), "{far}");
        assert!(!far.contains("_ms"), "{far}");
    }

    #[test]
    fn what_contradicts_itself_is_told_at_its_key() {
        for (text, place, what) in [
            ("reserve: 2\nstep: none\n", (2, 7), "step: it must be above 0"),
            ("{reserve: 2, catch_up: none}", (1, 24), "catch_up: it must be above 0"),
            ("attained:\n  levels: [2s, 1s]\n", (2, 11), "levels: they must rise"),
            ("attained: {foreseen: {levels_device_ms: [2, 2]}}", (1, 41), "levels: they must rise"),
            ("quantum: none", (1, 10), "quantum: it must be above 0"),
            ("quantum: 8d", (1, 10), "quantum: it must not be above starve_after, which is 7d"),
            ("{starve_after: 1h, quantum: 2h}", (1, 29), "which is 1h"),
            ("moves: {every: none}", (1, 16), "every: it must be above 0"),
            ("{preempt: off, starve_after: 1h}", (1, 30), "starve_after: it needs jobs that give way"),
        ] {
            let bad = parse(text).unwrap_err();
            assert_eq!((bad.line, bad.column), place, "{text}: {bad}");
            assert!(bad.what.contains(what), "{text}: {bad}");
        }
        for text in ["quantum: 7d", "{quantum: 8d, starve_after: none}", "{quantum: 8d, preempt: off}"] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn nonsense_in_a_policy_names_its_place() {
        for text in [
            "ordre: arrival",
            "order: random",
            "attained: {levels_device_ms: [2, 1]}",
            "step_ms: 0",
            "ageing_ms_per_point: -1",
            "broken_gang_grace_ms: -1",
            "attained: {levels_device_ms: [-2, 1]}",
            "attained: {foreseen: {levels_device_ms: [-2, 1]}}",
            "[",
            "starve_after: -1",
            "{starve_after: 1h, preempt: off}",
            "{starve_after: 1h, quantum: 2h}",
            "moves: {every: none}",
            "moves: {per_user: 1}",
            "moves: {per_job: -1}",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.line >= 1 && !error.what.is_empty(), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_policy_parser_panic(text in ".{0,200}") {
            let _ = parse(&text);
        }
    }
}
