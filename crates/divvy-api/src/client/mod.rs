//! The client: HTTP/1.1 over a unix socket, one connection, on the caller's tokio runtime.

mod sockets;
mod stream;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

pub use sockets::{
    LONGEST_SOCKET_PATH_BYTES, ReachablePath, SYSTEM_SOCKET, Sockets, reachable_path, user_socket,
};
pub use stream::{ByteStream, EventStream, FrameStream};

use crate::paths;
use crate::types::{ApiVersion, Problem, ProblemCode};

/// How long the daemon may take to begin its answer. It answers in milliseconds; a full disk or a stopped process is
/// noticed by this.
pub const USUAL_DEADLINE: Duration = Duration::from_secs(30);

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on any of the sockets.
    #[error("no daemon answers")]
    NoDaemon {
        /// The sockets that were tried, each with its error.
        tried: Vec<(PathBuf, std::io::Error)>,
    },
    /// The daemon is there, but silent.
    #[error("the daemon on {} has not answered for {} s", socket.display(), after.as_secs())]
    Silent {
        /// Its socket.
        socket: PathBuf,
        /// For how long.
        after: Duration,
    },
    /// The connection broke off before the answer was whole.
    #[error("the connection to the daemon on {} broke off", socket.display())]
    Broken {
        /// Its socket.
        socket: PathBuf,
        /// Why.
        source: hyper::Error,
    },
    /// The daemon answered with a problem.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// The daemon speaks another API.
    #[error("the daemon speaks version {daemon} of the API, this program {}", paths::API_VERSION)]
    Version {
        /// What it speaks.
        daemon: ApiVersion,
    },
    /// The answer cannot be read.
    #[error("the daemon's answer to {path} cannot be read: {what}")]
    Answer {
        /// What was asked.
        path: String,
        /// What is wrong with it.
        what: String,
    },
}

impl ClientError {
    /// Returns whether the daemon went away, as when it is restarted: asking again may succeed.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::NoDaemon { .. } | Self::Broken { .. })
    }
}

/// A request to the daemon.
#[derive(Clone, Debug)]
pub struct Ask {
    method: Method,
    path: String,
    body: Bytes,
    content_type: &'static str,
    headers: Vec<(&'static str, String)>,
    deadline: Duration,
}

impl Ask {
    fn new(method: Method, path: impl Into<String>) -> Self {
        let path = path.into();
        let (body, content_type) = (Bytes::new(), "application/json");
        Self { method, path, body, content_type, headers: Vec::new(), deadline: USUAL_DEADLINE }
    }

    /// A `GET`.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// A `POST` of JSON.
    pub fn post(path: impl Into<String>, body: &impl Serialize) -> Self {
        // The wire types are plain maps, lists and texts: writing them cannot fail.
        Self { body: serde_json::to_vec(body).unwrap_or_default().into(), ..Self::new(Method::POST, path) }
    }

    /// A `PATCH` of JSON.
    pub fn patch(path: impl Into<String>, body: &impl Serialize) -> Self {
        Self { method: Method::PATCH, ..Self::post(path, body) }
    }

    /// A `PUT` of a text.
    pub fn put_text(path: impl Into<String>, text: String) -> Self {
        Self { body: text.into(), content_type: "application/yaml", ..Self::new(Method::PUT, path) }
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sets how long the daemon may take to begin its answer.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(HOST, "divvy")
            .header(paths::API_HEADER, paths::API_VERSION.to_string());
        if !self.body.is_empty() {
            request = request.header(CONTENT_TYPE, self.content_type);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(Full::new(self.body.clone()))
    }
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    /// Connects to the first socket on which somebody listens.
    pub async fn connect(sockets: &Sockets) -> Result<Self, ClientError> {
        let mut tried = Vec::new();
        let anyone = sockets.named().is_some();
        for socket in sockets.candidates() {
            match open(&socket).await.and_then(|stream| if anyone { Ok(stream) } else { trusted(stream) }) {
                Ok(stream) => {
                    let sender = handshake(&socket, stream).await?;
                    return Ok(Self { socket, sender });
                }
                Err(error) => tried.push((socket, error)),
            }
        }
        Err(ClientError::NoDaemon { tried })
    }

    /// Connects again to the same socket.
    pub async fn reconnect(&mut self) -> Result<(), ClientError> {
        let stream = open(&self.socket).await.map_err(|error| self.gone(error))?;
        self.sender = handshake(&self.socket, stream).await?;
        Ok(())
    }

    fn gone(&self, error: std::io::Error) -> ClientError {
        ClientError::NoDaemon { tried: vec![(self.socket.clone(), error)] }
    }

    /// The socket that it is connected to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Asks, and reads the answer as JSON.
    pub async fn ask<T: DeserializeOwned>(&mut self, ask: &Ask) -> Result<T, ClientError> {
        let bytes = self.ask_bytes(ask).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ClientError::Answer { path: ask.path.clone(), what: error.to_string() })
    }

