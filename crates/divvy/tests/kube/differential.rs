//! Which pods can go to which nodes, as kube-scheduler sees it: on generated clusters, for each pod the whole set of nodes.
//!
//! kube-scheduler itself reports what it decides: it hands the nodes that passed all its filters to an extender, which is this test.
//! The extender notes the nodes and accepts none, so no pod is ever bound and none stands in the way of another.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use divvy_server::kube::{Looked, Policy, Site as Cluster};
use serde_json::{Value, json};

use crate::draw::Draw;
use crate::other::Other;
use crate::proxy::Request;
use crate::site::Site;

/// The nodes that passed the filters, by the names of the pods.
type Passed = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// Starts an extender that records which nodes passed for each pod, and returns its address.
fn extender(passed: &Passed) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let passed = Arc::clone(passed);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let Ok(request) = Request::read(&stream) else { continue };
            let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let name = asked["Pod"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let nodes = asked["NodeNames"].as_array().cloned().unwrap_or_default();
            let nodes = nodes.iter().filter_map(|node| node.as_str().map(str::to_owned)).collect();
            passed.lock().unwrap().insert(name, nodes);
            let answer = r#"{"NodeNames":[],"FailedNodes":{}}"#;
            let length = answer.len();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
            drop(write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{answer}"));
        }
    });
    address
}

/// Draws one of these.
fn one<'a>(draw: &mut Draw, of: &[&'a str]) -> &'a str {
    of[draw.below(of.len() as u64) as usize]
}

/// Sets a key to one of these values, in so many cases out of a hundred.
fn maybe(draw: &mut Draw, percent: u64, into: &mut Value, (key, of): (&str, &[&str])) {
    if draw.percent(percent) {
        into[key] = json!(one(draw, of));
    }
}

const NIC: &str = "example.com/nic";
const GPU: &str = "nvidia.com/gpu";
const EFFECTS: [&str; 3] = ["NoSchedule", "NoExecute", "PreferNoSchedule"];

fn node(site: &Site, draw: &mut Draw, number: u64) {
    let mut labels = json!({});
    maybe(draw, 70, &mut labels, ("disk", &["nvme", "hdd"]));
    maybe(draw, 70, &mut labels, ("age", &["0", "1", "3", "9", "007", "old"]));
    maybe(draw, 30, &mut labels, ("empty", &[""]));
    let mut amounts = json!({});
    for (key, of) in [
        ("cpu", ["2", "4", "7500m", "8"]),
        ("memory", ["8Gi", "16G", "16Gi", "1e10"]),
        ("ephemeral-storage", ["20G", "50Gi", "1Ti", "100G"]),
        ("pods", ["2", "3", "110", "110"]),
        (GPU, ["0", "2", "4", "8"]),
    ] {
        amounts[key] = json!(one(draw, &of));
    }
    maybe(draw, 50, &mut amounts, (NIC, &["0", "1", "4"]));
    let mut taints = Vec::new();
    for key in ["gpu", "team"] {
        if draw.percent(25) {
            taints.push(
                json!({"key": key, "value": one(draw, &["yes", "no", ""]), "effect": one(draw, &EFFECTS)}),
            );
        }
    }
    site.node_of(&format!("{}-{number}", site.name), &labels, &amounts, (&taints, draw.percent(12)));
}

fn requests(draw: &mut Draw) -> Value {
    let mut amounts = json!({});
    maybe(draw, 80, &mut amounts, ("cpu", &["100m", "500m", "1", "1500m", "3", "0"]));
    maybe(draw, 60, &mut amounts, ("memory", &["64Mi", "1Gi", "3G", "6Gi", "1500000k"]));
    maybe(draw, 30, &mut amounts, ("ephemeral-storage", &["1Gi", "15G", "40Gi"]));
    maybe(draw, 30, &mut amounts, (GPU, &["1", "2", "3"]));
    maybe(draw, 15, &mut amounts, (NIC, &["1", "2"]));
    let mut limits = json!({});
    for extended in [GPU, NIC] {
        if amounts[extended].is_string() {
            limits[extended] = amounts[extended].clone();
        }
    }
    json!({"requests": amounts, "limits": limits})
}

fn requirement(draw: &mut Draw) -> Value {
    let key = one(draw, &["disk", "age", "empty", "absent"]);
    match draw.below(6) {
        0 => json!({"key": key, "operator": "In", "values": ["nvme", "3", ""]}),
        1 => json!({"key": key, "operator": "NotIn", "values": ["nvme", "9"]}),
        2 => json!({"key": key, "operator": "Exists"}),
        3 => json!({"key": key, "operator": "DoesNotExist"}),
        4 => json!({"key": "age", "operator": "Gt", "values": [one(draw, &["0", "2", "7"])]}),
        _ => json!({"key": "age", "operator": "Lt", "values": [one(draw, &["0", "4", "8"])]}),
    }
}

