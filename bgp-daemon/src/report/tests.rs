use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bgp_fsm::{Conn, Input as SessionInput, Instant};
use bgp_proto::{Attributes, Family, Ipv4Prefix, Net};
use bgp_speaker::{Input, Output, Speaker};
use daemon_common::events::Event as Emitted;
use daemon_common::limits::PAGE_PATHS_MAX;
use rib::{Budget, PeerId, Progress};

use super::{
    event, facts, find, full_ranges, limits, malformed, neighbors, rejected_for_memory, routes,
    waiting,
};
use bgp_config::{BgpFile, NextHops, NoKernel, Source};

mod lookup;
mod stored;

const NOW: Instant = Instant::from_secs(100);

fn speaker(text: &str) -> Speaker {
    let source = Source::new("bgp.toml", text);
    let read = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable);
    let (_, intent) = read.unwrap_or_else(|report| panic!("{report}"));
    let mut speaker = Speaker::new(intent.speaker, 1);
    speaker.start(NOW);
    speaker
}

/// A reflector and a client that has connected to it, in memory.
struct Pair {
    reflector: Speaker,
    client: Speaker,
    /// The other speaker as each side identifies it.
    ids: Option<(PeerId, PeerId)>,
    emitted: Vec<Emitted>,
}

impl Pair {
    fn new() -> Self {
        Self::with("", "")
    }

    /// With more keys for the client at the reflector, and for the reflector at the client.
    fn with(at_reflector: &str, at_client: &str) -> Self {
        let reflector = speaker(&format!(
            "asn = 64512\nrouter_id = \"10.0.0.1\"\n\
             [[neighbor]]\nname = \"tor\"\naddress = \"10.0.9.9\"\nasn = 65001\n\
             [[neighbor_range]]\nprefix = \"10.0.0.0/24\"\nasn = \"internal\"\nlimit = 5\n\
             route_reflector_client = true\n{at_reflector}"
        ));
        let client = speaker(&format!(
            "asn = 64512\nrouter_id = \"10.0.0.11\"\n\
             [[neighbor]]\nname = \"rr1\"\naddress = \"10.0.0.1\"\nasn = 64512\n{at_client}"
        ));
        Self {
            reflector,
            client,
            ids: None,
            emitted: Vec::new(),
        }
    }

    /// Carries octets in both directions until nothing is left to do.
    fn settle(&mut self) {
        loop {
            let mut moved = self.outputs();
            if let Some((at_reflector, at_client)) = self.ids {
                let inbound = (&mut self.reflector, at_reflector, Conn::Inbound);
                let outbound = (&mut self.client, at_client, Conn::Outbound);
                moved |= carry(inbound, outbound);
                let inbound = (&mut self.reflector, at_reflector, Conn::Inbound);
                let outbound = (&mut self.client, at_client, Conn::Outbound);
                moved |= carry(outbound, inbound);
            }
            for speaker in [&mut self.reflector, &mut self.client] {
                while speaker.run(NOW, Budget(1000)) == Progress::More {}
            }
            if !moved {
                return;
            }
        }
    }

    fn outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.client.poll_output() {
            moved = true;
            if let Output::Dial { peer, .. } = output {
                self.connect(peer);
            }
        }
        while let Some(output) = self.reflector.poll_output() {
            moved = true;
            if let Output::Event(of_speaker) = output {
                self.emitted.extend(event(&self.reflector, &of_speaker));
            }
        }
        moved
    }

    fn connect(&mut self, at_client: PeerId) {
        let client: SocketAddr = "10.0.0.11:40000".parse().expect("an address");
        let reflector: SocketAddr = "10.0.0.1:179".parse().expect("an address");
        let (at_reflector, _) = self
            .reflector
            .accept(NOW, reflector, client)
            .expect("in the range");
        let opened = |conn, local, remote| SessionInput::Opened {
            conn,
            local,
            remote,
        };
        let inbound = opened(Conn::Inbound, reflector, client);
        let outbound = opened(Conn::Outbound, client, reflector);
        self.reflector
            .handle(NOW, Input::Session(at_reflector, inbound));
        self.client.handle(NOW, Input::Session(at_client, outbound));
        self.ids = Some((at_reflector, at_client));
    }

    fn announce(&mut self, nets: impl IntoIterator<Item = u32>) {
        for net in nets {
            let net = Ipv4Prefix::new(net.into(), 32).expect("a prefix");
            let attributes = Some(Attributes {
                local_pref: Some(100),
                ..Attributes::default()
            });
            let family = Family::IPV4_UNICAST;
            self.client.handle(
                NOW,
                Input::Local {
                    family,
                    net: Net::V4(net),
                    attributes,
                    interface: None,
                },
            );
        }
    }
}

