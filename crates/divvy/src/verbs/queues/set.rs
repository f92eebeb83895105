//! `divvy queues set`: changes some settings of one queue.

use std::collections::BTreeMap;

use divvy_api::client::Ask;
use divvy_api::{Applied, SetQueue};
use serde_json::Value;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::{time, whole};
use crate::pool::{self, Place};
use crate::verbs::apply::{Change, show};

const EXAMPLES: &str = "\
Examples:
  divvy queues set vision --limit 8                      at most 8 GPUs
  divvy queues set vision --guarantee h100=4,any=6       of amounts, those named change
  divvy queues set vision --limit memory=512Gi --limit h100=none
  divvy queues set vision --submit user:ana,group:asr --note 'until the deadline'
  divvy queues set lab/new --create --weight 2 --dry-run

Everything else of the queue, and all others, stay as they are.
`none` takes a setting, or an amount, back.";

/// Change some settings of one queue, and show what changes
#[derive(Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Set {
    /// Its path
    queue: String,
    /// Make it if it is not there
    #[arg(long)]
    create: bool,
    /// What it gets whenever it wants it: GPUs, or RESOURCE=AMOUNT
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    guarantee: Vec<String>,
    /// What it may hold at most
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    limit: Vec<String>,
    /// What it may take beyond its guarantee
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    borrow: Vec<String>,
    /// What of its guarantee others may use while it does not
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    lend: Vec<String>,
    /// Its part of what nobody claims
    #[arg(long, value_name = "N", value_parser = whole::<u32>(..))]
    weight: Option<u32>,
    /// Before its siblings
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// The highest priority of its jobs: low, normal, high, urgent or a number
    #[arg(long, value_name = "PRIORITY", allow_negative_numbers = true)]
    max_priority: Option<String>,
    /// The longest time limit of its jobs
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    max_time: Option<String>,
    /// The time limit of its jobs that say none
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    default_time: Option<String>,
    /// How many of its jobs may wait or run at once
    #[arg(long, value_name = "N")]
    max_jobs: Option<String>,
    /// How many GPU-hours it may use in a period: 2000/week; day, week, month or a time such as 12h
    #[arg(long, value_name = "HOURS/PERIOD")]
    budget: Option<String>,
    /// What of it may be carried into the next period: GPU-hours, all or none
    #[arg(long, value_name = "HOURS")]
    budget_carry: Option<String>,
    /// Divides it among its users, with these parts: NAME=N; `none` takes that back
    #[arg(long, value_name = "USER=N", value_delimiter = ',')]
    user_weight: Vec<String>,
    /// Divides it among its users, of whom each may hold so much at most
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    user_limit: Vec<String>,
    /// How many jobs of one user may wait or run at once
    #[arg(long, value_name = "N")]
    user_max_jobs: Option<String>,
    /// The highest priority of its users' jobs
    #[arg(long, value_name = "PRIORITY", allow_negative_numbers = true)]
    user_max_priority: Option<String>,
    /// The longest time limit of its users' jobs
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    user_max_time: Option<String>,
    /// false: it is not divided among its users
    #[arg(long, value_name = "YES")]
    users: Option<bool>,
    /// When its jobs go back into the line: never, lost, failure
    #[arg(long, value_name = "WHEN")]
    requeue: Option<String>,
    /// Who may submit: user:NAME, group:NAME, or everyone
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    submit: Vec<String>,
    /// Who may end, hold and release its jobs, and set the queues below it: user:NAME, group:NAME, or none
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    admins: Vec<String>,
    /// Whose jobs go into it that name no queue: user:NAME, group:NAME, or none
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    default_for: Vec<String>,
    /// The nodes that are kept for it, with --lend 0: names, or labels that they have, LABEL=VALUE; or none
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Whose GPUs its jobs may take inside it: never, lower, lower_or_newer
    #[arg(long, value_name = "WHOSE")]
    within_queue: Option<String>,
    /// Whose GPUs its jobs may take from other queues: never, lower, any
    #[arg(long, value_name = "WHOSE")]
    reclaim: Option<String>,
    /// By what right its jobs take GPUs from others while it borrows: never, due, lower, due_or_lower, or none; of jobs up to a priority,
    /// lower=PRIORITY
    #[arg(long, value_name = "RIGHT")]
    borrow_evicts: Option<String>,
    #[command(flatten)]
    change: Change,
}

