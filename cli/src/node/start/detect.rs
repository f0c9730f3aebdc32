//! Finds the addresses of this host, with the methods of calico-node.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};

use anyhow::{Context, Result, bail};
use calico_model::Network;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use regex::Regex;

use super::limits::{INTERFACES_MAX, METHOD_TERMS_MAX};

/// Names of interfaces that are never searched, unless a method names them: those of container runtimes and
/// of overlays. A name that ends with `*` stands for all with this beginning.
const EXCLUDED: [&str; 19] = [
    "docker*",
    "cbr*",
    "dummy*",
    "podman*",
    "virbr*",
    "lxcbr*",
    "veth*",
    "lo",
    "br-*",
    "cali*",
    "tunl*",
    "flannel*",
    "kube-ipvs*",
    "cni*",
    "vxlan.calico",
    "vxlan-v6.calico",
    "wireguard.cali",
    "wg-v6.cali",
    "nodelocaldns*",
];

/// An interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) addresses: Vec<Network>,
}

/// A method of autodetection.
#[derive(Debug, Clone)]
pub(super) enum Method {
    FirstFound,
    CanReach(String),
    Interface(Vec<Regex>),
    SkipInterface(Vec<Regex>),
    Cidr(Vec<Network>),
    KubernetesInternalIp,
}

impl Method {
    /// Reads the value of `IP_AUTODETECTION_METHOD`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let patterns = |list: &str| -> Result<Vec<Regex>> {
            let patterns = terms(list)?.into_iter();
            let patterns = patterns.map(|pattern| {
                Regex::new(pattern).with_context(|| format!("\"{pattern}\" is not a pattern"))
            });
            patterns.collect()
        };
        Ok(match text.split_once('=').unwrap_or((text, "")) {
            ("" | "first-found", "") => Self::FirstFound,
            ("kubernetes-internal-ip", "") => Self::KubernetesInternalIp,
            ("can-reach", destination) if !destination.is_empty() => {
                Self::CanReach(destination.to_owned())
            }
            ("interface", list) => Self::Interface(patterns(list)?),
            ("skip-interface", list) => Self::SkipInterface(patterns(list)?),
            ("cidr", list) => {
                let networks = terms(list)?.into_iter();
                let networks = networks.map(|text| {
                    let parsed = text.parse::<Network>();
                    parsed.with_context(|| format!("\"{text}\" is not a network"))
                });
                Self::Cidr(networks.collect::<Result<_>>()?)
            }
            _ => bail!(
                "\"{text}\" is not a method: first-found, can-reach=ADDRESS, interface=PATTERN, \
                 skip-interface=PATTERN, cidr=NETWORK or kubernetes-internal-ip"
            ),
        })
    }

    /// Returns the address of a family with the mask of its interface. `own` are the addresses that the
    /// API server, or the route to the destination, names.
    pub(super) fn choose(&self, all: &[Interface], ipv6: bool, own: &[IpAddr]) -> Option<Network> {
        let is_any = |list: &[Regex], name: &str| list.iter().any(|pattern| pattern.is_match(name));
        let searched = |interface: &&Interface| match self {
            Self::Interface(list) => is_any(list, &interface.name),
            Self::SkipInterface(list) => {
                !is_excluded(&interface.name) && !is_any(list, &interface.name)
            }
            Self::FirstFound | Self::Cidr(_) => !is_excluded(&interface.name),
            Self::CanReach(_) | Self::KubernetesInternalIp => true,
        };
        let fits = |address: &&Network| match self {
            Self::Cidr(networks) => networks
                .iter()
                .any(|network| network.0.contains(&address.address())),
            Self::CanReach(_) | Self::KubernetesInternalIp => own.contains(&address.address()),
            Self::FirstFound | Self::Interface(_) | Self::SkipInterface(_) => true,
        };
        let interfaces = all.iter().filter(searched);
        let mut addresses = interfaces
            .flat_map(|interface| &interface.addresses)
            .filter(|address| address.address().is_ipv6() == ipv6 && is_usable(address.address()))
            .filter(fits);
        addresses.next().copied()
    }
}

fn terms(list: &str) -> Result<Vec<&str>> {
    let terms: Vec<&str> = list.split(',').map(str::trim).collect();
    if terms.iter().any(|term| term.is_empty()) {
        bail!("an element of the list is empty");
    }
    if terms.len() > METHOD_TERMS_MAX {
        bail!("the list has more than {METHOD_TERMS_MAX} elements");
    }
    Ok(terms)
}

fn is_excluded(name: &str) -> bool {
    EXCLUDED
        .iter()
        .any(|excluded| match excluded.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == *excluded,
        })
}

