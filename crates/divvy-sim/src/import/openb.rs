//! Alibaba's cluster-trace-gpu-v2023: a list of pods.

use std::path::Path;

use super::{LeftOut, Record, Records};
use crate::trace::{Column, LAST_SECOND, LONGEST_S, MOST_GPUS, Table, TraceError};

const COLUMNS: [&str; 7] =
    ["name", "num_gpu", "gpu_milli", "pod_phase", "creation_time", "deletion_time", "scheduled_time"];

/// Reads one file. A part of a GPU counts as a whole one; there is one queue, `all`.
pub(super) fn read(path: &Path, records: &mut Records) -> Result<(), TraceError> {
    let mut table = Table::open(path)?;
    let [name, gpus, share, status, created, deleted, scheduled] = table.columns(COLUMNS)?;
    while table.advance()? {
        let asked = table.whole(gpus, 0..=i64::from(MOST_GPUS), "a number of GPUs")? as u32;
        if asked == 0 {
            records.leave_out(LeftOut::NoGpu);
            continue;
        }
        let created_s = seconds(&table, created)?;
        let Some(scheduled_s) = seconds(&table, scheduled)? else {
            records.leave_out(LeftOut::NeverStarted);
            continue;
        };
        let Some(deleted_s) = seconds(&table, deleted)? else {
            records.leave_out(LeftOut::NotEnded);
            continue;
        };
        if deleted_s < scheduled_s {
            return Err(table.cell(deleted, "a time after scheduled_time"));
        }
        if deleted_s - scheduled_s > LONGEST_S {
            let expected = format!("a time no more than {LONGEST_S} s after scheduled_time");
            return Err(table.cell(deleted, &expected));
        }
        let milli = table.whole(share, 0..=1000, "thousandths of a GPU")?;
        records.shares += usize::from(milli < 1000);
        records.kept.push(Record {
            id: table.name(name)?,
            submit_s: created_s.unwrap_or(scheduled_s),
            gpus: asked,
            duration_s: deleted_s - scheduled_s,
            queue: String::new(),
            user: String::new(),
            name: String::new(),
            status: table.text(status).into(),
        });
    }
    Ok(())
}

/// Seconds since the trace began; `None` where the cell is empty. Some lists write them with a decimal point.
fn seconds(table: &Table, column: Column) -> Result<Option<i64>, TraceError> {
    let text = table.text(column);
    if text.is_empty() {
        return Ok(None);
    }
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let second = whole.parse().ok().filter(|second| (0..=LAST_SECOND).contains(second));
    second.map(Some).ok_or_else(|| table.cell(column, "a number of seconds, or empty"))
}