fn terms(site: &Site, draw: &mut Draw, nodes: u64) -> Value {
    let mut terms = Vec::new();
    for _ in 0..=draw.below(2) {
        let mut term = json!({});
        if draw.percent(85) {
            let count = 1 + draw.below(2);
            term["matchExpressions"] = (0..count).map(|_| requirement(draw)).collect();
        }
        if draw.percent(20) {
            let operator = one(draw, &["In", "NotIn"]);
            let name = format!("{}-{}", site.name, draw.below(nodes));
            term["matchFields"] = json!([{"key": "metadata.name", "operator": operator, "values": [name]}]);
        }
        terms.push(term);
    }
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn container(draw: &mut Draw, name: &str) -> Value {
    json!({"name": name, "image": "none", "resources": requests(draw)})
}

fn pod(site: &Site, draw: &mut Draw, (scheduler, number, nodes): (&str, u64, u64)) -> Value {
    let mut pod = site.pod(&format!("pod-{number:04}"), 0);
    let spec = &mut pod["spec"];
    spec["schedulerName"] = json!(scheduler);
    spec["containers"] = (0..=draw.below(2)).map(|it| container(draw, &format!("main-{it}"))).collect();
    let mut before = Vec::new();
    for number in 0..draw.below(3) {
        let mut one = container(draw, &format!("init-{number}"));
        if draw.percent(50) {
            one["restartPolicy"] = json!("Always");
        }
        before.push(one);
    }
    spec["initContainers"] = json!(before);
    maybe(draw, 25, &mut spec["nodeSelector"], ("disk", &["nvme", "hdd", "tape"]));
    if draw.percent(40) {
        spec["affinity"] = terms(site, draw, nodes);
    }
    let tolerations = spec["tolerations"].as_array_mut().unwrap();
    for _ in 0..draw.below(3) {
        let mut toleration = json!({"key": one(draw, &["gpu", "team"])});
        match draw.percent(40) {
            true => toleration["operator"] = json!("Exists"),
            false => maybe(draw, 80, &mut toleration, ("value", &["yes", "no", ""])),
        }
        maybe(draw, 40, &mut toleration, ("effect", &EFFECTS));
        tolerations.push(toleration);
    }
    if draw.percent(15) {
        spec["runtimeClassName"] = json!(RUNTIME);
    } else if draw.percent(15) {
        // All containers together ask for less than this.
        spec["resources"] = json!({"requests": {"cpu": "7200m", "memory": "14Gi"}});
    }
    pod
}

/// A runtime class with an overhead of its own.
const RUNTIME: &str = "differential-heavy";

fn runtime() -> Value {
    json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": RUNTIME}, "handler": "heavy",
        "overhead": {"podFixed": {"cpu": "300m", "memory": "200Mi"}},
    })
}

/// Pods that are on their nodes already.
fn held(site: &Site, draw: &mut Draw, nodes: u64) -> Vec<Value> {
    let mut pods = Vec::new();
    for number in 0..nodes {
        for of_node in 0..draw.below(3) {
            let mut pod = site.pod(&format!("held-{number}-{of_node}"), 0);
            pod["spec"]["schedulerName"] = json!("somebody");
            pod["spec"]["nodeName"] = json!(format!("{}-{number}", site.name));
            pod["spec"]["nodeSelector"] = json!({});
            pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
            pod["spec"]["containers"] = json!([container(draw, "main")]);
            pods.push(pod);
        }
    }
    pods
}

fn number_of(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn the_same_pods_can_go_to_the_same_nodes_as_kube_scheduler_says() {
    let Some(site) = Site::new("differential", 0) else { return };
    let (nodes, count) = (number_of("DIVVY_CLUSTER_NODES", 12), number_of("DIVVY_CLUSTER_PODS", 60));
    let mut draw = Draw::seeded("DIVVY_CLUSTER", 20);
    (0..nodes).for_each(|number| node(&site, &mut draw, number));
    site.apply(&runtime());
    let list = |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "List", "items": items});
    site.create(&list(held(&site, &mut draw, nodes)));
    site.wait_until("the nodes to be ready", || site.are_ready());
    let passed = Passed::default();
    let extender = format!(
        "percentageOfNodesToScore: 100\nextenders: [{{urlPrefix: {:?}, filterVerb: filter, nodeCacheCapable: true, weight: 1}}]",
        extender(&passed)
    );
    let theirs = Other::start(&site, &extender);
    site.create(&list(
        (0..count).map(|number| pod(&site, &mut draw, (&theirs.name, number, nodes))).collect(),
    ));
    site.wait_until("kube-scheduler to have thought of all", || {
        let pods: Value = serde_json::from_str(&site.kubectl(&["get", "pods", "-o", "json"], None)).unwrap();
        let is_told = |pod: &&Value| pod["status"]["conditions"][0]["type"] == "PodScheduled";
        let all = pods["items"].as_array().unwrap().iter();
        all.filter(|pod| pod["spec"]["schedulerName"] == theirs.name).filter(is_told).count() as u64 == count
    });
    compare(&site, &theirs.name, (count, &passed.lock().unwrap()));
}

fn compare(site: &Site, scheduler: &str, (pods, passed): (u64, &BTreeMap<String, BTreeSet<String>>)) {
    let cluster = Cluster {
        kubeconfig: Some(site.own_kubeconfig()),
        scheduler: scheduler.to_owned(),
        nodes: site.own(),
        queues: site.own(),
        lease: Duration::from_secs(15),
    };
    let mut looked = Looked::at(&cluster, &Policy::default()).unwrap();
    let (mut pairs, mut wrong) = (0, Vec::new());
    for number in 0..pods {
        let name = format!("pod-{number:04}");
        let theirs = passed.get(&name).cloned().unwrap_or_default();
        let ours = looked.nodes_for(&format!("{}/{name}", site.namespace));
        pairs += theirs.len();
        if ours != theirs {
            wrong.push(format!("{name}: {ours:?} here, {theirs:?} at kube-scheduler"));
        }
    }
    eprintln!("{pods} pods, {pairs} pairs of a pod and a node that takes it");
    assert!(pairs > 0, "no pod can go anywhere");
    assert!(wrong.is_empty(), "{} of {pods}: {wrong:#?}", wrong.len());
}
