//! Implementations of Divvy's Engine: processes on this machine.
