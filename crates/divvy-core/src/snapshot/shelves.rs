//! The nodes by how many of their devices are free: whoever looks for a place need not look at those that are full.

/// Nodes, by their places, on shelves: one for each number of free devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shelves {
    /// Of each shelf, a bit for each node.
    shelves: Vec<Shelf>,
    /// Where each node is.
    filed: Vec<Filed>,
    /// How many nodes are draining, or have a device that cannot be given out.
    impaired: usize,
    /// Free devices of all nodes on shelves.
    free: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Shelf {
    nodes: usize,
    bits: Vec<u64>,
}

/// What a node was last filed as.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Filed {
    /// Its shelf; none while it takes no tasks.
    shelf: Option<u32>,
    is_impaired: bool,
}

impl Shelves {
    /// Files a node anew: with so many free devices, or none of them to be given out since it takes no tasks.
    pub(super) fn file(&mut self, place: usize, free: Option<u32>, is_impaired: bool) {
        if self.filed.len() <= place {
            self.filed.resize(place + 1, Filed::default());
        }
        let before = std::mem::replace(&mut self.filed[place], Filed { shelf: free, is_impaired });
        self.impaired = self.impaired + usize::from(is_impaired) - usize::from(before.is_impaired);
        if before.shelf == free {
            return;
        }
        if let Some(shelf) = before.shelf {
            self.free -= u64::from(shelf);
            self.shelves[shelf as usize].remove(place);
            self.drop_empty();
        }
        if let Some(shelf) = free {
            self.free += u64::from(shelf);
            let count = self.shelves.len().max(shelf as usize + 1);
            self.shelves.resize_with(count, Shelf::default);
            self.shelves[shelf as usize].insert(place);
        }
    }

    /// As if the last shelves had never been there: equal contents are to be equal.
    fn drop_empty(&mut self) {
        while self.shelves.last().is_some_and(|shelf| shelf.nodes == 0) {
            self.shelves.pop();
        }
    }

    /// Whether all nodes take tasks, and every device of them can be given out.
    pub fn all_well(&self) -> bool {
        self.impaired == 0
    }

    /// The free devices of all nodes that take tasks.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// The most free devices of any node that takes tasks.
    pub fn most_free(&self) -> Option<u32> {
        self.shelves.iter().rposition(|shelf| shelf.nodes > 0).map(|shelf| shelf as u32)
    }

    /// The nodes that take tasks and have exactly so many free devices, by place.
    pub fn with_free(&self, free: u32) -> impl Iterator<Item = usize> {
        let bits = self.shelves.get(free as usize).map(|shelf| shelf.bits.as_slice()).unwrap_or_default();
        bits.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(word * 64 + bit)
            })
        })
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_on_the_shelf_of_its_free_devices_alone() {
        let mut shelves = Shelves::default();
        for (place, free) in [(0, 8), (1, 3), (70, 8), (2, 0)] {
            shelves.file(place, Some(free), false);
        }
        shelves.file(1, Some(8), false);
        shelves.file(0, None, true);
        assert_eq!(shelves.with_free(8).collect::<Vec<_>>(), [1, 70]);
        assert_eq!((shelves.with_free(3).count(), shelves.with_free(9).count()), (0, 0));
        assert_eq!((shelves.most_free(), shelves.free(), shelves.all_well()), (Some(8), 16, false));
        shelves.file(0, Some(1), false);
        assert!(shelves.all_well());
    }
}
