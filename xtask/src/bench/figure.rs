//! Figures: what was measured of which program, over some runs, and the bound it is compared with.

use serde::Serialize;

/// A target of the project.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    /// Less is better.
    AtMost(f64),
    /// More is better.
    AtLeast(f64),
}

impl Bound {
    /// How a value relates to the bound: below 1 means better than asked, for either kind.
    pub(super) fn share(self, value: f64) -> f64 {
        match self {
            Bound::AtMost(bound) => value / bound,
            Bound::AtLeast(bound) => bound / value,
        }
    }
}

/// One figure of one program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    /// The program: `divvy`, `slurm`, `pueue`, or `bare` for the machine without any of them.
    pub(super) subject: &'static str,
    /// A stable name, ending in the unit.
    pub(super) name: String,
    /// What it is, in words.
    pub(super) what: String,
    /// The median of the runs.
    pub(super) median: f64,
    /// The least of the runs.
    pub(super) least: f64,
    /// The most of the runs.
    pub(super) most: f64,
    /// How many runs there were.
    pub(super) runs: usize,
    /// The project's target, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<Bound>,
    /// The median as a share of the bound: up to 1 is within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) share_of_bound: Option<f64>,
}

/// One program's figure as a multiple of another's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    /// What is compared.
    pub(super) what: String,
    /// Divvy's median over the other's.
    pub(super) ratio: f64,
    /// The project's target, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<Bound>,
    /// The ratio as a share of the bound: up to 1 is within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) share_of_bound: Option<f64>,
}

impl Ratio {
    pub(super) fn new(what: String, ratio: f64, bound: Option<Bound>) -> Self {
        Self { what, ratio, bound, share_of_bound: bound.map(|bound| bound.share(ratio)) }
    }
}

/// All figures, in the order in which they were taken.
#[derive(Default)]
pub(super) struct Figures(pub(super) Vec<Figure>);

impl Figures {
    /// Adds a figure from its runs; without any run there is no figure.
    pub(super) fn add(&mut self, subject: &'static str, name: &str, what: &str, runs: &[f64]) {
        self.add_bound(subject, name, what, (runs, None));
    }

    /// Adds a figure that has a bound.
    pub(super) fn add_bound(
        &mut self,
        subject: &'static str,
        name: &str,
        what: &str,
        (runs, bound): (&[f64], Option<Bound>),
    ) {
        let sorted = sorted(runs);
        let (Some(&least), Some(&most)) = (sorted.first(), sorted.last()) else { return };
        let median = median(&sorted);
        let share_of_bound = bound.map(|bound| bound.share(median));
        let (name, what, runs) = (name.to_owned(), what.to_owned(), sorted.len());
        self.0.push(Figure { subject, name, what, median, least, most, runs, bound, share_of_bound });
    }

    /// The median of a figure.
    pub(super) fn median(&self, subject: &str, name: &str) -> Option<f64> {
        self.0
            .iter()
            .find(|figure| figure.subject == subject && figure.name == name)
            .map(|figure| figure.median)
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The middle of sorted values; of an even number, the mean of the two in the middle.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    if sorted.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.wrapping_sub(1)), at(middle)) }
}

/// The value that so many percent of the others do not exceed (nearest rank).
pub(super) fn percentile(values: &[f64], percent: usize) -> f64 {
    let sorted = sorted(values);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_of_its_runs_with_least_and_most() {
        let mut figures = Figures::default();
        figures.add_bound("divvy", "start_ms", "", (&[9.0, 5.0, 7.0], Some(Bound::AtMost(10.0))));
        let figure = &figures.0[0];
        assert_eq!((figure.least, figure.median, figure.most, figure.runs), (5.0, 7.0, 9.0, 3));
        assert_eq!(figure.share_of_bound, Some(0.7));
        assert_eq!(figures.median("divvy", "start_ms"), Some(7.0));
    }

    #[test]
    fn without_runs_there_is_no_figure() {
        let mut figures = Figures::default();
        figures.add("divvy", "start_ms", "", &[]);
        assert!(figures.0.is_empty());
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 50), 100.0);
        assert_eq!(percentile(&values, 99), 198.0);
        assert_eq!(percentile(&[3.0], 99), 3.0);
    }

    #[test]
    fn a_share_up_to_one_is_within_the_bound_whatever_its_kind() {
        assert_eq!(Bound::AtMost(10.0).share(5.0), 0.5);
        assert_eq!(Bound::AtLeast(300.0).share(600.0), 0.5);
    }
}
