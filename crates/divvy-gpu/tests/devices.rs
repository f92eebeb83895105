//! Discovery and samples through NVML's interface: the production path over fake-nvml.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::path::{Path, PathBuf};

use divvy_gpu::testing::FakeMachine;
use divvy_gpu::{
    Choice, ComputeCapability, Device, DeviceSample, Health, MigMode, ProcessKind, Source, SourceError,
    SourceKind,
};

const EIGHT: &str = r#"
    driver = "570.133.20"
    cuda = "12.8"
    [[device]]
    count = 8
    links = [{ to = "switch", lanes = 18 }]
"#;

fn devices(source: &mut Source) -> Vec<Device> {
    source.discover().unwrap().devices
}

fn open(choice: Choice, libraries: &[PathBuf]) -> Result<Source, SourceError> {
    Source::open_from(&choice, Path::new("/nowhere"), libraries)
}

fn health(source: &mut Source) -> Vec<Health> {
    source.sample().into_iter().map(|sample| sample.health).collect()
}

/// Returns the only sample.
fn sample(source: &mut Source) -> DeviceSample {
    let mut samples = source.sample();
    assert_eq!(samples.len(), 1, "{samples:?}");
    samples.remove(0)
}

fn is_lost(health: &Health) -> bool {
    matches!(health, Health::Lost { .. })
}

#[test]
fn eight_devices_on_switches_are_found_with_all_that_they_have() {
    let machine = FakeMachine::new(EIGHT);
    let found = machine.source().discover().unwrap();
    assert_eq!(found.source, SourceKind::Nvml);
    assert_eq!(found.driver_version.as_deref(), Some("570.133.20"));
    assert_eq!(found.cuda_version.as_deref(), Some("12.8"));
    assert_eq!((found.devices.len(), found.lost.len()), (8, 0));
    let third = &found.devices[3];
    assert_eq!((third.index, third.minor_number), (3, Some(3)));
    assert_eq!(third.uuid, "GPU-fa4e0000-0000-4000-8000-000000000003");
    assert_eq!((third.product.as_str(), third.model.as_str()), ("NVIDIA H100 80GB HBM3", "h100"));
    assert_eq!((third.memory_mib, third.nominal_memory_gb), (81_559, Some(80)));
    assert_eq!(third.pci_bus_id.as_deref(), Some("00000000:13:00.0"));
    assert_eq!(third.compute_capability, Some(ComputeCapability { major: 9, minor: 0 }));
    assert_eq!(third.mig_mode, MigMode::Unsupported);
    let peers: Vec<_> =
        third.nvlink.iter().map(|peer| (&*peer.pci_bus_id, peer.lanes, peer.switched)).collect();
    assert_eq!(peers.len(), 7);
    assert_eq!(peers[0], ("00000000:10:00.0", 18, true));
    assert_eq!(third.nvlink[6].uuid, found.devices[7].uuid);
}

#[test]
fn memory_is_as_fast_as_the_driver_says_where_that_is_not_what_is_sold_under_the_name() {
    let machine = FakeMachine::new(
        r#"
        [[device]]
        memory_clock_mhz = 2619
        memory_bus_bits = 5120
        [[device]]
        memory_clock_mhz = 1593
        memory_bus_bits = 5120
        [[device]]
        product = "NVIDIA H100 PCIe"
        [[device]]
        product = "NVIDIA Next"
        memory_clock_mhz = 1000
        memory_bus_bits = 384
        [[device]]
        product = "NVIDIA Next"
    "#,
    );
    let found = devices(&mut machine.source());
    let gb_s: Vec<_> = found.iter().map(|device| device.memory_bandwidth_gb_s).collect();
    assert_eq!(gb_s, [Some(3350), Some(2039), Some(2039), Some(96), None]);
}

#[test]
fn direct_links_are_counted_per_peer() {
    let machine = FakeMachine::new(
        r#"
        [[device]]
        product = "Tesla V100-SXM2-16GB"
        memory_mib = 16160
        links = [{ to = 1, lanes = 2 }, { to = 2, lanes = 1 }]
        numa_node = 0
        [[device]]
        product = "Tesla V100-SXM2-16GB"
        memory_mib = 16160
        links = [{ to = 0, lanes = 2 }]
        numa_node = 1
        [[device]]
        product = "NVIDIA Quantum 9000"
        memory_mib = 50000
        links = [{ to = 0, lanes = 1 }]
        numa_node = 70
        [[device]]
        mig = "enabled"
        "#,
    );
    let found = devices(&mut machine.source());
    let lanes: Vec<Vec<(u32, bool)>> = found
        .iter()
        .map(|device| device.nvlink.iter().map(|peer| (peer.lanes, peer.switched)).collect())
        .collect();
    assert_eq!(lanes, [vec![(2, false), (1, false)], vec![(2, false)], vec![(1, false)], vec![]]);
    assert_eq!(found[0].nvlink[1].uuid, found[2].uuid);
    let nodes: Vec<_> = found.iter().map(|device| device.numa_node).collect();
    assert_eq!(nodes, [Some(0), Some(1), Some(70), None]);
    assert_eq!((found[1].model.as_str(), found[1].nominal_memory_gb), ("v100", Some(16)));
    assert_eq!((found[2].model.as_str(), found[2].nominal_memory_gb), ("quantum-9000", None));
    assert_eq!((found[3].mig_mode, found[0].mig_mode), (MigMode::Enabled, MigMode::Unsupported));
}

