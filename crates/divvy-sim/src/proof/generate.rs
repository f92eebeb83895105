//! Pools from a seed, as lines of a scenario: nodes, queues and a policy of all kinds, jobs that run, and jobs that wait.

use crate::dice::Dice;

/// The lines of a pool.
pub fn lines(seed: u64, small: bool) -> Vec<String> {
    let mut dice = Dice::new(seed ^ 0x6578_706c_6169_6e21);
    let mut lines = vec![policy(&mut dice)];
    let names = nodes(&mut dice, small, &mut lines);
    // With dice of their own, so that all other pools stay what they were.
    let mut islands = (seed % 4 == 3).then(|| Dice::new(seed ^ 0x6973_6c61_6e64));
    for line in lines.iter_mut().filter(|line| line.starts_with("node ")) {
        islands
            .iter_mut()
            .for_each(|dice| *line += *dice.one_of(&["", " linked", " linked=2", " linked=2", " linked=4"]));
    }
    queues(&mut dice, small, &mut lines);
    let jobs = if small { dice.between(3, 14) } else { dice.between(8, 40) };
    for job in 0..jobs {
        let mut line = submit(&mut dice, job, small);
        islands.iter_mut().for_each(|dice| within_island(dice, &mut line));
        lines.push(line);
        if dice.percent(60) {
            lines.push("plan".into());
        }
        if dice.percent(15) {
            lines.push(format!("pass {}m", dice.between(1, 90)));
        }
        if dice.percent(12) {
            lines.push(format!("end j{} exit=0", dice.between(0, job)));
        }
        lines.extend(trouble(&mut dice, &names));
    }
    lines.push("plan".into());
    lines
}

fn policy(dice: &mut Dice) -> String {
    let share = if dice.percent(80) { "fill" } else { "none" };
    let preempt = match dice.below(10) {
        0..7 => "least_loss",
        7..9 => "off",
        _ => "walk",
    };
    let order = if dice.percent(85) { "arrival" } else { "attained" };
    let strict = dice.percent(15);
    format!("policy {{share: {share}, preempt: {preempt}, order: {order}, strict: {strict}}}")
}

/// Some nodes; gives their names and how many devices each has.
fn nodes(dice: &mut Dice, small: bool, lines: &mut Vec<String>) -> Vec<(String, i64)> {
    let (mut left, most) = if small { (8, 4) } else { (64, 12) };
    let mut names = Vec::new();
    for node in 0..dice.between(1, most) {
        let devices = (*dice.one_of(&[1, 2, 4, 4, 8])).min(left);
        if devices == 0 {
            break;
        }
        left -= devices;
        let model = dice.one_of(&["h100", "h100", "a100"]);
        let mut line = format!("node n{node} {devices}x{model} zone=z1 rack=r{}", node / 2);
        if dice.percent(30) {
            line += &format!(" cpu={} mem={}", dice.between(8, 40), dice.between(32, 256));
        }
        lines.push(line);
        names.push((format!("n{node}"), devices));
    }
    names
}

/// Queues of two levels; what they say varies.
fn queues(dice: &mut Dice, small: bool, lines: &mut Vec<String>) {
    let most = if small { 6 } else { 40 };
    for path in ["a", "a/b", "c", "d"] {
        let mut line = format!("queue {path}");
        for (word, percent) in [("limit", 35), ("guarantee", 45), ("lend", 10), ("borrow", 10), ("h100", 8)] {
            if dice.percent(percent) {
                line += &format!(" {word}={}", dice.between(0, most / if word == "limit" { 1 } else { 2 }));
            }
        }
        if dice.percent(10) {
            line += &format!(" cpu={}", dice.between(4, 60));
        }
        if dice.percent(20) {
            line += &format!(" weight={}", dice.between(1, 4));
        }
        lines.push(line);
    }
}

fn submit(dice: &mut Dice, job: i64, small: bool) -> String {
    let queue = dice.one_of(&["default", "a", "a/b", "c", "d"]);
    let most = if small { 4 } else { 8 };
    let devices = if dice.percent(10) { 0 } else { dice.between(1, most) };
    let tasks = if dice.percent(70) { 1 } else { dice.between(2, 4) };
    let prio = dice.one_of(&["low", "normal", "normal", "normal", "high"]);
    let mut line = format!("submit j{job} {queue} {devices} tasks={tasks} prio={prio} wait");
    let mut with = |percent: u64, text: &dyn Fn(&mut Dice) -> String| {
        if dice.percent(percent) {
            line += &format!(" {}", text(dice));
        }
    };
    with(60, &|dice| format!("limit={}m", dice.between(10, 600)));
    with(25, &|dice| format!("model={}", dice.one_of(&["h100", "a100", "b200"])));
    with(15, &|_| "fixed".into());
    with(5, &|_| "exclusive".into());
    with(5, &|_| "held".into());
    with(5, &|dice| format!("start=+{}m", dice.between(1, 60)));
    with(8, &|dice| {
        format!("after=j{}:{}", dice.between(0, job.max(1) - 1), dice.one_of(&["ok", "fail", "any"]))
    });
    with(15, &|dice| format!("cpu={}", dice.between(1, 40)));
    with(10, &|dice| format!("mem={}", dice.between(8, 300)));
    with(8, &|dice| (*dice.one_of(&["within=rack", "within=node", "near=rack"])).to_owned());
    with(10, &|dice| format!("array=0-{}", dice.between(1, 6)));
    line
}

/// Has a job require, or prefer, an island for the devices of each task.
fn within_island(dice: &mut Dice, line: &mut String) {
    let word = if dice.percent(75) { "within" } else { "near" };
    let said = format!("{word}=");
    match line.find(&said) {
        _ if dice.percent(60) => {}
        Some(at) => line.insert_str(at + said.len(), "nvlink,"),
        None => *line += &format!(" {said}nvlink"),
    }
}

/// Now and then something breaks, or is taken away.
fn trouble(dice: &mut Dice, names: &[(String, i64)]) -> Option<String> {
    let (name, devices) = names.get(dice.below(names.len() as u64) as usize)?;
    match dice.below(100) {
        0..4 => Some(format!("device {name}:{} down", dice.below(u64::try_from(*devices).ok()?))),
        4..7 => Some(format!("device {name}:{} foreign", dice.below(u64::try_from(*devices).ok()?))),
        7..10 => Some(format!("drain on {name}")),
        10 => Some("drain on".into()),
        11 => Some("drain off".into()),
        _ => None,
    }
}
