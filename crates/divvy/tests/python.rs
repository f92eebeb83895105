//! Jobs in Python, with the module that the project has for them, and the real daemon.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod pool;

use pool::{Pool, lines};

/// Puts a script into the pool's folder, and says how a job runs it.
fn script(pool: &Pool, text: &str) -> String {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python");
    let before =
        format!("import sys; sys.path.insert(0, {module:?}); sys.dont_write_bytecode = True\nimport divvy\n");
    std::fs::write(pool.work().join("script.py"), before + text).unwrap();
    "exec python3 script.py".to_owned()
}

/// Counts steps; at the notice the count is saved, and the next run goes on from there.
const TRAINS: &str = r#"
import json, os, time
story = open("story", "a", buffering=1)
def tell(*words): print(*words, file=story)
tell("restart", divvy.restart(), "tasks", [task["task"] for task in divvy.tasks()])
if os.path.exists("saved"):
    tell("goes on at", open("saved").read())
    sys.exit(0)
notice = divvy.Notice()
open("started", "w").write("on\n")
step = 3
while not notice:
    time.sleep(0.01)
open("saved", "w").write(str(step))
tell("saved", divvy.checkpointed())
divvy.leave()
"#;

#[test]
fn a_script_hears_that_it_is_to_give_way_says_that_its_work_is_saved_and_goes_on_from_there() {
    let pool = Pool::start();
    let started = pool.gate("started");
    let trains = pool.submit("-g 8 --checkpoint USR1:60s", &script(&pool, TRAINS));
    started.await_job();
    let urgent = pool.submit("-g 8 -p urgent", "true");
    assert_eq!(pool.divvy(["wait", &urgent]).code, 0);
    assert_eq!(pool.divvy(["wait", &trains]).code, 0);
    let story = lines(&pool.work().join("story"));
    assert_eq!(story, ["restart 0 tasks [0]", "saved True", "restart 1 tasks [0]", "goes on at 3"]);
}

#[test]
fn a_script_outside_a_job_goes_on_as_if_nothing_were_said_and_a_refusal_has_a_code() {
    let pool = Pool::start();
    let tells = r#"
import os, warnings
warnings.simplefilter("always")
story = open("story", "a", buffering=1)
print(divvy.job(), divvy.restart(), divvy.checkpointed(), divvy.tasks(), file=story)
os.environ["DIVVY_JOB_ID"] = "12"
with warnings.catch_warnings(record=True) as heard:
    print(divvy.checkpointed(), len(heard), "does not answer" in str(heard[0].message), file=story)
os.environ["DIVVY_SOCKET"] = sys.argv[1]
try:
    divvy.checkpointed()
except divvy.Refused as refused:
    print(refused, file=story)
"#;
    script(&pool, tells);
    let mut outside = std::process::Command::new("python3");
    outside.arg("script.py").arg(pool.state().join("divvy.sock")).current_dir(pool.work());
    for name in ["DIVVY_JOB_ID", "DIVVY_RESTART", "DIVVY_SOCKET"] {
        outside.env_remove(name);
    }
    assert!(outside.status().unwrap().success());
    let story = lines(&pool.work().join("story"));
    assert_eq!(story, ["None 0 False []", "False 1 True", "there is no job 12 (no-such-job)"]);
}
