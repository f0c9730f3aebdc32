//! VXLAN devices, and their entries of tunnel ends; the device for IP in IP.
//!
//! A new device has no parent interface: the routing table selects the uplinks of its packets. The
//! parent of a device that Calico's Felix has made is kept. A device learns nothing from packets.

mod ipip;

use std::net::IpAddr;

use calico_model::Mac;
use daemon_common::events::{Event, Text, emit};
use ipnet::IpNet;
use netlink::{Refused, Requests};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Parseable};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::agent::{Configured, Failed, Neighbor, TunnelEntry};
use crate::calc::{Pattern, TunnelDevice};
use crate::limits::{IPV4_MTU_MIN, IPV6_MTU_MIN};

/// Netlink protocol of routes, links, addresses and neighbors.
const NETLINK_ROUTE: isize = 0;
/// `RTM_NEWLINK`.
const NEW_LINK: u16 = 16;
/// `RTM_NEWADDR`.
const NEW_ADDRESS: u16 = 20;
/// `RTM_NEWNEIGH`.
const NEW_NEIGHBOR: u16 = 28;
/// Index of `lo`, in every network namespace.
const LOOPBACK: u32 = 1;
/// Octets of the encapsulation over IPv4 and IPv6: IP, UDP, VXLAN and Ethernet headers.
const OVERHEAD: [u32; 2] = [50, 70];
/// The MTU of a path without a known uplink: that of Ethernet.
const ETHERNET_MTU: u32 = 1500;
/// The beginnings of the names of uplinks: a type of device, and how its name was formed (as in
/// Calico).
const UPLINK_TYPES: [&str; 5] = ["en", "wl", "ww", "sl", "ib"];
const UPLINK_FORMS: &str = "Pcopsvx";
const UPLINK_NAMES: [&str; 3] = ["eth", "wlan", "wwan"];

/// Writes VXLAN devices and their entries.
#[derive(Debug)]
pub(super) struct Tunnels {
    requests: Requests,
}

/// A link as the kernel has it.
#[derive(Debug, Default)]
struct Found {
    index: u32,
    name: String,
    mtu: u32,
    up: bool,
    mac: Vec<u8>,
    /// The parameters of a VXLAN device.
    vxlan: Option<Parameters>,
    /// It is a device for IP in IP over IPv4.
    is_ipip: bool,
}

/// The parameters of a VXLAN device that cannot be changed later.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parameters {
    vni: u32,
    port: u16,
    local: Option<IpAddr>,
    /// The device uses other means than its entries: it learns, has a default destination, or takes
    /// the destination from the routing table.
    is_open: bool,
}

impl Tunnels {
    /// Opens a socket in the network namespace of the calling thread.
    pub(super) fn open() -> std::io::Result<Self> {
        let requests = Requests::open(NETLINK_ROUTE)?;
        Ok(Self { requests })
    }

    /// Makes a device what it should be.
    pub(super) fn configure(&mut self, device: &TunnelDevice) -> Result<Configured, Refused> {
        let links = self.links()?;
        let addresses = self.addresses()?;
        let overhead = overhead(device.local);
        let found_mtu = || {
            let uplinks = device.uplinks.as_ref();
            mtu(&links, &addresses, Some(device.local), uplinks, overhead)
        };
        let mtu = device.mtu.unwrap_or_else(found_mtu);
        let mut found = links.into_iter().find(|link| link.name == device.name);
        let wanted = Parameters {
            vni: device.vni,
            port: device.port,
            local: Some(device.local),
            is_open: false,
        };
        if let Some(other) = found.take_if(|link| link.vxlan.as_ref() != Some(&wanted)) {
            emit(Event::InterfaceReplaced {
                interface: Text::new(device.name),
            });
            self.delete(other.index)?;
        }
        let is_new = found.is_none();
        let found = match found {
            Some(found) => found,
            None => {
                self.create(device)?;
                let links = self.links()?;
                let made = links.into_iter().find(|link| link.name == device.name);
                made.ok_or_else(|| Refused::of(libc::ENODEV))?
            }
        };
        // A device with another MTU still forwards.
        let mtu = self.adjust_mtu(&found, mtu, is_new);
        self.adjust(&found, Some(device.mac.0))?;
        let readdressed = self.address(found.index, device.address, &addresses)?;
        Ok(Configured {
            index: found.index,
            readdressed,
            mtu,
        })
    }

    /// Removes a VXLAN device with this name and identifier, if there is one.
    pub(super) fn remove(&mut self, name: &str, vni: u32) -> Result<(), Refused> {
        let links = self.links()?;
        let is_it = |link: &&Found| {
            link.name == name && link.vxlan.as_ref().is_some_and(|vxlan| vxlan.vni == vni)
        };
        match links.iter().find(is_it) {
            Some(link) => self.delete(link.index),
            None => Ok(()),
        }
    }

