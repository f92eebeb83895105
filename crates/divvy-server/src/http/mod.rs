//! The API: its paths, its callers, and how requests are answered.

mod answer;
mod attach;
mod body;
mod caller;
mod change;
mod events;
mod follow;
mod history;
mod list;
mod output;
mod pool;
mod queues;
mod queues_past;
mod reservations;
mod serve;
mod show;
mod submit;
mod wait;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::HeaderValue;
use axum::http::header::HeaderName;
use axum::middleware;
use axum::response::Response;
use divvy_api::paths;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use list::Places;
pub(crate) use serve::serve;

use crate::pool::Pool;

/// What the document says about the whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Divvy",
        description = "Who gets which GPU, when, and how much of it, and why. Served over a unix socket; the kernel says who asks. Times are milliseconds since 1970. Errors are `application/problem+json` (RFC 9457) with a stable `code`.",
        license(name = "MIT OR Apache-2.0")
    ),
    components(schemas(
        divvy_api::Problem,
        divvy_api::Event,
        divvy_api::Trial,
        divvy_api::attach::Progress,
        divvy_api::Waited
    ))
)]
struct Document;

/// All paths. Router and document both come from here, so each path that is served is in the document.
fn routes() -> OpenApiRouter<Arc<Pool>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(pool::pool))
        .routes(routes!(pool::check))
        .routes(routes!(pool::gpus))
        .routes(routes!(list::list, submit::submit))
        .routes(routes!(show::show))
        .routes(routes!(show::explain))
        .routes(routes!(output::output))
        .routes(routes!(attach::attach))
        .routes(routes!(wait::wait))
        .routes(routes!(change::cancel))
        .routes(routes!(change::hold))
        .routes(routes!(change::release))
        .routes(routes!(change::checkpointed))
        .routes(routes!(change::set))
        .routes(routes!(queues::queues, queues::set, queues::change))
        .routes(routes!(queues_past::file))
        .routes(routes!(queues_past::history))
        .routes(routes!(reservations::list, reservations::reserve))
        .routes(routes!(reservations::end))
        .routes(routes!(history::history))
        .routes(routes!(events::events))
        .routes(routes!(pool::shutdown))
        .routes(routes!(pool::openapi))
        .routes(routes!(pool::reasons))
}

/// Builds the OpenAPI document when it is asked for: kept, it would only use memory.
fn document() -> utoipa::openapi::OpenApi {
    let mut document = routes().into_openapi();
    document.info.version = paths::API_VERSION.to_string();
    document
}

/// Builds the router, behind the layers that read the request and identify the caller.
fn router(pool: Arc<Pool>) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(answer::no_such_path)
        .method_not_allowed_fallback(answer::no_such_method)
        .layer(middleware::from_fn_with_state(pool.clone(), caller::identify))
        .layer(middleware::from_fn(body::whole))
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::map_response(with_version))
        .with_state(pool)
}

async fn with_version(mut response: Response) -> Response {
    if let Ok(version) = HeaderValue::from_str(&paths::API_VERSION.to_string()) {
        response.headers_mut().insert(HeaderName::from_static(paths::API_HEADER), version);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_the_api_is_in_the_document() {
        let document = document();
        let served = &document.paths.paths;
        let one = |path: String| path.replace("%7Bid%7D", "{id}");
        let id = "{id}";
        let all = [
            paths::POOL.to_owned(),
            paths::POOL_CHECK.to_owned(),
            paths::GPUS.to_owned(),
            paths::JOBS.to_owned(),
            paths::QUEUES.to_owned(),
            paths::QUEUES_FILE.to_owned(),
            paths::QUEUES_HISTORY.to_owned(),
            paths::RESERVATIONS.to_owned(),
            paths::RESERVATIONS_END.to_owned(),
            paths::HISTORY.to_owned(),
            paths::EVENTS.to_owned(),
            paths::SHUTDOWN.to_owned(),
            paths::OPENAPI.to_owned(),
            paths::REASONS.to_owned(),
            one(paths::job(id)),
            one(paths::explain(id)),
            one(paths::output(id)),
            one(paths::attach(id)),
            one(paths::wait(id)),
            one(paths::change(id, "cancel")),
            one(paths::change(id, "hold")),
            one(paths::change(id, "release")),
            one(paths::change(id, "checkpointed")),
            one(paths::change(id, "set")),
        ];
        for path in &all {
            assert!(served.contains_key(path), "{path} is not in the document");
        }
        assert_eq!(served.len(), all.len(), "{:?}", served.keys());
        assert_eq!(document.info.version, "1.0");
    }

    #[test]
    fn the_document_refers_only_to_schemas_that_it_has() {
        let text = document().to_json().unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let schemas = value["components"]["schemas"].as_object().unwrap();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name} is referred to and not there");
        }
    }
}
