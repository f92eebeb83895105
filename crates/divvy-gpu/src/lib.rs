//! What a machine has: discovery, telemetry and health through NVML, and the accelerator catalogue.
