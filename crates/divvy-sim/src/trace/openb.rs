//! Alibaba's openb cluster (cluster-trace-gpu-v2023) as the packing experiments of Weng et al. (USENIX ATC 2023) use it: nodes,
//! tasks, and the order in which tasks arrive and nodes stand.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use super::{Column, LAST_SECOND, MOST_GPUS, MOST_GPUS_OF_NODE, Table, TraceError, open_unbounded};

/// A node with GPUs of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Cores, in thousandths.
    pub cpu_milli: i64,
    /// Memory, in MiB.
    pub memory_mib: i64,
    /// How many GPUs.
    pub gpus: u32,
    /// Their model.
    pub model: String,
}

/// A task that asks for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Cores, in thousandths.
    pub cpu_milli: i64,
    /// Memory, in MiB.
    pub memory_mib: i64,
    /// How many GPUs.
    pub gpus: u32,
    /// Thousandths of each; below 1000 for one GPU alone.
    pub gpu_milli: u32,
    /// The models that will do, joined by `|`, as the file has them; empty for any.
    pub gpu_spec: String,
}

impl Pod {
    /// Thousandths of GPUs in all.
    pub fn milli(&self) -> i64 {
        i64::from(self.gpus) * i64::from(self.gpu_milli)
    }

    /// The models that will do; none for any.
    pub fn models(&self) -> Vec<String> {
        let mut models: Vec<String> =
            self.gpu_spec.split('|').filter(|model| !model.is_empty()).map(String::from).collect();
        models.sort();
        models.dedup();
        models
    }
}

/// In which order tasks arrive and nodes stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Places among the tasks sorted by name; a task may arrive several times.
    pub arrivals: Vec<u16>,
    /// The rank of each node of those sorted by name.
    pub ranks: Vec<u16>,
}

/// What one experiment reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// By rank.
    pub nodes: Vec<Node>,
    /// By name.
    pub pods: Vec<Pod>,
    /// Places among `pods`, as they arrive.
    pub arrivals: Vec<usize>,
}

/// The largest amount of cores or memory that makes sense.
const MOST_AMOUNT: i64 = LAST_SECOND * 1000;

