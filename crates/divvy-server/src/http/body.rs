//! Reads the whole body of a request before anything answers it.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use divvy_api::{Problem, ProblemCode, paths};
use http_body_util::BodyExt;

use super::answer::Refused;

/// Reads the body even where nobody uses it: if a connection is closed with bytes unread, it breaks at the sender's
/// end, sometimes before the answer has been read.
pub(super) async fn whole(request: Request, next: Next) -> Result<Response, Refused> {
    let (head, body) = request.into_parts();
    let bytes = read(&head.headers, body).await?;
    Ok(next.run(Request::from_parts(head, Body::from(bytes))).await)
}

/// How much of a too long body is read and thrown away, so that the sender gets to read the answer.
const MOST_DISCARDED_BYTES: usize = 256 << 20;

/// Reads a whole body, up to the limit.
async fn read(headers: &HeaderMap, mut body: Body) -> Result<Bytes, Problem> {
    let claimed: Option<usize> =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut all = Vec::with_capacity(claimed.unwrap_or(0).min(64 << 10));
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::new(ProblemCode::BadRequest, format!("the request broke off: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen > MOST_DISCARDED_BYTES {
            break;
        }
        if seen <= paths::LONGEST_BODY_BYTES {
            all.extend_from_slice(&data);
        } else {
            all = Vec::new();
        }
    }
    if seen > paths::LONGEST_BODY_BYTES {
        let most = paths::LONGEST_BODY_BYTES >> 20;
        return Err(Problem::new(ProblemCode::TooLarge, format!("the request has more than {most} MiB")));
    }
    Ok(all.into())
}