type End<'s> = (&'s mut Speaker, PeerId, Conn);

fn carry(from: End<'_>, to: End<'_>) -> bool {
    let mut slices = Vec::new();
    from.0.fill(from.1, from.2, &mut slices, 1 << 20);
    let mut octets = bytes::BytesMut::new();
    for slice in &slices {
        octets.extend_from_slice(slice);
    }
    from.0.sent(from.1, from.2, octets.len());
    let moved = !octets.is_empty();
    while let Ok(Some(frame)) = bgp_proto::next_frame(&mut octets, 4096) {
        to.0.handle(
            NOW,
            Input::Session(to.1, SessionInput::Received { conn: to.2, frame }),
        );
    }
    moved
}

#[test]
fn neighbor_report_has_state_role_and_range() {
    let mut pair = Pair::new();
    assert_eq!(waiting(&pair.client), ["neighbor rr1 (Connect)"]);
    pair.announce([0x0a41_0001]);
    pair.settle();
    assert!(waiting(&pair.client).is_empty());
    let report = neighbors(&pair.reflector, Instant::from_secs(160));
    assert_eq!(
        (
            report.local_asn,
            report.ranges[0].used,
            report.ranges[0].limit
        ),
        (64512, 1, 5)
    );
    let [tor, client] = report.neighbors.as_slice() else {
        panic!("{report:?}")
    };
    assert_eq!((tor.name.as_str(), tor.role.as_str()), ("tor", "external"));
    assert_eq!(tor.import, "deny (no policy, RFC 8212)");
    assert_eq!((client.role.as_str(), client.dynamic), ("client", true));
    assert_eq!(
        (client.state.as_str(), client.since_s),
        ("Established", Some(60))
    );
    assert_eq!(client.remote, "10.0.0.11:40000".parse().ok());
    assert_eq!(client.families[0].received, 1);
    assert!(!client.capabilities.is_empty() && client.updates_in > 0);
    let is_up = |event: &Emitted| matches!(event, Emitted::SessionEstablished { asn: 64512, .. });
    assert!(pair.emitted.iter().any(is_up), "{:?}", pair.emitted);
    let facts = facts(&pair.reflector);
    let value = |name| {
        facts
            .iter()
            .find(|fact| fact.name == name)
            .map(|fact| fact.value.as_str())
    };
    assert_eq!(value("sessions up"), Some("1 of 2"));
    assert_eq!(value("next hops"), Some("1, assumed reachable at cost 0"));
}

