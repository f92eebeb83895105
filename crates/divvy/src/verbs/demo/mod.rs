//! `divvy demo`: a throw-away pool with two teams, and what became of their jobs.

mod live;
mod script;
mod story;
mod throwaway;

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use divvy_api::{Check, Gpu, Job, JobsQuery, paths};

use self::live::Live;
use self::script::Script;
use self::story::Story;
use self::throwaway::ThrowAway;
use super::run::{Signals, Told};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{colour_wanted, say};
use crate::pool;

const EXAMPLES: &str = "\
Examples:
  divvy demo                          about seven seconds; leaves nothing behind
  divvy demo | cat                    as plain lines
  divvy demo --gpus pretend:4xA100    with other devices";

/// See it work: a throw-away pool with two teams, about seven seconds
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// Where GPUs come from; unsaid: the machine's own, or eight pretended ones
    #[arg(long, value_name = "SOURCE")]
    gpus: Option<String>,
}

/// How often the demo looks at the pool: as often as the eye can follow.
const EVERY: Duration = Duration::from_millis(100);

/// A demo that takes longer is stuck.
const MOST: Duration = Duration::from_secs(60);

impl Demo {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        pool::runtime()?.block_on(async {
            let mut signals = Signals::new()?;
            let mut stage = tokio::select! {
                stage = ThrowAway::start(self.gpus.as_deref()) => stage?,
                told = signals.next() => return Ok(exit_of(told)),
            };
            let played = tokio::select! {
                played = play(&mut stage) => played,
                told = signals.next() => {
                    say("stopping; nothing is left behind");
                    Ok(exit_of(told))
                }
            };
            // Whatever happened, the jobs are stopped, the daemon ends and the directory is removed.
            stage.end().await;
            played
        })
    }
}

fn exit_of(told: Told) -> Exit {
    match told {
        Told::Interrupt => Exit::of_signal(2),
        Told::Terminate => Exit::of_signal(15),
        Told::Hangup => Exit::of_signal(1),
    }
}

async fn play(stage: &mut ThrowAway) -> Result<Exit, Failure> {
    let gpus: Vec<Gpu> = stage.client.get(paths::GPUS).await?;
    let mut script = Script::for_pool(&gpus);
    introduce(stage, &script)?;
    stage.apply(&script.queues()).await?;
    let (mut story, mut live) = (Story::new(&gpus), Live::on_a_terminal());
    let begun = Instant::now();
    while !(script.is_told() && story.is_over()) {
        if begun.elapsed() > MOST {
            return Err(Failure::new(Exit::Unwell, "the demo is stuck").because(story.unfinished()));
        }
        script.submit_what_is_due(stage, begun.elapsed()).await?;
        let news = story.take(jobs(stage).await?, begun.elapsed());
        match &mut live {
            Some(screen) => screen.draw(&story, &stage.client.get::<Vec<Gpu>>(paths::GPUS).await?)?,
            None => tell(&news)?,
        }
        tokio::time::sleep(EVERY).await;
    }
    drop(live);
    let check: Check = stage.client.get(paths::POOL_CHECK).await?;
    let colour = std::io::stdout().is_terminal() && colour_wanted();
    std::io::stdout().lock().write_all(story.ending(&check, colour).as_bytes())?;
    Ok(if check.violations.is_empty() && story.all_completed() { Exit::Success } else { Exit::Unwell })
}

fn introduce(stage: &ThrowAway, script: &Script) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "A throw-away pool with {}.", stage.devices)?;
    writeln!(out, "{}\n", script.cast())?;
    Ok(())
}

fn tell(news: &[String]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for line in news {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

async fn jobs(stage: &mut ThrowAway) -> Result<Vec<Job>, Failure> {
    let query = JobsQuery { all: true, ..JobsQuery::default() };
    let (rows, _) = pool::jobs(&mut stage.client, &query, None).await?;
    rows.iter().map(|row| Ok(serde_json::from_str(row.get())?)).collect()
}
