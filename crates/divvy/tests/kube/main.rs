//! `divvy kube run` on a real API server, with the rights of the shipped manifests and nothing more. The tests share the cluster
//! of `cargo xtask kube up`; each has a namespace, nodes and a scheduler of its own. To each test, the schedulers of the other
//! tests are other schedulers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "only tests live here")]

mod contract;
mod crowded;
mod differential;
mod draw;
mod faults;
mod groups;
mod history;
mod inside;
mod look;
mod network;
mod other;
mod placement;
mod policy;
mod proxy;
mod queues;
mod replicas;
mod site;
mod taking_back;
mod terms;
