//! The device for IP in IP, `tunl0`: the module of the kernel makes it in each network namespace, down and
//! without an address. A request for a device of this kind loads the module.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink::Refused;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};

use super::{Found, Overhead, Tunnels, is_link_local, mtu, on};
use crate::agent::Configured;
use crate::calc::IpipDevice;
use crate::limits::IPV4_MTU_MIN;
use crate::render::IPIP_DEVICE;

/// The outer header, without options (RFC 2003).
const OVERHEAD: Overhead = Overhead {
    octets: 20,
    mtu_min: IPV4_MTU_MIN,
};

impl Tunnels {
    /// Makes the device what it should be.
    ///
    /// # Errors
    ///
    /// The kernel has no such devices, or another device has the name.
    pub(in crate::apply) fn configure_ipip(
        &mut self,
        device: &IpipDevice,
    ) -> Result<Configured, Refused> {
        let mut links = self.links()?;
        let is_new = !links.iter().any(|link| link.name == IPIP_DEVICE);
        if is_new {
            self.create_ipip()?;
            links = self.links()?;
        }
        let addresses = self.addresses()?;
        let uplinks = device.uplinks.as_ref();
        let found_mtu = || mtu(&links, &addresses, device.node, uplinks, OVERHEAD);
        let mtu = device.mtu.unwrap_or_else(found_mtu);
        let found = present(&links)?;
        let mtu = self.adjust_mtu(found, mtu, is_new);
        self.adjust(found, None)?;
        let address = IpAddr::from(device.address);
        let readdressed = self.address(found.index, address, &addresses)?;
        Ok(Configured {
            index: found.index,
            readdressed,
            mtu,
        })
    }

    /// Removes addresses of the device, if it exists, and sets it down if no other program uses it.
    pub(in crate::apply) fn release_ipip(&mut self, own: &BTreeSet<IpAddr>) -> Result<(), Refused> {
        let links = self.links()?;
        let Ok(found) = present(&links) else {
            return Ok(());
        };
        let index = found.index;
        let (own, is_shared) = released(index, own, &self.addresses()?);
        // First: an address that is left shows the next run that the device is Felix's.
        if found.up && !is_shared {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.header.change_mask = LinkFlags::Up;
            let message = RouteNetlinkMessage::SetLink(message);
            self.requests.execute(message, 0)?;
        }
        for address in own {
            let message = RouteNetlinkMessage::DelAddress(on(index, address));
            self.requests.execute(message, 0)?;
        }
        Ok(())
    }

    /// Requests the device. The module may have made it before the kernel handles the request itself.
    fn create_ipip(&mut self) -> Result<(), Refused> {
        let message = RouteNetlinkMessage::NewLink(creation());
        match self.requests.execute(message, NLM_F_CREATE | NLM_F_EXCL) {
            Err(cause) if cause.errno == libc::EEXIST => Ok(()),
            Err(mut cause) if cause.errno == libc::EOPNOTSUPP => {
                let given = cause.text.take();
                let given = given.map_or_else(String::new, |text| format!("{text}; "));
                let needs = "the kernel needs CONFIG_NET_IPIP (module ipip)";
                cause.text = Some(format!("{given}{needs}"));
                Err(cause)
            }
            outcome => outcome,
        }
    }
}

/// Returns which addresses of an interface are to be removed, and whether another program has one there.
fn released(
    interface: u32,
    own: &BTreeSet<IpAddr>,
    addresses: &[(u32, IpNet)],
) -> (Vec<IpNet>, bool) {
    let held = addresses.iter().filter(|(index, _)| *index == interface);
    let held = held.map(|(_, address)| *address);
    let (own, others): (Vec<IpNet>, Vec<IpNet>) = held.partition(|one| own.contains(&one.addr()));
    // The kernel makes link-local addresses itself.
    let is_shared = others.iter().any(|one| !is_link_local(one.addr()));
    (own, is_shared)
}

/// Returns the request for a device of the kind, without ends of its own.
fn creation() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(IPIP_DEVICE.to_owned()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::IpIp)]),
    ];
    message
}

/// Returns the device among all links.
fn present(links: &[Found]) -> Result<&Found, Refused> {
    let found = links.iter().find(|link| link.name == IPIP_DEVICE);
    match found {
        Some(found) if found.is_ipip => Ok(found),
        Some(_) => {
            let mut cause = Refused::of(libc::EEXIST);
            cause.text = Some("a device of another kind has the name".to_owned());
            Err(cause)
        }
        None => Err(Refused::of(libc::ENODEV)),
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{Emitable, Parseable};

    use super::super::found;
    use super::*;

    #[test]
    fn request_has_the_name_and_the_kind_and_is_recognized() {
        let message = creation();
        let mut octets = vec![0; message.buffer_len()];
        message.emit(&mut octets);
        for part in [&b"tunl0\0"[..], b"ipip"] {
            let is_part = octets.windows(part.len()).any(|window| window == part);
            assert!(is_part, "{part:?}");
        }
        let read = LinkMessage::parse(octets.as_slice()).unwrap();
        let links = [found(&read)];
        assert!(present(&links).is_ok());
    }

    #[test]
    fn device_of_another_kind_is_refused() {
        let other = Found {
            name: IPIP_DEVICE.to_owned(),
            ..Found::default()
        };
        assert_eq!(present(&[other]).unwrap_err().errno, libc::EEXIST);
        assert_eq!(present(&[]).unwrap_err().errno, libc::ENODEV);
    }

    #[test]
    fn device_with_an_address_of_another_program_is_shared() {
        let at = |interface, net: &str| (interface, net.parse::<IpNet>().unwrap());
        let own = ["10.65.1.0".parse().unwrap()].into();
        let link_local = at(7, "fe80::1/64");
        let mut held = vec![at(7, "10.65.1.0/32"), link_local, at(8, "192.0.2.7/32")];
        let removed = vec![held[0].1];
        assert_eq!(released(7, &own, &held), (removed.clone(), false));
        held.push(at(7, "192.0.2.8/32"));
        assert_eq!(released(7, &own, &held), (removed, true));
        assert_eq!(released(7, &own, &[]), (Vec::new(), false));
    }

    #[test]
    fn mtu_is_20_octets_below_the_uplink() {
        let uplink = |name: &str, mtu: u32| Found {
            index: 2,
            name: name.to_owned(),
            mtu,
            ..Found::default()
        };
        let of = |links: &[Found]| mtu(links, &[], None, None, OVERHEAD);
        assert_eq!(of(&[uplink("eth0", 9000)]), 8980);
        assert_eq!(of(&[uplink("other", 9000)]), 1480);
        assert_eq!(of(&[uplink("eth0", 580)]), IPV4_MTU_MIN);
    }
}
