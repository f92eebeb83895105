//! Watches: list the objects of a kind, then follow their changes for ever. A watch that breaks continues where it was; one that
//! is too old (410 Gone) starts again with a list.

use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use kube::Client;
use kube::core::WatchEvent;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::objects::Meta;

/// A change to the objects of a kind.
#[derive(Clone, Debug)]
pub(super) enum Change<T> {
    /// These objects exist, and no others.
    All(Vec<T>),
    /// This object is new or has changed.
    Is(Box<T>),
    /// This object is gone.
    Gone(Box<T>),
}

impl<T> Change<T> {
    /// Converts each object in the change.
    pub(super) fn map<U>(self, of: impl Fn(T) -> U) -> Change<U> {
        match self {
            Self::All(all) => Change::All(all.into_iter().map(of).collect()),
            Self::Is(object) => Change::Is(Box::new(of(*object))),
            Self::Gone(object) => Change::Gone(Box::new(of(*object))),
        }
    }
}

/// Objects that can be watched.
pub(super) trait Watched: DeserializeOwned + Clone + Send + 'static {
    /// Where they are listed.
    const PATH: &'static str;
    /// What all objects have.
    fn meta(&self) -> &Meta;
}

/// How many objects one answer holds: a few MB of pods.
const PAGE: usize = 500;
/// How long the server keeps a watch, in seconds; it is renewed from where it was.
const WATCH_S: u32 = 290;
/// Bookmarks come every minute: a connection that is silent for more than two minutes is dead.
const SILENCE: Duration = Duration::from_secs(130);
/// How long a list may take at most.
const LIST_WITHIN: Duration = Duration::from_secs(60);
/// How long a watch may take to begin: its beginning does not depend on any event.
const WATCH_WITHIN: Duration = Duration::from_secs(20);
/// How long to wait after a failure: doubled from the first value up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// One page of a list.
#[derive(Deserialize)]
struct List<T> {
    metadata: ListMeta,
    items: Option<Vec<T>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    go_on: String,
}

/// Why a watch ended.
enum Cut {
    /// Nobody listens any more.
    Unheard,
    /// Its version is too old: a list has to come first.
    TooOld,
}

/// Reports all changes to objects of a kind with these labels (all objects, if empty), until nobody listens.
pub(super) async fn follow<T: Watched>(client: Client, labels: String, tell: impl Fn(Change<T>) -> bool) {
    let chosen = &format!("{}?labelSelector={}", T::PATH, encoded(&labels));
    let mut pause = PAUSE.0;
    loop {
        match tokio::time::timeout(LIST_WITHIN, list::<T>(&client, chosen)).await {
            Ok(Ok((items, version))) => {
                pause = PAUSE.0;
                if !tell(Change::All(items)) {
                    return;
                }
                if let Cut::Unheard = go_on((&client, chosen), version, &tell).await {
                    return;
                }
            }
            // A kind that the server does not know yet: it has no objects.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                pause = PAUSE.1;
                if !tell(Change::All(Vec::new())) {
                    return;
                }
            }
            Ok(Err(error)) => tracing::warn!("cannot list {}: {error}", T::PATH),
            Err(_) => tracing::warn!("listing {} takes longer than {LIST_WITHIN:?}", T::PATH),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Lists all objects, page by page; returns them with their version.
async fn list<T: Watched>(client: &Client, chosen: &str) -> kube::Result<(Vec<T>, String)> {
    let (mut items, mut go_on) = (Vec::new(), String::new());
    loop {
        let path = format!("{chosen}&limit={PAGE}&continue={go_on}");
        let page: List<T> = client.request(get(&path)?).await?;
        items.extend(page.items.unwrap_or_default());
        if page.metadata.go_on.is_empty() {
            return Ok((items, page.metadata.resource_version));
        }
        go_on = page.metadata.go_on;
    }
}

/// Watches from a version on, again and again.
async fn go_on<T: Watched>(
    of: (&Client, &str),
    mut version: String,
    tell: &impl Fn(Change<T>) -> bool,
) -> Cut {
    let mut pause = PAUSE.0;
    loop {
        let before = version.clone();
        match watch(of, &mut version, tell).await {
            Ok(None) => {}
            Ok(Some(cut)) => return cut,
            Err(kube::Error::Api(status)) if status.code == 410 => return Cut::TooOld,
            Err(error) => tracing::debug!("the watch of {} was cut: {error}", T::PATH),
        }
        if version != before {
            pause = PAUSE.0;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Runs one watch to its end.
async fn watch<T: Watched>(
    (client, chosen): (&Client, &str),
    version: &mut String,
    tell: &impl Fn(Change<T>) -> bool,
) -> kube::Result<Option<Cut>> {
    let path = format!(
        "{chosen}&watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={version}"
    );
    let asked = client.request_events::<T>(get(&path)?);
    let silent = || kube::Error::Service("a watch was not begun in time".into());
    let events = tokio::time::timeout(WATCH_WITHIN, asked).await.map_err(|_| silent())??;
    pin_mut!(events);
    while let Ok(Some(event)) = tokio::time::timeout(SILENCE, events.next()).await {
        let change = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Is(Box::new(object)),
            WatchEvent::Deleted(object) => Change::Gone(Box::new(object)),
            WatchEvent::Bookmark(mark) => {
                *version = mark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        };
        if let Change::Is(object) | Change::Gone(object) = &change {
            version.clone_from(&object.meta().resource_version);
        }
        if !tell(change) {
            return Ok(Some(Cut::Unheard));
        }
    }
    Ok(None)
}

/// Encodes a text for use in a path.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn get(path: &str) -> kube::Result<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)
}
