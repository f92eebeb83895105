//! An ordered map of large values.

use std::collections::{BTreeMap, btree_map};
use std::ops::{Index, RangeBounds};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An ordered map whose values stay in place while others come and go. A tree that holds large values itself moves several of them with
/// each insertion or removal, and its nodes are too large for what an allocator has at hand. A copy shares its values with the original
/// until one of the two changes a value: copies are made to look ahead, and change few.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table<K: Ord, V>(BTreeMap<K, Arc<V>>);

impl<K: Ord, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> Table<K, V> {
    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key).map(AsRef::as_ref)
    }

    /// A key as it is kept, and its value.
    pub fn get_key_value(&self, key: &K) -> Option<(&K, &V)> {
        self.0.get_key_value(key).map(|(key, value)| (key, value.as_ref()))
    }

    /// Whether there is a value of this key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Keys and values, by key.
    pub fn iter(&self) -> TableIter<'_, K, V> {
        let both: fn(_) -> _ = |(key, value): (_, &Arc<V>)| (key, value.as_ref());
        self.0.iter().map(both)
    }

    /// The keys and values in a range of keys.
    pub fn range(&self, keys: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.range(keys).map(|(key, value)| (key, value.as_ref()))
    }

    /// The keys, rising.
    pub fn keys(&self) -> btree_map::Keys<'_, K, Arc<V>> {
        self.0.keys()
    }

    /// The values, by key.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator + Clone {
        self.0.values().map(AsRef::as_ref)
    }

    /// Sets the value of a key; returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<Arc<V>> {
        self.0.insert(key, Arc::new(value))
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<Arc<V>> {
        self.0.remove(key)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord, V: Clone> Table<K, V> {
    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key).map(Arc::make_mut)
    }
}

/// Keys and values, by key.
pub type TableIter<'a, K, V> =
    std::iter::Map<btree_map::Iter<'a, K, Arc<V>>, fn((&'a K, &'a Arc<V>)) -> (&'a K, &'a V)>;

impl<'a, K: Ord, V> IntoIterator for &'a Table<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = TableIter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Ord, V> Index<&K> for Table<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        &self.0[key]
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Table<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(key, value)| (key, Arc::new(value))).collect())
    }
}
