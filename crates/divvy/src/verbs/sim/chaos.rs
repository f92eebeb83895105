//! `divvy sim chaos`: whole lives of a pool from seeds, with faults, every law checked.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use divvy_sim::chaos::life::Life;
use divvy_sim::chaos::{self, Broken, Report};
use indicatif::ProgressBar;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::files::{must_differ, will_be_written, write_to};
use super::form::FormFlag;
use super::progress;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::whole;
use crate::output::{plain, say};

const EXAMPLES: &str = "\
Examples:
  divvy sim chaos --seeds 0..1000                  a thousand lives; ends with 1 if one breaks a law
  divvy sim chaos --seeds 0..100 --events 50000 --threads 8 -o json
  divvy sim chaos --seeds 0..10000                 a night's worth: some 10^8 events; Ctrl-C ends it with what it has
  divvy sim chaos --seed 17                        one of them again
  divvy sim chaos --seed 17 --shrink --out 17.json make it small, and keep it
  divvy sim chaos --life 17.json                   a kept one again";

/// How many smaller lives are tried: some minutes at most, and far more than a life of 10,000 events needs.
const MOST_TRIES: usize = 20_000;

/// How often a run reports its progress where nobody looks at a terminal.
const TOLD_TIMES: u64 = 20;

/// Live whole lives of a pool from seeds, with faults: is a law ever broken?
///
/// In each life jobs come, users and administrators change their minds, nodes and devices die, answers are lost or late, the
/// daemon crashes and its disk is full. Then the faults stop, and all that fits must run. Every law is checked after every event.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Chaos {
    /// The lives of these seeds: 0..1000 are a thousand
    #[arg(long, value_name = "A..B", required_unless_present_any = ["seed", "life"], conflicts_with_all = ["seed", "life"])]
    seeds: Option<Seeds>,
    /// The life of one seed
    #[arg(long, value_name = "N", value_parser = whole::<u64>(..), conflicts_with = "life")]
    seed: Option<u64>,
    /// A life that was kept in a file
    #[arg(long, value_name = "FILE")]
    life: Option<PathBuf>,
    /// About how many events a life has
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = whole::<u64>(1..=100_000_000))]
    events: u64,
    /// How many lives at once; what comes out is the same [default: one per core]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    threads: Option<u16>,
    /// Leave out of a life that breaks a law all that is not needed for that, and write what is left
    #[arg(long, conflicts_with = "seeds")]
    shrink: bool,
    /// Where the small life is written [default: life-SEED.json]
    #[arg(long, value_name = "FILE", requires = "shrink")]
    out: Option<PathBuf>,
    #[command(flatten)]
    form: FormFlag,
}

/// Seeds from the first up to the one before the last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ends = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        match ends {
            Some((from, to)) if from < to => Ok(Self(from..to)),
            _ => Err("write seeds as 0..1000, the lower first: those are a thousand, 0 to 999".into()),
        }
    }
}

impl Chaos {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let begun = Instant::now();
        let report = match (&self.seeds, &self.life, self.seed) {
            (Some(Seeds(seeds)), ..) => self.run_many(seeds.clone())?,
            (None, Some(file), _) => self.run_one(&read(file)?)?,
            (None, None, seed) => self.run_one(&chaos::life(seed.unwrap_or(0), self.events))?,
        };
        let text = self.form.text(&report, || render(&report, begun.elapsed()))?;
        std::io::stdout().lock().write_all(text.as_bytes())?;
        let all = self.seeds.as_ref().map_or(1, |Seeds(seeds)| seeds.end - seeds.start);
        Ok(match report.violations.is_empty() {
            false => Exit::Unwell,
            true if report.seeds < all => Exit::of_signal(SIGINT),
            true => Exit::Success,
        })
    }

    fn run_many(&self, seeds: Range<u64>) -> Result<Report, Failure> {
        let usual = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.map_or_else(usual, usize::from);
        let (ends, mut progress) = (ends_early()?, Progress::of(seeds.end - seeds.start));
        be_silent_about_panics();
        let report = chaos::run_told(seeds.clone(), self.events, threads, &mut |over, broken| {
            progress.note(over, broken);
            match ends.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        progress.bar.finish_and_clear();
        let next = seeds.start + report.seeds;
        if next < seeds.end {
            say(&format!("ended early: the rest are --seeds {next}..{}", seeds.end));
        }
        Ok(report)
    }

    fn run_one(&self, life: &Life) -> Result<Report, Failure> {
        if !self.shrink {
            return Ok(chaos::report_of(life));
        }
        let out = self.out.clone().unwrap_or_else(|| format!("life-{}.json", life.seed).into());
        must_differ([], [out.as_path()])?;
        will_be_written(&out)?;
        be_silent_about_panics();
        if chaos::live(life).violation.is_none() {
            say("this life breaks no law: there is nothing to make small");
            return Ok(chaos::report_of(life));
        }
        let bar = progress::spinner("{msg}");
        let small = chaos::shrink(life, MOST_TRIES, &mut |steps| {
            bar.set_message(format!("{steps} of {} steps are left", life.steps.len()));
        });
        bar.finish_and_clear();
        write_to(Some(&out), |to| Ok(writeln!(to, "{}", serde_json::to_string_pretty(&small)?)?))?;
        say(&format!("{} of {} steps are left, in {}", small.steps.len(), life.steps.len(), out.display()));
        Ok(chaos::report_of(&small))
    }
}

fn read(file: &Path) -> Result<Life, Failure> {
    let text = super::super::run::read_text(file)?;
    let no_life = |why: String| {
        Failure::new(Exit::BadData, format!("{}: it is not a life: {why}", file.display()))
            .fix("`divvy sim chaos --seed N --shrink` writes one")
    };
    let life: Life = serde_json::from_str(&text).map_err(|error| no_life(error.to_string()))?;
    life.wrong().map_or(Ok(life), |why| Err(no_life(why)))
}

/// A life that panics is reported as one that breaks a law; the messages of many would drown everything else.
fn be_silent_about_panics() {
    std::panic::set_hook(Box::new(|_| ()));
}

/// Set by the first signal: lives that are under way are finished then. A second signal ends the program at once.
fn ends_early() -> Result<Arc<AtomicBool>, Failure> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&ends))?;
        signal_hook::flag::register(signal, Arc::clone(&ends))?;
    }
    Ok(ends)
}

