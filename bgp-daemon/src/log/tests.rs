use std::net::{Ipv4Addr, SocketAddr};

use bgp_config::{BgpFile, NextHops, NoKernel, Source};
use bgp_io::bgp_fsm::DownReason;
use bgp_io::bgp_proto::{AttrCode, Fault, FaultKind, Remedy};
use bgp_io::bgp_speaker::Event as SpeakerEvent;
use daemon_common::limits::{REPEATS_LOGGED, REPEATS_WINDOW};

use super::*;

/// A log and the speaker whose events it takes, in virtual time.
struct Case {
    log: Log,
    speaker: Speaker,
    /// Lines that were logged.
    lines: Vec<(Level, String)>,
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
            lines: Vec::new(),
        }
    }

    fn peer(&self, name: &str) -> PeerId {
        report::find(&self.speaker, name).expect("a neighbor")
    }

    fn event(&mut self, now: Instant, event: &Event) {
        let line = self.log.admit(now, &self.speaker, event);
        self.lines.extend(line);
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

    /// A connection from an address that belongs to no neighbor.
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
        let fault = Fault {
            kind: FaultKind::Length,
            attr: AttrCode::Origin,
            at: 0,
        };
        let event = SpeakerEvent::Malformed {
            peer: self.peer(name),
            name: name.to_owned(),
            fault,
            remedy: Remedy::TreatAsWithdraw,
        };
        self.event(now, &Event::Speaker(event));
    }

    /// The summaries that are due, in words.
    fn due(&mut self, now: Instant) -> Vec<String> {
        let mut due = Vec::new();
        self.log.summaries(|table| {
            let summaries = table.due(since_start(now));
            due.extend(summaries.iter().map(ToString::to_string));
            Vec::new()
        });
        due
    }

    fn lines_with(&self, words: &str) -> usize {
        let lines = self.lines.iter();
        lines.filter(|(_, text)| text.contains(words)).count()
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
    assert_eq!(case.lines.len(), most);
    let due = case.due(at_ms(10_016));
    let more = 10_000 - most;
    assert_eq!(due.len(), 1, "{due:?}");
    let begin = format!("{more} more in 10 s, the last: connection of 127.2.39.15:40000 refused: ");
    assert!(due[0].starts_with(&begin), "{due:?}");
    assert_eq!(case.log.summarized(), more as u64);
}

#[test]
fn state_changes_of_neighbors_are_logged_amid_strangers() {
    let mut case = Case::new();
    for number in 0..10_000 {
        case.stranger(at_ms(0), number);
    }
    for number in 0..10 {
        case.down(at_ms(1), &format!("n{number}"));
    }
    assert_eq!(case.lines_with("down, the connection was lost"), 10);
}

#[test]
fn malformed_updates_of_one_neighbor_hide_nothing_else() {
    let mut case = Case::new();
    for _ in 0..9000 {
        case.malformed(at_ms(0), "n1");
    }
    case.malformed(at_ms(1), "n2");
    case.down(at_ms(1), "n1");
    assert_eq!(case.lines_with("neighbor n1: malformed"), 5);
    assert_eq!(case.lines_with("neighbor n2: malformed"), 1);
    assert_eq!(case.lines_with("neighbor n1: down"), 1);
    let due = case.due(at_ms(10_000));
    assert_eq!(due.len(), 1);
    let begin = "8995 more in 10 s, the last: neighbor n1: malformed";
    assert!(due[0].starts_with(begin), "{due:?}");
}

#[test]
fn flapping_neighbor_is_summarized_without_another_event() {
    let mut case = Case::new();
    for at in 0..100 {
        case.down(at_ms(at), "n3");
    }
    assert_eq!(case.lines.len() as u64, REPEATS_LOGGED);
    let at = case.log.poll_timeout().expect("a summary is to come");
    assert_eq!(at, at_ms(0) + REPEATS_WINDOW);
    let due = case.due(at);
    assert!(due[0].starts_with("95 more in 10 s, the last: neighbor n3: down"));
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
    assert_eq!(case.lines.len() as u64, REPEATS_LOGGED);
    let (peer, _) = case.speaker.accept(at_ms(0), local, remote).expect("room");
    assert_eq!(peer, number);
    case.down_of(at_ms(1), peer);
    assert_eq!(case.lines.len() as u64, REPEATS_LOGGED + 1);
}
