//! The flags of `run`, and how they override a job file.

use std::path::PathBuf;

use divvy_api::{CheckpointFile, Command, JobFile, RequeueWhen, Scalar, StopFile};

use crate::failure::Failure;
use crate::number::{cores, priority, size, speed, time, whole};
use crate::verbs::explain::OneObject;

const EXAMPLES: &str = "\
Examples:
  divvy run -g 1 -- python train.py          wait for a GPU, stream the output
  divvy run -d -g h100:2 -c 16 --mem 64G -q vision -p high -t 2h -n ft -- ./train
  divvy run -d --array 0-99%8 -- ./sweep     100 members, 8 at once: DIVVY_ARRAY_INDEX
  divvy run --after 12:ok -- ./evaluate      when job 12 has completed
  divvy run --tasks 4 -g 1 -- ./worker       four tasks, together or not at all
  divvy run --pty -g 1 -- bash               a shell with a GPU
  divvy run --dry-run -g 8 -- true           would it start now, and where?
  divvy run -f job.yaml                      as the file says; flags go over it

Ctrl-C cancels the job; a lost terminal only detaches from it.
-g takes a count (2), model:count (h100:2), or models:memory:count (a100,h100:40GB..80GB:2); several of these in
order of preference, too: -g h100:2,l4:4 is two H100 or, if they are not free, four L4.
Times are 90s, 30m, 2h, 1h30m, 2d; sizes 64G (10^9) and 64Gi (2^30).";

/// The values of `--requeue`.
pub(crate) const REQUEUE_WORDS: [&str; 3] = ["never", "lost", "failure"];

/// Run a job when its turn comes
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// GPUs per task
    #[arg(short, long, value_name = "GPUS", help_heading = "What it needs")]
    gpus: Option<String>,
    /// How fast it runs on each model: h100=1,a100=0.5. It takes any of these, and goes on on faster ones when they are free
    #[arg(long, value_name = "MODEL=SPEED", value_delimiter = ',', value_parser = pair, help_heading = "What it needs")]
    speed: Vec<(String, String)>,
    /// The least memory of each GPU
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size, help_heading = "What it needs")]
    gpu_memory: Option<String>,
    /// The least speed of the memory of each GPU: 900GB/s, 3.35TB/s
    #[arg(long, value_name = "SPEED", allow_hyphen_values = true, value_parser = speed, help_heading = "What it needs")]
    gpu_bandwidth: Option<String>,
    /// Cores per task
    #[arg(short, long, value_name = "CORES", allow_hyphen_values = true, value_parser = cores, help_heading = "What it needs")]
    cpus: Option<String>,
    /// Host memory per task
    #[arg(long, value_name = "SIZE", visible_alias = "memory", allow_hyphen_values = true, value_parser = size, help_heading = "What it needs")]
    mem: Option<String>,
    /// Tasks that start together or not at all
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..), help_heading = "What it needs")]
    tasks: Option<u32>,
    /// As many tasks as it may grow to while it runs; --tasks is then the least
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..), help_heading = "What it needs")]
    max_tasks: Option<u32>,
    /// Wait for capacity that the pool does not have
    #[arg(long, help_heading = "What it needs")]
    wait_for_capacity: bool,
    /// Nobody else on its nodes: it gets, and is charged for, all that they have
    #[arg(long, help_heading = "What it needs")]
    exclusive: bool,

    /// The queue
    #[arg(short, long, help_heading = "When")]
    queue: Option<String>,
    /// low, normal, high, urgent or a number
    #[arg(short, long, allow_hyphen_values = true, value_parser = priority, help_heading = "When")]
    priority: Option<String>,
    /// The longest it may run
    #[arg(short, long, value_name = "TIME", visible_alias = "time-limit", allow_hyphen_values = true, value_parser = time, help_heading = "When")]
    time: Option<String>,
    /// How long it will probably run
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time, help_heading = "When")]
    estimate: Option<String>,
    /// Jobs that must end before: 12, 12:ok, 12:fail, 12:any
    #[arg(long, value_name = "JOB[:HOW]", value_delimiter = ',', help_heading = "When")]
    after: Vec<String>,
    /// Not before: a moment (2026-11-21T18:00:00+01:00) or a time from now (2h)
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = time, help_heading = "When")]
    start_after: Option<String>,
    /// To be over by a moment, or a time from now: nothing is decided by it, `explain` says whether that looks possible
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = time, help_heading = "When")]
    deadline: Option<String>,
    /// Held until released
    #[arg(long, help_heading = "When")]
    hold: bool,
    /// Back into the queue after a bad end: lost is not its own doing, failure is any; written as --requeue=failure
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "lost", value_parser = REQUEUE_WORDS, help_heading = "When")]
    requeue: Option<String>,
    /// Never taken back for others
    #[arg(long, help_heading = "When")]
    no_preempt: bool,

    /// A name
    #[arg(short, long, help_heading = "What it is")]
    name: Option<String>,
    /// What it is charged to
    #[arg(long, help_heading = "What it is")]
    project: Option<String>,
    /// What it is for
    #[arg(long, value_parser = ["train", "infer", "interactive", "data"], help_heading = "What it is")]
    kind: Option<String>,
    /// A word for reports
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "What it is")]
    label: Vec<(String, String)>,
    /// Many members: 0-99, 0-99%8 (8 at a time), 1,3,7-9
    #[arg(long, value_name = "MEMBERS", help_heading = "What it is")]
    array: Option<String>,
    /// A job file (YAML); `-` reads standard input
    #[arg(short, long, value_name = "FILE", help_heading = "What it is")]
    pub(super) file: Option<PathBuf>,

    /// Where it starts
    #[arg(short = 'C', long, value_name = "DIR", help_heading = "How it runs")]
    chdir: Option<String>,
    /// Variables it gets from this shell: ALL, NONE or A,B
    #[arg(long, value_name = "WHICH", help_heading = "How it runs")]
    export: Option<String>,
    /// A variable; without a value, the one of this shell
    #[arg(long, value_name = "KEY[=VALUE]", help_heading = "How it runs")]
    env: Vec<String>,
    /// A file of variables
    #[arg(long, value_name = "FILE", help_heading = "How it runs")]
    env_file: Option<String>,
    /// The file for its output: %j job, %A array, %a member, %x name, %u user, %t task
    #[arg(long, value_name = "PATH", help_heading = "How it runs")]
    log: Option<String>,
    /// The signal that announces a stop
    #[arg(long, value_name = "SIGNAL", help_heading = "How it runs")]
    stop_signal: Option<String>,
    /// From that signal until everything is killed
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time, help_heading = "How it runs")]
    grace: Option<String>,
    /// Signal that asks the job to save its work before it gives way, with the time it has: USR1, or USR1:60s; it exits with 85 when done
    #[arg(long, value_name = "SIGNAL[:GRACE]", help_heading = "How it runs")]
    checkpoint: Option<String>,

    /// Queue it, print its id alone, and leave
    #[arg(short, long)]
    pub(super) detach: bool,
    /// Run it on this terminal
    #[arg(long, conflicts_with_all = ["detach", "dry_run", "array", "tasks", "max_tasks"])]
    pub(super) pty: bool,
    /// Only say whether it would start now, and where; ends with 65 if it can never start
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) format: OneObject,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write KEY=VALUE".into()),
    }
}

