//! What a job takes from the submitting shell: directory, umask, limits.

use divvy_api::Limit;
use rustix::process::{Resource, getrlimit};

use crate::exit::Exit;
use crate::failure::Failure;

/// The working directory.
pub(super) fn directory() -> Result<String, Failure> {
    let directory = std::env::current_dir().map_err(|error| {
        Failure::new(Exit::Io, "cannot tell the working directory")
            .because(error.to_string())
            .fix("cd to one that exists")
    })?;
    directory.into_os_string().into_string().map_err(|directory| {
        Failure::new(Exit::BadData, format!("the working directory {} is no UTF-8", directory.display()))
            .fix("say another with -C")
    })
}

/// Permissions that new files do not get.
pub(super) fn umask() -> u32 {
    // It can only be read by setting it. No other thread runs yet.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    umask.bits() & 0o777
}

/// The limits that `ulimit` shows, by `prlimit`'s names.
pub(super) fn limits() -> Vec<Limit> {
    let resources = [
        ("CPU", Resource::Cpu),
        ("FSIZE", Resource::Fsize),
        ("DATA", Resource::Data),
        ("STACK", Resource::Stack),
        ("CORE", Resource::Core),
        ("RSS", Resource::Rss),
        ("NPROC", Resource::Nproc),
        ("NOFILE", Resource::Nofile),
        ("MEMLOCK", Resource::Memlock),
        ("AS", Resource::As),
        ("LOCKS", Resource::Locks),
        ("SIGPENDING", Resource::Sigpending),
        ("MSGQUEUE", Resource::Msgqueue),
        ("NICE", Resource::Nice),
        ("RTPRIO", Resource::Rtprio),
        ("RTTIME", Resource::Rttime),
    ];
    let read = |(name, resource): (&str, Resource)| {
        let limit = getrlimit(resource);
        Limit {
            name: name.into(),
            soft: limit.current.unwrap_or(u64::MAX),
            hard: limit.maximum.unwrap_or(u64::MAX),
        }
    };
    resources.map(read).to_vec()
}

/// A key that no other submission has: process and moment.
pub(super) fn fresh_key() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{:x}", std::process::id(), now.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_survives_being_read() {
        let first = umask();
        assert_eq!(umask(), first);
    }

    #[test]
    fn limits_carry_the_names_of_prlimit() {
        let nofile = limits().into_iter().find(|limit| limit.name == "NOFILE").unwrap();
        assert!(nofile.soft > 0 && nofile.soft <= nofile.hard);
    }
}
