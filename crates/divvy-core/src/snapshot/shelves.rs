//! The nodes by the kind of their devices and by how many of these are free: a search for a place need not look at nodes
//! that are full, or have devices of another kind.

use crate::model::ask::DeviceAsk;
use crate::model::device::DeviceSpec;

/// Nodes, by their places: for each kind of device, a shelf for each number of free ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shelves {
    /// The first is that of nodes whose devices are not all alike, or that have none.
    kinds: Vec<Kind>,
    /// Where each node is.
    filed: Vec<Filed>,
}

/// The nodes that have devices of one kind only.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kind {
    /// One of the devices.
    example: Option<DeviceSpec>,
    shelves: Vec<Shelf>,
    /// How many nodes are draining, or have a device that cannot be given out.
    impaired: usize,
    /// Free devices of all nodes on shelves.
    free: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Shelf {
    nodes: usize,
    /// A bit for each node.
    bits: Vec<u64>,
}

/// What a node is filed as.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Filed {
    /// The place of its kind.
    pub(super) kind: usize,
    /// Its shelf; none while it takes no tasks.
    pub(super) shelf: Option<u32>,
    pub(super) is_impaired: bool,
}

/// The shelves of some kinds.
#[derive(Clone)]
pub struct Chosen<'a> {
    shelves: &'a Shelves,
    ask: Option<&'a DeviceAsk>,
}

impl Shelves {
    /// The place of a device's kind; the kinds are in the order in which they were first asked for.
    pub(super) fn kind_of(&mut self, spec: &DeviceSpec) -> usize {
        if self.kinds.is_empty() {
            self.kinds.push(Kind::default());
        }
        let known =
            self.kinds.iter().position(|kind| kind.example.as_ref().is_some_and(|it| it.is_like(spec)));
        known.unwrap_or_else(|| {
            self.kinds.push(Kind { example: Some(spec.clone()), ..Kind::default() });
            self.kinds.len() - 1
        })
    }

    /// A device of each kind, by the kind's place; of the first, which has none, one of nothing.
    pub(super) fn examples(&self) -> impl Iterator<Item = DeviceSpec> {
        self.kinds.iter().map(|kind| kind.example.clone().unwrap_or_default())
    }

    /// Files a node anew.
    pub(super) fn file(&mut self, place: usize, filed: Filed) {
        if self.kinds.is_empty() {
            self.kinds.push(Kind::default());
        }
        let before = self.filed.get(place).copied();
        if before == Some(filed) {
            return;
        }
        if let Some(before) = before {
            self.kinds[before.kind].remove(place, before);
        } else {
            self.filed.resize(place + 1, Filed::default());
        }
        self.kinds[filed.kind].insert(place, filed);
        self.filed[place] = filed;
    }

    /// The shelves of nodes that may have what is asked for; all shelves, where no devices are asked for.
    pub fn of<'a>(&'a self, ask: Option<&'a DeviceAsk>) -> Chosen<'a> {
        Chosen { shelves: self, ask }
    }

    /// The free devices of all nodes that take tasks.
    pub fn free(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.free).sum()
    }
}

impl<'a> Chosen<'a> {
    fn kinds(&self) -> impl Iterator<Item = &'a Kind> + use<'a> {
        let chosen = self.clone();
        self.shelves.kinds.iter().filter(move |kind| chosen.is_of(kind))
    }

    /// Whether a kind may have what is asked for.
    fn is_of(&self, kind: &Kind) -> bool {
        match (self.ask, &kind.example) {
            (Some(ask), Some(spec)) => ask.class.takes(spec),
            _ => true,
        }
    }

    /// The most free devices of any node that takes tasks.
    pub fn most_free(&self) -> Option<u32> {
        self.kinds().filter_map(|kind| kind.shelves.len().checked_sub(1)).max().map(|shelf| shelf as u32)
    }

    /// Whether none of them that takes tasks has so many free devices.
    pub fn lack(&self, count: u32) -> bool {
        // What a kind is called is compared only where it has enough.
        let has = |kind: &&Kind| kind.shelves.len() > count as usize;
        !self.shelves.kinds.iter().filter(has).any(|kind| self.is_of(kind))
    }

    /// Likewise, where all of them take tasks and every device of them can be given out.
    pub fn all_lack(&self, count: u32) -> bool {
        let may_have = |kind: &&Kind| kind.impaired > 0 || kind.shelves.len() > count as usize;
        !self.shelves.kinds.iter().filter(may_have).any(|kind| self.is_of(kind))
    }

    /// The free devices of all of them that take tasks.
    pub fn free(&self) -> u64 {
        let of_it = self.shelves.kinds.iter().filter(|kind| kind.free > 0 && self.is_of(kind));
        of_it.map(|kind| kind.free).sum()
    }

