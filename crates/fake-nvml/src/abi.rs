//! Numbers and layouts of nvml.h (NVML 12 and 13).

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// `nvmlReturn_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Code {
    Uninitialized = 1,
    InvalidArgument = 2,
    NotSupported = 3,
    NoPermission = 4,
    NotFound = 6,
    InsufficientSize = 7,
    DriverNotLoaded = 9,
    Timeout = 10,
    GpuIsLost = 15,
    ResetRequired = 16,
    LibRmVersionMismatch = 18,
    ArgumentVersionMismatch = 25,
    Unknown = 999,
}

/// `NVML_SUCCESS`.
pub(crate) const SUCCESS: u32 = 0;

/// `nvmlDevice_t` and `nvmlEventSet_t`: opaque to callers, and a number to this library, which never follows it.
pub(crate) type Handle = *mut c_void;

/// `NVML_VALUE_NOT_AVAILABLE`, in 64 bits.
pub(crate) const NOT_AVAILABLE: u64 = u64::MAX;

/// The instance ids of a process or event on a device that is not split into instances.
pub(crate) const NO_INSTANCE: u32 = u32::MAX;

/// `NVML_NVLINK_MAX_LINKS`.
pub(crate) const MOST_LINKS: usize = 18;

/// `nvmlEventTypeXidCriticalError`.
pub(crate) const EVENT_XID: u64 = 0x8;

/// `nvmlMemory_t`.
#[repr(C)]
pub(crate) struct Memory {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub(crate) struct MemoryV2 {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2`: the struct's size and version, as `NVML_STRUCT_VERSION` makes it.
pub(crate) const MEMORY_V2: u32 = size_of::<MemoryV2>() as u32 | 2 << 24;

/// `nvmlUtilization_t`.
#[repr(C)]
pub(crate) struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// `nvmlTemperature_v1_t`.
#[repr(C)]
pub(crate) struct TemperatureV1 {
    pub(crate) version: c_uint,
    pub(crate) sensor: c_uint,
    pub(crate) temperature: c_int,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
pub(crate) struct PciInfo {
    pub(crate) bus_id_legacy: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) pci_device_id: c_uint,
    pub(crate) pci_sub_system_id: c_uint,
    pub(crate) bus_id: [c_char; 32],
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
pub(crate) struct ProcessV1 {
    pub(crate) pid: c_uint,
    pub(crate) used_gpu_memory: c_ulonglong,
}

/// `nvmlProcessInfo_t`, as of the second version.
#[repr(C)]
pub(crate) struct ProcessV2 {
    pub(crate) pid: c_uint,
    pub(crate) used_gpu_memory: c_ulonglong,
    pub(crate) gpu_instance_id: c_uint,
    pub(crate) compute_instance_id: c_uint,
}

/// `nvmlFieldValue_t`; the value, a union of numbers of at most 64 bits, is always written as one of 64.
#[repr(C)]
pub(crate) struct FieldValue {
    pub(crate) field_id: c_uint,
    pub(crate) scope_id: c_uint,
    pub(crate) timestamp: i64,
    pub(crate) latency_usec: i64,
    pub(crate) value_type: c_uint,
    pub(crate) nvml_return: c_uint,
    pub(crate) value: u64,
}

/// `nvmlEventData_t` of the first version of `nvmlEventSetWait`.
#[repr(C)]
pub(crate) struct EventV1 {
    pub(crate) device: Handle,
    pub(crate) event_type: c_ulonglong,
    pub(crate) event_data: c_ulonglong,
}

/// `nvmlEventData_t`.
#[repr(C)]
pub(crate) struct EventV2 {
    pub(crate) device: Handle,
    pub(crate) event_type: c_ulonglong,
    pub(crate) event_data: c_ulonglong,
    pub(crate) gpu_instance_id: c_uint,
    pub(crate) compute_instance_id: c_uint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_sizes_of_nvml_h() {
        let sizes = [
            size_of::<Memory>(),
            size_of::<MemoryV2>(),
            size_of::<Utilization>(),
            size_of::<PciInfo>(),
            size_of::<ProcessV1>(),
            size_of::<ProcessV2>(),
            size_of::<FieldValue>(),
            size_of::<EventV1>(),
            size_of::<EventV2>(),
        ];
        assert_eq!(sizes, [24, 40, 8, 68, 16, 24, 40, 24, 32]);
        assert_eq!(MEMORY_V2, 0x0200_0028);
    }
}
