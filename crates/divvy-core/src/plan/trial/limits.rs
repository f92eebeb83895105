//! Part of a trial: what queues may hold at most, with what they hold by the snapshot and what the trial has taken and released.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::{Mark, Step, Trial};
use crate::amount::{Amount, Holdings, Limits, Resource};
use crate::id::DeviceId;
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, DeviceClass};
use crate::model::job::JobSpec;
use crate::model::queue::lineage;
use crate::reason::Reason;
use crate::snapshot::count_drawn;
use crate::state::counted;

/// What limits the queues that were asked about: trying a job asks several times.
#[derive(Default)]
pub(super) struct Bounds<'a> {
    queues: BTreeMap<Rc<str>, Limited<'a>>,
    /// The queue that was asked about last.
    last: Option<(Rc<str>, Limited<'a>)>,
    /// The numbers of the queues that are limited themselves.
    numbers: BTreeMap<String, usize>,
}

/// The limits of a queue and of those above it, from the queue upwards. Only those that limit anything.
type Limited<'a> = Rc<[Bound<'a>]>;

/// What a queue, or one above it, may hold at most.
pub(super) struct Bound<'a> {
    /// How much of the path is that of the limited queue.
    length: usize,
    limits: &'a Limits,
    /// What that queue holds by the snapshot.
    held: Option<&'a Holdings>,
    /// The number under which the cycle counts what it adds to that.
    number: usize,
    /// Whether it limits any model by name.
    names_models: bool,
}