#[test]
fn failed_handshakes_are_one_event_with_reasons() {
    let mut pair = Pair::with("graceful_restart = false\n", "");
    pair.settle();
    let from = |last| SocketAddr::from(([10, 0, 0, last], 40_000));
    for last in [21, 22, 22] {
        let local = "10.0.0.1:179".parse().expect("an address");
        let peer = pair.reflector.accept(NOW, local, from(last));
        let (peer, conn) = peer.expect("room");
        pair.outputs();
        let opened = SessionInput::Opened {
            conn,
            local,
            remote: from(last),
        };
        for input in [opened, SessionInput::Closed(conn)] {
            pair.reflector.handle(NOW, Input::Session(peer, input));
            pair.outputs();
        }
    }
    let later = NOW + Duration::from_secs(10);
    pair.reflector.handle(later, Input::Timeout);
    pair.outputs();
    let failed = pair.emitted.iter().filter_map(|event| match event {
        Emitted::ConnectionHandshakesFailed { failures, .. } => Some((failures, event)),
        _ => None,
    });
    let fields: Vec<String> = failed
        .map(|(failures, event)| format!("{failures} {}", event.fields()["address"]))
        .collect();
    assert_eq!(fields, ["1 closed \"10.0.0.21\"", "2 closed \"10.0.0.22\""]);
    let report = neighbors(&pair.reflector, NOW);
    assert_eq!(report.ranges[0].failed, [("closed".to_owned(), 3)].into());
}

#[test]
fn ended_dynamic_neighbor_is_named_in_its_last_events() {
    let mut pair = Pair::with("graceful_restart = false\n", "");
    pair.settle();
    let (at_reflector, _) = pair.ids.take().expect("connected");
    pair.emitted.clear();
    let closed = SessionInput::Closed(Conn::Inbound);
    pair.reflector
        .handle(NOW, Input::Session(at_reflector, closed));
    pair.outputs();
    assert!(
        pair.reflector.peer(at_reflector).is_none(),
        "it is forgotten"
    );
    let named = |event: &Emitted| match event {
        Emitted::SessionClosed {
            neighbor, cause, ..
        } => (neighbor.as_str(), cause.as_str()) == ("10.0.0.0/24-10.0.0.11", "connection-lost"),
        _ => false,
    };
    assert!(pair.emitted.iter().any(named), "{:?}", pair.emitted);
    let has_unknown = |event: &Emitted| event.to_string().contains('?');
    assert!(!pair.emitted.iter().any(has_unknown));
}

#[test]
fn neighbor_report_has_the_keys_that_describe_it() {
    let speaker = speaker(
        "asn = 64512\nrouter_id = \"10.0.0.1\"\n\
         [[neighbor]]\naddress = \"10.0.0.2\"\nasn = 64512\nttl_security = 2\npassword = \"hush\"\n\
         [[neighbor]]\naddress = \"10.0.0.3\"\nasn = 64512\nhold_time = 30\n",
    );
    let neighbors = neighbors(&speaker, NOW).neighbors;
    let keys = |of: usize| {
        let keys = neighbors[of].keys.iter();
        keys.map(|key| format!("{} {}", key.name, key.value))
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(0), ["ttl_security 2", "password set"]);
    assert!(keys(1).is_empty());
}

#[test]
fn description_of_a_range_is_reported_for_its_neighbors() {
    let mut speaker = speaker(
        "asn = 64512\nrouter_id = \"10.0.0.1\"\n\
         [[neighbor_range]]\nprefix = \"10.0.0.0/24\"\nasn = 64512\nlimit = 2\n\
         description = \"hosts of rack 7\"\n",
    );
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|at| (at, 179).into());
    speaker.accept(NOW, ends[0], ends[1]).expect("in the range");
    let neighbor = neighbors(&speaker, NOW).neighbors.remove(0);
    let key = neighbor.keys.first().expect("a key");
    assert_eq!(
        (&*key.name, &*key.value),
        ("description", "hosts of rack 7")
    );
}

#[test]
fn neighbor_beyond_its_hops_is_shown_with_its_ttl() {
    let mut speaker = speaker(
        "asn = 64512\nrouter_id = \"10.0.0.1\"\n\
         [[neighbor]]\naddress = \"10.0.0.2\"\nasn = 64512\nttl_security = true\n",
    );
    let failure = bgp_speaker::HandshakeFailure::TtlSecurity {
        ttl: Some(63),
        least: 255,
    };
    speaker.count_failure(NOW, [10, 0, 0, 2].into(), failure);
    let neighbor = neighbors(&speaker, NOW).neighbors.remove(0);
    assert_eq!(neighbor.last_error, neighbor.last_down);
    let shown = neighbor.last_down;
    let expected = "a connection was rejected: TTL security: TTL 63, at least 255 expected";
    assert_eq!(shown.as_deref(), Some(expected));
}

