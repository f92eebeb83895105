//! What happens on a terminal: `run --pty`, `top`, colours, the demo.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod pool;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use pool::{DIVVY, Pool, Said, finish, signal};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};

/// A command on a terminal of its own.
struct Screen {
    child: Child,
    keyboard: File,
    output: Receiver<Vec<u8>>,
    seen: String,
}

const PATIENCE: Duration = Duration::from_secs(60);

impl Screen {
    fn start(mut command: Command) -> Self {
        let master =
            rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let open =
            || -> OwnedFd { rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap() };
        command.stdin(Stdio::from(open())).stdout(Stdio::from(open())).stderr(Stdio::from(open()));
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        // SAFETY: both calls are async-signal-safe and touch no memory of this process.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(command);
        let keyboard = File::from(master);
        let output = listen(keyboard.try_clone().unwrap());
        Self { child, keyboard, output, seen: String::new() }
    }

    /// Reads until a text has appeared, and forgets everything up to its end.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let left = PATIENCE.saturating_sub(begun.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("{text:?} did not appear in {:?}", self.seen),
            }
        }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end, and returns the exit code and whatever was still shown.
    fn end(mut self) -> (i32, String) {
        let status =
            pool::within(move || self.child.wait().map(|status| (status, self.output, self.seen)).unwrap());
        let (status, output, mut seen) = status;
        while let Ok(bytes) = output.recv_timeout(Duration::from_millis(200)) {
            seen += &String::from_utf8_lossy(&bytes);
        }
        (status.code().unwrap_or(-1), seen)
    }
}

fn listen(mut master: File) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        // Reading fails once the last program on the terminal has ended.
        while let Ok(length @ 1..) = master.read(&mut bytes) {
            if sender.send(bytes[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[test]
fn a_run_with_a_terminal_is_typed_to_and_knows_the_size_of_the_window() {
    let pool = Pool::start();
    let mut command = pool.command();
    command.args([
        "run",
        "--pty",
        "-g",
        "1",
        "--",
        "sh",
        "-c",
        "tty; stty size; read line; echo got:$line; exit 6",
    ]);
    let mut screen = Screen::start(command);
    screen.expect("/dev/pts/");
    screen.expect("40 120");
    screen.type_keys("hello\r");
    screen.expect("got:hello");
    assert_eq!(screen.end().0, 6);
}

#[test]
fn in_a_terminal_of_its_own_ctrl_c_is_for_the_job() {
    let pool = Pool::start();
    let mut command = pool.command();
    command.args([
        "run",
        "--pty",
        "--",
        "sh",
        "-c",
        "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.02; done",
    ]);
    let mut screen = Screen::start(command);
    screen.expect("ready");
    screen.type_keys("\x03");
    screen.expect("caught");
    assert_eq!(screen.end().0, 3);
    assert_eq!(pool.job("1")["state"], "failed");
}

#[test]
fn top_shows_devices_and_jobs_and_gives_the_terminal_back() {
    let pool = Pool::start();
    let started = pool.gate("started");
    let id = pool.submit("-g 1 -n busybee", "echo > started; exec sleep 600");
    started.await_job();
    let mut command = pool.command();
    command.arg("top");
    let mut screen = Screen::start(command);
    screen.expect("\x1b[?1049h");
    screen.expect("PRETENDED");
    screen.expect("h100");
    screen.expect("busybee");
    // A change is shown without waiting for the next second.
    pool.divvy(["cancel", &id]).ok();
    screen.type_keys("q");
    screen.expect("\x1b[?1049l");
    assert_eq!(screen.end().0, 0);
}

#[test]
fn tables_are_coloured_on_a_terminal_only() {
    let pool = Pool::start();
    let shown = |no_color: bool| {
        let mut command = pool.command();
        command.arg("gpus");
        let mut screen = if no_color {
            let mut quiet = Command::new("env");
            quiet.arg("NO_COLOR=1").arg(DIVVY).arg("gpus").env("DIVVY_STATE", pool.state());
            Screen::start(quiet)
        } else {
            Screen::start(command)
        };
        screen.expect("h100");
        screen.end().1
    };
    assert!(shown(false).contains("\x1b["));
    assert!(!shown(true).contains("\x1b["));
}

#[test]
fn somebody_at_a_terminal_is_told_what_a_job_waits_for() {
    let pool = Pool::start();
    let (started, gate) = (pool.gate("started"), pool.gate("gate"));
    pool.submit("-g 8", "echo > started; read x < gate");
    started.await_job();
    let mut command = pool.command();
    command.args(["run", "-g", "1", "--", "echo", "my turn"]);
    let mut screen = Screen::start(command);
    screen.expect("job 2 waits: DV-");
    gate.open();
    screen.expect("my turn");
    assert_eq!(screen.end().0, 0);
}

fn demo() -> Command {
    let mut command = Command::new(DIVVY);
    command.arg("demo").stdin(Stdio::null());
    command
}

/// Throw-away pools that are there now.
fn left_behind(directory: &std::path::Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn the_demo_ends_well_and_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    let mut command = demo();
    command.env("TMPDIR", place.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = finish(command.spawn().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    for text in ["Who ran where, who waited why", "every law held", "gang", "urgent-fix", "sweep", "report"] {
        assert!(said.out.contains(text), "{text}: {said:?}");
    }
    assert!(!said.out.contains('\x1b') && !said.out.contains("cancelled"), "{said:?}");
    assert_eq!(left_behind(place.path()), 0);
}

#[test]
fn the_demo_cleans_up_when_it_is_interrupted() {
    let place = tempfile::tempdir().unwrap();
    let mut command = demo();
    command.env("TMPDIR", place.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    signal(child.id(), Signal::INT);
    let said: Said = finish(child);
    assert_eq!(said.code, 130, "{said:?}");
    assert_eq!(left_behind(place.path()), 0);
}

#[test]
fn the_demo_on_a_terminal_draws_a_live_table() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(DIVVY);
    command.arg("demo").env("TMPDIR", place.path());
    let mut screen = Screen::start(command);
    screen.expect("throw-away pool");
    // Answers the query for the cursor's position, as a terminal does.
    screen.expect("\x1b[6n");
    screen.type_keys("\x1b[6;1R");
    screen.expect("GPU 0");
    screen.expect("Who ran where");
    screen.expect("every law held");
    assert_eq!(screen.end().0, 0);
}