    /// Returns the permanent entries of a device.
    pub(super) fn list(&mut self, interface: u32) -> Result<Vec<TunnelEntry>, Refused> {
        let mut entries = Vec::new();
        for family in [AddressFamily::Unspec, AddressFamily::Bridge] {
            let mut message = NeighbourMessage::default();
            message.header.family = family;
            let rows = self
                .requests
                .dump(RouteNetlinkMessage::GetNeighbour(message))?;
            let rows = rows.iter().filter(|row| row.kind == NEW_NEIGHBOR);
            let found = rows
                .filter_map(|row| NeighbourMessage::parse(row.payload.as_slice()).ok())
                .filter(|message| message.header.ifindex == interface)
                .filter_map(|message| entry(&message));
            entries.extend(found);
        }
        Ok(entries)
    }

    /// Creates or changes an entry.
    pub(super) fn put(&mut self, entry: &TunnelEntry) -> Result<(), Refused> {
        let mut message = message(entry);
        message.header.state = NeighbourState::Permanent;
        let message = RouteNetlinkMessage::NewNeighbour(message);
        self.requests.execute(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Removes an entry; a missing entry is not an error.
    pub(super) fn delete_entry(&mut self, entry: &TunnelEntry) -> Result<(), Refused> {
        let message = RouteNetlinkMessage::DelNeighbour(message(entry));
        match self.requests.execute(message, 0) {
            Err(cause) if matches!(cause.errno, libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn links(&mut self) -> Result<Vec<Found>, Refused> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let rows = self.requests.dump(message)?;
        let rows = rows.iter().filter(|row| row.kind == NEW_LINK);
        let links = rows.filter_map(|row| LinkMessage::parse(row.payload.as_slice()).ok());
        Ok(links.map(|link| found(&link)).collect())
    }

    /// Returns all addresses, each with the index of its interface.
    fn addresses(&mut self) -> Result<Vec<(u32, IpNet)>, Refused> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let rows = self.requests.dump(message)?;
        let rows = rows.iter().filter(|row| row.kind == NEW_ADDRESS);
        let messages = rows.filter_map(|row| AddressMessage::parse(row.payload.as_slice()).ok());
        Ok(messages
            .filter_map(|message| interface_address(&message))
            .collect())
    }

    fn create(&mut self, device: &TunnelDevice) -> Result<(), Refused> {
        let local = match device.local {
            IpAddr::V4(v4) => InfoVxlan::Local(v4),
            IpAddr::V6(v6) => InfoVxlan::Local6(v6),
        };
        let data = vec![
            InfoVxlan::Id(device.vni),
            InfoVxlan::Port(device.port),
            InfoVxlan::Learning(false),
            local,
        ];
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(device.name.to_owned()),
            LinkAttribute::Address(device.mac.0.to_vec()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vxlan),
                LinkInfo::Data(InfoData::Vxlan(data)),
            ]),
        ];
        let message = RouteNetlinkMessage::NewLink(message);
        self.requests.execute(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Changes the MTU, if it differs.
    fn adjust_mtu(&mut self, found: &Found, mtu: u32, is_new: bool) -> Result<(), Failed> {
        if found.mtu == mtu {
            return Ok(());
        }
        let mut message = LinkMessage::default();
        message.header.index = found.index;
        message.attributes = vec![LinkAttribute::Mtu(mtu)];
        let message = RouteNetlinkMessage::SetLink(message);
        let outcome = self.requests.execute(message, 0);
        outcome.map_err(|error| Failed(format!("MTU {mtu}: {error}")))?;
        if !is_new {
            emit(Event::InterfaceMtuChanged {
                interface: Text::new(&found.name),
                mtu: u64::from(mtu),
            });
        }
        Ok(())
    }

    /// Changes what can be changed, if it differs. The kernel removes the entries and routes of a
    /// device of which the Ethernet address changes; they are found missing.
    fn adjust(&mut self, found: &Found, mac: Option<[u8; 6]>) -> Result<(), Refused> {
        let mut message = LinkMessage::default();
        message.header.index = found.index;
        let mac = mac.filter(|mac| found.mac != mac);
        let mac = mac.map(|mac| LinkAttribute::Address(mac.to_vec()));
        message.attributes.extend(mac);
        if !found.up {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        }
        match message.attributes.is_empty() && found.up {
            true => Ok(()),
            false => {
                let message = RouteNetlinkMessage::SetLink(message);
                self.requests.execute(message, 0)
            }
        }
    }

    /// Gives a device its address, and then removes others: with the last address, the kernel removes
    /// all routes and neighbor entries of the device. Returns whether anything was changed.
    fn address(
        &mut self,
        interface: u32,
        wanted: IpAddr,
        addresses: &[(u32, IpNet)],
    ) -> Result<bool, Refused> {
        let wanted = IpNet::from(wanted);
        let own = addresses.iter().filter(|(index, _)| *index == interface);
        let own = own.map(|(_, address)| *address);
        let is_missing = !own.clone().any(|address| address == wanted);
        if is_missing {
            let message = RouteNetlinkMessage::NewAddress(on(interface, wanted));
            self.requests
                .execute(message, NLM_F_CREATE | NLM_F_REPLACE)?;
        }
        let is_other = |address: &IpNet| *address != wanted && !is_link_local(address.addr());
        let mut is_changed = is_missing;
        for address in own.filter(is_other) {
            let message = RouteNetlinkMessage::DelAddress(on(interface, address));
            self.requests.execute(message, 0)?;
            is_changed = true;
        }
        Ok(is_changed)
    }

    fn delete(&mut self, index: u32) -> Result<(), Refused> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.requests
            .execute(RouteNetlinkMessage::DelLink(message), 0)
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Returns the message about an address of an interface.
fn on(interface: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = match address {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    };
    message.header.prefix_len = address.prefix_len();
    message.header.scope = AddressScope::Universe;
    message.header.index = interface;
    message.attributes = vec![
        AddressAttribute::Local(address.addr()),
        AddressAttribute::Address(address.addr()),
    ];
    if matches!(address, IpNet::V6(_)) {
        let flags = AddressFlags::Nodad | AddressFlags::Permanent;
        message.attributes.push(AddressAttribute::Flags(flags));
    }
    message
}

fn interface_address(message: &AddressMessage) -> Option<(u32, IpNet)> {
    let attributes = || message.attributes.iter();
    let local = attributes().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let other = attributes().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    let address = IpNet::new(local.or(other)?, message.header.prefix_len).ok()?;
    Some((message.header.index, address))
}

fn found(message: &LinkMessage) -> Found {
    let mut link = Found {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
        ..Found::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(mac) => link.mac.clone_from(mac),
            LinkAttribute::LinkInfo(infos) => {
                link.vxlan = infos.iter().find_map(parameters);
                link.is_ipip = infos.contains(&LinkInfo::Kind(InfoKind::IpIp));
            }
            _ => {}
        }
    }
    link
}

fn parameters(info: &LinkInfo) -> Option<Parameters> {
    let LinkInfo::Data(InfoData::Vxlan(data)) = info else {
        return None;
    };
    let mut found = Parameters::default();
    for one in data {
        match one {
            InfoVxlan::Id(vni) => found.vni = *vni,
            InfoVxlan::Port(port) => found.port = *port,
            InfoVxlan::Local(local) => found.local = Some((*local).into()),
            InfoVxlan::Local6(local) => found.local = Some((*local).into()),
            InfoVxlan::Learning(true)
            | InfoVxlan::CollectMetadata(true)
            | InfoVxlan::Group(_)
            | InfoVxlan::Group6(_)
            | InfoVxlan::Gbp
            | InfoVxlan::Gpe => found.is_open = true,
            _ => {}
        }
    }
    Some(found)
}

/// Returns the message about an entry.
fn message(entry: &TunnelEntry) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = entry.interface();
    let mac = match entry {
        TunnelEntry::Neighbor(neighbor) => {
            message.header.family = match neighbor.address {
                IpAddr::V4(_) => AddressFamily::Inet,
                IpAddr::V6(_) => AddressFamily::Inet6,
            };
            neighbor.mac
        }
        TunnelEntry::Forwarding { mac, .. } => {
            message.header.family = AddressFamily::Bridge;
            message.header.flags = NeighbourFlags::Own;
            *mac
        }
    };
    message.attributes = vec![
        NeighbourAttribute::Destination(entry.address().into()),
        NeighbourAttribute::LinkLayerAddress(mac.0.into()),
    ];
    message
}

/// Parses a permanent entry.
fn entry(message: &NeighbourMessage) -> Option<TunnelEntry> {
    // Other bits may be set, too: `bridge` sets `NUD_NOARP`.
    let permanent = u16::from(NeighbourState::Permanent);
    if u16::from(message.header.state) & permanent == 0 {
        return None;
    }
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(to) => address = ip(to),
            NeighbourAttribute::LinkLayerAddress(octets) => {
                mac = octets.as_slice().try_into().ok().map(Mac);
            }
            _ => {}
        }
    }
    let (interface, address, mac) = (message.header.ifindex, address?, mac?);
    Some(match message.header.family {
        AddressFamily::Bridge => TunnelEntry::Forwarding {
            interface,
            mac,
            node: address,
        },
        _ => TunnelEntry::Neighbor(Neighbor {
            interface,
            address,
            mac,
        }),
    })
}

