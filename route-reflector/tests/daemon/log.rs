//! A reader of standard error that has stopped: the daemon continues, and loses only log lines.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal::SIGTERM;
use nix::sys::stat::fstat;
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::*;

/// Neighbors and strangers of one reflector: 127.1.0.0/16 is within a range, 127.2.0.0/16 is
/// rejected.
const CROWDED: &str = r#"
asn = 64512
router_id = "127.0.0.1"
listen = ["127.0.0.1:0"]
log = "debug"

[[neighbor]]
address = "127.0.0.2"
asn = 64512
passive = true
route_reflector_client = true

[[neighbor_range]]
prefix = "127.1.0.0/16"
asn = 64512
limit = 1000
route_reflector_client = true
"#;

/// The hold time of the client: shorter than the flood, so that it notices when the reflector is
/// silent.
const HOLD: Duration = Duration::from_secs(6);

/// The interval between two strangers.
const EVERY: Duration = Duration::from_millis(1);

/// The limit of unfinished connections from strangers.
const AT_ONCE: usize = 100;

/// The shortest duration of the flood.
const FLOOD: Duration = Duration::from_secs(9);

/// The least number of connections from strangers: those of the flood at a thousand per second. On a
/// slow machine the flood takes longer.
const STRANGERS_MIN: u64 = 9_000;

fn write_config(directory: &tempfile::TempDir, keys: &str) {
    let control = directory.path().join("rr.sock");
    let text = format!("control = {control:?}\n{keys}");
    std::fs::write(directory.path().join("rr.toml"), text).expect("written");
}

/// Starts a reflector with this standard error; it is the journal's stream if `journal` is given.
async fn started(stderr: OwnedFd, journal: Option<&Path>) -> Reflector {
    let directory = tempfile::tempdir().expect("a directory");
    write_config(&directory, CROWDED);
    let mut command = command(&directory.path().join("rr.toml"), &[]);
    if let Some(socket) = journal {
        let file = fstat(&stderr).expect("an open file");
        // systemd describes the journal's stream in this form (systemd.exec(5)).
        let stream = format!("{}:{}", file.st_dev, file.st_ino);
        command.env("JOURNAL_STREAM", stream);
        command.env("CAMBRIC_JOURNAL_SOCKET", socket);
    }
    let process = command.stderr(stderr).spawn().expect("the program starts");
    let reflector = Reflector { process, directory };
    reflector.until("it answers", |_| true).await;
    reflector
}

/// Returns a client with a short hold time.
fn hasty_client(reflector: SocketAddr) -> Io {
    let text = format!(
        "asn = 64512\nrouter_id = \"127.0.0.2\"\nlisten = []\n[[neighbor]]\nname = \"rr\"\n\
         address = \"{}\"\nport = {}\nsource = \"127.0.0.2\"\nasn = 64512\nhold_time = {}\n",
        reflector.ip(),
        reflector.port(),
        HOLD.as_secs(),
    );
    let source = Source::new("client.toml", text);
    let (_, intent) = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable).expect("good");
    Io::new(Speaker::new(intent.speaker, 2), IoConfig::default()).expect("no sockets")
}

/// Connects from changing addresses, up to a thousand per second, forever; counts the connections.
async fn strangers(to: SocketAddr, connected: &Arc<AtomicU64>) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for nth in 0_u32.. {
        tick.tick().await;
        let permit = Arc::clone(&room).acquire_owned().await.expect("open");
        let [_, _, high, low] = (nth / 2).to_be_bytes();
        let [_, _, _, half] = (1 + nth % 2).to_be_bytes();
        let from = SocketAddr::from(([127, half, high, low], 0));
        let connected = Arc::clone(connected);
        tokio::spawn(async move {
            let socket = TcpSocket::new_v4().expect("a socket");
            // A connection that is not accepted in time is closed.
            if socket.bind(from).is_ok() {
                let made = timeout(Duration::from_secs(1), socket.connect(to)).await;
                connected.fetch_add(u64::from(matches!(made, Ok(Ok(_)))), Ordering::Relaxed);
            }
            drop(permit);
        });
    }
}

