//! A libnvidia-ml.so.1 for machines without a GPU: NVML's C interface over a machine that a small file describes.
//!
//! Tests and demonstrations load it in the place of NVIDIA's library, so that they run what users run. The file may
//! change while programs run: devices fall off the bus and come back, processes come and go. README.md says how to
//! write one.

mod abi;
mod api;
mod machine;
mod world;
