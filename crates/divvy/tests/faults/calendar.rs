//! What is on the calendar survives the daemon.

use serde_json::Value;

use crate::pool::Pool;
use crate::site::Site;

fn gpu(pool: &Pool, index: usize) -> Value {
    pool.say("gpus -o json").json()[index].clone()
}

#[test]
fn a_drained_gpu_keeps_its_job_and_stays_drained_over_a_crash() {
    let pool = Site::start();
    let gate = pool.gate("gate");
    let started = pool.gate("started");
    let runs = pool.submit("-g 1", "echo x > started; read x < gate");
    started.await_job();
    let drained = pool.divvy(["gpus", "drain", "0", "--note", "ECC errors"]);
    assert!(drained.ok().ends_with(&format!(":0 takes no new jobs; {runs} runs on there")), "{drained:?}");
    assert_eq!(gpu(&pool, 0)["state"], "allocated");
    let all = pool.submit("-g 8", "true");
    pool.crash(|| gate.open());
    assert_eq!(pool.divvy(["wait", &runs]).code, 0);
    assert_eq!(gpu(&pool, 0)["state"], "draining");
    assert!(gpu(&pool, 0)["reason"].as_str().unwrap().ends_with("ECC errors"));
    let explained = pool.divvy(["explain", &all]);
    assert!(explained.ok().contains("DV-GPU-DRAINING"), "{explained:?}");
    assert!(explained.out.contains("divvy gpus undrain"), "{explained:?}");
    pool.say("gpus undrain 0").ok();
    assert_eq!(pool.divvy(["wait", &all]).code, 0);
    pool.assert_lawful();
    assert_eq!(pool.say("reserve -o json").json(), Value::Array(Vec::new()));
}
