//! How the scheduler decides, set by a file.

use std::process::Command;

use crate::site::Site;

#[test]
fn a_policy_that_is_strict_keeps_back_who_stands_behind_one_that_does_not_fit() {
    let Some(mut site) = Site::new("policy", 1) else { return };
    site.policy = Some("policy: {strict: true}\nprices: {h100: 2.90}\n".to_owned());
    site.schedule();
    site.create(&site.pod("first", 1));
    site.wait_until("the first pod to be placed", || site.placed() == 1);
    site.create(&site.pod("large", 8));
    site.wait_until("the large pod to be told", || !site.why("large").0.is_empty());
    site.create(&site.pod("small", 1));
    site.wait_until("the small pod to be told", || site.why("small").1.contains("strictly in order"));
    assert_eq!(site.placed(), 1);
    site.kubectl(&["delete", "pod", "large"], None);
    site.wait_until("the small pod to be placed", || site.placed() == 2);
}

#[test]
fn a_policy_that_nobody_can_read_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.yaml");
    std::fs::write(&file, "policy:\n  stricd: true\n").unwrap();
    for words in [&["kube", "run"][..], &["kube", "manifests", "--image", "divvy:1"], &["ps", "--kube"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_divvy"));
        let output = command.args(words).arg("--policy").arg(&file).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("policy.yaml:2:3: "), "{words:?}: {said}");
        assert!(said.contains("did you mean strict?"), "{said}");
    }
}
