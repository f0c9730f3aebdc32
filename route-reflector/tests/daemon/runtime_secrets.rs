//! No event, log line or answer of a running daemon contains a secret: neither a password of a
//! session, nor the credentials for the datastore.

use std::path::Path;
use std::process::Command as Process;
use std::thread::JoinHandle;

use daemon_common::command::{DebugRequest, EventQuery};
use etcd_lite::Local;
use nix::sys::signal::Signal::{SIGHUP, SIGTERM};

use super::events::closed_port;
use super::log::read_on;
use super::metrics::{own_address, put, store};
use super::*;

/// The secret. Any three octets of it in an output are a leak, also in hexadecimal or in a list.
const MARK: &str = "QXZQXZQXZQXZ";
const LEAKS: [&str; 4] = ["QXZ", "51585a", "51585A", "81, 88, 90"];

/// A daemon whose whole log is kept, as are its answers.
struct Watched {
    reflector: Reflector,
    log: JoinHandle<String>,
    outputs: Vec<String>,
}

impl Watched {
    /// Starts a reflector that logs everything in JSON.
    async fn start(directory: tempfile::TempDir, keys: &str) -> Self {
        let config = directory.path().join("rr.toml");
        std::fs::write(&config, text(directory.path(), keys)).expect("written");
        let mut process = start(&config, &[]).expect("the program starts");
        let log = read_on(process.stderr.take().expect("piped"));
        let reflector = Reflector { process, directory };
        reflector.until("it answers", |_| true).await;
        Self {
            reflector,
            log,
            outputs: Vec::new(),
        }
    }

    /// Gives the daemon another file.
    fn reload(&self, keys: &str) {
        let text = text(self.reflector.directory.path(), keys);
        std::fs::write(self.reflector.config(), text).expect("written");
        self.reflector.signal(SIGHUP);
    }

    /// Keeps an answer as a program reads it and as JSON, which `cambric --json` prints.
    async fn ask(&mut self, command: Command) {
        let reply = self.reflector.call(command).await;
        self.outputs.push(format!("{reply:?}"));
        if let Ok(reply) = reply {
            let json = serde_json::to_string(&reply).expect("JSON");
            self.outputs.push(json);
        }
    }

    /// Waits for an event of this name after the event of this number; returns its number.
    async fn event(&mut self, name: &str, after: u64) -> u64 {
        let event = self.reflector.event(name, after).await;
        self.outputs.push(format!("{event:?}"));
        event.number
    }

    /// Stops the daemon, and asserts that none of its outputs has a secret. The log must have these
    /// events: without them the test proves nothing.
    async fn finish(mut self, events: &[&str], leaks: &[&str]) {
        for command in [
            Command::Reload {},
            Command::Status {},
            Command::Config {},
            Command::Neighbors {},
            Command::Limits {},
            Command::Malformed {},
            Command::Log {},
            Command::Events(EventQuery::default()),
        ] {
            self.ask(command).await;
        }
        self.reflector.signal(SIGTERM);
        let log = self.log.join().expect("read to its end");
        for event in events {
            let named = format!("\"event\":\"{event}\"");
            assert!(log.contains(&named), "no {event} in:\n{log}");
        }
        self.outputs.push(log);
        for output in &self.outputs {
            let leak = leaks.iter().find(|leak| output.contains(**leak));
            assert_eq!(leak, None, "a secret is in:\n{output}");
        }
    }
}

fn text(directory: &Path, keys: &str) -> String {
    let control = directory.join("rr.sock");
    format!("control = {control:?}\nlog = \"trace\"\nlog_format = \"json\"\n{keys}")
}

fn neighbor(address: &str, keys: &str) -> String {
    format!(
        "[[neighbor]]\nname = \"n{}\"\naddress = \"{address}\"\nasn = 64512\n\
         route_reflector_client = true\nconnect_retry = 1\n{keys}\n",
        address.replace('.', "-")
    )
}

