//! A small disk, for tests of what happens when it is full.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A small file system of its own; `None` where mounting is not permitted.
pub(crate) struct SmallDisk(pub(crate) tempfile::TempDir);

impl SmallDisk {
    pub(crate) fn of_kib(kib: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={kib}k")).unwrap();
        mount("none", dir.path(), "tmpfs", MountFlags::empty(), options.as_c_str()).ok()?;
        Some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}
