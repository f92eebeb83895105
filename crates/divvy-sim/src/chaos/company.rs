//! Jobs of a life that lie near others or apart from them, or are spread.

use std::collections::BTreeMap;

use divvy_core::model::affinity::{Affinity, Others};
use divvy_core::model::choice::{Condition, Is};
use divvy_core::model::topology::Spread;
use serde::{Deserialize, Serialize};

use super::life::NodeLine;
use crate::dice::Dice;

/// The kind of a job, and what it wants of other kinds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Company {
    /// Its kind, by which other jobs refer to it.
    pub app: u32,
    /// A kind that it wants near it, and within what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<(u32, String)>,
    /// A kind that it wants to lie apart from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<(u32, String)>,
}

/// How many kinds there are.
const APPS: u64 = 3;

impl Company {
    pub(super) fn of(dice: &mut Dice) -> Option<Self> {
        let mut other = |percent| {
            let level = *dice.one_of(&["node", "rack"]);
            let app = dice.below(APPS) as u32;
            dice.percent(percent).then(|| (app, level.to_owned()))
        };
        let (near, apart) = (other(25), other(25));
        let app = dice.below(APPS) as u32;
        dice.percent(70).then_some(Self { app, near, apart })
    }

    pub(super) fn label(&self) -> (String, String) {
        ("app".into(), self.app.to_string())
    }

    pub(super) fn affinity(&self) -> Affinity {
        let others = |(app, within): &(u32, String)| Others {
            who: vec![Condition { label: "app".into(), is: Is::In(vec![app.to_string()]) }],
            within: within.clone(),
        };
        let (near, apart) = (self.near.iter().map(others), self.apart.iter().map(others));
        Affinity { labels: BTreeMap::new(), near: near.collect(), apart: apart.collect() }
    }
}

/// How many tasks a job that is spread has, and how it is spread; for most jobs.
pub(super) fn spread(dice: &mut Dice) -> Option<(u32, Spread)> {
    let over = (*dice.one_of(&["rack", "rack", "node"])).to_owned();
    let (most, required) = *dice.one_of(&[(Some(1), true), (Some(2), true), (Some(1), false), (None, false)]);
    let tasks = *dice.one_of(&[1, 2, 2, 3, 4]);
    dice.percent(60).then_some((tasks, Spread { over, most, required }))
}

/// Tells of some nodes which rack they are in; the others' racks stay unknown.
pub(super) fn name_racks(dice: &mut Dice, nodes: &mut [NodeLine]) {
    for (place, node) in (0..).zip(nodes) {
        node.rack = dice.percent(80).then_some(place / 2);
    }
}
