//! How fast a kind of job runs on each model of GPU: `name,gpus,model,steps_per_s`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use super::decimal::{Decimal, Ratio};
use super::{MOST_GPUS, Table, TraceError};

/// The columns of the file.
pub const COLUMNS: [&str; 4] = ["name", "gpus", "model", "steps_per_s"];

/// The model that durations in a trace are measured on.
pub const BASE_MODEL: &str = "v100";

/// The speeds of all kinds of jobs. A kind is a name and a number of GPUs.
#[derive(Clone, Debug, Default)]
pub struct Speeds {
    steps_per_s: BTreeMap<(String, u32), BTreeMap<String, Decimal>>,
}

/// Reads a table of speeds.
pub fn read(path: &Path) -> Result<Speeds, TraceError> {
    let mut table = Table::open(path)?;
    let [name, gpus, model, steps_per_s] = table.columns(COLUMNS)?;
    let mut speeds = Speeds::default();
    while table.advance()? {
        let kind =
            (table.name(name)?, table.whole(gpus, 1..=i64::from(MOST_GPUS), "a number of GPUs")? as u32);
        let speed = table.text(steps_per_s).parse();
        let speed = speed.map_err(|_| {
            table.cell(steps_per_s, "a decimal number above zero of at most 15 digits, as in 2.5")
        })?;
        match speeds.steps_per_s.entry(kind).or_default().entry(table.name(model)?) {
            Entry::Vacant(free) => free.insert(speed),
            Entry::Occupied(_) => return Err(table.duplicate(model)),
        };
    }
    Ok(speeds)
}

impl Speeds {
    /// The steps that a kind of job makes per second on a model; `None` where it cannot run there.
    pub fn steps_per_s(&self, name: &str, gpus: u32, model: &str) -> Option<Decimal> {
        self.kind(name, gpus)?.get(model).copied()
    }

    /// How many seconds' worth of progress on [`BASE_MODEL`] a kind of job makes in one second on a model; `None`
    /// where it cannot run there, or has no speed to compare with.
    pub fn relative(&self, name: &str, gpus: u32, model: &str) -> Option<Ratio> {
        let kind = self.kind(name, gpus)?;
        kind.get(model)?.per(*kind.get(BASE_MODEL)?)
    }

    /// The models on which a kind of job can run, by name, each with its speed relative to [`BASE_MODEL`].
    pub fn models<'a>(&'a self, name: &str, gpus: u32) -> impl Iterator<Item = (&'a str, Ratio)> + use<'a> {
        let kind = self.kind(name, gpus);
        let base = kind.and_then(|kind| kind.get(BASE_MODEL)).copied();
        let models = kind.into_iter().flatten();
        models.filter_map(move |(model, speed)| Some((model.as_str(), speed.per(base?)?)))
    }

    fn kind(&self, name: &str, gpus: u32) -> Option<&BTreeMap<String, Decimal>> {
        // The key is only built where there are speeds at all, which is rare.
        self.steps_per_s.get(&(name.to_owned(), gpus))
    }
}
