//! Supervisors killed at random moments, while their daemon lives, dies and starts again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::book::Book;
use super::draw::Draw;
use super::load::held;
use super::site::{Site, kill};

/// The longest pause between two kills: most rounds lose a few supervisors, most jobs none.
const PAUSE_MOST: Duration = Duration::from_millis(200);

/// Kills supervisors until told to stop; returns how many.
pub(super) fn hunt(site: &Site, book: &Mutex<Book>, draw: &mut Draw, stop: &AtomicBool) -> u64 {
    let mut killed = 0;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(draw.moment_below(PAUSE_MOST));
        let prey = supervisors(site);
        let at = draw.below(prey.len() as u64);
        if let Some((job, pid)) = prey.into_iter().nth(usize::try_from(at).unwrap_or(0)) {
            // Noted in the book before the kill: the daemon may see it first.
            held(book).bereft.insert(job);
            kill(pid);
            killed += 1;
        }
    }
    killed
}

/// The running supervisors, with their jobs.
fn supervisors(site: &Site) -> Vec<(String, u32)> {
    let records = fs::read_dir(site.state().join("tasks")).into_iter().flatten().flatten();
    let mut found: Vec<(String, u32)> = records.filter_map(|record| supervisor(&record.path())).collect();
    found.sort();
    found
}

/// The supervisor of a record: its pid is in the record's lock, and its arguments name the record.
fn supervisor(record: &PathBuf) -> Option<(String, u32)> {
    let pid: u32 = fs::read_to_string(record.join("lock")).ok()?.trim().parse().ok()?;
    let order: serde_json::Value =
        serde_json::from_slice(&fs::read(record.join("launch.json")).ok()?).ok()?;
    let job = order["launch"]["job"].as_str()?.to_owned();
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let names_record =
        |argument: &[u8]| Path::new(std::str::from_utf8(argument).unwrap_or_default()) == record;
    arguments.split(|byte| *byte == 0).any(names_record).then_some((job, pid))
}
