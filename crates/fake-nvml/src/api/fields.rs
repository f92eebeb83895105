//! Values that are requested by number, several in one call.

use std::ffi::{c_int, c_uint};

use crate::abi::{Code, FieldValue, Handle, SUCCESS};
use crate::machine::{Ability, Device};
use crate::world::call;

/// `NVML_VALUE_TYPE_UNSIGNED_INT` and `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const UNSIGNED_INT: c_uint = 1;
const UNSIGNED_LONG_LONG: c_uint = 3;

/// The most fields in one call.
const MOST_FIELDS: c_int = 512;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: Handle,
    count: c_int,
    values: *mut FieldValue,
) -> c_uint {
    call(|world| {
        let (number, device) = world.device(device)?;
        if values.is_null() || !(1..=MOST_FIELDS).contains(&count) {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: nvml.h's: as many as stated, with the fields' numbers set.
        let values = unsafe { std::slice::from_raw_parts_mut(values, count as usize) };
        for value in values {
            value.timestamp = 0;
            value.latency_usec = 0;
            match field(value.field_id, number, device) {
                Ok((kind, number)) => {
                    (value.value_type, value.value, value.nvml_return) = (kind, number, SUCCESS);
                }
                Err(code) => value.nvml_return = code as c_uint,
            }
        }
        Ok(())
    })
}

/// Returns the type and value of a field. The numbers are those of nvml.h's `NVML_FI_DEV_…`.
fn field(id: c_uint, number: usize, device: &Device) -> Result<(c_uint, u64), Code> {
    const ECC_SBE_VOL_TOTAL: c_uint = 3;
    const ECC_DBE_VOL_TOTAL: c_uint = 4;
    const RETIRED_PENDING: c_uint = 31;
    const NVLINK_LINK_COUNT: c_uint = 91;
    const REMAPPED_COR: c_uint = 142;
    const REMAPPED_UNC: c_uint = 143;
    const REMAPPED_PENDING: c_uint = 144;
    const REMAPPED_FAILURE: c_uint = 145;
    if id == NVLINK_LINK_COUNT {
        return Ok((UNSIGNED_INT, device.link_ends(number).len() as u64));
    }
    if device.unsupported.contains(&Ability::Ecc) {
        return Err(Code::NotSupported);
    }
    match id {
        ECC_SBE_VOL_TOTAL => Ok((UNSIGNED_LONG_LONG, device.ecc_corrected)),
        ECC_DBE_VOL_TOTAL => Ok((UNSIGNED_LONG_LONG, device.ecc_uncorrected)),
        RETIRED_PENDING => Ok((UNSIGNED_INT, u64::from(device.retire_pending))),
        REMAPPED_COR => Ok((UNSIGNED_INT, device.ecc_corrected)),
        REMAPPED_UNC => Ok((UNSIGNED_INT, device.ecc_uncorrected)),
        REMAPPED_PENDING => Ok((UNSIGNED_INT, u64::from(device.remap_pending))),
        REMAPPED_FAILURE => Ok((UNSIGNED_INT, u64::from(device.remap_failed))),
        _ => Err(Code::NotSupported),
    }
}
