//! The description of a machine, as in README.md: read, and completed with defaults.

use serde::Deserialize;

/// A machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    #[serde(default = "default_driver")]
    pub(crate) driver: String,
    #[serde(default = "default_cuda")]
    pub(crate) cuda: String,
    /// What keeps NVML as a whole from working.
    pub(crate) fault: Option<MachineFault>,
    #[serde(default, rename = "device")]
    groups: Vec<Group>,
    /// The groups, expanded into devices.
    #[serde(skip)]
    pub(crate) devices: Vec<Device>,
}

/// What can keep NVML as a whole from working.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MachineFault {
    NoDriver,
    VersionMismatch,
    Unknown,
}

/// What can be wrong with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeviceFault {
    /// Enumerated, and every call on it says that it is lost.
    Lost,
    /// Enumerated, and every call on it says that it must be reset.
    ResetRequired,
    /// No longer enumerated.
    Absent,
    /// Counted, but not for this user.
    NoPermission,
}

/// What a device may be asked for without knowing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ability {
    Memory,
    Utilization,
    Temperature,
    Power,
    Processes,
    Events,
    Ecc,
    Numa,
}

/// Devices that are alike.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(default = "one")]
    count: u32,
    uuid: Option<String>,
    pci: Option<String>,
    minor: Option<u32>,
    #[serde(flatten)]
    device: Device,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Device {
    #[serde(default = "default_product")]
    pub(crate) product: String,
    #[serde(default = "default_memory")]
    pub(crate) memory_mib: u64,
    #[serde(default)]
    pub(crate) reserved_mib: u64,
    /// What is in use; by default the sum of what the processes hold.
    pub(crate) used_mib: Option<u64>,
    #[serde(default)]
    pub(crate) utilization_percent: u32,
    #[serde(default = "default_temperature")]
    pub(crate) temperature_c: u32,
    #[serde(default = "default_power")]
    pub(crate) power_w: f64,
    #[serde(default = "default_capability")]
    pub(crate) capability: String,
    pub(crate) numa_node: Option<u32>,
    pub(crate) memory_clock_mhz: Option<u32>,
    pub(crate) memory_bus_bits: Option<u32>,
    pub(crate) serial: Option<String>,
    #[serde(default)]
    pub(crate) mig: Mig,
    #[serde(default)]
    pub(crate) links: Vec<Link>,
    #[serde(default)]
    pub(crate) processes: Vec<Process>,
    #[serde(default)]
    pub(crate) unsupported: Vec<Ability>,
    pub(crate) fault: Option<DeviceFault>,
    /// Codes of all Xids ever raised; each is delivered once to each event set that existed before it.
    #[serde(default)]
    pub(crate) xids: Vec<u64>,
    #[serde(default)]
    pub(crate) remap_pending: bool,
    #[serde(default)]
    pub(crate) remap_failed: bool,
    #[serde(default)]
    pub(crate) retire_pending: bool,
    #[serde(default)]
    pub(crate) ecc_corrected: u64,
    #[serde(default)]
    pub(crate) ecc_uncorrected: u64,
    #[serde(skip)]
    pub(crate) uuid: String,
    #[serde(skip)]
    pub(crate) pci: Pci,
    #[serde(skip)]
    pub(crate) minor: u32,
}

/// A PCI address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pci {
    pub(crate) domain: u32,
    pub(crate) bus: u32,
    pub(crate) device: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mig {
    #[default]
    Unsupported,
    Disabled,
    Enabled,
}

/// NVLinks to one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) to: End,
    #[serde(default = "one")]
    pub(crate) lanes: u32,
}

/// Where a link ends: at the device of that number in the file, counted from 0, or at a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum End {
    Device(usize),
    Switch(Switch),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Switch {
    Switch,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    #[serde(default)]
    pub(crate) kind: Kind,
    /// Not reported by default.
    pub(crate) used_mib: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    #[default]
    Compute,
    Graphics,
}

fn one() -> u32 {
    1
}

fn default_driver() -> String {
    "580.95.05".to_owned()
}

fn default_cuda() -> String {
    "13.0".to_owned()
}

fn default_product() -> String {
    "NVIDIA H100 80GB HBM3".to_owned()
}

fn default_memory() -> u64 {
    81_559
}

fn default_temperature() -> u32 {
    30
}

fn default_power() -> f64 {
    70.0
}

fn default_capability() -> String {
    "9.0".to_owned()
}

/// The most devices of a machine: as many as the bus numbers below allow.
const MOST_DEVICES: usize = 4096;