#[test]
fn route_report_has_next_hop_state_and_lost_step() {
    let mut pair = Pair::new();
    pair.announce([0x0a41_0001]);
    pair.settle();
    let prefix = "10.65.0.1/32".parse().ok();
    let report = routes(&pair.reflector, prefix, false, None, None).expect("a page");
    let [route] = report.routes.as_slice() else {
        panic!("{report:?}")
    };
    let [path] = route.paths.as_slice() else {
        panic!("{route:?}")
    };
    assert!(path.best && path.lost.is_none());
    assert_eq!(path.next_hop.as_deref(), Some("10.0.0.11"));
    assert_eq!(
        path.next_hop_state.as_deref(),
        Some("assumed reachable at cost 0")
    );
    assert_eq!((path.local_pref, path.origin.as_str()), (Some(100), "igp"));

    // The reflector's own route wins; the client's is left to explain.
    let net = Net::V4(Ipv4Prefix::new(0x0a41_0001.into(), 32).expect("a prefix"));
    let attributes = Some(Attributes::default());
    let family = Family::IPV4_UNICAST;
    pair.reflector.handle(
        NOW,
        Input::Local {
            family,
            net,
            attributes,
            interface: None,
        },
    );
    pair.settle();
    let report = routes(&pair.reflector, prefix, true, None, None).expect("a page");
    let paths = &report.routes[0].paths;
    assert_eq!((paths[0].neighbor.as_str(), paths[0].best), ("local", true));
    assert_eq!(paths[1].lost.as_deref(), Some("own route preferred"));
    let report = routes(&pair.reflector, prefix, false, None, None).expect("a page");
    assert_eq!(report.routes[0].paths.len(), 1);
    let none = routes(
        &pair.reflector,
        "10.65.0.2/32".parse().ok(),
        true,
        None,
        None,
    )
    .expect("a page");
    assert!(none.routes.is_empty());
}

#[test]
fn route_report_has_receivers_of_each_path() {
    let several = ("add_path = \"send\"\n", "add_path = \"receive\"\n");
    for ((at_reflector, at_client), id) in [(("", ""), None), (several, Some(1))] {
        let mut pair = Pair::with(at_reflector, at_client);
        pair.announce([0x0a41_0001]);
        let net = Net::V4(Ipv4Prefix::new(0x0a41_0001.into(), 32).expect("a prefix"));
        let own = Input::Local {
            family: Family::IPV4_UNICAST,
            net,
            attributes: Some(Attributes::default()),
            interface: None,
        };
        pair.reflector.handle(NOW, own);
        pair.settle();
        let prefix = "10.65.0.1/32".parse().ok();
        let report = routes(&pair.reflector, prefix, true, None, None).expect("a page");
        let [best, lost] = report.routes[0].paths.as_slice() else {
            panic!("{report:?}")
        };
        let [sent] = best.sent_to.as_slice() else {
            panic!("{best:?}")
        };
        assert_eq!(sent.neighbor, "10.0.0.0/24-10.0.0.11");
        assert_eq!(sent.path_id, id);
        assert!(lost.sent_to.is_empty(), "it came from there");
        let report = routes(&pair.client, prefix, true, None, None).expect("a page");
        let paths = &report.routes[0].paths;
        let neighbor = neighbors(&pair.reflector, NOW).neighbors.remove(1);
        let sent = &neighbor.families[0].add_path_send;
        assert_eq!(sent.as_deref(), id.map(|_| "all"));
        let learned = paths.iter().find(|path| path.neighbor == "rr1");
        assert_eq!(learned.expect("learned").path_id, id);
    }
}

