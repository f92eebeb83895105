//! Groups of pods as other schedulers' custom resources say them: Volcano's, and those of the coscheduling plugin.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::objects::{Meta, Pod};
use super::watch::{Change, Watched};

/// Annotations that name a pod's group at Volcano.
const VOLCANO: [&str; 2] = ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"];
/// The label that names a pod's group at the coscheduling plugin.
const COSCHEDULING: &str = "scheduling.x-k8s.io/pod-group";

/// Whose groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Volcano,
    Coscheduling,
}

/// A group, as far as it is looked at.
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

/// A group of Volcano's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct OfVolcano(pub(super) PodGroup);

/// A group of the coscheduling plugin's.
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
    /// A group's name among all: whose it is, namespace and name.
    fn name(self, namespace: &str, name: &str) -> String {
        let whose = match self {
            Self::Volcano => "Volcano",
            Self::Coscheduling => "coscheduling",
        };
        format!("{whose}/{namespace}/{name}")
    }
}

/// The group that a pod says it is of.
pub(super) fn of(pod: &Pod) -> Option<String> {
    let Meta { namespace, labels, annotations, .. } = &pod.metadata;
    let at_volcano = VOLCANO.iter().find_map(|key| annotations.get(*key));
    let at_volcano = at_volcano.map(|name| Kind::Volcano.name(namespace, name));
    at_volcano.or_else(|| Some(Kind::Coscheduling.name(namespace, labels.get(COSCHEDULING)?)))
}

/// The groups there are: how many pods of each start together.
#[derive(Debug, Default)]
pub(super) struct Groups {
    minimum: BTreeMap<String, u32>,
    listed: (bool, bool),
}

/// A group's name, and how many of its pods start together; nothing where it is gone.
pub(super) type GroupNews = (String, Option<u32>);

impl Groups {
    /// Whether both kinds have been listed.
    pub(super) fn is_listed(&self) -> bool {
        self.listed == (true, true)
    }

    /// Takes what has happened to groups of a kind; gives what is new of it.
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
        // A group that says nothing of its size is one of pods that start alone.
        let minimum = group.map(|group| u32::try_from(group.spec.min_member.max(1)).unwrap_or(u32::MAX));
        let before = match minimum {
            Some(minimum) => self.minimum.insert(name.clone(), minimum),
            None => self.minimum.remove(&name),
        };
        (before != minimum).then_some((name, minimum))
    }
}
