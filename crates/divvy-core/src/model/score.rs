//! The score: the rule by which the planner chooses among the nodes and devices that can take a task. A setting of the policy.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::state::fingerprint;

/// How nodes (and devices for a share) are chosen among those that fit. All but the first come from the literature on packing
/// and look at one task at a time: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 6.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Tasks of a gang together, whole nodes whole, open devices before free ones. The default.
    #[default]
    KeepWhole,
    /// The device that is expected to leave least unused in the end, judging by what has arrived.
    LeastWaste,
    /// The node with the least left, where cores and devices weigh the same.
    BestFit,
    /// The node whose remaining capacity is least like the task's shape.
    DotProduct,
    /// Open devices before free ones, free ones of used nodes before those of idle nodes.
    GpuPacking,
    /// Nodes that run tasks of the same number of devices.
    GpuClustering,
    /// A random one.
    Random {
        /// Different seeds give different choices.
        seed: u64,
    },
    /// The node whose fragmentation grows least, as measured by tasks known beforehand.
    Fgd {
        /// The tasks to expect.
        typical: Arc<Typical>,
    },
}

/// One kind of task that is to be expected, and how often it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypicalTask {
    /// Milli-cores.
    pub cpu_milli: i64,
    /// Thousandths of each device.
    pub milli: u32,
    /// Devices; none for a task of cores alone.
    pub count: u32,
    /// The models that will do; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// How many of the tasks seen were of this kind.
    pub seen: u64,
}

/// The tasks to expect, in the order in which they are summed: another order may round differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "TypicalText", into = "TypicalText")]
pub struct Typical {
    tasks: Vec<TypicalTask>,
    of: u64,
    /// Hashed once: the policy's digest is taken in every cycle.
    digest: u64,
}

/// A [`Typical`] as it is written: without what follows from the rest.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypicalText {
    tasks: Vec<TypicalTask>,
    of: u64,
}

impl Typical {
    /// These kinds, out of so many tasks seen in all.
    pub fn new(tasks: Vec<TypicalTask>, of: u64) -> Self {
        let digest = fingerprint(&(&tasks, of));
        Self { tasks, of, digest }
    }

    /// The kinds.
    pub fn tasks(&self) -> &[TypicalTask] {
        &self.tasks
    }

    /// How many tasks were seen in all, these kinds and the others.
    pub fn of(&self) -> u64 {
        self.of
    }
}

impl Hash for Typical {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.digest);
    }
}

impl From<TypicalText> for Typical {
    fn from(text: TypicalText) -> Self {
        Self::new(text.tasks, text.of)
    }
}

impl From<Typical> for TypicalText {
    fn from(typical: Typical) -> Self {
        Self { tasks: typical.tasks, of: typical.of }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_reads_back_as_written_and_hashes_by_content() {
        let task = TypicalTask { cpu_milli: 4000, milli: 500, count: 1, models: vec![], seen: 3 };
        let typical = Arc::new(Typical::new(vec![task], 4));
        for score in [Score::KeepWhole, Score::Random { seed: 7 }, Score::Fgd { typical }] {
            let text = serde_json::to_string(&score).unwrap();
            let read: Score = serde_json::from_str(&text).unwrap();
            assert_eq!((fingerprint(&read), &read), (fingerprint(&score), &score), "{text}");
        }
    }
}
