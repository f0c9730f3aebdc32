//! The last lines of a process, panics among them, are written; and a reader of standard error that
//! has stopped does not keep the process from ending. The test starts itself as that process.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use daemon_common::daemon::{LogFormat, init_logging};
use daemon_common::log::Logging;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::fstat;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// The argument that makes this program the process under test.
const CHILD: &str = "child-of-the-test";

/// Lines before the end: fewer than are queued.
const LINES: usize = 1000;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        return list();
    }
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(CHILD) {
        return child(&arguments.next().unwrap_or_default());
    }
    last_lines_before_exit_are_written();
    panics_are_written_behind_the_lines_before_them();
    panics_are_written_as_json();
    stopped_reader_delays_neither_exit_nor_panic();
    panics_reach_the_journal_behind_the_lines_before_them();
    stopped_journal_delays_neither_exit_nor_panic();
    ExitCode::SUCCESS
}

/// Names the one test that this is, as other test programs do.
fn list() -> ExitCode {
    if !std::env::args().any(|argument| argument == "--ignored") {
        println!("last_lines: test");
    }
    ExitCode::SUCCESS
}

/// The process under test: logs, then ends in the given way.
fn child(end: &str) -> ExitCode {
    let log = Logging::begin().expect("a thread");
    let format = match end {
        "json" => LogFormat::Json,
        _ => LogFormat::Text,
    };
    init_logging("info", format).expect("started once");
    for line in 0..LINES {
        tracing::info!(line, "before the end");
    }
    if end == "exit" {
        log.write("the last words");
        return ExitCode::FAILURE;
    }
    let survived = thread::spawn(|| panic!("in a thread")).join();
    assert!(survived.is_err());
    panic!("in main");
}

fn command(end: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args([CHILD, end]).env_remove("CAMBRIC_LOG");
    command.env_remove("RUST_BACKTRACE");
    command.env_remove("JOURNAL_STREAM");
    command
}

fn start(end: &str, stderr: PipeWriter) -> Child {
    let mut command = command(end);
    command.stderr(stderr).spawn().expect("it starts")
}

fn ended(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("waited for") {
            return status;
        }
        if began.elapsed() > DEADLINE {
            child.kill().expect("killed");
            panic!("the process does not end");
        }
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// The output of a process that ends in this way, and its exit code.
fn output_of(end: &str) -> (String, Option<i32>) {
    let (mut reader, writer) = pipe().expect("a pipe");
    let mut child = start(end, writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    (text, ended(&mut child).code())
}

// Promise (Daemons): The last lines before an exit, and panics, are written.
fn last_lines_before_exit_are_written() {
    let (text, code) = output_of("exit");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), LINES + 1, "{text}");
    assert!(lines[LINES - 1].ends_with("line=999"), "{text}");
    assert_eq!((lines[LINES], code), ("the last words", Some(1)));
}

fn panics_are_written_behind_the_lines_before_them() {
    let (text, code) = output_of("panic");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), code), (LINES + 2, Some(101)), "{text}");
    assert!(lines[LINES - 1].ends_with("line=999"), "{text}");
    for (line, words) in lines[LINES..].iter().zip(["in a thread", "in main"]) {
        let is_whole = line.contains(" ERROR ") && line.contains("last_lines.rs:");
        assert!(is_whole && line.ends_with(words), "{line}");
    }
}

fn panics_are_written_as_json() {
    let (text, _) = output_of("json");
    let last = text.lines().last().expect("a line");
    let line: serde_json::Value = serde_json::from_str(last).expect("an object");
    let message = line["fields"]["message"].as_str().expect("a message");
    assert!(message.ends_with("in main"), "{message}");
    assert_eq!(line["level"], "ERROR");
}

/// A full pipe.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    let set = |writer: &PipeWriter, flags| fcntl(writer, FcntlArg::F_SETFL(flags)).expect("set");
    set(&writer, OFlag::O_NONBLOCK);
    while writer.write(&[b'.'; 4096]).is_ok() {}
    set(&writer, OFlag::empty());
    (reader, writer)
}

fn stopped_reader_delays_neither_exit_nor_panic() {
    let (_reader, writer) = full_pipe();
    for (end, code) in [("exit", 1), ("panic", 101)] {
        let writer = writer.try_clone().expect("duplicated");
        let mut child = start(end, writer);
        assert_eq!(ended(&mut child).code(), Some(code), "{end}");
    }
}

/// A journal, and its stream that a process has as standard error.
struct Journal {
    directory: tempfile::TempDir,
    socket: UnixDatagram,
    _stream: UnixStream,
    stderr: OwnedFd,
}

impl Journal {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(directory.path().join("journal")).expect("bound");
        let (stream, stderr) = UnixStream::pair().expect("a pair");
        Self {
            directory,
            socket,
            _stream: stream,
            stderr: stderr.into(),
        }
    }

    fn start(&self, end: &str) -> Child {
        let file = fstat(&self.stderr).expect("an open file");
        let mut command = command(end);
        // systemd describes the journal's stream in this form (systemd.exec(5)).
        command.env("JOURNAL_STREAM", format!("{}:{}", file.st_dev, file.st_ino));
        command.env(
            "CAMBRIC_JOURNAL_SOCKET",
            self.directory.path().join("journal"),
        );
        let stderr = self.stderr.try_clone().expect("duplicated");
        command.stderr(stderr).spawn().expect("it starts")
    }

    /// Reads one datagram as text.
    fn read(&self) -> String {
        let mut datagram = vec![0; 64 * 1024];
        let length = self.socket.recv(&mut datagram).expect("received");
        String::from_utf8_lossy(&datagram[..length]).into_owned()
    }
}

fn panics_reach_the_journal_behind_the_lines_before_them() {
    let journal = Journal::new();
    journal
        .socket
        .set_read_timeout(Some(DEADLINE))
        .expect("set");
    let mut child = journal.start("panic");
    let lines: Vec<String> = (0..LINES + 2).map(|_| journal.read()).collect();
    assert!(
        lines[LINES - 1].contains("line=999"),
        "{}",
        lines[LINES - 1]
    );
    for (line, words) in lines[LINES..].iter().zip(["in a thread", "in main"]) {
        let is_whole = line.starts_with("PRIORITY=3\n") && line.contains("last_lines.rs:");
        assert!(is_whole && line.contains(words), "{line}");
    }
    assert_eq!(ended(&mut child).code(), Some(101));
}

fn stopped_journal_delays_neither_exit_nor_panic() {
    for (end, code) in [("exit", 1), ("panic", 101)] {
        let journal = Journal::new();
        // Its queue is full.
        let filler = UnixDatagram::unbound().expect("a socket");
        filler.set_nonblocking(true).expect("set");
        let path = journal.directory.path().join("journal");
        while filler.send_to(b"before", &path).is_ok() {}
        let mut child = journal.start(end);
        assert_eq!(ended(&mut child).code(), Some(code), "{end}");
        assert_eq!(journal.read(), "before", "nothing is lost that was there");
    }
}
