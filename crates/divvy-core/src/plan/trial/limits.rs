//! Part of a trial: what queues may hold at most, with what they hold by the snapshot and what the trial has taken and released.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Mark, Step, Trial};
use crate::amount::{Amount, Holdings, Limits, Resource};
use crate::id::DeviceId;
use crate::model::allocation::Placement;
use crate::model::ask::Alternative;
use crate::model::job::JobSpec;
use crate::model::queue::lineage;
use crate::reason::Reason;
use crate::snapshot::count_drawn;
use crate::state::counted;

/// What limits the queues that anybody has asked about: whoever tries a job asks several times.
pub(super) type Bounds<'a> = BTreeMap<Rc<str>, Limited<'a>>;

/// The limits of a queue and of those above it, from the queue upwards, and how much of its path each is for. Only those that limit
/// anything.
type Limited<'a> = Rc<[(usize, &'a Limits)]>;

impl<'a> Trial<'a> {
    /// What limits a queue.
    fn limits(&self, queue: &str) -> Limited<'a> {
        self.look_up(queue).1
    }

    /// The queue, if something limits it: only there it matters what it holds.
    pub(super) fn limited(&self, queue: &str) -> Option<Rc<str>> {
        if !self.is_limited {
            return None;
        }
        let (queue, limits) = self.look_up(queue);
        (!limits.is_empty()).then_some(queue)
    }

    fn look_up(&self, queue: &str) -> (Rc<str>, Limited<'a>) {
        let mut bounds = self.bounds.borrow_mut();
        if let Some((queue, limits)) = bounds.get_key_value(queue) {
            return (Rc::clone(queue), Rc::clone(limits));
        }
        let known = lineage(queue).filter_map(|path| Some((path.len(), self.state.limit_at(path)?)));
        let limits: Limited = known.filter(|(_, limits)| !limits.is_empty()).collect();
        let queue: Rc<str> = queue.into();
        bounds.insert(Rc::clone(&queue), Rc::clone(&limits));
        (queue, limits)
    }

    /// The models of which a queue may not take so many more devices (milli).
    pub(in crate::plan) fn closed_models(&self, queue: &str, more_milli: i64) -> Vec<String> {
        if !self.is_limited {
            return Vec::new();
        }
        let closed = |path: &str, resource: &Resource, limit: &Amount| match resource {
            Resource::Model(model) if !limit.allows(self.held(path, resource) + more_milli) => {
                Some(model.clone())
            }
            _ => None,
        };
        let limits = self.limits(queue);
        let limited = limits.iter().flat_map(|(length, known)| {
            known.iter().filter_map(|(resource, limit)| closed(&queue[..*length], resource, limit))
        });
        limited.collect()
    }

    /// The limit that closes every model which an alternative names, if one does.
    pub(in crate::plan) fn model_limit(
        &self,
        queue: &str,
        alternative: &Alternative,
        tasks: u32,
    ) -> Option<Reason> {
        let ask =
            alternative.devices.as_ref().filter(|ask| self.is_limited && !ask.class.models.is_empty())?;
        let more = i64::from(ask.count) * i64::from(tasks) * i64::from(ask.milli());
        let closed = self.closed_models(queue, more);
        let model = ask.class.models.iter().find(|model| closed.contains(model))?;
        ask.class.models.iter().all(|model| closed.contains(model)).then_some(())?;
        let resource = Resource::Model(model.clone());
        let limits = self.limits(queue);
        let limits = limits.iter();
        let limits = limits.filter_map(|(length, limits)| Some((&queue[..*length], limits.get(&resource)?)));
        let finite = limits.filter_map(|(path, limit)| match limit {
            Amount::Finite(most) => Some((path, *most)),
            Amount::Unlimited => None,
        });
        let mut over = finite.filter(|(path, most)| self.held(path, &resource) + more > *most);
        let (path, most) = over.next()?;
        Some(Reason::limit(path, resource.clone(), (most, more)))
    }

    /// Counts what a placement draws (or, with the sign −1, gives back) for a queue and those above it.
    pub(super) fn charge(&mut self, queue: Option<&str>, placement: &Placement, sign: i64) {
        let Some(queue) = queue else { return };
        let Self { state, capacity, extra, .. } = self;
        count_drawn(state, capacity, placement, |drawn| {
            for path in lineage(queue) {
                let extra = match extra.get_mut(path) {
                    Some(extra) => extra,
                    None => extra.entry(path.to_owned()).or_default(),
                };
                for (resource, amount) in drawn {
                    match extra.0.get_mut(*resource) {
                        Some(held) => *held += sign * amount,
                        None => drop(extra.0.insert((*resource).clone(), sign * amount)),
                    }
                }
            }
        });
    }

    fn held(&self, path: &str, resource: &Resource) -> i64 {
        self.held_by(path)(resource)
    }

    /// What a queue and those below it hold of each resource.
    fn held_by(&self, path: &str) -> impl Fn(&Resource) -> i64 + use<'_, 'a> {
        let (held, extra) = (self.held.get(path), self.extra.get(path));
        move |resource| [held, extra].into_iter().flatten().map(|held| held.of(resource)).sum()
    }

    /// Whether what this cycle adds takes a queue, or one above it, beyond its limit. One that was beyond it before may stay there,
    /// unless something new goes there: that was placed within the limit.
    pub(super) fn outgrows(&self, queue: &str) -> bool {
        if !self.is_limited {
            return false;
        }
        self.limits(queue).iter().any(|(length, limits)| {
            let path = &queue[..*length];
            let mut over =
                limits.iter().filter(|(resource, limit)| !limit.allows(self.held(path, resource))).peekable();
            let more = |resource| self.extra.get(path).map_or(0, |extra| extra.of(resource));
            over.peek().is_some() && (over.any(|(resource, _)| more(resource) > 0) || self.takes_in(path))
        })
    }

    /// Whether this cycle has placed something in a queue or below it.
    fn takes_in(&self, path: &str) -> bool {
        let is_below = |queue: &Rc<str>| lineage(queue).any(|above| above == path);
        self.done.iter().any(|step| matches!(step, Step::Took(_, Some(queue)) if is_below(queue)))
    }

    /// The limit that is exceeded now, if one is; what was taken since the mark is what the job asks for.
    pub(in crate::plan) fn exceeded_since(&self, mark: Mark, queue: &str) -> Option<Reason> {
        let (path, resource, limit) = self.over(queue, 0)?;
        let asked = self.taken_since(mark).map(|placement| self.amounts(placement).of(resource)).sum();
        Some(Reason::limit(path, resource.clone(), (limit, asked)))
    }

    fn amounts(&self, placement: &Placement) -> Holdings {
        counted(placement, |device: DeviceId| {
            self.state.devices.get(&device).map(|device| device.spec.model.as_str())
        })
    }

    /// The first limit, from the queue upwards, that is exceeded by what is held together with `more` devices (milli).
    pub(in crate::plan) fn exceeded(&self, queue: &str, more_milli: i64) -> Option<Reason> {
        if let Some(spent) = self.spent_by(queue, more_milli) {
            return Some(spent.clone());
        }
        let (path, resource, limit) = self.over(queue, more_milli)?;
        Some(Reason::limit(path, resource.clone(), (limit, more_milli)))
    }

    /// The limit that a job exceeds whichever of its alternatives it gets, told by the first of them.
    pub(in crate::plan) fn beyond(&self, spec: &JobSpec) -> Option<Reason> {
        let asked = spec.milli_asked();
        // One that may do without devices is bound by budgets as by the others.
        let least = spec.least_milli().max(asked.min(1));
        self.exceeded(spec.stand(), least).and_then(|_| self.exceeded(spec.stand(), asked))
    }

    /// Whether that is the limit that a reason names, and as much is asked for.
    pub(in crate::plan) fn still_exceeds(&self, queue: &str, more_milli: i64, reason: &Reason) -> bool {
        let (Reason::QueueLimit(path, resource, most, asked)
        | Reason::UserLimit(path, resource, most, asked)) = reason
        else {
            return false;
        };
        *asked == more_milli
            && self.spent_by(queue, more_milli).is_none()
            && self.over(queue, more_milli) == Some((path, resource, *most))
    }

    /// Why so many more devices (milli) are beyond the budget of a queue, or of one above it.
    fn spent_by(&self, queue: &str, more_milli: i64) -> Option<&Reason> {
        let counts = more_milli > 0 && !self.spent.is_empty();
        counts.then(|| lineage(queue).find_map(|path| self.spent.get(path))).flatten()
    }

    /// Whose limit it is, of what, and how much.
    fn over<'q>(&self, queue: &'q str, more_milli: i64) -> Option<(&'q str, &'a Resource, i64)> {
        if !self.is_limited {
            return None;
        }
        for (length, limits) in self.limits(queue).iter() {
            let path = &queue[..*length];
            let held = self.held_by(path);
            for (resource, limit) in *limits {
                let more = if *resource == Resource::Any { more_milli } else { 0 };
                if let Amount::Finite(most) = limit
                    && !limit.allows(held(resource) + more)
                {
                    return Some((path, resource, *most));
                }
            }
        }
        None
    }
}
