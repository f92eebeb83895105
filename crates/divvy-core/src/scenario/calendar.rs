//! Lines about the calendar: drains and what is kept for queues.

use super::words::Words;
use super::{Done, Scenario, root};
use crate::decide::{Command, Reserve, Wanted};
use crate::model::reservation::Purpose;
use crate::time::Span;

impl Scenario {
    pub(super) fn drain(&mut self, words: &Words) -> Done {
        words.only(3, "evict", "at for")?;
        let on = match words.at(1, "on or off")? {
            "on" => true,
            "off" => false,
            other => return Err(format!("drain {other:?}: write on or off")),
        };
        let target = words.placed.get(2).filter(|word| **word != "evict");
        let command = match target {
            None => Command::SetDrain(on, root()),
            Some(target) if !on => Command::Undrain((*target).to_owned(), root()),
            Some(target) => {
                let reserve = self.kept(words, (Purpose::Maintenance, named(target)), words.has("evict"))?;
                Command::Reserve(Box::new(reserve), root())
            }
        };
        self.take(&command)
    }

    pub(super) fn reserve(&mut self, words: &Words) -> Done {
        words.only(2, "", "queue model at for")?;
        let what = words.at(1, "how many devices, or which")?;
        let model = words.named.get("model").map(|model| (*model).to_owned());
        let wanted = match what.parse() {
            Ok(count) => Wanted::Devices(count, model),
            Err(_) => named(what),
        };
        let queue = words.named.get("queue").ok_or("reserve: say for whom: queue=NAME")?;
        let reserve = self.kept(words, (Purpose::Queue((*queue).to_owned()), wanted), true)?;
        self.take(&Command::Reserve(Box::new(reserve), root()))
    }

    fn kept(
        &self,
        words: &Words,
        (purpose, what): (Purpose, Wanted),
        evicts: bool,
    ) -> Result<Reserve, String> {
        let from = self.now + words.span("at")?.unwrap_or(Span(0));
        let until = words.span("for")?.map(|span| from + span);
        Ok(Reserve { purpose, what, from, until, evicts, note: None })
    }
}

fn named(targets: &str) -> Wanted {
    Wanted::Named(targets.split(',').map(str::to_owned).collect())
}
