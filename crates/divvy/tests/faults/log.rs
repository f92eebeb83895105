//! The log torn, damaged, or written by a newer program.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::site::{Site, entries};

fn log(site: &Site) -> PathBuf {
    site.state().join("divvy.db")
}

/// Replaces some bytes wherever they stand: in the log, and in what is kept beside it.
fn replace(file: &Path, old: &[u8], new: &[u8]) {
    let mut bytes = fs::read(file).unwrap();
    let windows = bytes.windows(old.len()).enumerate();
    let places: Vec<usize> = windows.filter(|(_, window)| *window == old).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the bytes are in the log");
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_torn_tail_is_recovered_and_said() {
    let site = Site::start();
    let kept = site.submit("--hold", "exit 0");
    let torn = site.submit("--hold", "exit 0");
    site.kill_daemon();
    let wal = site.state().join("divvy.db-wal");
    let length = wal.metadata().unwrap().len();
    OpenOptions::new().write(true).open(&wal).unwrap().set_len(length - 100).unwrap();
    site.up();
    let warnings = site.pool()["warnings"].to_string();
    assert!(warnings.contains("lost") && warnings.contains("position"), "{warnings}");
    assert_eq!(site.job(&kept)["state"], "held");
    let jobs = site.say("ps -a -o json").json();
    assert_eq!(jobs.as_array().unwrap().len(), 1, "the job of the torn commit is gone: {jobs}");
    // The number of the lost job is not silently given to another job; the pool goes on.
    let next = site.submit("", "exit 5");
    assert_eq!(site.divvy(["wait", &next]).code, 5, "after {torn} was lost");
    site.divvy(["release", &kept]).ok();
    assert_eq!(site.divvy(["wait", &kept]).code, 0);
    site.assert_lawful();
}

#[test]
fn a_job_that_runs_when_its_place_in_the_log_is_lost_is_ended_and_its_gpu_free() {
    let site = Site::start();
    let started = site.gate("started");
    let wal = site.state().join("divvy.db-wal");
    let before = wal.metadata().unwrap().len();
    let id = site.submit("-g 8 --requeue=never", "echo $$ > pid; echo > started; exec sleep 1000");
    started.await_job();
    let pid: u32 = fs::read_to_string(site.work().join("pid")).unwrap().trim().parse().unwrap();
    site.kill_daemon();
    OpenOptions::new().write(true).open(&wal).unwrap().set_len(before).unwrap();
    site.up();
    crate::site::wait_until_gone(pid);
    assert_eq!(site.divvy(["show", &id]).code, 66);
    assert_eq!(site.divvy(["run", "-g", "8", "--", "true"]).code, 0);
    site.assert_lawful();
}

#[test]
fn damage_inside_is_refused_by_place_and_remedy_and_repaired_by_an_explicit_flag() {
    let site = Site::start();
    let first = site.submit("--hold -n first-of-all", "exit 0");
    let second = site.submit("--hold -n marked-for-harm", "exit 0");
    site.submit("--hold -n behind-the-harm", "exit 0");
    site.say("down").ok();
    assert_eq!(site.say("doctor").code, 0);
    replace(&log(&site), b"marked-for-harm", b"marked-for-farm");
    let damaged = fs::read(log(&site)).unwrap();

    let said = site.refused();
    assert_eq!(said.code, 65, "{said:?}");
    for words in ["divvy.db", "position", "divvy doctor", "--repair"] {
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
    let said = site.up_with("pretend:8xH100", |_| ());
    assert_eq!(said.code, 65, "{said:?}");
    let said = site.say("doctor");
    assert!(said.code == 1 && said.out.contains("damaged"), "{said:?}");
    assert_eq!(
        fs::read(log(&site)).unwrap(),
        damaged,
        "neither a refused start nor a check changes anything"
    );

    let said = site.say("doctor --repair");
    assert_eq!(said.code, 0, "{said:?}");
    let copies: Vec<PathBuf> = entries(&site.state())
        .into_iter()
        .filter(|path| path.to_string_lossy().contains("damaged"))
        .collect();
    assert!(copies.iter().any(|copy| fs::read(copy).unwrap() == damaged), "{copies:?}");
    assert_eq!(site.say("doctor").code, 0);
    site.up();
    assert!(site.pool()["warnings"].to_string().contains("lost"));
    assert_eq!(site.job(&first)["state"], "held");
    assert_eq!(site.divvy(["show", &second]).code, 66);
    site.divvy(["release", &first]).ok();
    assert_eq!(site.divvy(["wait", &first]).code, 0);
    site.assert_lawful();
}

#[test]
fn a_repair_is_refused_while_the_daemon_runs_and_a_check_is_not() {
    let site = Site::start();
    let said = site.say("doctor --repair");
    assert!(said.code != 0 && said.err.contains(&site.daemon().to_string()), "{said:?}");
    assert_eq!(site.say("doctor").code, 0);
    assert_eq!(site.divvy(["run", "--", "true"]).code, 0);
}

#[test]
fn a_log_from_a_newer_version_is_refused_and_left_as_it_is() {
    let site = Site::start();
    let id = site.submit("--hold", "exit 0");
    site.say("down").ok();
    let before = fs::read(log(&site)).unwrap();
    replace(&log(&site), b"format1", b"format9");
    let newer = fs::read(log(&site)).unwrap();
    let said = site.refused();
    assert_eq!(said.code, 65, "{said:?}");
    assert!(said.err.contains("newer") && said.err.contains("form 9"), "{said:?}");
    assert_eq!(site.say("doctor --repair").code, 65, "a repair would throw away what is not damaged");
    assert_eq!(fs::read(log(&site)).unwrap(), newer);
    fs::write(log(&site), before).unwrap();
    site.up();
    assert_eq!(site.job(&id)["state"], json!("held"));
}
