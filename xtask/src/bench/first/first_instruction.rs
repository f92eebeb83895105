//! The job whose first instruction is waited for: no runtime, no libraries, nothing before the clock is read. It writes
//! what CLOCK_MONOTONIC said (seconds and nanoseconds, 8 bytes each) to its standard output, and ends with 0.

#![no_std]
#![no_main]

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "mov eax, 228", // clock_gettime
    "mov edi, 1",   // CLOCK_MONOTONIC
    "lea rsi, [rsp - 16]",
    "syscall",
    "mov eax, 1", // write
    "mov edi, 1",
    "lea rsi, [rsp - 16]",
    "mov edx, 16",
    "syscall",
    "mov eax, 60", // exit
    "xor edi, edi",
    "syscall",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "sub sp, sp, #16",
    "mov x8, #113", // clock_gettime
    "mov x0, #1",   // CLOCK_MONOTONIC
    "mov x1, sp",
    "svc #0",
    "mov x8, #64", // write
    "mov x0, #1",
    "mov x1, sp",
    "mov x2, #16",
    "svc #0",
    "mov x8, #93", // exit
    "mov x0, #0",
    "svc #0",
);

#[panic_handler]
fn stop(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
