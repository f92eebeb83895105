//! The pure core of Divvy: model, events, state, planner and checker.
