//! What a machine has: discovery, telemetry and health through NVML, and the accelerator catalogue.
//!
//! Start at [`Source`]: it is opened from the user's `--gpus` ([`Choice`]), and tells what the machine has
//! ([`Source::discover`]) and how its devices are at the moment ([`Source::sample`]). [`occupancy`] says whether a
//! device that should be free is used by somebody else; [`Locks`] keep two pools on one machine apart.

pub mod catalogue;
mod choice;
mod foreign;
mod host;
mod lock;
mod machine;
mod nvml;
mod pretend;
mod printable;
mod source;
#[cfg(feature = "testing")]
pub mod testing;

pub use choice::{Choice, ChoiceError, MAX_PRETENDED, PretendedGroup};
pub use foreign::{COMPUTE_FLOOR_MIB, Occupancy, occupancy, unseen_slack_mib};
pub use host::{HostError, boot_id};
pub use lock::{DeviceLock, LockError, LockOwner, Locks};
pub use machine::{
    ComputeCapability, Device, DeviceProcess, DeviceSample, Health, LostDevice, Machine, MigMode, NumaNode,
    NvlinkPeer, ProcessKind, SourceKind,
};
pub use printable::printable;
pub use source::{Source, SourceError};
