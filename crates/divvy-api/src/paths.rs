//! The paths of the API, its headers, and the version that both sides compare.

use crate::types::ApiVersion;

/// The API's version. Both sides work with one minor version more or less; another major version is refused.
pub const API_VERSION: ApiVersion = ApiVersion { major: 1, minor: 0 };

/// `GET` → [`Pool`](crate::Pool).
pub const POOL: &str = "/v1/pool";
/// `GET` → [`Check`](crate::Check): runs the checker of the laws over the pool's state.
pub const POOL_CHECK: &str = "/v1/pool/check";
/// `GET` → array of [`Gpu`](crate::Gpu).
pub const GPUS: &str = "/v1/gpus";
/// `POST` [`Submit`](crate::Submit) → [`Submitted`](crate::Submitted), [`Trial`](crate::Trial) or attach frames;
/// `GET` with [`JobsQuery`](crate::JobsQuery) → [`Page`](crate::Page) of [`Job`](crate::Job).
pub const JOBS: &str = "/v1/jobs";
/// `GET` → array of [`Queue`](crate::Queue); with [`ChangeQuery`](crate::ChangeQuery), `PUT` the text of queues.yaml or `PATCH`
/// [`SetQueue`](crate::SetQueue) → [`Applied`](crate::Applied).
pub const QUEUES: &str = "/v1/queues";
/// `GET` with [`FileQuery`](crate::FileQuery) → the text of the queues.yaml that is, or was, in force.
pub const QUEUES_FILE: &str = "/v1/queues/file";
/// `GET` with [`ChangesQuery`](crate::ChangesQuery) → array of [`QueuesChange`](crate::QueuesChange), oldest first.
pub const QUEUES_HISTORY: &str = "/v1/queues/history";
/// `GET` → array of [`Reservation`](crate::Reservation); `POST` [`Reserve`](crate::Reserve) → [`Reservation`](crate::Reservation).
pub const RESERVATIONS: &str = "/v1/reservations";
/// `POST` [`EndReservation`](crate::EndReservation) → array of the [`Reservation`](crate::Reservation)s that were taken back.
pub const RESERVATIONS_END: &str = "/v1/reservations/end";
/// `GET` with [`HistoryQuery`](crate::HistoryQuery) → array of [`Usage`](crate::Usage).
pub const HISTORY: &str = "/v1/history";
/// `GET` → server-sent [`Event`](crate::Event)s; `id:` is the position in the log, `Last-Event-ID` resumes.
pub const EVENTS: &str = "/v1/events";
/// `POST` [`Shutdown`](crate::Shutdown) → [`ShutdownBegun`](crate::ShutdownBegun).
pub const SHUTDOWN: &str = "/v1/shutdown";
/// `GET` → the OpenAPI 3.1 document.
pub const OPENAPI: &str = "/v1/openapi.json";
/// `GET` → array of [`ReasonPage`](crate::ReasonPage): every code that can be a job's reason.
pub const REASONS: &str = "/v1/reasons";

/// `GET /v1/jobs/{id}` → [`JobDetail`](crate::JobDetail).
pub fn job(id: &str) -> String {
    format!("{JOBS}/{}", escape(id))
}

/// `GET /v1/jobs/{id}/explain` → [`Explain`](crate::Explain).
pub fn explain(id: &str) -> String {
    format!("{}/explain", job(id))
}

/// `GET /v1/jobs/{id}/output` with [`OutputQuery`](crate::OutputQuery) → bytes.
pub fn output(id: &str) -> String {
    format!("{}/output", job(id))
}

/// `GET /v1/jobs/{id}/attach?from=OFFSET` → attach frames.
pub fn attach(id: &str) -> String {
    format!("{}/attach", job(id))
}

/// `GET /v1/jobs/{id}/wait?timeout_ms=N` → [`Waited`](crate::Waited).
pub fn wait(id: &str) -> String {
    format!("{}/wait", job(id))
}

/// `POST /v1/jobs/{id}/{cancel,hold,release}` → [`Changed`](crate::Changed).
pub fn change(id: &str, verb: &str) -> String {
    format!("{}/{verb}", job(id))
}

/// Carries the version of the API, `1.0`, in every request and answer.
pub const API_HEADER: &str = "x-divvy-api";
/// Carries the client's key for a submission: the same key submits once.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Carries the offset of the first byte of an answer to `output`.
pub const OFFSET: &str = "x-divvy-offset";
/// The media type of attach frames.
pub const ATTACH_TYPE: &str = "application/vnd.divvy.attach";
/// The media type of errors.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// The longest body that the daemon reads, in bytes. An environment is at most 2 MiB on Linux (`ARG_MAX`).
pub const LONGEST_BODY_BYTES: usize = 8 << 20;

/// Escapes a text for a path or query: all but unreserved characters as `%XX`.
pub fn escape(text: &str) -> String {
    use std::fmt::Write;
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// Joins a path and the given parts of a query.
pub fn with_query(path: &str, parts: &[(&str, Option<String>)]) -> String {
    let mut whole = path.to_owned();
    let mut sign = '?';
    for (key, value) in parts {
        if let Some(value) = value {
            whole.push(sign);
            whole.push_str(key);
            whole.push('=');
            whole.push_str(&escape(value));
            sign = '&';
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write_cannot_leave_its_place_in_a_path_or_query() {
        assert_eq!(job("12_3"), "/v1/jobs/12_3");
        assert_eq!(job("../x?y#z\n"), "/v1/jobs/..%2Fx%3Fy%23z%0A");
        let parts = [("user", Some("a&b=ü".to_owned())), ("queue", None), ("limit", Some("5".to_owned()))];
        assert_eq!(with_query(JOBS, &parts), "/v1/jobs?user=a%26b%3D%C3%BC&limit=5");
    }
}
