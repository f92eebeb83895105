//! `run --pty`: this terminal as the job's. The supervisor connects to a private socket and the bytes go both ways.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use divvy_engine::local::terminal::{Decoder, Frame, encode_data};
use tempfile::TempDir;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::write_through;
use crate::exit::Exit;
use crate::failure::Failure;

/// How long the last bytes may take once the job is known to be over.
const LAST_BYTES: Duration = Duration::from_millis(500);

/// This terminal, waiting for a job or joined to it.
pub(super) struct Terminal {
    /// Private (0700): anyone who reaches the socket types as this user.
    directory: TempDir,
    listener: UnixListener,
    resized: Signal,
    keyboard: AsyncFd<io::Stdin>,
    joined: Option<Joined>,
}

/// What comes from the job, the keyboard or the window.
pub(super) enum News {
    /// The job's supervisor has connected.
    Job(UnixStream),
    /// The supervisor is gone.
    JobGone,
    /// The job wrote something.
    Shown(Vec<u8>),
    /// The user typed something.
    Typed(Vec<u8>),
    /// The window has another size.
    Resized,
}

/// A terminal that a job uses.
struct Joined {
    stream: UnixStream,
    decoder: Decoder,
    _raw: RawMode,
}

impl Terminal {
    /// Creates the socket on which the supervisor is expected.
    pub(super) fn listen() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(Failure::usage("--pty needs a terminal, and this is none").fix("run without --pty"));
        }
        let cannot = |error: io::Error| {
            Failure::new(Exit::CannotCreate, "cannot make a socket for the terminal")
                .because(error.to_string())
        };
        let directory = private_directory().map_err(cannot)?;
        let listener = UnixListener::bind(directory.path().join("tty")).map_err(cannot)?;
        // SAFETY: descriptor 0 is the terminal that was just looked at; nothing here closes or replaces it.
        let keyboard = unsafe { AsyncFd::register_with_interest(io::stdin(), Interest::READABLE) };
        let keyboard = keyboard.map_err(io::Error::from)?;
        let resized = signal(SignalKind::window_change())?;
        Ok(Self { directory, listener, resized, keyboard, joined: None })
    }

    /// The address at which the supervisor finds it.
    pub(super) fn address(&self) -> Result<String, Failure> {
        let path = self.directory.path().join("tty").into_os_string().into_string();
        path.map_err(|path| {
            Failure::new(Exit::CannotCreate, format!("the path {} is no UTF-8", path.display()))
        })
    }

    /// What comes next from the job, the keyboard or the window. Can be dropped and called again without loss.
    pub(super) async fn news(&mut self) -> Result<News, Failure> {
        let Some(joined) = &mut self.joined else {
            return Ok(News::Job(self.listener.accept().await?.0));
        };
        let mut shown = vec![0; 16 * 1024];
        tokio::select! {
            read = joined.stream.read(&mut shown) => match read {
                Ok(0) | Err(_) => Ok(News::JobGone),
                Ok(length) => {
                    shown.truncate(length);
                    Ok(News::Shown(shown))
                }
            },
            ready = self.keyboard.readable() => {
                let mut typed = vec![0; 4096];
                let length = match rustix::io::read(self.keyboard.get_ref(), &mut typed) {
                    Ok(length) => length,
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => 0,
                    Err(error) => return Err(io::Error::from(error).into()),
                };
                ready?.clear_ready();
                typed.truncate(length);
                Ok(News::Typed(typed))
            }
            _ = self.resized.recv() => Ok(News::Resized),
        }
    }

    /// Handles the news.
    pub(super) async fn take(&mut self, news: News) -> Result<(), Failure> {
        match (news, &mut self.joined) {
            (News::Job(stream), _) => {
                let mut joined = Joined { stream, decoder: Decoder::default(), _raw: RawMode::enter()? };
                joined.tell_size().await;
                self.joined = Some(joined);
            }
            (News::JobGone, _) => self.joined = None,
            (News::Shown(bytes), Some(joined)) => joined.show(&bytes).await?,
            (News::Typed(keys), Some(joined)) => joined.send(&keys).await,
            (News::Resized, Some(joined)) => joined.tell_size().await,
            (News::Shown(_) | News::Typed(_) | News::Resized, None) => {}
        }
        Ok(())
    }

    /// Shows the output that is still under way when the job is over, and gives the terminal back.
    pub(super) async fn finish(&mut self) {
        let Some(joined) = &mut self.joined else { return };
        let rest = async {
            let mut shown = [0; 16 * 1024];
            while let Ok(length @ 1..) = joined.stream.read(&mut shown).await {
                if joined.show(&shown[..length]).await.is_err() {
                    return;
                }
            }
        };
        // Any later output is in the job's output file.
        let _ = tokio::time::timeout(LAST_BYTES, rest).await;
        self.joined = None;
    }
}

impl Joined {
    async fn show(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.decoder.push(bytes);
        let odd =
            |error: divvy_engine::local::terminal::BadFrame| Failure::new(Exit::Internal, error.to_string());
        while let Some(frame) = self.decoder.next_frame().map_err(odd)? {
            if let Frame::Data(data) = frame {
                write_through(&data).await?;
            }
        }
        Ok(())
    }

    /// Sends keys. That the supervisor is gone is noticed when reading.
    async fn send(&mut self, typed: &[u8]) {
        let mut frames = Vec::with_capacity(typed.len() + 8);
        encode_data(typed, &mut frames);
        let _ = self.stream.write_all(&frames).await;
    }

    async fn tell_size(&mut self) {
        let Ok((columns, rows)) = crossterm::terminal::size() else { return };
        let mut frame = Vec::new();
        Frame::Size { columns, rows }.encode(&mut frame);
        let _ = self.stream.write_all(&frame).await;
    }
}

/// In the user's runtime directory if there is one: short, private, and gone after logout.
fn private_directory() -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("divvy-pty-");
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_dir()) {
        Some(runtime) => builder.tempdir_in(runtime),
        None => builder.tempdir(),
    }
}

/// The terminal passes on every key until this is dropped.
struct RawMode;

impl RawMode {
    fn enter() -> io::Result<Self> {
        crossterm::terminal::enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // There is nobody to tell: the terminal itself may be gone.
        let _ = crossterm::terminal::disable_raw_mode();
    }
}
