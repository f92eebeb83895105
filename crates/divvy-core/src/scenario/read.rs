//! What lines say of nodes, queues and jobs. Words cover what is usual; what they cannot say stands in braces, as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::links;
use super::words::Words;
use crate::amount::{Amount, Resource};
use crate::model::affinity::{Affinity, Others};
use crate::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DeviceText, DrawAsk};
use crate::model::choice::{Condition, Face, Is, NodeChoice, Taint, Toleration};
use crate::model::device::DeviceSpec;
use crate::model::extras::Extras;
use crate::model::gang::{Group, Role};
use crate::model::job::{
    Checkpoint, Dependency, DependsOn, JobSpec, Kind, Lifetime, Process, Requeue, StopOrder, Work, priority,
    usual_restarts,
};
use crate::model::newer::Newer;
use crate::model::node::{NodeSpec, NumaNode};
use crate::model::pace;
use crate::model::queue::{Nodes, Queue, read_amount};
use crate::model::topology::{NODE, Slice, Spread, Topology, TopologyAsk};
use crate::model::ways::{DeviceWays, unlike};
use crate::time::{Span, Time};

/// A node and its devices, in braces.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hardware {
    pub(super) spec: NodeSpec,
    pub(super) devices: Vec<DeviceSpec>,
}

fn braces<'a, T: Deserialize<'a>>(what: &str, text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("what stands in braces is no {what}: {error}"))
}

/// `node n1 8xh100 cpu=64 mem=512 numa=32:256,32:256 gb=80 mib=81559 bandwidth=3350 linked zone=z1 block=b1 rack=r1`
pub(super) fn node(words: &Words) -> Result<Hardware, String> {
    if let Some(text) = words.braces {
        let hardware: Hardware = braces("node", text)?;
        let count = u32::try_from(hardware.devices.len()).unwrap_or(u32::MAX);
        return not_too_many(count).map(|()| hardware);
    }
    words.only(3, "linked", "linked cpu mem numa gb mib bandwidth zone block rack labels taints tasks")?;
    let name = words.at(1, "the node's name")?;
    let (count, model) = match words.placed.get(2) {
        None | Some(&"linked") => (0, "h100"),
        Some(devices) => count_of(devices)?,
    };
    let usual_mib = if model == "a100" { 40_960 } else { 81_559 };
    let uuid = |index: u32| format!("{name}:{index}");
    let gb = words.count("gb", 0)?;
    let bandwidth_gb_s = bandwidth(words)?;
    let memory_mib = words.number("mib", usual_mib)?;
    let memory_mib = u64::try_from(memory_mib).map_err(|_| "mib is not below 0")?;
    let mut links = links::links(words, count, uuid)?;
    let numa: Vec<NumaNode> = words
        .cores_and_memory("numa")?
        .into_iter()
        .map(|(cpu_milli, memory_bytes)| NumaNode { cpu_milli, memory_bytes })
        .collect();
    // The first half of the devices is on the first of two, and so on, as machines are built.
    let place = |index: u32| u32::try_from(index as usize * numa.len() / count.max(1) as usize).ok();
    let mut device = |index: u32| DeviceSpec {
        uuid: uuid(index),
        index,
        model: model.to_owned(),
        memory_mib,
        nominal_gb: (gb > 0).then_some(gb),
        bandwidth_gb_s,
        links: std::mem::take(&mut links[index as usize]),
        numa: place(index).filter(|_| !numa.is_empty()),
        ..DeviceSpec::default()
    };
    let devices = (0..count).map(&mut device).collect();
    let spec = NodeSpec {
        name: name.to_owned(),
        cpu_milli: words.cores("cpu")?.unwrap_or(64_000),
        memory_bytes: words.memory("mem")?.unwrap_or(512 << 30),
        domains: domains(words),
        numa,
        face: Face { labels: pairs(words, "labels").collect(), taints: taints(words) },
        most_tasks: Some(words.count("tasks", 0)?).filter(|most| *most > 0),
        ..NodeSpec::default()
    };
    Ok(Hardware { spec, devices })
}

