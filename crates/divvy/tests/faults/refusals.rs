//! What is refused, and what the refusal says.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::site::Site;

#[track_caller]
fn assert_said(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not said in: {text}");
    }
}

#[test]
fn more_gpus_or_another_model_than_there_is_are_refused_naming_what_there_is() {
    let site = Site::start();
    let said = site.say("run -g 9 -- true");
    assert_eq!(said.code, 65, "{said:?}");
    assert_said(&said.err, &["9", "8"]);
    let said = site.say("run -g a100:1 -- true");
    assert_eq!(said.code, 65, "{said:?}");
    assert_said(&said.err, &["a100", "h100"]);
    let said = site.say("run -g 1 --gpu-memory 200Gi -- true");
    assert_eq!(said.code, 65, "{said:?}");
    let said = site.say("run --tasks 3 -g 4 -- true");
    assert_eq!(said.code, 65, "{said:?}");
    assert_eq!(site.say("ps -a -o json").json(), json!([]), "nothing was taken");
}

#[test]
fn who_says_so_waits_for_capacity_that_is_not_there() {
    let site = Site::start();
    let id = site.submit("-g 9 --wait-for-capacity", "exit 3");
    let job = site.job(&id);
    assert_eq!(job["state"], "pending");
    assert!(job["reason"]["code"].as_str().unwrap().starts_with("DV-"), "{job}");
    assert_eq!(site.divvy(["run", "-g", "8", "--", "true"]).code, 0, "it keeps nobody else waiting");
    site.say("down").ok();
    assert_eq!(site.up_with("pretend:12xH100", |_| ()).code, 0);
    assert_eq!(site.divvy(["wait", &id]).code, 3);
    site.assert_lawful();
}

#[test]
fn an_unknown_key_of_a_job_file_is_told_with_its_place_and_the_nearest_key() {
    let site = Site::start();
    let file = site.work().join("job.yaml");
    fs::write(&file, "name: x\ncommand: [\"true\"]\nroles:\n  - name: a\n    gpu_memry: 10Gi\n").unwrap();
    let said = site.say("run -f job.yaml");
    assert_eq!(said.code, 65, "{said:?}");
    assert_said(&said.err, &["job.yaml", "line 5", "column 5", "gpu_memry", "gpu_memory"]);
    fs::write(&file, "command: [\"true\"\n").unwrap();
    let said = site.say("run -f job.yaml");
    assert_eq!(said.code, 65, "{said:?}");
    assert_said(&said.err, &["job.yaml", "line "]);
    fs::write(&file, [0xff, 0xfe, 0x00, 0x1b, b'[', b'2', b'J']).unwrap();
    let said = site.say("run -f job.yaml");
    assert!(said.code != 0 && said.err.contains("job.yaml") && !said.err.contains('\x1b'), "{said:?}");
}

#[test]
fn a_command_that_is_not_found_or_cannot_run_fails_with_the_shells_code_and_a_reason() {
    let site = Site::start();
    let plain = site.work().join("plain");
    fs::write(&plain, "not a program").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    for (command, code) in [("surely-no-such-command", 127), ("./plain", 126), ("/", 126)] {
        let said = site.divvy(["run", "-d", "-g", "1", "--requeue=failure", "--", command]);
        let id = said.ok().to_owned();
        assert_eq!(site.divvy(["wait", &id]).code, code, "{command}");
        let job = site.job(&id);
        assert_eq!((&job["state"], &job["exit_code"]), (&json!("failed"), &json!(code)), "{job}");
        assert_eq!(job["last_end"]["cause"], "launch_failed", "{job}");
        assert_said(&site.divvy(["show", &id]).out, &[command]);
    }
    site.assert_all_free();
    site.assert_lawful();
}

#[test]
fn a_working_directory_that_is_not_there_is_refused_at_submit() {
    let site = Site::start();
    let said = site.say("run -C /surely/not/there -- true");
    assert_eq!(said.code, 65, "{said:?}");
    assert_said(&said.err, &["/surely/not/there", "directory"]);
    fs::write(site.work().join("file"), "").unwrap();
    assert_eq!(site.say("run -C file -- true").code, 65);
    let gone = site.work().join("gone");
    fs::create_dir(&gone).unwrap();
    let mut command = site.command();
    command.args(["run", "-d", "--", "true"]).current_dir(&gone);
    fs::remove_dir(&gone).unwrap();
    assert!(command.output().is_err(), "the test itself cannot start there");
    assert_eq!(site.say("ps -a -o json").json(), json!([]));
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused_naming_the_pid_of_the_first() {
    let site = Site::start();
    let daemon = site.daemon();
    for said in [site.refused(), site.up_with("pretend:8xH100", |_| ())] {
        assert_eq!(said.code, 73, "{said:?}");
        assert_said(&said.err, &[&format!("pid {daemon}")]);
    }
    assert_eq!(site.daemon(), daemon, "the first one serves on");
    assert_eq!(site.divvy(["run", "-g", "1", "--", "true"]).code, 0);
}

#[test]
fn without_a_daemon_it_is_said_how_to_start_one() {
    let site = Site::start();
    site.kill_daemon();
    for command in ["ps", "gpus", "run -- true", "wait 1", "cancel 1", "down"] {
        let said = site.say(command);
        assert_eq!(said.code, 69, "{command}: {said:?}");
        assert_said(&said.err, &["divvy up"]);
    }
}
