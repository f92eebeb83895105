//! A test's own part of the shared cluster.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The label and the taint that mark a test's nodes.
const MARK: &str = "test.divvy.dev/site";
/// The cluster shares two cores with everything else under test, and its controllers come back late after an outage.
const PATIENCE: Duration = Duration::from_secs(150);
/// A lease that outlasts a busy machine; a test that waits for the next leader sets a shorter one.
const LEASE_S: u32 = 30;
/// A lease for which a test can wait.
pub(crate) const SOON_OVER_S: u32 = 5;
/// The exit code of a scheduler whose lease is over: it is to be started again.
const TRY_AGAIN: i32 = 75;

/// A namespace, nodes and a scheduler.
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) state: PathBuf,
    /// How long a leader's lease lasts, and so how long a test waits for the next leader.
    pub(crate) lease_s: u32,
    /// What the file of its policy says, if it has one.
    pub(crate) policy: Option<String>,
    /// The address at which its schedulers find the API server, if not its own.
    pub(crate) server: Option<String>,
    schedulers: RefCell<Vec<Child>>,
    folder: tempfile::TempDir,
}

/// The folder of the shared cluster, if it runs. Where everything must be tested, it must run.
fn cluster() -> Option<PathBuf> {
    let shared = || Some(Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("kube"));
    let state = std::env::var_os("DIVVY_KUBE").map(PathBuf::from).or_else(shared)?;
    let answers = kubectl_of(&state).args(["get", "--raw", "/readyz"]).output();
    if answers.is_ok_and(|answer| answer.status.success()) {
        return Some(state);
    }
    assert!(std::env::var_os("CI").is_none(), "no test cluster in {}", state.display());
    eprintln!("skipped: start the test cluster by `cargo xtask kube up` (needs Go 1.26)");
    None
}

/// `kubectl` as the administrator of a cluster.
pub(crate) fn kubectl_of(state: &Path) -> Command {
    let mut command = Command::new(state.join("bin/kubectl"));
    command.arg("--kubeconfig").arg(state.join("kubeconfig"));
    command
}

