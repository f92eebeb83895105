//! The pool's state directory and socket, and who may access them.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use divvy_api::client::{SYSTEM_SOCKET, reachable_path, user_socket};

/// The default state directory: `/var/lib/divvy` for root, else below the user's own state directory.
pub fn usual_state() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/var/lib/divvy".into();
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = || absolute("HOME").map(|home| home.join(".local/state"));
    let temporary = || PathBuf::from(format!("/var/tmp/divvy-{}", rustix::process::geteuid().as_raw()));
    absolute("XDG_STATE_HOME").or_else(own).map_or_else(temporary, |state| state.join("divvy"))
}

/// Returns where the daemon listens, from the user's settings.
pub(crate) fn socket(socket: Option<&Path>, state: Option<&Path>) -> PathBuf {
    match (socket, state) {
        (Some(socket), _) => socket.to_owned(),
        (None, Some(state)) => state.join("divvy.sock"),
        (None, None) if rustix::process::geteuid().is_root() => SYSTEM_SOCKET.into(),
        (None, None) => user_socket(),
    }
}

/// Returns the mode of the state directory. In root's pool everybody must reach a socket in it; the other files there
/// have modes of their own (0600, 0700).
pub(crate) fn state_mode(state: &Path, socket: &Path) -> u32 {
    let inside = socket.parent() == Some(state);
    if inside && rustix::process::geteuid().is_root() { 0o711 } else { 0o700 }
}

/// What is wrong with the place of a socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon answers there.
    #[error("another daemon listens on {}: stop that one first (`divvy down`), or use another --socket", .0.display())]
    Taken(PathBuf),
    /// Other users could change the directory.
    #[error("{} belongs to user {owner}, and its sockets could be theirs: use another --socket", path.display())]
    NotYours {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// A system call failed.
    #[error("cannot listen on {}: {source}; use another --socket", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Listens on a socket: open to everybody for root (the kernel says who connects), to the user alone otherwise. Replaces a socket
/// that nobody answers on any more.
pub(crate) fn listen(socket: &Path) -> Result<UnixListener, SocketError> {
    let wrong = |source| SocketError::Io { path: socket.to_owned(), source };
    let root = rustix::process::geteuid().is_root();
    let parent = socket.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(if root { 0o755 } else { 0o700 }).create(parent).map_err(wrong)?;
    let owner = std::fs::metadata(parent).map_err(wrong)?.uid();
    let me = rustix::process::geteuid().as_raw();
    if owner != me && owner != 0 {
        return Err(SocketError::NotYours { path: parent.to_owned(), owner });
    }
    let reached = reachable_path(socket).map_err(wrong)?;
    if UnixStream::connect(reached.path()).is_ok() {
        return Err(SocketError::Taken(socket.to_owned()));
    }
    // Made beside its place, and renamed once its mode is right: nobody ever sees it half-made.
    let name = format!(".divvy-{}", std::process::id());
    let beside = reachable_path(&parent.join(name)).map_err(wrong)?;
    let _ = std::fs::remove_file(beside.path());
    let listener = UnixListener::bind(beside.path()).map_err(wrong)?;
    let mode = Permissions::from_mode(if root { 0o666 } else { 0o600 });
    std::fs::set_permissions(beside.path(), mode).map_err(wrong)?;
    std::fs::rename(beside.path(), reached.path()).map_err(wrong)?;
    listener.set_nonblocking(true).map_err(wrong)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_answered_is_not_taken_away_and_a_dead_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("x".repeat(120)).join("divvy.sock");
        let first = listen(&socket).unwrap();
        assert!(matches!(listen(&socket), Err(SocketError::Taken(_))));
        drop(first);
        let again = listen(&socket).unwrap();
        let mode = std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 });
        drop(again);
    }

    #[test]
    fn a_state_directory_that_is_named_has_its_socket_in_it() {
        assert_eq!(socket(None, Some(Path::new("/s"))), Path::new("/s/divvy.sock"));
        assert_eq!(socket(Some(Path::new("/x")), Some(Path::new("/s"))), Path::new("/x"));
    }
}