fn ip(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(v4) => Some((*v4).into()),
        NeighbourAddress::Inet6(v6) => Some((*v6).into()),
        // Of a family that has no addresses of its own.
        NeighbourAddress::Other(octets) => {
            let v4 = <[u8; 4]>::try_from(octets.as_slice()).map(IpAddr::from);
            let v6 = || <[u8; 16]>::try_from(octets.as_slice()).map(IpAddr::from);
            v4.or_else(|_| v6()).ok()
        }
        _ => None,
    }
}

/// Octets of an encapsulation, and the lowest MTU of its device.
#[derive(Clone, Copy)]
struct Overhead {
    octets: u32,
    mtu_min: u32,
}

/// Returns those of VXLAN between addresses of this family.
const fn overhead(local: IpAddr) -> Overhead {
    let [v4, v6] = OVERHEAD;
    match local {
        IpAddr::V4(_) => Overhead {
            octets: v4,
            mtu_min: IPV4_MTU_MIN,
        },
        IpAddr::V6(_) => Overhead {
            octets: v6,
            mtu_min: IPV6_MTU_MIN,
        },
    }
}

/// Returns the MTU of a device: the lowest one of the uplinks and of the interface with the node's
/// address, without the octets of the encapsulation.
///
/// With a pattern, only the interfaces that match it count.
fn mtu(
    links: &[Found],
    addresses: &[(u32, IpNet)],
    node: Option<IpAddr>,
    uplinks: Option<&Pattern>,
    overhead: Overhead,
) -> u32 {
    let is_holder = |link: &Found| {
        let mut addresses = addresses.iter();
        addresses.any(|(index, address)| *index == link.index && Some(address.addr()) == node)
    };
    let carriers = links.iter().filter(|link| link.index != LOOPBACK);
    let carriers = carriers.filter(|link| match uplinks {
        Some(pattern) => pattern.matches(&link.name),
        None => is_uplink(&link.name) || is_holder(link),
    });
    let lowest = carriers.map(|link| link.mtu).min().unwrap_or(ETHERNET_MTU);
    lowest.saturating_sub(overhead.octets).max(overhead.mtu_min)
}

