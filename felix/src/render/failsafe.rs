//! The failsafe ports of a host: no policy of a host endpoint closes them, so that a mistake in one does
//! not lock out the operator, or cut off the host from the datastore and from BGP.

use ipnet::IpNet;

use super::build::{NEIGHBORS, counted};
use super::ruleset::{End, Family, Is, Match, Rule, Verdict};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Router advertisement (RFC 4861 §4.2).
const ROUTER_ADVERTISEMENT: u8 = 134;

/// A failsafe port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FailsafePort {
    /// TCP, UDP or SCTP.
    pub protocol: u8,
    /// The port at the server.
    pub port: u16,
    /// The addresses of the other end; `None`: all.
    pub net: Option<IpNet>,
}

impl FailsafePort {
    const fn of(protocol: u8, port: u16) -> Self {
        Self {
            protocol,
            port,
            net: None,
        }
    }
}

/// The failsafe ports of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failsafe {
    /// Ports of this host.
    pub inbound: Vec<FailsafePort>,
    /// Ports of others.
    pub outbound: Vec<FailsafePort>,
}

/// The ports of both directions, as in Calico: BGP, the datastore and its members, Typha, the API of
/// Kubernetes, and an etcd that Kubernetes runs itself.
const COMMON: [u16; 7] = [179, 2379, 2380, 5473, 6443, 6666, 6667];
/// SSH, and replies of a DHCP server.
const INBOUND: [FailsafePort; 2] = [FailsafePort::of(TCP, 22), FailsafePort::of(UDP, 68)];
/// DNS, and requests to a DHCP server.
const OUTBOUND: [FailsafePort; 2] = [FailsafePort::of(UDP, 53), FailsafePort::of(UDP, 67)];

impl Default for Failsafe {
    fn default() -> Self {
        let with = |own: [FailsafePort; 2]| {
            let common = COMMON.map(|port| FailsafePort::of(TCP, port));
            own.into_iter().chain(common).collect()
        };
        Self {
            inbound: with(INBOUND),
            outbound: with(OUTBOUND),
        }
    }
}

/// Returns the rules of a direction. `server` is the end of a packet with the port, `peer` the end of the
/// addresses of others.
pub(super) fn rules(ports: &[FailsafePort], server: End, peer: End) -> Vec<Rule> {
    let rules = ports.iter().map(|one| {
        let mut matches = Vec::new();
        matches.extend(one.net.map(|net| match net.prefix_len() {
            0 => Match::Family(Family::of(net.addr())),
            _ => Match::InNet(peer, net, Is::Yes),
        }));
        matches.push(Match::Port(server, one.protocol, one.port, Is::Yes));
        counted(matches, Verdict::Accept, "failsafe port")
    });
    rules.collect()
}

/// Returns the rules for neighbor discovery and multicast listeners: without them, no port is reachable
/// by IPv6.
pub(super) fn discovery() -> [Rule; 2] {
    let words = "neighbor discovery";
    let known = vec![Match::Icmpv6TypeIn(NEIGHBORS.into())];
    let advertisement = Match::IcmpType(Family::V6, ROUTER_ADVERTISEMENT, Is::Yes);
    [
        counted(known, Verdict::Accept, words),
        counted(vec![advertisement], Verdict::Accept, words),
    ]
}
