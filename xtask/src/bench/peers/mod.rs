//! What others need for the same work, on the same machine in the same run; installed and run below target/.

mod pueue;
mod slurm;

use std::path::PathBuf;

use anyhow::Result;

use super::array::GPUS;
use super::figure::{Bound, Figures, Ratio};
use super::start::{Start, Starts};
use super::{Bench, Measure, Versions, say};

/// Another program that runs jobs, set up for some number of GPUs; it ends when it is dropped.
trait Peer: Sized {
    /// Its name in the report.
    const NAME: &'static str;
    /// What its user types for one job.
    const HOW: &'static str;

    /// Installs it, if it is not there yet, and says its version.
    fn install(bench: &Bench) -> Result<String>;

    /// Starts it.
    fn start(bench: &Bench, gpus: u32) -> Result<Self>;

    /// Starts one job on an idle pool.
    fn one(&mut self, job: &str) -> Result<Start>;

    /// Runs so many `true`s to the end, and says how many seconds that took.
    fn many(&mut self, jobs: usize) -> Result<f64>;
}

/// Measures all peers; a peer that cannot be measured is left out, with the reason in place of its version.
pub(super) fn measure(bench: &Bench, measures: &[Measure], figures: &mut Figures) -> Result<Versions> {
    Ok(vec![of::<slurm::Slurm>(bench, measures, figures), of::<pueue::Pueue>(bench, measures, figures)])
}

fn of<P: Peer>(bench: &Bench, measures: &[Measure], figures: &mut Figures) -> (String, String) {
    say(&format!("installing {}", P::NAME));
    let version = P::install(bench);
    let measured = version.and_then(|version| take::<P>(bench, measures, figures).map(|()| version));
    let said = measured.unwrap_or_else(|error| format!("not measured: {error:#}"));
    say(&format!("{}: {said}", P::NAME));
    (P::NAME.to_owned(), said)
}

fn take<P: Peer>(bench: &Bench, measures: &[Measure], figures: &mut Figures) -> Result<()> {
    if measures.contains(&Measure::Start) {
        say(&format!("Start: {}", P::NAME));
        let job = super::first::build(bench)?;
        let mut peer = P::start(bench, 8)?;
        let starts = Starts::of(bench, || peer.one(&job.to_string_lossy()))?;
        starts.put(figures, P::NAME, P::HOW, [None, None]);
    }
    for gpus in GPUS.into_iter().filter(|_| measures.contains(&Measure::Array)) {
        say(&format!("Array over {gpus} GPUs: {}", P::NAME));
        let mut peer = P::start(bench, gpus)?;
        // Long enough for a steady state: the same number of rounds over all GPUs, however many there are.
        let jobs = bench.effort.peer_jobs * gpus as usize / 8;
        let rates = (0..bench.effort.runs).map(|_| Ok(jobs as f64 / peer.many(jobs)?));
        let rates = rates.collect::<Result<Vec<f64>>>()?;
        let what = format!("{jobs} `true` over {gpus} GPUs: jobs per second");
        figures.add(P::NAME, &format!("array_{gpus}_gpus_jobs_per_s"), &what, &rates);
    }
    Ok(())
}

/// The directory of a peer.
fn home(bench: &Bench, name: &str) -> PathBuf {
    bench.target.join("peers").join(name)
}

/// Divvy's medians as multiples of those of the others and of the bare loop.
pub(super) fn ratios(figures: &Figures) -> Vec<Ratio> {
    let third = Some(Bound::AtMost(1.0 / 3.0));
    let five = Some(Bound::AtLeast(5.0));
    let mut wanted = vec![
        ("start_p50_ms".to_owned(), "slurm", "start_p50_ms".to_owned(), third),
        ("start_p50_ms".to_owned(), "pueue", "start_p50_ms".to_owned(), None),
    ];
    for gpus in GPUS {
        let name = format!("array_{gpus}_gpus_jobs_per_s");
        wanted.push((name.clone(), "slurm", name.clone(), five));
        wanted.push((name.clone(), "pueue", name.clone(), None));
        wanted.push((name, "bare", "bare_loop_jobs_per_s".to_owned(), None));
    }
    let ratio = |(name, other, its, bound): (String, &str, String, Option<Bound>)| {
        let ratio = figures.median("divvy", &name)? / figures.median(other, &its)?;
        Some(Ratio::new(format!("divvy's {name} / {other}'s {its}"), ratio, bound))
    };
    wanted.into_iter().filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_made_only_of_what_was_measured_on_both_sides() {
        let mut figures = Figures::default();
        figures.add("divvy", "start_p50_ms", "", &[8.0]);
        figures.add("divvy", "array_8_gpus_jobs_per_s", "", &[500.0]);
        figures.add("slurm", "start_p50_ms", "", &[32.0]);
        let ratios = ratios(&figures);
        assert_eq!(ratios.len(), 1);
        assert_eq!((ratios[0].ratio, ratios[0].share_of_bound), (0.25, Some(0.75)));
    }
}
