//! Connections: accepted from the unix socket, limited in number and in time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};

use super::caller::Peer;
use crate::pool::Pool;

/// Connections at once: far below the usual limit of 20,000 files, of which each output stream takes two.
const MOST_CONNECTIONS: usize = 4096;

/// How long the head of a request may take, and how long a connection may idle between two. Local clients need milliseconds.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// The longest head, in bytes.
const LONGEST_HEAD_BYTES: usize = 64 << 10;

/// How long answers under way may still take when the daemon ends.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Serves until it is told to end.
pub(crate) async fn serve(listener: UnixListener, pool: Arc<Pool>, mut ending: watch::Receiver<bool>) {
    let router = super::router(pool);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // Takes a place first: without one, clients wait in the kernel's queue.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ending.wait_for(|ending| *ending) => break,
        };
        let stream = match stream {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most likely out of descriptors: other connections must close first.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (router, ending) = (router.clone(), ending.clone());
        tokio::spawn(async move {
            connection(stream, router, ending).await;
            drop(place);
        });
    }
    // A connection that holds a place is still being answered.
    let all = u32::try_from(MOST_CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(LAST_WORDS, places.acquire_many(all)).await;
}

async fn connection(stream: UnixStream, router: axum::Router, mut ending: watch::Receiver<bool>) {
    let Ok(credentials) = stream.peer_cred() else { return };
    let peer = Peer { uid: credentials.uid(), gid: credentials.gid() };
    let router = router.layer(axum::Extension(peer));
    let service = TowerToHyperService::new(tower_service(router));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(LONGEST_HEAD_BYTES);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    tokio::select! {
        // A client's mistakes, or its disappearance, concern only the client.
        _ = served.as_mut() => return,
        _ = ending.wait_for(|ending| *ending) => served.as_mut().graceful_shutdown(),
    }
    let _ = served.await;
}

/// Wraps the router so that it takes hyper's own body type.
fn tower_service(
    router: axum::Router,
) -> impl tower_service::Service<
    hyper::Request<hyper::body::Incoming>,
    Response = axum::response::Response,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send {
    use tower::ServiceExt;
    router.map_request(|request: hyper::Request<hyper::body::Incoming>| request.map(axum::body::Body::new))
}