    /// For how many tasks of so many whole devices each they have enough free ones.
    pub fn slots(&self, each: u32) -> u32 {
        let of_kind = |kind: &Kind| {
            let shelves = kind.shelves.iter().enumerate().skip(each as usize);
            shelves
                .map(|(free, shelf)| (free as u32 / each.max(1)).saturating_mul(shelf.nodes as u32))
                .sum::<u32>()
        };
        self.kinds().map(of_kind).sum()
    }

    /// The nodes that take tasks and have exactly so many free devices: by place, those of one kind after those of another.
    pub fn with_free(&self, free: u32) -> impl Iterator<Item = usize> + use<'a> {
        let shelves = self.kinds().filter_map(move |kind| kind.shelves.get(free as usize));
        shelves.flat_map(Shelf::places)
    }
}

impl Kind {
    fn insert(&mut self, place: usize, filed: Filed) {
        self.impaired += usize::from(filed.is_impaired);
        let Some(shelf) = filed.shelf else { return };
        self.free += u64::from(shelf);
        let count = self.shelves.len().max(shelf as usize + 1);
        self.shelves.resize_with(count, Shelf::default);
        self.shelves[shelf as usize].insert(place);
    }

    fn remove(&mut self, place: usize, filed: Filed) {
        self.impaired -= usize::from(filed.is_impaired);
        let Some(shelf) = filed.shelf else { return };
        self.free -= u64::from(shelf);
        self.shelves[shelf as usize].remove(place);
        // As if the last shelves had never been there, so that equal contents compare equal.
        while self.shelves.last().is_some_and(|shelf| shelf.nodes == 0) {
            self.shelves.pop();
        }
    }
}

impl Shelf {
    fn insert(&mut self, place: usize) {
        if self.bits.len() <= place / 64 {
            self.bits.resize(place / 64 + 1, 0);
        }
        self.bits[place / 64] |= 1 << (place % 64);
        self.nodes += 1;
    }

    fn remove(&mut self, place: usize) {
        self.bits[place / 64] &= !(1 << (place % 64));
        self.nodes -= 1;
        // Likewise.
        while self.bits.last() == Some(&0) {
            self.bits.pop();
        }
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.bits.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ask::{DeviceClass, DrawAsk};

    fn spec(model: &str) -> DeviceSpec {
        DeviceSpec { model: model.into(), memory_mib: 81_559, ..DeviceSpec::default() }
    }

    fn ask(model: &str) -> DeviceAsk {
        let class = DeviceClass { models: vec![model.into()], ..DeviceClass::default() };
        DeviceAsk::of(class, 1, DrawAsk::Whole)
    }

    #[test]
    fn a_node_is_on_the_shelf_of_its_free_devices_alone() {
        let mut shelves = Shelves::default();
        let filed = |shelf, is_impaired| Filed { kind: 0, shelf, is_impaired };
        for (place, free) in [(0, 8), (1, 3), (70, 8), (2, 0)] {
            shelves.file(place, filed(Some(free), false));
        }
        shelves.file(1, filed(Some(8), false));
        shelves.file(0, filed(None, true));
        let all = shelves.of(None);
        assert_eq!(all.with_free(8).collect::<Vec<_>>(), [1, 70]);
        assert_eq!((all.with_free(3).count(), all.with_free(9).count()), (0, 0));
        assert_eq!((all.most_free(), shelves.free()), (Some(8), 16));
        assert_eq!((all.lack(8), all.lack(9), all.all_lack(9)), (false, true, false));
        shelves.file(0, filed(Some(1), false));
        assert!(shelves.of(None).all_lack(9) && !shelves.of(None).all_lack(8));
    }

    #[test]
    fn who_asks_for_a_model_sees_the_nodes_that_may_have_it() {
        let mut shelves = Shelves::default();
        let [a, b] = ["a100", "h100"].map(|model| shelves.kind_of(&spec(model)));
        for (place, kind, shelf) in [(0, a, 4), (1, b, 8), (2, 0, 2), (3, b, 8)] {
            shelves.file(place, Filed { kind, shelf: Some(shelf), is_impaired: place == 3 });
        }
        let wants = ask("a100");
        let chosen = shelves.of(Some(&wants));
        assert_eq!((chosen.most_free(), chosen.lack(5), chosen.all_lack(5)), (Some(4), true, true));
        assert!(!chosen.lack(4) && !shelves.of(Some(&ask("h100"))).all_lack(9));
        assert_eq!((0..9).flat_map(|free| chosen.with_free(free)).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(shelves.of(None).most_free(), Some(8));
        assert_eq!(shelves.kind_of(&spec("h100")), b);
    }
}
