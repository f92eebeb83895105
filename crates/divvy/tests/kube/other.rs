//! kube-scheduler beside the test's own scheduler, for pods that name it.

use std::fs::{self, File};
use std::process::{Child, Command};

use crate::site::Site;

/// A kube-scheduler of the test's own.
pub(crate) struct Other {
    /// The `schedulerName` of its pods.
    pub(crate) name: String,
    process: Child,
    _folder: tempfile::TempDir,
}

impl Other {
    /// Starts one, with more of its configuration.
    pub(crate) fn start(site: &Site, configuration: &str) -> Self {
        let (folder, name) = (tempfile::tempdir().unwrap(), format!("kube-{}", site.namespace));
        let kubeconfig = site.state.join("pki/scheduler.kubeconfig");
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
             clientConnection: {{kubeconfig: {kubeconfig:?}, qps: 500, burst: 500}}\n\
             leaderElection: {{leaderElect: false}}\nprofiles: [{{schedulerName: {name}}}]\n{configuration}"
        );
        let (file, log) = (folder.path().join("config.yaml"), folder.path().join("log"));
        fs::write(&file, text).unwrap();
        let log = File::create(log).unwrap();
        let mut command = Command::new(site.state.join("bin/kube-scheduler"));
        // It serves no port: what it would report is in its log.
        command.arg("--config").arg(&file).arg("--secure-port=0");
        let process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Self { name, process, _folder: folder }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
