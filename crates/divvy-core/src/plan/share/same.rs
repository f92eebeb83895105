//! Whether two trees of queues are the same, one kept from event to event and one built anew.

use super::{QueueShare, Shares};

/// Two trees are the same if their queues are, by path and in the same order below each queue. The places of
/// queues say only which came first.
impl PartialEq for Shares {
    fn eq(&self, other: &Self) -> bool {
        let (paths, others) = (self.by_place(), other.by_place());
        let same = |(path, place): (&str, usize)| {
            let Some(twin) = other.by_path.get(path) else { return false };
            let (one, two) = (&self.queues[place], &other.queues[*twin]);
            let alike = QueueShare { parent: one.parent, children: one.children.clone(), ..two.clone() };
            let below = one.children.iter().map(|child| paths[*child]);
            let bound = |shares: &Self, place: usize| shares.bound.get(place).cloned().unwrap_or_default();
            *one == alike
                && bound(self, place) == bound(other, *twin)
                && paths[one.parent] == others[two.parent]
                && below.eq(two.children.iter().map(|child| others[*child]))
        };
        let same_settings =
            (&self.resources, (self.guarantees, self.binds_fixed), self.remembers, &self.loans)
                == (&other.resources, (other.guarantees, other.binds_fixed), other.remembers, &other.loans);
        same_settings && self.sizes == other.sizes && paths.len() == others.len() && self.paths().all(same)
    }
}

impl Shares {
    /// The paths of all queues, by their places.
    fn by_place(&self) -> Vec<&str> {
        let mut paths = vec![""; self.queues.len()];
        self.paths().for_each(|(path, place)| paths[place] = path);
        paths
    }
}
