//! File access as the task's user while the supervisor is root.

use divvy_core::model::job::Owner;

/// Runs `act` with the file rights of `owner`, if this process is root; then takes its own rights back.
///
/// Only the identity for filesystem access changes, so that the user gets no hold over the process meanwhile. The
/// process must have one thread.
pub(crate) fn as_user<T>(owner: &Owner, act: impl FnOnce() -> T) -> T {
    if !rustix::process::geteuid().is_root() || owner.uid == 0 {
        return act();
    }
    let own_groups = rustix::process::getgroups().unwrap_or_default();
    let own_groups: Vec<u32> = own_groups.iter().map(|group| group.as_raw()).collect();
    if !set_groups(&owner.groups) {
        // Too many groups for this kernel; none is better than root's.
        set_groups(&[]);
    }
    // SAFETY: these change only the calling thread's identity for file access.
    unsafe {
        libc::setfsgid(owner.gid);
        libc::setfsuid(owner.uid);
    }
    let result = act();
    // SAFETY: as above; root's real ids are still 0.
    unsafe {
        libc::setfsuid(0);
        libc::setfsgid(rustix::process::getegid().as_raw());
    }
    set_groups(&own_groups);
    result
}

/// Sets the supplementary groups of this process; false if the kernel refuses them.
pub(crate) fn set_groups(groups: &[u32]) -> bool {
    // SAFETY: the pointer and the length are of one slice.
    unsafe { libc::setgroups(groups.len(), groups.as_ptr()) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn root_in_guise_has_the_users_rights_and_gets_its_own_back() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let nobody = Owner { name: "nobody".into(), uid: 65534, gid: 65534, groups: Vec::new() };
        let write = || std::fs::write(folder.path().join("file"), "x");
        assert_eq!(as_user(&nobody, write).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        write().unwrap();
    }
}
