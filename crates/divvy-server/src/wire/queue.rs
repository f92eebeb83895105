//! Queues: what they may have and what they have, and what a new queues.yaml changes.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api as api;
use divvy_core::amount::{Amount, Limits, Resource};
use divvy_core::model::job::{JobState, Owner};
use divvy_core::model::policy::{self, Policy};
use divvy_core::model::queue::{Bounds, Budget, Member, Nodes, Queue, Users, lineage, submitters, takes};
use divvy_core::plan::{self, Entitlement};
use divvy_core::reason::{gpu_hours, shown};
use divvy_core::snapshot::Snapshot;
use divvy_core::state::{Job, Runs, State};
use divvy_core::time::Time;
use serde_json::Value;

use super::detail::requeue;
use super::users;

/// Returns all queues, by path; their budgets as of a moment.
pub(crate) fn all((state, now): (&State, Time), snapshot: &Snapshot, asker: &Owner) -> Vec<api::Queue> {
    let entitled = plan::entitlements(state, snapshot);
    let pasts = state.remembers().then(|| pasts(state));
    let past_of = |path: &str| pasts.as_ref().map(|known| known.get(path).copied().unwrap_or_default());
    let row = |queue: &Queue| {
        let past = past_of(&queue.path);
        let users =
            users::of_queue(state, snapshot, queue, (|seat: &str| entitled.get(seat).copied(), past_of));
        let row = one(queue, snapshot, (entitled.get(&queue.path), past));
        let behind = state.behind_pledge(&queue.path, state.now).map(|milli_ms| milli_ms as f64 / 3.6e9);
        let submit = names(submitters(&state.queues, &queue.path));
        let may_submit = takes(&state.queues, &queue.path, asker);
        let row = api::Queue { users, submit, may_submit, pledge_behind_gpu_hours: behind, ..row };
        with_budget((state, now), queue, row)
    };
    let mut rows: BTreeMap<&str, api::Queue> =
        state.queues.iter().map(|(path, queue)| (path.as_str(), row(queue))).collect();
    for job in state.jobs.values() {
        if let Some(row) = rows.get_mut(job.spec.queue.as_str()) {
            count(row, job, state);
        }
    }
    rows.into_values().collect()
}

/// Adds what is left of the queue's budget at a moment. What renews it by then may not be known yet.
fn with_budget((state, now): (&State, Time), queue: &Queue, row: api::Queue) -> api::Queue {
    let Some((budget, spent)) = state.budget_of(&queue.path) else { return row };
    let left = state
        .budget_left(&queue.path, now.min(spent.until).max(state.now))
        .map(|milli_ms| milli_ms as f64 / 3.6e9);
    api::Queue {
        budget_gpu_hours: Some(budget.milli_gpu_hours as f64 / 1000.0),
        budget_every: Some(budget.every.to_string()),
        budget_left_gpu_hours: left,
        budget_renews_at_ms: Some(spent.until.0),
        ..row
    }
}

/// Returns past usage and credit in device-hours, of each queue with those below it and of the users in them.
fn pasts(state: &State) -> BTreeMap<&str, (f64, f64)> {
    let mut sums: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
    for (path, record) in state.past.records() {
        for above in lineage(path) {
            let (used, credit) = sums.entry(above).or_default();
            *used += record.used_milli_ms;
            *credit += record.credit_milli_ms;
        }
    }
    let hours = |milli_ms: i128| milli_ms as f64 / 3.6e9;
    sums.into_iter().map(|(path, (used, credit))| (path, (hours(used), hours(credit)))).collect()
}

fn one(
    queue: &Queue,
    snapshot: &Snapshot,
    (entitled, past): (Option<&Entitlement>, Option<(f64, f64)>),
) -> api::Queue {
    let held = snapshot.held.get(&queue.path);
    let of = |resource: Resource| held.map_or(0, |held| held.of(&resource));
    api::Queue {
        queue: queue.path.clone(),
        limit: limits(&queue.limit),
        guarantee: guaranteed_to(queue, entitled),
        nodes: queue.nodes.said().map(nodes).unwrap_or_default(),
        borrow: limits(&queue.borrow),
        lend: limits(&queue.lend),
        weight: queue.weight,
        priority: queue.priority,
        gpu_milli_due: entitled.map(|entitled| entitled.due_milli),
        gpu_milli_borrowed: entitled
            .map_or(0, |entitled| (of(Resource::Any) - entitled.guarantee_milli).max(0)),
        gpu_milli_lent: entitled.map_or(0, |entitled| entitled.lent_milli),
        gpu_hours_used: past.map(|(used, _)| used),
        gpu_hours_credit: past.map(|(_, credit)| credit),
        requeue: Some(requeue(queue.requeue).to_owned()),
        max_priority: queue.bounds.max_priority,
        max_time_ms: queue.bounds.max_time.map(|time| time.0),
        default_time_ms: queue.bounds.default_time.map(|time| time.0),
        max_jobs: queue.bounds.max_jobs,
        user_limit: queue.users.said().map(|users| limits(&users.limit)).unwrap_or_default(),
        admins: queue.admins.said().map(|admins| names(admins)).unwrap_or_default(),
        default_for: queue.default_for.said().map(|members| names(members)).unwrap_or_default(),
        gpu_milli: u64::try_from(of(Resource::Any)).unwrap_or(0),
        cpu_milli: of(Resource::Cpu),
        memory_bytes: of(Resource::Memory),
        ..api::Queue::default()
    }
}

