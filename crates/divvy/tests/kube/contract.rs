//! The contract that every engine is held to, on a real API server: what begins is a binding.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use divvy_core::action::Bind;
use divvy_core::contract::{Begin, Harness};
use divvy_core::engine::Engine;
use divvy_core::id::{AllocationId, JobId, Term};
use divvy_engine::kubernetes::{KubernetesEngine, PodNews, Site as Cluster};
use serde_json::{Value, json};

use crate::site::Site;

#[test]
fn the_contract_of_engines_holds_for_pods() {
    let Some(site) = Site::new("contract", 1) else { return };
    let begun = Instant::now();
    let mut pods = Pods { site, engine: None, given: BTreeMap::new(), found: Vec::new(), begun };
    divvy_core::contract::engine(&mut pods);
}

/// How long a vanished leader keeps its lease: each restart waits for it.
const LEASE: Duration = Duration::from_secs(3);
/// How long the whole test may take.
const PATIENCE: Duration = Duration::from_secs(300);

struct Pods {
    site: Site,
    engine: Option<KubernetesEngine>,
    /// The uids of pods, and the allocations that they were made for.
    given: BTreeMap<String, AllocationId>,
    found: Vec<AllocationId>,
    begun: Instant,
}

fn name(allocation: AllocationId) -> String {
    format!("task-{}", allocation.0)
}

impl Pods {
    fn running(&mut self) -> &mut KubernetesEngine {
        self.engine.as_mut().unwrap()
    }

    fn begin(&mut self, allocation: AllocationId, annotations: &Value) -> Begin {
        let mut pod = self.site.pod(&name(allocation), 1);
        pod["metadata"]["annotations"] = annotations.clone();
        pod["spec"]["restartPolicy"] = json!("Never");
        self.site.create(&pod);
        let uid = self.site.get("pod", &name(allocation))["metadata"]["uid"].as_str().unwrap().to_owned();
        self.given.insert(uid.clone(), allocation);
        while !self.running().still_waits(&uid) {
            self.wait();
        }
        let (job, node) = (JobId::single(allocation.0), "contract-0".to_owned());
        Begin::Bind(Box::new(Bind { job, task: uid, node }))
    }
}

impl Harness for Pods {
    fn engine(&mut self) -> &mut dyn Engine {
        self.running()
    }

    fn restart(&mut self, _: Term) -> Term {
        // Whatever it was about to write is no longer written.
        drop(self.engine.take());
        let cluster = Cluster {
            kubeconfig: Some(self.site.own_kubeconfig()),
            scheduler: self.site.scheduler_name(),
            nodes: self.site.own(),
            queues: self.site.own(),
            lease: LEASE,
        };
        let (mut engine, term) =
            KubernetesEngine::connect(&cluster, &AtomicBool::new(false)).unwrap().unwrap();
        while !engine.is_listed() {
            engine.wait(Duration::from_millis(100));
        }
        self.found.clear();
        for news in engine.pod_news() {
            if let PodNews::Runs(running) = news
                && let Some(allocation) = self.given.get(&running.pod.uid)
            {
                engine.adopted(&running.pod.uid, *allocation);
                self.found.push(*allocation);
            }
        }
        self.engine = Some(engine);
        term
    }

    fn found(&mut self) -> Vec<AllocationId> {
        self.found.clone()
    }

    fn wait(&mut self) {
        assert!(self.begun.elapsed() < PATIENCE, "nothing happens any more");
        self.running().wait(Duration::from_millis(100));
    }

    fn patient(&mut self, allocation: AllocationId) -> Begin {
        self.begin(allocation, &json!({}))
    }

    fn brief(&mut self, allocation: AllocationId, code: i32) -> Begin {
        self.begin(
            allocation,
            &json!({"test.divvy.dev/run-for": "100ms", "test.divvy.dev/exit-code": code.to_string()}),
        )
    }

    fn stubborn(&mut self, allocation: AllocationId) -> Begin {
        self.patient(allocation)
    }

    fn processes(&mut self, allocation: AllocationId) -> (usize, usize) {
        let has_node = self.site.get("pod", &name(allocation))["spec"]["nodeName"].is_string();
        (usize::from(has_node), usize::from(has_node))
    }
}
