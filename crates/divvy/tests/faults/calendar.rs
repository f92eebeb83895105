//! What is on the calendar survives the daemon.

use serde_json::Value;

use crate::pool::Pool;
use crate::site::Site;

fn gpu(pool: &Pool, index: usize) -> Value {
    pool.say("gpus -o json").json()[index].clone()
}

#[test]
fn a_length_counts_from_the_moment_that_is_named() {
    let pool = Pool::start();
    let now = jiff::Timestamp::now();
    let at = |hours: i64| (now - jiff::SignedDuration::from_hours(hours)).to_string();
    let over = pool.divvy(["gpus", "drain", "0", "--at", &at(3), "--for", "2h"]);
    assert!(over.code == 65 && over.err.contains("it is over: it ended 1h"), "{over:?}");
    pool.divvy(["gpus", "drain", "0", "--at", &at(1), "--for", "2h"]).ok();
    pool.divvy(["gpus", "drain", "1", "--at", &at(1)]).ok();
    let unnamed = pool.divvy(["reserve", "--at", "2h"]);
    assert!(unnamed.code == 64 && unnamed.err.contains("-g 8 --queue vision"), "{unnamed:?}");
    let kept = pool.say("reserve -o json").json();
    let left = kept[0]["until_ms"].as_i64().unwrap() - now.as_millisecond();
    assert!((3_590_000..=3_600_000).contains(&left), "{kept}");
    assert_eq!((&kept[0]["state"], &kept[1]["until_ms"]), (&"active".into(), &Value::Null), "{kept}");
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
