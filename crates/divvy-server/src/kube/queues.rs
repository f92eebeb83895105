//! Queues as custom resources: the fields of queues.yaml. A mistake in one leaves its last good spec in
//! force.

use std::collections::BTreeMap;

use divvy_core::controller::{Broken, Controller};
use divvy_core::decide::{Command, Rejection};
use divvy_core::model::queue::{self, Queue};
use divvy_core::time::Time;
use divvy_engine::kubernetes::QueueNews;
use divvy_engine::kubernetes::objects::{Condition, QueueObject, Usage};
use serde_json::{Value, json};

use super::admin;

/// The queues of the cluster, by the names of their objects.
#[derive(Debug, Default)]
pub(super) struct Queues {
    wanted: BTreeMap<String, QueueObject>,
    /// The last good spec of each queue.
    good: BTreeMap<String, Value>,
}

/// A message about a queue: its name, the generation that it concerns, and the condition.
pub(super) type Said = (String, i64, Condition);

/// The deepest level of a queue.
const DEEPEST: usize = 8;

impl Queues {
    /// Takes the news about queues; returns whether more has changed than what they have and used.
    pub(super) fn take(&mut self, news: Vec<QueueNews>) -> bool {
        let mut is_news = false;
        for news in news {
            is_news |= match news {
                QueueNews::Anew => {
                    self.wanted.clear();
                    true
                }
                QueueNews::Gone(name) => self.wanted.remove(&name).is_some(),
                QueueNews::Is(queue) => {
                    let said =
                        |queue: &QueueObject| (queue.metadata.generation, queue.status.conditions.clone());
                    let now = said(&queue);
                    let before = self.wanted.insert(queue.metadata.name.clone(), *queue);
                    before.is_none_or(|before| said(&before) != now)
                }
            };
        }
        is_news
    }

    /// Returns the recorded past usage of queues, by path.
    pub(super) fn kept(&self) -> impl Iterator<Item = (String, &Usage)> {
        self.wanted
            .iter()
            .filter_map(|(name, queue)| Some((self.path(name).ok()?, queue.status.usage.as_ref()?)))
    }

    /// Returns the name of a queue's object, if there is one.
    pub(super) fn name<'a>(&self, path: &'a str) -> Option<&'a str> {
        let name = path.rsplit('/').next()?;
        self.wanted.contains_key(name).then_some(name)
    }

    /// Puts the good specs in force; returns the news about each queue.
    pub(super) fn put_in_force(
        &mut self,
        controller: &mut Controller,
        now: Time,
    ) -> Result<Vec<Said>, Broken> {
        self.good.retain(|name, _| self.wanted.contains_key(name));
        let mut mistakes: BTreeMap<String, String> = BTreeMap::new();
        for (name, wanted) in &self.wanted {
            match read(name, &wanted.spec) {
                Ok(_) => drop(self.good.insert(name.clone(), wanted.spec.clone())),
                Err(what) => drop(mistakes.insert(name.clone(), what)),
            }
        }
        let mut queues: Vec<Queue> = Vec::new();
        for (name, spec) in &self.good {
            match self.path(name).and_then(|path| read(&path, spec)) {
                Ok(queue) => queues.push(queue),
                Err(what) => drop(mistakes.insert(name.clone(), what)),
            }
        }
        if !queues.iter().any(|queue| queue.path == queue::DEFAULT) {
            queues.push(Queue::named(queue::DEFAULT));
        }
        keep_what_is_used(controller, queues, now)?;
        Ok(self
            .wanted
            .values()
            .filter_map(|queue| news_of(queue, mistakes.get(&queue.metadata.name)))
            .collect())
    }

    /// Returns the path of a queue: its parents' names and its own.
    fn path(&self, name: &str) -> Result<String, String> {
        let mut line = vec![name.to_owned()];
        while let Some(parent) = self.good.get(&line[line.len() - 1]).and_then(|spec| spec["parent"].as_str())
        {
            if !self.good.contains_key(parent) {
                return Err(format!("its parent {parent:?} is not there: make it, or name another"));
            }
            if line.iter().any(|known| known == parent) || line.len() == DEEPEST {
                return Err(format!("its parents form a circle, or are more than {DEEPEST} deep"));
            }
            line.push(parent.to_owned());
        }
        line.reverse();
        Ok(line.join("/"))
    }
}

