//! Where a daemon may listen, and how to reach a socket whose path is too long for the kernel.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Where a daemon that is root listens.
pub const SYSTEM_SOCKET: &str = "/run/divvy/divvy.sock";

/// `sun_path` has 108 bytes, the last of them a zero.
pub const LONGEST_SOCKET_PATH_BYTES: usize = 107;

/// The settings that say where the daemon listens. A flag beats the environment; a socket beats a state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// `--socket`.
    pub socket: Option<PathBuf>,
    /// `--state`.
    pub state: Option<PathBuf>,
    /// `DIVVY_SOCKET`.
    pub socket_variable: Option<OsString>,
    /// `DIVVY_STATE`.
    pub state_variable: Option<OsString>,
}

impl Sockets {
    /// Combines the flags with the environment.
    pub fn from_env(socket: Option<PathBuf>, state: Option<PathBuf>) -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let (socket_variable, state_variable) = (variable("DIVVY_SOCKET"), variable("DIVVY_STATE"));
        Self { socket, state, socket_variable, state_variable }
    }

    /// Returns the socket that a flag or a variable names, if any.
    pub fn named(&self) -> Option<PathBuf> {
        let in_state = |state: &Path| state.join("divvy.sock");
        (self.socket.clone())
            .or_else(|| self.state.as_deref().map(in_state))
            .or_else(|| self.socket_variable.as_ref().map(PathBuf::from))
            .or_else(|| self.state_variable.as_ref().map(|state| in_state(Path::new(state))))
    }

    /// Returns the sockets to try, in order. A named socket is the only one.
    pub fn candidates(&self) -> Vec<PathBuf> {
        match self.named() {
            Some(socket) => vec![socket],
            None => vec![PathBuf::from(SYSTEM_SOCKET), user_socket()],
        }
    }
}

/// Returns where an ordinary user's daemon listens: in the user's private runtime directory.
pub fn user_socket() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let own = || PathBuf::from(format!("/tmp/divvy-{}", rustix::process::getuid().as_raw()));
    runtime.map_or_else(own, |runtime| runtime.join("divvy")).join("divvy.sock")
}

/// A path by which the kernel reaches a socket; it keeps open what that needs.
#[derive(Debug)]
pub struct ReachablePath {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

impl ReachablePath {
    /// The path, for `bind` or `connect`.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the path itself if it is short enough, else one through an open descriptor of its directory.
pub fn reachable_path(socket: &Path) -> io::Result<ReachablePath> {
    if socket.as_os_str().as_bytes().len() <= LONGEST_SOCKET_PATH_BYTES {
        return Ok(ReachablePath { path: socket.to_owned(), _directory: None });
    }
    let name = socket.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let parent = socket.parent().unwrap_or(Path::new("/"));
    let directory =
        rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    Ok(ReachablePath { path, _directory: Some(directory) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_beats_the_environment_and_a_socket_beats_a_state_directory() {
        let mut sockets = Sockets { state_variable: Some("/d".into()), ..Sockets::default() };
        let first = |sockets: &Sockets| sockets.candidates()[0].display().to_string();
        assert_eq!(first(&sockets), "/d/divvy.sock");
        sockets.socket_variable = Some("/c".into());
        assert_eq!(first(&sockets), "/c");
        sockets.state = Some("/b".into());
        assert_eq!(first(&sockets), "/b/divvy.sock");
        sockets.socket = Some("/a".into());
        assert_eq!(sockets.candidates(), [PathBuf::from("/a")]);
    }

    #[test]
    fn without_a_word_the_system_comes_before_the_user() {
        let candidates = Sockets::default().candidates();
        assert_eq!(candidates, [PathBuf::from(SYSTEM_SOCKET), user_socket()]);
    }

    #[test]
    fn a_socket_deep_in_the_file_system_is_reached() {
        let deep =
            std::env::temp_dir().join(format!("divvy-deep-{}", std::process::id())).join("x".repeat(120));
        std::fs::create_dir_all(&deep).unwrap();
        let socket = deep.join("divvy.sock");
        let bound = reachable_path(&socket).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(bound.path()).unwrap();
        let reached = reachable_path(&socket).unwrap();
        std::os::unix::net::UnixStream::connect(reached.path()).unwrap();
        drop(listener);
        std::fs::remove_dir_all(deep.parent().unwrap()).unwrap();
    }
}
