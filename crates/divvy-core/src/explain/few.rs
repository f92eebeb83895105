//! The last look: whether few changes cost less than what was found in order. The search in order assumes that what asks for less
//! starts no later, and looks at three grants, or at edits beside ends, only where more of them helped; neither is always right.

use super::change::{Change, Cost, merged};
use super::fix::{Fix, cost};
use super::search::Search;

/// Of menus with more changes, sets of two would go into tens of thousands.
const MOST_FOR_TWO: usize = 160;

/// Of more changes, sets of three would.
const MOST_FOR_THREE: usize = 48;

impl Search<'_> {
    /// Up to three changes that cost less than what was found, with or without giving up the job's own conditions; of long menus up to
    /// two, or three edits. Tried in the order of their cost, without those that were tried already.
    pub(super) fn few(&mut self, best: Option<Fix>) -> Option<Fix> {
        let menu = self.menu;
        let all = [&menu.edits[..], &menu.ends, &menu.grants].concat();
        if self.meter.is_scarce || all.len() > MOST_FOR_TWO {
            return best;
        }
        let waivers = self.waiver_sets();
        let costs = all.iter().map(|change| self.cost_of(change)).collect();
        let mut sets =
            Sets { all: &all, costs, below: best.as_ref().map(|best| best.cost), found: Vec::new() };
        for (number, waivers) in waivers.iter().enumerate() {
            let waived = waivers.iter().map(|waiver| self.cost_of(waiver)).fold(Cost::default(), Cost::with);
            let most = if all.len() <= MOST_FOR_THREE { 3 } else { 2 };
            sets.extend((number, &mut Vec::new()), waived, all.len(), most);
            if most < 3 && menu.edits.len() <= MOST_FOR_THREE {
                sets.extend((number, &mut Vec::new()), waived, menu.edits.len(), 3);
            }
        }
        sets.found.sort_by_key(|set| set.cost);
        let found = sets.found;
        let as_changes = |set: &Set| {
            let chosen = set.places.iter().map(|place| all[*place].clone());
            waivers[set.waivers].iter().cloned().chain(chosen).collect::<Vec<_>>()
        };
        let mut found = found.iter().map(as_changes);
        let does_it = found.find(|set| !self.failed.contains(&merged(set)) && self.does(set));
        let Some(set) = does_it else { return best };
        let least = self.lowered(set);
        self.fix(&least)
    }

    fn cost_of(&self, change: &Change) -> Cost {
        let spec = self.world.job().map(|job| &job.spec);
        spec.map(|spec| cost(self.world.state(), spec, change)).unwrap_or_default()
    }
}

/// Some changes beside some of the conditions that a job gives up.
struct Set {
    cost: Cost,
    /// Which of the sets of conditions.
    waivers: usize,
    /// The places of the changes in the menu.
    places: Vec<usize>,
}

/// All sets of few changes below a cost.
struct Sets<'a> {
    all: &'a [Change],
    costs: Vec<Cost>,
    below: Option<Cost>,
    found: Vec<Set>,
}

impl Sets<'_> {
    /// Adds the sets of up to `most` changes that extend those chosen by later ones among the first `to`.
    fn extend(&mut self, (waivers, chosen): (usize, &mut Vec<usize>), cost: Cost, to: usize, most: usize) {
        let from = chosen.last().map_or(0, |last| last + 1);
        for place in from..to {
            let cost = cost.with(self.costs[place]);
            let goes = chosen.iter().all(|other| self.all[*other].goes_with(&self.all[place]));
            // More changes cost no less.
            if !goes || self.below.is_some_and(|below| cost >= below) {
                continue;
            }
            chosen.push(place);
            self.found.push(Set { cost, waivers, places: chosen.clone() });
            if chosen.len() < most {
                self.extend((waivers, chosen), cost, to, most);
            }
            chosen.pop();
        }
    }
}