/// Returns a client like [`client`], with a password.
fn client_with_password(host: u8, reflector: SocketAddr, password: &str) -> Io {
    let text = format!(
        "asn = 64512\nrouter_id = \"127.0.0.{host}\"\nlisten = []\n[[neighbor]]\nname = \"rr\"\n\
         address = \"{}\"\nport = {}\nsource = \"127.0.0.{host}\"\nasn = 64512\n\
         password = \"{password}\"\n",
        reflector.ip(),
        reflector.port()
    );
    let source = Source::new("client.toml", text);
    let (_, intent) = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable).expect("good");
    let speaker = Speaker::new(intent.speaker, host.into());
    Io::new(speaker, IoConfig::default()).expect("no sockets")
}

/// A session is established, debugged, changed, cleared and closed, each with a password; another
/// neighbor with a password cannot be connected to.
#[tokio::test]
async fn password_of_a_session_reaches_no_output_at_run_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let unreachable = format!("password = \"{MARK}\"\nport = {}", closed_port());
    let keys = |password: &str, more: &str| {
        let one = neighbor("127.0.0.2", &format!("passive = true\n{password}\n{more}"));
        let other = neighbor("127.0.0.3", &unreachable);
        format!("{CONFIG}\n{one}{other}")
    };
    let in_file = format!("password = \"{MARK}\"");
    let mut daemon = Watched::start(directory, &keys(&in_file, "")).await;
    let failed = daemon.event("session.connect_failed", 0).await;
    let debug = Command::Debug(DebugRequest {
        neighbor: "127.0.0.2".to_owned(),
        for_s: Some(3600),
    });
    daemon.ask(debug).await;
    let mut one = client_with_password(2, daemon.reflector.address().await, MARK);
    up(&mut [&mut one]).await;
    daemon.event("session.established", failed).await;

    // Values take effect with the next session, are replaced while it runs, or are rejected.
    for (password, more, event) in [
        (in_file.as_str(), "hold_time = 33", "config.deferred"),
        ("password = \"QXZ0QXZ0QXZ0\"", "", "config.applied"),
        ("password = [\"QXZQXZQXZQXZ\"]", "", "config.rejected"),
        (in_file.as_str(), "", "config.applied"),
    ] {
        let page = daemon.reflector.events(EventQuery::default()).await;
        daemon.reload(&keys(password, more));
        daemon.event(event, page.next).await;
    }
    let neighbor = "127.0.0.2".to_owned();
    daemon.ask(Command::Clear { neighbor }).await;
    drive(&mut [&mut one], "the session ends", |event| {
        matches!(event, Event::Speaker(SpeakerEvent::Down { .. })).then_some(())
    })
    .await;
    let events = [
        "session.connect_failed",
        "session.established",
        "message.received",
        "message.sent",
        "session.cleared",
        "debug.started",
    ];
    daemon.finish(&events, &LEAKS).await;
}

/// Fields of a peer with a secret in the place of a reference to one.
const MISPLACED: [&str; 5] = [
    r#""password":"QXZQXZQXZQXZ""#,
    r#""password":{"secretKeyRef":"QXZQXZQXZQXZ"}"#,
    r#""password":{"secretKeyRef":{"name":"tor","key":["QXZQXZQXZQXZ"]}}"#,
    r#""password":{"secretKeyRef":QXZQXZQXZQXZ"#,
    r#""pasword":"QXZQXZQXZQXZ""#,
];

const PEER: &str = r#""peerIP":"127.0.0.8","asNumber":64512"#;

async fn put_peer(store: &Local, more: &str) {
    let value = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{{PEER},{more}}}}}"#);
    put(store, "bgppeers", "p", &value).await;
}

