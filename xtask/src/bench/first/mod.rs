//! The moment of a job's first instruction, and the clock that it is compared with.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use super::Bench;
use super::process::output;

/// A job that says when it began: see the file.
const SOURCE: &str = include_str!("first_instruction.rs");

/// A moment of CLOCK_MONOTONIC, which is one for all processes of a machine, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Moment(i64);

impl Moment {
    pub(super) fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        Self(time.tv_sec * 1_000_000_000 + time.tv_nsec)
    }

    /// Milliseconds from an earlier moment to this one.
    pub(super) fn ms_since(self, earlier: Moment) -> f64 {
        (self.0 - earlier.0) as f64 / 1e6
    }

    /// Reads what the job wrote.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let word =
            |range| bytes.get(range).and_then(|bytes: &[u8]| bytes.try_into().ok()).map(i64::from_ne_bytes);
        let both = word(0..8).zip(word(8..16)).filter(|_| bytes.len() == 16);
        let (seconds, nanoseconds) =
            both.with_context(|| format!("the job wrote {} bytes, not its 16", bytes.len()))?;
        Ok(Self(seconds * 1_000_000_000 + nanoseconds))
    }
}

/// Builds the job: a few hundred bytes of machine code, so that what is measured ends where the job begins.
pub(super) fn build(bench: &Bench) -> Result<PathBuf> {
    let source = bench.directory().join("first_instruction.rs");
    let program = bench.directory().join("first-instruction");
    std::fs::write(&source, SOURCE).with_context(|| format!("writing {}", source.display()))?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-C", "panic=abort", "-C", "opt-level=1", "-C", "strip=symbols"]);
    rustc.args(["-C", "relocation-model=static", "-C", "link-args=-nostartfiles -nostdlib -static"]);
    output(rustc.arg("-o").arg(&program).arg(&source))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_the_job_writes_it() {
        let bytes = [2i64.to_ne_bytes(), 500i64.to_ne_bytes()].concat();
        assert_eq!(Moment::read(&bytes).unwrap(), Moment(2_000_000_500));
        assert!(Moment::read(b"short").is_err());
    }
}
