//! The path of a session: its interface, or its local address.

use std::io;
use std::net::{IpAddr, UdpSocket};

use bfd::limits::PORT_MULTIHOP;
use bfd::{Instant, Path};
use bfd_client::{Hops, Wanted};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{if_indextoname, if_nametoindex};
use nix::sys::socket::SockaddrStorage;

/// The path of a session, with the addresses of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The path.
    pub path: Path,
    /// The source address of sent packets.
    pub local: IpAddr,
    /// Their destination address.
    pub remote: IpAddr,
    /// The outgoing interface; 0 for the kernel's choice.
    pub interface: u32,
}

/// A source of paths.
pub trait Resolve {
    /// Returns the path of a wanted session.
    ///
    /// # Errors
    ///
    /// It has no path now. The text has the reason and the remedy.
    fn way(&self, wanted: &Wanted) -> Result<Way, String>;

    /// Returns the name of an interface, if it exists.
    fn interface(&self, number: u32) -> Option<String>;

    /// Returns whether the addresses of the host that it has are those of this time, or of a later one. If
    /// not, it decides on no new path over a single hop.
    fn answers(&self, _since: Instant) -> bool {
        true
    }
}

/// The addresses of the host's interfaces at one time.
#[derive(Clone, Debug)]
pub struct Addresses(Result<Vec<Subnet>, String>);

/// An address of an interface with the mask of its subnet.
#[derive(Clone, Debug)]
struct Subnet {
    interface: String,
    address: IpAddr,
    mask: u128,
}

/// Returns the name of an interface, if it exists.
pub(crate) fn interface_name(number: u32) -> Option<String> {
    if_indextoname(number).ok()?.into_string().ok()
}

impl Addresses {
    /// Reads them. If the kernel does not report them, no session has a path, with that reason.
    #[must_use]
    pub fn read() -> Self {
        let read = getifaddrs().map(|all| {
            let subnets = all.filter_map(|found| {
                Some(Subnet {
                    interface: found.interface_name,
                    address: ip(found.address?)?,
                    mask: bits(ip(found.netmask?)?),
                })
            });
            subnets.collect()
        });
        Self(read.map_err(|error| format!("the addresses of the host cannot be read: {error}")))
    }

    /// The addresses before the first reading.
    pub(crate) fn unread() -> Self {
        Self(Err("the addresses of the host are not read yet".to_owned()))
    }

    /// Returns the subnet with the longest prefix that has both addresses: of equal ones that of the
    /// interface with the local address, then the first one.
    fn link<'s>(subnets: &'s [Subnet], wanted: &Wanted) -> Option<&'s Subnet> {
        let is_source = |subnet: &Subnet, local: IpAddr| {
            subnet.has(local) || subnets.iter().any(|one| one.is_on(subnet, local))
        };
        let fits = |subnet: &&Subnet| {
            let local = wanted.local;
            subnet.has(wanted.remote) && local.is_none_or(|local| is_source(subnet, local))
        };
        let has_local = |subnet: &Subnet| {
            let mut all = subnets.iter();
            let local = wanted.local;
            local.is_some_and(|local| all.any(|one| one.is_on(subnet, local)))
        };
        let rank = |subnet: &&Subnet| (subnet.mask.count_ones(), has_local(subnet));
        // Of equal ones, `max_by_key` returns the last.
        let fitting = subnets.iter().rev().filter(fits);
        fitting.max_by_key(rank)
    }
}

impl Subnet {
    fn has(&self, address: IpAddr) -> bool {
        let same_version = self.address.is_ipv4() == address.is_ipv4();
        same_version && (bits(self.address) ^ bits(address)) & self.mask == 0
    }

    /// Returns whether it is this address of the same interface.
    fn is_on(&self, other: &Self, address: IpAddr) -> bool {
        self.interface == other.interface && self.address == address
    }
}

impl Resolve for Addresses {
    fn way(&self, wanted: &Wanted) -> Result<Way, String> {
        let remote = wanted.remote;
        if matches!(remote, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return Err(format!(
                "{remote} is link-local, and its link is not known: use a global address"
            ));
        }
        if wanted.hops == Hops::Multi {
            return multi(wanted);
        }
        let subnets = self.0.as_ref().map_err(Clone::clone)?;
        match (wanted.hops, Self::link(subnets, wanted)) {
            (Hops::Single | Hops::Auto, Some(subnet)) => single(wanted, subnet),
            (Hops::Single, None) => Err(format!(
                "{remote} is in no subnet of an interface with the local address: use multihop, or \
                 correct the addresses"
            )),
            (Hops::Multi | Hops::Auto, _) => multi(wanted),
        }
    }

    fn interface(&self, number: u32) -> Option<String> {
        interface_name(number)
    }
}