/// A password that a resource refers to is read from a file that is replaced, cannot be used, and is
/// removed; and resources have a secret where a reference to one belongs.
#[tokio::test]
async fn password_for_a_resource_reaches_no_output() {
    let (store, at) = store().await;
    let directory = tempfile::tempdir().expect("a directory");
    let secrets = directory.path().join("secrets");
    std::fs::create_dir_all(secrets.join("tor")).expect("made");
    let word = secrets.join("tor/word");
    std::fs::write(&word, format!("{MARK}\n")).expect("written");
    let port = two_ports();
    let settings = format!(r#"{{"spec":{{"listenPort":{port},"bindMode":"NodeIP"}}}}"#);
    put(&store, "bgpconfigurations", "default", &settings).await;
    let node = own_address().ip();
    let node = format!(r#"{{"spec":{{"bgp":{{"ipv4Address":"{node}/8"}}}}}}"#);
    put(&store, "nodes", "rr", &node).await;
    let reference = r#""password":{"secretKeyRef":{"name":"tor","key":"word"}}"#;
    put_peer(&store, reference).await;
    let keys = format!(
        "hostname = \"rr\"\nguard = {{ enabled = false }}\n[secrets]\ndir = {secrets:?}\n\
         [datastore]\nendpoints = [\"http://{at}\"]\n"
    );
    let mut daemon = Watched::start(directory, &keys).await;
    let mut after = daemon.event("session.connect_failed", 0).await;
    for password in MISPLACED {
        put_peer(&store, password).await;
        after = daemon.event("datastore.fault", after).await;
        put_peer(&store, reference).await;
        after = daemon.event("datastore.fault_resolved", after).await;
    }
    for unusable in [
        MARK.repeat(7).into_bytes(),
        [MARK.as_bytes(), b"\xff"].concat(),
    ] {
        std::fs::write(&word, unusable).expect("written");
        after = daemon.event("datastore.fault", after).await;
        std::fs::write(&word, MARK).expect("written");
        after = daemon.event("datastore.fault_resolved", after).await;
    }
    let events = ["datastore.fault", "session.connect_failed"];
    daemon.finish(&events, &LEAKS).await;
}

/// Waits until a note about the datastore is there.
async fn store_is_away(daemon: &Watched) {
    let away = |status: &Status| {
        let store = status.store.as_ref();
        let mut notes = status.notes.iter();
        let is_noted = notes.any(|note| !note.starts_with("privileges: "));
        store.is_some_and(|store| !store.in_sync) && is_noted
    };
    daemon.reflector.until("the store is away", away).await;
}

#[tokio::test]
async fn credentials_for_the_datastore_reach_no_output() {
    let (_store, at) = store().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("etcd");
    std::fs::write(&file, format!("{MARK}\n")).expect("written");
    // This datastore has no users, and refuses to authenticate one.
    let keys = format!(
        "hostname = \"rr\"\nguard = {{ enabled = false }}\n[datastore]\n\
         endpoints = [\"http://{at}\"]\nusername = \"felix\"\npassword_file = {file:?}\n"
    );
    let daemon = Watched::start(directory, &keys).await;
    store_is_away(&daemon).await;
    daemon.finish(&["daemon.started"], &LEAKS).await;
}

/// Makes a certificate with its key; `None` without OpenSSL.
fn certificate(directory: &Path) -> Option<()> {
    let arguments = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -x509 -days 2 \
                     -subj /CN=client -keyout client.key -out client.pem";
    let mut openssl = Process::new("openssl");
    openssl.args(arguments.split_whitespace());
    let Ok(output) = openssl.current_dir(directory).output() else {
        println!("skipped: openssl is not installed; tools/install-test-packages.sh does that");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    Some(())
}

#[tokio::test]
async fn tls_key_for_the_datastore_reaches_no_output() {
    let (_store, at) = store().await;
    let directory = tempfile::tempdir().expect("a directory");
    if certificate(directory.path()).is_none() {
        return;
    }
    let file = |name: &str| directory.path().join(name);
    let key = std::fs::read_to_string(file("client.key")).expect("written");
    // The server has no TLS: each handshake fails.
    let keys = format!(
        "hostname = \"rr\"\nguard = {{ enabled = false }}\n[datastore]\n\
         endpoints = [\"https://{at}\"]\n[datastore.tls]\nca_file = {:?}\ncert_file = {:?}\n\
         key_file = {:?}\n",
        file("client.pem"),
        file("client.pem"),
        file("client.key")
    );
    let daemon = Watched::start(directory, &keys).await;
    store_is_away(&daemon).await;
    // Base64 of the key, without its first octets, which are the same in all keys.
    let lines = key.lines().filter(|line| !line.starts_with("-----"));
    let base64: String = lines.collect();
    let parts: Vec<&str> = (48..base64.len() - 16)
        .step_by(8)
        .map(|at| &base64[at..at + 16])
        .collect();
    assert!(!parts.is_empty(), "a key");
    daemon.finish(&["daemon.started"], &parts).await;
}