    /// Asks for a path with `GET`, and reads the answer as JSON.
    pub async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ClientError> {
        self.ask(&Ask::get(path)).await
    }

    /// Asks, and returns the answer's bytes.
    pub async fn ask_bytes(&mut self, ask: &Ask) -> Result<Bytes, ClientError> {
        let response = self.send(ask).await?;
        let whole = tokio::time::timeout(ask.deadline, response.into_body().collect());
        let silent = || ClientError::Silent { socket: self.socket.clone(), after: ask.deadline };
        let body = whole.await.map_err(|_| silent())?;
        Ok(body.map_err(|source| ClientError::Broken { socket: self.socket.clone(), source })?.to_bytes())
    }

    /// Asks, and returns the answer's bytes as they come.
    pub async fn stream(&mut self, ask: &Ask) -> Result<ByteStream, ClientError> {
        let response = self.send(ask).await?;
        Ok(ByteStream::new(self.socket.clone(), response))
    }

    /// Sends the request and waits for the head of the answer; a problem is an error.
    async fn send(&mut self, ask: &Ask) -> Result<Response<Incoming>, ClientError> {
        // A connection that is busy with an answer that nobody reads any more is replaced by a new one.
        let ready = tokio::time::timeout(Duration::from_millis(100), self.sender.ready()).await;
        if !matches!(ready, Ok(Ok(()))) {
            self.reconnect().await?;
        }
        let request = ask
            .request()
            .map_err(|error| ClientError::Answer { path: ask.path.clone(), what: error.to_string() })?;
        let answer = tokio::time::timeout(ask.deadline, self.sender.send_request(request)).await;
        let response = match answer {
            Err(_) => return Err(ClientError::Silent { socket: self.socket.clone(), after: ask.deadline }),
            Ok(Err(source)) => return Err(ClientError::Broken { socket: self.socket.clone(), source }),
            Ok(Ok(response)) => response,
        };
        check_version(&response)?;
        if response.status().is_success() { Ok(response) } else { Err(problem(&ask.path, response).await) }
    }
}

fn check_version(response: &Response<Incoming>) -> Result<(), ClientError> {
    let said = response.headers().get(paths::API_HEADER).and_then(|value| value.to_str().ok());
    match said.and_then(ApiVersion::parse) {
        Some(daemon) if daemon.major != paths::API_VERSION.major => Err(ClientError::Version { daemon }),
        _ => Ok(()),
    }
}

/// The daemon's own words, or the bare status if it has none.
async fn problem(path: &str, response: Response<Incoming>) -> ClientError {
    let status = response.status();
    let body = tokio::time::timeout(USUAL_DEADLINE, response.into_body().collect()).await;
    let bytes = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    let read = serde_json::from_slice::<Problem>(&bytes);
    ClientError::Problem(Box::new(read.unwrap_or_else(|_| bare(path, status))))
}

fn bare(path: &str, status: StatusCode) -> Problem {
    let code = match status {
        StatusCode::NOT_FOUND => ProblemCode::NoSuchPath,
        StatusCode::PAYLOAD_TOO_LARGE => ProblemCode::TooLarge,
        StatusCode::SERVICE_UNAVAILABLE => ProblemCode::Busy,
        status if status.is_client_error() => ProblemCode::BadRequest,
        _ => ProblemCode::Internal,
    };
    let mut problem = Problem::new(code, format!("the daemon answered {status} to {path}"));
    problem.status = status.as_u16();
    problem
}

/// Connects. If so many clients arrive at once that the daemon's queue of them is full, waits for its turn.
async fn open(socket: &Path) -> std::io::Result<UnixStream> {
    let reachable = reachable_path(socket)?;
    let begun = std::time::Instant::now();
    loop {
        match UnixStream::connect(reachable.path()).await {
            Err(error)
                if error.kind() == std::io::ErrorKind::WouldBlock && begun.elapsed() < USUAL_DEADLINE =>
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            connected => return connected,
        }
    }
}

/// A submission carries secrets, and `/tmp` belongs to everyone: on a socket that nobody named, only root or the user
/// may listen.
fn trusted(stream: UnixStream) -> std::io::Result<UnixStream> {
    let listener = stream.peer_cred()?.uid();
    if listener == 0 || listener == rustix::process::getuid().as_raw() {
        return Ok(stream);
    }
    let what = format!(
        "user {listener} listens there, who is neither root nor you; name it with --socket to trust it"
    );
    Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, what))
}

async fn handshake(socket: &Path, stream: UnixStream) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let broken = |source| ClientError::Broken { socket: socket.to_owned(), source };
    let (sender, connection) = Builder::new().handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // The errors of the connection reach the caller that waits for an answer.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
