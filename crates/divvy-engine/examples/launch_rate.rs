//! Measures what a task costs: how many `true`s per second, how soon the first instruction runs, and how large a
//! supervisor is. `cargo run --release -p divvy-engine --example launch_rate [tasks] [at once]`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use divvy_core::action::{Action, Fence, Launch};
use divvy_core::engine::{Engine, Observation};
use divvy_core::id::{AllocationId, JobId, Term};
use divvy_core::model::job::{Owner, Process};
use divvy_engine::local::{JobEnvironment, LocalEngine, Settings, supervisor_main};

fn main() -> ExitCode {
    if let Some(code) = supervisor_main(std::env::args_os()) {
        return code;
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("launch_rate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (tasks, at_once) = (numbers.next().unwrap_or(2000), numbers.next().unwrap_or(8));
    let state = tempfile::tempdir()?;
    let environment = JobEnvironment {
        base: BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]),
        ..Default::default()
    };
    environment.write(state.path(), 1)?;
    let (bell, heard) = channel();
    let wake = move || {
        let _ = bell.send(());
    };
    let mut engine = LocalEngine::open(Settings::new(state.path(), "/none", Term(1), wake))?;
    let next = |engine: &mut LocalEngine| {
        let _ = heard.recv_timeout(Duration::from_secs(10));
        engine.observe()
    };
    rate(&mut engine, (tasks, at_once), next);
    latency(&mut engine, tasks, next);
    size(&mut engine, state.path(), tasks, next)
}

fn launch(engine: &mut LocalEngine, allocation: u64, argv: &[&str]) {
    let owner = Owner {
        name: "root".into(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        groups: Vec::new(),
    };
    let launch = Launch {
        job: JobId::member(1, u32::try_from(allocation % 64).unwrap_or(0)),
        name: "true".into(),
        attempt: 1,
        restart: 0,
        rank: 0,
        world_size: 1,
        is_elastic: false,
        role: "task".into(),
        role_rank: (0, 1),
        local_rank: (0, 1),
        node: "local".into(),
        devices: Vec::new(),
        cpu_milli: 1000,
        cpu_is_ceiling: false,
        memory_bytes: 1 << 30,
        owner,
        queue: "default".into(),
        process: Process {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            directory: "/".into(),
            ..Process::default()
        },
        rendezvous: (String::new(), 0),
    };
    let fence = Fence { term: Term(1), allocation: AllocationId(allocation), seq: 1 };
    engine.submit(&[Action::Launch(fence, Box::new(launch))]);
}

fn rate(
    engine: &mut LocalEngine,
    (tasks, at_once): (u64, u64),
    next: impl Fn(&mut LocalEngine) -> Vec<Observation>,
) {
    let begun = Instant::now();
    let (mut launched, mut ended) = (0, 0);
    while ended < tasks {
        while launched < tasks && launched - ended < at_once {
            launched += 1;
            launch(engine, launched, &["true"]);
        }
        for observation in next(engine) {
            if let Observation::Ended(allocation, _) = observation {
                ended += 1;
                engine.submit(&[Action::Forget(Fence { term: Term(1), allocation, seq: 2 })]);
            }
        }
    }
    let took = begun.elapsed();
    println!("{tasks} tasks, {at_once} at once: {:.0} per second", tasks as f64 / took.as_secs_f64());
    let cpu_ms = cpu_ms(libc::RUSAGE_SELF) + cpu_ms(libc::RUSAGE_CHILDREN);
    println!("processor time per task, all in: {:.2} ms", cpu_ms / tasks as f64);
}

fn cpu_ms(who: i32) -> f64 {
    // SAFETY: the struct is plain numbers, for which zero is a value, and outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1000.0 + time.tv_usec as f64 / 1000.0;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}

/// Measures the time from a launch until the end of an idle task is known, one task after the other.
fn latency(engine: &mut LocalEngine, tasks: u64, next: impl Fn(&mut LocalEngine) -> Vec<Observation>) {
    let mut took: Vec<Duration> = (1..=200)
        .map(|allocation| {
            let begun = Instant::now();
            launch(engine, tasks + allocation, &["true"]);
            while !next(engine).iter().any(|seen| matches!(seen, Observation::Ended(..))) {}
            let took = begun.elapsed();
            let fence = Fence { term: Term(1), allocation: AllocationId(tasks + allocation), seq: 2 };
            engine.submit(&[Action::Forget(fence)]);
            took
        })
        .collect();
    took.sort_unstable();
    println!("launch to end of one task: {:.2?} p50, {:.2?} p99", took[100], took[198]);
}

fn size(
    engine: &mut LocalEngine,
    state: &std::path::Path,
    tasks: u64,
    next: impl Fn(&mut LocalEngine) -> Vec<Observation>,
) -> Result<(), Box<dyn std::error::Error>> {
    let allocation = tasks + 1000;
    launch(engine, allocation, &["sleep", "1000"]);
    while !next(engine).iter().any(|seen| matches!(seen, Observation::Started(..))) {}
    // The supervisor makes itself small a tenth of a second after the start.
    let _ = rustix::event::poll(&mut [], Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 300_000_000 }));
    let lock = state.canonicalize()?.join("tasks").join(allocation.to_string()).join("lock");
    let supervisor = std::fs::read_to_string(lock)?;
    let status = std::fs::read_to_string(format!("/proc/{supervisor}/status"))?;
    for line in status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("Rss")) {
        println!("supervisor: {line}");
    }
    let stop = divvy_core::action::Stop { signal: "KILL".into(), grace_ms: 0 };
    engine
        .submit(&[Action::Stop(Fence { term: Term(1), allocation: AllocationId(allocation), seq: 2 }, stop)]);
    while !next(engine).iter().any(|seen| matches!(seen, Observation::Ended(..))) {}
    Ok(())
}
