//! One turn: take, observe, plan, append, and only then act and answer.

use std::fs;
use std::io::Write;

use super::*;
use divvy_core::controller::Batch;
use divvy_core::event::Event;
use divvy_core::id::JobId;
use divvy_core::state::State;
use divvy_core::time::Time;
use divvy_engine::local::JobEnvironment;

/// A request that was taken, and the answer it will get.
type Answered = (Reply, Result<Answer, Refusal>);

impl Control {
    /// Carries out one turn.
    pub(super) fn turn(&mut self, requests: Vec<Request>) -> Result<(), ControlError> {
        self.pool.requests.awake();
        self.observed.extend(self.engine.observe());
        if !self.has_room() {
            self.refuse(requests);
            return Ok(());
        }
        let now = clock::now();
        let pool = self.pool.clone();
        // Held until the commit is durable, so that nobody reads events that could still be lost.
        let mut controller = pool.controller.blocking_write();
        let mut answers = Vec::new();
        for observation in &self.observed {
            controller.see(observation, now)?;
        }
        for request in requests {
            answers.extend(self.take(&mut controller, request, now)?);
        }
        self.foresight.renew(&pool.reader, &mut controller, now)?;
        self.tick(&mut controller, now)?;
        controller.cycle(now)?;
        let Some(batch) = controller.drain() else {
            drop(controller);
            self.observed.clear();
            answer(answers);
            return Ok(());
        };
        if let Err(error) = self.append(&batch) {
            *controller = self.rebuild()?;
            drop(controller);
            return self.not_appended(error, answers);
        }
        self.observed.clear();
        self.foresight.note(&pool.reader, &batch.attempts);
        self.engine.submit(&batch.actions);
        pool.watchers.remember(&batch.attempts);
        pool.watchers.tell(controller.state(), &batch.commit.events);
        self.forget_environments(controller.state(), &batch);
        drop(controller);
        pool.position.send_replace(self.store.position());
        answer(answers);
        self.snapshots.maybe(&self.store, &pool);
        Ok(())
    }

    /// Returns whether it makes sense to write: while the disk is full, only after a probe succeeds.
    fn has_room(&mut self) -> bool {
        if self.full.is_some() && self.probe().is_ok() {
            self.full = None;
            self.pool.set_full(None);
            tracing::info!("there is room on the disk again");
        }
        self.full.is_none()
    }

    /// Tries to write as much as a usual commit takes.
    fn probe(&self) -> std::io::Result<()> {
        let path = self.pool.settings.state.join("probe");
        let tried = fs::File::create(&path).and_then(|mut file| {
            file.write_all(&[0; 256 << 10])?;
            file.sync_all()
        });
        let removed = fs::remove_file(&path);
        tried.and(removed)
    }

    fn refuse(&mut self, requests: Vec<Request>) {
        let Some(error) = self.full.clone() else { return };
        for request in requests {
            match request {
                Request::Submit(_, _, reply) | Request::Command(_, reply) => {
                    let _ = reply.send(Err(Refusal::Log(error.clone())));
                }
                // Leaving writes nothing.
                Request::End(Ending::Leave, reply) => {
                    self.ending = Some(Ending::Leave);
                    let _ = reply.send(Ok(Answer::default()));
                }
                Request::End(_, reply) => {
                    let _ = reply.send(Err(Refusal::Log(error.clone())));
                }
                Request::Wake => {}
            }
        }
    }

    fn take(
        &mut self,
        controller: &mut Controller,
        request: Request,
        now: Time,
    ) -> Result<Option<Answered>, ControlError> {
        Ok(match request {
            Request::Wake => None,
            Request::Submit(_, _, reply) if self.ending.is_some() => Some((reply, Err(Refusal::Ending))),
            Request::Submit(submit, environment, reply) => {
                let taken = controller.take(&Command::Submit(submit), now)?.map_err(Refusal::Rejected);
                if let Ok(Answer { job: Some(number), .. }) = &taken {
                    self.foresight.foresee(&self.pool.reader, controller, *number, now)?;
                }
                if let (Ok(Answer { job: Some(number), .. }), Some(environment)) = (&taken, environment) {
                    // Only a rename within a directory that was just written to. If it fails, the launch reports it.
                    if let Err(error) = environment.belong_to(*number) {
                        tracing::warn!("cannot keep the environment of job {number}: {error}");
                    }
                }
                Some((reply, taken))
            }
            Request::Command(command, reply) => {
                Some((reply, controller.take(&command, now)?.map_err(Refusal::Rejected)))
            }
            Request::End(ending, reply) => Some((reply, self.end(controller, ending, now)?)),
        })
    }

    fn end(
        &mut self,
        controller: &mut Controller,
        ending: Ending,
        now: Time,
    ) -> Result<Result<Answer, Refusal>, ControlError> {
        if let Ending::Drain(by) | Ending::Kill(by) = &ending
            && let Err(rejection) = controller.take(&Command::SetDrain(true, by.clone()), now)?
        {
            return Ok(Err(Refusal::Rejected(rejection)));
        }
        if let Ending::Kill(by) = &ending
            && let Err(rejection) = controller.take(&Command::StopAll(by.clone()), now)?
        {
            return Ok(Err(Refusal::Rejected(rejection)));
        }
        self.ending = Some(ending);
        self.pool.set_ending();
        Ok(Ok(Answer::default()))
    }

    /// Logs a tick, if anything has happened since the last one.
    fn tick(&mut self, controller: &mut Controller, now: Time) -> Result<(), ControlError> {
        let since = now.since(controller.state().now).0;
        if self.store.position() > self.ticked && since >= TICK.as_millis() as i64 {
            let _ = controller.take(&Command::Tick, now)?;
            self.ticked = Position(self.store.position().0 + 1);
        }
        Ok(())
    }

    fn append(&mut self, batch: &Batch) -> Result<(), LogError> {
        if batch.commit.events.is_empty() {
            return Ok(());
        }
        self.store.append_with(&batch.commit, &batch.attempts).map(|_| ())
    }

    /// Rebuilds the controller from the log. The database is opened anew: after a failed write only its file can be
    /// trusted.
    fn rebuild(&mut self) -> Result<Controller, ControlError> {
        let (store, _) = Store::open(&self.pool.settings.state)?;
        let state = store.fold()?;
        self.store = store;
        Ok(Controller::open(state))
    }

    fn not_appended(&mut self, error: LogError, answers: Vec<Answered>) -> Result<(), ControlError> {
        for (reply, _) in answers {
            let _ = reply.send(Err(Refusal::Log(error.clone())));
        }
        if !matches!(error, LogError::Full(_)) {
            return Err(ControlError::Log(error));
        }
        tracing::warn!("{error}; running jobs go on, nothing new is taken until there is room");
        self.pool.set_full(Some(error.to_string()));
        self.full = Some(error);
        Ok(())
    }

    /// Removes the environments of jobs that have ended, arrays once all their members have.
    fn forget_environments(&self, state: &State, batch: &Batch) {
        let ended = batch.commit.events.iter().filter_map(|stamped| match &stamped.event {
            Event::AttemptEnded { job, .. } | Event::Dropped { job, .. } => Some(job.number),
            _ => None,
        });
        for number in ended.filter(|number| !state.jobs.contains_key(number)) {
            if let Err(error) = JobEnvironment::remove(&self.pool.settings.state, number) {
                tracing::warn!("cannot remove the environment of job {}: {error}", JobId::single(number));
            }
        }
    }
}

fn answer(answers: Vec<Answered>) {
    for (reply, answer) in answers {
        // The asker may be gone; the request was carried out anyway.
        let _ = reply.send(answer);
    }
}
