use super::*;
use crate::policy::{Class, Named};
use crate::replay::Replay;
use crate::trace::cluster::ClusterNode;
use crate::trace::jobs::{Arrival, Fate, TraceJob};
use divvy_core::scenario::Scenario;

const MINUTE_MS: i64 = 60_000;

fn pool(lines: &str) -> Scenario {
    let mut scenario = Scenario::new();
    lines.lines().for_each(|line| scenario.line(line).unwrap());
    scenario
}

fn likeness(job: &Job) -> Likeness {
    let (queue, name) = (job.spec.queue.clone(), job.spec.name.clone());
    Likeness { queue, user: job.owner.name.clone(), name, devices: job.spec.devices_asked() }
}

fn ended(jobs: &[(&str, i64)]) -> Lengths {
    let mut lengths = Lengths::default();
    for (name, minutes) in jobs {
        let (queue, user) = ("default".to_owned(), "root".to_owned());
        let job = Likeness { queue, user, name: (*name).into(), devices: 1 };
        lengths.note_end(&job, minutes * MINUTE_MS);
    }
    lengths
}

fn forecast_of(scenario: &Scenario, lengths: &Lengths, job: JobId) -> Forecast {
    let known = Known {
        state: scenario.state(),
        now: scenario.now(),
        lengths,
        likeness: &likeness,
        costs: Costs::default(),
    };
    forecast(&known, &BTreeSet::from([job]), &Bounds::default(), &|| false).unwrap()
}

fn waits_min(forecast: &Forecast, job: u64) -> Vec<Option<i64>> {
    forecast.waits_ms(JobId::single(job)).into_iter().map(|wait| wait.map(|ms| ms / MINUTE_MS)).collect()
}

#[test]
fn behind_a_job_with_a_limit_the_wait_ends_with_it_at_the_latest() {
    let pool = pool("node n1 1xh100\nsubmit a default 1 limit=1h\nplan\npass 10m\nsubmit b default 1\nplan");
    let found = forecast_of(&pool, &Lengths::default(), JobId::single(2));
    let waits = waits_min(&found, 2);
    assert_eq!((waits.len(), waits[7], waits[14]), (15, Some(50), Some(50)));
    assert!(waits[1].unwrap() < 15, "some such jobs end before: {waits:?}");
    assert_eq!(found.basis, Basis { finished: 0, said: 1, unknown: 0 });
}

#[test]
fn behind_a_job_of_which_nothing_is_known_no_start_is_foreseen() {
    let jobs = "node n1 1xh100\nsubmit a default 1\nplan\nsubmit b default 1\nplan";
    let found = forecast_of(
        &pool(&format!("policy {{starve_after: none}}\n{jobs}")),
        &Lengths::default(),
        JobId::single(2),
    );
    assert_eq!((waits_min(&found, 2), found.basis.unknown), (vec![None; 15], 1));
    assert_eq!(found.until, Time(28 * 86_400_000));
    // No job waits for ever: after a week this one goes before all others.
    let found = forecast_of(&pool(jobs), &Lengths::default(), JobId::single(2));
    assert_eq!(waits_min(&found, 2), vec![Some(7 * 24 * 60); 15]);
}

#[test]
fn finished_jobs_like_those_that_run_say_how_long_it_takes() {
    let pool = pool("node n1 1xh100\nsubmit a default 1\nplan\npass 5m\nsubmit b default 1\nplan");
    let mut lengths = ended(&[("a", 30); 40]);
    let found = forecast_of(&pool, &lengths, JobId::single(2));
    let middle = waits_min(&found, 2)[7].unwrap();
    assert!((20..35).contains(&middle), "{middle}");
    assert_eq!(found.basis, Basis { finished: 40, said: 0, unknown: 0 });
    lengths = ended(&[("a", 300); 40]);
    assert!(waits_min(&forecast_of(&pool, &lengths, JobId::single(2)), 2)[7].unwrap() > 200);
}

#[test]
fn no_job_runs_beyond_its_limit_whatever_others_like_it_did() {
    let pool = pool("node n1 1xh100\nsubmit a default 1 limit=1h\nplan\npass 1m\nsubmit b default 1\nplan");
    let found = forecast_of(&pool, &ended(&[("a", 6000); 100]), JobId::single(2));
    assert_eq!(waits_min(&found, 2)[5..], [Some(59); 10]);
}