/// Returns whether an interface has a name of an uplink.
fn is_uplink(name: &str) -> bool {
    let is_formed = |kind: &str| {
        let rest = name.strip_prefix(kind);
        rest.is_some_and(|rest| rest.starts_with(|c| UPLINK_FORMS.contains(c)))
    };
    let is_named = |start: &str| name.starts_with(start);
    UPLINK_TYPES.into_iter().any(is_formed) || UPLINK_NAMES.into_iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, mtu: u32) -> Found {
        Found {
            index,
            name: name.to_owned(),
            mtu,
            ..Found::default()
        }
    }

    fn mtu(
        links: &[Found],
        addresses: &[(u32, IpNet)],
        local: IpAddr,
        uplinks: Option<&Pattern>,
    ) -> u32 {
        super::mtu(links, addresses, Some(local), uplinks, overhead(local))
    }

    #[test]
    fn mtu_is_that_of_the_smallest_uplink_less_encapsulation() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        let named = [
            link(1, "lo", 65_536),
            link(2, "eth0", 9000),
            link(3, "enp3s0", 1500),
        ];
        assert_eq!(
            (mtu(&named, &[], v4, None), mtu(&named, &[], v6, None)),
            (1450, 1430)
        );
        let other = [link(1, "lo", 65_536), link(2, "up0", 9000)];
        let addresses = [(2, net("10.0.0.1/24")), (1, net("fd00::1/128"))];
        assert_eq!(mtu(&other, &addresses, v4, None), 8950);
        assert_eq!(mtu(&other, &addresses, v6, None), 1430, "an address of lo");
        assert_eq!(mtu(&[link(2, "eth0", 100)], &[], v6, None), IPV6_MTU_MIN);
        // The interface with the node's address counts beside an uplink with a known name.
        let both = [
            link(1, "lo", 1200),
            link(2, "eth0", 9000),
            link(3, "bond0", 1500),
        ];
        let addresses = [(3, net("10.0.0.1/24")), (1, net("fd00::1/128"))];
        assert_eq!(mtu(&both, &addresses, v4, None), 1450);
        assert_eq!(mtu(&both, &addresses, v6, None), 8930, "an address of lo");
        // With a pattern, only its interfaces count.
        let pattern: Pattern = "^bond".parse().unwrap();
        assert_eq!(mtu(&both, &addresses, v6, Some(&pattern)), 1430);
        let pattern: Pattern = "^none".parse().unwrap();
        assert_eq!(mtu(&both, &addresses, v4, Some(&pattern)), 1450);
        for name in ["eth0", "ens3", "enp0s1", "wlan0", "ibp1"] {
            assert!(is_uplink(name), "{name}");
        }
        for name in ["cali1", "en", "end", "docker0", "veth0", "vxlan.calico"] {
            assert!(!is_uplink(name), "{name}");
        }
    }
}
