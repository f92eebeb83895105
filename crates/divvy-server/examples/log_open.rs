//! How long it takes to open a log of N events: `cargo run --release -p divvy-server --example log_open -- N`.
//!
//! The log is one of short jobs as a daemon writes it: submission, placement, start, end, a cycle's record, one commit per job.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use divvy_core::id::{Position, Term};
use divvy_core::log::Commit;
use divvy_server::store::Store;
use serde_json::{Value, json};

/// How often a snapshot is taken, in events: as the daemon does.
const SNAPSHOT_EVERY: u64 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let events: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let began = Instant::now();
    write(dir.path(), events)?;
    let bytes = std::fs::metadata(dir.path().join("divvy.db"))?.len();
    println!("wrote {events} events, {} MiB, in {:?}", bytes >> 20, began.elapsed());
    for _ in 0..5 {
        let began = Instant::now();
        let (store, _) = Store::open(dir.path())?;
        let verified = began.elapsed();
        let state = store.fold()?;
        println!("opened {} events: verified in {verified:?}, all in {:?}", state.position, began.elapsed());
    }
    Ok(())
}

/// Writes the events in large commits of many jobs: only their number and bytes matter to a reader.
fn write(dir: &Path, events: u64) -> Result<(), Box<dyn Error>> {
    let (mut store, _) = Store::open(dir)?;
    let mut state = store.fold()?;
    let mut number = 0;
    let mut snapshot_at = 0;
    let mut next: Vec<Value> = vec![json!({"term_began": {"term": 1, "boot_id": "b", "version": "0"}})];
    while state.position.0 < events {
        for _ in 0..if number == 0 { 1 } else { 4 } {
            number += 1;
            next.extend(job(number));
        }
        let commit = commit(&state.position, std::mem::take(&mut next))?;
        for event in &commit.events {
            state.apply(event)?;
        }
        store.append_with(&commit, &[])?;
        if state.position.0 >= snapshot_at + SNAPSHOT_EVERY {
            snapshot_at = state.position.0;
            store.snapshot(state.clone())()?;
        }
    }
    Ok(())
}

fn commit(after: &Position, events: Vec<Value>) -> Result<Commit, Box<dyn Error>> {
    let at = 1_700_000_000_000 + after.0 as i64;
    let stamped = events.into_iter().map(|event| serde_json::from_value(json!({"at": at, "event": event})));
    Ok(Commit { term: Term(1), after: *after, events: stamped.collect::<Result<_, _>>()? })
}

fn job(number: u64) -> [Value; 4] {
    let process = json!({"argv": ["python", "train.py", "--epochs", "10"], "directory": "/home/ana/work", "output": {"path": "/home/ana/work/divvy-%j.out"}});
    let role = json!({"name": "main", "minimum": 1, "maximum": 1, "ask": {"alternatives": [{"cpu_milli": 1000, "memory_bytes": 1_073_741_824}]}, "work": {"process": process}});
    let spec = json!({"name": "train", "queue": "default", "gang": {"role": role}});
    let owner = json!({"name": "ana", "uid": 1000, "gid": 1000, "groups": [1000, 1001]});
    let cycle = json!({"planned": {"saw": number, "state": u64::MAX, "policy": u64::MAX, "plan": u64::MAX}});
    let end = json!({"cause": "cancelled", "by": "ana"});
    [
        json!({"submitted": {"number": number, "owner": owner, "spec": spec}}),
        cycle.clone(),
        json!({"dropped": {"job": number.to_string(), "end": end, "state": "cancelled"}}),
        cycle,
    ]
}