fn count(row: &mut api::Queue, job: &Job, state: &State) {
    let (mut waiting, mut held, mut running) = (0u64, 0u64, 0u64);
    let mut sort = |state: JobState| match state {
        JobState::Pending => waiting += 1,
        JobState::Held => held += 1,
        _ => running += 1,
    };
    match &job.runs {
        Runs::Single(run) => sort(run.state),
        Runs::Array(array) => {
            array.touched.values().for_each(|run| sort(run.state));
            let fresh = array.fresh.len();
            if array.held.is_some() { held += fresh } else { waiting += fresh }
        }
    }
    row.running += running;
    row.waiting += waiting;
    row.held += held;
    if let Some(user) = row.users.iter_mut().find(|user| user.user == job.owner.name) {
        user.running += running;
        user.waiting += waiting;
    }
    row.gpu_milli_waiting += waiting * u64::try_from(job.spec.milli_asked()).unwrap_or(0);
    if waiting > 0 {
        let waited = state.now.since(job.submitted_at).0;
        row.longest_wait_ms = Some(row.longest_wait_ms.unwrap_or(0).max(waited));
    }
}

fn limits(limits: &Limits) -> BTreeMap<String, String> {
    limits.iter().map(|(resource, amount)| (resource.to_string(), amount_text(resource, *amount))).collect()
}

/// Returns what is guaranteed, by resource; `gpu_hours` as `1500/week`.
fn guaranteed(queue: &Queue) -> BTreeMap<String, String> {
    let pledge = queue.pledge.said().map(|pledge| {
        (
            "gpu_hours".to_owned(),
            format!("{}/{}", shown(&Resource::Any, pledge.milli_gpu_hours), pledge.every),
        )
    });
    limits(&queue.guarantee).into_iter().chain(pledge).collect()
}

/// Returns the same; for a queue with nodes, `any` is what these nodes have.
fn guaranteed_to(queue: &Queue, entitled: Option<&Entitlement>) -> BTreeMap<String, String> {
    let there = entitled.filter(|_| !queue.nodes.is_unsaid());
    let there = there.map(|it| ("any".to_owned(), shown(&Resource::Any, it.guarantee_milli)));
    guaranteed(queue).into_iter().chain(there).collect()
}

/// Returns the names of nodes, or the labels that they have.
fn nodes(nodes: &Nodes) -> Vec<String> {
    match nodes {
        Nodes::Named(names) => names.iter().cloned().collect(),
        Nodes::Labelled(labels) => labels.iter().map(|(label, value)| format!("{label}={value}")).collect(),
    }
}

fn amount_text(resource: &Resource, amount: Amount) -> String {
    match amount {
        Amount::Unlimited => "unlimited".into(),
        Amount::Finite(finite) => shown(resource, finite),
    }
}

/// Returns one line per difference between the queues in force and the wanted ones.
pub(crate) fn diff(now: &BTreeMap<String, Queue>, wanted: &[Queue]) -> Vec<String> {
    let mut lines = Vec::new();
    for queue in wanted {
        match now.get(&queue.path) {
            None => lines.push(format!("+ {}{}", queue.path, summary(queue))),
            Some(before) => lines.extend(changes(before, queue)),
        }
    }
    let wanted: BTreeSet<&str> = wanted.iter().map(|queue| queue.path.as_str()).collect();
    let gone = now.keys().filter(|path| !wanted.contains(path.as_str()));
    lines.extend(gone.map(|path| format!("- {path}")));
    lines
}

