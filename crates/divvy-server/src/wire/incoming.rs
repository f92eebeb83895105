//! A submission: from the words of `job.yaml` to the core's types. Each problem names the field.

use std::fmt::Display;
use std::path::{Component, Path, PathBuf};

use divvy_api::{
    Command as CommandFile, JobFile, Problem, ProblemCode, RequeueWhen, RoleFile, Scalar, SpreadFile, Submit,
};
use divvy_core::amount::{Amount, MemorySize, Resource};
use divvy_core::id::JobId;
use divvy_core::model::ask::{Alternative, Ask, DeviceAsk};
use divvy_core::model::gang::Role;
use divvy_core::model::job::{
    Array, Checkpoint, Dependency, DependsOn, JobSpec, Kind, Lifetime, Output, Process, Requeue, StopOrder,
    Work, priority, usual_restarts,
};
use divvy_core::model::newer::Newer;
use divvy_core::model::queue::read_amount;
use divvy_core::model::topology::Spread;
use divvy_core::time::{Span, Time};
use divvy_engine::local::{JobEnvironment, signal_number};

use super::{affinity, gpus, lengths::length, speed, topology};

/// A submission in the core's types.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// What the user wants to run.
    pub(crate) spec: JobSpec,
    /// Whether the user set `requeue`.
    pub(crate) requeue_said: bool,
    /// The members, if it is an array.
    pub(crate) array: Option<Array>,
    /// Whether the job starts held.
    pub(crate) held: bool,
    /// The working directory.
    pub(crate) directory: PathBuf,
    /// The environment: secret.
    pub(crate) environment: JobEnvironment,
}

/// Reads a submission. The default place of the output depends on the file system: here it becomes `Output::Path`.
pub(crate) fn read(submit: Submit, now: Time) -> Result<Incoming, Problem> {
    let job = &submit.job;
    let directory = directory(&submit)?;
    let output = output(&submit, &directory);
    let roles = roles(job, &process(&submit, &directory, output)?)?;
    speed::refuse_without_gpus(job, &roles)?;
    let name = name(job, &roles);
    let array = job.array.as_ref().map(|text| parsed::<Array>("array", text)).transpose()?;
    let kind = job.kind.as_deref().map(kind).transpose()?.unwrap_or_default();
    let spec = JobSpec {
        name,
        queue: job.queue.clone().unwrap_or_default(),
        project: job.project.clone(),
        kind,
        labels: job.labels.clone(),
        priority: job.priority.as_ref().map(read_priority).transpose()?.unwrap_or(priority::NORMAL),
        preemptible: job.preemptible.unwrap_or(true),
        resumable: job.resumable.unwrap_or(false),
        lifetime: Lifetime::Batch,
        gang: topology::gang(
            roles,
            topology::said(job.topology.as_ref(), "topology")?.tasks,
            spread(job.spread.as_ref(), "")?,
        )
        .into(),
        time_limit: span("time_limit", &job.time_limit)?,
        estimate: span("estimate", &job.estimate)?,
        requeue: requeue(job)?.unwrap_or_default(),
        most_restarts: job.max_restarts.unwrap_or_else(usual_restarts),
        after: job
            .after
            .iter()
            .enumerate()
            .map(|(at, text)| dependency(at, text))
            .collect::<Result<_, _>>()?,
        start_after: job
            .start_after
            .as_ref()
            .map(|text| moment("start_after", text.as_str(), now))
            .transpose()?,
        deadline: Newer(deadline(job, now)?),
        preempts: Newer::default(),
        stop: stop(job)?,
        checkpoint: checkpoint(job)?,
        wait_for_capacity: job.wait_for_capacity,
        exclusive: job.exclusive,
        seat: Newer::default(),
        kept_to: Newer::default(),
    };
    bounded(&spec)?;
    let (requeue_said, held) = (job.requeue.is_some(), job.hold);
    Ok(Incoming { spec, requeue_said, array, held, directory, environment: environment(submit) })
}

/// Makes the problem with a value, and names its field.
pub(crate) fn bad(field: impl Into<String>, what: impl Display) -> Problem {
    Problem::new(ProblemCode::BadSpec, what.to_string()).with_field(field)
}