impl<'a> Trial<'a> {
    /// What limits a queue.
    fn limits(&self, queue: &str) -> Limited<'a> {
        self.look_up(queue).1
    }

    /// The queue, if something limits it: only then it matters what it holds.
    pub(super) fn limited(&self, queue: &str) -> Option<Rc<str>> {
        if !self.is_limited {
            return None;
        }
        let (queue, limits) = self.look_up(queue);
        (!limits.is_empty()).then_some(queue)
    }

    fn look_up(&self, queue: &str) -> (Rc<str>, Limited<'a>) {
        let bounds = &mut *self.bounds.borrow_mut();
        if let Some((last, limits)) = bounds.last.as_ref().filter(|(last, _)| **last == *queue) {
            return (Rc::clone(last), Rc::clone(limits));
        }
        let found = match bounds.queues.get_key_value(queue) {
            Some((queue, limits)) => (Rc::clone(queue), Rc::clone(limits)),
            None => {
                let known = lineage(queue).filter_map(|path| Some((path, self.state.limit_at(path)?)));
                let known = known.filter(|(_, limits)| !limits.is_empty());
                let limits: Limited =
                    known.map(|(path, limits)| self.bound(path, limits, &mut bounds.numbers)).collect();
                let queue: Rc<str> = queue.into();
                bounds.queues.insert(Rc::clone(&queue), Rc::clone(&limits));
                (queue, limits)
            }
        };
        bounds.last = Some((Rc::clone(&found.0), Rc::clone(&found.1)));
        found
    }

    fn bound(&self, path: &str, limits: &'a Limits, numbers: &mut BTreeMap<String, usize>) -> Bound<'a> {
        let (length, held, next) = (path.len(), self.held.get(path), numbers.len());
        let number = *numbers.entry(path.to_owned()).or_insert(next);
        let names_models = limits.keys().any(|resource| matches!(resource, Resource::Model(_)));
        Bound { length, limits, held, number, names_models }
    }

    /// Whether a queue, or one above it, may not have as many devices of some models as of others.
    pub(super) fn limits_models(&self, queue: &str) -> bool {
        self.is_limited && self.limits(queue).iter().any(|bound| bound.names_models)
    }

    /// How many devices of a model, in thousandths, so many tasks may draw by an alternative.
    pub(in crate::plan) fn more_of<'m>(
        &self,
        (alternative, tasks): (&'m Alternative, u32),
        exclusive: bool,
    ) -> impl Fn(&str) -> i64 + use<'m> {
        let sizes = Arc::clone(self.capacity.sizes());
        move |model| sizes.drawn_of_model((alternative, exclusive), model) * i64::from(tasks)
    }

    /// The models of which a queue may not take so many more devices (milli).
    pub(in crate::plan) fn closed_models(&self, queue: &str, more: &impl Fn(&str) -> i64) -> Vec<String> {
        if !self.is_limited {
            return Vec::new();
        }
        let closed = |bound: &Bound, resource: &Resource, limit: &Amount| match resource {
            Resource::Model(model) if !limit.allows(self.held_within(bound, resource) + more(model)) => {
                Some(model.clone())
            }
            _ => None,
        };
        let limits = self.limits(queue);
        let limited = limits.iter().filter(|bound| bound.names_models).flat_map(|bound| {
            bound.limits.iter().filter_map(move |(resource, limit)| closed(bound, resource, limit))
        });
        limited.collect()
    }

    /// The models of which the job whose turn it is may not take so many more devices (milli), by what its queue may borrow or is
    /// guaranteed.
    pub(in crate::plan) fn models_not_lent(&self, more: &impl Fn(&str) -> i64) -> Vec<String> {
        let model_of = |id: &DeviceId| self.state.devices.get(id).map(|device| device.spec.model.as_str());
        let got = |model: &str| {
            let devices = self.gang_tasks().flat_map(|placement| &placement.devices);
            let of_model = devices.filter(|(id, _)| model_of(id) == Some(model));
            of_model.map(|(_, draw)| i64::from(draw.milli)).sum()
        };
        self.not_lent.models(more, got).map(|(model, _)| model.to_owned()).collect()
    }

    /// What closes one of the models by which an alternative may be served, or all of them (`all`), if anything does.
    pub(in crate::plan) fn what_closes(
        &self,
        spec: &JobSpec,
        (alternative, tasks): (&Alternative, u32),
        all: bool,
    ) -> Option<Reason> {
        let (ask, queue) = (alternative.devices.as_ref()?, spec.stand());
        let more = self.more_of((alternative, tasks), spec.exclusive);
        let limited = self.closed_models(queue, &more);
        let not_lent: Vec<(&str, &Reason)> = self.not_lent.models(&more, |_| 0).collect();
        let closed: Vec<String> =
            limited.iter().cloned().chain(not_lent.iter().map(|(model, _)| (*model).to_owned())).collect();
        if all {
            self.all_closed(&ask.class, &closed)?;
        }
        let may_serve =
            |model: &str| ask.class.models.is_empty() || ask.class.models.iter().any(|it| it == model);
        let of_limit = limited.into_iter().filter(|model| may_serve(model));
        let mut of_limit = of_limit.filter_map(|model| self.limit_of(queue, &model, more(&model)));
        let lent =
            || not_lent.iter().find(|(model, _)| may_serve(model)).map(|(_, reason)| (*reason).clone());
        of_limit.next().or_else(lent)
    }

    /// The limit by which a queue may not take so many more devices of a model.
    fn limit_of(&self, queue: &str, model: &str, more: i64) -> Option<Reason> {
        let resource = Resource::Model(model.to_owned());
        let limits = self.limits(queue);
        let limits = limits.iter();
        let limits = limits.filter_map(|bound| Some((bound, bound.limits.get(&resource)?)));
        let finite = limits.filter_map(|(bound, limit)| match limit {
            Amount::Finite(most) => Some((bound, *most)),
            Amount::Unlimited => None,
        });
        let mut over = finite.filter(|(bound, most)| self.held_within(bound, &resource) + more > *most);
        let (bound, most) = over.next()?;
        Some(Reason::limit(&queue[..bound.length], resource.clone(), (most, more)))
    }

    /// One of the models of a class, if all of them are closed.
    fn all_closed(&self, class: &DeviceClass, closed: &[String]) -> Option<String> {
        if closed.is_empty() {
            return None;
        }
        let models = self.models_of(class);
        models.iter().all(|model| closed.contains(model)).then(|| models.into_iter().next()).flatten()
    }

    /// The models that may serve a class: those that it names, or those of the pool.
    pub(in crate::plan) fn models_of(&self, class: &DeviceClass) -> Vec<String> {
        let mut models = class.models.clone();
        if models.is_empty() {
            let devices = self.capacity.nodes.iter().flat_map(|node| &node.devices);
            for device in devices.filter(|device| class.takes(&device.spec)) {
                if !models.contains(&device.spec.model) {
                    models.push(device.spec.model.clone());
                }
            }
        }
        models
    }

    /// Counts what a placement draws (or, with the sign −1, gives back) for a queue and those above it.
    pub(super) fn charge(&mut self, queue: Option<&str>, placement: &Placement, sign: i64) {
        let Some(queue) = queue else { return };
        let limits = self.limits(queue);
        let Self { state, capacity, extra, .. } = self;
        count_drawn(state, capacity, placement, |drawn| {
            for bound in limits.iter() {
                if extra.len() <= bound.number {
                    extra.resize_with(bound.number + 1, Holdings::default);
                }
                let extra = &mut extra[bound.number].0;
                for (resource, amount) in drawn {
                    match extra.get_mut(*resource) {
                        Some(held) => *held += sign * amount,
                        None => drop(extra.insert((*resource).clone(), sign * amount)),
                    }
                }
            }
        });
    }

    /// What a limited queue and those below it hold of a resource.
    fn held_within(&self, bound: &Bound, resource: &Resource) -> i64 {
        bound.held.map_or(0, |held| held.of(resource)) + self.more_within(bound, resource)
    }

    /// What this cycle adds to that.
    fn more_within(&self, bound: &Bound, resource: &Resource) -> i64 {
        self.extra.get(bound.number).map_or(0, |extra| extra.of(resource))
    }

    /// Whether what this cycle adds takes a queue, or one above it, beyond its limit. One that was beyond it before may stay there,
    /// unless something new goes there: that was placed within the limit.
    pub(super) fn outgrows(&self, queue: &str) -> bool {
        if !self.is_limited {
            return false;
        }
        self.limits(queue).iter().any(|bound| {
            let exceeds =
                |(resource, limit): &(&Resource, &Amount)| !limit.allows(self.held_within(bound, resource));
            let mut over = bound.limits.iter().filter(exceeds).peekable();
            let is_taken = |(resource, _)| self.more_within(bound, resource) > 0;
            over.peek().is_some() && (over.any(is_taken) || self.takes_in(&queue[..bound.length]))
        })
    }

    /// Whether this cycle has placed something in a queue or below it.
    fn takes_in(&self, path: &str) -> bool {
        let is_below = |queue: &Rc<str>| lineage(queue).any(|above| above == path);
        self.done.iter().any(|step| matches!(step, Step::Took(_, Some(queue)) if is_below(queue)))
    }

    /// The limit that is exceeded now, if one is; what was taken since the mark is what the job asks for.
    pub(in crate::plan) fn exceeded_since(&self, mark: Mark, queue: &str) -> Option<Reason> {
        let drawn = || self.taken_since(mark).map(Placement::milli).sum();
        // A task that asks for no device and gets all of its node draws some.
        if let Some(spent) = (!self.spent.is_empty()).then(|| self.spent_by(queue, drawn())).flatten() {
            return Some(spent.clone());
        }
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
        // A job that may do without devices is bound by budgets like any other.
        let least = spec.least_milli().max(asked.min(1));
        self.exceeded(spec.stand(), least).and_then(|_| self.exceeded(spec.stand(), asked))
    }

    /// All limits that it exceeds in that way, from its queue upwards: of each queue (or user) the first.
    pub(in crate::plan) fn all_beyond(&self, spec: &JobSpec) -> Vec<Reason> {
        let asked = spec.milli_asked();
        let least = spec.least_milli().max(asked.min(1));
        let limit = |(path, resource, most): (&str, &Resource, i64)| {
            Reason::limit(path, resource.clone(), (most, asked))
        };
        self.all_over(spec.stand(), least).into_iter().map(limit).collect()
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

    /// All budgets, from a job's queue upwards, that are used up now: each has to be renewed before the job starts.
    pub(in crate::plan) fn spent(&self, spec: &JobSpec) -> impl Iterator<Item = &Reason> {
        let counts = spec.milli_asked() > 0 && !self.spent.is_empty();
        lineage(spec.stand()).filter(move |_| counts).filter_map(|path| self.spent.get(path))
    }

    /// Why so many more devices (milli) are beyond the budget of a queue, or of one above it.
    fn spent_by(&self, queue: &str, more_milli: i64) -> Option<&Reason> {
        let counts = more_milli > 0 && !self.spent.is_empty();
        counts.then(|| lineage(queue).find_map(|path| self.spent.get(path))).flatten()
    }

    /// The first limit that is exceeded: whose it is, of what, and how much.
    fn over<'q>(&self, queue: &'q str, more_milli: i64) -> Option<(&'q str, &'a Resource, i64)> {
        if !self.is_limited {
            return None;
        }
        self.limits(queue).iter().find_map(|bound| self.over_bound((queue, bound), more_milli))
    }

    /// All that are, of each queue (or user) the first.
    fn all_over<'q>(&self, queue: &'q str, more_milli: i64) -> Vec<(&'q str, &'a Resource, i64)> {
        if !self.is_limited {
            return Vec::new();
        }
        let limits = self.limits(queue);
        limits.iter().filter_map(|bound| self.over_bound((queue, bound), more_milli)).collect()
    }

    fn over_bound<'q>(
        &self,
        (queue, bound): (&'q str, &Bound<'a>),
        more_milli: i64,
    ) -> Option<(&'q str, &'a Resource, i64)> {
        bound.limits.iter().find_map(|(resource, limit)| {
            let more = if *resource == Resource::Any { more_milli } else { 0 };
            match limit {
                Amount::Finite(most) if !limit.allows(self.held_within(bound, resource) + more) => {
                    Some((&queue[..bound.length], resource, *most))
                }
                _ => None,
            }
        })
    }
}