/// Reads `sn,cpu_milli,memory_mib,gpu,model`, sorted by name.
pub fn nodes(path: &Path) -> Result<Vec<Node>, TraceError> {
    let mut table = Table::open(path)?;
    let [name, cpu, memory, gpus, model] =
        table.columns(["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
    let (mut nodes, mut names) = (Vec::new(), BTreeSet::new());
    while table.advance()? {
        nodes.push(Node {
            name: once(&table, name, &mut names)?,
            cpu_milli: table.whole(cpu, 0..=MOST_AMOUNT, "thousandths of a core")?,
            memory_mib: table.whole(memory, 0..=MOST_AMOUNT, "MiB")?,
            gpus: table.whole(gpus, 0..=i64::from(MOST_GPUS_OF_NODE), "a number of GPUs of one node")? as u32,
            model: table.text(model).to_owned(),
        });
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(nodes)
}

/// Reads `name,cpu_milli,memory_mib,num_gpu,gpu_milli` and, where it is there, `gpu_spec`; sorted by name.
pub fn pods(path: &Path) -> Result<Vec<Pod>, TraceError> {
    let mut table = Table::open(path)?;
    let [name, cpu, memory, gpus, milli] =
        table.columns(["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"])?;
    let spec = table.column("gpu_spec")?;
    let (mut pods, mut names) = (Vec::new(), BTreeSet::new());
    while table.advance()? {
        let count = table.whole(gpus, 0..=i64::from(MOST_GPUS), "a number of GPUs")? as u32;
        let share = table.whole(milli, 0..=1000, "thousandths of a GPU")? as u32;
        let sound = match count {
            0 => share == 0,
            1 => share > 0,
            _ => share == 1000,
        };
        if !sound {
            return Err(table.cell(milli, "0 without a GPU, 1 to 1000 with one, 1000 with several"));
        }
        pods.push(Pod {
            name: once(&table, name, &mut names)?,
            cpu_milli: table.whole(cpu, 0..=MOST_AMOUNT, "thousandths of a core")?,
            memory_mib: table.whole(memory, 0..=MOST_AMOUNT, "MiB")?,
            gpus: count,
            gpu_milli: share,
            gpu_spec: spec.map(|spec| table.text(spec).to_owned()).unwrap_or_default(),
        });
    }
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(pods)
}

/// Reads a name that must be new: otherwise places in the order would be ambiguous.
fn once(table: &Table, column: Column, names: &mut BTreeSet<String>) -> Result<String, TraceError> {
    let name = table.name(column)?;
    match names.insert(name.clone()) {
        true => Ok(name),
        false => Err(table.duplicate(column)),
    }
}

/// The largest order that makes sense: two counts, and as many entries as these can state.
const LONGEST_ORDER: u64 = 2 * (2 + 2 * 65_535);

/// Reads an order: little-endian 16-bit numbers, each list after its length.
pub fn order(path: &Path) -> Result<Order, TraceError> {
    let mut bytes = Vec::new();
    let read = open_unbounded(path)?.take(LONGEST_ORDER + 1).read_to_end(&mut bytes);
    read.map_err(|source| TraceError::Read { path: path.to_owned(), line: 0, source })?;
    let wrong = || {
        let what = "this is no order: expected a count of arrivals, so many places, a count of nodes, so many ranks, \
                    as little-endian 16-bit numbers";
        TraceError::Line { path: path.to_owned(), line: 1, what: what.into() }
    };
    let words: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let (arrivals, rest) = listed(&words).filter(|_| bytes.len() % 2 == 0).ok_or_else(wrong)?;
    let (ranks, rest) = listed(rest).ok_or_else(wrong)?;
    if !rest.is_empty() {
        return Err(wrong());
    }
    Ok(Order { arrivals: arrivals.to_vec(), ranks: ranks.to_vec() })
}

/// A list after its length, and what follows it.
fn listed(words: &[u16]) -> Option<(&[u16], &[u16])> {
    let (count, rest) = words.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

/// Reads all three, and puts nodes and arrivals in their order.
pub fn workload(nodes_csv: &Path, pods_csv: &Path, order_bin: &Path) -> Result<Workload, TraceError> {
    let (nodes, pods, order) = (nodes(nodes_csv)?, pods(pods_csv)?, order(order_bin)?);
    let wrong = |what: String| TraceError::Line { path: order_bin.to_owned(), line: 1, what };
    if let Some(beyond) = order.arrivals.iter().find(|place| usize::from(**place) >= pods.len()) {
        return Err(wrong(format!("task {beyond} is to arrive, but there are only {}", pods.len())));
    }
    let mut by_rank: Vec<Option<Node>> = vec![None; nodes.len()];
    let count = nodes.len();
    for (node, rank) in nodes.into_iter().zip(&order.ranks) {
        if let Some(place) = by_rank.get_mut(usize::from(*rank)) {
            *place = Some(node);
        }
    }
    let ranked: Vec<Node> = by_rank.into_iter().flatten().collect();
    if ranked.len() != count || order.ranks.len() != count {
        return Err(wrong(format!("it does not rank each of the {count} nodes once")));
    }
    Ok(Workload {
        nodes: ranked,
        pods,
        arrivals: order.arrivals.iter().map(|place| usize::from(*place)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn nodes_stand_by_rank_and_tasks_arrive_as_the_order_says() {
        let nodes = file(b"sn,cpu_milli,memory_mib,gpu,model\nb,8000,1024,2,T4\na,4000,512,0,\n");
        let pods =
            file(b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos\nq,1000,10,1,500,LS\np,2000,20,0,0,BE\n");
        let order = file(&[3, 0, 1, 0, 0, 0, 1, 0, 2, 0, 1, 0, 0, 0]);
        let read = workload(nodes.path(), pods.path(), order.path()).unwrap();
        let names = |read: &Workload| read.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&read), ["b", "a"]);
        let arrive: Vec<&str> = read.arrivals.iter().map(|place| read.pods[*place].name.as_str()).collect();
        assert_eq!(arrive, ["q", "p", "q"]);
        assert_eq!(read.pods[1].milli(), 500);
    }

    #[test]
    fn a_share_of_several_gpus_names_file_line_and_column() {
        let pods = file(b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,2,500\n");
        let error = super::pods(pods.path()).unwrap_err().to_string();
        assert!(error.contains("line 2, column gpu_milli: \"500\" is not"), "{error}");
    }

    #[test]
    fn a_name_that_recurs_is_told_with_its_line() {
        let pods = file(b"name,cpu_milli,memory_mib,num_gpu,gpu_milli\nb,1,1,0,0\na,1,1,0,0\nb,1,1,0,0\n");
        let error = super::pods(pods.path()).unwrap_err().to_string();
        assert!(
            error.ends_with("line 4, column name: \"b\" was there before; expected each only once"),
            "{error}"
        );
    }

    #[test]
    fn a_node_of_more_gpus_than_any_machine_has_is_refused() {
        let nodes = file(b"sn,cpu_milli,memory_mib,gpu,model\na,1,1,1025,T4\n");
        let error = super::nodes(nodes.path()).unwrap_err().to_string();
        assert!(error.ends_with("\"1025\" is not a number of GPUs of one node from 0 to 1024"), "{error}");
    }

    #[test]
    fn models_are_named_once_whatever_the_file_repeats() {
        let pod = Pod {
            name: "a".into(),
            cpu_milli: 0,
            memory_mib: 0,
            gpus: 1,
            gpu_milli: 1000,
            gpu_spec: "V100M32|V100M16|V100M32".into(),
        };
        assert_eq!(pod.models(), ["V100M16", "V100M32"]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_of_orders_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = order(file(&bytes).path());
        }
    }
}
