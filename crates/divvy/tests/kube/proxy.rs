//! A bad network between a scheduler and the real API server: it loses, delays and refuses some of what passes. The server
//! answers what it does not refuse, cut or lose.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::draw::Draw;
use crate::site::Site;

/// How often each fault happens to a request, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Odds {
    /// Answered as if the server had too much to do (429).
    pub(crate) busy: u64,
    /// Cut off before it reaches the server.
    pub(crate) cut: u64,
    /// Carried out, but the answer is lost.
    pub(crate) lost: u64,
    /// Delayed.
    pub(crate) slow: u64,
    /// A watch asks for a version that is long forgotten, and the server says so (410). If this can happen, all watches are
    /// short.
    pub(crate) forgotten: u64,
}

/// What happened to requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) busy: u32,
    pub(crate) cut: u32,
    pub(crate) lost: u32,
    pub(crate) forgotten: u32,
}

/// The network.
pub(crate) struct Proxy {
    /// Its address.
    pub(crate) address: String,
    tally: Arc<Mutex<Tally>>,
    gateway: Child,
}

/// How long a slow request is delayed.
const SLOW_MS: u64 = 700;

impl Proxy {
    /// Puts a bad network in front of the API server, with the rights of the scheduler's account.
    pub(crate) fn start(site: &Site, odds: Odds) -> Self {
        let (gateway, behind) = gateway(site);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let tally = Arc::new(Mutex::new(Tally::default()));
        let draw = Arc::new(Mutex::new(Draw::seeded("DIVVY_NETWORK", 5)));
        let counts = Arc::clone(&tally);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (behind, tally, draw) = (behind.clone(), Arc::clone(&counts), Arc::clone(&draw));
                std::thread::spawn(move || {
                    let passage = Passage { behind: &behind, odds, tally: &tally, draw: &draw };
                    drop(passage.serve(&stream));
                    drop(stream.shutdown(Shutdown::Both));
                });
            }
        });
        Self { address, tally, gateway }
    }

    pub(crate) fn tally(&self) -> Tally {
        *self.tally.lock().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
    }
}

/// `kubectl proxy`: the way to the server without TLS.
fn gateway(site: &Site) -> (Child, String) {
    let mut command = Command::new(site.state.join("bin/kubectl"));
    command.arg("--kubeconfig").arg(site.own_kubeconfig()).args(["proxy", "--port=0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    (child, address)
}

/// The way of one connection: one request, and its answer.
struct Passage<'a> {
    behind: &'a str,
    odds: Odds,
    tally: &'a Mutex<Tally>,
    draw: &'a Mutex<Draw>,
}

/// A request: its lines, without the client's `Connection` header, and its body.
pub(crate) struct Request {
    lines: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn read(stream: &TcpStream) -> std::io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let length = lines.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let is_connection = |line: &String| line.to_ascii_lowercase().starts_with("connection:");
        lines.retain(|line| !is_connection(line));
        lines.push("Connection: close".to_owned());
        Ok(Self { lines, body })
    }

    fn is_write(&self) -> bool {
        !self.lines[0].starts_with("GET ")
    }

    fn is_watch(&self) -> bool {
        self.lines[0].contains("watch=1")
    }

    /// Asks for a watch that the server soon ends.
    fn ask_for_a_moment(&mut self) {
        self.lines[0] = self.lines[0].replace("timeoutSeconds=290", "timeoutSeconds=1");
    }

    /// Asks for the first version there ever was.
    fn ask_for_the_past(&mut self) {
        let line = &self.lines[0];
        let Some((path, version)) = line.split_once("resourceVersion=") else { return };
        let rest = version.trim_start_matches(|c: char| c.is_ascii_digit());
        self.lines[0] = format!("{path}resourceVersion=1{rest}");
    }
}

impl Passage<'_> {
    fn befalls(&self, percent: u64, count: fn(&mut Tally) -> &mut u32) -> bool {
        let is_so = self.draw.lock().unwrap().percent(percent);
        if is_so {
            *count(&mut self.tally.lock().unwrap()) += 1;
        }
        is_so
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut request = Request::read(stream)?;
        if request.is_write() {
            if self.befalls(self.odds.busy, |tally| &mut tally.busy) {
                return refuse(stream);
            }
            if self.befalls(self.odds.cut, |tally| &mut tally.cut) {
                return Ok(());
            }
            if self.draw.lock().unwrap().percent(self.odds.slow) {
                wait_as_on_a_long_way(Duration::from_millis(SLOW_MS));
            }
        }
        if request.is_watch() && self.odds.forgotten > 0 {
            request.ask_for_a_moment();
            if self.befalls(self.odds.forgotten, |tally| &mut tally.forgotten) {
                request.ask_for_the_past();
            }
        }
        let mut server = TcpStream::connect(self.behind)?;
        server.write_all((request.lines.join("\r\n") + "\r\n\r\n").as_bytes())?;
        server.write_all(&request.body)?;
        if request.is_write() && self.befalls(self.odds.lost, |tally| &mut tally.lost) {
            // Once the server has answered, it has carried out the request.
            return server.read_to_end(&mut Vec::new()).map(drop);
        }
        pass_on(server, stream)
    }
}

fn refuse(mut stream: &TcpStream) -> std::io::Result<()> {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"too many requests, please try again later"}"#;
    let length = status.len();
    write!(
        stream,
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{status}"
    )
}

/// Passes bytes on as they come: a watch does not end.
fn pass_on(mut server: TcpStream, mut stream: &TcpStream) -> std::io::Result<()> {
    let mut piece = [0; 16_384];
    loop {
        match server.read(&mut piece)? {
            0 => return Ok(()),
            length => stream.write_all(&piece[..length])?,
        }
    }
}

fn wait_as_on_a_long_way(time: Duration) {
    std::thread::sleep(time);
}
