//! `cargo xtask kube build`: etcd, the control plane, kubectl and kwok from Go modules.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::parts::BUILT;
use crate::cargo;

/// How to build.
#[derive(Args)]
pub(crate) struct Options {
    /// How many compilers at once; by default one per core
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// The least version of Go that the modules ask for.
const GO: (u32, u32) = (1, 26);

/// Builds what is missing and says where it lies.
pub(super) fn run(options: &Options) -> Result<()> {
    let bin = build(options.jobs)?;
    println!("in {}", bin.display());
    Ok(())
}

/// Why the test cluster cannot be built here, if it can't.
pub(super) fn needs_go() -> Option<String> {
    let found = cargo::output(Command::new("go").arg("version"));
    let text = found.map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
    let enough = go_version(&text).is_some_and(|version| version >= GO);
    let there = if text.is_empty() { "none is on the PATH" } else { text.trim() };
    (!enough).then(|| format!("the test cluster needs Go {}.{} to be built; {there}", GO.0, GO.1))
}

fn go_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(' ').nth(2)?.strip_prefix("go")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether nothing is left to build.
pub(super) fn is_done() -> Result<bool> {
    let bin = folder()?;
    Ok(BUILT.iter().all(|(name, _)| bin.join(name).exists()))
}

/// Builds the programs that are missing; returns their folder. Progress goes to standard error: the output of `up` is for a shell
/// to evaluate.
pub(super) fn build(jobs: Option<usize>) -> Result<PathBuf> {
    let bin = folder()?;
    if is_done()? {
        return Ok(bin);
    }
    if let Some(missing) = needs_go() {
        bail!("{missing}");
    }
    fs::create_dir_all(&bin).with_context(|| format!("making {}", bin.display()))?;
    let version = version()?;
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    // One after another: the later ones use what the first one compiled, and two cores and little memory are enough.
    for (number, (name, package)) in (1..).zip(BUILT) {
        let step = format!("[{number}/{}] {name}", BUILT.len());
        if bin.join(name).exists() {
            eprintln!("{step}: already built");
            continue;
        }
        eprintln!("{step}: building …");
        let started = Instant::now();
        // Built under another name and moved: an interrupted build leaves no partial program for the next build to skip.
        let partial = bin.join(format!(".{name}"));
        cargo::run(&mut go_build(package, &partial, (&version, jobs)))?;
        fs::rename(&partial, bin.join(name)).with_context(|| format!("putting {name} into its place"))?;
        eprintln!("{step}: {:.0} s", started.elapsed().as_secs_f64());
    }
    Ok(bin)
}

/// The folder of go.mod, go.sum and what the fake kubelets do.
pub(super) fn module() -> PathBuf {
    cargo::root().join("deploy/test-cluster")
}

/// Where the programs of this version lie: in the user's cache folder, for all checkouts.
pub(super) fn folder() -> Result<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME says where builds are kept")?;
    Ok(cache.join("divvy/kube").join(version()?))
}

/// The version of Kubernetes, as go.mod pins it.
fn version() -> Result<String> {
    let file = module().join("go.mod");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    pinned(&text, "k8s.io/kubernetes")
        .with_context(|| format!("{} pins no k8s.io/kubernetes", file.display()))
}

fn pinned(text: &str, module: &str) -> Option<String> {
    let mut words = text.lines().map(str::split_whitespace);
    words.find_map(|mut words| (words.next()? == module).then(|| words.next().map(str::to_owned)).flatten())
}

fn go_build(package: &str, into: &Path, (version, jobs): (&str, usize)) -> Command {
    let mut command = Command::new("nice");
    command
        .args(["go", "build", "-trimpath", "-p"])
        .arg(jobs.to_string())
        .arg("-ldflags")
        .arg(ldflags(version));
    command.arg("-o").arg(into).arg(package).current_dir(module());
    // Use the installed toolchain, and this go.mod and nothing else: no silent download of another Go.
    command.env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    command.env("GOFLAGS", "-buildvcs=false").env("CGO_ENABLED", "0");
    command
}

/// Without these the API server calls itself v0.0.0-master, which misleads every client that looks.
fn ldflags(version: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    let of = |package: &str| {
        format!(
            " -X {package}.gitVersion={version} -X {package}.gitMajor=1 -X {package}.gitMinor={minor} -X {package}.gitTreeState=clean"
        )
    };
    ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"]
        .iter()
        .fold("-s -w".to_owned(), |flags, package| flags + &of(package))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_go_mod_pins() {
        let text = "require (\n\tk8s.io/kubernetes/x v1.0.0\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n";
        assert_eq!(pinned(text, "k8s.io/kubernetes").as_deref(), Some("v1.36.3"));
        assert!(version().unwrap().starts_with("v1."));
    }

    #[test]
    fn a_go_that_is_too_old_is_no_go() {
        assert_eq!(go_version("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert!(go_version("go version go1.9 linux/amd64").unwrap() < GO);
        assert_eq!(go_version(""), None);
    }
}
