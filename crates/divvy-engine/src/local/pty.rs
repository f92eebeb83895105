//! The bridge between a task's pseudo-terminal and a person's terminal.
//!
//! What the task writes goes to its output file and, while a terminal is connected, to that terminal. When the
//! terminal is gone the task goes on, as on a terminal that nobody watches.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use divvy_core::model::job::Owner;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::guise;
use super::terminal::{Decoder, Frame, encode_data};

/// How much may wait for a slow terminal before the task has to wait, as on any terminal.
const BACKLOG_BYTES: usize = 1 << 20;

/// The upper end of a pseudo-terminal, and the terminal connected to it.
#[derive(Debug)]
pub(crate) struct Bridge {
    upper: Option<File>,
    peer: Option<UnixStream>,
    decoder: Decoder,
    to_peer: Vec<u8>,
    to_task: Vec<u8>,
}

impl Bridge {
    /// Opens a pseudo-terminal of the user's, connected to the terminal at `socket`. Also returns the lower end.
    pub(crate) fn open(owner: &Owner, socket: &str) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        // The device file belongs to the user who opens it.
        let (upper, lower) = guise::as_user(owner, || -> io::Result<_> {
            let upper = rustix::pty::openpt(flags)?;
            rustix::pty::grantpt(&upper)?;
            rustix::pty::unlockpt(&upper)?;
            let name = rustix::pty::ptsname(&upper, Vec::new())?;
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            let lower = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
            Ok((upper, lower))
        })?;
        let flags = rustix::fs::fcntl_getfl(&upper)?;
        rustix::fs::fcntl_setfl(&upper, flags | OFlags::NONBLOCK)?;
        let peer = guise::as_user(owner, || UnixStream::connect(socket)).ok();
        let peer = peer.filter(|peer| peer.set_nonblocking(true).is_ok());
        let bridge = Self {
            upper: Some(File::from(upper)),
            peer,
            decoder: Decoder::default(),
            to_peer: Vec::new(),
            to_task: Vec::new(),
        };
        Ok((bridge, lower))
    }

    /// Adds the descriptors that the bridge waits for.
    pub(crate) fn interest<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        let mut add = |fd, reads, writes| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            // An idle descriptor is left out: its hang-up would be reported again and again.
            if !flags.is_empty() {
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        };
        if let Some(upper) = &self.upper {
            add(upper.as_fd(), self.takes_from_task(), !self.to_task.is_empty());
        }
        if let Some(peer) = &self.peer {
            add(peer.as_fd(), self.takes_from_peer(), !self.to_peer.is_empty());
        }
    }

    fn takes_from_task(&self) -> bool {
        self.to_peer.len() < BACKLOG_BYTES
    }

    fn takes_from_peer(&self) -> bool {
        self.to_task.len() < BACKLOG_BYTES
    }

    /// Moves the available bytes in both directions, without waiting.
    pub(crate) fn turn(&mut self, output: &File) {
        self.read_peer();
        self.feed_task();
        self.read_task(output);
        self.feed_peer();
    }

    /// Moves the last bytes of a task that is gone, waiting for a slow terminal only for a limited time.
    pub(crate) fn finish(mut self, output: &File) {
        /// Enough for a terminal at the other end of the world.
        const LAST_WORDS_MS: i64 = 2000;
        let until = super::clock::monotonic_ms() + LAST_WORDS_MS;
        self.turn(output);
        while !self.to_peer.is_empty()
            && let Some(peer) = &self.peer
        {
            let left = until - super::clock::monotonic_ms();
            if left <= 0 {
                return;
            }
            let timeout = super::watch::timespec(left);
            let _ = rustix::event::poll(&mut [PollFd::new(peer, PollFlags::OUT)], Some(&timeout));
            self.turn(output);
        }
    }

    fn read_task(&mut self, mut output: &File) {
        let mut buffer = [0; 16 * 1024];
        while self.takes_from_task()
            && let Some(upper) = &mut self.upper
        {
            match upper.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel returns EIO when no process has the lower end open any more.
                Ok(0) | Err(_) => self.upper = None,
                Ok(count) => {
                    let _ = output.write_all(&buffer[..count]);
                    if self.peer.is_some() {
                        encode_data(&buffer[..count], &mut self.to_peer);
                    }
                }
            }
        }
    }

    fn feed_peer(&mut self) {
        feed(&mut self.peer, &mut self.to_peer);
    }

    fn feed_task(&mut self) {
        feed(&mut self.upper, &mut self.to_task);
    }

    fn read_peer(&mut self) {
        let mut buffer = [0; 16 * 1024];
        while self.takes_from_peer()
            && let Some(peer) = &mut self.peer
        {
            match peer.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => self.detach(),
                Ok(count) => {
                    self.decoder.push(&buffer[..count]);
                    self.take_frames();
                }
            }
        }
    }

    fn take_frames(&mut self) {
        loop {
            match self.decoder.next_frame() {
                Ok(Some(Frame::Data(bytes))) => self.to_task.extend(bytes),
                Ok(Some(Frame::Size { columns, rows })) => self.resize(columns, rows),
                Ok(None) => return,
                Err(_) => return self.detach(),
            }
        }
    }

    fn resize(&self, columns: u16, rows: u16) {
        if let Some(upper) = &self.upper {
            let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = rustix::termios::tcsetwinsize(upper, size);
        }
    }

    fn detach(&mut self) {
        self.peer = None;
        self.to_peer.clear();
        self.decoder = Decoder::default();
    }
}

/// Writes what can be written without waiting; if the side is gone, its bytes are dropped.
fn feed<W: Write>(to: &mut Option<W>, buffer: &mut Vec<u8>) {
    while !buffer.is_empty() {
        let Some(side) = to else { return buffer.clear() };
        match side.write(buffer) {
            Ok(count) => drop(buffer.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => *to = None,
        }
    }
}