pub(super) fn parsed<T>(field: &str, text: &Scalar) -> Result<T, Problem>
where
    T: std::str::FromStr,
    T::Err: Display,
{
    text.as_str().parse().map_err(|error| bad(field, error))
}

fn span(field: &str, text: &Option<Scalar>) -> Result<Option<Span>, Problem> {
    text.as_ref().map(|text| length(field, text.as_str())).transpose()
}

/// Short limit for texts that appear in every listing.
const LONGEST_WORD_BYTES: usize = 200;

fn bounded(spec: &JobSpec) -> Result<(), Problem> {
    let words =
        [("name", Some(&spec.name)), ("queue", Some(&spec.queue)), ("project", spec.project.as_ref())];
    for (field, word) in words {
        if word.is_some_and(|word| word.len() > LONGEST_WORD_BYTES) {
            return Err(bad(field, format!("it has more than {LONGEST_WORD_BYTES} bytes")));
        }
    }
    let long = |text: &String| text.len() > LONGEST_WORD_BYTES;
    if spec.labels.len() > 64 || spec.labels.iter().any(|(key, value)| long(key) || long(value)) {
        return Err(bad(
            "labels",
            format!("at most 64 labels, keys and values of at most {LONGEST_WORD_BYTES} bytes"),
        ));
    }
    Ok(())
}

fn name(job: &JobFile, roles: &[Role]) -> String {
    let program = roles.iter().find_map(|role| match &role.work {
        Work::Process(process) => process.argv.first(),
        Work::External(_) => None,
    });
    let file = |program: &String| {
        Path::new(program).file_name().map(|name| name.to_string_lossy().chars().take(60).collect())
    };
    let own = job.name.clone().filter(|name| !name.is_empty());
    own.or_else(|| program.and_then(file)).unwrap_or_else(|| "job".into())
}

fn kind(text: &str) -> Result<Kind, Problem> {
    match text {
        "train" => Ok(Kind::Train),
        "infer" => Ok(Kind::Infer),
        "interactive" => Ok(Kind::Interactive),
        "data" => Ok(Kind::Data),
        other => Err(bad("kind", format!("{other:?} is no kind: write train, infer, interactive or data"))),
    }
}

pub(crate) fn read_priority(text: &Scalar) -> Result<i32, Problem> {
    let wrong = || {
        bad(
            "priority",
            format!("{:?} is no priority: write low, normal, high, urgent or a whole number", text.as_str()),
        )
    };
    priority::parse(text.as_str()).ok_or_else(wrong)
}

fn deadline(job: &JobFile, now: Time) -> Result<Option<Time>, Problem> {
    let at = job.deadline.as_ref().map(|text| moment("deadline", text.as_str(), now)).transpose()?;
    match at {
        Some(at) if at <= now => Err(bad("deadline", "has passed: name a later one".to_owned())),
        at => Ok(at),
    }
}

fn requeue(job: &JobFile) -> Result<Option<Requeue>, Problem> {
    Ok(match &job.requeue {
        None => None,
        Some(RequeueWhen::Never) => Some(Requeue::Never),
        Some(RequeueWhen::Lost) => Some(Requeue::Lost),
        Some(RequeueWhen::Failure) => Some(Requeue::Failure),
        Some(RequeueWhen::Other(word)) => {
            return Err(bad("requeue", format!("{word:?} is not known: write never, lost or failure")));
        }
    })
}

fn dependency(at: usize, text: &Scalar) -> Result<Dependency, Problem> {
    let (job, on) = text.as_str().split_once(':').unwrap_or((text.as_str(), "ok"));
    let field = || format!("after[{at}]");
    let on = match on {
        "ok" => DependsOn::Ok,
        "fail" => DependsOn::Fail,
        "any" => DependsOn::Any,
        other => {
            return Err(bad(
                field(),
                format!("{other:?} is no way to end: write {job}:ok, {job}:fail or {job}:any"),
            ));
        }
    };
    Ok(Dependency { job: job.parse::<JobId>().map_err(|error| bad(field(), error))?, on })
}

