//! Messages as the service manager receives them, in virtual time.

use tempfile::TempDir;
use tokio::time::advance;

use super::*;

const WATCHDOG: Duration = Duration::from_secs(60);
const PING_EVERY: Duration = Duration::from_secs(15);

/// The other end of the socket.
struct Systemd {
    socket: UnixDatagram,
    directory: TempDir,
}

impl Systemd {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
        socket.set_nonblocking(true).expect("not blocking");
        Self { socket, directory }
    }

    fn path(&self) -> Option<PathBuf> {
        Some(self.directory.path().join("notify"))
    }

    /// Returns the lines of the messages since the last call.
    fn received(&self) -> Vec<String> {
        let mut message = [0; 1024];
        let mut lines = Vec::new();
        while let Ok(octets) = self.socket.recv(&mut message) {
            let text = std::str::from_utf8(&message[..octets]).expect("text");
            lines.extend(text.lines().map(str::to_owned));
        }
        lines
    }
}

fn idle() -> String {
    "idle".to_owned()
}

#[tokio::test(start_paused = true)]
async fn pings_follow_turns_at_a_quarter_of_the_watchdog() {
    let systemd = Systemd::new();
    let mut manager = ServiceManager::new(systemd.path(), Some(WATCHDOG));
    assert_eq!(manager.rest(), Some(Duration::ZERO));
    manager.turned(idle);
    assert_eq!(systemd.received(), ["WATCHDOG=1", "STATUS=idle"]);
    assert_eq!(manager.rest(), Some(PING_EVERY));
    advance(PING_EVERY - Duration::from_millis(1)).await;
    manager.turned(idle);
    assert_eq!(systemd.received(), [""; 0]);
    advance(Duration::from_millis(1)).await;
    // The time alone sends nothing: the loop must have turned.
    manager.due().await;
    assert_eq!(systemd.received(), [""; 0]);
    manager.turned(idle);
    assert_eq!(systemd.received(), ["WATCHDOG=1"]);
}

#[tokio::test(start_paused = true)]
async fn busy_loop_sends_few_messages() {
    let systemd = Systemd::new();
    let mut manager = ServiceManager::new(systemd.path(), Some(WATCHDOG));
    let (mut turns, mut computed) = (0, 0);
    let mut received = Vec::new();
    for _ in 0..60_000 {
        manager.turned(|| {
            computed += 1;
            format!("turn {turns}")
        });
        turns += 1;
        received.extend(systemd.received());
        advance(Duration::from_millis(1)).await;
    }
    let of = |kind: &str| {
        received
            .iter()
            .filter(|line| line.starts_with(kind))
            .count()
    };
    assert_eq!(
        (of("WATCHDOG=1"), of("STATUS=turn "), computed),
        (4, 60, 60)
    );
}

#[tokio::test(start_paused = true)]
async fn last_state_is_sent_once_without_further_turns() {
    let systemd = Systemd::new();
    let mut manager = ServiceManager::new(systemd.path(), None);
    manager.turned(|| "first".to_owned());
    advance(Duration::from_millis(400)).await;
    manager.turned(|| "second".to_owned());
    assert_eq!(systemd.received(), ["STATUS=first"]);
    assert_eq!(manager.rest(), Some(Duration::from_millis(600)));
    manager.due().await;
    manager.turned(|| "second".to_owned());
    assert_eq!(systemd.received(), ["STATUS=second"]);
    assert_eq!(manager.rest(), None, "an idle daemon sleeps");
}

#[tokio::test(start_paused = true)]
async fn state_is_one_short_line() {
    let systemd = Systemd::new();
    let mut manager = ServiceManager::new(systemd.path(), None);
    manager.turned(|| format!("waiting for a\nWATCHDOG=1 {}", "ä".repeat(1000)));
    let received = systemd.received();
    let [state] = &received[..] else {
        panic!("{received:?}");
    };
    assert!(
        state.starts_with("STATUS=waiting for a WATCHDOG=1 ä"),
        "{state}"
    );
    assert!(
        state.len() <= "STATUS=".len() + SERVICE_STATE_OCTETS_MAX,
        "{state}"
    );
}

#[tokio::test(start_paused = true)]
async fn service_manager_that_does_not_read_blocks_nothing() {
    let systemd = Systemd::new();
    let mut manager = ServiceManager::new(systemd.path(), Some(WATCHDOG));
    // More than the queue of any socket has room for.
    for turn in 0..5_000 {
        manager.turned(|| format!("turn {turn}"));
        advance(SERVICE_STATE_EVERY).await;
    }
    let received = systemd.received();
    assert!(received.len() < 5_000, "the queue was never full");
    manager.turned(|| "read again".to_owned());
    assert!(systemd.received().contains(&"STATUS=read again".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn missing_socket_stops_nothing() {
    let systemd = Systemd::new();
    let mut manager = ServiceManager::new(systemd.path(), Some(WATCHDOG));
    let path = systemd.path().expect("a path");
    std::fs::remove_file(&path).expect("it is there");
    manager.turned(idle);
    assert_eq!(manager.rest(), Some(SERVICE_STATE_EVERY), "tried again");
    let later = UnixDatagram::bind(&path).expect("a socket");
    let later = Systemd {
        socket: later,
        ..systemd
    };
    later.socket.set_nonblocking(true).expect("not blocking");
    advance(PING_EVERY).await;
    manager.turned(idle);
    assert_eq!(later.received(), ["WATCHDOG=1", "STATUS=idle"]);
}

#[tokio::test(start_paused = true)]
async fn missing_service_manager_makes_nothing_due() {
    let mut manager = ServiceManager::new(None, Some(WATCHDOG));
    manager.turned(|| panic!("nobody reads it"));
    assert_eq!(manager.rest(), None);
}
