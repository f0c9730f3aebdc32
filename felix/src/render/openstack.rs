//! Services for OpenStack's workloads from their host, independent of policies: addresses (DHCP,
//! RFC 2131, RFC 8415), names (DNS), and the metadata service. Only for interfaces of endpoints
//! with the orchestrator `openstack`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::assembly::Part;
use super::build::{counted, rule};
use super::ruleset::{Action, End, Family, Is, Key, Match, Rule, Set, SetKind, Side, Verdict};

/// The address and port of the metadata service for workloads.
const METADATA: (Ipv4Addr, u16) = (Ipv4Addr::new(169, 254, 169, 254), 80);
/// The set of the interfaces.
pub(super) const INTERFACES: &str = "openstack";
const TCP: u8 = 6;
const UDP: u8 = 17;
const DNS: u16 = 53;
/// Ports of client and server.
const DHCP: (u16, u16) = (68, 67);
const DHCPV6: (u16, u16) = (546, 547);
/// Router advertisement (RFC 4861 §4.2).
const ROUTER_ADVERTISEMENT: u8 = 134;

/// OpenStack's part of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenStack {
    /// Whether there is an OpenStack endpoint.
    pub(super) used: bool,
    /// Address and port of the metadata service, if there is one.
    pub(super) metadata: Option<(Ipv4Addr, u16)>,
}

impl OpenStack {
    fn rules(self, make: impl FnOnce() -> Vec<Rule>) -> Vec<Rule> {
        match self.used {
            true => make(),
            false => Vec::new(),
        }
    }
}

fn on(side: Side, matches: impl IntoIterator<Item = Match>) -> Vec<Match> {
    let mut all = vec![Match::InterfaceIn(side, INTERFACES.into())];
    all.extend(matches);
    all
}

/// Returns matches for datagrams of one family from a port to a port.
fn datagrams(family: Family, from: u16, to: u16) -> [Match; 3] {
    [
        Match::Family(family),
        Match::Port(End::Source, UDP, from, Is::Yes),
        Match::Port(End::Destination, UDP, to, Is::Yes),
    ]
}

/// Returns the rules that permit DHCP requests from the unspecified address.
pub(super) fn sources(openstack: OpenStack) -> Vec<Rule> {
    openstack.rules(|| {
        let none = IpAddr::V4(Ipv4Addr::UNSPECIFIED).into();
        let [_, from, to] = datagrams(Family::V4, DHCP.0, DHCP.1);
        let unspecified = Match::InNet(End::Source, none, Is::Yes);
        let [_, from_v6, to_v6] = datagrams(Family::V6, DHCPV6.0, DHCPV6.1);
        vec![
            rule(on(Side::Input, [unspecified, from, to]), Verdict::Accept),
            rule(
                on(Side::Input, [Match::SourceLinkLocal, from_v6, to_v6]),
                Verdict::Accept,
            ),
        ]
    })
}

/// Returns the rules for requests of workloads to their host.
pub(super) fn to_host(openstack: OpenStack) -> Vec<Rule> {
    let dns = |protocol| vec![Match::Port(End::Destination, protocol, DNS, Is::Yes)];
    let accept = |matches, words| counted(on(Side::Input, matches), Verdict::Accept, words);
    openstack.rules(|| {
        let mut rules = vec![
            accept(datagrams(Family::V4, DHCP.0, DHCP.1).into(), "DHCP"),
            accept(datagrams(Family::V6, DHCPV6.0, DHCPV6.1).into(), "DHCPv6"),
            accept(dns(UDP), "DNS"),
            accept(dns(TCP), "DNS"),
        ];
        if let Some((address, port)) = openstack.metadata {
            let service = vec![
                Match::InNet(End::Destination, IpAddr::V4(address).into(), Is::Yes),
                Match::Port(End::Destination, TCP, port, Is::Yes),
            ];
            rules.push(accept(service, "metadata"));
        }
        rules
    })
}

/// Returns the rules for packets of a host to its workloads.
pub(super) fn from_host(openstack: OpenStack) -> Vec<Rule> {
    let accept = |matches, words| counted(on(Side::Output, matches), Verdict::Accept, words);
    openstack.rules(|| {
        let advertisement = Match::IcmpType(Family::V6, ROUTER_ADVERTISEMENT, Is::Yes);
        vec![
            accept(datagrams(Family::V4, DHCP.1, DHCP.0).to_vec(), "DHCP"),
            accept(datagrams(Family::V6, DHCPV6.1, DHCPV6.0).to_vec(), "DHCPv6"),
            accept(vec![advertisement], "router advertisement"),
        ]
    })
}

/// Returns the rules that redirect metadata requests to the service.
pub(super) fn translations(openstack: OpenStack) -> Vec<Rule> {
    let Some((address, port)) = openstack.metadata else {
        return Vec::new();
    };
    openstack.rules(|| {
        let asked = [
            Match::InNet(End::Destination, IpAddr::V4(METADATA.0).into(), Is::Yes),
            Match::Port(End::Destination, TCP, METADATA.1, Is::Yes),
        ];
        vec![Rule {
            action: Action::DestinationTo(address, port),
            ..counted(on(Side::Input, asked), Verdict::Accept, "metadata")
        }]
    })
}

/// Returns the rules for a metadata service on a loopback address of the host.
pub(super) fn loopback_service(openstack: OpenStack) -> Vec<Rule> {
    let Some((address, port)) = openstack.metadata.filter(|(at, _)| at.is_loopback()) else {
        return Vec::new();
    };
    openstack.rules(|| {
        let service = [
            Match::InNet(End::Destination, IpAddr::V4(address).into(), Is::Yes),
            Match::Port(End::Destination, TCP, port, Is::Yes),
        ];
        vec![counted(
            on(Side::Input, service),
            Verdict::Accept,
            "metadata",
        )]
    })
}

/// Adds the part of an endpoint.
pub(super) fn endpoint(interface: &str, part: &mut Part) {
    let set = Arc::new(Set::of(SetKind::Interface, []));
    part.sets.insert(INTERFACES.into(), set);
    let key = Key::interface(interface);
    part.elements.push((INTERFACES, key, None));
}