#[test]
fn a_missing_library_is_named_with_what_to_do() {
    let error = open(Choice::Nvml, &["/nowhere/libnvidia-ml.so.1".into()]).unwrap_err().to_string();
    for part in [
        "/nowhere/libnvidia-ml.so.1",
        "No such file",
        "DIVVY_NVML",
        "--gpus none",
        "install the NVIDIA driver",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

#[test]
fn a_driver_that_does_not_run_is_told_from_one_that_is_broken() {
    for (fault, expected) in [
        ("no-driver", "the NVIDIA driver is not loaded"),
        ("version-mismatch", "driver/library version mismatch"),
        ("unknown", "an internal driver error"),
    ] {
        let machine = FakeMachine::new(&format!("fault = \"{fault}\""));
        let error = open(Choice::Nvml, &[machine.library()]).unwrap_err().to_string();
        assert!(error.contains(expected), "{fault}: {error}");
    }
}

#[test]
fn a_driver_without_devices_is_a_machine_without_devices() {
    let machine = FakeMachine::new("");
    let mut source = machine.source();
    assert_eq!(devices(&mut source), []);
    assert_eq!(source.sample(), []);
}

#[test]
fn a_sample_tells_how_the_device_is() {
    let machine = FakeMachine::new(
        r#"
        [[device]]
        used_mib = 5000
        reserved_mib = 600
        utilization_percent = 87
        temperature_c = 61
        power_w = 412.3
        processes = [
            { pid = 900, used_mib = 4000 },
            { pid = 800, kind = "graphics", used_mib = 100 },
            { pid = 700 },
        ]
        "#,
    );
    let sample = sample(&mut machine.source());
    assert_eq!((sample.memory_used_mib, sample.memory_total_mib), (Some(5000), Some(81_559)));
    assert_eq!(
        (sample.utilization_percent, sample.temperature_c, sample.power_w),
        (Some(87), Some(61), Some(413))
    );
    let processes: Vec<_> = sample.processes.iter().map(|p| (p.pid, p.kind, p.used_memory_mib)).collect();
    assert_eq!(
        processes,
        [
            (700, ProcessKind::Compute, None),
            (800, ProcessKind::Graphics, Some(100)),
            (900, ProcessKind::Compute, Some(4000)),
        ]
    );
    assert!(sample.health.is_ok());
}

#[test]
fn what_a_device_does_not_know_is_left_out_and_is_no_fault() {
    let all = r#"["memory", "utilization", "temperature", "power", "processes", "events", "ecc", "numa"]"#;
    let machine = FakeMachine::new(&format!("[[device]]\nunsupported = {all}"));
    let mut source = machine.source();
    assert_eq!(devices(&mut source)[0].memory_mib, 0);
    let sample = sample(&mut source);
    assert_eq!(sample, DeviceSample::unknown(&sample.uuid, Health::Ok));
}

#[test]
fn a_device_that_falls_off_the_bus_is_lost_alone_and_comes_back() {
    let with_third = |fault: &str| format!("[[device]]\ncount = 2\n[[device]]\n{fault}\n[[device]]\n");
    let machine = FakeMachine::new(&with_third(""));
    let mut source = machine.source();
    let before = devices(&mut source);
    for fault in ["lost", "reset-required", "absent"] {
        machine.describe(&with_third(&format!("fault = \"{fault}\"")));
        let samples = source.sample();
        let lost: Vec<_> = samples.iter().filter(|s| is_lost(&s.health)).map(|s| s.uuid.as_str()).collect();
        assert_eq!((samples.len(), lost), (4, vec![before[2].uuid.as_str()]), "{fault}");
        let found = source.discover().unwrap();
        assert_eq!(
            found.devices.iter().filter(|device| before.iter().any(|b| b.uuid == device.uuid)).count(),
            3
        );
        assert_eq!(found.lost.len(), 1, "{fault}: {:?}", found.lost);
        assert_eq!((found.lost[0].index, found.lost[0].uuid.as_deref()), (2, Some(before[2].uuid.as_str())));
        assert!(!found.lost[0].reason.is_empty());

        machine.describe(&with_third(""));
        assert_eq!(health(&mut source), vec![Health::Ok; 4], "{fault}");
        assert_eq!(devices(&mut source), before, "{fault}");
    }
}

#[test]
fn a_device_that_was_lost_from_the_start_is_told_without_a_name() {
    let machine = FakeMachine::new("[[device]]\nfault = \"lost\"\n[[device]]\n");
    let mut source = machine.source();
    let found = source.discover().unwrap();
    assert_eq!((found.devices.len(), found.devices[0].index), (1, 1));
    assert_eq!((found.lost[0].index, found.lost[0].uuid.as_deref()), (0, None));
    assert_eq!(health(&mut source), [Health::Ok]);
}

#[test]
fn a_device_that_is_plugged_in_shows_in_the_next_sample() {
    let machine = FakeMachine::new("[[device]]\n");
    let mut source = machine.source();
    assert_eq!(devices(&mut source).len(), 1);
    machine.describe("[[device]]\ncount = 2\n");
    let samples = source.sample();
    assert_eq!(samples.len(), 2);
    assert_eq!(devices(&mut source)[1].uuid, samples[1].uuid);
}

#[test]
fn when_nvml_as_a_whole_fails_all_devices_are_lost_until_it_works_again() {
    let machine = FakeMachine::new(EIGHT);
    let mut source = machine.source();
    let before = devices(&mut source);
    machine.describe("this is no description");
    let lost = health(&mut source);
    assert!(lost.len() == 8 && lost.iter().all(is_lost), "{lost:?}");
    let error = source.discover().unwrap_err().to_string();
    assert!(error.contains("an internal driver error") && error.contains("nvidia-smi"), "{error}");
    machine.describe(EIGHT);
    assert_eq!(health(&mut source), vec![Health::Ok; 8]);
    assert_eq!(devices(&mut source), before);
}

#[test]
fn devices_of_others_are_not_ours_and_not_lost() {
    let machine = FakeMachine::new("[[device]]\nfault = \"no-permission\"\n[[device]]\n");
    let mut source = machine.source();
    let found = source.discover().unwrap();
    assert_eq!((found.devices.len(), found.lost.len()), (1, 0));
    assert_eq!(health(&mut source), [Health::Ok]);
}

#[test]
fn an_applications_fault_is_told_and_does_not_condemn_the_device() {
    let machine = FakeMachine::new("[[device]]\nxids = [79]");
    let mut source = machine.source();
    devices(&mut source);
    assert_eq!((sample(&mut source).xids, sample(&mut source).health), (vec![], Health::Ok));
    machine.describe("[[device]]\nxids = [79, 31, 13]");
    let faulty = sample(&mut source);
    assert_eq!((faulty.xids, faulty.health), (vec![31, 13], Health::Ok));
    assert_eq!(sample(&mut source).xids, [0u64; 0]);
}

#[test]
fn a_fault_of_the_device_is_kept_until_it_is_forgiven_or_the_device_was_away() {
    let machine = FakeMachine::new("[[device]]");
    let mut source = machine.source();
    let uuid = devices(&mut source)[0].uuid.clone();
    machine.describe("[[device]]\nxids = [62]");
    assert_eq!(sample(&mut source).xids, [62]);
    let kept = sample(&mut source);
    assert!(matches!(&kept.health, Health::Xid { xid: 62, reason } if reason.contains("reset")), "{kept:?}");
    source.forgive(&uuid);
    assert_eq!(sample(&mut source).health, Health::Ok);

    machine.describe("[[device]]\nxids = [62, 95]");
    assert!(matches!(sample(&mut source).health, Health::Xid { xid: 95, .. }));
    machine.describe("[[device]]\nxids = [62, 95]\nfault = \"lost\"");
    assert!(is_lost(&sample(&mut source).health));
    machine.describe("[[device]]\nxids = [62, 95]");
    assert_eq!(sample(&mut source).health, Health::Ok);
}

#[test]
fn events_of_one_device_go_on_while_another_is_lost() {
    let machine = FakeMachine::new("[[device]]\ncount = 2");
    let mut source = machine.source();
    devices(&mut source);
    machine.describe("[[device]]\nfault = \"lost\"\n[[device]]\nxids = [95]");
    let health = health(&mut source);
    assert!(is_lost(&health[0]) && matches!(health[1], Health::Xid { xid: 95, .. }), "{health:?}");
}

#[test]
fn a_machine_with_a_lost_device_still_tells_the_faults_of_the_others_after_nvml_was_started_anew() {
    let with = |second: &str| format!("[[device]]\nfault = \"lost\"\n[[device]]\n{second}");
    let machine = FakeMachine::new("[[device]]\ncount = 2");
    let mut source = machine.source();
    devices(&mut source);
    machine.describe(&with(""));
    // More samples than lie between two starts of NVML.
    for _ in 0..130 {
        assert_eq!(source.sample().len(), 2);
    }
    machine.describe(&with("xids = [95]"));
    assert_eq!(source.sample()[1].xids, [95]);
}

#[test]
fn memory_repairs_that_wait_for_a_reset_are_seen_at_the_start_and_after_an_error() {
    let machine = FakeMachine::new("[[device]]\nremap_pending = true");
    let mut source = machine.source();
    devices(&mut source);
    for _ in 0..2 {
        let health = sample(&mut source).health;
        assert!(matches!(&health, Health::Ecc { reason } if reason.contains("reset")), "{health:?}");
    }
    // Xid 63: a row remapping was recorded.
    machine.describe("[[device]]\nxids = [63]");
    assert_eq!(sample(&mut source).health, Health::Ok);
    machine.describe("[[device]]\nxids = [63, 63]\nremap_failed = true");
    let health = sample(&mut source).health;
    assert!(matches!(&health, Health::Ecc { reason } if reason.contains("replaced")), "{health:?}");
}

#[test]
fn hostile_names_of_products_are_made_printable() {
    let machine = FakeMachine::new("[[device]]\nproduct = \"NVIDIA \\u001b[2JX\\nY\"");
    let device = &devices(&mut machine.source())[0];
    assert!(!device.product.chars().any(char::is_control), "{device:?}");
    assert_eq!(device.model, "2jx-y");
}

#[test]
fn a_source_may_move_to_another_thread() {
    let machine = FakeMachine::new(EIGHT);
    let mut source = machine.source();
    let samples = std::thread::spawn(move || (devices(&mut source), source.sample())).join().unwrap();
    assert_eq!(samples.1.len(), 8);
}

#[test]
fn two_machines_in_one_process_do_not_see_each_other() {
    let (one, other) = (FakeMachine::new("[[device]]"), FakeMachine::new("[[device]]\ncount = 2"));
    let (mut first, mut second) = (one.source(), other.source());
    assert_eq!((devices(&mut first).len(), devices(&mut second).len()), (1, 2));
}

#[test]
fn without_a_library_or_driver_auto_means_no_devices_and_says_why() {
    let missing = PathBuf::from("/nowhere/libnvidia-ml.so.1");
    let stopped = FakeMachine::new("fault = \"no-driver\"");
    for (library, why) in [(missing, "/nowhere/libnvidia-ml.so.1"), (stopped.library(), "not loaded")] {
        let mut source = open(Choice::Auto, &[library]).unwrap();
        assert_eq!(source.kind(), SourceKind::None);
        assert!(source.note().unwrap().contains(why), "{:?}", source.note());
        assert_eq!(devices(&mut source), []);
    }
}

#[test]
fn a_broken_driver_is_an_error_for_auto_too() {
    let broken = FakeMachine::new("fault = \"version-mismatch\"");
    assert!(matches!(open(Choice::Auto, &[broken.library()]), Err(SourceError::Broken { .. })));
}

#[test]
fn the_first_library_that_loads_is_taken() {
    let machine = FakeMachine::new("[[device]]");
    let mut source = open(Choice::Auto, &["/nowhere/libnvidia-ml.so.1".into(), machine.library()]).unwrap();
    assert_eq!(devices(&mut source).len(), 1);
}

#[test]
fn pretended_devices_are_sampled_as_idle_and_keep_their_names() {
    let state = tempfile::tempdir().unwrap();
    let choice: Choice = "pretend:2xH100".parse().unwrap();
    let mut source = Source::open(&choice, state.path()).unwrap();
    let machine = source.discover().unwrap();
    assert_eq!((machine.source, machine.devices.len()), (SourceKind::Pretend, 2));
    let samples = source.sample();
    assert_eq!(samples[1].uuid, machine.devices[1].uuid);
    assert_eq!((samples[1].memory_used_mib, samples[1].memory_total_mib), (Some(0), Some(81_559)));
    let again = Source::open(&choice, &state.path().join(".")).unwrap().discover().unwrap();
    assert_eq!(again.devices, machine.devices);
}

#[test]
fn no_devices_were_asked_for_and_none_are_there() {
    let mut source = open(Choice::None, &[]).unwrap();
    assert_eq!(source.sample(), []);
    assert_eq!((source.kind(), source.note()), (SourceKind::None, None));
    assert!(source.discover().unwrap().cpus > 0);
}
