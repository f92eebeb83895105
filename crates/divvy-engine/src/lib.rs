//! Implementations of Divvy's Engine: processes on this machine, and pods of a Kubernetes cluster.

#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "local")]
pub mod local;
