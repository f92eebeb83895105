//! The contract that every engine is held to.

use std::fs;

use divvy_core::action::Action;
use divvy_core::contract::{Begin, Harness};
use divvy_core::engine::{Abilities, Engine, Observation};
use divvy_core::id::{AllocationId, Term};
use divvy_engine::local::JobEnvironment;

use crate::pool::{Pool, await_lines, environment, is_alive};

crate::tests![the_contract_of_engines_holds];

fn the_contract_of_engines_holds() {
    divvy_core::contract::engine(&mut Local { pool: Pool::new() });
}

struct Local {
    pool: Pool,
}

/// The engine, except that a task has only started when its script has: a notice before it is ready to ignore it
/// would end it.
impl Engine for Local {
    fn submit(&mut self, actions: &[Action]) {
        self.pool.engine.as_mut().unwrap().submit(actions);
    }

    fn observe(&mut self) -> Vec<Observation> {
        let seen = self.pool.engine.as_mut().unwrap().observe();
        for observation in &seen {
            if let Observation::Started(allocation, _) = observation {
                await_lines(&self.pids(*allocation), 1);
            }
        }
        seen
    }

    fn abilities(&self) -> Abilities {
        self.pool.engine.as_ref().unwrap().abilities()
    }
}

impl Local {
    fn pids(&self, allocation: AllocationId) -> std::path::PathBuf {
        self.pool.work().join(format!("pids-{allocation}"))
    }

    fn script(&self, allocation: AllocationId, script: &str) -> Begin {
        let job = JobEnvironment { base: environment(), roles: Default::default() };
        job.write(&self.pool.state(), allocation.0).unwrap();
        let script = script.replace("PIDS", self.pids(allocation).to_str().unwrap());
        Begin::Launch(Box::new(self.pool.shell(allocation.0, &script)))
    }
}

impl Harness for Local {
    fn engine(&mut self) -> &mut dyn Engine {
        self
    }

    fn restart(&mut self, term: Term) -> Term {
        self.pool.close();
        self.pool.term = term;
        self.pool.open();
        term
    }

    fn wait(&mut self) {
        self.pool.hear();
    }

    fn patient(&mut self, allocation: AllocationId) -> Begin {
        self.script(allocation, "echo $$ >> PIDS; exec sleep 1000")
    }

    fn brief(&mut self, allocation: AllocationId, code: i32) -> Begin {
        self.script(allocation, &format!("echo $$ >> PIDS; exit {code}"))
    }

    fn stubborn(&mut self, allocation: AllocationId) -> Begin {
        self.script(
            allocation,
            "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo $$ >> PIDS; while :; do wait; done",
        )
    }

    fn processes(&mut self, allocation: AllocationId) -> (usize, usize) {
        let text = fs::read_to_string(self.pids(allocation)).unwrap_or_default();
        let mark = format!("DIVVY_RECORD={}", self.pool.record(allocation.0).display());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_of_task = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            is_alive(*pid) && environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        // The supervisor has the mark, too.
        let is_supervisor =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|n| n == "divvy-task\n");
        (text.lines().count(), pids.filter(|pid| is_of_task(pid) && !is_supervisor(pid)).count())
    }
}