/// `bandwidth=3350`: of memory, in GB/s.
fn bandwidth(words: &Words) -> Result<Newer<u32>, String> {
    words.count("bandwidth", 0).map(|gb_s| Newer((gb_s > 0).then_some(gb_s)))
}

/// `labels=disk:ssd,pool:a`: names, and their values where they have any.
fn pairs(words: &Words, name: &str) -> impl Iterator<Item = (String, String)> {
    labels(words.named.get(name).copied().unwrap_or_default())
}

fn labels(text: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once(':').unwrap_or((pair, ""));
        (key.to_owned(), value.to_owned())
    };
    pairs.map(pair).collect::<Vec<_>>().into_iter()
}

fn taints(words: &Words) -> Vec<Taint> {
    pairs(words, "taints").map(|(key, value)| Taint { key, value, effect: String::new() }).collect()
}

/// `nodes=disk:ssd,pool:a tolerates=spot`: labels that its nodes have, and taints that it tolerates.
fn choice(words: &Words) -> NodeChoice {
    let wanted = pairs(words, "nodes").map(|(label, value)| Condition { label, is: Is::In(vec![value]) });
    let wanted: Vec<Condition> = wanted.collect();
    let any = |text: String| Some(text).filter(|text| !text.is_empty());
    let tolerates = pairs(words, "tolerates");
    let tolerates =
        tolerates.map(|(key, value)| Toleration { key: any(key), value: any(value), effect: None });
    NodeChoice {
        any_of: if wanted.is_empty() { Vec::new() } else { vec![wanted] },
        tolerates: tolerates.collect(),
    }
}

/// `near=app:db@rack apart=app:web`: near tasks with these labels, in one rack; apart from others, by node where no more is said.
fn affinity(words: &Words) -> Newer<Arc<Affinity>> {
    let others = |name: &str| {
        let (who, within) = others_named(words, name)?;
        let who = labels(who).map(|(label, value)| Condition { label, is: Is::In(vec![value]) });
        Some(Others { who: who.collect(), within: within.to_owned() })
    };
    let (near, apart) = (others("near").into_iter().collect(), others("apart").into_iter().collect());
    Affinity { labels: BTreeMap::new(), near, apart }.into_said()
}

/// The tasks that a word names by labels, and their domain; `None` for a level alone, as in `near=rack`.
fn others_named<'a>(words: &Words<'a>, name: &str) -> Option<(&'a str, &'a str)> {
    let text = words.named.get(name).filter(|text| text.contains([':', '@']))?;
    Some(text.split_once('@').unwrap_or((text, NODE)))
}

/// Where a node is, coarse to fine.
fn domains(words: &Words) -> Vec<(String, String)> {
    let levels = Topology::default().levels.into_iter();
    levels.filter_map(|level| Some((level.clone(), (*words.named.get(level.as_str())?).to_owned()))).collect()
}

/// `8` and `h100` of `8xh100`.
fn count_of(devices: &str) -> Result<(u32, &str), String> {
    let wrong = || format!("{devices:?} are no devices: write 8xh100");
    let (count, model) = devices.split_once('x').filter(|(_, model)| !model.is_empty()).ok_or_else(wrong)?;
    let count = count.parse().map_err(|_| wrong())?;
    not_too_many(count)?;
    Ok((count, model))
}

/// More devices on a node than any machine has. More is a typing error, and each device is compared with each other.
const MOST_DEVICES: u32 = 1024;

fn not_too_many(count: u32) -> Result<(), String> {
    match count <= MOST_DEVICES {
        true => Ok(()),
        false => Err(format!("a node has at most {MOST_DEVICES} devices, not {count}")),
    }
}

