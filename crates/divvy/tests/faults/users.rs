//! Other users of the machine: what they can see, and what they can do.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::pool::Said;
use crate::site::{Site, copy_program, is_root, wait_for_lines};
use crate::wire;

/// Two users that every system has, and that own nothing.
const ANA: (&str, u32) = ("daemon", 1);
const BEN: (&str, u32) = ("nobody", 65534);

/// A pool of root that everybody can reach.
struct Shared {
    site: Site,
    program: PathBuf,
}

impl Shared {
    /// Starts it; `None` where the tests are not root.
    fn start() -> Option<Self> {
        if !is_root() {
            println!("not root: cannot be other users");
            return None;
        }
        let site = Site::unstarted();
        let mode = |path: PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(site.root(), 0o711);
        // Other users may not be able to enter the checkout.
        let program = site.root().join("divvy");
        copy_program(&program);
        for (name, uid) in [ANA, BEN] {
            let home = site.work().join(name);
            fs::create_dir(&home).unwrap();
            chown(&home, Some(uid), Some(uid)).unwrap();
            mode(home, 0o700);
        }
        mode(site.work(), 0o755);
        site.up();
        Some(Self { site, program })
    }

    fn home(&self, user: (&str, u32)) -> PathBuf {
        self.site.work().join(user.0)
    }

    fn command(&self, user: (&str, u32)) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("DIVVY_STATE", self.site.state())
            .env("TZ", "UTC");
        command.current_dir(self.home(user)).uid(user.1).gid(user.1);
        command
    }

    fn divvy(&self, user: (&str, u32), args: &[&str]) -> Said {
        self.command(user).args(args).output().unwrap().into()
    }
}

#[test]
fn jobs_run_as_who_submitted_them_in_their_own_directory() {
    let Some(pool) = Shared::start() else { return };
    let said =
        pool.divvy(ANA, &["run", "-g", "1", "--", "sh", "-c", "id -u; id -g; id -G; pwd; umask; touch made"]);
    let home = pool.home(ANA);
    let lines: Vec<&str> = said.ok().lines().collect();
    assert_eq!(lines[..4], ["1", "1", "1", home.to_str().unwrap()], "{said:?}");
    let made = fs::metadata(home.join("made")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), 1);
    let id = pool.divvy(ANA, &["run", "-d", "--", "echo", "hello"]).ok().to_owned();
    assert_eq!(pool.divvy(ANA, &["wait", &id]).code, 0);
    let output = home.join(format!("divvy-{id}.out"));
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(output).unwrap()), 1);
    assert_eq!(pool.site.job(&id)["user"], ANA.0);
}