#[test]
fn pages_cover_every_route_once() {
    let mut pair = Pair::new();
    let count = u32::try_from(PAGE_PATHS_MAX).expect("small") * 2 + 7;
    pair.announce((0..count).map(|index| 0x0a00_0000 + index));
    pair.settle();
    let (mut seen, mut pages, mut after) = (BTreeSet::new(), 0, None);
    loop {
        let page = routes(&pair.reflector, None, false, None, after.as_deref()).expect("a page");
        assert!(page.routes.len() <= PAGE_PATHS_MAX);
        pages += 1;
        for route in page.routes {
            assert!(seen.insert(route.prefix.clone()), "{} twice", route.prefix);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (count as usize, 3));
    assert!(routes(&pair.reflector, None, false, None, Some("nonsense")).is_err());
}

#[test]
fn malformed_report_has_neighbor_time_offset_and_remedy() {
    let mut pair = Pair::new();
    pair.settle();
    let (peer, _) = pair.ids.expect("connected");
    // ORIGIN has the type code 9; AS_PATH, NEXT_HOP, LOCAL_PREF and one prefix are valid.
    let body = "0000001540010109400200400304".to_owned() + "0a00000b40050400000064200a410005";
    let octets: Vec<u8> = (0..body.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&body[at..at + 2], 16).expect("hex"))
        .collect();
    let mut wire = bytes::BytesMut::from(&[0xff; 16][..]);
    wire.extend_from_slice(&[0, 19 + octets.len() as u8, 2]);
    wire.extend_from_slice(&octets);
    let frame = bgp_proto::next_frame(&mut wire, 4096)
        .ok()
        .flatten()
        .expect("a message");
    let conn = Conn::Inbound;
    let received = SessionInput::Received { conn, frame };
    pair.reflector.handle(NOW, Input::Session(peer, received));

    let later = Instant::from_secs(160);
    let report = malformed(&pair.reflector, later, Duration::from_secs(1_000_000));
    let [message] = report.messages.as_slice() else {
        panic!("{report:?}")
    };
    assert_eq!(message.time_s, 1_000_000 - 60);
    assert_eq!(message.neighbor, "10.0.0.0/24-10.0.0.11");
    assert_eq!((message.fault.as_str(), message.at), ("value", 4));
    assert_eq!(message.attribute.as_deref(), Some("ORIGIN"));
    assert_eq!(message.remedy, "treat-as-withdraw");
    assert_eq!((&message.octets, message.octets_total), (&body, 30));
    let kept = limits(&pair.reflector);
    let kept = kept.iter().find(|l| l.name == "malformed messages kept");
    assert_eq!(kept.and_then(|limit| limit.used), Some(1));
}

