//! A full disk, and one that has room again.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::site::{Site, is_root, wait_until};

/// A small disk of its own for a pool's state.
struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts it where the site's state will be.
    fn under(site: &Site) -> Self {
        let path = site.state();
        fs::create_dir(&path).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(&path).status();
        assert!(mounted.unwrap().success(), "cannot mount a small disk");
        Self { path }
    }

    /// Writes until nothing fits any more.
    fn fill(&self) {
        let mut size = 16 << 20;
        for number in 0.. {
            while fs::write(self.path.join(format!("ballast-{number}")), vec![1_u8; size]).is_err() {
                if size == 1 {
                    return;
                }
                size /= 2;
            }
        }
    }

    fn make_room(&self) {
        for entry in fs::read_dir(&self.path).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("ballast-") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}

#[test]
fn on_a_full_disk_submissions_are_refused_running_jobs_go_on_and_it_recovers_by_itself() {
    if !is_root() {
        return println!("not root: cannot mount a small disk");
    }
    let site = Site::unstarted();
    let disk = SmallDisk::under(&site);
    site.up();
    let (started, gate) = (site.gate("started"), site.gate("gate"));
    let running = site.submit("-g 1", "echo > started; read x < gate; echo done; exit 3");
    started.await_job();
    disk.fill();

    // The log may still have pages of its own that are free.
    let said = wait_until("a submission is refused", || {
        let said = site.divvy(["run", "-d", "--", "true"]);
        if said.code == 0 { Err(said) } else { Ok(said) }
    });
    assert_eq!(said.code, 75, "{said:?}");
    assert!(said.err.contains("full") || said.err.contains("space"), "{said:?}");
    assert_eq!(site.job(&running)["state"], "running");
    gate.open();

    disk.make_room();
    assert_eq!(site.divvy(["wait", &running]).code, 3);
    let id = wait_until("submissions are taken again", || {
        let said = site.divvy(["run", "-d", "-g", "8", "--", "true"]);
        if said.code == 0 { Ok(said.ok().to_owned()) } else { Err(said) }
    });
    assert_eq!(site.divvy(["wait", &id]).code, 0);
    assert!(site.pool()["accepts"] == json!(true));
    site.assert_all_free();
    site.assert_lawful();
    site.crash(|| ());
    assert_eq!(site.job(&running)["exit_code"], 3);
    site.assert_lawful();
    site.say("down").ok();
}
