//! What the scheduler adds to a cluster: the kind of its queues, and what it may do.

/// Queues, as the API server is to know them.
const QUEUES: &str = include_str!("manifests/queues.yaml");
/// What the scheduler may do, and no more.
const RIGHTS: &str = include_str!("manifests/rights.yaml");

/// The manifests, for `kubectl apply -f -`.
pub fn manifests() -> String {
    format!("{QUEUES}---\n{RIGHTS}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_engine::kubernetes::{GROUP, VERSION};

    #[test]
    fn the_manifests_name_the_group_and_version_that_the_program_reads() {
        assert!(QUEUES.contains(&format!("name: queues.{GROUP}\n")));
        assert!(QUEUES.contains(&format!("- name: {VERSION}\n")));
        assert!(RIGHTS.contains(&format!("apiGroups: [{GROUP}]")));
    }
}
