//! Version 2 has no file for device access: a small program in the kernel decides. It denies the listed character
//! devices and leaves all else as it is.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::local::devices::DeviceFile;

// From <linux/bpf.h>.
const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_TYPE_CGROUP_DEVICE: u32 = 6;
/// Programs of the groups above and below stay in effect.
const ALLOW_MULTI: u32 = 2;
const DEVICE_IS_CHARACTER: i32 = 2;

/// The fields of `struct bpf_cgroup_dev_ctx`, by offset: access in the upper and type in the lower half, major, minor.
const ACCESS_AND_TYPE: i16 = 0;
const MAJOR: i16 = 4;
const MINOR: i16 = 8;

/// One instruction: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const EXIT: Self = Self { code: 0x95, registers: 0, offset: 0, immediate: 0 };

    /// register := *(u32 *)(context + offset)
    fn load(register: u8, offset: i16) -> Self {
        Self { code: 0x61, registers: 0x10 | register, offset, immediate: 0 }
    }

    /// register := value
    fn set(register: u8, value: i32) -> Self {
        Self { code: 0xb7, registers: register, offset: 0, immediate: value }
    }

    /// register := register & mask
    fn mask(register: u8, mask: i32) -> Self {
        Self { code: 0x57, registers: register, offset: 0, immediate: mask }
    }

    /// Skips `by` instructions if register = value.
    fn skip_if_equal(register: u8, value: i32, by: i16) -> Self {
        Self { code: 0x15, registers: register, offset: by, immediate: value }
    }

    /// Skips `by` instructions if register ≠ value.
    fn skip_unless_equal(register: u8, value: i32, by: i16) -> Self {
        Self { code: 0x55, registers: register, offset: by, immediate: value }
    }
}

/// Attaches a program to a group that denies its processes the devices.
pub(super) fn deny(group: &Path, denied: &[DeviceFile]) -> io::Result<()> {
    let program = load(&assemble(denied))?;
    let group = File::open(group)?;
    // union bpf_attr for BPF_PROG_ATTACH: target_fd, attach_bpf_fd, attach_type, attach_flags.
    let mut attribute = [0u32; 32];
    attribute[..4].copy_from_slice(&[
        group.as_raw_fd().cast_unsigned(),
        program.as_raw_fd().cast_unsigned(),
        ATTACH_TYPE_CGROUP_DEVICE,
        ALLOW_MULTI,
    ]);
    bpf(PROG_ATTACH, &attribute).map(drop)
}

/// The context is in register 1; the result, 1 for allowed, is left in register 0.
fn assemble(denied: &[DeviceFile]) -> Vec<Instruction> {
    let mut program = vec![
        Instruction::load(2, ACCESS_AND_TYPE),
        Instruction::mask(2, 0xffff),
        Instruction::load(3, MAJOR),
        Instruction::load(4, MINOR),
        Instruction::set(0, 1),
        Instruction::skip_if_equal(2, DEVICE_IS_CHARACTER, 1),
        Instruction::EXIT,
    ];
    for device in denied {
        program.extend([
            Instruction::skip_unless_equal(3, device.major.cast_signed(), 3),
            Instruction::skip_unless_equal(4, device.minor.cast_signed(), 2),
            Instruction::set(0, 0),
            Instruction::EXIT,
        ]);
    }
    program.push(Instruction::EXIT);
    program
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let license = c"Dual MIT/GPL";
    let count = u32::try_from(program.len()).map_err(io::Error::other)?;
    // union bpf_attr for BPF_PROG_LOAD: prog_type, insn_cnt, insns (64 bits), license (64 bits), then zeroes.
    let mut attribute = [0u32; 32];
    attribute[..2].copy_from_slice(&[PROG_TYPE_CGROUP_DEVICE, count]);
    attribute[2..4].copy_from_slice(&halves(program.as_ptr() as u64));
    attribute[4..6].copy_from_slice(&halves(license.as_ptr() as u64));
    let fd = bpf(PROG_LOAD, &attribute)?;
    // SAFETY: the call succeeded, so that the result is a descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Splits a pointer in the machine's own order of halves.
fn halves(pointer: u64) -> [u32; 2] {
    let bytes = pointer.to_ne_bytes();
    [0, 4].map(|at| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
}

fn bpf(command: libc::c_long, attribute: &[u32; 32]) -> io::Result<i32> {
    // SAFETY: the attribute is larger than what the command reads, zero where unused, and what it points to outlives
    // the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_ptr(), size_of_val(attribute)) };
    match i32::try_from(result) {
        Ok(fd) if fd >= 0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}
