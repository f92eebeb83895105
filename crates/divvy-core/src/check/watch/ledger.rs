//! What was charged according to the books, compared with the ledger (L11).

use super::*;

/// What a user is charged in a queue: `base + rate · time`, in milli-GPU·ms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    pub(super) base_milli_ms: i128,
    pub(super) rate_milli: i64,
}

impl Account {
    pub(super) fn charged_at(&self, now: Time) -> i128 {
        self.base_milli_ms + i128::from(self.rate_milli) * i128::from(now.0)
    }

    pub(super) fn change(&mut self, milli: i64, now: Time) {
        self.rate_milli += milli;
        self.base_milli_ms -= i128::from(milli) * i128::from(now.0);
    }
}

impl Watch {
    pub(super) fn ledger_agrees(&self, state: &State, hold: &Hold, wrong: &mut Found) {
        let own = self.accounts[hold.account];
        let user = self.account_of.get(&hold.queue).into_iter().flatten();
        let user = user.into_iter().find(|(_, account)| **account == hold.account).map(|(user, _)| user);
        let kept = user.and_then(|user| state.ledger.account(&hold.queue, user));
        let agrees = kept.is_some_and(|kept| {
            kept.rate_milli == own.rate_milli && kept.charged_at(state.now) == own.charged_at(state.now)
        });
        if !agrees || state.ledger.closed_milli_ms() != self.closed_milli_ms {
            let text = format!(
                "queue {} is charged {kept:?}; held were {} milli-GPU·ms, {} milli now; closed {} and {}",
                hold.queue,
                own.charged_at(state.now),
                own.rate_milli,
                state.ledger.closed_milli_ms(),
                self.closed_milli_ms,
            );
            wrong.push(found("L11", text));
        }
    }

    pub(super) fn account(&mut self, queue: &str, user: &str) -> usize {
        if let Some(known) = self.account_of.get(queue).and_then(|users| users.get(user)) {
            return *known;
        }
        let new = self.accounts.len();
        self.accounts.push(Account::default());
        self.account_of.entry(queue.to_owned()).or_default().insert(user.to_owned(), new);
        new
    }
}