/// `queue a limit=4 guarantee=2 h100=2 weight=2`
pub(super) fn queue(words: &Words) -> Result<Queue, String> {
    let path = words.at(1, "the queue's name")?;
    if let Some(text) = words.braces {
        let queue: Queue = braces("queue", text)?;
        return Ok(Queue { path: path.to_owned(), ..queue });
    }
    let mut queue = Queue::named(path);
    for (name, text) in &words.named {
        match *name {
            "requeue" => queue.requeue = requeue(text)?,
            "limit" => drop(queue.limit.insert("any".into(), amount("any", text)?)),
            "guarantee" => drop(queue.guarantee.insert("any".into(), amount("any", text)?)),
            "lend" => drop(queue.lend.insert("any".into(), amount("any", text)?)),
            "borrow" => drop(queue.borrow.insert("any".into(), amount("any", text)?)),
            // A queue with nodes of its own lends nothing.
            "nodes" => {
                queue.nodes = Newer(Some(kept(text)));
                queue.lend.entry(Resource::Any).or_insert(Amount::Finite(0));
            }
            "weight" => queue.weight = text.parse().map_err(|_| "the weight is a number")?,
            "priority" => queue.priority = text.parse().map_err(|_| "the priority is a number")?,
            resource => drop(queue.limit.insert(resource.into(), amount(resource, text)?)),
        }
    }
    Ok(queue)
}

/// `nodes=n1,n2` or `nodes=pool:prod`: by name, or by labels.
fn kept(text: &str) -> Nodes {
    match text.contains(':') {
        true => Nodes::Labelled(labels(text).collect()),
        false => Nodes::Named(text.split(',').map(str::to_owned).collect()),
    }
}

fn requeue(text: &str) -> Result<Requeue, String> {
    match text {
        "never" => Ok(Requeue::Never),
        "lost" => Ok(Requeue::Lost),
        "failure" => Ok(Requeue::Failure),
        other => Err(format!("requeue={other}: write never, lost or failure")),
    }
}

fn amount(resource: &str, text: &str) -> Result<Amount, String> {
    read_amount(&resource.into(), text).map_err(|error| format!("{resource}={text}: {error}"))
}

/// What `submit` knows beside the job's name, its queue and the GPUs of each task.
const FLAGS: &str = "held wait exclusive fixed polite resumable";
/// See [`FLAGS`].
const NAMES: &str = "tasks prio model or speed gb bandwidth milli after array limit cpu mem start user requeue restarts estimate saves token within near slice spread nodes tolerates labels apart";

/// `submit j1 a 2 tasks=4 prio=high`, `submit j1 a 2 tasks=2..4`
pub(super) fn spec(words: &Words, after: Vec<Dependency>, now: Time) -> Result<JobSpec, String> {
    let name = words.at(1, "the job's name")?;
    let queue = words.at(2, "the queue")?;
    if let Some(text) = words.braces {
        words.only(3, "held", "array user token")?;
        let spec: JobSpec = braces("job", text)?;
        return Ok(JobSpec { name: name.into(), queue: queue.into(), ..spec });
    }
    words.only(4, FLAGS, NAMES)?;
    let priority = words.named.get("prio").map_or(Some(0), |text| priority::parse(text));
    Ok(JobSpec {
        name: name.into(),
        queue: queue.into(),
        project: None,
        kind: Kind::Train,
        labels: pairs(words, "labels").collect(),
        priority: priority.ok_or("prio is low, normal, high, urgent or a number")?,
        preemptible: !words.has("fixed"),
        resumable: words.has("resumable"),
        lifetime: Lifetime::Batch,
        gang: Group::Role(placed(
            words,
            tasks(words, by_speed(words, ways(words, role(alternative(words)?, 1))?)?)?,
        )?)
        .into(),
        time_limit: words.span("limit")?,
        estimate: words.span("estimate")?,
        requeue: words.named.get("requeue").map_or(Ok(Requeue::Lost), |text| requeue(text))?,
        most_restarts: words.count("restarts", usual_restarts())?,
        after,
        deadline: Newer::default(),
        preempts: Newer(words.has("polite").then_some(false)),
        start_after: words.span("start")?.map(|span| now + span),
        stop: StopOrder::default(),
        checkpoint: words.span("saves")?.map(saving),
        wait_for_capacity: words.has("wait"),
        exclusive: words.has("exclusive"),
        seat: Newer::default(),
        kept_to: Newer::default(),
    })
}

