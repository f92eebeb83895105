//! `divvy top`: devices, queues and jobs, live.

mod view;

use std::io::IsTerminal;
use std::time::Duration;

use crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use divvy_api::client::{Ask, EventStream};
use divvy_api::{Client, Gpu, Job, JobsQuery, Page, Pool, Queue, Sockets, paths};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use self::view::{View, draw};
use super::run::Signals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::now_ms;
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy top        q quits, arrows and PageUp/PageDown move through the jobs";

/// Watch devices, queues and jobs live
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Top {}

/// Telemetry is sampled about once a second; asking more often would show nothing new.
const EVERY: Duration = Duration::from_secs(1);

/// Changes are shown at once, but not more often than a person can see.
const AT_LEAST_BETWEEN: Duration = Duration::from_millis(150);

/// How many jobs are requested: more than any screen has lines, few enough to be cheap each second.
const JOBS: u32 = 500;

impl Top {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return Err(Failure::usage("top needs a terminal").fix("use `divvy gpus` and `divvy ps`"));
        }
        let sockets = place.sockets();
        pool::runtime()?.block_on(async {
            let mut client = Client::connect(&sockets).await?;
            // Ask before taking the screen: an error at that point is reported as usual.
            let mut view = View::default();
            refresh(&mut client, &mut view).await?;
            let keys = keys();
            let mut screen = ratatui::try_init()?;
            let watched = watch(&mut client, &sockets, &mut view, &mut screen, keys).await;
            ratatui::restore();
            watched
        })
    }
}

async fn watch(
    client: &mut Client,
    sockets: &Sockets,
    view: &mut View,
    screen: &mut ratatui::DefaultTerminal,
    mut keys: mpsc::Receiver<Key>,
) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let mut news = news(sockets.clone());
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = Instant::now();
    loop {
        screen.draw(|frame| draw(frame, view))?;
        tokio::select! {
            key = keys.recv() => match key {
                None | Some(Key::Quit) => return Ok(Exit::Success),
                Some(Key::Scroll(by)) => view.scroll(by),
                Some(Key::Redraw) => {}
            },
            _ = signals.next() => return Ok(Exit::Success),
            _ = ticks.tick() => look_again(client, view).await,
            Some(()) = news.recv() => {
                tokio::time::sleep_until(shown + AT_LEAST_BETWEEN).await;
                while news.try_recv().is_ok() {}
                look_again(client, view).await;
                shown = Instant::now();
            }
        }
    }
}

/// If the daemon is away, the screen says so, and the next tick tries again.
async fn look_again(client: &mut Client, view: &mut View) {
    view.trouble = match refresh(client, view).await {
        Ok(()) => None,
        Err(failure) => Some(failure.what),
    };
}

/// Asks for all that is shown.
pub(crate) async fn refresh(client: &mut Client, view: &mut View) -> Result<(), Failure> {
    view.pool = client.get::<Pool>(paths::POOL).await?;
    view.gpus = client.get::<Vec<Gpu>>(paths::GPUS).await?;
    view.queues = client.get::<Vec<Queue>>(paths::QUEUES).await?;
    let page: Page<Job> =
        client.get(&pool::jobs_path(&JobsQuery { limit: Some(JOBS), ..JobsQuery::default() })).await?;
    view.put_jobs(page.items);
    view.now_ms = now_ms();
    Ok(())
}

/// What a key means here.
enum Key {
    Quit,
    Scroll(isize),
    Redraw,
}

/// Keys are read by a thread of their own, which ends with the process: reading cannot be interrupted.
fn keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let Some(key) = meaning(&event) else { continue };
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    receiver
}

fn meaning(event: &event::Event) -> Option<Key> {
    let key = match event {
        event::Event::Resize(..) => return Some(Key::Redraw),
        event::Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    match (key.code, key.modifiers) {
        (KeyCode::Char('q') | KeyCode::Esc, _) => Some(Key::Quit),
        (KeyCode::Char('c' | 'd'), KeyModifiers::CONTROL) => Some(Key::Quit),
        (KeyCode::Up | KeyCode::Char('k'), _) => Some(Key::Scroll(-1)),
        (KeyCode::Down | KeyCode::Char('j'), _) => Some(Key::Scroll(1)),
        (KeyCode::PageUp, _) => Some(Key::Scroll(-10)),
        (KeyCode::PageDown | KeyCode::Char(' '), _) => Some(Key::Scroll(10)),
        (KeyCode::Home, _) => Some(Key::Scroll(isize::MIN)),
        _ => None,
    }
}

/// Reports that something happened in the pool. Without the stream of events, the ticks remain.
fn news(sockets: Sockets) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            if let Ok(mut client) = Client::connect(&sockets).await
                && let Ok(bytes) = client.stream(&Ask::get(paths::EVENTS)).await
            {
                let mut events = EventStream::new(bytes);
                while let Ok(Some(_)) = events.next().await {
                    // A full channel says the same already.
                    let _ = sender.try_send(());
                }
            }
            if sender.is_closed() {
                return;
            }
            tokio::time::sleep(EVERY).await;
        }
    });
    receiver
}
