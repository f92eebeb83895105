//! Values by number, whose copies share what they do not change.

use std::collections::BTreeMap;
use std::sync::Arc;

/// So many consecutive numbers make a block. A copy of 100,000 values then copies 400 references, and to change a value in it
/// copies at most so many others.
const NUMBERS: u64 = 256;

/// Small values by number. A copy shares its blocks with the original until either of them changes something there: copies are made to
/// look ahead, and change few.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Blocks<V> {
    /// None of them is empty.
    blocks: BTreeMap<u64, Arc<BTreeMap<u64, V>>>,
    len: usize,
}

impl<V> Default for Blocks<V> {
    fn default() -> Self {
        Self { blocks: BTreeMap::new(), len: 0 }
    }
}

impl<V: Copy> Blocks<V> {
    pub(super) fn get(&self, number: u64) -> Option<&V> {
        self.blocks.get(&(number / NUMBERS))?.get(&number)
    }

    pub(super) fn insert(&mut self, number: u64, value: V) {
        let block = self.blocks.entry(number / NUMBERS).or_default();
        let before = Arc::make_mut(block).insert(number, value);
        self.len += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<V> {
        // A value that is not there needs no copy of its block.
        self.get(number)?;
        let block = Arc::make_mut(self.blocks.get_mut(&(number / NUMBERS))?);
        let value = block.remove(&number);
        if block.is_empty() {
            self.blocks.remove(&(number / NUMBERS));
        }
        self.len -= 1;
        value
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}
