//! Static pools: which nodes are kept for which queue, and which jobs are kept to them. Both follow from the queues and the nodes.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Node, State};
use crate::id::NodeId;
use crate::model::job::JobSpec;
use crate::model::newer::Newer;
use crate::model::queue::{keeper, kept_to};

impl State {
    /// Whether nodes are kept for any queue.
    pub fn keeps_nodes(&self) -> bool {
        self.queues.values().any(|queue| !queue.nodes.is_unsaid())
    }

    /// The queue for which a node is kept, if it is.
    pub fn keeper_of(&self, node: &Node) -> Option<&str> {
        keeper(&self.queues, &node.spec)
    }

    /// The queue to whose nodes the jobs of a queue are kept, if they are.
    pub fn kept_to(&self, queue: &str) -> Newer<Arc<str>> {
        Newer(kept_to(&self.queues, queue).map(Arc::from))
    }

    /// A job that has not been submitted, kept to nodes as it would be.
    pub(crate) fn at_home<'s>(&self, spec: &'s JobSpec) -> Cow<'s, JobSpec> {
        let kept_to = self.kept_to(&spec.queue);
        match spec.kept_to == kept_to || spec.queue.is_empty() {
            true => Cow::Borrowed(spec),
            false => Cow::Owned(JobSpec { kept_to, ..spec.clone() }),
        }
    }

    /// Whether a job may lie on a node, whatever runs there: the node is kept for the queue to which the job is kept, or neither is kept.
    pub(crate) fn is_open_to(&self, spec: &JobSpec, node: NodeId) -> bool {
        let keeper = self.nodes.get(&node).and_then(|node| self.keeper_of(node));
        keeper == spec.kept_to.said().map(|queue| &**queue)
    }
}
