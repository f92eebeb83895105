//! The words of a line: those in place, those with a name, and what stands in braces.

use std::collections::BTreeMap;

use crate::amount::{Bytes, scaled};
use crate::time::Span;

/// The words of a line.
pub(super) struct Words<'a> {
    pub(super) placed: Vec<&'a str>,
    pub(super) named: BTreeMap<&'a str, &'a str>,
    /// From the first brace to the end of the line.
    pub(super) braces: Option<&'a str>,
    /// Everything after the verb.
    pub(super) rest: &'a str,
    /// A name that has two values.
    twice: Option<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn of(line: &'a str) -> Self {
        let remark = line.find('#').unwrap_or(line.len());
        let brace = line.find('{').filter(|brace| *brace < remark);
        let (words, braces) = match brace {
            Some(brace) => (&line[..brace], Some(line[brace..].trim())),
            None => (&line[..remark], None),
        };
        let (named, placed) = words.split_whitespace().partition::<Vec<_>, _>(|word| word.contains('='));
        let whole = if brace.is_some() { line } else { words };
        let rest = whole.trim().split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim());
        let (mut by_name, mut twice) = (BTreeMap::new(), None);
        for (name, value) in named.into_iter().filter_map(|word| word.split_once('=')) {
            twice = twice.or(by_name.insert(name, value).map(|_| name));
        }
        Self { placed, named: by_name, braces, rest, twice }
    }

    pub(super) fn at(&self, index: usize, what: &str) -> Result<&'a str, String> {
        self.placed.get(index).copied().ok_or_else(|| format!("{what} is missing"))
    }

    pub(super) fn has(&self, flag: &str) -> bool {
        self.placed.contains(&flag)
    }

    /// A whole number.
    pub(super) fn number(&self, name: &str, default: i64) -> Result<i64, String> {
        self.named
            .get(name)
            .map_or(Ok(default), |text| text.parse().map_err(|_| format!("{name}={text} is no number")))
    }

    /// A whole number from 0 to the highest count that tasks and devices can have.
    pub(super) fn count(&self, name: &str, default: u32) -> Result<u32, String> {
        let wrong = |text: &str| format!("{name}={text} is no number of things: write 0 or more");
        self.named.get(name).map_or(Ok(default), |text| text.parse().map_err(|_| wrong(text)))
    }

    /// Cores, whole or decimal, as milli-cores.
    pub(super) fn cores(&self, name: &str) -> Result<Option<i64>, String> {
        let wrong = |text: &str| format!("{name}={text} is no number of cores: write 4 or 0.5");
        self.named.get(name).map(|text| scaled(text, 1000).ok_or_else(|| wrong(text))).transpose()
    }

    /// Memory: in GiB, or with a unit.
    pub(super) fn memory(&self, name: &str) -> Result<Option<i64>, String> {
        let wrong = |text: &str| format!("{name}={text} is no amount of memory: write 8 (GiB) or 512Mi");
        self.named.get(name).map(|text| bytes(text).ok_or_else(|| wrong(text))).transpose()
    }

    /// Cores and memory, several times: `32:256,32:256`.
    pub(super) fn cores_and_memory(&self, name: &str) -> Result<Vec<(i64, i64)>, String> {
        let text = self.named.get(name).copied().unwrap_or_default();
        let wrong = || format!("{name}={text} are no cores with memory: write 32:256,32:256Gi");
        let one = |part: &str| {
            let (cores, memory) = part.split_once(':')?;
            Some((scaled(cores, 1000)?, bytes(memory)?))
        };
        let parts = text.split(',').filter(|_| self.named.contains_key(name));
        parts.map(|part| one(part).ok_or_else(wrong)).collect()
    }

    /// A length of time; a plus before it is allowed.
    pub(super) fn span(&self, name: &str) -> Result<Option<Span>, String> {
        let read = |text: &&str| text.trim_start_matches('+').parse::<Span>();
        let wrong = |error| format!("{name}: {error}");
        self.named.get(name).map(read).transpose().map_err(wrong)
    }

    /// Refuses words that the verb does not know: it takes so many words in place, then these.
    pub(super) fn only(&self, places: usize, flags: &str, names: &str) -> Result<(), String> {
        if let Some(name) = self.twice {
            return Err(format!("{name}= stands twice: write it once"));
        }
        let is_of = |list: &str, word: &str| list.split_whitespace().any(|known| known == word);
        let flag = self.placed.iter().skip(places).find(|word| !is_of(flags, word)).copied();
        let name = self.named.keys().find(|name| !is_of(names, name)).copied();
        let Some(unknown) = flag.or(name) else { return Ok(()) };
        let verb = self.placed.first().copied().unwrap_or_default();
        let named = names.split_whitespace().map(|name| format!("{name}="));
        let known: Vec<String> = flags.split_whitespace().map(str::to_owned).chain(named).collect();
        Err(match known.is_empty() {
            true => format!("{unknown:?} is more than {verb} takes"),
            false => format!("{verb} does not know {unknown:?}; it knows: {}", known.join(" ")),
        })
    }
}

/// An amount of memory: in GiB, or with a unit.
fn bytes(text: &str) -> Option<i64> {
    scaled(text, 1 << 30).or_else(|| text.parse::<Bytes>().ok().map(|bytes| bytes.0))
}
