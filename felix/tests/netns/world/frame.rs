//! Ethernet frames as octets, which no socket of an IP protocol would send.
#![allow(unsafe_code)] // An option of packet sockets without a safe wrapper.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, SockaddrStorage, sendto,
    socket,
};

use super::{Workload, packet, run};

pub(crate) type Mac = [u8; 6];

pub(crate) const BROADCAST: Mac = [0xff; 6];
/// Types of frames: IPv4, ARP, IPv6.
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
/// Operations of ARP (RFC 826).
pub(crate) const REQUEST: u16 = 1;
pub(crate) const REPLY: u16 = 2;
const ICMPV6: u8 = 58;
/// Types of neighbor discovery (RFC 4861 §4).
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// The flags of an advertisement: solicited or not, override.
const OVERRIDE: u8 = 0x20;

/// `PACKET_VNET_HDR`; `VIRTIO_NET_HDR_GSO_TCPV4`, `VIRTIO_NET_HDR_GSO_TCPV6`.
const PACKET_VNET_HDR: libc::c_int = 15;
const SEGMENTS_IPV4: u8 = 1;
const SEGMENTS_IPV6: u8 = 4;
/// Octets of the header of Ethernet, and of that of [`packet::syn`].
const ETHERNET_OCTETS: u16 = 14;
const TCP_OCTETS: u16 = 24;

/// The interface `eth0` of a workload.
pub(crate) struct Wire {
    socket: OwnedFd,
    interface: SockaddrStorage,
}

impl Wire {
    pub(crate) fn of(workload: &Workload) -> Self {
        workload.namespace.within(|| {
            let is_own = |name: &str, family| name == "eth0" && family == AddressFamily::Packet;
            let mut all = getifaddrs().unwrap();
            let interface = all.find_map(|one| {
                let address = one.address?;
                is_own(&one.interface_name, address.family()?).then_some(address)
            });
            let flags = SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None);
            Self {
                socket: socket.unwrap(),
                interface: interface.expect("eth0"),
            }
        })
    }

    /// Returns one of which the frames begin with the offsets of a virtual network card.
    pub(crate) fn offloading(workload: &Workload) -> Self {
        let wire = Self::of(workload);
        let on: libc::c_int = 1;
        let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap();
        // SAFETY: the kernel reads `size` octets of `on`, which lives until the call returns.
        let set = unsafe {
            libc::setsockopt(
                wire.socket.as_raw_fd(),
                libc::SOL_PACKET,
                PACKET_VNET_HDR,
                (&raw const on).cast(),
                size,
            )
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        wire
    }

    /// Sends a frame with a TCP segment that the card divides into segments of this size. `header`:
    /// octets of the IP header.
    pub(crate) fn send_segments(&self, frame: &[u8], header: u16, size: u16) {
        const NEEDS_CHECKSUM: u8 = 1;
        let kind = if header == 20 {
            SEGMENTS_IPV4
        } else {
            SEGMENTS_IPV6
        };
        let transport = ETHERNET_OCTETS + header;
        let mut made = vec![NEEDS_CHECKSUM, kind];
        // Octets of all headers, of a segment, the begin of the checksum, and its place after that.
        for number in [transport + TCP_OCTETS, size, transport, 16] {
            made.extend(number.to_ne_bytes());
        }
        made.extend(frame);
        self.send(&made);
    }

    /// Sends a frame, unless the interface is down or was removed.
    pub(crate) fn send_if_up(&self, frame: &[u8]) {
        let interface: &LinkAddr = self.interface.as_link_addr().unwrap();
        let socket = self.socket.as_raw_fd();
        let _ = sendto(socket, frame, interface, MsgFlags::empty());
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        let interface: &LinkAddr = self.interface.as_link_addr().unwrap();
        let sent = sendto(self.socket.as_raw_fd(), frame, interface, MsgFlags::empty());
        assert_eq!(sent, Ok(frame.len()));
    }
}

/// Returns the link-layer address of an interface of the thread's namespace.
pub(crate) fn mac_of(interface: &str) -> Mac {
    let shown = run(&format!("ip -o link show {interface}"));
    let mut words = shown.split_whitespace();
    words.find(|word| *word == "link/ether");
    parsed(words.next().unwrap())
}

/// Returns a link-layer address of its text.
pub(crate) fn parsed(text: &str) -> Mac {
    let octets = text.split(':').map(|octet| u8::from_str_radix(octet, 16));
    let octets: Vec<u8> = octets.collect::<Result<_, _>>().unwrap();
    octets.try_into().unwrap()
}

/// Returns a frame.
pub(crate) fn ethernet(to: Mac, from: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), payload].concat()
}

/// Returns ARP in a frame: the link-layer addresses are those of the frame.
pub(crate) fn arp(
    operation: u16,
    (from, sender): (Mac, Ipv4Addr),
    (to, target): (Mac, Ipv4Addr),
) -> Vec<u8> {
    // Ethernet, IPv4, and the lengths of their addresses.
    let mut payload = vec![0, 1, 8, 0, 6, 4];
    payload.extend(operation.to_be_bytes());
    payload.extend(from);
    payload.extend(sender.octets());
    payload.extend(to);
    payload.extend(target.octets());
    ethernet(to, from, ARP, &payload)
}

/// Returns an ICMPv6 message of neighbor discovery, with the hop limit that it must have.
pub(crate) fn discovery(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let ends = (IpAddr::from(from), IpAddr::from(to));
    let sum = packet::transport_checksum(ends.0, ends.1, ICMPV6, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut made = packet::ipv6(from, to, ICMPV6, &message);
    made[7] = 255;
    made
}

/// Returns a message about a target, with the option of a link-layer address.
fn about(kind: u8, flags: u8, target: Ipv6Addr, option: u8, mac: Mac) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message.extend([option, 1]);
    message.extend(mac);
    message
}

/// Returns the solicitation for the link-layer address of a target.
pub(crate) fn solicitation(from: Ipv6Addr, target: Ipv6Addr, mac: Mac) -> Vec<u8> {
    let mut group: Ipv6Addr = "ff02::1:ff00:0".parse().unwrap();
    let mut octets = group.octets();
    octets[13..].copy_from_slice(&target.octets()[13..]);
    group = octets.into();
    let to = [0x33, 0x33, octets[12], octets[13], octets[14], octets[15]];
    let message = about(SOLICITATION, 0, target, 1, mac);
    ethernet(to, mac, IPV6, &discovery(from, group, &message))
}

/// Returns the unsolicited advertisement of a link-layer address for a target.
pub(crate) fn advertisement(
    from: Ipv6Addr,
    (to, destination): (Mac, Ipv6Addr),
    target: Ipv6Addr,
    mac: Mac,
) -> Vec<u8> {
    let message = about(ADVERTISEMENT, OVERRIDE, target, 2, mac);
    ethernet(to, mac, IPV6, &discovery(from, destination, &message))
}
