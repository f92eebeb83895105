//! The shell around Divvy's core: log store, control loop, HTTP.