/// The checkpoint of a job that saves its work this often.
pub(super) fn saving(every: Span) -> Checkpoint {
    let StopOrder { signal: notice, grace_ms } = StopOrder::default();
    Checkpoint { notice: notice.into_owned(), grace_ms, every_ms: Some(every.0) }
}

/// The only role of a job that words describe.
pub(super) fn role(alternative: Alternative, tasks: u32) -> Role {
    Role {
        name: "main".into(),
        minimum: tasks,
        maximum: tasks,
        ask: Ask::of(vec![alternative]),
        work: plain_work(),
        topology: None,
        spread: Newer::default(),
    }
}

/// `tasks=4`, or `tasks=2..4` of a gang that may grow and shrink.
fn tasks(words: &Words, mut role: Role) -> Result<Role, String> {
    (role.ask.nodes, role.ask.affinity) = (choice(words), affinity(words));
    let Some((least, most)) = words.named.get("tasks").and_then(|text| text.split_once("..")) else {
        let tasks = words.count("tasks", 1)?;
        return Ok(Role { minimum: tasks, maximum: tasks, ..role });
    };
    let number = |text: &str| text.parse().map_err(|_| "tasks is a number, or two: 2..4");
    Ok(Role { minimum: number(least)?, maximum: number(most)?, ..role })
}

/// `or=l4:4,a100:8`: what will do, in this order, if what was named before has no place.
fn ways(words: &Words, mut role: Role) -> Result<Role, String> {
    let Some(text) = words.named.get("or") else { return Ok(role) };
    let others = text.parse::<DeviceWays>().map_err(|error| format!("or={text}: {error}"))?.0;
    let first = role.ask.alternatives[0].clone();
    let devices = first.devices.as_ref().filter(|ask| ask.draw == DrawAsk::Whole);
    let ask = devices.ok_or("or names other whole GPUs than those before it: say how many of these")?;
    let all = [vec![DeviceText { class: ask.class.clone(), count: ask.count }], others.clone()].concat();
    unlike(&all).map_err(|error| error.to_string())?;
    let other = |other: DeviceText| Alternative {
        devices: Some(DeviceAsk { class: other.class, count: other.count, ..ask.clone() }),
        ..first.clone()
    };
    role.ask.alternatives.extend(others.into_iter().map(other));
    Ok(role)
}

/// `speed=h100:100,a100:50`: how fast the job is on each model. It takes any of these; where alternatives name models, those.
fn by_speed(words: &Words, mut role: Role) -> Result<Role, String> {
    let Some(text) = words.named.get("speed") else { return Ok(role) };
    let one = |text: &str| {
        let (model, speed) = text.split_once(':')?;
        Some((model.to_owned(), speed.parse::<u32>().ok().filter(|speed| *speed > 0)?))
    };
    let speeds: Option<BTreeMap<String, u32>> = text.split(',').map(one).collect();
    let speeds = speeds.ok_or_else(|| format!("speed={text} is not model:percent,model:percent"))?;
    let asks = || role.ask.alternatives.iter().map(|it| it.devices.as_ref());
    let alone = asks().count() == 1 && asks().flatten().any(|ask| !ask.class.models.is_empty());
    if alone || asks().any(|ask| ask.is_none()) {
        return Err("speed names the models of GPUs: no model= beside it".into());
    }
    let unknown = asks().flatten().flat_map(|ask| &ask.class.models).find(|it| !speeds.contains_key(*it));
    if let Some(model) = unknown {
        return Err(format!("speed={text} does not say how fast {model} is"));
    }
    role.ask.alternatives = pace::by_speed(&role.ask.alternatives, &speeds);
    Ok(role)
}

