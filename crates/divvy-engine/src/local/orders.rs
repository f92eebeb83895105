//! Stop orders on their way from the daemon to a supervisor.
//!
//! The daemon first renames the order into the record directory, then sends it to the supervisor's socket there. The
//! supervisor first binds the socket, then looks for the file. Whatever the order in time, one of the two is seen, and
//! no pid is involved.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use super::records::{RecordDir, STOP, STOP_SOCKET, StopRecord};

/// The supervisor's ear.
#[derive(Debug)]
pub(crate) struct Orders {
    socket: UnixDatagram,
    record: RecordDir,
    /// The latest order that was taken.
    latest: Option<StopRecord>,
}

impl Orders {
    /// Listens in the working directory, so that the path's length does not matter.
    pub(crate) fn listen(record: RecordDir) -> io::Result<Self> {
        let _ = std::fs::remove_file(STOP_SOCKET);
        let socket = UnixDatagram::bind(STOP_SOCKET)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, record, latest: None })
    }

    /// Returns an order that is later than the last one taken.
    pub(crate) fn take(&mut self) -> Option<StopRecord> {
        let mut newest = None;
        let mut buffer = [0; 1024];
        let mut is_told = self.latest.is_none();
        while let Ok(length) = self.socket.recv(&mut buffer) {
            is_told = true;
            newest = newest.max_by_fence(serde_json::from_slice(&buffer[..length]).ok());
        }
        if is_told {
            newest = newest.max_by_fence(self.record.read(STOP).ok().flatten());
        }
        let newest =
            newest.filter(|order: &StopRecord| self.latest.as_ref().is_none_or(|l| order.fence > l.fence))?;
        self.latest = Some(newest.clone());
        Some(newest)
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

trait MaxByFence {
    fn max_by_fence(self, other: Self) -> Self;
}

impl MaxByFence for Option<StopRecord> {
    fn max_by_fence(self, other: Self) -> Self {
        [self, other].into_iter().flatten().max_by_key(|order| order.fence)
    }
}

/// What became of an order that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The supervisor has it, or will see it when it starts to listen.
    Done,
    /// Neither could be had now; to be tried again.
    Failed,
}

/// Gives an order to the supervisor of a task.
pub(crate) fn give(record: &RecordDir, order: &StopRecord) -> Delivery {
    let written = record.write(STOP, order);
    let sent = send(record.path(), order);
    match (&written, &sent) {
        // The file alone does if nobody listens yet, or the queue is full of calls to look at it.
        (Ok(()), _) | (_, Ok(())) => Delivery::Done,
        (Err(written), Err(_)) => {
            tracing::warn!("writing a stop order into {}: {written}; trying again", record.path().display());
            Delivery::Failed
        }
    }
}

fn send(directory: &Path, order: &StopRecord) -> io::Result<()> {
    let bytes = serde_json::to_vec(order)?;
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    // By way of a descriptor: the path itself may be longer than a socket's address.
    let directory = std::fs::File::open(directory)?;
    let directory = std::os::fd::AsRawFd::as_raw_fd(&directory);
    socket.send_to(&bytes, format!("/proc/self/fd/{directory}/{STOP_SOCKET}")).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::action::Fence;
    use divvy_core::id::{AllocationId, Term};

    fn order(seq: u32) -> StopRecord {
        let fence = Fence { term: Term(1), allocation: AllocationId(7), seq };
        StopRecord { fence, signal: "TERM".into(), kill_at_ms: 5 }
    }

    #[test]
    fn of_two_orders_the_later_one_counts_and_none_counts_twice() {
        let state = tempfile::tempdir().unwrap();
        std::fs::create_dir(state.path().join("tasks")).unwrap();
        let record = RecordDir::of(state.path(), AllocationId(7));
        record.make().unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut orders = Orders { socket, record: record.clone(), latest: None };
        assert_eq!(orders.take(), None);
        assert_eq!(give(&record, &order(3)), Delivery::Done);
        assert_eq!(orders.take(), Some(order(3)));
        assert_eq!(orders.take(), None);
    }
}
