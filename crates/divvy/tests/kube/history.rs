//! Everything that happens to the pods of a test, as a watch tells it: was a node ever given more than it has?

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::site::{Site, kubectl_of};

/// What each node of a test has.
const GPUS: u64 = 8;

/// What pods hold, and where that was too much.
#[derive(Default)]
struct Reckoning {
    /// By uid: node and GPUs.
    pods: BTreeMap<String, (String, u64)>,
    events: usize,
    wrong: Vec<String>,
    /// Nodes that are over-committed now, since when.
    since: BTreeMap<String, Instant>,
    /// The longest time that a node was over-committed.
    longest: Duration,
}

/// A watch that runs until it is ended.
pub(crate) struct History {
    end: Arc<AtomicBool>,
    child: Arc<Mutex<Option<Child>>>,
    thread: Option<JoinHandle<Reckoning>>,
}

impl History {
    /// Begins to watch the pods of a test's namespace that its own scheduler places.
    pub(crate) fn begin(site: &Site) -> Self {
        Self::of(site, site.scheduler_name())
    }

    /// Begins to watch all pods of a test's namespace.
    pub(crate) fn of_all(site: &Site) -> Self {
        Self::of(site, String::new())
    }

    fn of(site: &Site, own: String) -> Self {
        let (end, child) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let state = site.state.clone();
        let path = format!("/api/v1/namespaces/{}/pods", site.namespace);
        let (stop, current) = (Arc::clone(&end), Arc::clone(&child));
        let thread = std::thread::spawn(move || {
            let mut reckoning = Reckoning::default();
            while !stop.load(Ordering::Relaxed) {
                let listed = kubectl_of(&state).args(["get", "--raw", &path]).output().unwrap();
                let Ok(list) = serde_json::from_slice::<Value>(&listed.stdout) else {
                    wait_for_the_server();
                    continue;
                };
                reckoning.list(&list, &own);
                let version = list["metadata"]["resourceVersion"].as_str().unwrap();
                let watch = format!("{path}?watch=1&resourceVersion={version}");
                let mut command = kubectl_of(&state);
                command.args(["get", "--raw", &watch]).stdout(Stdio::piped()).stderr(Stdio::null());
                let mut watching = command.spawn().unwrap();
                let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
                *current.lock().unwrap() = Some(watching);
                for event in lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()) {
                    reckoning.event(&event, &own);
                }
            }
            reckoning
        });
        Self { end, child, thread: Some(thread) }
    }

    /// Ends the watch; fails if any node was ever given more than it has.
    pub(crate) fn end(self) {
        let reckoning = self.ended();
        assert!(reckoning.wrong.is_empty(), "over-committed: {:#?}", reckoning.wrong);
    }

    /// Ends the watch; fails if a node had more than it has for longer than this, or still has. Returns how often that was seen.
    pub(crate) fn repaired_within(self, longest: Duration) -> usize {
        let reckoning = self.ended();
        let (wrong, still) = (&reckoning.wrong, &reckoning.since);
        assert!(still.is_empty(), "still over-committed: {still:?}");
        assert!(reckoning.longest <= longest, "over-committed for {:?}: {wrong:#?}", reckoning.longest);
        wrong.len()
    }

    fn ended(mut self) -> Reckoning {
        self.end.store(true, Ordering::Relaxed);
        if let Some(child) = self.child.lock().unwrap().as_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let reckoning = self.thread.take().unwrap().join().unwrap();
        assert!(reckoning.events > 0, "the watch has told nothing");
        reckoning
    }
}

fn wait_for_the_server() {
    std::thread::sleep(Duration::from_millis(100));
}

impl Reckoning {
    fn list(&mut self, list: &Value, own: &str) {
        self.pods.clear();
        list["items"].as_array().unwrap().iter().for_each(|pod| self.see(pod, own));
        self.reckon(&list["metadata"]["resourceVersion"]);
    }

    fn event(&mut self, event: &Value, own: &str) {
        let pod = &event["object"];
        self.events += 1;
        match event["type"].as_str() {
            Some("DELETED") => drop(self.pods.remove(pod["metadata"]["uid"].as_str().unwrap())),
            _ => self.see(pod, own),
        }
        self.reckon(&pod["metadata"]["resourceVersion"]);
    }

    fn see(&mut self, pod: &Value, own: &str) {
        let Some(uid) = pod["metadata"]["uid"].as_str() else { return };
        let is_over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
        let asked = &pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"];
        let gpus = asked.as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
        let counts = own.is_empty() || pod["spec"]["schedulerName"] == own;
        match pod["spec"]["nodeName"].as_str().filter(|_| !is_over && counts) {
            Some(node) => drop(self.pods.insert(uid.to_owned(), (node.to_owned(), gpus))),
            None => drop(self.pods.remove(uid)),
        }
    }

    fn reckon(&mut self, version: &Value) {
        let mut held: BTreeMap<&str, u64> = BTreeMap::new();
        self.pods.values().for_each(|(node, gpus)| *held.entry(node).or_default() += gpus);
        let wrong: BTreeMap<String, u64> = held
            .iter()
            .filter(|(_, gpus)| **gpus > GPUS)
            .map(|(node, gpus)| ((*node).to_owned(), *gpus))
            .collect();
        self.wrong
            .extend(wrong.iter().map(|(node, gpus)| format!("{gpus} GPUs of {node} at version {version}")));
        let now = Instant::now();
        let longest = self.since.values().map(|since| now.duration_since(*since)).max();
        self.longest = self.longest.max(longest.unwrap_or_default());
        self.since.retain(|node, _| wrong.contains_key(node));
        for node in wrong.into_keys() {
            self.since.entry(node).or_insert(now);
        }
    }
}
