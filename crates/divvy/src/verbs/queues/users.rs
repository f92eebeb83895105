//! `divvy queues QUEUE`: who has what of a queue that is divided among its users.

use divvy_api::{Queue, QueueUser, paths};

use super::{hours, share};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Column, Format, Listing, Table, gpus};
use crate::pool::{self, Place};

/// Lists the users of a queue; the queue itself where it is not divided among them.
pub(super) fn print(place: &Place, queue: &str, format: Format) -> Result<Exit, Failure> {
    let rows = pool::with_client(place, async |mut client| pool::rows(&mut client, paths::QUEUES).await)?;
    let mut known = None;
    for row in rows {
        let read: Queue = serde_json::from_str(row.get())?;
        if read.queue == queue {
            known = Some((row, read));
        }
    }
    let Some((row, read)) = known else {
        return Err(Failure::new(Exit::NotFound, format!("there is no queue {queue:?}"))
            .fix("`divvy queues` lists them"));
    };
    if read.users.is_empty() {
        Table { rows: vec![row] }.print::<Queue>(format)?;
        return Ok(Exit::Success);
    }
    let rows = read.users.iter().map(serde_json::value::to_raw_value).collect::<Result<Vec<_>, _>>()?;
    Table { rows }.print::<QueueUser>(format)?;
    Ok(Exit::Success)
}

impl Listing for QueueUser {
    const PATHS: &'static [&'static str] = &[
        "user",
        "weight",
        "running",
        "waiting",
        "gpu_milli",
        "gpu_milli_due",
        "gpu_hours_used",
        "gpu_hours_credit",
    ];
    const EMPTY: &'static str = "no users";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("USER", |user, _| user.user.clone()),
            Column::<Self>::new("GPUS", |user, _| gpus(user.gpu_milli)).right(),
            Column::<Self>::new("WEIGHT", |user, _| user.weight.to_string()).right(),
            Column::<Self>::new("DUE", |user, _| user.gpu_milli_due.map(share).unwrap_or_default()).right(),
            Column::<Self>::new("CREDIT", |user, _| hours(user.gpu_hours_credit)).right(),
            Column::<Self>::new("USED", |user, _| hours(user.gpu_hours_used)).right(),
            Column::<Self>::new("RUNNING", |user, _| user.running.to_string()).right(),
            Column::<Self>::new("WAITING", |user, _| user.waiting.to_string()).right(),
        ]
    }
}
