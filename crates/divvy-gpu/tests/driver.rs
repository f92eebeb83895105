//! The driver of this machine, where there is one: what Divvy finds is what `nvidia-smi` says.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use divvy_gpu::{Choice, MigMode, Source, SourceError};

/// The source over the real driver; `None`, after saying so, on a machine that has none.
fn driver() -> Option<Source> {
    match Source::open(&Choice::Nvml, Path::new("/nowhere")) {
        Err(SourceError::NoLibrary { .. }) => {
            eprintln!("skipped: this machine has no NVIDIA driver");
            None
        }
        opened => Some(opened.unwrap()),
    }
}

/// What `nvidia-smi` says of each device, by UUID, in the order of `fields`.
fn nvidia_smi(fields: &str) -> BTreeMap<String, Vec<String>> {
    let query = format!("--query-gpu=uuid,{fields}");
    let output = Command::new("nvidia-smi").args([&query, "--format=csv,noheader,nounits"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let mut values = line.split(',').map(|value| value.trim().to_owned());
        (values.next().unwrap(), values.collect())
    };
    text.lines().map(line).collect()
}

#[test]
fn the_devices_of_the_driver_are_those_that_nvidia_smi_lists() {
    let Some(mut source) = driver() else { return };
    let machine = source.discover().unwrap();
    let said = nvidia_smi("index,name,memory.total,pci.bus_id,compute_cap,driver_version");
    assert_eq!(machine.devices.len(), said.len());
    for device in &machine.devices {
        let capability = device.compute_capability.unwrap();
        let found = [
            device.index.to_string(),
            device.product.clone(),
            device.memory_mib.to_string(),
            device.pci_bus_id.clone().unwrap(),
            format!("{}.{}", capability.major, capability.minor),
            machine.driver_version.clone().unwrap(),
        ];
        assert_eq!(said[&device.uuid], found);
    }
    assert_eq!(source.discover().unwrap().devices, machine.devices);
}

#[test]
fn each_device_of_the_driver_gives_a_sample_that_makes_sense() {
    let Some(mut source) = driver() else { return };
    let machine = source.discover().unwrap();
    let samples = source.sample();
    assert_eq!(samples.len(), machine.devices.len());
    for (sample, device) in samples.iter().zip(&machine.devices) {
        assert_eq!(sample.uuid, device.uuid);
        assert!(sample.health.is_ok(), "{sample:?}");
        assert_eq!(sample.memory_total_mib, Some(device.memory_mib));
        assert!(sample.memory_used_mib.unwrap() <= device.memory_mib, "{sample:?}");
        assert!(sample.temperature_c.is_none_or(|celsius| (1..120).contains(&celsius)), "{sample:?}");
        // A device that is cut into instances has no use of its own.
        let is_whole = device.mig_mode != MigMode::Enabled;
        assert!(!is_whole || sample.utilization_percent.is_some_and(|percent| percent <= 100), "{sample:?}");
    }
}
