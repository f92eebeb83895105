//! A fair, queued, accounted GPU pool in one binary.

fn main() {}
