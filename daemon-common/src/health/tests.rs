use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{HealthServer, Pulse};
use crate::control::Control;
use crate::report::Readiness;
use crate::{Command, Reply};

/// Longer than any test.
const LONG: Option<Duration> = Some(Duration::from_secs(3600));

/// A control socket, and a server of probes on a free port of loopback.
struct Daemon {
    _directory: TempDir,
    control: Control,
    address: SocketAddr,
    server: HealthServer,
}

impl Daemon {
    fn new(within: Option<Duration>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let control = Control::bind(directory.path().join("c.sock")).expect("bound");
        let any = "127.0.0.1:0".parse().expect("an address");
        let bound = control.health(any, Pulse::new(), within);
        let (server, address) = bound.expect("listening");
        Self {
            _directory: directory,
            control,
            address,
            server,
        }
    }

    /// Answers one request about readiness while `client` runs.
    async fn answers<T>(&mut self, missing: &[&str], client: impl Future<Output = T>) -> T {
        let answer = async {
            let request = self.control.next().await;
            assert_eq!(request.command, Command::Readiness {});
            let missing = missing.iter().map(|one| (*one).to_owned()).collect();
            let met = Vec::new();
            request.reply(Reply::Readiness(Readiness { missing, met }));
        };
        tokio::join!(answer, client).1
    }
}

async fn get(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let text = format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(text.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    // A client that is rejected before all of its request is read gets a reset after the answer.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).expect("a code");
    (code.to_owned(), body.to_owned())
}

fn answer(code: &str, body: &str) -> (String, String) {
    (code.to_owned(), body.to_owned())
}

#[tokio::test]
async fn readiness_is_the_answer_of_the_loop() {
    let mut daemon = Daemon::new(LONG);
    let address = daemon.address;
    let ready = daemon.answers(&[], get(address, "GET /readiness")).await;
    assert_eq!(ready, answer("200", "ready\n"));
    let missing = ["the store has not been read", "two\nlines"];
    let not = daemon.answers(&missing, get(address, "GET /readiness"));
    let words = "not ready\nthe store has not been read\ntwo lines\n";
    assert_eq!(not.await, answer("503", words));
}

#[tokio::test]
async fn silent_loop_is_not_ready() {
    let daemon = Daemon::new(LONG);
    // Nothing takes the request.
    let (code, body) = get(daemon.address, "GET /readiness").await;
    assert_eq!(code, "503");
    assert!(body.contains("the main loop has not answered"), "{body}");
}

#[tokio::test]
async fn liveness_is_answered_without_the_loop() {
    let daemon = Daemon::new(LONG);
    assert_eq!(
        get(daemon.address, "GET /liveness").await,
        answer("200", "live\n")
    );
    let unlimited = Daemon::new(None);
    assert_eq!(get(unlimited.address, "GET /liveness").await.0, "200");
}

/// The thread of this test blocks, as a loop that hangs does; the probe runs on another one.
#[test]
fn hanging_loop_is_not_alive_until_it_turns() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    };
    let loop_of_daemon = runtime();
    let _entered = loop_of_daemon.enter();
    let directory = tempfile::tempdir().expect("a directory");
    let control = Control::bind(directory.path().join("c.sock")).expect("bound");
    let any = "127.0.0.1:0".parse().expect("an address");
    let pulse = Pulse::new();
    let bound = control.health(any, pulse.clone(), Some(Duration::ZERO));
    let (_server, address) = bound.expect("listening");
    // Until the clock has advanced, the loop has turned just now.
    while pulse.silence().is_zero() {
        std::thread::yield_now();
    }
    let probe = || {
        let client = move || runtime().block_on(get(address, "GET /liveness"));
        std::thread::spawn(client).join().expect("an answer")
    };
    let (code, body) = probe();
    assert_eq!(code, "503");
    assert!(body.contains("has not turned for"), "{body}");

    let bound = control.health(any, pulse.clone(), LONG);
    let (_server, address) = bound.expect("listening");
    pulse.beat();
    let client = move || runtime().block_on(get(address, "GET /liveness"));
    let (code, _) = std::thread::spawn(client).join().expect("an answer");
    assert_eq!(code, "200");
}

#[tokio::test]
async fn other_requests_are_rejected() {
    let daemon = Daemon::new(LONG);
    assert_eq!(get(daemon.address, "GET /").await.0, "404");
    assert_eq!(get(daemon.address, "POST /liveness").await.0, "405");
}

#[tokio::test]
async fn dropped_server_closes_its_socket() {
    let daemon = Daemon::new(LONG);
    let address = daemon.address;
    drop(daemon.server);
    let error = TcpStream::connect(address).await.expect_err("closed");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    // At once free for the next one.
    let next = daemon.control.health(address, Pulse::new(), LONG);
    next.expect("listening again");
}

#[tokio::test]
async fn unavailable_health_address_is_reported() {
    let daemon = Daemon::new(LONG);
    let error = daemon.control.health(daemon.address, Pulse::new(), LONG);
    let error = error.expect_err("it is taken").to_string();
    assert!(error.starts_with("health: cannot listen on "), "{error}");
}
