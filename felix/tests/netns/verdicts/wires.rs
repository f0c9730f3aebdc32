//! The places that send and receive packets: four workloads, the host, all other hosts behind its uplink,
//! and a path on which a packet always arrives.
//!
//! The thread that sends is on one CPU. The kernel queues all packets that it sends, on any veth pair of any
//! namespace, in one queue of this CPU, and handles them in their order. So a packet on the path has arrived
//! only after all earlier packets have been handled completely, because each of them is in this queue at
//! most as often as the packet on the path.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use socket2::{Domain, Protocol, Socket, Type};

use super::probe::{EXPERIMENT, number};
use crate::world::host::{Host, PATIENCE, mac};
use crate::world::{Namespace, Workload, run, sysctl};

/// Number of workloads with an endpoint.
pub(super) const WORKLOADS: u8 = 4;
/// Number of all workloads. The last ones have an interface of each prefix without an endpoint.
pub(super) const ALL_WORKLOADS: u8 = 6;
/// Addresses of the host.
pub(super) const HOST: [&str; 2] = ["10.0.0.11", "fd00::11"];
/// Addresses of the host at its second link.
pub(super) const HOST_ASIDE: [&str; 2] = ["10.0.1.11", "fd01::11"];
/// Further addresses of the host at its first link.
pub(super) const HOST_OTHER: [&str; 2] = ["192.0.2.11", "2001:db8::11"];
/// The other hosts behind the second link.
pub(super) const ASIDE: [[&str; 3]; 2] = [
    ["203.0.113.7", "203.0.113.8", "203.0.113.9"],
    ["2001:db8:2::7", "2001:db8:2::8", "2001:db8:2::9"],
];

/// Other hosts behind the first link, although they are in its network.
pub(super) const BEHIND: [&str; 2] = ["10.0.0.2", "10.0.0.3"];

