//! The API: what can be asked, of whom, and how it is answered.

mod answer;
mod attach;
mod caller;
mod change;
mod events;
mod follow;
mod history;
mod list;
mod output;
mod pool;
mod queues;
mod serve;
mod show;
mod submit;
mod wait;

use std::sync::Arc;

use axum::Router;
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

/// All paths. A path that is served is in the document, since both come from here.
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
        .routes(routes!(queues::queues, queues::set))
        .routes(routes!(history::history))
        .routes(routes!(events::events))
        .routes(routes!(pool::shutdown))
        .routes(routes!(pool::openapi))
        .routes(routes!(pool::reasons))
}

/// The OpenAPI document. Made when it is asked for: it would only lie in memory otherwise.
fn document() -> utoipa::openapi::OpenApi {
    let mut document = routes().into_openapi();
    document.info.version = paths::API_VERSION.to_string();
    document
}

/// The router, with who asks found out in front of it.
fn router(pool: Arc<Pool>) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(answer::no_such_path)
        .method_not_allowed_fallback(answer::no_such_method)
        .layer(middleware::from_fn_with_state(pool.clone(), caller::identify))
        .layer(middleware::map_response(with_version))
        .with_state(pool)
}

async fn with_version(mut response: Response) -> Response {
    if let Ok(version) = HeaderValue::from_str(&paths::API_VERSION.to_string()) {
        response.headers_mut().insert(HeaderName::from_static(paths::API_HEADER), version);
    }
    response
}
