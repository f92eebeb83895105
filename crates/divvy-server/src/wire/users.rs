//! Users inside a queue: what is due to each and what each has.

use divvy_api as api;
use divvy_core::amount::Resource;
use divvy_core::model::queue::{Queue, user_at};
use divvy_core::plan::Entitlement;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::State;

/// Returns what each user of a divided queue is due and has. The caller counts `jobs`.
pub(super) fn of_queue(
    state: &State,
    snapshot: &Snapshot,
    queue: &Queue,
    (entitled, past): (impl Fn(&str) -> Option<Entitlement>, impl Fn(&str) -> Option<(f64, f64)>),
) -> Vec<api::QueueUser> {
    let Some(users) = queue.users.said() else { return Vec::new() };
    let row = |seat: &str| {
        let (_, user) = user_at(seat)?;
        let past = past(seat);
        let held = snapshot.held.get(seat).map_or(0, |held| held.of(&Resource::Any));
        Some(api::QueueUser {
            user: user.to_owned(),
            weight: users.weight_of(user),
            gpu_milli: u64::try_from(held).unwrap_or(0),
            gpu_milli_due: entitled(seat).map(|entitled| entitled.due_milli),
            gpu_hours_used: past.map(|(used, _)| used),
            gpu_hours_credit: past.map(|(_, credit)| credit),
            ..api::QueueUser::default()
        })
    };
    state.seats_of(&queue.path).filter_map(row).collect()
}