fn single(wanted: &Wanted, subnet: &Subnet) -> Result<Way, String> {
    let name = subnet.interface.as_str();
    let interface = if_nametoindex(name).map_err(|error| format!("interface {name}: {error}"))?;
    Ok(Way {
        path: Path::SingleHop {
            interface,
            remote: wanted.remote,
        },
        local: wanted.local.unwrap_or(subnet.address),
        remote: wanted.remote,
        interface,
    })
}

fn multi(wanted: &Wanted) -> Result<Way, String> {
    let local = match wanted.local {
        Some(local) => local,
        None => source(wanted.remote)
            .map_err(|error| format!("no route to {}: {error}", wanted.remote))?,
    };
    Ok(Way {
        path: Path::Multihop {
            table: 0,
            local,
            remote: wanted.remote,
            ttl_min: wanted.ttl_min,
        },
        local,
        remote: wanted.remote,
        interface: 0,
    })
}

/// Returns the source address that the kernel chooses. No packet is sent.
fn source(remote: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match remote {
        IpAddr::V4(_) => [0; 4].into(),
        IpAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((remote, PORT_MULTIHOP))?;
    Ok(socket.local_addr()?.ip())
}

/// Returns an address or mask as a number in which both versions have the same highest bit.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn ip(address: SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(test)]
mod tests {
    use bfd_client::limits::IDLE_MS;

    use super::*;

    fn addresses() -> Addresses {
        let subnet = |interface: &str, address: &str, length: u32| {
            let address: IpAddr = address.parse().expect("an address");
            Subnet {
                interface: interface.to_owned(),
                address,
                mask: u128::MAX << (128 - length),
            }
        };
        Addresses(Ok(vec![
            subnet("lo", "127.0.0.1", 8),
            subnet("lo", "192.0.2.1", 32),
            subnet("lo", "::1", 128),
        ]))
    }

    fn wanted(remote: &str, local: Option<&str>, hops: Hops) -> Wanted {
        let parse = |text: &str| text.parse::<IpAddr>().expect("an address");
        Wanted {
            remote: parse(remote),
            local: local.map(parse),
            hops,
            interval_ms: 300,
            receive_ms: 300,
            idle_ms: IDLE_MS,
            multiplier: 3,
            ttl_min: 254,
            auth: None,
        }
    }

    #[test]
    fn neighbor_in_a_subnet_is_one_hop_away() {
        let of = |remote, local, hops| addresses().way(&wanted(remote, local, hops));
        let way = of("127.0.0.9", None, Hops::Auto).expect("a path");
        assert!(
            matches!(way.path, Path::SingleHop { interface: 1.., .. }),
            "{way:?}"
        );
        assert_eq!(way.local, IpAddr::from([127, 0, 0, 1]));
        for local in ["127.0.0.7", "192.0.2.1"] {
            let way = of("127.0.0.9", Some(local), Hops::Single).expect("a path");
            assert_eq!(way.local.to_string(), local);
        }
        let way = of("127.0.0.9", Some("192.0.2.2"), Hops::Auto).expect("a path");
        assert!(matches!(way.path, Path::Multihop { .. }), "{way:?}");
        let way = of("127.0.0.9", None, Hops::Multi).expect("a path");
        assert!(
            matches!(way.path, Path::Multihop { ttl_min: 254, .. }),
            "{way:?}"
        );
    }

    #[test]
    fn interface_with_the_local_address_is_preferred() {
        let subnet = |interface: &str, last: u8| Subnet {
            interface: interface.to_owned(),
            address: [10, 0, 0, last].into(),
            mask: u128::MAX << 104,
        };
        let subnets = [subnet("eth0", 1), subnet("eth0", 2), subnet("eth1", 3)];
        for (local, interface, address) in [
            (None, "eth0", 1),
            (Some("10.0.0.2"), "eth0", 2),
            (Some("10.0.0.3"), "eth1", 3),
            (Some("10.0.0.9"), "eth0", 1),
        ] {
            let wanted = wanted("10.0.0.7", local, Hops::Auto);
            let found = Addresses::link(&subnets, &wanted).expect("a subnet");
            assert_eq!(found.interface, interface, "{local:?}");
            if local.is_none() {
                assert_eq!(found.address, IpAddr::from([10, 0, 0, address]));
            }
        }
    }

    #[test]
    fn path_that_is_missing_has_a_reason() {
        let of = |remote, hops| addresses().way(&wanted(remote, None, hops));
        let error = of("198.51.100.1", Hops::Single).expect_err("on no link");
        assert!(error.contains("in no subnet"), "{error}");
        let error = of("fe80::1", Hops::Auto).expect_err("link-local");
        assert!(error.contains("link-local"), "{error}");
    }

    #[test]
    fn addresses_of_the_host_are_read() {
        let way = Addresses::read().way(&wanted("127.0.0.9", None, Hops::Auto));
        assert!(matches!(way.expect("a path").path, Path::SingleHop { .. }));
    }
}
