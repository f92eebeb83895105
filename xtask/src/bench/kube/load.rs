//! The load: nodes and pods, bindings that decide nothing, and a watch that counts the pods that have a node.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::{StreamExt, pin_mut};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use serde::Deserialize;
use serde_json::{Value, json};

/// Requests in flight: they fill two quiet cores; more only wait at the server.
const WORKERS: usize = 32;
/// GPUs of a node.
pub(super) const GPUS: u32 = 8;
/// How long all pods may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// A client of the cluster that is measured.
#[derive(Clone)]
pub(super) struct Load {
    client: Client,
}

/// An object of a list, as far as it matters here.
#[derive(Clone, Deserialize)]
struct Named {
    metadata: Meta,
}

#[derive(Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    uid: String,
    resource_version: String,
}

#[derive(Deserialize)]
struct List {
    metadata: Meta,
    #[serde(default)]
    items: Vec<Named>,
}

impl Load {
    pub(super) async fn connect(kubeconfig: &Path) -> Result<Self> {
        let (written, options) = (Kubeconfig::read_from(kubeconfig)?, KubeConfigOptions::default());
        let config = Config::from_custom_kubeconfig(written, &options).await?;
        Ok(Self { client: Client::try_from(config)? })
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<()> {
        let request = http::Request::builder().method(method).uri(path);
        let request =
            request.header("content-type", "application/json").body(body.to_string().into_bytes())?;
        self.client.request_text(request).await.with_context(|| format!("{method} {path}"))?;
        Ok(())
    }

    async fn list(&self, path: &str) -> Result<List> {
        let request = http::Request::get(path).body(Vec::new())?;
        self.client.request(request).await.with_context(|| format!("listing {path}"))
    }

    /// Sends so many requests, as many at once as fill the server.
    async fn each(&self, count: usize, request: impl Fn(usize) -> (String, Value) + Sync) -> Result<()> {
        let next = AtomicUsize::new(0);
        let worker = || async {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<(), anyhow::Error>(());
                }
                let (path, body) = request(number);
                self.send("POST", &path, &body).await?;
            }
        };
        futures_util::future::try_join_all((0..WORKERS).map(|_| worker())).await?;
        Ok(())
    }

    /// Makes nodes and waits until the controller manager has removed its taints from all of them.
    pub(super) async fn nodes(&self, count: usize) -> Result<()> {
        let amounts =
            json!({"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": GPUS.to_string()});
        self.each(count, |number| {
            let name = format!("fake-{number:05}");
            let labels =
                json!({"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"});
            let metadata =
                json!({"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}});
            let status = json!({"capacity": amounts, "allocatable": amounts});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status});
            ("/api/v1/nodes".to_owned(), node)
        })
        .await?;
        let started = Instant::now();
        loop {
            let nodes: Value =
                self.client.request(http::Request::get("/api/v1/nodes").body(Vec::new())?).await?;
            let tainted = |node: &Value| node["spec"]["taints"].is_array();
            if !nodes["items"].as_array().context("nodes are no list")?.iter().any(tainted) {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                bail!("nodes still have taints after {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Makes pods for a scheduler, with this name and so many GPUs each.
    pub(super) async fn pods(&self, count: usize, scheduler: &str, (name, gpus): (&str, u32)) -> Result<()> {
        self.each(count, |number| {
            let spec = spec(scheduler, &json!({"cpu": "1", "nvidia.com/gpu": gpus.to_string()}));
            let metadata = json!({"name": format!("{name}-{number:05}")});
            (PODS.to_owned(), json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
        })
        .await
    }

    /// Makes a job of pods of one GPU that start together.
    pub(super) async fn gang(&self, pods: usize, scheduler: &str) -> Result<()> {
        let mut spec = spec(scheduler, &json!({"cpu": "1", "nvidia.com/gpu": "1"}));
        spec["restartPolicy"] = json!("Never");
        let template = json!({"metadata": {"labels": {"divvy.dev/gang": pods.to_string()}}, "spec": spec});
        let spec = json!({"parallelism": pods, "completions": pods, "template": template});
        let job =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gang"}, "spec": spec});
        self.send("POST", "/apis/batch/v1/namespaces/default/jobs", &job).await
    }

    /// Binds all pods to the nodes in turn: the bound that any scheduler has.
    pub(super) async fn bind(&self) -> Result<()> {
        let (nodes, pods) = (self.list("/api/v1/nodes").await?.items, self.list(PODS).await?.items);
        let pods: Vec<Named> = pods.into_iter().filter(|pod| pod.metadata.name.starts_with("pod-")).collect();
        self.each(pods.len(), |number| {
            let Meta { name, uid, .. } = &pods[number].metadata;
            let target =
                json!({"apiVersion": "v1", "kind": "Node", "name": nodes[number % nodes.len()].metadata.name});
            let metadata = json!({"name": name, "namespace": "default", "uid": uid});
            let binding =
                json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
            (format!("{PODS}/{name}/binding"), binding)
        })
        .await
    }

    /// Counts pods as they get a node. The server selects them, so that waiting pods cost nothing here. Returns when each was
    /// seen.
    pub(super) async fn watch(self, count: usize, ready: Arc<tokio::sync::Notify>) -> Result<Vec<Instant>> {
        let (mut seen, started) = (Vec::with_capacity(count), Instant::now());
        let mut names = std::collections::HashSet::new();
        while names.len() < count {
            if started.elapsed() > PATIENCE {
                bail!("{} of {count} pods have a node after {PATIENCE:?}", names.len());
            }
            // Watches that fall behind are cut: what was missed is in the next list.
            let list = self.list(&format!("{PODS}?fieldSelector=spec.nodeName!=")).await?;
            list.items.into_iter().filter(|pod| names.insert(pod.metadata.name.clone())).for_each(|_| {
                seen.push(Instant::now());
            });
            let version = list.metadata.resource_version;
            let path = format!("{PODS}?watch=1&fieldSelector=spec.nodeName!=&resourceVersion={version}");
            let events =
                self.client.request_events::<Named>(http::Request::get(path).body(Vec::new())?).await?;
            ready.notify_one();
            pin_mut!(events);
            while names.len() < count
                && let Ok(Some(Ok(event))) =
                    tokio::time::timeout(Duration::from_secs(60), events.next()).await
            {
                if let WatchEvent::Added(pod) = event
                    && names.insert(pod.metadata.name)
                {
                    seen.push(Instant::now());
                }
            }
        }
        Ok(seen)
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn spec(scheduler: &str, amounts: &Value) -> Value {
    let resources = json!({"requests": amounts, "limits": amounts});
    let container = json!({"name": "main", "image": "none", "resources": resources});
    json!({"schedulerName": scheduler, "containers": [container]})
}