#[test]
fn another_users_job_is_seen_and_neither_read_nor_changed() {
    let Some(pool) = Shared::start() else { return };
    let gate = pool.site.gate("gate");
    fs::set_permissions(pool.site.work().join("gate"), fs::Permissions::from_mode(0o666)).unwrap();
    let mut submit = pool.command(ANA);
    submit.env("TOKEN", "pa55word").args(["run", "-d", "-g", "2", "-n", "visible", "--", "sh", "-c"]);
    submit.arg("echo 0utput-only; echo $$ >> pids; read x < ../gate; exit 3 # c0mmand-line");
    let id = Said::from(submit.output().unwrap()).ok().to_owned();
    wait_for_lines(&pool.home(ANA).join("pids"), 1);

    let secrets = ["pa55word", "0utput-only", "c0mmand-line"];
    let mut heard = String::new();
    for verb in ["cancel", "hold", "release", "logs"] {
        let said = pool.divvy(BEN, &[verb, &id]);
        assert_eq!(said.code, 77, "{verb}: {said:?}");
        heard += &format!("{said:?}");
    }
    for line in
        ["ps -o json", "ps -o wide", "ps -a -o csv", "gpus -o json", "queues -o json", "history -o json"]
    {
        let words: Vec<&str> = line.split(' ').collect();
        heard += &format!("{:?}", pool.divvy(BEN, &words));
    }
    for verb in ["show", "explain"] {
        heard +=
            &format!("{:?}{:?}", pool.divvy(BEN, &[verb, &id]), pool.divvy(BEN, &[verb, &id, "-o", "json"]));
    }
    for secret in secrets {
        assert!(!heard.contains(secret), "{secret} leaked: {heard}");
    }
    assert!(
        heard.contains("visible") && heard.contains(ANA.0),
        "name, user and GPUs are everybody's: {heard}"
    );

    let problem = as_user(&pool, BEN, &format!("POST /v1/jobs/{id}/cancel"));
    assert!(problem.contains(" 403 ") && problem.contains("not-yours"), "{problem}");
    for path in ["output", "attach", "output?follow=true"] {
        let problem = as_user(&pool, BEN, &format!("GET /v1/jobs/{id}/{path}"));
        assert!(problem.contains(" 403 "), "{path}: {problem}");
    }
    for secret in secrets {
        let detail = as_user(&pool, BEN, &format!("GET /v1/jobs/{id}"));
        assert!(!detail.contains(secret), "{secret} leaked: {detail}");
    }

    assert_eq!(pool.site.job(&id)["state"], "running");
    gate.open();
    assert_eq!(pool.divvy(ANA, &["wait", &id]).code, 3);
    assert_eq!(pool.divvy(ANA, &["logs", &id]).ok(), "0utput-only");
    let after = format!("{:?}{:?}", pool.divvy(BEN, &["show", &id]), pool.divvy(BEN, &["logs", &id]));
    for secret in secrets {
        assert!(!after.contains(secret), "{secret} leaked after the end: {after}");
    }
    pool.site.assert_lawful();
}

/// A request as bytes, sent by another user.
fn as_user(pool: &Shared, user: (&str, u32), line: &str) -> String {
    let request =
        format!("{line} HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\ncontent-length: 0\\r\\n\\r\\n");
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(30)\ns.connect(sys.argv[1])\n\
                  s.sendall(sys.argv[2].encode().decode('unicode_escape').encode())\n\
                  while d:=s.recv(65536): sys.stdout.buffer.write(d)\n";
    let mut command = Command::new("python3");
    command
        .args(["-c", script])
        .arg(pool.site.socket())
        .arg(request)
        .uid(user.1)
        .gid(user.1)
        .current_dir("/");
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}

#[test]
fn events_of_others_carry_no_secrets() {
    let Some(pool) = Shared::start() else { return };
    let mut submit = pool.command(ANA);
    submit.env("TOKEN", "pa55word").args(["run", "--", "sh", "-c", "echo 0utput-only # c0mmand-line"]);
    assert_eq!(Said::from(submit.output().unwrap()).code, 0);
    let follow = |user: (&str, u32)| {
        let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(1)\ns.connect(sys.argv[1])\n\
                      s.sendall(b'GET /v1/events HTTP/1.1\\r\\nhost: x\\r\\nlast-event-id: 0\\r\\n\\r\\n')\n\
                      try:\n while d:=s.recv(65536): sys.stdout.buffer.write(d)\nexcept TimeoutError: pass\n";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(pool.site.socket()).uid(user.1).gid(user.1).current_dir("/");
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    };
    let heard = follow(BEN);
    assert!(heard.contains("id: "), "{heard}");
    for secret in ["pa55word", "0utput-only", "c0mmand-line"] {
        assert!(!heard.contains(secret), "{secret} leaked: {heard}");
    }
    assert!(!follow(ANA).contains("pa55word"));
}

#[test]
fn the_state_directory_shows_others_nothing() {
    let Some(pool) = Shared::start() else { return };
    let mut submit = pool.command(ANA);
    submit.env("TOKEN", "pa55word").args(["run", "-d", "--hold", "--", "true"]);
    assert_eq!(Said::from(submit.output().unwrap()).code, 0);
    for path in files(&pool.site.state()) {
        let status = Command::new("cat").arg(&path).uid(BEN.1).gid(BEN.1).output().unwrap();
        assert!(!status.status.success(), "{} can be read by others", path.display());
    }
    let listed = Command::new("ls").arg(pool.site.state()).uid(BEN.1).gid(BEN.1).output().unwrap();
    assert!(!listed.status.success(), "the state directory can be listed by others");
}

