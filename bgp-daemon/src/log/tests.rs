use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bgp_config::{BgpFile, NextHops, NoKernel, Source};
use bgp_io::bgp_fsm::{DownReason, State};
use bgp_io::bgp_proto::{AttrCode, Fault, FaultKind, Remedy};
use bgp_io::bgp_speaker::Event as SpeakerEvent;
use daemon_common::limits::{REPEATS_LOGGED, REPEATS_WINDOW};

use super::*;

/// A log and the speaker that emits its events, in virtual time.
struct Case {
    log: Log,
    speaker: Speaker,
    /// Events that were emitted.
    emitted: Vec<Emitted>,
}

impl Case {
    /// With configured neighbors `n0` to `n9`.
    fn new() -> Self {
        let mut text = "asn = 64512\nrouter_id = \"10.0.0.1\"\nlisten = []\n".to_owned();
        for number in 0..10 {
            text.push_str(&format!(
                "[[neighbor]]\nname = \"n{number}\"\naddress = \"10.0.1.{number}\"\nasn = 64512\n"
            ));
        }
        text.push_str("[[neighbor_range]]\nprefix = \"10.0.2.0/24\"\nasn = 64512\nlimit = 9\n");
        let source = Source::new("bgp.toml", text);
        let read = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable);
        let (_, intent) = read.unwrap_or_else(|report| panic!("{report}"));
        Self {
            log: Log::new(),
            speaker: Speaker::new(intent.speaker, 0),
            emitted: Vec::new(),
        }
    }

    fn peer(&self, name: &str) -> PeerId {
        report::find(&self.speaker, name).expect("a neighbor")
    }

    fn event(&mut self, now: Instant, event: &Event) {
        let emitted = self.log.admit(now, &self.speaker, event);
        self.emitted.extend(emitted);
    }

    fn down(&mut self, now: Instant, name: &str) {
        self.down_of(now, self.peer(name));
    }

    fn down_of(&mut self, now: Instant, peer: PeerId) {
        let event = SpeakerEvent::Down {
            peer,
            name: self.speaker.peer_name(peer).to_owned(),
            reason: DownReason::TransportLost,
        };
        self.event(now, &Event::Speaker(event));
    }

    /// A connection from an address of no neighbor.
    fn stranger(&mut self, now: Instant, number: u32) {
        let remote = Ipv4Addr::from(0x7f02_0000 + number);
        let event = Event::Refused {
            local: SocketAddr::from(([127, 0, 0, 1], 179)),
            remote: SocketAddr::from((remote, 40_000)),
            refusal: Refusal::Unknown,
        };
        self.event(now, &event);
    }

    fn malformed(&mut self, now: Instant, name: &str) {
        let fault = Fault::new(FaultKind::Length, AttrCode::Origin, 0);
        let event = SpeakerEvent::Malformed {
            peer: self.peer(name),
            name: name.to_owned(),
            fault,
            remedy: Remedy::TreatAsWithdraw,
        };
        self.event(now, &Event::Speaker(event));
    }

    /// The due summaries: the number of further events, and the last one.
    fn due(&mut self, now: Instant) -> Vec<(u64, Emitted)> {
        let due = self.log.summaries(|table| table.due(since_start(now)));
        due.into_iter()
            .map(|summary| (summary.more, summary.last))
            .collect()
    }

    fn dial_failed(&mut self, now: Instant, name: &str, errno: i32) {
        let peer = self.peer(name);
        let remote = self.speaker.peer_config(peer).expect("a neighbor").remote;
        let event = Event::DialFailed {
            peer,
            remote: (remote, 179).into(),
            error: io::Error::from_raw_os_error(errno),
        };
        self.event(now, &event);
    }

    /// The number of events of a name about a neighbor.
    fn count(&self, name: &str, neighbor: &str) -> usize {
        let of = self.emitted.iter().filter(|event| {
            event.kind().name == name && event.fields().get("neighbor") == Some(&neighbor.into())
        });
        of.count()
    }
}

fn at_ms(millis: u64) -> Instant {
    Instant::from_secs(100) + Duration::from_millis(millis)
}

#[test]
fn strangers_of_any_number_have_few_lines_and_summaries() {
    let mut case = Case::new();
    for number in 0..10_000 {
        case.stranger(at_ms(u64::from(number)), number);
    }
    let most = LOG_STRANGER_KEYS_MAX + usize::try_from(REPEATS_LOGGED).expect("small");
    assert_eq!(case.emitted.len(), most);
    let due = case.due(at_ms(10_016));
    let more = 10_000 - most as u64;
    let [(count, Emitted::ConnectionRefused { address, .. })] = due.as_slice() else {
        panic!("{due:?}")
    };
    let last = IpAddr::from([127, 2, 39, 15]);
    assert_eq!(
        (*count, *address, case.log.summarized()),
        (more, last, more)
    );
}