/// Reads a moment, or a length of time from now.
pub(super) fn moment(field: &str, text: &str, now: Time) -> Result<Time, Problem> {
    if let Ok(span) = text.parse::<Span>() {
        return Ok(now + span);
    }
    let moment = text.parse::<jiff::Timestamp>().map(|at| Time(at.as_millisecond()));
    let what =
        format!("{text:?} is no moment: write 2026-11-21T18:00:00+01:00, or a time from now such as 2h");
    moment.map_err(|_| bad(field, what))
}

fn stop(job: &JobFile) -> Result<StopOrder, Problem> {
    let mut order = StopOrder::default();
    let Some(stop) = &job.stop else { return Ok(order) };
    if let Some(signal) = &stop.signal {
        signal_number(signal).ok_or_else(|| {
            bad("stop.signal", format!("{signal:?} is no signal: write TERM, INT, USR1, …"))
        })?;
        order.signal = signal.trim_start_matches("SIG").to_owned().into();
    }
    if let Some(grace) = &stop.grace {
        order.grace_ms = parsed::<Span>("stop.grace", grace)?.0;
    }
    Ok(order)
}

fn checkpoint(job: &JobFile) -> Result<Option<Checkpoint>, Problem> {
    let Some(asked) = &job.checkpoint else { return Ok(None) };
    let notice = asked.notice.as_deref().unwrap_or("USR1");
    let is_heard = |signal: &i32| ![libc::SIGKILL, libc::SIGSTOP].contains(signal);
    signal_number(notice).filter(is_heard).ok_or_else(|| {
        bad("checkpoint.notice", format!("{notice:?} is no signal that a job can catch: write USR1, INT, …"))
    })?;
    let span =
        |field, text: &Option<Scalar>| text.as_ref().map(|text| parsed::<Span>(field, text)).transpose();
    let grace_ms = span("checkpoint.grace", &asked.grace)?.map_or(60_000, |grace| grace.0);
    if !(0..=86_400_000).contains(&grace_ms) {
        return Err(bad("checkpoint.grace", "write a time from 0s to 1d"));
    }
    Ok(Some(Checkpoint {
        notice: notice.trim_start_matches("SIG").to_owned(),
        grace_ms,
        every_ms: span("checkpoint.every", &asked.every)?.map(|every| every.0),
    }))
}

fn directory(submit: &Submit) -> Result<PathBuf, Problem> {
    let base = Path::new(&submit.directory);
    if !base.is_absolute() {
        return Err(bad(
            "directory",
            format!("the directory of the submission, {:?}, is not absolute", submit.directory),
        ));
    }
    let whole =
        submit.job.directory.as_ref().map_or_else(|| base.to_owned(), |directory| base.join(directory));
    if whole.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(bad("directory", "it holds a NUL byte"));
    }
    // `.` is dropped; `..` stays, since only the file system knows where it leads.
    Ok(whole.components().filter(|part| *part != Component::CurDir).collect())
}

fn output(submit: &Submit, directory: &Path) -> Output {
    match &submit.job.log {
        Some(log) => Output::Path(directory.join(log).to_string_lossy().into_owned()),
        None if submit.attached => Output::Kept,
        None => Output::Path(directory.join("divvy-%j.out").to_string_lossy().into_owned()),
    }
}

fn process(submit: &Submit, directory: &Path, output: Output) -> Result<Process, Problem> {
    let directory = directory.to_str().ok_or_else(|| bad("directory", "it is not text"))?.to_owned();
    let limits = submit.limits.iter().map(|limit| (limit.name.clone(), limit.soft, limit.hard)).collect();
    Ok(Process {
        argv: Vec::new(),
        directory,
        output,
        umask: submit.umask & 0o777,
        limits,
        terminal: submit.terminal.clone(),
    })
}

fn roles(job: &JobFile, process: &Process) -> Result<Vec<Role>, Problem> {
    if job.roles.is_empty() {
        let (name, tasks, max_tasks) = ("main".into(), job.tasks, job.max_tasks);
        let alone = RoleFile { name, tasks, max_tasks, ..RoleFile::default() };
        return Ok(vec![role(job, &alone, "", process)?]);
    }
    if job.tasks.is_some_and(|tasks| tasks != 1) || job.max_tasks.is_some() {
        return Err(bad(
            "tasks",
            "a job with roles has its tasks there: write `tasks` in each role, not beside them",
        ));
    }
    let mut roles: Vec<Role> = Vec::new();
    for (at, file) in job.roles.iter().enumerate() {
        let prefix = format!("roles[{at}].");
        if file.name.is_empty() || roles.iter().any(|role| role.name == file.name) {
            return Err(bad(format!("{prefix}name"), "each role needs a name of its own"));
        }
        roles.push(role(job, file, &prefix, process)?);
    }
    Ok(roles)
}

