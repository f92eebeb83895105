//! Makes a life that breaks a law small: leaves out everything without which the law is still broken.

use divvy_core::amount::Limits;
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::Queue;

use super::life::{JobLine, Life, What};
use super::world::live;

/// Returns a smaller life that breaks the same law, found by leaving out steps (first many, then single ones), then by making nodes,
/// queues, settings and jobs plainer. `tries` bounds how many lives are lived; `told` hears how many steps are left.
pub fn shrink(life: &Life, tries: usize, told: &mut dyn FnMut(usize)) -> Life {
    let Some(law) = live(life).violation.map(|(_, violation)| violation.law) else { return life.clone() };
    let mut search = Search { law, left: tries, best: life.clone() };
    loop {
        let before = search.best.clone();
        search.leave_out_steps(told);
        search.make_plainer();
        if search.left == 0 || search.best == before {
            return search.best;
        }
    }
}

struct Search {
    law: &'static str,
    left: usize,
    best: Life,
}

impl Search {
    /// Keeps a smaller life if it breaks the same law.
    fn take(&mut self, smaller: Life) -> bool {
        if self.left == 0 || smaller == self.best {
            return false;
        }
        self.left -= 1;
        let breaks = live(&smaller).violation.is_some_and(|(_, violation)| violation.law == self.law);
        if breaks {
            self.best = smaller;
        }
        breaks
    }

    fn leave_out_steps(&mut self, told: &mut dyn FnMut(usize)) {
        let mut width = self.best.steps.len().div_ceil(2);
        while width > 0 {
            let mut from = self.best.steps.len().saturating_sub(width);
            loop {
                let mut smaller = self.best.clone();
                let to = (from + width).min(smaller.steps.len());
                smaller.steps.drain(from..to);
                self.take(smaller);
                told(self.best.steps.len());
                if from == 0 || self.left == 0 {
                    break;
                }
                from = from.saturating_sub(width).min(self.best.steps.len());
            }
            width /= 2;
        }
    }

    fn make_plainer(&mut self) {
        self.take(Life { policy: Policy::default(), ..self.best.clone() });
        self.take(Life { busy_percent: 0, ..self.best.clone() });
        for node in (0..self.best.nodes.len()).rev() {
            let mut smaller = self.best.clone();
            smaller.nodes.remove(node);
            self.take(smaller);
        }
        for queue in (0..self.best.queues.len()).rev() {
            let amounts: [fn(&mut Queue) -> &mut Limits; 4] =
                [|it| &mut it.limit, |it| &mut it.guarantee, |it| &mut it.lend, |it| &mut it.borrow];
            for amounts in amounts {
                let mut smaller = self.best.clone();
                amounts(&mut smaller.queues[queue]).clear();
                self.take(smaller);
            }
            let mut smaller = self.best.clone();
            smaller.queues.remove(queue);
            self.take(smaller);
        }
        for change in PLAINER {
            for step in 0..self.best.steps.len() {
                let mut smaller = self.best.clone();
                if let What::Submit(line) = &mut smaller.steps[step].what {
                    change(line);
                    self.take(smaller);
                }
            }
        }
    }
}

/// Ways to make a job plainer.
const PLAINER: [fn(&mut JobLine); 19] = [
    |line| line.array = None,
    |line| line.tasks = 1,
    |line| line.more_tasks = 0,
    |line| (line.cores, line.memory_gib) = (None, None),
    |line| line.milli = 0,
    |line| line.model = None,
    |line| line.speed.clear(),
    |line| line.company = None,
    |line| line.ways.clear(),
    |line| line.spread = None,
    |line| line.priority = 0,
    |line| (line.limit_ms, line.start_in_ms, line.estimate_ms) = (None, None, None),
    |line| line.requeue = None,
    |line| line.after = None,
    |line| (line.held, line.waits, line.exclusive) = (false, false, false),
    |line| (line.resumes, line.stays, line.token) = (false, false, None),
    |line| line.gpus = line.gpus.min(1),
    |line| line.exit_code = 0,
    |line| line.queue = "default".into(),
];
