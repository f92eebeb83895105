//! Where a task's output goes, how much of it is kept, and what its last lines say.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use divvy_core::action::Launch;
use divvy_core::engine::LaunchFailure;
use divvy_core::id::JobId;
use divvy_core::model::job::Output;
use rustix::fs::{FallocateFlags, OFlags};

use super::guise;

/// How much of the end of the output is searched for the device allocator's messages.
const TAIL_BYTES: u64 = 64 * 1024;

/// What the frameworks write when device memory is exhausted.
const OUT_OF_GPU_MEMORY: [&str; 8] = [
    "CUDA out of memory",
    "torch.OutOfMemoryError",
    "torch.cuda.OutOfMemoryError",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "Out of memory while trying to allocate",
    "OOM when allocating tensor",
];

/// An opened output.
#[derive(Debug)]
pub(crate) struct OpenOutput {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// Whether it is in the state directory, so that Divvy limits its size.
    pub(crate) is_kept: bool,
    /// Its size when it was opened: the part before is from earlier attempts.
    begins_at: u64,
}

/// Opens the output of a task. If the user's file cannot be opened, a file in the state directory takes its place.
pub(crate) fn open(launch: &Launch, state: &Path) -> Result<OpenOutput, LaunchFailure> {
    if let Output::Path(pattern) = &launch.process.output {
        let path = PathBuf::from(expand(pattern, launch));
        if path.is_absolute()
            && let Ok(file) = guise::as_user(&launch.owner, || open_own(&path, launch.process.umask))
        {
            return Ok(opened(file, path, false));
        }
    }
    let path = kept_output(state, launch.job, launch.rank);
    let file = open_kept(&path, launch).map_err(|error| {
        LaunchFailure::Output(format!("opening {} for the output of the job: {error}", path.display()))
    })?;
    Ok(opened(file, path, true))
}

/// Returns the file in the state directory that keeps the output of a task, over all its attempts.
pub fn kept_output(state: &Path, job: JobId, rank: u32) -> PathBuf {
    state.join("output").join(job.to_string()).join(format!("{rank}.log"))
}

fn opened(file: File, path: PathBuf, is_kept: bool) -> OpenOutput {
    let begins_at = file.metadata().map_or(0, |metadata| metadata.len());
    OpenOutput { file, path, is_kept, begins_at }
}

fn open_own(path: &Path, umask: u32) -> io::Result<File> {
    // A pipe without a reader must not block the supervisor: it counts as a file that cannot be opened.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let former = rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o666)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    rustix::process::umask(former);
    let file = file?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

fn open_kept(path: &Path, launch: &Launch) -> io::Result<File> {
    match open_in_folder(path, launch) {
        // The sweep found the folder empty and old, and removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => open_in_folder(path, launch),
        other => other,
    }
}

fn open_in_folder(path: &Path, launch: &Launch) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    if rustix::process::geteuid().is_root() {
        fchown(&file, Some(launch.owner.uid), Some(launch.owner.gid))?;
    }
    Ok(file)
}

/// Replaces `%j %A %a %x %u %t %%` by job, array, member, name, user, rank and percent; others stay as they are.
pub fn expand(pattern: &str, launch: &Launch) -> String {
    let mut expanded = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            expanded.push(c);
            continue;
        }
        match rest.next() {
            Some('j') => expanded.push_str(&launch.job.to_string()),
            Some('A') => expanded.push_str(&launch.job.number.to_string()),
            Some('a') => expanded.push_str(&launch.job.member.unwrap_or(0).to_string()),
            Some('x') => expanded.push_str(&as_file_name(&launch.name)),
            Some('u') => expanded.push_str(&as_file_name(&launch.owner.name)),
            Some('t') => expanded.push_str(&launch.rank.to_string()),
            Some('%') => expanded.push('%'),
            Some(other) => expanded.extend(['%', other]),
            None => expanded.push('%'),
        }
    }
    expanded
}

/// A name may hold anything; a part of a path must not climb, nor carry control characters into listings.
fn as_file_name(name: &str) -> String {
    let plain = |c: char| if c == '/' || c.is_control() { '_' } else { c };
    match name {
        "." | ".." => "_".repeat(name.len()),
        _ => name.chars().map(plain).collect(),
    }
}

impl OpenOutput {
    /// Returns whether the end of what this task wrote speaks of exhausted device memory.
    pub(crate) fn speaks_of_gpu_memory(&self, launch: &Launch) -> bool {
        let tail = self.tail(launch).unwrap_or_default();
        let text = String::from_utf8_lossy(&tail);
        OUT_OF_GPU_MEMORY.iter().any(|phrase| text.contains(phrase))
    }

