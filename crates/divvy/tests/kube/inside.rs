//! The scheduler as a part of the cluster.

use std::process::Command;

use crate::site::Site;

#[test]
fn the_server_takes_a_scheduler_of_any_image_and_labels() {
    let Some(site) = Site::new("inside", 0) else { return };
    let image = "registry.example:5000/team/divvy@sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let words = ["kube", "manifests", "--image", image, "--scheduler-name", "divvy-2"];
    let own = ["--nodes", "pool=a,!spare", "--queues", "pool=a"];
    let policy = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(policy.path(), "policy: {strict: true}\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
    command.args(words).args(own).arg("--policy").arg(policy.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let manifests = String::from_utf8(output.stdout).unwrap();
    let dry =
        ["apply", "--dry-run=server", "-o", "jsonpath={.items[?(@.kind==\"Deployment\")].spec}", "-f", "-"];
    let spec: serde_json::Value = serde_json::from_str(&site.everywhere(&dry, Some(&manifests))).unwrap();
    let container = &spec["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &spec["replicas"]), (&image.into(), &2.into()));
    assert_eq!(container["args"][3], "--nodes=pool=a,!spare");
    assert_eq!(container["args"][4], "--queues=pool=a");
    assert_eq!(container["args"][5], "--policy=/etc/divvy/policy.yaml");
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/divvy");
    let volume = &spec["template"]["spec"]["volumes"][0];
    assert_eq!(
        (&container["volumeMounts"][0]["name"], &volume["configMap"]["name"]),
        (&volume["name"], &"divvy-2-policy".into())
    );
    let kept =
        ["apply", "--dry-run=server", "-o", "jsonpath={.items[?(@.kind==\"ConfigMap\")].data}", "-f", "-"];
    let kept: serde_json::Value = serde_json::from_str(&site.everywhere(&kept, Some(&manifests))).unwrap();
    assert_eq!(kept["policy.yaml"], "policy: {strict: true}\n");
}