impl Set {
    pub(super) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let settings = self.settings()?;
        if settings.is_empty() && !self.create {
            return Err(Failure::usage("nothing is to be changed").fix("say what: `divvy queues set --help`"));
        }
        let wanted = SetQueue { queue: self.queue.clone(), create: self.create, settings };
        let ask = Ask::patch(self.change.path(), &wanted);
        let applied: Applied = pool::with_client(place, async |mut client| Ok(client.ask(&ask).await?))?;
        show(&applied, self.change.dry_run)
    }

    /// The given settings, by the keys of queues.yaml.
    fn settings(&self) -> Result<BTreeMap<String, Value>, Failure> {
        let mut settings = BTreeMap::new();
        let amounts = [
            ("guarantee", &self.guarantee),
            ("limit", &self.limit),
            ("borrow", &self.borrow),
            ("lend", &self.lend),
        ];
        for (name, said) in amounts.into_iter().filter(|(_, said)| !said.is_empty()) {
            settings.insert(name.to_owned(), amounts_of(name, said)?);
        }
        let words = [
            ("requeue", &self.requeue),
            ("within_queue", &self.within_queue),
            ("reclaim", &self.reclaim),
            ("max_priority", &self.max_priority),
            ("max_time", &self.max_time),
            ("default_time", &self.default_time),
        ];
        for (name, word) in words {
            settings.extend(word.as_ref().map(|word| (name.to_owned(), or_none(word))));
        }
        let count = |word: &String| word.parse::<u64>().map_or_else(|_| or_none(word), Value::from);
        settings.extend(self.max_jobs.as_ref().map(|word| ("max_jobs".to_owned(), count(word))));
        settings.extend(self.weight.map(|weight| ("weight".to_owned(), weight.into())));
        settings.extend(self.priority.map(|priority| ("priority".to_owned(), priority.into())));
        settings.extend(self.borrow_evicts.as_ref().map(|word| ("borrow_evicts".to_owned(), right_of(word))));
        settings.extend(self.of_users()?.map(|users| ("users".to_owned(), users)));
        settings.extend(self.of_budget()?.map(|budget| ("budget".to_owned(), budget)));
        let members =
            [("submit", &self.submit), ("admins", &self.admins), ("default_for", &self.default_for)];
        for (name, members) in members {
            let said = match &members[..] {
                [] => continue,
                [none] if none == "none" || none == "everyone" && name == "submit" => Value::Null,
                some => some.to_vec().into(),
            };
            settings.insert(name.to_owned(), said);
        }
        settings.extend(self.of_nodes()?.map(|nodes| ("nodes".to_owned(), nodes)));
        Ok(settings)
    }
}

impl Set {
    /// Which nodes are kept for the queue: all by name, or all by their labels.
    fn of_nodes(&self) -> Result<Option<Value>, Failure> {
        let labels: Option<serde_json::Map<String, Value>> = self
            .nodes
            .iter()
            .map(|word| word.split_once('=').map(|(label, value)| (label.to_owned(), value.into())))
            .collect();
        match (&self.nodes[..], labels) {
            ([], _) => Ok(None),
            ([none], _) if none == "none" => Ok(Some(Value::Null)),
            (_, Some(labels)) => Ok(Some(labels.into())),
            (names, None) if names.iter().any(|name| name.contains('=')) => {
                Err(Failure::usage("--nodes names nodes and labels").fix("say one or the other"))
            }
            (names, None) => Ok(Some(names.to_vec().into())),
        }
    }

    /// The given settings of the budget.
    fn of_budget(&self) -> Result<Option<Value>, Failure> {
        let mut budget = serde_json::Map::new();
        match self.budget.as_deref() {
            Some("none") => return Ok(Some(Value::Null)),
            Some(text) => {
                let (hours, every) = text.split_once('/').ok_or_else(|| {
                    Failure::usage(format!("--budget {text:?}"))
                        .fix("say HOURS/PERIOD, as 2000/week, or none")
                })?;
                budget.insert("gpu_hours".into(), hours.into());
                budget.insert("every".into(), every.into());
            }
            None => {}
        }
        budget.extend(self.budget_carry.as_ref().map(|carry| ("carry".to_owned(), carry.as_str().into())));
        Ok((!budget.is_empty()).then(|| budget.into()))
    }

    /// Whether anything is set for its users.
    fn says_of_users(&self) -> bool {
        let words = [&self.user_max_jobs, &self.user_max_priority, &self.user_max_time];
        let lists = [&self.user_limit, &self.user_weight];
        words.into_iter().any(Option::is_some) || lists.into_iter().any(|list| !list.is_empty())
    }

