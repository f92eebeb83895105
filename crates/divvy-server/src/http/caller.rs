//! Who sends a request: the kernel tells, per connection.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use divvy_api::{Problem, ProblemCode};
use divvy_core::decide::Person;

use super::answer::{Refused, vanished};
use crate::people::User;
use crate::pool::Pool;

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The user who sends the request.
#[derive(Clone, Debug)]
pub(super) struct Caller(pub(super) User);

impl Caller {
    /// The caller as the core's person.
    pub(super) fn person(&self, pool: &Pool) -> Person {
        let owner = &self.0.owner;
        let groups = owner.groups.iter().copied().chain([owner.gid]).collect();
        Person { name: owner.name.clone(), admin: pool.rules(&self.0), groups }
    }
}

/// Identifies the caller, and refuses users whom the pool does not serve.
pub(super) async fn identify(
    State(pool): State<Arc<Pool>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let peer = request.extensions().get::<Peer>().copied();
    let peer = peer.ok_or_else(|| Problem::new(ProblemCode::Internal, "the kernel does not say who asks"))?;
    if let Some(only) = pool.settings.only.as_ref().filter(|only| only.uid != peer.uid) {
        let text = format!("this pool belongs to {} and serves nobody else", only.name);
        return Err(Problem::new(ProblemCode::NotMember, text)
            .with_fix("start a pool of your own: `divvy up`")
            .into());
    }
    let user = match pool.people.remembered(peer.uid) {
        Some(user) => user,
        None => {
            let looking = pool.clone();
            pool.blocking(move || looking.people.look_up(peer.uid, peer.gid)).await.ok_or_else(vanished)?
        }
    };
    request.extensions_mut().insert(Caller(user));
    Ok(next.run(request).await)
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Problem::new(ProblemCode::Internal, "the kernel does not say who asks").into())
    }
}