/// The router behind a link of the host.
struct Router {
    /// The link and its other end.
    link: [&'static str; 2],
    /// Addresses of the host.
    host: [&'static str; 2],
    /// The next hop and its link-layer address.
    next_hop: [&'static str; 2],
    mac: &'static str,
    /// The networks behind it.
    routes: [&'static str; 2],
}

const FAR: Router = Router {
    link: ["uplink", "far"],
    host: HOST,
    next_hop: ["10.0.0.1", "fd00::1"],
    mac: "02:00:00:00:01:01",
    routes: ["default", "default"],
};
const SIDE: Router = Router {
    link: ["side", "aside"],
    host: HOST_ASIDE,
    next_hop: ["10.0.1.1", "fd01::1"],
    mac: "02:00:00:00:01:02",
    routes: ["203.0.113.0/24", "2001:db8:2::/64"],
};
/// `ETH_P_ALL`, in the order of the network.
const ALL_PROTOCOLS: i32 = 0x0300;
/// `IPPROTO_RAW`: a packet contains its IP header.
const RAW: i32 = 255;
/// The protocols that the host receives.
pub(super) const RECEIVED: [u8; 9] = [1, 6, 17, 58, 132, 251, 252, EXPERIMENT, 254];

/// A place that sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    /// A workload, by number.
    Workload(u8),
    Host,
    /// All hosts behind the uplink.
    Far,
    /// The hosts behind the second link.
    Side,
}

impl Party {
    /// Returns the place with an address.
    pub(super) fn of(address: IpAddr) -> Self {
        let is_of = |list: &[&str]| list.iter().any(|own| *own == address.to_string());
        if [HOST, HOST_ASIDE, HOST_OTHER].iter().any(|own| is_of(own)) {
            return Self::Host;
        }
        if ASIDE.iter().any(|list| is_of(list)) {
            return Self::Side;
        }
        let workloads = 1..=ALL_WORKLOADS;
        let own = workloads.map(|n| (n, addresses(n)));
        let mut own = own.filter(|(_, own)| own.contains(&address.to_string()));
        own.next().map_or(Self::Far, |(n, _)| Self::Workload(n))
    }

    /// Returns the interface of the host to this place.
    pub(super) fn interface(self) -> String {
        match self {
            Self::Workload(ALL_WORKLOADS) => format!("tap{ALL_WORKLOADS}"),
            Self::Workload(n) => format!("cali{n}"),
            Self::Host => "lo".to_owned(),
            Self::Far => FAR.link[0].to_owned(),
            Self::Side => SIDE.link[0].to_owned(),
        }
    }
}

/// Returns the addresses of a workload.
pub(super) fn addresses(n: u8) -> [String; 2] {
    [format!("10.65.1.{n}"), format!("fd65::1:{n}")]
}

struct Sockets {
    /// For IPv4 and IPv6.
    senders: [Socket; 2],
    receivers: Vec<Socket>,
}

/// All places, and the path.
pub(super) struct Wires {
    sockets: BTreeMap<Party, Sockets>,
    path: Path,
    // The namespaces exist as long as these.
    _workloads: Vec<Workload>,
    _routers: [Namespace; 2],
}

impl Wires {
    /// Creates all places around a host.
    pub(super) fn new() -> Self {
        stay_on_this_cpu();
        for setting in [
            "udp_timeout",
            "icmp_timeout",
            "icmpv6_timeout",
            "sctp_timeout_closed",
            "sctp_timeout_cookie_echoed",
            "sctp_timeout_cookie_wait",
            "tcp_timeout_syn_recv",
            "generic_timeout",
            "tcp_timeout_syn_sent",
        ] {
            sysctl(&format!("netfilter/nf_conntrack_{setting}"), "3600");
        }
        // An answer of the host has the number of its request.
        sysctl("ipv4/icmp_echo_ignore_all", "1");
        sysctl("ipv6/icmp/echo_ignore_all", "1");
        // A reset of the host would end a connection of sent packets, which have more octets.
        run("nft add table inet silent");
        let hook = "{ type filter hook output priority -450 ; }";
        run(&format!("nft add chain inet silent own {hook}"));
        for length in ["ip length 40", "ip6 length 20"] {
            run(&format!(
                "nft add rule inet silent own {length} tcp flags & rst == rst drop"
            ));
        }
        let mut sockets = BTreeMap::new();
        let workloads: Vec<Workload> = (1..=ALL_WORKLOADS).map(workload).collect();
        for (n, workload) in (1..).zip(&workloads) {
            sockets.insert(Party::Workload(n), outside(&workload.namespace));
        }
        // Felix has no endpoint for the last ones.
        for n in WORKLOADS + 1..=ALL_WORKLOADS {
            let (link, mac) = (Party::Workload(n).interface(), mac(n));
            for address in addresses(n) {
                run(&format!("ip route add {address} dev {link}"));
                run(&format!(
                    "ip neighbor replace {address} lladdr {mac} dev {link} nud permanent"
                ));
            }
        }
        let [link, end] = SIDE.link;
        run(&format!("ip link add {link} type veth peer name {end}"));
        for (address, length) in SIDE.host.iter().zip([24, 64]) {
            run(&format!(
                "ip address add {address}/{length} dev {link} nodad"
            ));
        }
        run(&format!("ip link set {link} up"));
        for (address, length) in HOST_OTHER.iter().zip([32, 128]) {
            run(&format!(
                "ip address add {address}/{length} dev uplink nodad"
            ));
        }
        let routers = [router(&FAR), router(&SIDE)];
        // These addresses are in the network of the uplink.
        for address in BEHIND {
            run(&format!("ip route add {address} via {}", FAR.next_hop[0]));
        }
        sysctl("ipv4/ip_forward", "1");
        sysctl("ipv6/conf/all/forwarding", "1");
        sockets.insert(Party::Far, outside(&routers[0]));
        sockets.insert(Party::Side, outside(&routers[1]));
        let receivers = RECEIVED.iter().flat_map(|number| {
            let raw = |domain| {
                let protocol = Protocol::from(i32::from(*number));
                receiver(Socket::new(domain, Type::RAW, Some(protocol)))
            };
            [raw(Domain::IPV4), raw(Domain::IPV6)]
        });
        let host = Sockets {
            senders: senders(),
            receivers: receivers.collect(),
        };
        sockets.insert(Party::Host, host);
        Self {
            sockets,
            path: Path::new(),
            _workloads: workloads,
            _routers: routers,
        }
    }

    /// Sends a packet from a place. If rules of the host drop a packet of its own, this is an error.
    pub(super) fn send(&self, from: Party, octets: &[u8], to: IpAddr) {
        let [v4, v6] = &self.sockets[&from].senders;
        let socket = if to.is_ipv4() { v4 } else { v6 };
        let sent = socket.send_to(octets, &SocketAddr::new(to, 0).into());
        match sent {
            Err(error) if from == Party::Host && error.kind() == ErrorKind::PermissionDenied => {}
            sent => assert_eq!(sent.unwrap(), octets.len(), "to {to} from {from:?}"),
        }
    }

    /// Waits until all packets have been handled. Returns the numbers of those that arrived, by place.
    pub(super) fn arrived(&mut self) -> BTreeMap<Party, BTreeSet<u32>> {
        let all = self.arrived_packets().into_iter();
        all.map(|(party, packets)| (party, packets.into_keys().collect()))
            .collect()
    }

    /// Waits in the same way. Returns the octets of the packets, too; those of IPv6 packets to the host have
    /// no header.
    pub(super) fn arrived_packets(&mut self) -> BTreeMap<Party, BTreeMap<u32, Vec<u8>>> {
        self.path.pass();
        let all = self.sockets.iter().map(|(party, sockets)| {
            let packets = sockets.receivers.iter().flat_map(received);
            (*party, packets.collect())
        });
        all.collect()
    }
}

/// Lets this thread send from one CPU.
fn stay_on_this_cpu() {
    let mut own = CpuSet::new();
    own.set(sched_getcpu().unwrap()).unwrap();
    sched_setaffinity(Pid::from_raw(0), &own).unwrap();
}

/// Reads all packets of a socket.
fn received(mut socket: &Socket) -> Vec<(u32, Vec<u8>)> {
    let mut packets = Vec::new();
    let mut octets = [0; 2048];
    loop {
        match socket.read(&mut octets) {
            Ok(length) => {
                let own = &octets[..length];
                packets.extend(number(own).map(|number| (number, own.to_vec())));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return packets,
            Err(error) => panic!("{error}"),
        }
    }
}

fn receiver(socket: std::io::Result<Socket>) -> Socket {
    let socket = socket.unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn senders() -> [Socket; 2] {
    [Domain::IPV4, Domain::IPV6]
        .map(|domain| Socket::new(domain, Type::RAW, Some(Protocol::from(RAW))).unwrap())
}

/// Returns the sockets of a place outside the host, which answers nothing: its own rules drop all packets
/// behind the receiver.
fn outside(namespace: &Namespace) -> Sockets {
    namespace.run("nft add table inet quiet");
    let hook = "{ type filter hook prerouting priority -400 ; policy drop ; }";
    namespace.run(&format!("nft add chain inet quiet arriving {hook}"));
    namespace.within(|| Sockets {
        senders: senders(),
        receivers: vec![receiver(Socket::new(
            Domain::PACKET,
            Type::DGRAM,
            Some(Protocol::from(ALL_PROTOCOLS)),
        ))],
    })
}

/// Creates workload `n`. Its neighbor is known, so that no packet waits for an answer.
fn workload(n: u8) -> Workload {
    let [v4, v6] = addresses(n);
    let link = Party::Workload(n).interface();
    let workload = Workload::new(&link, &mac(n), Some(&v4), Some(&v6));
    let host = crate::world::frame::mac_of(&link);
    let host = host.map(|octet| format!("{octet:02x}")).join(":");
    for gateway in ["169.254.1.1", "fe80::1"] {
        workload.namespace.run(&format!(
            "ip neighbor replace {gateway} lladdr {host} dev eth0 nud permanent"
        ));
    }
    workload
}

/// Creates the place of all hosts behind a link: the router there.
fn router(own: &Router) -> Namespace {
    let router = Namespace::new();
    let [link, end] = own.link;
    router.take(end, "eth0");
    let host = crate::world::frame::mac_of(link);
    let host = host.map(|octet| format!("{octet:02x}")).join(":");
    router.run(&format!("ip link set eth0 address {}", own.mac));
    router.run("ip link set eth0 up");
    let lengths = [24, 64].into_iter().zip(own.routes);
    for ((next_hop, host_address), (length, route)) in
        own.next_hop.iter().zip(own.host).zip(lengths)
    {
        router.within(|| sysctl("ipv6/conf/all/accept_dad", "0"));
        router.run(&format!(
            "ip address add {next_hop}/{length} dev eth0 nodad"
        ));
        router.run(&format!("ip route add default via {host_address} dev eth0"));
        router.run(&format!(
            "ip neighbor replace {host_address} lladdr {host} dev eth0 nud permanent"
        ));
        run(&format!("ip route add {route} via {next_hop} dev {link}"));
        run(&format!(
            "ip neighbor replace {next_hop} lladdr {} dev {link} nud permanent",
            own.mac
        ));
    }
    router
}

/// A path through another router: a packet on it is in the queue twice, as one from one workload to
/// another.
struct Path {
    sender: UdpSocket,
    receiver: UdpSocket,
    sent: u32,
    _namespaces: [Namespace; 3],
}

impl Path {
    fn new() -> Self {
        let namespaces = [Namespace::new(), Namespace::new(), Namespace::new()];
        let [start, router, end] = &namespaces;
        let links = [
            ("path-1", start, "eth0", "eth0"),
            ("path-2", end, "eth0", "eth1"),
        ];
        for ((link, outer, own, name), net) in links.into_iter().zip(1..) {
            run(&format!(
                "ip link add {link} type veth peer name {link}-router"
            ));
            outer.take(link, own);
            router.take(&format!("{link}-router"), name);
            for (namespace, interface, host) in [(outer, own, 1), (router, name, 2)] {
                namespace.run(&format!("ip link set {interface} up"));
                namespace.run(&format!(
                    "ip address add 192.168.{net}.{host}/24 dev {interface}"
                ));
            }
            outer.run(&format!("ip route add default via 192.168.{net}.2"));
        }
        router.within(|| sysctl("ipv4/ip_forward", "1"));
        let receiver = end.within(|| UdpSocket::bind("192.168.2.1:9").unwrap());
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let sender = start.within(|| UdpSocket::bind("192.168.1.1:9").unwrap());
        sender.connect("192.168.2.1:9").unwrap();
        Self {
            sender,
            receiver,
            sent: 0,
            _namespaces: namespaces,
        }
    }

    /// Sends a packet, and waits until it has arrived.
    fn pass(&mut self) {
        self.sent += 1;
        let own = self.sent.to_be_bytes();
        self.sender.send(&own).unwrap();
        let mut octets = [0; 4];
        while octets != own {
            self.receiver.recv(&mut octets).unwrap();
        }
    }
}

/// Waits until all workloads are up.
pub(super) fn wait_up(host: &Host) {
    for n in 1..=WORKLOADS {
        host.wait_up(&format!("cali{n}"));
    }
}