fn role(job: &JobFile, role: &RoleFile, prefix: &str, process: &Process) -> Result<Role, Problem> {
    let tasks = role.tasks.unwrap_or(1);
    if tasks == 0 {
        return Err(bad(format!("{prefix}tasks"), "at least one task has to run"));
    }
    let maximum = role.max_tasks.unwrap_or(tasks);
    if maximum < tasks {
        return Err(bad(format!("{prefix}max_tasks"), "no less than the tasks that it starts with"));
    }
    let (command, args) = match &role.command {
        Some(command) => (Some(command), &role.args),
        None if role.args.is_empty() => (job.command.as_ref(), &job.args),
        None => (job.command.as_ref(), &role.args),
    };
    let argv = command.map(|command: &CommandFile| command.argv(args)).unwrap_or_default();
    if argv.first().is_none_or(String::is_empty) || command.is_some_and(CommandFile::is_blank) {
        return Err(bad(format!("{prefix}command"), "there is nothing to run")
            .with_fix("write `command: …`, or the command behind `--`"));
    }
    let own = topology::said(role.topology.as_ref(), &format!("{prefix}topology"))?;
    let of_job = topology::said(job.topology.as_ref(), "topology")?;
    let spread = spread(role.spread.as_ref(), prefix)?;
    let affinity = affinity::affinity(job, role, prefix)?.into_said();
    let mut ask = Ask { affinity, ..Ask::of(speed::ways(job, alternatives(job, role, prefix)?, prefix)?) };
    ask.lie(own.devices.or(of_job.devices));
    let work = Work::Process(Process { argv, ..process.clone() });
    Ok(Role { name: role.name.clone(), minimum: tasks, maximum, ask, work, topology: own.tasks, spread })
}

/// Returns the ways in which a task may be served, the preferred way first.
fn alternatives(job: &JobFile, role: &RoleFile, prefix: &str) -> Result<Vec<Alternative>, Problem> {
    let or = |own: &Option<Scalar>, jobs: &Option<Scalar>| own.clone().or_else(|| jobs.clone());
    let field = |name: &str| format!("{prefix}{name}");
    let asked = role.gpus.as_ref().or(job.gpus.as_ref());
    let devices = gpus::ways(asked, &gpus::Least::of(job, role, asked), prefix)?;
    let cpu_milli = or(&role.cpus, &job.cpus).map(|text| {
        let read = read_amount(&Resource::Cpu, text.as_str());
        let finite =
            read.ok().and_then(|amount| if let Amount::Finite(milli) = amount { Some(milli) } else { None });
        let what =
            || bad(field("cpus"), format!("{:?} is no number of cores: write 4 or 0.5", text.as_str()));
        finite.filter(|milli| *milli > 0).ok_or_else(what)
    });
    let memory_bytes = or(&role.memory, &job.memory)
        .map(|text| parsed::<MemorySize>(&field("memory"), &text).map(|size| size.0));
    let (cpu_milli, memory_bytes) = (cpu_milli.transpose()?, memory_bytes.transpose()?);
    if memory_bytes == Some(0) {
        return Err(bad(field("memory"), "nothing runs without memory: write 4G or 512Mi"));
    }
    let one = Alternative { cpu_milli, memory_bytes, speed_percent: 100, ..Alternative::default() };
    if devices.is_empty() {
        return Ok(vec![one]);
    }
    let way = |ask: DeviceAsk| Alternative { devices: Some(ask), ..one.clone() };
    Ok(devices.into_iter().map(way).collect())
}