/// Returns the settings of a queue: name and text of each.
fn settings(queue: &Queue) -> BTreeMap<String, String> {
    let amounts = [
        ("guarantee", guaranteed(queue)),
        ("limit", limits(&queue.limit)),
        ("borrow", limits(&queue.borrow)),
        ("lend", limits(&queue.lend)),
    ];
    let mut said = BTreeMap::new();
    for (name, amounts) in amounts {
        said.extend(amounts.into_iter().map(|(resource, amount)| (format!("{name} {resource}"), amount)));
    }
    said.insert("weight".into(), queue.weight.to_string());
    said.insert("priority".into(), queue.priority.to_string());
    said.insert("requeue".into(), requeue(queue.requeue).to_owned());
    said.insert("submit".into(), members(queue));
    said.extend(queue.admins.said().map(|admins| ("admins".into(), names(admins).join(","))));
    said.extend(queue.default_for.said().map(|it| ("default_for".into(), names(it).join(","))));
    said.extend(queue.nodes.said().map(|it| ("nodes".into(), nodes(it).join(","))));
    let Bounds { max_priority, max_time, default_time, max_jobs } = queue.bounds;
    said.extend(max_priority.map(|most| ("max_priority".into(), most.to_string())));
    said.extend(max_time.map(|most| ("max_time".into(), most.to_string())));
    said.extend(default_time.map(|usual| ("default_time".into(), usual.to_string())));
    said.extend(max_jobs.map(|most| ("max_jobs".into(), most.to_string())));
    said.extend(queue.users.said().into_iter().flat_map(of_users));
    said.extend(queue.budget.said().map(|budget| ("budget".into(), budget_text(budget))));
    said.extend(queue.within_queue.and_then(|it| Some(("within_queue".into(), word(&it)?))));
    said.extend(queue.reclaim.and_then(|it| Some(("reclaim".into(), word(&it)?))));
    said.extend(queue.borrow_evicts.map(|evicts| ("borrow_evicts".into(), evicts.to_string())));
    said
}

/// The budget in words: `2000 GPU-hours every week`, and what is carried.
fn budget_text(budget: &Budget) -> String {
    let hours = |milli| shown(&Resource::Any, milli);
    let carried = match budget.carry_milli {
        Some(0) => String::new(),
        Some(most) => format!(", {} carried", hours(most)),
        None => ", the rest carried".into(),
    };
    format!("{} every {}{carried}", gpu_hours(budget.milli_gpu_hours), budget.every)
}

/// Returns the settings for a queue's users.
fn of_users(users: &Users) -> Vec<(String, String)> {
    let Bounds { max_priority, max_time, max_jobs, .. } = users.bounds;
    let limits = limits(&users.limit).into_iter().map(|(resource, most)| (format!("limit {resource}"), most));
    let weights = users.weight.iter().map(|(user, weight)| (format!("weight {user}"), weight.to_string()));
    let mut said: Vec<(String, String)> = limits.chain(weights).collect();
    said.extend(max_priority.map(|most| ("max_priority".into(), most.to_string())));
    said.extend(max_time.map(|most| ("max_time".into(), most.to_string())));
    said.extend(max_jobs.map(|most| ("max_jobs".into(), most.to_string())));
    let said = said.into_iter().map(|(name, text)| (format!("users.{name}"), text));
    said.chain([("users".to_owned(), "divided".to_owned())]).collect()
}

/// Returns the word of a setting as it is written in the file.
fn word(setting: &impl serde::Serialize) -> Option<String> {
    Some(serde_json::to_value(setting).ok()?.as_str()?.to_owned())
}

/// Returns what applies where a setting is not given.
fn unsaid(name: &str) -> &'static str {
    match name.split(' ').next().unwrap_or_default() {
        "users" => "together",
        "users.weight" => "1",
        "users.max_priority" => "as the queue",
        "users.limit" | "users.max_time" | "users.max_jobs" => "unlimited",
        "limit" | "borrow" | "lend" => "unlimited",
        "guarantee" => "0",
        "budget" | "admins" | "default_for" | "nodes" => "none",
        "max_priority" => "below urgent",
        "default_time" => "as max_time",
        "max_time" | "max_jobs" => "unlimited",
        _ => "as the policy",
    }
}

fn summary(queue: &Queue) -> String {
    let usual = settings(&Queue::named(&queue.path));
    let said = settings(queue);
    let other = said.into_iter().filter(|(name, text)| usual.get(name) != Some(text));
    other
        .map(|(name, text)| match name.split_once(' ') {
            Some((name, resource)) => format!(" {name} {resource}={text}"),
            None => format!(" {name} {text}"),
        })
        .collect()
}

fn changes(before: &Queue, after: &Queue) -> Vec<String> {
    let (old, new) = (settings(before), settings(after));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    let line = |name: &String| {
        let from = old.get(name).map_or(unsaid(name), String::as_str);
        let to = new.get(name).map_or(unsaid(name), String::as_str);
        format!("~ {} {name}: {from} → {to}", after.path)
    };
    changed.map(line).collect()
}