    fn tail(&self, launch: &Launch) -> io::Result<Vec<u8>> {
        let reread = match self.is_kept {
            true => self.file.try_clone()?,
            // Ours is open for writing alone. By now the path may be another file, hence again as the user.
            false => guise::as_user(&launch.owner, || {
                let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
                OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&self.path)
            })?,
        };
        let metadata = reread.metadata()?;
        if !metadata.is_file() {
            return Ok(Vec::new());
        }
        let from = metadata.len().saturating_sub(TAIL_BYTES).max(self.begins_at.min(metadata.len()));
        let mut tail = vec![0; usize::try_from(metadata.len() - from).unwrap_or(0).min(TAIL_BYTES as usize)];
        let read = reread.read_at(&mut tail, from)?;
        tail.truncate(read);
        Ok(tail)
    }

    /// Releases the oldest part of a kept file that has grown beyond `most_bytes`. Writers and followers do not
    /// notice: its length and offsets stay.
    pub(crate) fn trim(&self, most_bytes: u64) {
        if self.is_kept {
            let _ = trim(&self.file, most_bytes);
        }
    }
}

fn trim(file: &File, most_bytes: u64) -> io::Result<()> {
    /// Holes consist of whole blocks; this is a multiple of all usual sizes.
    const BLOCK_BYTES: u64 = 64 * 1024;
    let metadata = file.metadata()?;
    if metadata.blocks().saturating_mul(512) <= most_bytes {
        return Ok(());
    }
    // Keeps a quarter less than allowed, so that a steady writer does not cause work at each look.
    let keep = most_bytes - most_bytes / 4;
    let until = metadata.len().saturating_sub(keep) / BLOCK_BYTES * BLOCK_BYTES;
    if until > 0 {
        rustix::fs::fallocate(
            file.as_fd(),
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            0,
            until,
        )?;
    }
    Ok(())
}

/// Removes kept files that nobody has written to for `age`, except those of the jobs in `alive`.
pub(crate) fn remove_old(state: &Path, age: Duration, alive: &std::collections::BTreeSet<String>) {
    let Ok(jobs) = fs::read_dir(state.join("output")) else { return };
    let Some(before) = SystemTime::now().checked_sub(age) else { return };
    let is_old =
        |metadata: io::Result<fs::Metadata>| metadata.and_then(|m| m.modified()).is_ok_and(|at| at < before);
    for job in jobs.flatten().filter(|job| job.file_name().to_str().is_some_and(|name| !alive.contains(name)))
    {
        // A young folder may be of a task that is about to make its file; removing files makes it younger.
        let is_old_folder = is_old(job.metadata());
        for file in fs::read_dir(job.path()).into_iter().flatten().flatten() {
            if is_old(file.metadata()) {
                let _ = fs::remove_file(file.path());
            }
        }
        if is_old_folder {
            // A folder with younger files stays, without harm.
            let _ = fs::remove_dir(job.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::testing::launch_record;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::io::Write;

    #[test]
    fn patterns_are_expanded() {
        let mut launch = launch_record().launch;
        (launch.job, launch.rank) = (JobId::member(12, 3), 5);
        for (pattern, path) in [
            ("/x/divvy-%j.out", "/x/divvy-12_3.out"),
            ("/x/%A-%a-%t", "/x/12-3-5"),
            ("/x/%x.%u", "/x/ft.ana"),
            ("/x/100%%%q%", "/x/100%%q%"),
        ] {
            assert_eq!(expand(pattern, &launch), path, "{pattern}");
        }
    }

    #[test]
    fn a_name_in_a_path_neither_climbs_nor_carries_control_characters() {
        let mut launch = launch_record().launch;
        for (name, path) in [("../../etc/x", "/x/.._.._etc_x"), ("..", "/x/__"), ("a\n\x1b[1m", "/x/a__[1m")]
        {
            launch.name = name.into();
            assert_eq!(expand("/x/%x", &launch), path);
        }
    }

    proptest! {
        #[test]
        fn no_pattern_makes_the_expansion_panic(pattern in ".*") {
            expand(&pattern, &launch_record().launch);
        }
    }

    #[test]
    fn a_trimmed_file_keeps_its_length_and_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).unwrap();
        for _ in 0..64 {
            file.write_all(&[b'x'; 65536]).unwrap();
        }
        file.write_all(b"the end").unwrap();
        file.sync_all().unwrap();
        let kept = opened(file, path, true);
        kept.trim(1 << 20);
        let metadata = kept.file.metadata().unwrap();
        assert_eq!(metadata.len(), 64 * 65536 + 7);
        assert!(metadata.blocks() * 512 <= 1 << 20, "{} blocks", metadata.blocks());
        let mut end = [0; 8];
        kept.file.read_at(&mut end, 64 * 65536 - 1).unwrap();
        assert_eq!(&end, b"xthe end");
    }

    #[test]
    fn old_files_go_and_those_of_running_jobs_stay() {
        let state = tempfile::tempdir().unwrap();
        let make = |job: &str, age_s: u64| {
            let folder = state.path().join("output").join(job);
            fs::create_dir_all(&folder).unwrap();
            let file = File::create(folder.join("0.log")).unwrap();
            let at = SystemTime::now() - Duration::from_secs(age_s);
            file.set_modified(at).unwrap();
            File::open(&folder).unwrap().set_modified(at).unwrap();
            folder
        };
        let (old, young, running) = (make("1", 100), make("2", 1), make("3", 100));
        remove_old(state.path(), Duration::from_secs(50), &BTreeSet::from(["3".to_owned()]));
        assert!(!old.exists());
        assert!(young.join("0.log").exists() && running.join("0.log").exists());
    }
}