#[test]
fn those_ahead_in_line_come_first_and_those_behind_change_nothing() {
    let lines = "node n1 1xh100\nsubmit a default 1 limit=1h\nplan\nsubmit b default 1 limit=1h\nsubmit c default 1\nsubmit d default 1 limit=9h\nplan";
    let found = forecast_of(&pool(lines), &Lengths::default(), JobId::single(3));
    let waits = waits_min(&found, 3);
    assert_eq!(waits[14], Some(120));
    assert!(waits[0].unwrap() < 90, "{waits:?}");
}

#[test]
fn a_job_that_fits_starts_now_in_every_future() {
    let pool = pool("node n1 2xh100\nsubmit a default 1 limit=1h\nplan\nsubmit b default 1");
    let found = forecast_of(&pool, &Lengths::default(), JobId::single(2));
    assert_eq!(waits_min(&found, 2), [Some(0); 15]);
}

#[test]
fn members_of_arrays_gangs_and_jobs_told_to_stop_are_followed() {
    let lines = "node n1 4xh100\nsubmit sweep default 1 array=0-9%2 limit=10m\nsubmit gang default 1 tasks=2 limit=30m\nplan\npass 1m\nsubmit last default 4\nplan\nstop gang";
    let found = forecast_of(&pool(lines), &Lengths::default(), JobId::single(3));
    let waits = waits_min(&found, 3);
    // Five times two members, one after the other, 10 minutes each at most.
    assert!(waits[0].unwrap() > 5 && waits[14].unwrap() <= 49, "{waits:?}");
}

#[test]
fn the_same_pool_and_seed_give_the_same_forecast() {
    let lines = "node n1 4xh100\nsubmit sweep default 1 array=0-30 limit=10m\nplan\npass 1m\nsubmit last default 4\nplan";
    let pool = pool(lines);
    let once = || forecast_of(&pool, &ended(&[("sweep", 3)]), JobId::single(2));
    assert_eq!(once(), once());
}

#[test]
fn who_gives_up_keeps_the_futures_that_were_at_their_end() {
    let pool = pool(
        "node n1 1xh100\nsubmit sweep default 1 array=0-99 limit=10m\nplan\nsubmit last default 1\nplan",
    );
    let asked = std::cell::Cell::new(0);
    let gives_up = || {
        asked.set(asked.get() + 1);
        asked.get() > 20
    };
    let (lengths, wanted) = (Lengths::default(), BTreeSet::from([JobId::single(2)]));
    let known = Known {
        state: pool.state(),
        now: pool.now(),
        lengths: &lengths,
        likeness: &likeness,
        costs: Costs::default(),
    };
    let found = forecast(&known, &wanted, &Bounds::default(), &gives_up).unwrap();
    assert!((1..15).contains(&found.samples()), "{}", found.samples());
}

#[test]
fn a_trace_is_asked_and_its_answers_are_compared_with_what_came() {
    let job = |row: i64| TraceJob {
        arrival: Arrival {
            id: row.to_string(),
            submit_s: row * 100,
            gpus: 8,
            queue: "q".into(),
            user: "ana".into(),
            name: "x".into(),
        },
        fate: Fate::new(200 + 40 * (row % 6), String::new()),
    };
    let jobs: Vec<TraceJob> = (0..60).map(job).collect();
    let (node, model, pool) = ("n1".to_owned(), "h100".to_owned(), "q".to_owned());
    let node = ClusterNode { node, model, gpus: 8, cpu_milli: 96_000, memory_mib: 1 << 19, pool };
    let setup = Replay {
        nodes: vec![&node],
        queues: Vec::new(),
        policy: Named::Fifo.settings(),
        class: Class::N,
        restart_ms: 0,
        speeds: None,
    };
    let asked = ask(setup, &jobs, Ask { every: 2, bounds: Bounds::default() }, |_| ()).unwrap();
    assert_eq!(asked.len(), 30);
    assert!(asked[0].said.is_some_and(|said| said.is_now()) && asked[0].wait_ms() == 0);
    let truths =
        |from: usize| asked[from..].iter().map(|asked| asked.said.map(|said| said.truth(asked.wait_ms())));
    // Long lines of similar jobs: what is drawn is right once a few have ended.
    let inside = truths(5).filter(|truth| *truth == Some(Truth::Inside)).count();
    assert!(inside >= 15, "{:?}", truths(0).collect::<Vec<_>>());
}
