//! Waiting for a part to answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::process;

/// A part that has not answered after this time will not answer.
const LONGEST: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Waits until a part answers; fails with its last words if it ends or stays silent.
pub(super) fn wait_for(state: &Path, name: &str, answers: impl Fn() -> bool) -> Result<()> {
    let started = Instant::now();
    while !answers() {
        let is_over = process::running(state, name).is_none() && started.elapsed() > ANSWER_WITHIN;
        if is_over || started.elapsed() > LONGEST {
            let log = process::log_file(state, name);
            bail!(
                "{name} {}; the end of {}:\n{}",
                if is_over { "has ended" } else { "does not answer" },
                log.display(),
                process::last_words(state, name)
            );
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Whether a server says that it is well, by HTTP without TLS.
pub(super) fn is_well(port: u16, path: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}

/// Whether anybody listens.
pub(super) fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Whether the API server answers what kubectl asks of it.
pub(super) fn kubectl(bin: &Path, state: &Path, words: &[&str]) -> bool {
    let mut command = Command::new(bin.join("kubectl"));
    command.arg("--kubeconfig").arg(state.join("kubeconfig")).args(words);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
