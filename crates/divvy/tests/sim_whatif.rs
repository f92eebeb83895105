//! What if, asked of a real pool: running, and stopped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod pool;

use pool::Pool;

#[test]
fn one_more_node_would_have_made_jobs_wait_less_than_they_did() {
    let pool = Pool::start();
    // Each takes the whole node: the second waits for the first, the third for both.
    for _ in 0..3 {
        pool.submit("-g 8", "sleep 0.5");
    }
    for id in ["1", "2", "3"] {
        assert_eq!(pool.divvy(["wait", id]).code, 0);
    }
    let answer = pool.divvy(["sim", "whatif", "--change", "nodes+1", "-o", "json"]).json();
    let number = |path: &str| answer.pointer(path).unwrap().as_f64().unwrap();
    assert_eq!((number("/jobs"), number("/before/gpus"), number("/after/gpus")), (3.0, 8.0, 16.0));
    let (was, replayed) =
        (number("/fidelity/recorded_mean_wait_s"), number("/fidelity/replayed_mean_wait_s"));
    // The second waits nearly 0.5 s and the third 1 s, as they are submitted a little later; what a busy machine adds is not replayed.
    assert!(was >= 0.45 && replayed >= 0.45 && replayed <= was * 1.5, "{answer}");
    assert!(number("/after/mean_wait_s") < 0.6 * number("/before/mean_wait_s"), "{answer}");
}

#[test]
fn a_stopped_pool_answers_as_well_and_nonsense_says_what_can_be_written() {
    let pool = Pool::start();
    pool.submit("-g 1", "exit 0");
    assert_eq!(pool.say("wait 1").code, 0);
    let running = pool.say("sim whatif --change nodes+2xh100:4");
    assert!(running.ok().contains("8 → 16 GPUs") && running.out.contains("assumed:"), "{running:?}");
    pool.say("down").ok();
    let stopped = pool.divvy(["sim", "whatif", "--change", "queue default limit=4", "-o", "csv"]);
    assert!(stopped.ok().starts_with("queue,before.started,after.started"), "{stopped:?}");
    let wrong = pool.divvy(["sim", "whatif", "--change", "queue default limt=4"]);
    assert_eq!(wrong.code, 64, "{wrong:?}");
    assert!(wrong.err.contains("did you mean limit?") && wrong.err.contains("nodes+2xh100:8"), "{wrong:?}");
    let wrong = pool.divvy(["sim", "whatif", "--change", "policy fcfs"]);
    assert!(wrong.code == 64 && wrong.err.contains("quota-mlfq"), "{wrong:?}");
    assert_ne!(pool.say("sim whatif --change nodes-1").code, 0);
    let wrong = pool.divvy(["sim", "whatif", "--change", "queue default guarantee=9"]);
    let told = "9 of any are guaranteed in all (default 9), and the pool has 8: lower some";
    assert!(wrong.code == 65 && wrong.err.contains(told), "{wrong:?}");
    let told = pool.divvy(["sim", "whatif", "--change", "queue default limit=0"]);
    assert!(told.ok().contains("job 1 would wait for ever: DV-QUEUE-LIMIT"), "{told:?}");
}
