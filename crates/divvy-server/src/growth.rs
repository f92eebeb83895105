//! Files that grow: the kernel wakes the followers of a file when something was written to it.

use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// All files that are followed: one inotify instance for the daemon, made when it is first needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growth {
    watched: Arc<Mutex<Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    fd: Option<Arc<AsyncFd<OwnedFd>>>,
    by_descriptor: HashMap<i32, watch::Sender<u64>>,
}

/// A file that is followed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Following {
    receiver: Option<watch::Receiver<u64>>,
    descriptor: i32,
    growth: Growth,
}

impl Growth {
    /// Follows an open file. Must be called on the runtime, and before the file is read to its end.
    pub(crate) fn follow(&self, file: &File) -> std::io::Result<Following> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let fd = match &watched.fd {
            Some(fd) => fd.clone(),
            None => {
                let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
                // SAFETY: the descriptor is owned by the value that is registered, and stays open as long as that lives.
                let fd = Arc::new(unsafe { AsyncFd::register_with_interest(inotify, Interest::READABLE) }?);
                tokio::spawn(listen(fd.clone(), self.watched.clone()));
                watched.fd = Some(fd.clone());
                fd
            }
        };
        // Watched by descriptor: it is this very file, whatever its path leads to by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let descriptor = inotify::add_watch(fd.get_ref(), path, WatchFlags::MODIFY)?;
        let receiver =
            watched.by_descriptor.entry(descriptor).or_insert_with(|| watch::channel(0).0).subscribe();
        Ok(Following { receiver: Some(receiver), descriptor, growth: self.clone() })
    }
}

impl Following {
    /// Returns when something was written since the last call, or since the file has been followed.
    pub(crate) async fn grown(&mut self) {
        if let Some(receiver) = &mut self.receiver
            && receiver.changed().await.is_err()
        {
            // The sender is gone: no news will ever come.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.receiver = None;
        let mut watched = self.growth.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.by_descriptor.get(&self.descriptor).is_some_and(|sender| sender.receiver_count() == 0) {
            watched.by_descriptor.remove(&self.descriptor);
            if let Some(fd) = &watched.fd {
                // It is gone already if the file system was unmounted.
                let _ = inotify::remove_watch(fd.get_ref(), self.descriptor);
            }
        }
    }
}

async fn listen(fd: Arc<AsyncFd<OwnedFd>>, watched: Arc<Mutex<Watched>>) {
    loop {
        let Ok(mut ready) = fd.readable().await else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd.get_ref().as_fd(), &mut buffer);
        let mut grown = Vec::new();
        while let Ok(event) = reader.next() {
            grown.push(event.wd());
            if reader.is_buffer_empty() {
                break;
            }
        }
        if grown.is_empty() {
            ready.clear_ready();
        }
        let watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
        for sender in grown.iter().filter_map(|descriptor| watched.by_descriptor.get(descriptor)) {
            sender.send_modify(|count| *count += 1);
        }
    }
}