/// Asserts that the session stays and the control socket answers, with strangers and with a stopped
/// reader.
async fn holds_out(reflector: &Reflector, one: &mut Io) {
    let began = Instant::now();
    let connected = Arc::new(AtomicU64::new(0));
    let lines_are_lost = async {
        loop {
            let status = reflector.until("it answers", |_| true).await;
            let log = status.log.unwrap_or_default();
            let noted = status
                .notes
                .iter()
                .any(|note| note.contains("standard error"));
            let is_reached = connected.load(Ordering::Relaxed) >= STRANGERS_MIN;
            if log.lost() > 0 && noted && is_reached && began.elapsed() > FLOOD {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let flood = strangers(reflector.address().await, &connected);
    let session = async {
        loop {
            for event in one.next().await {
                if let Event::Speaker(SpeakerEvent::Down { reason, .. }) = event {
                    panic!("the session is lost: {reason}");
                }
            }
        }
    };
    tokio::select! {
        lost = timeout(DEADLINE, lines_are_lost) => lost.expect("lines are lost, and all strangers come"),
        () = flood => {}
        () = session => {}
    }
}

/// Reads to the end of the stream in a thread.
pub(super) fn read_on(mut reader: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).expect("read");
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Waits for the end of the program without blocking the test's runtime.
async fn ended(process: &mut Child) -> ExitStatus {
    let end = async {
        loop {
            if let Some(status) = process.try_wait().expect("waited for") {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, end).await.expect("it ends")
}

/// Tests a daemon whose log `read` reads to its end, which `end` marks once the daemon has ended.
async fn strangers_cannot_stall(
    mut reflector: Reflector,
    read: impl FnOnce() -> JoinHandle<String>,
    end: impl FnOnce(),
) {
    let mut one = hasty_client(reflector.address().await);
    up(&mut [&mut one]).await;
    holds_out(&reflector, &mut one).await;
    let limits = match reflector.call(Command::Limits {}).await {
        Ok(Reply::Limits(limits)) => limits.limits,
        other => panic!("{other:?}"),
    };
    let lines = limits
        .iter()
        .find(|limit| limit.name.starts_with("log lines"));
    assert!(lines.and_then(|limit| limit.met).is_some_and(|met| met > 0));

    let output = read();
    let is_read = |status: &Status| {
        let log = status.log.clone().unwrap_or_default();
        log.stalled_s.is_none() && log.waiting == 0
    };
    reflector.until("it is read", is_read).await;
    reflector.signal(SIGTERM);
    assert!(ended(&mut reflector.process).await.success());
    end();
    let output = output.join().expect("read");
    assert!(output.contains("log lines lost: "), "{output}");
    let summary = "of=\"connection.refused\" more=";
    assert!(output.contains(summary), "{output}");
    let last = output.lines().last().expect("a line");
    assert!(last.contains("daemon stopping"), "{last}");
}

// Promise (Daemons): A log that nothing reads does not block a daemon: sessions stay, control
// commands are answered, and lost lines are counted.
#[tokio::test]
async fn stopped_reader_of_stderr_does_not_stall_the_daemon() {
    let (reader, writer) = pipe().expect("a pipe");
    let reflector = started(writer.into(), None).await;
    strangers_cannot_stall(reflector, || read_on(reader), || {}).await;
}

/// Sent by the test after the last datagram of the daemon.
const END: &[u8] = b"the end";

/// Reads datagrams in a thread.
fn datagrams(socket: UnixDatagram) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut text, mut datagram) = (Vec::new(), [0; 64 * 1024]);
        loop {
            let length = socket.recv(&mut datagram).expect("received");
            match &datagram[..length] {
                END => return String::from_utf8_lossy(&text).into_owned(),
                entry => text.extend_from_slice(entry),
            }
        }
    })
}

// Promise: as route-reflector stopped_reader_of_stderr_does_not_stall_the_daemon
#[tokio::test]
async fn stopped_reader_of_the_journal_does_not_stall_the_daemon() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("journal");
    let socket = UnixDatagram::bind(&path).expect("bound");
    let (_stream, stderr) = UnixStream::pair().expect("a pair");
    let reflector = started(stderr.into(), Some(&path)).await;
    let end = || {
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.send_to(END, &path).expect("sent");
    };
    strangers_cannot_stall(reflector, || datagrams(socket), end).await;
}

/// Returns a full pipe.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe");
    let set = |writer: &PipeWriter, flags| fcntl(writer, FcntlArg::F_SETFL(flags)).expect("set");
    set(&writer, OFlag::O_NONBLOCK);
    while writer.write(&[b'.'; 4096]).is_ok() {}
    set(&writer, OFlag::empty());
    (reader, writer)
}

#[tokio::test]
async fn stopped_reader_delays_no_exit() {
    let (_reader, writer) = full_pipe();
    let mut reflector = started(writer.try_clone().expect("duplicated").into(), None).await;
    reflector.signal(SIGTERM);
    assert!(ended(&mut reflector.process).await.success());

    write_config(&reflector.directory, "asn = 0\n");
    let mut command = command(&reflector.config(), &[]);
    let mut mistaken = command.stderr(writer).spawn().expect("it starts");
    assert!(!ended(&mut mistaken).await.success());
}
