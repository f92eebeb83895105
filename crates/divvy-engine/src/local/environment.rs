//! The environment of a task: what its user submitted, and over it what Divvy sets.
//!
//! Values may be secrets. They are kept only in `STATE/environments/<job number>.json`, which only the pool's user can
//! read. The supervisor reads it once.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use divvy_core::action::Launch;
use divvy_core::engine::LaunchFailure;
use serde::{Deserialize, Serialize};

use super::records::LaunchRecord;
use super::tree::RECORD_VARIABLE;

/// Where programs are looked for when the submitted environment has no `PATH`.
pub(crate) const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment of a job as submitted: the file `STATE/environments/<job number>.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnvironment {
    /// For all tasks.
    #[serde(default)]
    pub base: BTreeMap<String, String>,
    /// Variables by role; they override the base.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, BTreeMap<String, String>>,
}

impl JobEnvironment {
    /// Names the file of a job (of an array as a whole).
    pub fn path(state: &Path, job_number: u64) -> PathBuf {
        state.join("environments").join(format!("{job_number}.json"))
    }

    /// Writes the file, readable by the pool's user alone. Must be done before a task of the job is launched.
    pub fn write(&self, state: &Path, job_number: u64) -> io::Result<()> {
        let path = Self::path(state, job_number);
        let beside = path.with_extension("new");
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(beside, path)
    }

    /// Removes the file. To be done when no task of the job will be launched any more.
    pub fn remove(state: &Path, job_number: u64) -> io::Result<()> {
        match fs::remove_file(Self::path(state, job_number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads the file of a task's job.
    pub(crate) fn read(state: &Path, job_number: u64) -> Result<Self, LaunchFailure> {
        let path = Self::path(state, job_number);
        let failure = |error: String| {
            LaunchFailure::Environment(format!(
                "reading the job's environment from {}: {error}",
                path.display()
            ))
        };
        let bytes = fs::read(&path).map_err(|error| failure(error.to_string()))?;
        // The parser's own message is left out: it may quote the text.
        serde_json::from_slice(&bytes)
            .map_err(|error| failure(format!("damaged at column {}", error.column())))
    }
}

/// Puts together the environment of a task.
pub(crate) fn compose(
    submitted: JobEnvironment,
    record: &LaunchRecord,
    directory: &Path,
) -> BTreeMap<String, String> {
    let JobEnvironment { base: mut environment, mut roles } = submitted;
    environment.extend(roles.remove(&record.launch.role).unwrap_or_default());
    for name in ["USER", "LOGNAME"] {
        environment.entry(name.into()).or_insert_with(|| record.launch.owner.name.clone());
    }
    environment.entry("PATH".into()).or_insert_with(|| USUAL_PATH.into());
    environment.extend(divvy(record, directory).map(|(name, value)| (name.to_owned(), value)));
    environment.extend(devices(&record.launch).map(|(name, value)| (name.to_owned(), value)));
    if record.launch.world_size >= 2 || record.launch.is_elastic {
        environment.extend(gang(&record.launch).map(|(name, value)| (name.to_owned(), value)));
    }
    if let Some(member) = record.launch.job.member {
        environment.insert("DIVVY_ARRAY_JOB_ID".into(), record.launch.job.number.to_string());
        environment.insert("DIVVY_ARRAY_INDEX".into(), member.to_string());
    }
    environment
}

fn divvy(record: &LaunchRecord, directory: &Path) -> [(&'static str, String); 14] {
    let launch = &record.launch;
    [
        ("DIVVY_JOB_ID", launch.job.to_string()),
        ("DIVVY_ALLOCATION", record.fence.allocation.to_string()),
        ("DIVVY_ATTEMPT", launch.attempt.to_string()),
        ("DIVVY_RESTART", launch.restart.to_string()),
        ("DIVVY_JOB_NAME", launch.name.clone()),
        ("DIVVY_QUEUE", launch.queue.clone()),
        ("DIVVY_USER", launch.owner.name.clone()),
        ("DIVVY_ROLE", launch.role.clone()),
        ("DIVVY_GPUS", launch.devices.len().to_string()),
        ("DIVVY_RANK", launch.rank.to_string()),
        ("DIVVY_LOCAL_RANK", launch.local_rank.0.to_string()),
        ("DIVVY_WORLD_SIZE", launch.world_size.to_string()),
        ("DIVVY_SOCKET", record.pool.socket.to_string_lossy().into_owned()),
        (RECORD_VARIABLE, super::tree::record_name(directory)),
    ]
}

/// Without devices the list is empty, not unset: CUDA takes an unset list for all devices.
fn devices(launch: &Launch) -> [(&'static str, String); 3] {
    let uuids: Vec<&str> = launch.devices.iter().map(|device| device.uuid.as_str()).collect();
    let uuids = uuids.join(",");
    [
        ("CUDA_VISIBLE_DEVICES", uuids.clone()),
        ("NVIDIA_VISIBLE_DEVICES", uuids),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into()),
    ]
}

/// Returns what torchrun would set for its workers. Each task is a group of its own.
fn gang(launch: &Launch) -> [(&'static str, String); 11] {
    let (address, port) = &launch.rendezvous;
    [
        ("RANK", launch.rank.to_string()),
        ("WORLD_SIZE", launch.world_size.to_string()),
        // A task sees only its own devices, so torch takes it for its own host: `set_device(LOCAL_RANK)` picks the first.
        ("LOCAL_RANK", "0".into()),
        ("LOCAL_WORLD_SIZE", "1".into()),
        ("GROUP_RANK", launch.rank.to_string()),
        ("GROUP_WORLD_SIZE", launch.world_size.to_string()),
        ("ROLE_RANK", launch.role_rank.0.to_string()),
        ("ROLE_WORLD_SIZE", launch.role_rank.1.to_string()),
        ("ROLE_NAME", launch.role.clone()),
        ("MASTER_ADDR", address.clone()),
        ("MASTER_PORT", port.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::testing::launch_record;
    use divvy_core::action::ExposedDevice;
    use divvy_core::id::JobId;
    use divvy_core::model::device::Draw;

    fn composed(
        change: impl FnOnce(&mut LaunchRecord),
        submitted: JobEnvironment,
    ) -> BTreeMap<String, String> {
        let mut record = launch_record();
        change(&mut record);
        compose(submitted, &record, Path::new("/state/tasks/7"))
    }

    fn device(uuid: &str) -> ExposedDevice {
        ExposedDevice {
            uuid: uuid.into(),
            minor: None,
            draw: Draw { milli: 1000, memory_mib: 1, partition: None },
        }
    }

    #[test]
    fn devices_are_listed_by_uuid_and_the_list_is_empty_not_absent_without_any() {
        let with = composed(
            |record| record.launch.devices = vec![device("GPU-a"), device("GPU-b")],
            Default::default(),
        );
        assert_eq!(with["CUDA_VISIBLE_DEVICES"], "GPU-a,GPU-b");
        assert_eq!(with["NVIDIA_VISIBLE_DEVICES"], "GPU-a,GPU-b");
        assert_eq!((with["CUDA_DEVICE_ORDER"].as_str(), with["DIVVY_GPUS"].as_str()), ("PCI_BUS_ID", "2"));
        let without = composed(|_| (), Default::default());
        assert_eq!(without["CUDA_VISIBLE_DEVICES"], "");
    }

    #[test]
    fn a_role_overrides_the_base_and_divvy_overrides_both() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let submitted = JobEnvironment {
            base: map(&[("A", "base"), ("B", "base"), ("CUDA_VISIBLE_DEVICES", "0,1,2,3")]),
            roles: [("trainer".to_owned(), map(&[("B", "role")])), ("other".to_owned(), map(&[("A", "no")]))]
                .into(),
        };
        let environment = composed(|record| record.launch.role = "trainer".into(), submitted);
        assert_eq!((environment["A"].as_str(), environment["B"].as_str()), ("base", "role"));
        assert_eq!(environment["CUDA_VISIBLE_DEVICES"], "");
    }

    #[test]
    fn ranks_are_given_to_gangs_alone() {
        let single = composed(|_| (), Default::default());
        assert!(!single.contains_key("RANK") && !single.contains_key("MASTER_ADDR"));
        assert_eq!((single["DIVVY_RANK"].as_str(), single["DIVVY_WORLD_SIZE"].as_str()), ("0", "1"));
        let gang = composed(
            |record| {
                (record.launch.rank, record.launch.world_size, record.launch.local_rank) = (3, 4, (3, 4));
                record.launch.rendezvous = ("127.0.0.1".into(), 29_500);
            },
            Default::default(),
        );
        for (name, value) in [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "0"),
            ("DIVVY_LOCAL_RANK", "3"),
            ("MASTER_PORT", "29500"),
        ] {
            assert_eq!(gang[name], value, "{name}");
        }
    }

    #[test]
    fn a_member_of_an_array_knows_its_array() {
        let member = composed(|record| record.launch.job = JobId::member(12, 3), Default::default());
        let read = |name: &str| member[name].clone();
        assert_eq!((read("DIVVY_JOB_ID"), read("DIVVY_ARRAY_JOB_ID")), ("12_3".into(), "12".into()));
        assert_eq!(read("DIVVY_ARRAY_INDEX"), "3");
    }
}
