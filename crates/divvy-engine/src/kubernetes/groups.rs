//! Pod groups from the custom resources of other schedulers: Volcano, and the coscheduling plugin.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::objects::{Meta, Pod};
use super::watch::{Change, Watched};

/// Annotations that name a pod's Volcano group.
const VOLCANO: [&str; 2] = ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"];
/// The label that names a pod's coscheduling group.
const COSCHEDULING: &str = "scheduling.x-k8s.io/pod-group";

/// The scheduler whose group it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Volcano,
    Coscheduling,
}

/// The fields of a group that are used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodGroup {
    metadata: Meta,
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    min_member: i64,
}

/// A Volcano group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct OfVolcano(pub(super) PodGroup);

/// A coscheduling group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct OfCoscheduling(pub(super) PodGroup);

impl Watched for OfVolcano {
    const PATH: &'static str = "/apis/scheduling.volcano.sh/v1beta1/podgroups";
    fn meta(&self) -> &Meta {
        &self.0.metadata
    }
}

impl Watched for OfCoscheduling {
    const PATH: &'static str = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups";
    fn meta(&self) -> &Meta {
        &self.0.metadata
    }
}

impl Kind {
    /// Returns a group's unique name: scheduler, namespace and name.
    fn name(self, namespace: &str, name: &str) -> String {
        let whose = match self {
            Self::Volcano => "Volcano",
            Self::Coscheduling => "coscheduling",
        };
        format!("{whose}/{namespace}/{name}")
    }
}

/// Returns the group that a pod names.
pub(super) fn of(pod: &Pod) -> Option<String> {
    let Meta { namespace, labels, annotations, .. } = &pod.metadata;
    let at_volcano = VOLCANO.iter().find_map(|key| annotations.get(*key));
    let at_volcano = at_volcano.map(|name| Kind::Volcano.name(namespace, name));
    at_volcano.or_else(|| Some(Kind::Coscheduling.name(namespace, labels.get(COSCHEDULING)?)))
}

/// The known groups: how many pods of each start together.
#[derive(Debug, Default)]
pub(super) struct Groups {
    minimum: BTreeMap<String, u32>,
    listed: (bool, bool),
}

/// A group's name, and how many of its pods start together; `None` where it is gone.
pub(super) type GroupNews = (String, Option<u32>);

impl Groups {
    /// Returns whether both kinds have been listed.
    pub(super) fn is_listed(&self) -> bool {
        self.listed == (true, true)
    }

    /// Takes a change to groups of a kind; returns the news.
    pub(super) fn see(&mut self, kind: Kind, change: Change<PodGroup>) -> Vec<GroupNews> {
        let name = |group: &PodGroup| kind.name(&group.metadata.namespace, &group.metadata.name);
        match change {
            Change::Is(group) => self.note(name(&group), Some(&group)).into_iter().collect(),
            Change::Gone(group) => self.note(name(&group), None).into_iter().collect(),
            Change::All(groups) => {
                match kind {
                    Kind::Volcano => self.listed.0 = true,
                    Kind::Coscheduling => self.listed.1 = true,
                }
                let there: BTreeSet<String> = groups.iter().map(name).collect();
                let of_kind = kind.name("", "");
                let is_gone = |known: &&String| {
                    known.split('/').next() == of_kind.split('/').next() && !there.contains(*known)
                };
                let gone: Vec<String> = self.minimum.keys().filter(is_gone).cloned().collect();
                let mut news: Vec<GroupNews> =
                    gone.into_iter().filter_map(|it| self.note(it, None)).collect();
                news.extend(groups.iter().filter_map(|group| self.note(name(group), Some(group))));
                news
            }
        }
    }

    fn note(&mut self, name: String, group: Option<&PodGroup>) -> Option<GroupNews> {
        // A group without a size has pods that start alone.
        let minimum = group.map(|group| u32::try_from(group.spec.min_member.max(1)).unwrap_or(u32::MAX));
        let before = match minimum {
            Some(minimum) => self.minimum.insert(name.clone(), minimum),
            None => self.minimum.remove(&name),
        };
        (before != minimum).then_some((name, minimum))
    }
}