/// Reads a description, or says what is wrong with it.
pub(crate) fn read(text: &str) -> Result<Machine, String> {
    let mut machine: Machine = toml::from_str(text).map_err(|error| error.to_string())?;
    version(&machine.cuda)?;
    for group in std::mem::take(&mut machine.groups) {
        unfold(group, &mut machine.devices)?;
    }
    let count = machine.devices.len();
    for device in &machine.devices {
        version(&device.capability)?;
        for link in &device.links {
            if matches!(link.to, End::Device(number) if number >= count) {
                return Err(format!("a link of {} leads to a device that is not described", device.uuid));
            }
        }
        if device.links.iter().map(|link| link.lanes as usize).sum::<usize>() > crate::abi::MOST_LINKS {
            return Err(format!("{} has more than {} links", device.uuid, crate::abi::MOST_LINKS));
        }
    }
    Ok(machine)
}

fn unfold(group: Group, devices: &mut Vec<Device>) -> Result<(), String> {
    if group.count != 1 && (group.uuid.is_some() || group.pci.is_some() || group.minor.is_some()) {
        return Err("uuid, pci and minor are for single devices, without count".to_owned());
    }
    if devices.len() + group.count as usize > MOST_DEVICES {
        return Err(format!("more than {MOST_DEVICES} devices"));
    }
    for _ in 0..group.count {
        let number = devices.len() as u32;
        let mut device = group.device.clone();
        device.uuid =
            group.uuid.clone().unwrap_or_else(|| format!("GPU-fa4e0000-0000-4000-8000-{number:012x}"));
        device.minor = group.minor.unwrap_or(number);
        device.pci = match &group.pci {
            Some(text) => {
                pci(text).ok_or_else(|| format!("{text:?} is not a PCI address as 00000000:17:00.0"))?
            }
            None => Pci { domain: number / 128, bus: 0x10 + number % 128, device: 0 },
        };
        devices.push(device);
    }
    Ok(())
}

/// Reads `0000:17:00.0`, with a domain of any length or none.
pub(crate) fn pci(text: &str) -> Option<Pci> {
    let text = text.strip_suffix(".0").unwrap_or(text);
    let mut parts = text.rsplit(':').map(|part| u32::from_str_radix(part, 16));
    let (device, bus) = (parts.next()?.ok()?, parts.next()?.ok()?);
    let domain = parts.next().unwrap_or(Ok(0)).ok()?;
    (parts.next().is_none() && device < 32 && bus < 256).then_some(Pci { domain, bus, device })
}

/// Reads a version of two numbers, as 9.0.
pub(crate) fn version(text: &str) -> Result<(u32, u32), String> {
    let parts =
        text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.ok_or_else(|| format!("{text:?} is not a version as 9.0"))
}

impl Device {
    /// The ends of the device's links, one per link; a link to itself is left out, so that devices can be described
    /// alike.
    pub(crate) fn link_ends(&self, number: usize) -> Vec<End> {
        let links = self.links.iter().filter(|link| link.to != End::Device(number));
        links.flat_map(|link| std::iter::repeat_n(link.to, link.lanes as usize)).collect()
    }

    /// Memory in use, in MiB.
    pub(crate) fn used_mib(&self) -> u64 {
        let held = || self.processes.iter().filter_map(|process| process.used_mib).sum();
        self.used_mib.unwrap_or_else(held).min(self.memory_mib)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_describes_eight_devices() {
        let machine = read("[[device]]\ncount = 8\nlinks = [{ to = \"switch\", lanes = 18 }]").unwrap();
        assert_eq!(machine.devices.len(), 8);
        assert_eq!(machine.devices[7].uuid, "GPU-fa4e0000-0000-4000-8000-000000000007");
        assert_eq!(machine.devices[7].link_ends(7).len(), 18);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("[[device]]\ncolour = 1", "colour"),
            ("colour = 1", "unknown field"),
            ("[[device]]\ncount = 2\nuuid = \"GPU-1\"", "single devices"),
            ("[[device]]\nlinks = [{ to = 3 }]", "not described"),
            ("[[device]]\nlinks = [{ to = \"switch\", lanes = 19 }]", "more than 18 links"),
            ("[[device]]\npci = \"x\"", "not a PCI address"),
            ("[[device]]\ncapability = \"9\"", "not a version"),
            ("[[device]]\ncount = 5000", "more than 4096"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_are_read_with_and_without_domain() {
        let expected = Some(Pci { domain: 0, bus: 0x3b, device: 0 });
        assert_eq!(
            (pci("3B:00.0"), pci("0000:3b:00.0"), pci("00000000:3B:00.0")),
            (expected, expected, expected)
        );
        assert_eq!((pci("x"), pci(""), pci("1:2:3:4.0")), (None, None, None));
    }
}
