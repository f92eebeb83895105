//! Keeps the last message about a thing last. Many writes run at once, each retried until the server accepts it. Per thing at most one
//! is under way; of those that come meanwhile only the latest is sent. About a settled thing nothing more is sent.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

/// The messages under way.
#[derive(Default)]
pub(super) struct Latest(Mutex<Books>);

#[derive(Default)]
struct Books {
    /// By thing, with the message to send next.
    under_way: HashMap<String, Option<Value>>,
    settled: HashSet<String>,
}

/// How often to check whether a write is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Latest {
    /// Returns whether the caller has to send this message, and then everything that [`Self::next`] returns until that is `None`.
    /// Otherwise another caller sends it in its turn, or nothing more may be sent.
    pub(super) fn begin(&self, about: &str, body: &Value) -> bool {
        let mut books = self.books();
        if books.settled.contains(about) {
            return false;
        }
        match books.under_way.get_mut(about) {
            Some(next) => {
                *next = Some(body.clone());
                false
            }
            None => {
                books.under_way.insert(about.to_owned(), None);
                true
            }
        }
    }

    /// Returns the message to send now; with `None`, nothing is under way about it any more.
    pub(super) fn next(&self, about: &str) -> Option<Value> {
        let mut books = self.books();
        let is_settled = books.settled.contains(about);
        let next = books.under_way.get_mut(about).and_then(Option::take).filter(|_| !is_settled);
        if next.is_none() {
            books.under_way.remove(about);
        }
        next
    }

    /// Stops all further messages about a thing.
    pub(super) fn settle(&self, about: String) {
        self.books().settled.insert(about);
    }

    /// Allows messages about a thing again.
    pub(super) fn reopen(&self, about: &str) {
        self.books().settled.remove(about);
    }

    /// Returns whether a thing is settled.
    pub(super) fn is_settled(&self, about: &str) -> bool {
        self.books().settled.contains(about)
    }

    /// Waits until no message about a thing is under way.
    pub(super) async fn quiet(&self, about: &str) {
        while self.books().under_way.contains_key(about) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::cell::RefCell;

    /// Sends a word, which takes the given time.
    async fn wait_and_say(
        latest: &Latest,
        sent: &RefCell<Vec<Value>>,
        about: &str,
        (word, takes_ms): (u64, u64),
    ) {
        if !latest.begin(about, &json!(word)) {
            return;
        }
        let mut next = Some(json!(word));
        while let Some(now) = next {
            let slow = if now == json!(word) { takes_ms } else { 0 };
            tokio::time::sleep(Duration::from_millis(slow)).await;
            sent.borrow_mut().push(now);
            next = latest.next(about);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_word_is_sent_last_however_long_the_first_takes() {
        let (latest, sent) = (Latest::default(), RefCell::new(Vec::new()));
        let say = |about, word| wait_and_say(&latest, &sent, about, word);
        tokio::join!(say("a", (1, 100)), say("a", (2, 50)), say("b", (3, 10)), say("a", (4, 0)));
        assert_eq!(*sent.borrow(), [json!(3), json!(1), json!(4)]);
        say("a", (5, 0)).await;
        assert_eq!(sent.borrow().len(), 4);
        assert!(latest.books().under_way.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_what_is_settled_nothing_more_is_said() {
        let (latest, sent) = (Latest::default(), RefCell::new(Vec::new()));
        let say = |about, word| wait_and_say(&latest, &sent, about, word);
        let settles = async {
            latest.settle("a".into());
            latest.quiet("a").await;
            sent.borrow_mut().push(json!("settled"));
        };
        tokio::join!(say("a", (1, 100)), say("a", (2, 0)), settles, say("a", (3, 0)));
        assert_eq!(*sent.borrow(), [json!(1), json!("settled")]);
        latest.reopen("a");
        say("a", (4, 0)).await;
        assert_eq!(sent.borrow().len(), 3);
    }
}
