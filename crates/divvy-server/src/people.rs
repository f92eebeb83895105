//! Users of the machine by their uid, with name and groups as the machine's name service has them.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use divvy_core::model::job::Owner;

/// How long an answer of the name service is kept: it may be far away (LDAP), and groups change rarely.
const BELIEVED_FOR: Duration = Duration::from_secs(60);

/// The group whose members may change everything.
pub(crate) const ADMIN_GROUP: &CStr = c"divvy";

/// A user of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Name, ids and groups, as jobs carry them.
    pub(crate) owner: Owner,
    /// Whether the user is root or in the group `divvy`.
    pub(crate) admin: bool,
}

/// Looks users up, and caches them for a while.
#[derive(Debug, Default)]
pub(crate) struct People {
    known: Mutex<HashMap<u32, (Instant, User)>>,
}

impl People {
    /// Returns the user, if the cache has a fresh entry.
    pub(crate) fn remembered(&self, uid: u32) -> Option<User> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&uid).filter(|(at, _)| at.elapsed() < BELIEVED_FOR).map(|(_, user)| user.clone())
    }

    /// Looks the user up; may block for as long as the name service does. `gid` is the group of the asking process, for users
    /// without an entry.
    pub(crate) fn look_up(&self, uid: u32, gid: u32) -> User {
        let user = user_of(uid, gid);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Bounds the cache, even against a name service that makes users up.
        if known.len() > 10_000 {
            known.clear();
        }
        known.insert(uid, (Instant::now(), user.clone()));
        user
    }
}

fn user_of(uid: u32, gid: u32) -> User {
    let admins = group_id(ADMIN_GROUP);
    let owner = match passwd_entry(uid) {
        Some((name, main)) => {
            let groups = groups_of(&name, main);
            Owner { name: name.to_string_lossy().into_owned(), uid, gid: main, groups }
        }
        None => Owner { name: uid.to_string(), uid, gid, groups: vec![gid] },
    };
    let member = admins.is_some_and(|admins| owner.gid == admins || owner.groups.contains(&admins));
    User { admin: uid == 0 || member, owner }
}

/// Returns the name that a pool of this machine knows a user by: the number itself where no name is known.
pub fn user_name(uid: u32) -> String {
    passwd_entry(uid).map_or_else(|| uid.to_string(), |(name, _)| name.to_string_lossy().into_owned())
}

/// The largest entry that is read, in bytes: it has room for the groups of a whole company.
const LARGEST_ENTRY_BYTES: usize = 1 << 20;

fn passwd_entry(uid: u32) -> Option<(CString, u32)> {
    with_room(|buffer| {
        // SAFETY: all pointers are to memory that lives across the call; the entry's strings lie in `buffer`.
        unsafe {
            let mut entry: libc::passwd = std::mem::zeroed();
            let mut found = std::ptr::null_mut();
            let code =
                libc::getpwuid_r(uid, &mut entry, buffer.as_mut_ptr().cast(), buffer.len(), &mut found);
            let read = || (CStr::from_ptr(entry.pw_name).to_owned(), entry.pw_gid);
            (code, (!found.is_null()).then(read))
        }
    })
}

/// Whether the machine has a user whom a pool knows by this name: a number is one of whom no name is known.
pub(crate) fn is_user(name: &str) -> bool {
    let Ok(text) = CString::new(name) else { return false };
    let found = with_room(|buffer| {
        // SAFETY: as above.
        unsafe {
            let mut entry: libc::passwd = std::mem::zeroed();
            let mut found = std::ptr::null_mut();
            let code = libc::getpwnam_r(
                text.as_ptr(),
                &mut entry,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &mut found,
            );
            (code, (!found.is_null()).then_some(()))
        }
    });
    found.is_some() || name.parse::<u32>().is_ok()
}

/// Returns the id of a group.
pub(crate) fn group_id(name: &CStr) -> Option<u32> {
    with_room(|buffer| {
        // SAFETY: as above.
        unsafe {
            let mut entry: libc::group = std::mem::zeroed();
            let mut found = std::ptr::null_mut();
            let code = libc::getgrnam_r(
                name.as_ptr(),
                &mut entry,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &mut found,
            );
            (code, (!found.is_null()).then_some(entry.gr_gid))
        }
    })
}

/// Repeats the call with a larger buffer until the entry fits.
fn with_room<T>(mut call: impl FnMut(&mut [u8]) -> (i32, Option<T>)) -> Option<T> {
    let mut buffer = vec![0u8; 4096];
    loop {
        match call(&mut buffer) {
            (libc::ERANGE, _) if buffer.len() < LARGEST_ENTRY_BYTES => buffer.resize(buffer.len() * 4, 0),
            (libc::EINTR, _) => {}
            (_, found) => return found,
        }
    }
}

fn groups_of(name: &CStr, main: u32) -> Vec<u32> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = i32::try_from(groups.len()).unwrap_or(i32::MAX);
        // SAFETY: `groups` has room for `count` ids.
        let all = unsafe { libc::getgrouplist(name.as_ptr(), main, groups.as_mut_ptr(), &mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if all >= 0 || count <= groups.len() || count > 65_536 {
            groups.truncate(count);
            return groups;
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_may_change_everything() {
        let people = People::default();
        assert_eq!(people.remembered(0), None);
        let root = people.look_up(0, 0);
        assert_eq!((root.owner.name.as_str(), root.owner.gid, root.admin), ("root", 0, true));
        assert!(root.owner.groups.contains(&0));
        assert_eq!(people.remembered(0), Some(root));
        assert_eq!([user_name(0), user_name(4_000_000_000)], ["root", "4000000000"]);
        let known = ["root", "4000000000", "nobody-of-this-name", "", "root\0"].map(is_user);
        assert_eq!(known, [true, true, false, false, false]);
    }

    #[test]
    fn a_user_without_an_entry_is_named_by_number() {
        let user = People::default().look_up(3_999_999, 3_999_998);
        assert_eq!((user.owner.name.as_str(), user.owner.gid, user.admin), ("3999999", 3_999_998, false));
    }
}
