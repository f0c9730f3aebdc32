//! Messages to the service manager: start and stop, pings for its watchdog, and the state.

use tokio::net::UnixDatagram;

use super::*;

/// Without a ping in this time the watchdog would kill the daemon.
const WATCHDOG_USEC: &str = "400000";

/// The socket of a service manager.
struct Systemd {
    socket: UnixDatagram,
    /// The lines of the last message.
    lines: Vec<String>,
}

impl Systemd {
    /// Starts a reflector with this configuration, with a watchdog or without one.
    fn start(config: &str, watchdog: Option<&str>) -> (Self, Reflector) {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, control) = (
            directory.path().join("rr.toml"),
            directory.path().join("rr.sock"),
        );
        std::fs::write(&file, format!("control = {control:?}\n{config}")).expect("write");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let mut command = command(&file, &[]);
        command.env("NOTIFY_SOCKET", &path);
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog);
        }
        let process = command.spawn().expect("the program starts");
        let lines = Vec::new();
        (Self { socket, lines }, Reflector { process, directory })
    }

    /// Waits for the next message.
    async fn next(&mut self) -> &[String] {
        let mut message = [0; 1024];
        let octets = timeout(DEADLINE, self.socket.recv(&mut message)).await;
        let octets = octets.expect("received in time").expect("octets");
        let text = std::str::from_utf8(&message[..octets]).expect("text");
        self.lines = text.lines().map(str::to_owned).collect();
        &self.lines
    }

    /// Waits for a message with a line that begins so.
    async fn line(&mut self, beginning: &str) -> String {
        loop {
            let mut lines = self.next().await.iter();
            if let Some(line) = lines.find(|line| line.starts_with(beginning)) {
                return line.clone();
            }
        }
    }
}

#[tokio::test]
async fn systemd_is_notified_of_start_and_stop() {
    let (mut systemd, mut reflector) = Systemd::start(CONFIG, None);
    assert_eq!(systemd.next().await, ["READY=1"]);
    // Readiness means that it answers at once.
    let answer = reflector.call(Command::Status {}).await;
    assert!(matches!(answer, Ok(Reply::Status(_))), "{answer:?}");
    let state = systemd.line("STATUS=").await;
    assert_eq!(state, "STATUS=0 of 0 sessions up, 0 prefixes, 0 paths");
    let mut client = client(2, reflector.address().await);
    up(&mut [&mut client]).await;
    systemd.line("STATUS=1 of 1 sessions up, ").await;
    reflector.signal(nix::sys::signal::Signal::SIGTERM);
    systemd.line("STOPPING=1").await;
    assert!(reflector.process.wait().expect("it ends").success());
}

#[tokio::test]
async fn idle_daemon_sends_pings_to_the_watchdog() {
    let (mut systemd, _reflector) = Systemd::start(CONFIG, Some(WATCHDOG_USEC));
    for _ in 0..5 {
        systemd.line("WATCHDOG=1").await;
    }
}

#[tokio::test]
async fn daemon_that_waits_for_its_datastore_sends_pings() {
    // Port 9 of the loopback interface: nothing listens there.
    let config = "[datastore]\nendpoints = [\"http://127.0.0.1:9\"]\n";
    let (mut systemd, _reflector) = Systemd::start(config, Some(WATCHDOG_USEC));
    assert_eq!(systemd.next().await, ["READY=1"]);
    systemd.line("STATUS=waiting for ").await;
    for _ in 0..5 {
        systemd.line("WATCHDOG=1").await;
    }
}
