//! The parts of the control plane: where each comes from, and how it is started.

use std::path::Path;

/// The programs and the Go packages that they are built from. The first to be built compiles most of what the others use.
pub(super) const BUILT: [(&str, &str); 6] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
];

/// The programs that run, servers first.
pub(super) const STARTED: [&str; 5] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"];

/// The ports of a cluster: six in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports(pub(super) u16);

impl Ports {
    /// How many a cluster takes.
    pub(super) const COUNT: u16 = 6;

    pub(super) fn etcd(self) -> u16 {
        self.0
    }

    fn etcd_peer(self) -> u16 {
        self.0 + 1
    }

    pub(super) fn api(self) -> u16 {
        self.0 + 2
    }

    fn controllers(self) -> u16 {
        self.0 + 3
    }

    pub(super) fn scheduler(self) -> u16 {
        self.0 + 4
    }

    pub(super) fn kwok(self) -> u16 {
        self.0 + 5
    }
}

/// What the command lines depend on.
pub(super) struct Setting<'a> {
    /// The cluster's folder.
    pub(super) state: &'a Path,
    /// Its ports.
    pub(super) ports: Ports,
    /// Whether etcd waits for the disk.
    pub(super) fsync: bool,
    /// How long a node's lease lasts; renewed every quarter of that.
    pub(super) lease_s: u32,
    /// What the fake kubelets do.
    pub(super) stages: &'a Path,
}

impl Setting<'_> {
    fn in_state(&self, path: &str) -> String {
        self.state.join(path).display().to_string()
    }

    /// The database: without TLS and without users, which is for tests alone.
    pub(super) fn etcd(&self) -> Vec<String> {
        let url = |port| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(self.ports.etcd()), url(self.ports.etcd_peer()));
        // Eight GiB: the default of two is full after some runs of a benchmark, and then nothing is written any more.
        let quota = 8u64 << 30;
        vec![
            "--name=main".into(),
            format!("--data-dir={}", self.in_state("etcd")),
            "--log-level=warn".into(),
            format!("--quota-backend-bytes={quota}"),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=main={peer}"),
            format!("--unsafe-no-fsync={}", !self.fsync),
        ]
    }

    /// The API server, with RBAC and tokens from a file.
    pub(super) fn api_server(&self) -> Vec<String> {
        vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd()),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.ports.api()),
            // A machine without a default route has no address to offer, and loopback may not be in an endpoint.
            "--advertise-address=127.0.0.1".into(),
            "--endpoint-reconciler-type=none".into(),
            format!("--tls-cert-file={}", self.in_state("pki/api.crt")),
            format!("--tls-private-key-file={}", self.in_state("pki/api.key")),
            format!("--token-auth-file={}", self.in_state("pki/tokens.csv")),
            "--authorization-mode=RBAC".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", self.in_state("pki/accounts.pub")),
            format!("--service-account-signing-key-file={}", self.in_state("pki/accounts.key")),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
        ]
    }

    /// The controllers: no election, as nothing runs twice here.
    pub(super) fn controllers(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.in_state("pki/controllers.kubeconfig")),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.ports.controllers()),
            "--leader-elect=false".into(),
            "--use-service-account-credentials".into(),
            format!("--service-account-private-key-file={}", self.in_state("pki/accounts.key")),
            format!("--root-ca-file={}", self.in_state("pki/ca.crt")),
            "--kube-api-qps=1000".into(),
            "--kube-api-burst=1000".into(),
            // A node is given up after a lease and a bit.
            format!("--node-monitor-grace-period={}s", self.lease_s + 10),
        ]
    }

    /// The standard scheduler, for comparisons. With its default rates, those would be what is measured.
    pub(super) fn scheduler(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.in_state("pki/scheduler.kubeconfig")),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.ports.scheduler()),
            "--leader-elect=false".into(),
            "--kube-api-qps=5000".into(),
            "--kube-api-burst=5000".into(),
        ]
    }

    /// The fake kubelets of all nodes that say so in an annotation.
    pub(super) fn kwok(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.in_state("kubeconfig")),
            format!("--config={}", self.stages.display()),
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".into(),
            "--node-ip=127.0.0.1".into(),
            format!("--node-lease-duration-seconds={}", self.lease_s),
            format!("--server-address=127.0.0.1:{}", self.ports.kwok()),
        ]
    }
}
