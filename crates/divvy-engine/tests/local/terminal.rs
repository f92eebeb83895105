//! Tasks on a terminal.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use divvy_core::engine::EndedHow;
use divvy_engine::local::terminal::{Decoder, Frame};

use crate::pool::{Pool, await_file};

crate::tests![
    a_task_talks_to_a_terminal,
    a_lost_terminal_only_detaches,
    a_terminal_that_is_not_there_does_not_keep_a_task_from_running,
];

struct Terminal {
    stream: UnixStream,
    decoder: Decoder,
    shown: String,
}

impl Terminal {
    fn accept(listener: &UnixListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { stream, decoder: Decoder::default(), shown: String::new() }
    }

    fn send(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Reads until a text is shown, or with `None` until the other side closes.
    fn read_until(&mut self, text: Option<&str>) {
        while text.is_none_or(|text| !self.shown.contains(text)) {
            let mut buffer = [0; 4096];
            let count = self.stream.read(&mut buffer).unwrap();
            if count == 0 {
                return assert_eq!(text, None, "closed after {:?}", self.shown);
            }
            self.decoder.push(&buffer[..count]);
            while let Some(Frame::Data(bytes)) = self.decoder.next_frame().unwrap() {
                self.shown.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
    }
}

fn on_terminal(pool: &mut Pool, script: &str) -> UnixListener {
    let path = pool.work().join("terminal");
    let listener = UnixListener::bind(&path).unwrap();
    let mut order = pool.shell(1, script);
    order.process.terminal = Some(path.to_str().unwrap().into());
    pool.launch(1, order);
    listener
}

fn a_task_talks_to_a_terminal() {
    let mut pool = Pool::new();
    let script = "test -t 0 && test -t 1 && echo on-a-terminal; read line; stty size; echo got-$line; exit 3";
    let listener = on_terminal(&mut pool, script);
    let mut terminal = Terminal::accept(&listener);
    terminal.read_until(Some("on-a-terminal"));
    terminal.send(&Frame::Size { columns: 101, rows: 37 });
    terminal.send(&Frame::Data(b"hello\n".to_vec()));
    terminal.read_until(None);
    assert!(
        terminal.shown.contains("37 101") && terminal.shown.contains("got-hello"),
        "{:?}",
        terminal.shown
    );
    assert_eq!(pool.how(1), EndedHow::Exited(3));
    assert!(pool.log(1).contains("got-hello"));
}

fn a_lost_terminal_only_detaches() {
    let mut pool = Pool::new();
    let listener =
        on_terminal(&mut pool, "echo ready; until [ -e go ]; do sleep 0.01; done; echo on; exit 0");
    let mut terminal = Terminal::accept(&listener);
    terminal.read_until(Some("ready"));
    drop(terminal);
    pool.started(1);
    std::fs::write(pool.work().join("go"), "").unwrap();
    assert_eq!(pool.how(1), EndedHow::Exited(0));
    assert_eq!(pool.log(1).lines().map(str::trim).collect::<Vec<_>>(), ["ready", "on"]);
}

fn a_terminal_that_is_not_there_does_not_keep_a_task_from_running() {
    let mut pool = Pool::new();
    let mut order = pool.shell(1, "test -t 1 && echo > done; exit 0");
    order.process.terminal = Some(pool.work().join("none").to_str().unwrap().into());
    pool.launch(1, order);
    await_file(&pool.work().join("done"), 1);
    assert_eq!(pool.how(1), EndedHow::Exited(0));
}
