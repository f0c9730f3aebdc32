//! A workload is evicted or moves while another host sends packets to it: Felix marks its route, the BGP
//! client withdraws it, and the sender loses the route before it is removed.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use interop_tests::{Ground, Kind, PATIENCE, Speaker, Store, in_ground};
use netns_lab::{Host, Process, RouteEventKind, RouteMonitor, VethEnd, until};
use tokio::time::{Instant, interval};

use crate::ready::{STORE, save_felix, start_felix};

/// Evictions and moves of the workload, by turns.
const ROUNDS: u32 = 200;
/// The workload, its interface at its hosts, and its link-layer address.
const WORKLOAD: Ipv4Addr = Ipv4Addr::new(10, 65, 1, 1);
const INTERFACE: &str = "cali1";
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const PORT: u16 = 9;
/// The metric of a marked route.
const MARKED: u32 = 0xf000_0000;
/// Time between two packets.
const PERIOD: Duration = Duration::from_millis(1);
/// Packets before the workload is evicted or moved, and after it has moved.
const PACKETS: u32 = 5;
/// A sender that needs longer to receive a change and to write its route may lose packets: Felix waits for
/// 200 ms.
const WITHDRAWN_AFTER: Duration = Duration::from_millis(150);
/// The least number of rounds in which the sender is fast enough. A busy machine delays most of them.
const FAST_MIN: u32 = 20;
/// Limit of the way of sent packets.
const ARRIVED_AFTER: Duration = Duration::from_secs(2);

/// A host on which the workload can run.
struct Place {
    number: u8,
    speaker: Speaker,
    monitor: RouteMonitor,
    receiver: UdpSocket,
    _felix: Process,
    _workload: Host,
}

/// The numbers of the packets of one round.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    round: u32,
    sent: u32,
    /// Of them, the packets that may be lost: the sender was slower than [`WITHDRAWN_AFTER`].
    late: u32,
    /// By place.
    arrived: [u32; 2],
}

impl Count {
    const fn is_complete(&self) -> bool {
        self.lost() == 0
    }

    const fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.arrived[0] + self.arrived[1])
    }

    /// Counts the packets of this round that have arrived.
    fn receive(&mut self, places: &[Place; 2]) {
        for (count, place) in self.arrived.iter_mut().zip(places) {
            let mut octets = [0; 4];
            while place.receiver.recv(&mut octets).is_ok() {
                *count += u32::from(u32::from_be_bytes(octets) == self.round);
            }
        }
    }

    /// Sends a packet; returns whether the host has a route.
    fn send(&mut self, socket: &UdpSocket) -> bool {
        let to = SocketAddr::new(WORKLOAD.into(), PORT);
        match socket.send_to(&self.round.to_be_bytes(), to) {
            Ok(_) => {
                self.sent += 1;
                true
            }
            Err(error) => {
                let is_unreachable = matches!(
                    error.kind(),
                    ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable
                );
                assert!(is_unreachable, "{error}");
                false
            }
        }
    }
}

/// Returns a socket of a host that never blocks.
fn socket(host: &Host, at: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((at, port)));
    let socket = socket.expect("the host").expect("a socket");
    socket.set_nonblocking(true).expect("set");
    socket
}

impl Place {
    async fn start(ground: &Ground, store: &Store, number: u8) -> Self {
        store.node(number, "").await;
        let site = ground.site(number).await.expect("a host");
        let workload = ground.host(&format!("w{number}")).await.expect("a host");
        let links = site.host.links().expect("links");
        let at_host = VethEnd {
            host: &site.host,
            name: INTERFACE,
            mac: None,
        };
        let inside = VethEnd {
            host: &workload,
            name: "eth0",
            mac: Some(MAC),
        };
        links.add_veth(at_host, inside).await.expect("a link");
        links.up(INTERFACE).await.expect("up");
        let own = workload.links().expect("links");
        let address = IpAddr::from(WORKLOAD).into();
        own.add_address("eth0", address).await.expect("an address");
        own.up("eth0").await.expect("up");
        let everywhere = "0.0.0.0/0".parse().expect("a prefix");
        let routed = own.add_route(everywhere, None, "eth0").await;
        routed.expect("a route");
        let receiver = socket(&workload, WORKLOAD, PORT);
        save_felix(&site, number);
        let felix = start_felix(&site);
        let speaker = Speaker::start_stored_with(Kind::Client, site, &[STORE], "");
        let speaker = speaker.expect("started");
        Self {
            number,
            monitor: RouteMonitor::open(&speaker.site.host).expect("a monitor"),
            speaker,
            receiver,
            _felix: felix,
            _workload: workload,
        }
    }