/// All regular files below a directory.
fn files(directory: &std::path::Path) -> Vec<PathBuf> {
    let (folders, mut found): (Vec<PathBuf>, Vec<PathBuf>) =
        crate::site::entries(directory).into_iter().partition(|path| path.is_dir());
    found.retain(|path| path.is_file());
    found.extend(folders.iter().flat_map(|folder| files(folder)));
    found
}

#[test]
fn a_working_directory_that_the_user_cannot_enter_is_refused_at_submit() {
    let Some(pool) = Shared::start() else { return };
    let of_ben = pool.home(BEN);
    let said = pool.divvy(ANA, &["run", "-C", of_ben.to_str().unwrap(), "--", "true"]);
    assert_eq!(said.code, 65, "{said:?}");
    assert!(said.err.contains(of_ben.to_str().unwrap()) && said.err.contains(ANA.0), "{said:?}");
    assert_eq!(pool.site.say("ps -a -o json").json(), json!([]));
}

#[test]
fn output_never_follows_a_link_with_roots_eyes_or_hands() {
    let Some(pool) = Shared::start() else { return };
    let secret = pool.site.root().join("secret");
    fs::write(&secret, "r00t-only").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let link = pool.home(ANA).join("link.out");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let id = pool.divvy(ANA, &["run", "-d", "--log", "link.out", "--", "echo", "x"]).ok().to_owned();
    let code = pool.divvy(ANA, &["wait", &id]).code;
    let said = pool.divvy(ANA, &["logs", &id]);
    assert!(!said.out.contains("r00t-only"), "{said:?} after {code}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "r00t-only");
    // The file is exchanged after the job ran: it is read with the user's rights.
    let id = pool.divvy(ANA, &["run", "-d", "--log", "own.out", "--", "echo", "x"]).ok().to_owned();
    assert_eq!(pool.divvy(ANA, &["wait", &id]).code, 0);
    let own = pool.home(ANA).join("own.out");
    fs::remove_file(&own).unwrap();
    std::os::unix::fs::symlink(&secret, &own).unwrap();
    let said = pool.divvy(ANA, &["logs", &id]);
    assert!(!said.out.contains("r00t-only"), "{said:?}");
    assert!(!format!("{:?}", pool.divvy(ANA, &["show", &id])).contains("r00t-only"));
}

#[test]
fn a_user_may_not_end_the_pool_or_change_its_queues() {
    let Some(pool) = Shared::start() else { return };
    for words in [&["down"][..], &["down", "--kill"]] {
        let said = pool.divvy(BEN, words);
        assert_eq!(said.code, 77, "{said:?}");
    }
    fs::write(pool.home(BEN).join("queues.yaml"), "queues:\n  mine: {}\n").unwrap();
    let said = pool.divvy(BEN, &["apply", "-f", "queues.yaml"]);
    assert_eq!(said.code, 77, "{said:?}");
    assert_eq!(wire::get(&pool.site.socket(), "/v1/queues").as_array().unwrap().len(), 1);
}

#[test]
fn who_administers_a_queue_ends_jobs_of_others_in_it_and_sets_the_queues_below_it_and_no_others() {
    let Some(pool) = Shared::start() else { return };
    let file =
        format!("queues:\n  default:\n  lab: {{guarantee: 2, admins: ['user:{}']}}\n  lab/asr:\n", ANA.0);
    fs::write(pool.site.work().join("queues.yaml"), file).unwrap();
    pool.site.say("apply -f queues.yaml").ok();
    let submit = |queue: &str| {
        pool.divvy(BEN, &["run", "-d", "-q", queue, "-g", "1", "--", "sleep", "1000"]).ok().to_owned()
    };
    let (below, elsewhere) = (submit("lab/asr"), submit("default"));
    let refused = pool.divvy(ANA, &["cancel", &elsewhere]);
    assert_eq!(refused.code, 77, "{refused:?}");
    pool.divvy(ANA, &["cancel", &below]).ok();
    pool.divvy(ANA, &["wait", &below]);
    assert_eq!(pool.site.job(&below)["last_end"]["by"], ANA.0);
    pool.divvy(ANA, &["queues", "set", "lab/asr", "--guarantee", "1", "--weight", "3"]).ok();
    for settings in
        [&["lab", "--weight", "2"][..], &["lab/asr", "--guarantee", "3"], &["default", "--weight", "2"]]
    {
        let said = pool.divvy(ANA, &[&["queues", "set"], settings].concat());
        assert!(said.code == 77 || said.err.contains("guarantee"), "{said:?}");
    }
    let queues = wire::get(&pool.site.socket(), "/v1/queues");
    let weight = |path: &str| {
        queues.as_array().unwrap().iter().find(|it| it["queue"] == path).unwrap()["weight"].clone()
    };
    assert_eq!((weight("lab"), weight("lab/asr"), weight("default")), (json!(1), json!(3), json!(1)));
    assert_eq!(pool.divvy(BEN, &["cancel", &elsewhere]).code, 0);
}

#[test]
fn a_pool_of_an_ordinary_user_serves_that_user_alone_and_says_so() {
    if !is_root() {
        return println!("not root: cannot be other users");
    }
    let pool = Shared::start().unwrap();
    let state = pool.home(ANA).join("own");
    let mut up = pool.command(ANA);
    up.args(["up", "--detach", "--gpus", "pretend:2xH100"])
        .env("DIVVY_STATE", &state)
        .env("DIVVY_LOCKS", pool.home(ANA).join("locks"));
    let said = Said::from(up.output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    assert!(format!("{}{}", said.out, said.err).contains(ANA.0), "it says whose it is: {said:?}");
    let own = |words: &[&str]| {
        let mut command = pool.command(ANA);
        Said::from(command.args(words).env("DIVVY_STATE", &state).output().unwrap())
    };
    assert_eq!(own(&["run", "-g", "1", "--", "true"]).code, 0);
    let mut other = pool.command(BEN);
    let said = Said::from(other.args(["ps"]).env("DIVVY_STATE", &state).output().unwrap());
    assert!(said.code == 69 || said.code == 77, "{said:?}");
    let mut root = pool.site.command();
    let said = Said::from(root.args(["run", "--", "true"]).env("DIVVY_STATE", &state).output().unwrap());
    assert_eq!(said.code, 77, "root's jobs would run as the pool's user: {said:?}");
    own(&["down", "--kill"]).ok();
}

#[test]
fn names_with_control_characters_never_reach_a_terminal_raw() {
    let site = Site::start();
    let evil = "ev\x1b]0;il\x07\x1b[2J\u{202e}\u{9b}31m\r\n\x08x";
    let words = ["run", "-d", "-g", "1", "-n", evil, "--project", evil, "-l", "k=\x1b[31m", "--", "sh", "-c"];
    let said = site.divvy(words.into_iter().chain(["printf '\\033[31mraw\\033[0m\\n'; exit 0 # \x1b[2J"]));
    let taken = said.code == 0;
    let mut heard = format!("{}{}", said.out, said.err);
    if taken {
        let id = said.ok().to_owned();
        assert_eq!(site.divvy(["wait", &id]).code, 0);
        for line in ["ps -a", "ps -a -o wide", "gpus", "history --by name,project", "queues"] {
            let said = site.say(line);
            heard += &format!("{}{}", said.out, said.err);
        }
        for verb in ["show", "explain", "wait", "cancel", "hold"] {
            let said = site.divvy([verb, &id]);
            heard += &format!("{}{}", said.out, said.err);
        }
    }
    for words in [["show", "\x1b[2J"], ["wait", "\x1b[2J"], ["logs", "\x1b[2J"], ["cancel", "\x1b[2J"]] {
        let said = site.divvy(words);
        heard += &format!("{}{}", said.out, said.err);
    }
    let said = site.divvy(["run", "-q", "\x1b[31m", "-C", "/\x1b[2J", "--", "true"]);
    heard += &format!("{}{}", said.out, said.err);
    let raw: Vec<char> =
        heard.chars().filter(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}').collect();
    assert!(raw.is_empty(), "{raw:?} in {heard:?}");
}
