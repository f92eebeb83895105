//! What is seen of a machine and its devices, through NVML's own interface.

use std::process::{Child, Command};

use divvy_core::engine::{EndedHow, Observation};
use divvy_core::model::device::{DeviceSpec, Health, Occupant};
use divvy_gpu::testing::FakeMachine;

use crate::pool::{Pool, await_file, device};

crate::tests![
    node_and_devices_are_told_at_the_start,
    a_stranger_on_a_free_device_is_told_and_its_going_too,
    a_device_of_another_pool_is_told,
    a_device_that_falls_off_the_bus_is_down_and_comes_back,
    a_device_that_is_added_is_told,
    a_task_is_no_stranger_and_what_it_uses_is_told,
];

fn devices(pool: &mut Pool, least: usize) -> Vec<DeviceSpec> {
    pool.wait("node", |seen| match seen {
        Observation::Node(_, devices) if devices.len() >= least => Some(devices.clone()),
        _ => None,
    })
}

/// Waits for a device to be told with this health, and returns who is said to use it.
fn occupant(pool: &mut Pool, is_sick: bool) -> Option<Occupant> {
    let found = pool.wait("device", |seen| match seen {
        Observation::Device { health, occupant, .. } if matches!(health, Health::Down(_)) == is_sick => {
            Some(occupant.clone())
        }
        _ => None,
    });
    pool.seen.retain(|seen| !matches!(seen, Observation::Device { .. }));
    found
}

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().unwrap()
}

fn with_process(pid: u32, used_mib: u64) -> String {
    format!(
        "[[device]]\nutilization_percent = 50\nprocesses = [{{ pid = {pid}, kind = \"compute\", used_mib = {used_mib} }}]\n"
    )
}

fn node_and_devices_are_told_at_the_start() {
    let machine = FakeMachine::new("[[device]]\ncount = 3\n");
    let mut pool = Pool::on(&machine);
    let found = devices(&mut pool, 0);
    assert_eq!(found.iter().map(|device| device.index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(found.iter().all(|device| device.model == "h100" && device.minor.is_some()));
    let node = pool.wait("node", |seen| match seen {
        Observation::Node(node, _) => Some(node.clone()),
        _ => None,
    });
    assert!(node.name == "local" && node.cpu_milli >= 1000 && node.memory_bytes > 0 && !node.numa.is_empty());
    assert_eq!(node.boot_id, divvy_gpu::boot_id().unwrap());
    let latest = pool.engine.as_ref().unwrap().telemetry().latest();
    assert_eq!((latest.samples.len(), latest.source), (3, divvy_gpu::SourceKind::Nvml));
}

fn a_stranger_on_a_free_device_is_told_and_its_going_too() {
    let machine = FakeMachine::new("[[device]]\n");
    let mut pool = Pool::on(&machine);
    assert_eq!(occupant(&mut pool, false), None, "the first look is told");
    let mut stranger = sleeper();
    machine.describe(&with_process(stranger.id(), 5000));
    let Some(Occupant::Process { pid, command, memory_mib, .. }) = occupant(&mut pool, false) else {
        panic!("nobody")
    };
    assert_eq!((pid, command.as_str(), memory_mib), (stranger.id(), "sleep", 5000));
    machine.describe("[[device]]\n");
    assert_eq!(occupant(&mut pool, false), None);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

fn a_device_of_another_pool_is_told() {
    let machine = FakeMachine::new("[[device]]\nuuid = \"GPU-0000000a-0000-4000-8000-00000000000a\"\n");
    let mut pool = Pool::on(&machine);
    let uuid = devices(&mut pool, 1)[0].uuid.clone();
    assert_eq!(occupant(&mut pool, false), None, "the first look is told");
    let owner = divvy_gpu::LockOwner { user: "ana".into(), pool: "/elsewhere".into() };
    let held = divvy_gpu::Locks::from_env().acquire(&uuid, &owner).unwrap();
    let expected = Occupant::Pool { user: "ana".into(), state: "/elsewhere".into() };
    assert_eq!(occupant(&mut pool, false), Some(expected));
    drop(held);
    assert_eq!(occupant(&mut pool, false), None);
}

fn a_device_that_falls_off_the_bus_is_down_and_comes_back() {
    let machine = FakeMachine::new("[[device]]\n");
    let mut pool = Pool::on(&machine);
    devices(&mut pool, 1);
    occupant(&mut pool, false);
    machine.describe("[[device]]\nfault = \"lost\"\n");
    occupant(&mut pool, true);
    machine.describe("[[device]]\n");
    occupant(&mut pool, false);
}

fn a_device_that_is_added_is_told() {
    let machine = FakeMachine::new("[[device]]\ncount = 1\n");
    let mut pool = Pool::on(&machine);
    assert_eq!(devices(&mut pool, 1).len(), 1);
    machine.describe("[[device]]\ncount = 2\n");
    assert_eq!(devices(&mut pool, 2).len(), 2);
}

fn a_task_is_no_stranger_and_what_it_uses_is_told() {
    let uuid = "GPU-0000000b-0000-4000-8000-00000000000b";
    let machine = FakeMachine::new(&format!("[[device]]\nuuid = \"{uuid}\"\n"));
    let mut pool = Pool::on(&machine);
    let mut order = pool.shell(1, "until [ -e go ]; do sleep 0.01; done; exit 3");
    order.devices = vec![device(uuid)];
    order.devices[0].minor = Some(0);
    pool.launch(1, order);
    let pid = pool.started(1).pid;
    machine.describe(&format!("{}uuid = \"{uuid}\"\nxids = [31]\n", with_process(pid, 5000)));
    let telemetry = pool.engine.as_ref().unwrap().telemetry();
    while telemetry.latest().samples.iter().all(|sample| sample.memory_used_mib != Some(5000)) {
        std::thread::yield_now();
    }
    // Once more, so that a whole period with the process in it is counted.
    let before = telemetry.latest().at;
    while telemetry.latest().at == before {
        std::thread::yield_now();
    }
    std::fs::write(pool.work().join("go"), "").unwrap();
    let end = pool.ended(1);
    assert_eq!(end.how, EndedHow::Exited(3));
    let usage = &end.usage.devices[0];
    assert_eq!((usage.uuid.as_str(), usage.peak_memory_mib, end.usage.xid), (uuid, 5000, Some(31)));
    assert!(usage.watched_ms > 0 && usage.mean_utilization_percent > 0, "{usage:?}");
    assert!(!pool.seen.iter().any(|seen| matches!(seen, Observation::Device { occupant: Some(_), .. })));
    await_file(&pool.record(1).join("ended.json"), 1);
}