/// Reads how tasks are spread. A job that gives `most` requires it, unless it says that it only prefers it.
fn spread(file: Option<&SpreadFile>, prefix: &str) -> Result<Newer<Spread>, Problem> {
    let Some(SpreadFile { over, most, required }) = file.cloned() else { return Ok(Newer::default()) };
    if over.is_empty() || over.len() > LONGEST_WORD_BYTES {
        let what = "it is the level over which tasks are spread: `rack`, `node`, or another that the pool's nodes name";
        return Err(bad(format!("{prefix}spread.over"), what));
    }
    if most == Some(0) {
        return Err(bad(
            format!("{prefix}spread.most"),
            "nothing can start with none in each: 1 is the least",
        ));
    }
    if required == Some(true) && most.is_none() {
        return Err(bad(
            format!("{prefix}spread.required"),
            "without `most` it is a wish, and never required",
        )
        .with_fix("say how many may lie together at most (`most: 2`), or leave `required` out"));
    }
    Ok(Newer(Some(Spread { over, most, required: most.is_some() && required.unwrap_or(true) })))
}

/// The values go into a file of their own, never into the log.
fn environment(submit: Submit) -> JobEnvironment {
    let mut base = submit.environment;
    base.extend(submit.job.env);
    let roles = submit.job.roles.into_iter().filter(|role| !role.env.is_empty());
    JobEnvironment { base, roles: roles.map(|role| (role.name, role.env)).collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use divvy_core::model::gang::Group;
    use divvy_core::model::topology::TopologyAsk;

    fn submission(job: serde_json::Value) -> Submit {
        let text = serde_json::json!({"job": job, "directory": "/data", "environment": {"TOKEN": "s3cret"}});
        divvy_api::read::json(text.to_string().as_bytes()).unwrap()
    }

    fn incoming(job: serde_json::Value) -> Incoming {
        read(submission(job), Time(1000)).unwrap()
    }

    fn problem(job: serde_json::Value) -> (String, String) {
        let problem = read(submission(job), Time(0)).unwrap_err();
        assert_eq!(problem.code, ProblemCode::BadSpec);
        (problem.field.unwrap_or_default(), problem.detail)
    }

    #[test]
    fn a_command_alone_is_a_job_of_one_task_named_after_its_program() {
        let read = incoming(serde_json::json!({"command": ["/usr/bin/python3", "x.py"]}));
        assert_eq!(
            (read.spec.name.as_str(), read.spec.queue.as_str(), read.spec.gang.tasks()),
            ("python3", "", 1)
        );
        let Group::Role(role) = &*read.spec.gang else { panic!() };
        let Work::Process(process) = &role.work else { panic!() };
        assert_eq!((process.argv.len(), process.directory.as_str()), (2, "/data"));
        assert_eq!(process.output, Output::Path("/data/divvy-%j.out".into()));
        assert!(role.ask.alternatives[0].devices.is_none());
    }

    #[test]
    fn everything_that_can_be_said_arrives() {
        let read = incoming(serde_json::json!({
            "command": "make", "name": "n", "gpus": "RTX-4090,h100:40GB..80GB:2", "gpu_memory": "40Gi", "gpu_bandwidth": "1.5TB/s", "cpus": 0.5, "memory": "64G",
            "queue": "vision", "priority": "high", "time_limit": "2h", "requeue": "failure", "after": ["12", "13:fail"], "array": "0-9%2",
            "start_after": "1s", "stop": {"signal": "SIGINT", "grace": "3s"}, "directory": "sub", "log": "logs/%j", "tasks": 3, "hold": true,
        }));
        let spec = &read.spec;
        assert_eq!(
            (spec.priority, spec.time_limit, spec.requeue, spec.start_after),
            (100, Some(Span(7_200_000)), Requeue::Failure, Some(Time(2000)))
        );
        assert_eq!(
            (spec.after.len(), spec.after[1].on, &*spec.stop.signal, spec.stop.grace_ms),
            (2, DependsOn::Fail, "INT", 3000)
        );
        let role = spec.gang.roles()[0];
        let alternative = &role.ask.alternatives[0];
        let devices = alternative.devices.as_ref().unwrap();
        assert_eq!(
            (devices.class.models.join(","), devices.count, devices.class.least_memory_mib),
            ("rtx4090,h100".into(), 2, Some(40_960))
        );
        assert_eq!(devices.class.least_gb_s.0, Some(1500));
        assert_eq!(
            (alternative.cpu_milli, alternative.memory_bytes, role.minimum),
            (Some(500), Some(64_000_000_000), 3)
        );
        let Work::Process(process) = &role.work else { panic!() };
        assert_eq!(
            (process.argv.join(" "), process.output.clone()),
            ("sh -c make".into(), Output::Path("/data/sub/logs/%j".into()))
        );
        assert!(read.held && read.requeue_said && read.array.is_some());
        assert_eq!(read.directory, Path::new("/data/sub"));
    }

    #[test]
    fn what_the_job_says_of_topology_holds_for_all_its_roles_together() {
        let within = |level| serde_json::json!({"within": level, "required": true});
        let alone = incoming(serde_json::json!({"command": "x", "tasks": 2, "topology": within("rack")}));
        assert_eq!(alone.spec.gang.topology(), Some(&TopologyAsk::within("rack", true)));
        let read = incoming(serde_json::json!({
            "command": "x", "topology": within("zone"), "roles": [{"name": "a", "topology": {"within": "node"}}, {"name": "b"}],
        }));
        assert_eq!(read.spec.gang.topology(), Some(&TopologyAsk::within("zone", true)));
        let own: Vec<_> = read.spec.gang.roles().iter().map(|role| role.topology.clone()).collect();
        assert_eq!(own, [Some(TopologyAsk::within("node", false)), None]);
    }

    #[test]
    fn what_the_job_says_of_the_devices_of_a_task_holds_for_each_role_that_says_nothing_else() {
        let read = incoming(serde_json::json!({
            "command": "x", "gpus": "h100:2,l4:4", "topology": {"within": "nvlink", "required": true},
            "roles": [{"name": "a"}, {"name": "b", "topology": [{"within": "node", "required": true}, {"within": "numa"}]}, {"name": "c", "gpus": 0}],
        }));
        let own = |role: &Role| {
            (role.topology.is_some(), role.ask.island().map(|it| (it.level.name(), it.required)))
        };
        let own: Vec<_> = read.spec.gang.roles().into_iter().map(own).collect();
        assert_eq!(own, [(false, Some(("nvlink", true))), (true, Some(("numa", false))), (false, None)]);
        assert!(
            read.spec.gang.roles()[0].ask.alternatives.iter().all(|it| it
                .devices
                .as_ref()
                .unwrap()
                .required_island()
                .is_some())
        );
    }

    #[test]
    fn what_the_job_says_of_each_gpu_holds_for_the_roles_that_have_some() {
        let read = incoming(serde_json::json!({
            "command": "x", "gpu_memory": "40Gi", "roles": [{"name": "a", "gpus": 1}, {"name": "b"}, {"name": "c", "gpus": 0}],
        }));
        let memory = |role: &Role| role.ask.alternatives[0].devices.as_ref()?.class.least_memory_mib;
        let each: Vec<_> = read.spec.gang.roles().into_iter().map(memory).collect();
        assert_eq!(each, [Some(40 << 10), None, None]);
        let role = serde_json::json!({"name": "b", "gpu_memory": "40Gi"});
        assert_eq!(problem(serde_json::json!({"command": "x", "roles": [role]})).0, "roles[0].gpu_memory");
    }

    #[test]
    fn a_spread_is_that_of_the_whole_job_and_of_each_role_that_says_one() {
        let read = incoming(serde_json::json!({
            "command": "x", "spread": {"over": "rack", "most": 2}, "roles": [
                {"name": "a", "spread": {"over": "node", "most": 1, "required": false}}, {"name": "b", "spread": {"over": "zone", "required": false}}, {"name": "c"},
            ],
        }));
        let said: Vec<_> =
            read.spec.gang.spreads().into_iter().map(|(ranks, spread, _)| (ranks, spread.clone())).collect();
        let spread = |over: &str, most, required| Spread { over: over.into(), most, required };
        let (all, first) = (spread("rack", Some(2), true), spread("node", Some(1), false));
        assert_eq!(said, [(0..3, all.clone()), (0..1, first), (1..2, spread("zone", None, false))]);
        let alone =
            incoming(serde_json::json!({"command": "x", "tasks": 4, "spread": {"over": "rack", "most": 2}}));
        assert_eq!(alone.spec.gang.spread(), Some(&all));
    }

    #[test]
    fn a_spread_that_makes_no_sense_is_refused_by_its_field() {
        let said = |spread: serde_json::Value| problem(serde_json::json!({"command": "x", "spread": spread}));
        assert_eq!(said(serde_json::json!({"most": 1})).0, "spread.over");
        assert_eq!(said(serde_json::json!({"over": "rack", "most": 0})).0, "spread.most");
        let (field, what) = said(serde_json::json!({"over": "rack", "required": true}));
        assert_eq!(
            (field.as_str(), what.as_str()),
            ("spread.required", "without `most` it is a wish, and never required")
        );
        let role = serde_json::json!({"name": "a", "spread": {"over": "", "most": 1}});
        assert_eq!(problem(serde_json::json!({"command": "x", "roles": [role]})).0, "roles[0].spread.over");
    }

    #[test]
    fn no_value_of_the_environment_gets_into_what_is_logged() {
        let read = incoming(serde_json::json!({
            "command": "x", "env": {"A": "s3cret"}, "roles": [{"name": "a", "env": {"B": "s3cret"}}, {"name": "b", "tasks": 2}],
        }));
        assert!(!serde_json::to_string(&read.spec).unwrap().contains("s3cret"));
        assert_eq!(read.environment.base.len(), 2);
        assert_eq!(read.environment.roles["a"]["B"], "s3cret");
        assert_eq!(read.spec.gang.tasks(), 3);
    }

    #[test]
    fn each_problem_names_its_field() {
        let cases = [
            (serde_json::json!({"command": "x", "gpus": "h100:"}), "gpus"),
            (serde_json::json!({"command": "x", "time_limit": "60"}), "time_limit"),
            (serde_json::json!({"command": "x", "cpus": "many"}), "cpus"),
            (serde_json::json!({"command": "x", "cpus": 0}), "cpus"),
            (serde_json::json!({"command": "x", "gpu_memory": "40Gi"}), "gpu_memory"),
            (serde_json::json!({"command": "x", "gpus": 1, "gpu_memory": 40}), "gpu_memory"),
            (serde_json::json!({"command": "x", "gpu_bandwidth": "1TB/s"}), "gpu_bandwidth"),
            (serde_json::json!({"command": "x", "gpus": 1, "gpu_bandwidth": "1000"}), "gpu_bandwidth"),
            (serde_json::json!({"command": "x", "speed": {"h100": 1}}), "speed"),
            (serde_json::json!({"command": "x", "after": ["1", "2:maybe"]}), "after[1]"),
            (serde_json::json!({"command": "x", "roles": [{"name": "a"}, {"name": "a"}]}), "roles[1].name"),
            (serde_json::json!({"command": "x", "roles": [{"name": "a", "memory": 64}]}), "roles[0].memory"),
            (serde_json::json!({"roles": [{"name": "a"}]}), "roles[0].command"),
            (serde_json::json!({"command": "x", "tasks": 2, "roles": [{"name": "a"}]}), "tasks"),
            (serde_json::json!({"command": "x", "tasks": 2, "max_tasks": 1}), "max_tasks"),
            (serde_json::json!({"command": "x", "stop": {"signal": "BANG"}}), "stop.signal"),
            (serde_json::json!({"command": "x", "requeue": "sometimes"}), "requeue"),
            (serde_json::json!({"command": []}), "command"),
            (serde_json::json!({"command": "x", "kind": "fun"}), "kind"),
            (serde_json::json!({"command": "x", "start_after": "tomorrow"}), "start_after"),
        ];
        for (job, field) in cases {
            let (found, detail) = problem(job.clone());
            assert_eq!(found, field, "{job} {detail}");
        }
    }

    proptest! {
        #[test]
        fn no_words_make_the_reader_panic(words in proptest::collection::vec("\\PC{0,20}", 8), tasks: Option<u32>) {
            let job = serde_json::json!({"command": [words[0]], "gpus": words[1], "memory": words[2], "cpus": words[3], "after": [words[4]],
                "array": words[5], "start_after": words[6], "time_limit": words[7], "tasks": tasks});
            let _ = read(submission(job), Time(0));
        }
    }
}