    /// The given settings of the users.
    fn of_users(&self) -> Result<Option<Value>, Failure> {
        if self.users == Some(false) {
            return match self.says_of_users() {
                true => Err(Failure::usage("--users false removes all that is set for its users")
                    .fix("leave the other flags for users out, or --users false")),
                false => Ok(Some(Value::Null)),
            };
        }
        let mut users = serde_json::Map::new();
        if !self.user_limit.is_empty() {
            users.insert("limit".into(), amounts_of("user-limit", &self.user_limit)?);
        }
        if !self.user_weight.is_empty() {
            users.insert("weight".into(), weights_of(&self.user_weight)?);
        }
        let count = |word: &String| word.parse::<u64>().map_or_else(|_| or_none(word), Value::from);
        users.extend(self.user_max_jobs.as_ref().map(|word| ("max_jobs".to_owned(), count(word))));
        let words = [("max_priority", &self.user_max_priority), ("max_time", &self.user_max_time)];
        users.extend(
            words.iter().filter_map(|(name, word)| Some(((*name).to_owned(), or_none(word.as_ref()?)))),
        );
        Ok((self.users == Some(true) || !users.is_empty()).then(|| users.into()))
    }
}

/// `ana=2`, `bob=none`; `none` alone takes all back.
fn weights_of(said: &[String]) -> Result<Value, Failure> {
    if said == ["none"] {
        return Ok(Value::Null);
    }
    let mut weights = serde_json::Map::new();
    for one in said {
        let weight = one.split_once('=').map(|(user, weight)| (user, or_none(weight), weight.parse::<u32>()));
        let (user, none, weight) = weight
            .ok_or_else(|| Failure::usage(format!("--user-weight {one:?}")).fix("say USER=N, as ana=2"))?;
        let weight = weight.map_or(none, Value::from);
        weights.insert(user.to_owned(), weight);
    }
    Ok(weights.into())
}

/// `due`, `true`, `lower`, `lower=high`; `none` takes it back.
fn right_of(word: &str) -> Value {
    match (word.parse::<bool>(), word.split_once('=')) {
        (Ok(is_due), _) => is_due.into(),
        (_, Some((right, priority))) => {
            let priority = priority.parse::<i32>().map_or_else(|_| priority.into(), Value::from);
            serde_json::Map::from_iter([(right.to_owned(), priority)]).into()
        }
        _ => or_none(word),
    }
}

fn or_none(word: &str) -> Value {
    if word == "none" { Value::Null } else { word.into() }
}

/// `8`, `h100=4`, `memory=none`; `none` alone takes all back.
fn amounts_of(name: &str, said: &[String]) -> Result<Value, Failure> {
    if said == ["none"] {
        return Ok(Value::Null);
    }
    let mut amounts = serde_json::Map::new();
    for one in said {
        let (resource, amount) = one.split_once('=').unwrap_or(("any", one));
        if amounts.insert(resource.to_owned(), or_none(amount)).is_some() {
            return Err(Failure::usage(format!("--{name} names {resource} twice")));
        }
    }
    Ok(amounts.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn flags_become_the_keys_of_the_file() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let set = Set {
            limit: words(&["8", "h100=none"]),
            guarantee: words(&["none"]),
            weight: Some(2),
            borrow_evicts: Some("lower=-3".into()),
            reclaim: Some("none".into()),
            submit: words(&["user:ana"]),
            budget: Some("2000/week".into()),
            user_limit: words(&["2"]),
            user_weight: words(&["ana=2", "bob=none"]),
            user_max_jobs: Some("9".into()),
            user_max_time: Some("2d".into()),
            ..Set::default()
        };
        let expected = json!({
            "limit": {"any": "8", "h100": null}, "guarantee": null, "weight": 2, "borrow_evicts": {"lower": -3},
            "reclaim": null, "submit": ["user:ana"],
            "budget": {"gpu_hours": "2000", "every": "week"},
            "users": {"limit": {"any": "2"}, "weight": {"ana": 2, "bob": null}, "max_jobs": 9, "max_time": "2d"},
        });
        assert_eq!(json!(set.settings().unwrap()), expected);
        assert!(Set { limit: words(&["8", "any=9"]), ..Set::default() }.settings().is_err());
        let none = Set { users: Some(false), ..Set::default() };
        assert_eq!(json!(none.settings().unwrap()), json!({"users": null}));
        assert!(Set { user_limit: words(&["3"]), ..none }.settings().is_err());
        let everyone = Set { submit: words(&["everyone"]), ..Set::default() };
        assert_eq!(json!(everyone.settings().unwrap()), json!({"submit": null}));
    }
}