    fn endpoint(&self) -> String {
        format!("ns/h{}-k8s-web-eth0", self.number)
    }

    /// Stores the endpoint of the workload.
    async fn add(&self, store: &Store) {
        let mac = MAC.map(|octet| format!("{octet:02x}")).join(":");
        let node = self.number;
        let text = format!(
            r#"{{"spec":{{"orchestrator":"k8s","node":"h{node}","workload":"web","pod":"web",
                "endpoint":"eth0","interfaceName":"{INTERFACE}","mac":"{mac}",
                "ipNetworks":["{WORKLOAD}/32"],"profiles":["projectcalico-default-allow"]}}}}"#
        );
        store
            .put("workloadendpoints", &self.endpoint(), &text)
            .await;
    }

    async fn remove(&self, store: &Store) {
        store.delete("workloadendpoints", &self.endpoint()).await;
    }

    /// Waits until Felix has marked the route, or events are missing.
    async fn has_marked(&self, since: Instant) {
        let marked = until::<_, netns_lab::Error>(PATIENCE, "a marked route", async || {
            let (events, is_overrun) = self.monitor.events_since(since);
            let is_marked = events.iter().any(|event| match &event.kind {
                RouteEventKind::Put(route) => route.metric == MARKED,
                _ => false,
            });
            let missing = || format!("{events:?}");
            Ok((is_marked || is_overrun).then_some(()).ok_or_else(missing))
        });
        marked.await.expect("a marked route");
    }
}

/// Adds the workload to a place, if it is not there yet, and removes it from there while packets are sent, or
/// moves it to the other place. Returns the packets, and how long the sender had the former route.
async fn play(
    (store, sender, round): (&Store, &UdpSocket, u32),
    places: &[Place; 2],
    (from, moves): (usize, bool),
) -> (Count, Duration) {
    let begun = Instant::now();
    let mut count = Count {
        round,
        ..Count::default()
    };
    let mut ticks = interval(PERIOD);
    places[from].add(store).await;
    let mut left: Option<Instant> = None;
    let held = loop {
        ticks.tick().await;
        let log = || places[from].speaker.log_tail();
        assert!(begun.elapsed() < PATIENCE, "{count:?}\n{}", log());
        let has_route = count.send(sender);
        let is_late = left.is_some_and(|left| left.elapsed() > WITHDRAWN_AFTER);
        count.late += u32::from(has_route && is_late);
        count.receive(places);
        match left {
            None if count.arrived[from] >= PACKETS => {
                left = Some(Instant::now());
                if moves {
                    places[1 - from].add(store).await;
                }
                places[from].remove(store).await;
            }
            Some(left) if moves && count.arrived[1 - from] > 0 => break left.elapsed(),
            Some(left) if !moves && !has_route => break left.elapsed(),
            _ => {}
        }
    };
    if moves {
        for _ in 0..PACKETS {
            ticks.tick().await;
            count.send(sender);
        }
    }
    let last = Instant::now();
    while !count.is_complete() && last.elapsed() < ARRIVED_AFTER {
        ticks.tick().await;
        count.receive(places);
    }
    places[from].has_marked(begun).await;
    (count, held)
}

// Promise: as felix deleted_endpoint_is_reachable_until_it_is_withdrawn
#[test]
fn packets_to_an_evicted_or_moved_workload_arrive() {
    let name = "packets_to_an_evicted_or_moved_workload_arrive";
    in_ground(&[], name, async |ground| {
        let store = ground.store().await.expect("a store");
        store.node(3, "").await;
        let places = [
            Place::start(&ground, &store, 1).await,
            Place::start(&ground, &store, 2).await,
        ];
        let three = ground.stored(Kind::Client, 3).await;
        three.is_up().await;
        let sender = socket(&three.site.host, Ipv4Addr::UNSPECIFIED, 0);
        let (mut sent, mut slow, mut from) = (0, 0, 0);
        for round in 0..ROUNDS {
            let moves = round % 2 == 0;
            let (count, held) = play((&store, &sender, round), &places, (from, moves)).await;
            assert!(
                count.lost() <= count.late,
                "moves: {moves}, after {held:?}: {count:?}"
            );
            sent += count.sent;
            slow += u32::from(held > WITHDRAWN_AFTER);
            if moves {
                from = 1 - from;
            }
        }
        println!("{sent} packets, {slow} slow rounds of {ROUNDS}");
        assert!(
            ROUNDS - slow >= FAST_MIN,
            "{slow} slow rounds prove nothing"
        );
    });
}
