//! The ledger: device time by queue and user, exact, in milli-GPU·ms. Price is applied when reading.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::fingerprint;
use crate::time::Time;

/// Who used how much device time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Kept")]
pub struct Ledger {
    /// By queue, then user.
    accounts: BTreeMap<String, BTreeMap<String, Account>>,
    /// Device time of allocations that are over, counted per allocation: what the accounts must sum to (L11).
    closed_milli_ms: i128,
    /// The wrapping sum of all accounts' hashes: a cycle's digest then costs only what has changed.
    #[serde(skip)]
    sum: u64,
}

/// A ledger as it is stored.
#[derive(Deserialize)]
struct Kept {
    accounts: BTreeMap<String, BTreeMap<String, Account>>,
    closed_milli_ms: i128,
}

impl From<Kept> for Ledger {
    fn from(Kept { accounts, closed_milli_ms }: Kept) -> Self {
        let mut ledger = Self { accounts, closed_milli_ms, sum: 0 };
        ledger.sum = ledger.accounts().map(|entry| fingerprint(&entry)).fold(0, u64::wrapping_add);
        ledger
    }
}

/// What one user used in one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Account {
    /// Charged up to `since`, in milli-GPU·ms.
    pub charged_milli_ms: i128,
    /// Thousandths of devices held now.
    pub rate_milli: i64,
    /// Up to when it is charged.
    pub since: Time,
}

impl Account {
    /// What is charged up to a moment, in milli-GPU·ms.
    pub fn charged_at(&self, now: Time) -> i128 {
        self.charged_milli_ms + i128::from(self.rate_milli) * i128::from(now.since(self.since).0)
    }
}

/// An account would leave its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the account of {user} in {queue} cannot change its rate by {change} milli")]
pub struct OutOfRange {
    queue: String,
    user: String,
    change: i64,
}

impl Ledger {
    /// Changes what a user holds in a queue, from now on.
    pub fn change(
        &mut self,
        queue: &str,
        user: &str,
        change_milli: i64,
        now: Time,
    ) -> Result<(), OutOfRange> {
        let wrong = || OutOfRange { queue: queue.to_owned(), user: user.to_owned(), change: change_milli };
        let known = self.accounts.get_mut(queue).and_then(|users| users.get_mut(user));
        let hash = |account: &Account| fingerprint(&(queue, user, account));
        let account = match known {
            Some(account) => {
                self.sum = self.sum.wrapping_sub(hash(account));
                account
            }
            None => self.accounts.entry(queue.to_owned()).or_default().entry(user.to_owned()).or_default(),
        };
        let rate =
            account.rate_milli.checked_add(change_milli).filter(|rate| *rate >= 0).ok_or_else(wrong)?;
        *account = Account { charged_milli_ms: account.charged_at(now), rate_milli: rate, since: now };
        self.sum = self.sum.wrapping_add(hash(account));
        Ok(())
    }

    /// Takes back what was charged for a time in which nothing was held any more.
    pub fn take_back(&mut self, queue: &str, user: &str, milli_ms: i128) {
        let known = self.accounts.get_mut(queue).and_then(|users| users.get_mut(user));
        let Some(account) = known.filter(|_| milli_ms != 0) else { return };
        let hash = |account: &Account| fingerprint(&(queue, user, account));
        self.sum = self.sum.wrapping_sub(hash(account));
        account.charged_milli_ms -= milli_ms;
        self.sum = self.sum.wrapping_add(hash(account));
    }

    /// Notes that an allocation is over, with the device time that it held, in milli-GPU·ms.
    pub fn close(&mut self, milli_ms: i128) {
        self.closed_milli_ms += milli_ms;
    }

    /// Device time of allocations that are over.
    pub fn closed_milli_ms(&self) -> i128 {
        self.closed_milli_ms
    }

    /// What a user is charged in a queue.
    pub fn account(&self, queue: &str, user: &str) -> Option<&Account> {
        self.accounts.get(queue)?.get(user)
    }

    /// The queues that anything was ever used in.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        self.accounts.keys().map(String::as_str)
    }

    /// What is charged in a queue up to a moment, to all its users, in milli-GPU·ms.
    pub fn charged(&self, queue: &str, now: Time) -> i128 {
        let users = self.accounts.get(queue).into_iter().flat_map(BTreeMap::values);
        users.map(|account| account.charged_at(now)).sum()
    }

    /// What is charged to a queue and those below it up to a moment, in milli-GPU·ms.
    pub fn charged_below(&self, path: &str, now: Time) -> i128 {
        let below = format!("{path}/");
        let queues = self.accounts.range(below.clone()..).map(|(queue, _)| queue);
        let queues = queues.take_while(|queue| queue.starts_with(&below)).map(String::as_str);
        std::iter::once(path).chain(queues).map(|queue| self.charged(queue, now)).sum()
    }

    /// All accounts: queue, user, account.
    pub fn accounts(&self) -> impl Iterator<Item = (&str, &str, &Account)> {
        self.of_queues().flat_map(|(queue, users)| users.map(move |(user, account)| (queue, user, account)))
    }

    /// The accounts of each queue's users.
    pub(crate) fn of_queues(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = (&str, &Account)>)> {
        self.accounts.iter().map(|(queue, users)| {
            (queue.as_str(), users.iter().map(|(user, account)| (user.as_str(), account)))
        })
    }

    pub(crate) fn digest(&self) -> u64 {
        fingerprint(&(self.sum, self.closed_milli_ms))
    }
}