/// Returns one line per setting of the planner that differs.
pub(crate) fn policy_diff(now: &Policy, wanted: &Policy) -> Vec<String> {
    let (now, wanted) = (spelled_out(now), spelled_out(wanted));
    let names: BTreeSet<&String> = now.keys().chain(wanted.keys()).collect();
    let differs = names.into_iter().filter(|name| now.get(*name) != wanted.get(*name));
    let line = |name: &String| {
        let [from, to] = [&now, &wanted].map(|said| said.get(name).map_or("none", String::as_str));
        format!("~ {name}: {from} → {to}")
    };
    differs.map(line).collect()
}

/// Returns the settings of the planner, each by its path in the file.
fn spelled_out(policy: &Policy) -> BTreeMap<String, String> {
    let mut settings = policy::said(&policy.in_force());
    let prices = settings.remove("prices").unwrap_or_default();
    let mut spelled = BTreeMap::new();
    spell("policy ", &settings.into(), &mut spelled);
    spell("prices ", &prices, &mut spelled);
    spelled
}

fn spell(path: &str, value: &Value, spelled: &mut BTreeMap<String, String>) {
    let bare = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match value {
        Value::Null => {}
        Value::Object(settings) => {
            let dot = if path.ends_with(' ') { "" } else { "." };
            settings.iter().for_each(|(name, value)| spell(&format!("{path}{dot}{name}"), value, spelled));
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(bare).collect();
            spelled.insert(path.to_owned(), items.join(","));
        }
        value => drop(spelled.insert(path.to_owned(), bare(value))),
    }
}

fn members(queue: &Queue) -> String {
    match queue.submit.len() {
        0 if queue.path.contains('/') => "as the queue above".into(),
        0 => "everyone".into(),
        _ => names(&queue.submit).join(","),
    }
}

fn names(members: &[Member]) -> Vec<String> {
    members.iter().map(ToString::to_string).collect()
}

/// Returns notices about limits that running jobs exceed already.
pub(crate) fn notices(wanted: &[Queue], snapshot: &Snapshot) -> Vec<String> {
    let over = |queue: &Queue| {
        let held = snapshot.held.get(&queue.path)?;
        let over = queue.limit.iter().find(|(resource, limit)| !limit.allows(held.of(resource)))?;
        let (resource, limit) = over;
        Some(format!(
            "{} holds {} {resource}, more than its new limit of {}: what runs, runs on; nothing more starts until it is below",
            queue.path,
            shown(resource, held.of(resource)),
            amount_text(resource, *limit)
        ))
    };
    wanted.iter().filter_map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_in_one_line_each() {
        let parse = |text| divvy_core::model::queue::parse(text).unwrap().queues;
        let now: BTreeMap<String, Queue> = parse("queues:\n  default: {limit: 8}\n  old:\n")
            .into_iter()
            .map(|queue| (queue.path.clone(), queue))
            .collect();
        let wanted = parse(
            "queues:\n  default: {limit: 4, requeue: failure, max_priority: 100}\n  vision: {limit: {h100: 2}, submit: [user:ana]}\n",
        );
        let expected = [
            "~ default limit any: 8 → 4",
            "~ default max_priority: below urgent → 100",
            "~ default requeue: lost → failure",
            "+ vision limit h100=2 submit user:ana",
            "- old",
        ];
        assert_eq!(diff(&now, &wanted), expected);
    }

    #[test]
    fn what_differs_of_the_policy_is_told_by_its_path_in_the_file() {
        let parse = |text: &str| divvy_core::model::queue::parse_policy(text).unwrap();
        let now = parse("policy: {attained: {hold: 5m}, reserve: 2}\nprices: {l4: 0.5}\n");
        let wanted = parse("policy: {attained: {levels: [1h, 2h]}, reserve: 2}\nprices: {h100: 2.90}\n");
        let told = policy_diff(&now, &wanted);
        assert!(
            told[1].starts_with("~ policy attained.levels: 2000s,") && told[1].ends_with(" → 1h,2h"),
            "{told:?}"
        );
        let rest =
            ["~ policy attained.hold: 5m → none", "~ prices h100: none → 2.9", "~ prices l4: 0.5 → none"];
        assert_eq!([&told[0], &told[2], &told[3]], rest);
        let longer = parse("policy: {quantum: 2h, surplus: line}");
        let told = policy_diff(&Policy::default(), &longer);
        assert_eq!(told, ["~ policy quantum: 1h → 2h", "~ policy surplus: share → line"]);
        let by_age = parse("policy: {moves: {first: newest}, straddling: due}");
        let told = policy_diff(&Policy::default(), &by_age);
        assert_eq!(
            told,
            ["~ policy moves.first: cheapest → newest", "~ policy straddling: guaranteed → due"]
        );
        let usual =
            parse("policy: {quantum: 1h, surplus: share, moves: {first: cheapest}, straddling: guaranteed}");
        assert!(policy_diff(&Policy::default(), &usual).is_empty());
    }
}
