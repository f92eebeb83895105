//! Answers: JSON, or a problem.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use divvy_api::{Problem, ProblemCode, paths};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request that is answered with a problem.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Box<Problem>);

/// The result of most requests.
pub(super) type Answer = Result<Response, Refused>;

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = HeaderValue::from_static(paths::PROBLEM_TYPE);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, kind)], body).into_response()
    }
}

/// A value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body)
            .into_response(),
        Err(error) => Refused::from(Problem::new(ProblemCode::Internal, error.to_string())).into_response(),
    }
}

/// A value as JSON, with status 200.
pub(super) fn ok(value: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, value))
}

/// A thread of the daemon was lost together with the work on it.
pub(super) fn vanished() -> Problem {
    Problem::new(ProblemCode::Internal, "the work on this request broke off; the daemon's log says more")
}

pub(super) async fn no_such_path(uri: Uri) -> Refused {
    let path: String = uri.path().chars().take(200).collect();
    Problem::new(ProblemCode::NoSuchPath, format!("there is nothing at {path}"))
        .with_fix(format!("{} lists what there is", paths::OPENAPI))
        .into()
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Refused {
    let path: String = uri.path().chars().take(200).collect();
    let mut problem = Problem::new(ProblemCode::BadRequest, format!("{path} does not take {method}"));
    (problem.status, problem.title) = (405, "the path does not take this method".into());
    problem.into()
}

/// The parameters of a query string.
#[derive(Debug)]
pub(super) struct Words<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Words<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let read = Query::<T>::try_from_uri(&parts.uri);
        read.map(|Query(words)| Words(words))
            .map_err(|error| Problem::new(ProblemCode::BadRequest, error.body_text()).into())
    }
}