/// What every task of a scenario does: nothing of interest.
pub(super) fn plain_work() -> Work {
    Work::Process(Process { argv: vec!["true".into()], ..Process::default() })
}

/// What each task asks for.
fn alternative(words: &Words) -> Result<Alternative, String> {
    let count: u32 = words.at(3, "the number of GPUs")?.parse().map_err(|_| "GPUs are a number")?;
    let models =
        words.named.get("model").map(|text| text.split(',').map(String::from).collect()).unwrap_or_default();
    let gb = Some(words.count("gb", 0)?).filter(|gb| *gb > 0);
    let least_gb_s = bandwidth(words)?;
    let class = DeviceClass { models, least_gb: gb, least_gb_s, ..DeviceClass::default() };
    let draw = match words.count("milli", 1000)? {
        1000 => DrawAsk::Whole,
        milli => DrawAsk::Share { milli, memory_mib: None },
    };
    Ok(Alternative {
        devices: (count > 0).then_some(DeviceAsk::of(class, count, draw)),
        cpu_milli: words.cores("cpu")?,
        memory_bytes: words.memory("mem")?,
        extras: Extras::default(),
        speed_percent: 100,
    })
}

/// Where its tasks, and the devices of each, must lie, or would better lie.
fn placed(words: &Words, mut role: Role) -> Result<Role, String> {
    let named = |name: &str| words.named.get(name).copied();
    let slice = |text: &str| {
        let wrong = || format!("slice={text}: write the tasks of a slice and its level, as 2:rack");
        let (tasks, within) = text.split_once(':').ok_or_else(wrong)?;
        Ok::<_, String>(Slice { tasks: tasks.parse().map_err(|_| wrong())?, within: within.to_owned() })
    };
    let slices: Vec<Slice> = named("slice").map(slice).transpose()?.into_iter().collect();
    let near = named("near").filter(|_| others_named(words, "near").is_none());
    let (within, inside) =
        named("within").map(|text| links::levels("within", text)).transpose()?.unwrap_or_default();
    let (near, near_inside) = near.map(|text| links::levels("near", text)).transpose()?.unwrap_or_default();
    role.ask.lie(links::island(inside, near_inside));
    role.spread = spread(words)?;
    role.topology = match (within, near) {
        (None, None) if slices.is_empty() => None,
        (None, None) => return Err("slice: say the level of all, too: within=zone".into()),
        (None, Some(near)) => Some(TopologyAsk { slices, ..TopologyAsk::within(near, false) }),
        (Some(within), near) => {
            let near = near.map(str::to_owned);
            Some(TopologyAsk { near, slices, ..TopologyAsk::within(within, true) })
        }
    };
    Ok(role)
}

/// `spread=2:rack`: no more than two tasks in one rack; `spread=2:rack:wish`: if possible; `spread=rack`: as evenly as possible.
fn spread(words: &Words) -> Result<Newer<Spread>, String> {
    let Some(text) = words.named.get("spread") else { return Ok(Newer::default()) };
    let wrong =
        || format!("spread={text}: write the most tasks in one domain and its level, as 2:rack, or a level");
    let parts: Vec<&str> = text.split(':').collect();
    let (most, over, required) = match parts.as_slice() {
        [over] => (None, over, false),
        [most, over] => (Some(most), over, true),
        [most, over, "wish"] => (Some(most), over, false),
        _ => return Err(wrong()),
    };
    let most = most.map(|most| most.parse().map_err(|_| wrong())).transpose()?;
    Ok(Newer(Some(Spread { over: (*over).to_owned(), most, required })))
}

/// How the other job must have ended: `ok` where nothing is said.
pub(super) fn depends_on(text: &str) -> Result<(&str, DependsOn), String> {
    let (name, on) = text.split_once(':').unwrap_or((text, "ok"));
    match on {
        "ok" => Ok((name, DependsOn::Ok)),
        "fail" => Ok((name, DependsOn::Fail)),
        "any" => Ok((name, DependsOn::Any)),
        other => Err(format!("after {other:?}: write ok, fail or any")),
    }
}
