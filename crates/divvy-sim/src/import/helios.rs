//! SenseTime's Helios traces: `cluster_log.csv`.

use std::path::Path;

use super::{LeftOut, Record, Records, civil};
use crate::trace::{LONGEST_S, MOST_GPUS, Table, TraceError};

const COLUMNS: [&str; 7] = ["job_id", "user", "vc", "gpu_num", "state", "submit_time", "duration"];

/// Reads one file. The virtual cluster becomes the queue.
pub(super) fn read(path: &Path, records: &mut Records) -> Result<(), TraceError> {
    let mut table = Table::open(path)?;
    let [id, user, queue, gpus, status, submit, duration] = table.columns(COLUMNS)?;
    let start = table.column("start_time")?;
    while table.advance()? {
        let asked = table.whole(gpus, 0..=i64::from(MOST_GPUS), "a number of GPUs")? as u32;
        if asked == 0 {
            records.leave_out(LeftOut::NoGpu);
            continue;
        }
        if civil::is_none(table.text(submit)) {
            records.leave_out(LeftOut::NoSubmission);
            continue;
        }
        if start.is_some_and(|start| civil::is_none(table.text(start))) {
            records.leave_out(LeftOut::NeverStarted);
            continue;
        }
        let submit_s =
            civil::seconds(table.text(submit)).ok_or_else(|| table.cell(submit, civil::EXPECTED))?;
        records.kept.push(Record {
            id: table.name(id)?,
            submit_s,
            gpus: asked,
            duration_s: table.whole(duration, 0..=LONGEST_S, "a whole number of seconds")?,
            queue: table.text(queue).into(),
            user: table.text(user).into(),
            name: String::new(),
            status: table.text(status).into(),
        });
    }
    Ok(())
}