fn run(command: &mut Command, input: Option<&str>) -> Result<String, String> {
    let pipe = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = command
        .stdin(pipe)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin.write_all(input.as_bytes()).map_err(|e| e.to_string())?;
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

static MANIFESTS: Once = Once::new();

impl Site {
    /// A namespace of this name, with so many nodes of 8 GPUs and 64 cores; `None` without a cluster.
    pub(crate) fn new(name: &str, nodes: u32) -> Option<Self> {
        let state = cluster()?;
        let folder = tempfile::tempdir().unwrap();
        // Deleting a namespace takes a while: the next run does not wait for it.
        let namespace = format!("{name}-{}", std::process::id());
        let (name, schedulers) = (name.to_owned(), RefCell::default());
        let (policy, server) = (None, None);
        let site = Self { name, namespace, state, lease_s: LEASE_S, policy, server, schedulers, folder };
        MANIFESTS.call_once(|| {
            let manifests = run(Command::new(env!("CARGO_BIN_EXE_divvy")).args(["kube", "manifests"]), None);
            site.everywhere(&["apply", "-f", "-"], Some(&manifests.unwrap()));
            site.everywhere(
                &["wait", "--for=condition=Established", "crd/queues.scheduling.divvy.dev"],
                None,
            );
        });
        site.clear(true);
        let metadata = json!({"name": &site.namespace, "labels": {MARK: site.name}});
        site.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        for number in 0..nodes {
            site.node(&format!("{}-{number}", site.name), &json!({}));
        }
        site.wait_until("the namespace's service account", || {
            site.in_namespace(&["get", "serviceaccount", "default"], None).is_ok()
        });
        Some(site)
    }

    /// What kubectl says of objects that are in other namespaces, or in none.
    pub(crate) fn everywhere(&self, words: &[&str], input: Option<&str>) -> String {
        let said = run(kubectl_of(&self.state).args(words), input);
        said.unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    fn in_namespace(&self, words: &[&str], input: Option<&str>) -> Result<String, String> {
        run(kubectl_of(&self.state).args(["-n", &self.namespace]).args(words), input)
    }

    /// What kubectl says, as an administrator, in the test's namespace.
    pub(crate) fn kubectl(&self, words: &[&str], input: Option<&str>) -> String {
        self.in_namespace(words, input).unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    /// Creates an object; a namespaced one in the test's namespace.
    pub(crate) fn create(&self, object: &Value) {
        self.kubectl(&["create", "-f", "-"], Some(&object.to_string()));
    }

    /// Tries to create an object.
    pub(crate) fn try_create(&self, object: &Value) -> bool {
        self.in_namespace(&["create", "-f", "-"], Some(&object.to_string())).is_ok()
    }

    /// Creates an object or changes it to this, for all tests.
    pub(crate) fn apply(&self, object: &Value) {
        self.everywhere(&["apply", "-f", "-"], Some(&object.to_string()));
    }

    /// Makes a fake node, with further labels.
    pub(crate) fn node(&self, name: &str, labels: &Value) {
        let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "8"});
        self.node_of(name, labels, &amounts, (&[], false));
    }

    /// Makes a fake node with these amounts, further labels and taints; cordoned, if so asked.
    pub(crate) fn node_of(
        &self,
        name: &str,
        labels: &Value,
        amounts: &Value,
        (taints, cordoned): (&[Value], bool),
    ) {
        let mut all = json!({MARK: self.name, "kubernetes.io/hostname": name});
        for (key, value) in labels.as_object().unwrap() {
            all[key] = value.clone();
        }
        let own = json!({"key": MARK, "value": self.name, "effect": "NoSchedule"});
        let taints: Vec<&Value> = std::iter::once(&own).chain(taints).collect();
        self.create(&json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": all, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"taints": taints, "unschedulable": cordoned},
            "status": {"capacity": amounts, "allocatable": amounts},
        }));
    }

    /// Whether no node of the test still has the taint of a new node.
    pub(crate) fn are_ready(&self) -> bool {
        let nodes = self.kubectl(
            &["get", "nodes", "-l", &self.own(), "-o", "jsonpath={.items[*].spec.taints[*].key}"],
            None,
        );
        !nodes.contains("node.kubernetes.io/not-ready")
    }

    /// A pod for the test's scheduler and nodes, with so many GPUs and one core.
    pub(crate) fn pod(&self, name: &str, gpus: u32) -> Value {
        let amounts = json!({"cpu": "1", "nvidia.com/gpu": gpus.to_string()});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {}, "annotations": {}},
            "spec": {
                "schedulerName": self.scheduler_name(),
                "nodeSelector": {MARK: self.name},
                "tolerations": [{"key": MARK, "value": self.name}],
                "containers": [{"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}],
            },
        })
    }

    /// A replica set of one such pod.
    pub(crate) fn replicas(&self, name: &str, gpus: u32) -> Value {
        let mut pod = self.pod("unused", gpus);
        pod["metadata"] = json!({"labels": {"app": name}});
        let (metadata, spec) = (pod["metadata"].clone(), pod["spec"].clone());
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": metadata, "spec": spec},
            },
        })
    }

    /// Makes a priority class that is removed with the test.
    pub(crate) fn priority_class(&self, name: &str, value: i32) {
        self.class(name, value, "PreemptLowerPriority");
    }

    /// Makes a priority class whose pods stop nobody.
    pub(crate) fn polite_class(&self, name: &str, value: i32) {
        self.class(name, value, "Never");
    }

    fn class(&self, name: &str, value: i32, preempts: &str) {
        self.create(&json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name, "labels": {MARK: self.name}}, "value": value, "preemptionPolicy": preempts,
        }));
    }

    /// The `schedulerName` of its pods.
    pub(crate) fn scheduler_name(&self) -> String {
        format!("divvy-{}", self.namespace)
    }

    /// The kubeconfig that reaches the cluster as the account of the manifests.
    pub(crate) fn own_kubeconfig(&self) -> PathBuf {
        let own = self.folder.path().join("kubeconfig");
        if !own.exists() {
            let token = self.everywhere(&["-n", "divvy-system", "create", "token", "divvy"], None);
            let admin: String = fs::read_to_string(self.state.join("kubeconfig")).unwrap();
            let users = format!("users: [{{name: \"admin\", user: {{token: {}}}}}]", token.trim());
            let own_user = |line| if str::starts_with(line, "users:") { users.as_str() } else { line };
            fs::write(&own, admin.lines().map(own_user).collect::<Vec<_>>().join("\n")).unwrap();
        }
        let Some(server) = &self.server else { return own };
        let (there, text) = (self.folder.path().join("kubeconfig-there"), fs::read_to_string(&own).unwrap());
        let cluster = format!("clusters: [{{name: divvy-test, cluster: {{server: {server:?}}}}}]");
        let elsewhere = |line| if str::starts_with(line, "clusters:") { cluster.as_str() } else { line };
        fs::write(&there, text.lines().map(elsewhere).collect::<Vec<_>>().join("\n")).unwrap();
        there
    }

    /// Starts a scheduler, as the account of the manifests.
    pub(crate) fn schedule(&self) {
        let scheduler = self.start();
        self.schedulers.borrow_mut().push(scheduler);
    }

    fn start(&self) -> Child {
        let own = self.own_kubeconfig();
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
        // The GPUs of the other tests are not there to be divided, and other schedulers speak for their queues.
        command.args(["kube", "run", "--nodes", &self.own(), "--queues", &self.own()]);
        command.args(["--scheduler-name", &self.scheduler_name()]);
        if let Some(policy) = &self.policy {
            let file = self.folder.path().join("policy.yaml");
            fs::write(&file, policy).unwrap();
            command.arg("--policy").arg(file);
        }
        command.args(["--lease-s", &self.lease_s.to_string(), "--kubeconfig"]).arg(own);
        command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    /// The labels of its nodes and queues.
    pub(crate) fn own(&self) -> String {
        format!("{MARK}={}", self.name)
    }

    /// Starts schedulers again that lost their lease, as happens on a busy machine: in a cluster, its controllers do this.
    fn revive(&self) {
        for scheduler in self.schedulers.borrow_mut().iter_mut() {
            let ended = scheduler.try_wait().unwrap();
            if ended.is_some_and(|status| status.code() == Some(TRY_AGAIN)) {
                *scheduler = self.start();
            }
        }
    }

    /// Kills the scheduler that was started first, as a crash would.
    pub(crate) fn kill(&self) {
        let mut scheduler = self.schedulers.borrow_mut().remove(0);
        scheduler.kill().unwrap();
        scheduler.wait().unwrap();
    }

    /// Sends a signal to the scheduler that was started first.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.schedulers.borrow()[0].id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Waits until the scheduler that was started first has ended; gives its exit code.
    pub(crate) fn ended(&self) -> Option<i32> {
        let mut scheduler = self.schedulers.borrow_mut().remove(0);
        scheduler.wait().unwrap().code()
    }

    /// Who leads: the identity in the lease.
    pub(crate) fn leader(&self) -> Option<String> {
        let lease = ["-n", "divvy-system", "get", "lease", &self.scheduler_name(), "-o"];
        let holder = "jsonpath={.spec.holderIdentity}";
        run(kubectl_of(&self.state).args(lease).arg(holder), None).ok().filter(|holder| !holder.is_empty())
    }

    /// An object of the test's namespace; null if it is not there.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        let text = self.in_namespace(&["get", kind, name, "-o", "json"], None);
        text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    /// The node of each pod, by the names of the pods: empty for those that have none.
    pub(crate) fn places(&self) -> Vec<(String, String)> {
        let text = self.kubectl(&["get", "pods", "-o", "json"], None);
        let list: Value = serde_json::from_str(&text).unwrap();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = list["items"].as_array().unwrap().iter();
        pods.map(|pod| (word(&pod["metadata"]["name"]), word(&pod["spec"]["nodeName"]))).collect()
    }

    /// How many pods have a node.
    pub(crate) fn placed(&self) -> usize {
        self.places().iter().filter(|(_, node)| !node.is_empty()).count()
    }

    /// Why a pod waits: reason and message of its condition.
    pub(crate) fn why(&self, pod: &str) -> (String, String) {
        let pod = self.get("pod", pod);
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = conditions.iter().find(|it| it["type"] == "PodScheduled" && it["status"] == "False");
        let word = |name: &str| said.and_then(|it| it[name].as_str()).unwrap_or_default().to_owned();
        (word("reason"), word("message"))
    }

    /// Waits for something; fails with the scheduler's log.
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let started = Instant::now();
        while !is_so() {
            if started.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let columns = "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,PHASE:.status.phase,SAID:.status.conditions[*].message";
                let places = self.in_namespace(&["get", "pods", "-o", columns], None);
                let queues = self.everywhere(&["get", "queues", "-o", "yaml"], None);
                let places = places.unwrap_or_default();
                panic!("waited in vain for {what}; pods:\n{places}\nqueues:\n{queues}\nlog:\n{log}");
            }
            self.revive();
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Removes what an earlier run or this one has made.
    fn clear(&self, wait: bool) {
        let wait = format!("--wait={wait}");
        let mark = format!("{MARK}={}", self.name);
        let all = "namespaces,nodes,queues,priorityclasses";
        let _ = run(kubectl_of(&self.state).args(["delete", all, "-l", &mark, &wait]), None);
    }

    /// Makes a queue that is removed with the test.
    pub(crate) fn queue(&self, name: &str, spec: &Value) {
        self.queue_of(&self.name, name, spec);
    }

    /// Makes a queue that belongs to another pool.
    pub(crate) fn queue_of(&self, pool: &str, name: &str, spec: &Value) {
        self.apply(&json!({
            "apiVersion": "scheduling.divvy.dev/v1alpha1", "kind": "Queue",
            "metadata": {"name": name, "labels": {MARK: pool}}, "spec": spec,
        }));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        while !self.schedulers.borrow().is_empty() {
            self.kill();
        }
        let lease = ["-n", "divvy-system", "delete", "lease", &self.scheduler_name(), "--ignore-not-found"];
        let _ = run(kubectl_of(&self.state).args(lease), None);
        self.clear(false);
    }
}
