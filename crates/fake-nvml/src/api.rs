//! NVML's functions, by subject. Each writes its answer to the caller's pointer and returns a code.
//!
//! Their safety is that of nvml.h: pointers are null or point to what the prototype says, with room for as many
//! elements as the caller states.

mod device;
mod events;
mod fields;
mod links;
mod processes;
mod system;

use std::ffi::{CStr, c_char, c_uint};

use crate::abi::Code;

/// Writes an answer.
///
/// # Safety
/// `out` is null or points to room for a `T`.
unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Code> {
    if out.is_null() {
        return Err(Code::InvalidArgument);
    }
    // SAFETY: as the caller promises.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a text with its closing zero.
///
/// # Safety
/// `out` is null or points to room for `length` bytes.
unsafe fn put_text(out: *mut c_char, length: c_uint, text: &str) -> Result<(), Code> {
    if out.is_null() {
        return Err(Code::InvalidArgument);
    }
    if text.len() >= length as usize {
        return Err(Code::InsufficientSize);
    }
    // SAFETY: as the caller promises, and the text is shorter than the room.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// Reads a text that the caller gave.
///
/// # Safety
/// `text` is null or a string that ends with a zero.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Code> {
    if text.is_null() {
        return Err(Code::InvalidArgument);
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Code::InvalidArgument)
}

/// Copies a text into an array of a struct, with its closing zero, cut if it is too long.
fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte as c_char;
    }
    array
}