// Promise (Daemons): Repeated events hide no state change of a neighbor.
#[test]
fn state_changes_of_neighbors_are_logged_amid_strangers() {
    let mut case = Case::new();
    for number in 0..10_000 {
        case.stranger(at_ms(0), number);
    }
    for number in 0..10 {
        case.down(at_ms(1), &format!("n{number}"));
    }
    for number in 0..10 {
        assert_eq!(case.count("session.closed", &format!("n{number}")), 1);
    }
}

#[test]
fn malformed_updates_of_one_neighbor_hide_nothing_else() {
    let mut case = Case::new();
    for _ in 0..9000 {
        case.malformed(at_ms(0), "n1");
    }
    case.malformed(at_ms(1), "n2");
    case.down(at_ms(1), "n1");
    assert_eq!(case.count("update.malformed", "n1"), 5);
    assert_eq!(case.count("update.malformed", "n2"), 1);
    assert_eq!(case.count("session.closed", "n1"), 1);
    let due = case.due(at_ms(10_000));
    let [(8995, Emitted::UpdateMalformed { neighbor, .. })] = due.as_slice() else {
        panic!("{due:?}")
    };
    assert_eq!(neighbor.as_str(), "n1");
}

#[test]
fn flapping_neighbor_is_summarized_without_another_event() {
    let mut case = Case::new();
    for at in 0..100 {
        case.down(at_ms(at), "n3");
    }
    assert_eq!(case.emitted.len() as u64, REPEATS_LOGGED);
    let at = case.log.poll_timeout().expect("a summary is to come");
    assert_eq!(at, at_ms(0) + REPEATS_WINDOW);
    let due = case.due(at);
    assert!(
        matches!(due[..], [(95, Emitted::SessionClosed { .. })]),
        "{due:?}"
    );
    assert_eq!(case.log.poll_timeout(), None);
}

#[test]
fn forgotten_neighbors_do_not_hide_the_next_one_of_their_number() {
    let mut case = Case::new();
    let local = SocketAddr::from(([10, 0, 0, 1], 179));
    let remote = SocketAddr::from(([10, 0, 2, 7], 40_000));
    let number = PeerId(11);
    for _ in 0..100 {
        case.down_of(at_ms(0), number);
    }
    assert_eq!(case.emitted.len() as u64, REPEATS_LOGGED);
    let (peer, _) = case.speaker.accept(at_ms(0), local, remote).expect("room");
    assert_eq!(peer, number);
    case.down_of(at_ms(1), peer);
    assert_eq!(case.emitted.len() as u64, REPEATS_LOGGED + 1);
}

/// ENETUNREACH, ECONNREFUSED and EHOSTUNREACH.
const ERRNOS: [i32; 3] = [101, 111, 113];

#[test]
fn failed_dial_is_emitted_once_for_each_reason() {
    let mut case = Case::new();
    for at in 0..90 {
        let errno = ERRNOS[at as usize % 3];
        case.dial_failed(at_ms(20_000 * at), "n1", errno);
    }
    case.dial_failed(at_ms(0), "n2", ERRNOS[0]);
    assert_eq!(case.count("session.connect_failed", "n1"), ERRNOS.len());
    assert_eq!(case.count("session.connect_failed", "n2"), 1);
    let n1 = IpAddr::from([10, 0, 1, 1]);
    let last = at_ms(20_000 * 89);
    assert_eq!(case.log.connect_error(n1), Some(("No route to host", last)));
}

#[test]
fn failed_dial_is_forgotten_once_the_connection_opens() {
    let mut case = Case::new();
    case.dial_failed(at_ms(0), "n1", ERRNOS[0]);
    case.dial_failed(at_ms(9), "n1", ERRNOS[0]);
    let n1 = IpAddr::from([10, 0, 1, 1]);
    let since = case.log.connect_error(n1).map(|(_, since)| since);
    assert_eq!(since, Some(at_ms(0)), "the reason is the same since then");
    let peer = case.peer("n1");
    let state = |state| {
        let name = "n1".to_owned();
        Event::Speaker(SpeakerEvent::State { peer, name, state })
    };
    case.event(at_ms(10), &state(State::Active));
    assert!(case.log.connect_error(n1).is_some());
    case.event(at_ms(11), &state(State::OpenSent));
    assert_eq!(case.log.connect_error(n1), None);
    case.dial_failed(at_ms(12), "n1", ERRNOS[0]);
    assert_eq!(case.count("session.connect_failed", "n1"), 2);
}