/// The progress of a run: a bar on a terminal, else a line now and then; and each life that broke a law, once it has.
struct Progress {
    bar: ProgressBar,
    lives: u64,
    broken: u64,
}

impl Progress {
    fn of(lives: u64) -> Self {
        Self { bar: progress::bar(lives, "lives"), lives, broken: 0 }
    }

    fn note(&mut self, over: u64, broken: Option<Broken>) {
        self.bar.set_position(over);
        if let Some(Broken { seed, law, event, text }) = broken {
            self.broken += 1;
            let found = format!("the life of seed {seed} broke {law} after event {event}: {text}");
            self.bar.suspend(|| say(&found));
        }
        if self.bar.is_hidden() && self.is_worth_a_line(over) {
            say(&format!("{over} of {} lives are over, {} broke a law", self.lives, self.broken));
        }
    }

    /// Whether another part of the lives is over.
    fn is_worth_a_line(&self, over: u64) -> bool {
        let part = |over: u64| u128::from(over) * u128::from(TOLD_TIMES) / u128::from(self.lives.max(1));
        over > 0 && over < self.lives && part(over) > part(over - 1)
    }
}

fn render(report: &Report, took: Duration) -> String {
    let mut text = format!(
        "{} {}, {} events in {:.1} s, digest {}\n",
        report.seeds,
        if report.seeds == 1 { "life" } else { "lives" },
        report.events,
        took.as_secs_f64(),
        report.digest
    );
    if report.violations.is_empty() {
        return text + "no law was broken\n";
    }
    text.push_str("SEED        LAW        AFTER EVENT  WHAT WAS FOUND\n");
    for broken in &report.violations {
        let (seed, law, event) = (broken.seed, broken.law, broken.event);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{seed:<10}  {law:<9}  {event:>11}  {}", plain(&broken.text));
    }
    let _ = writeln!(
        text,
        "{} of {} broke a law; look closer with --seed N, make one small with --shrink",
        report.violations.len(),
        report.seeds
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn seeds_are_a_range_that_is_not_empty() {
        assert_eq!("0..1000".parse(), Ok(Seeds(0..1000)));
        for wrong in ["", "5", "5..5", "9..1", "a..b", "-1..2", "0..1..2"] {
            assert!(wrong.parse::<Seeds>().unwrap_err().contains("0..1000"), "{wrong}");
        }
    }

    #[test]
    fn a_run_that_nobody_watches_says_twenty_times_at_most_how_far_it_is() {
        let lines =
            |lives: u64| (1..=lives).filter(|over| Progress::of(lives).is_worth_a_line(*over)).count();
        assert_eq!([1, 2, 20, 1000].map(lines), [0, 1, 19, 19]);
    }

    #[test]
    fn a_report_names_each_life_that_broke_a_law_with_its_seed() {
        let broken = Broken { seed: 17, law: "L7", event: 4711, text: "device 3 is given twice".into() };
        let report = Report { seeds: 20, events: 20_000, digest: "00ff".into(), violations: vec![broken] };
        expect![[r#"
            20 lives, 20000 events in 1.5 s, digest 00ff
            SEED        LAW        AFTER EVENT  WHAT WAS FOUND
            17          L7                4711  device 3 is given twice
            1 of 20 broke a law; look closer with --seed N, make one small with --shrink
        "#]]
        .assert_eq(&render(&report, Duration::from_millis(1500)));
    }
}
