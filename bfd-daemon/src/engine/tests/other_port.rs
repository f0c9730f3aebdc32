//! Neighbors with the other mode, so that their packets arrive on the other port.

use bfd::limits::{PORT_MULTIHOP, PORT_SINGLE_HOP};

use super::*;
use crate::limits::OTHER_PORT_FOR;

/// The addresses of the hosts for each IP version.
const ADDRESSES: [[&str; 2]; 2] = [["10.0.0.1", "10.0.0.2"], ["2001:db8::1", "2001:db8::2"]];

fn over(at: [IpAddr; 2], host: usize, hops: Hops) -> Wanted {
    Wanted {
        remote: at[1 - host],
        local: Some(at[host]),
        hops,
        ..wanted(1)
    }
}

impl Pair {
    /// A pair with these numbers of hops and addresses.
    fn over(at: [IpAddr; 2], hops: [Hops; 2]) -> Self {
        let mut pair = Self::new();
        pair.at = at;
        for (host, hops) in hops.into_iter().enumerate() {
            pair.attach(host, "bgp");
            pair.set(host, "bgp", over(at, host, hops)).expect("set");
        }
        pair.run(Duration::from_secs(6));
        pair
    }

    /// Returns the problem in reports, which is that of the client.
    fn problem(&self, host: usize) -> Option<String> {
        let view = self.engines[host].views().next().expect("a session");
        assert_eq!(view.problem, self.last(host).problem.as_deref());
        view.problem.map(str::to_owned)
    }
}

// Promise (BGP): A session of BFD with packets on the port of the other mode is named with the remedy.
#[test]
fn packets_on_the_other_port_are_named_with_the_remedy() {
    let port = |hops| match hops {
        Hops::Multi => format!("UDP port {PORT_MULTIHOP}"),
        _ => format!("UDP port {PORT_SINGLE_HOP}"),
    };
    let mode = |hops| match hops {
        Hops::Multi => "`mode = \"multihop\"` here",
        _ => "`mode = \"single-hop\"` here",
    };
    for at in ADDRESSES.map(|at| at.map(|address| address.parse().expect("an address"))) {
        for hops in [[Hops::Single, Hops::Multi], [Hops::Multi, Hops::Single]] {
            let mut pair = Pair::over(at, hops);
            for host in 0..2 {
                let there = hops[1 - host];
                let problem = pair.problem(host).expect("a problem");
                assert!(problem.contains(&port(there)), "{problem}");
                assert!(problem.contains(mode(there)), "{problem}");
            }
            pair.set(0, "bgp", over(at, 0, hops[1])).expect("set");
            pair.run(Duration::from_secs(5));
            for host in 0..2 {
                assert_eq!(pair.last(host).liveness, Reported::Alive);
                assert_eq!(pair.problem(host), None);
            }
        }
    }
}

#[test]
fn packets_on_the_other_port_are_reported_for_a_time() {
    let at = ADDRESSES[0].map(|address| address.parse().expect("an address"));
    let mut pair = Pair::over(at, [Hops::Single, Hops::Multi]);
    let retry = |pair: &mut Pair| {
        pair.engines[0].retry(pair.now, &LINKS[0]);
        pair.run(Duration::from_millis(1));
    };
    pair.run(OTHER_PORT_FOR * 2);
    retry(&mut pair);
    assert!(pair.problem(0).is_some(), "they still arrive");
    let states = pair.sent[0].len();
    pair.cut = true;
    pair.run(OTHER_PORT_FOR);
    retry(&mut pair);
    assert_eq!(pair.problem(0), None);
    assert_eq!(pair.sent[0].len(), states + 1, "the end");
    let named = pair.sent[0].iter().filter(|state| state.problem.is_some());
    assert_eq!(named.count(), 1, "once");
}

/// Forged packets change no session that works, and a packet of another link names no remedy.
#[test]
fn packets_on_the_other_port_do_not_mark_a_working_session() {
    let multihop = |ttl| {
        let (near, far) = (address(1), address(2));
        Arrival::new(Port::Multi, 0, far, near, ttl)
    };
    let mut pair = Pair::up();
    let packet = |engine: &mut Engine<Seeded>, now| {
        let outgoing = engine.step(now).expect("a packet");
        outgoing.packet
    };
    let interval = Duration::from_millis(300);
    let forged = packet(&mut pair.engines[1], pair.now + interval);
    let discard = pair.engines[0].receive(pair.now, &multihop(255), forged.octets());
    assert_eq!(discard, Err(Discard::Path));
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.problem(0), None);

    let mut pair = Pair::new();
    pair.attach(0, "bgp");
    let multi = Wanted {
        hops: Hops::Multi,
        ..wanted(2)
    };
    pair.set(0, "bgp", multi).expect("set");
    pair.attach(1, "bgp");
    pair.set(1, "bgp", wanted(1)).expect("set");
    let packet = packet(&mut pair.engines[1], pair.now + Duration::from_secs(1));
    pair.cut = true;
    for (ttl, is_named) in [(254, false), (255, true)] {
        let (near, far) = (address(1), address(2));
        let single = Arrival::new(Port::Single, 7, far, near, ttl);
        let discard = pair.engines[0].receive(pair.now, &single, packet.octets());
        assert_eq!(discard, Err(Discard::NoSession));
        pair.run(Duration::from_millis(1));
        assert_eq!(pair.problem(0).is_some(), is_named);
    }
}
