//! Fixtures for the unit tests of several modules.

use divvy_core::action::{Fence, Launch};
use divvy_core::id::{AllocationId, JobId, Term};
use divvy_core::model::job::{Owner, Process};

use super::cgroup::Parents;
use super::records::{LaunchRecord, Pool};

/// A single task of job 12, without devices.
pub(crate) fn launch_record() -> LaunchRecord {
    LaunchRecord {
        fence: Fence { term: Term(1), allocation: AllocationId(7), seq: 1 },
        launch: Launch {
            job: JobId::single(12),
            name: "ft".into(),
            attempt: 1,
            restart: 0,
            rank: 0,
            world_size: 1,
            is_elastic: false,
            role: "task".into(),
            role_rank: (0, 1),
            local_rank: (0, 1),
            node: "n1".into(),
            devices: Vec::new(),
            cpu_milli: 0,
            cpu_is_ceiling: false,
            memory_bytes: 0,
            owner: Owner { name: "ana".into(), uid: 1000, gid: 1000, groups: Vec::new() },
            queue: "vision".into(),
            process: Process { argv: vec!["true".into()], directory: "/".into(), ..Process::default() },
            rendezvous: (String::new(), 0),
        },
        boot_id: "boot".into(),
        pool: Pool {
            user: "root".into(),
            state: "/state".into(),
            socket: "/state/socket".into(),
            kept_output_most_bytes: 1 << 30,
        },
        cgroups: Parents::Nowhere("none".into()),
    }
}
