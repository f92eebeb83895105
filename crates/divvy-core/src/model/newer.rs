//! Settings added after the first digests.

use serde::{Deserialize, Serialize};

/// A setting that may be unsaid, and then hashes to nothing: digests of what does not use it stay as they were before the setting existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Newer<T>(pub Option<T>);

impl<T> Newer<T> {
    /// Whether nothing is said.
    pub fn is_unsaid(&self) -> bool {
        self.0.is_none()
    }

    /// What is said, if anything is.
    pub fn said(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T> Default for Newer<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: std::hash::Hash> std::hash::Hash for Newer<T> {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        if let Some(said) = &self.0 {
            said.hash(hasher);
        }
    }
}