impl Run {
    /// Overrides the settings of the file with those of the flags.
    pub(super) fn put_over(&self, job: &mut JobFile) -> Result<(), Failure> {
        self.put_needs(job);
        self.put_times(job);
        self.put_names(job);
        self.put_ways(job)?;
        if !self.command.is_empty() {
            job.command = Some(Command::Argv(self.command.clone()));
            job.args.clear();
        }
        Ok(())
    }

    fn put_needs(&self, job: &mut JobFile) {
        put(&mut job.gpus, &self.gpus);
        let speeds = self.speed.iter().map(|(model, speed)| (model.clone(), Scalar(speed.clone())));
        job.speed.extend(speeds);
        put(&mut job.gpu_memory, &self.gpu_memory);
        put(&mut job.gpu_bandwidth, &self.gpu_bandwidth);
        put(&mut job.cpus, &self.cpus);
        put(&mut job.memory, &self.mem);
        job.tasks = self.tasks.or(job.tasks);
        job.max_tasks = self.max_tasks.or(job.max_tasks);
        job.wait_for_capacity |= self.wait_for_capacity;
        job.exclusive |= self.exclusive;
    }

    fn put_times(&self, job: &mut JobFile) {
        put(&mut job.queue, &self.queue);
        put(&mut job.priority, &self.priority);
        put(&mut job.time_limit, &self.time);
        put(&mut job.estimate, &self.estimate);
        put(&mut job.start_after, &self.start_after);
        put(&mut job.deadline, &self.deadline);
        if !self.after.is_empty() {
            job.after = self.after.iter().map(|after| Scalar(after.clone())).collect();
        }
        job.hold |= self.hold;
        if let Some(when) = &self.requeue {
            job.requeue = Some(RequeueWhen::from(when.as_str()));
        }
        if self.no_preempt {
            job.preemptible = Some(false);
        }
    }

