//! What the checker finds in the log of a pool.

use divvy_core::check::Watch;
use divvy_core::event::Event;
use divvy_core::scenario::Scenario;
use divvy_core::state::State;

/// What it finds after these lines: `law: what is wrong`.
pub(crate) fn found(lines: &str) -> Vec<String> {
    found_with(lines, |_| ())
}

/// Likewise where the events had been others.
pub(crate) fn found_with(lines: &str, change: impl Fn(&mut Event)) -> Vec<String> {
    let mut pool = Scenario::new();
    for line in lines.lines() {
        assert_eq!(pool.line(line), Ok(()), "{line}");
    }
    let mut state = State::default();
    let mut watch = Watch::new(&state);
    let mut found = Vec::new();
    for mut stamped in pool.log {
        change(&mut stamped.event);
        assert_eq!(state.apply(&stamped), Ok(()));
        found.extend(watch.follow(&state, &stamped).into_iter().map(|it| format!("{}: {}", it.law, it.text)));
    }
    found
}
