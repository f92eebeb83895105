//! The nodes of a cluster: `node,model,gpus,cpu_milli,memory_mib,pool`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use super::{MOST_GPUS_OF_NODE, Table, TraceError};

/// The columns of the file, in the order in which they are written.
pub const COLUMNS: [&str; 6] = ["node", "model", "gpus", "cpu_milli", "memory_mib", "pool"];

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ClusterNode {
    /// Its name; nodes keep the order of the file.
    pub node: String,
    /// The model of its GPUs.
    pub model: String,
    /// How many.
    pub gpus: u32,
    /// Cores, in thousandths.
    pub cpu_milli: i64,
    /// Memory, in MiB.
    pub memory_mib: i64,
    /// The pool that it belongs to: the name of the queue that owns it.
    pub pool: String,
}

/// More nodes than this are a mistake; the pool is kept in memory.
const MOST_NODES: usize = 1_000_000;

/// Reads all nodes of a file, in its order.
pub fn read(path: &Path) -> Result<Vec<ClusterNode>, TraceError> {
    let mut table = Table::open(path)?;
    let [node, model, gpus, cpu_milli, memory_mib, pool] = table.columns(COLUMNS)?;
    let (mut nodes, mut names) = (Vec::new(), BTreeSet::new());
    while table.advance()? {
        let name = table.name(node)?;
        if !names.insert(name.clone()) {
            return Err(table.duplicate(node));
        }
        if nodes.len() == MOST_NODES {
            return Err(table.cell(node, "one of at most 1,000,000 nodes"));
        }
        nodes.push(ClusterNode {
            node: name,
            model: table.name(model)?,
            gpus: table.whole(gpus, 0..=i64::from(MOST_GPUS_OF_NODE), "a number of GPUs of one node")? as u32,
            cpu_milli: table.whole(cpu_milli, 0..=MOST_AMOUNT, "thousandths of a core")?,
            memory_mib: table.whole(memory_mib, 0..=MOST_AMOUNT, "MiB")?,
            pool: table.name(pool)?,
        });
    }
    if nodes.is_empty() {
        let (path, line) = table.place();
        return Err(TraceError::Line { path, line, what: "there is no node; expected at least one".into() });
    }
    Ok(nodes)
}

/// A billion cores, or a PiB in MiB: the bytes of that still fit 64 bits.
const MOST_AMOUNT: i64 = 1_000_000_000_000;

/// Writes nodes so that [`read`] reads them back.
pub fn write(nodes: &[ClusterNode], to: impl Write) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(to);
    for node in nodes {
        writer.serialize(node)?;
    }
    Ok(writer.flush()?)
}