#[test]
fn limit_report_has_current_and_peak_use() {
    let mut pair = Pair::new();
    pair.settle();
    let limit = |pair: &Pair, name: &str| {
        let limits = limits(&pair.reflector);
        let found = limits.into_iter().find(|limit| limit.name == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    let range = limit(&pair, "neighbors of a range");
    assert_eq!((range.limit, range.used, range.peak), (5, Some(1), Some(1)));
    assert_eq!(range.of.as_deref(), Some("10.0.0.0/24"));
    assert_eq!(range.key.as_deref(), Some("neighbor_range.limit"));
    let local = "10.0.0.1:179".parse().expect("an address");
    for host in 20..26 {
        let remote = SocketAddr::from(([10, 0, 0, host], 40_000));
        let verdict = pair.reflector.accept(NOW, local, remote);
        assert!(verdict.is_ok(), "{host}: one without a session makes room");
    }
    let range = limit(&pair, "neighbors of a range");
    assert_eq!(
        (range.used, range.peak, range.met),
        (Some(5), Some(5), Some(2))
    );
    let all = limit(&pair, "neighbors");
    assert_eq!((all.used, all.peak), (Some(6), Some(6)), "with tor");
    let (client, _) = pair.ids.expect("connected");
    let why = bgp_proto::Notification::administrative_reset("");
    pair.reflector.stop(NOW, client, why);
    pair.settle();
    let range = limit(&pair, "neighbors of a range");
    assert_eq!((range.used, range.peak), (Some(4), Some(5)));
}

#[test]
fn neighbor_that_is_rejected_for_memory_is_reported() {
    let mut pair = Pair::new();
    pair.settle();
    assert_eq!(rejected_for_memory(&pair.reflector), None);
    pair.reflector.limit_memory(Some(13_500));
    pair.announce(1..=100);
    pair.settle();
    pair.announce(101..=110);
    pair.settle();
    let name = "10.0.0.0/24-10.0.0.11";
    let note = rejected_for_memory(&pair.reflector).expect("a note");
    assert!(
        note.starts_with("memory_max ") && note.ends_with(name),
        "{note}"
    );
    let all = neighbors(&pair.reflector, NOW).neighbors;
    let rejected: Vec<_> = all.iter().filter(|one| one.rejected_for_memory).collect();
    assert_eq!((rejected.len(), &*rejected[0].name), (1, name));
    assert_eq!(rejected[0].families[0].limited, 10);
    let limits = limits(&pair.reflector);
    let limit = limits
        .iter()
        .find(|limit| limit.key.as_deref() == Some("memory_max"));
    let limit = limit.expect("a line");
    assert_eq!((limit.limit, limit.met), (13_500, Some(1)));
    assert!(limit.used >= Some(11_475), "{limit:?}");
    let is_rejection = |event: &&Emitted| matches!(event, Emitted::MemoryPathsRejected { .. });
    let emitted = pair.emitted.iter().find(is_rejection);
    assert!(emitted.is_some(), "{:?}", pair.emitted);
}

#[test]
fn full_range_of_one_address_is_no_note() {
    let mut speaker = speaker(
        "asn = 64512\nrouter_id = \"10.0.0.1\"\n\
         [[neighbor_range]]\nprefix = \"10.0.0.11/32\"\nasn = 64512\nlimit = 1\n\
         [[neighbor_range]]\nprefix = \"10.0.1.0/31\"\nasn = 64512\nlimit = 1\n",
    );
    speaker.start(NOW);
    assert!(full_ranges(&speaker).is_empty());
    let local = "10.0.0.1:179".parse().expect("an address");
    for remote in [[10, 0, 0, 11], [10, 0, 1, 0]] {
        let accepted = speaker.accept(NOW, local, SocketAddr::from((remote, 40_000)));
        assert!(accepted.is_ok(), "{remote:?}");
    }
    let full = "neighbor_range 10.0.1.0/31 is full: limit = 1";
    assert_eq!(full_ranges(&speaker), [full]);
}

#[test]
fn path_limits_are_reported_by_neighbor_and_family() {
    let mut speaker = speaker(
        "asn = 64512\nrouter_id = \"10.0.0.1\"\n[[neighbor]]\nname = \"tor\"\n\
         address = \"10.0.9.9\"\nasn = 64512\n[[neighbor.prefix_limit]]\n\
         families = [\"ipv6-unicast\"]\nmax = 500\naction = \"restart\"\nrestart_after = 60\n",
    );
    speaker.start(NOW);
    let limits = limits(&speaker);
    let mut paths = limits.iter().filter(|l| l.name == "paths of a neighbor");
    let limit = paths.next().expect("that of the tor");
    assert_eq!(limit.of.as_deref(), Some("tor ipv6-unicast"));
    assert_eq!(
        (limit.limit, limit.used, limit.met),
        (500, Some(0), Some(0))
    );
    assert_eq!(limit.then, "the session is closed, then idle hold for 60 s");
    let limit = paths.next().expect("that of the other family");
    assert_eq!(limit.of.as_deref(), Some("each other ipv4-unicast"));
    assert_eq!(
        (limit.limit, limit.used, limit.met),
        (2_000_000, Some(0), Some(0))
    );
    assert_eq!(paths.count(), 0);
}

#[test]
fn sent_limit_is_reported_while_the_session_is_up() {
    let mut pair = Pair::with("", "prefix_limit_out = 4\n");
    let families = |pair: &Pair| {
        let all = neighbors(&pair.client, NOW).neighbors.into_iter();
        all.flat_map(|one| one.families).collect::<Vec<_>>()
    };
    assert!(families(&pair).iter().all(|family| family.sent.is_none()));
    pair.settle();
    pair.announce(1..=6);
    pair.settle();
    pair.settle();
    let all = families(&pair);
    let v4 = all.iter().find(|family| family.family == "ipv4-unicast");
    let v4 = v4.expect("the family");
    assert_eq!((v4.sent_limit, v4.sent), (Some(4), Some(4)));
    assert!(v4.suppressed >= 2 && v4.is_suppressing, "{v4:?}");
    let limits = limits(&pair.client);
    let limit = limits
        .iter()
        .find(|limit| limit.key.as_deref() == Some("prefix_limit_out"));
    let limit = limit.expect("a line");
    assert_eq!((limit.limit, limit.used, limit.peak), (4, Some(4), Some(4)));
    assert_eq!(
        neighbors(&pair.reflector, NOW).neighbors[1].families[0].received,
        4
    );
}

#[test]
fn strict_mode_is_reported_while_it_waits_or_has_no_effect() {
    let strict = "bfd = true\nbfd_strict = true\n";
    let own = format!("[[neighbor]]\naddress = \"10.0.0.11\"\nasn = 64512\n{strict}");
    for (at_reflector, expected) in [
        (own.as_str(), "BGP waits for it (bfd_strict)"),
        (
            "",
            "bfd_strict has no effect: the neighbor does not have it",
        ),
    ] {
        let mut pair = Pair::with(at_reflector, strict);
        pair.settle();
        let report = neighbors(&pair.client, NOW);
        assert_eq!(report.neighbors[0].bfd.as_deref(), Some(expected));
    }
}

#[test]
fn default_path_limits_of_neighbors_share_a_line() {
    let more = "[[neighbor]]\naddress = \"10.0.9.8\"\nasn = 65001\n";
    let pair = Pair::with(more, "");
    assert_eq!(pair.reflector.peers().count(), 2);
    let limits = limits(&pair.reflector);
    let paths = limits.iter().filter(|l| l.name == "paths of a neighbor");
    let paths: Vec<_> = paths.map(|l| (l.of.as_deref(), l.limit)).collect();
    let families = ["each other ipv4-unicast", "each other ipv6-unicast"];
    assert_eq!(paths, families.map(|of| (Some(of), 2_000_000)));
}

#[test]
fn default_limit_of_route_targets_is_reported_as_applied() {
    let reported = |configured: &str| {
        let speaker = speaker(&format!(
            "asn = 64512\nrouter_id = \"10.0.0.1\"\nfamilies = [\"ipv4-vpn\", \"route-target\"]\n\
             [[neighbor]]\naddress = \"10.0.9.9\"\nasn = 64512\n{configured}"
        ));
        let limits = limits(&speaker).into_iter();
        let paths = limits.filter(|limit| limit.name == "paths of a neighbor");
        paths.map(|limit| limit.limit).collect::<Vec<_>>()
    };
    let found = reported("");
    assert_eq!(
        BTreeSet::from_iter(found),
        BTreeSet::from([100_000, 2_000_000])
    );
    assert_eq!(reported("prefix_limit = 2_000_000\n"), [2_000_000; 2]);
}

#[test]
fn neighbors_are_found_by_name_and_address() {
    let pair = Pair::new();
    let tor = find(&pair.reflector, "tor").expect("by its name");
    assert_eq!(find(&pair.reflector, "10.0.9.9"), Some(tor));
    assert_eq!(find(&pair.reflector, "10.0.9.8"), None);
    assert_eq!(find(&pair.reflector, "to"), None);
}