/// Returns whether other hosts can use an address.
fn is_usable(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !is_link_local && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

/// Returns the interfaces of this host that are up, in the order of the kernel.
pub(super) fn interfaces() -> Result<Vec<Interface>> {
    let mut all: Vec<Interface> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for entry in getifaddrs().context("the interfaces of this host")? {
        if !entry.flags.contains(InterfaceFlags::IFF_UP) {
            continue;
        }
        let place = match places.get(&entry.interface_name) {
            Some(place) => *place,
            None if all.len() >= INTERFACES_MAX => continue,
            None => {
                all.push(Interface {
                    name: entry.interface_name.clone(),
                    addresses: Vec::new(),
                });
                places.insert(entry.interface_name, all.len() - 1);
                all.len() - 1
            }
        };
        let address = entry.address.and_then(|address| address_of(&address));
        let mask = entry.netmask.and_then(|mask| address_of(&mask));
        let network = address.zip(mask).and_then(|(address, mask)| {
            let network = ipnet::IpNet::with_netmask(address, mask);
            network.ok().map(Network)
        });
        if let (Some(network), Some(interface)) = (network, all.get_mut(place)) {
            interface.addresses.push(network);
        }
    }
    Ok(all)
}

fn address_of(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

/// Returns the addresses from which packets to a destination are sent. No packet is sent.
pub(super) async fn toward(destination: &str, ipv6: bool) -> Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((destination, 80))
        .await
        .with_context(|| format!("can-reach={destination}"))?;
    let any = if ipv6 { "[::]:0" } else { "0.0.0.0:0" };
    let mut own = Vec::new();
    for to in found.filter(|to| to.is_ipv6() == ipv6) {
        let socket = UdpSocket::bind(any)?;
        // Without a route the next address is tried.
        if socket.connect(to).is_ok() {
            own.push(socket.local_addr()?.ip());
        }
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<Interface> {
        [
            ("lo", &["127.0.0.1/8", "10.9.9.9/32", "::1/128"][..]),
            ("docker0", &["172.17.0.1/16"]),
            (
                "eth0",
                &["169.254.1.1/16", "10.0.0.1/24", "fe80::1/64", "fd00::1/64"],
            ),
            ("br-0123", &["172.18.0.1/16"]),
            ("eth1", &["192.0.2.7/28", "fd01::7/64"]),
            ("cali0123", &["10.65.0.1/32"]),
        ]
        .iter()
        .map(|(name, addresses)| Interface {
            name: (*name).to_owned(),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        })
        .collect()
    }

    fn chosen(method: &str, ipv6: bool, own: &[&str]) -> Option<String> {
        let own: Vec<IpAddr> = own.iter().map(|text| text.parse().unwrap()).collect();
        let method = Method::parse(method).expect(method);
        let chosen = method.choose(&host(), ipv6, &own);
        chosen.map(|network| network.to_string())
    }

    #[test]
    fn methods_are_those_of_calico() {
        for (method, ipv6, own, wanted) in [
            ("first-found", false, &[][..], Some("10.0.0.1/24")),
            ("", true, &[], Some("fd00::1/64")),
            ("interface=eth1", false, &[], Some("192.0.2.7/28")),
            ("interface=none,^eth1$", true, &[], Some("fd01::7/64")),
            ("interface=docker.*", false, &[], Some("172.17.0.1/16")),
            ("skip-interface=eth0", false, &[], Some("192.0.2.7/28")),
            ("skip-interface=eth.*", false, &[], None),
            (
                "cidr=198.51.100.0/24,192.0.2.0/24",
                false,
                &[],
                Some("192.0.2.7/28"),
            ),
            ("cidr=10.9.9.0/24", false, &[], None),
            (
                "can-reach=192.0.2.1",
                false,
                &["192.0.2.7"],
                Some("192.0.2.7/28"),
            ),
            ("can-reach=192.0.2.1", false, &[], None),
            (
                "kubernetes-internal-ip",
                true,
                &["10.0.0.1", "fd01::7"],
                Some("fd01::7/64"),
            ),
            ("kubernetes-internal-ip", false, &["10.0.0.9"], None),
        ] {
            assert_eq!(
                chosen(method, ipv6, own).as_deref(),
                wanted,
                "{method} {ipv6}"
            );
        }
    }

    #[test]
    fn invalid_methods_are_refused() {
        let many = vec!["a"; METHOD_TERMS_MAX + 1].join(",");
        for method in [
            "first",
            "can-reach",
            "can-reach=",
            "interface",
            "interface=",
            "interface=(",
            "interface=a,,b",
            "cidr=10.0.0",
            "first-found=x",
            &format!("interface={many}"),
        ] {
            assert!(Method::parse(method).is_err(), "{method}");
        }
    }

    #[test]
    fn interfaces_of_this_host_are_read() {
        let all = interfaces().expect("interfaces");
        let mut names = all.iter().map(|interface| &interface.name);
        assert!(names.any(|name| name == "lo") || all.is_empty(), "{all:?}");
    }

    #[tokio::test]
    async fn own_address_toward_a_destination_is_found() {
        let own = toward("127.0.0.1", false).await.expect("an address");
        assert_eq!(own, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        let other = toward("127.0.0.1", true).await.expect("none");
        assert!(other.is_empty(), "{other:?}");
    }
}