/// Reads the spec of a queue in the way of queues.yaml.
fn read(path: &str, spec: &Value) -> Result<Queue, String> {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("parent");
        // The namespace stands for the user of a pod.
        for (said, meant) in [("namespaces", "submit"), ("default_for", "default_for")] {
            if let Some(Value::Array(namespaces)) = fields.remove(said) {
                let users = namespaces.iter().filter_map(Value::as_str).map(|name| format!("user:{name}"));
                fields.insert(meant.into(), users.map(Value::from).collect());
            }
        }
    }
    // JSON is YAML, and mistakes are reported in the same words.
    let text = json!({"queues": {path: spec}}).to_string();
    let settings = queue::parse(&text).map_err(|error| error.what)?;
    settings.queues.into_iter().next().ok_or_else(|| "it says nothing".to_owned())
}

/// Sets the queues. A queue in use stays as it was until nothing waits or runs in it and nothing is reserved for it.
fn keep_what_is_used(controller: &mut Controller, mut queues: Vec<Queue>, now: Time) -> Result<(), Broken> {
    loop {
        let set = Command::SetQueues(queues.clone(), admin());
        let Err(rejection) = controller.take(&set, now)? else { return Ok(()) };
        let used = match &rejection {
            Rejection::QueueInUse { queue, .. } | Rejection::QueueReserved { queue, .. } => {
                controller.state().queues.get(queue).cloned()
            }
            _ => None,
        };
        match used {
            Some(queue) => queues.push(queue),
            None => {
                tracing::warn!("the queues were not set: {rejection}");
                return Ok(());
            }
        }
    }
}

/// Returns the condition of a queue, if it is not in its status already.
fn news_of(queue: &QueueObject, mistake: Option<&String>) -> Option<Said> {
    let (status, reason) = if mistake.is_some() { ("False", "Mistaken") } else { ("True", "InForce") };
    let message = match mistake {
        None => "it is in force as it is written".to_owned(),
        Some(what) => format!("{what}; what was good before stays in force"),
    };
    let condition =
        Condition { kind: "Accepted".into(), status: status.into(), reason: reason.into(), message };
    let said = queue.status.conditions.contains(&condition);
    (!said).then(|| (queue.metadata.name.clone(), queue.metadata.generation, condition))
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::state::State;

    fn object(name: &str, spec: Value) -> QueueNews {
        let metadata = json!({"name": name, "generation": 1});
        let queue = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        QueueNews::Is(Box::new(queue))
    }

    fn paths(controller: &Controller) -> Vec<String> {
        controller.state().queues.keys().cloned().collect()
    }

    #[test]
    fn a_mistake_leaves_the_last_good_one_in_force_and_is_said() {
        let (mut queues, mut controller) = (Queues::default(), Controller::open(State::default()));
        queues.take(vec![object("vision", json!({"weight": 3}))]);
        let said = queues.put_in_force(&mut controller, Time(1)).unwrap();
        assert_eq!((said[0].2.status.as_str(), controller.state().queues["vision"].weight), ("True", 3));
        queues.take(vec![object("vision", json!({"wieght": 4}))]);
        let said = queues.put_in_force(&mut controller, Time(2)).unwrap();
        assert!(said[0].2.message.contains("weight"), "{said:?}");
        assert_eq!(controller.state().queues["vision"].weight, 3);
    }

    #[test]
    fn a_queue_lies_below_its_parent_and_circles_are_refused() {
        let (mut queues, mut controller) = (Queues::default(), Controller::open(State::default()));
        queues.take(vec![object("vision", json!({"parent": "research"})), object("research", json!({}))]);
        queues.put_in_force(&mut controller, Time(1)).unwrap();
        assert_eq!(paths(&controller), ["default", "research", "research/vision"]);
        queues.take(vec![object("a", json!({"parent": "b"})), object("b", json!({"parent": "a"}))]);
        let said = queues.put_in_force(&mut controller, Time(2)).unwrap();
        let wrong = said.iter().filter(|(.., condition)| condition.message.contains("circle"));
        assert_eq!(wrong.count(), 2, "{said:?}");
    }
}
