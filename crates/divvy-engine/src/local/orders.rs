//! Stop orders on their way from the daemon to a supervisor.
//!
//! The daemon renames the order into the record directory and queues a signal that carries it. A supervisor has signals
//! blocked from its first instant, so the signal waits until it listens; it looks for the file once before it starts
//! the task. So no order is ever lost, and a full disk does not keep a task from being stopped.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::records::{RecordDir, STOP, StopRecord};
use super::signal;

/// What became of an order that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The supervisor has it, or will find it.
    Done,
    /// It could be neither written nor sent now; the caller has to retry.
    Failed,
}

/// A stop order as a signal carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    /// The signal that announces the end to the task.
    pub(crate) signal: i32,
    /// When the whole tree is killed, on the monotonic clock.
    pub(crate) kill_at_ms: i64,
}

/// Returns the signal that carries orders: a real-time one, since those are queued; libc keeps the first for itself.
pub(crate) fn carrier() -> i32 {
    libc::SIGRTMIN() + 1
}

impl Carried {
    const TIME_BITS: u32 = 56;

    /// Converts a written order; signals of unknown name become `TERM`.
    pub(crate) fn of(order: &StopRecord) -> Self {
        let signal = signal::number(&order.signal).unwrap_or(libc::SIGTERM);
        Self { signal, kill_at_ms: order.kill_at_ms }
    }

    fn pack(self) -> u64 {
        let last = (1 << Self::TIME_BITS) - 1;
        let time = u64::try_from(self.kill_at_ms).unwrap_or(0).min(last);
        u64::from(self.signal.unsigned_abs()) << Self::TIME_BITS | time
    }

    /// Reads what a signal carries.
    pub(crate) fn unpack(value: u64) -> Self {
        let signal = i32::try_from(value >> Self::TIME_BITS).unwrap_or(libc::SIGTERM);
        let kill_at_ms = i64::try_from(value & ((1 << Self::TIME_BITS) - 1)).unwrap_or(0);
        Self { signal, kill_at_ms }
    }
}

/// Gives an order to the supervisor of a task; without a pidfd, only as a file.
pub(crate) fn give(record: &RecordDir, order: &StopRecord, supervisor: Option<&OwnedFd>) -> Delivery {
    let written = record.write(STOP, order);
    let sent = supervisor.map(|supervisor| send(supervisor, Carried::of(order)));
    match (&written, &sent) {
        // The supervisor is dead: its end will be seen soon.
        (_, Some(Err(error))) if error.raw_os_error() == Some(libc::ESRCH) => Delivery::Done,
        (_, Some(Ok(()))) | (Ok(()), None) => Delivery::Done,
        _ => {
            tracing::warn!(
                "giving a stop order to {}: {written:?}, {sent:?}; trying again",
                record.path().display()
            );
            Delivery::Failed
        }
    }
}

fn send(supervisor: &OwnedFd, order: Carried) -> io::Result<()> {
    /// `siginfo_t` as the kernel has it for a queued signal, which is 128 bytes long.
    #[repr(C)]
    struct Queued {
        signal: i32,
        error: i32,
        code: i32,
        padding: i32,
        pid: u32,
        uid: u32,
        value: u64,
        rest: [u64; 12],
    }
    let queued = Queued {
        signal: carrier(),
        error: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        pid: std::process::id(),
        uid: rustix::process::getuid().as_raw(),
        value: order.pack(),
        rest: [0; 12],
    };
    // SAFETY: the struct has the size and form that the kernel reads, and outlives the call.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, supervisor.as_raw_fd(), carrier(), &raw const queued, 0)
    };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_order_is_carried_whole(signal in 1i32..=64, kill_at_ms in 0i64..(1 << 56)) {
            let order = Carried { signal, kill_at_ms };
            prop_assert_eq!(Carried::unpack(order.pack()), order);
        }
    }

    #[test]
    fn a_grace_beyond_all_time_stays_far_away() {
        let order = Carried { signal: 15, kill_at_ms: i64::MAX };
        assert_eq!(Carried::unpack(order.pack()).kill_at_ms, (1 << 56) - 1);
    }
}
