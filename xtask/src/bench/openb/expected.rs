//! The published curves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

/// Allocated, fragmented of what is idle, fragmented of the capacity, in percent: what the file holds of one bin.
pub(super) type Point = [f64; 3];

/// The curve of each experiment, by trace, policy and seed.
pub(super) struct Expected(BTreeMap<(String, String, u64), BTreeMap<usize, Point>>);

impl Expected {
    /// Reads `trace,policy,seed,arrived_percent` and the three values.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let mut curves: BTreeMap<_, BTreeMap<usize, Point>> = BTreeMap::new();
        for (index, line) in text.lines().enumerate().skip(1) {
            let row =
                row(line).with_context(|| format!("{}, line {}: {line:?}", path.display(), index + 1))?;
            let (trace, policy, seed, bin, point) = row;
            curves.entry((trace.to_owned(), policy.to_owned(), seed)).or_default().insert(bin, point);
        }
        Ok(Self(curves))
    }

    /// Every trace with every seed.
    pub(super) fn experiments(&self) -> impl Iterator<Item = (String, u64)> {
        let all: BTreeSet<(String, u64)> =
            self.0.keys().map(|(trace, _, seed)| (trace.clone(), *seed)).collect();
        all.into_iter()
    }

    /// The curve of one experiment.
    pub(super) fn curve(&self, trace: &str, policy: &str, seed: u64) -> Option<&BTreeMap<usize, Point>> {
        self.0.get(&(trace.to_owned(), policy.to_owned(), seed))
    }
}

fn row(line: &str) -> Result<(&str, &str, u64, usize, Point)> {
    let mut cells = line.split(',');
    let mut next = || cells.next().context("expected seven cells");
    let (trace, policy) = (next()?, next()?);
    let (seed, bin) = (next()?.parse()?, next()?.parse()?);
    Ok((trace, policy, seed, bin, [next()?.parse()?, next()?.parse()?, next()?.parse()?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_by_its_columns() {
        let read = row("cpu100,best-fit,42,1,1.0,10.9627,10.850").unwrap();
        assert_eq!(read, ("cpu100", "best-fit", 42, 1, [1.0, 10.9627, 10.85]));
        assert!(row("cpu100,best-fit,42").is_err());
    }
}