    fn put_names(&self, job: &mut JobFile) {
        put(&mut job.name, &self.name);
        put(&mut job.project, &self.project);
        put(&mut job.kind, &self.kind);
        put(&mut job.array, &self.array);
        job.labels.extend(self.label.iter().cloned());
        if self.pty && job.kind.is_none() {
            job.kind = Some("interactive".into());
        }
    }

    fn put_ways(&self, job: &mut JobFile) -> Result<(), Failure> {
        put(&mut job.directory, &self.chdir);
        put(&mut job.export, &self.export);
        put(&mut job.env_file, &self.env_file);
        put(&mut job.log, &self.log);
        for word in &self.env {
            let (key, value) = variable(word)?;
            job.env.insert(key, value);
        }
        if let Some(text) = &self.checkpoint {
            let (notice, grace) = text.split_once(':').map_or((text.as_str(), None), |(n, g)| (n, Some(g)));
            let checkpoint = job.checkpoint.get_or_insert_with(CheckpointFile::default);
            checkpoint.notice = Some(notice.to_owned());
            checkpoint.grace = grace.map(|grace| Scalar(grace.to_owned())).or(checkpoint.grace.take());
        }
        if self.stop_signal.is_some() || self.grace.is_some() {
            let stop = job.stop.get_or_insert_with(StopFile::default);
            put(&mut stop.signal, &self.stop_signal);
            put(&mut stop.grace, &self.grace);
        }
        Ok(())
    }
}

/// `KEY=VALUE`, or `KEY` with its value in this shell.
fn variable(word: &str) -> Result<(String, String), Failure> {
    if let Some((key, value)) = word.split_once('=') {
        return Ok((key.into(), value.into()));
    }
    match std::env::var(word) {
        Ok(value) => Ok((word.into(), value)),
        Err(_) => Err(Failure::usage(format!("--env {word}: this shell has no such variable"))
            .fix(format!("give it a value: --env {word}=VALUE"))),
    }
}

fn put<T: From<String>>(place: &mut Option<T>, flag: &Option<String>) {
    if let Some(text) = flag {
        *place = Some(T::from(text.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;
    use divvy_api::read;

    fn run(words: &str) -> Run {
        let words = ["divvy", "run"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).unwrap().verb {
            Verb::Run(run) => *run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_go_over_the_file_and_leave_the_rest_of_it() {
        let mut job =
            read::job_file("command: [a]\nargs: [b]\ngpus: 1\nname: x\nlabels: {k: v}\nstop: {grace: 5s}\n")
                .unwrap();
        let flags =
            run("-g h100:2 -t 2h -l team=red --env A=b=c --stop-signal INT --requeue --no-preempt -- c d");
        flags.put_over(&mut job).unwrap();
        let expected = read::job_file(
            "command: [c, d]\ngpus: h100:2\nname: x\ntime_limit: 2h\nlabels: {k: v, team: red}\nenv: {A: b=c}\n\
             stop: {grace: 5s, signal: INT}\nrequeue: lost\npreemptible: false\n",
        );
        assert_eq!(job, expected.unwrap());
    }

    #[test]
    fn the_line_of_the_readme_is_understood() {
        let flags = run(
            "-d -g h100:2 --gpu-memory 40Gi -c 16 --mem 64G -q vision -p high -t 2h -n ft --project asr -- torchrun train.py",
        );
        let mut job = JobFile::default();
        flags.put_over(&mut job).unwrap();
        assert!(flags.detach && job.project.as_deref() == Some("asr"));
        assert_eq!(job.command.unwrap().argv(&[]), ["torchrun", "train.py"]);
        assert_eq!(job.priority.unwrap().as_str(), "high");
    }

    #[test]
    fn dependencies_may_be_listed_or_repeated() {
        let mut job = JobFile::default();
        run("--after 12:ok,13 --after 14:any -p -5 true").put_over(&mut job).unwrap();
        assert_eq!(job.after, ["12:ok".into(), "13".into(), "14:any".into()]);
        assert_eq!(job.priority, Some("-5".into()));
    }

    #[test]
    fn a_variable_without_a_value_must_be_in_the_shell() {
        assert!(variable("DIVVY_SURELY_UNSET").is_err());
        assert_eq!(variable("A=").unwrap(), ("A".into(), String::new()));
    }
}
