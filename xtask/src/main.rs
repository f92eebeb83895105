//! The project commands: ci, tidy, bench.

fn main() {}
