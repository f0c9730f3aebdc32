//! The container's end of the pair: addresses and routes.

use std::net::IpAddr;

use calico_model::Mac;
use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags};
use rtnetlink::packet_route::route::{RouteMessage, RouteScope};

use super::pair::GATEWAY_V6;
use super::{GATEWAY, Link, Links, Netns, Refused, answered, sysctl};
use crate::failure::{Code, Failure};

/// The wanted configuration of the container's end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) ifname: &'a str,
    pub(crate) addresses: &'a [IpAddr],
    /// Destinations, all routed through the host.
    pub(crate) routes: &'a [IpNet],
    /// Whether the container forwards packets.
    pub(crate) forwards: bool,
}

/// The result of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inside {
    pub(crate) mac: Option<Mac>,
    /// Index of its other end, on the host.
    pub(crate) peer: Option<u32>,
}

impl Wanted<'_> {
    fn has(&self, ipv6: bool) -> bool {
        self.addresses
            .iter()
            .any(|address| address.is_ipv6() == ipv6)
    }
}

/// Configures the container's end.
pub(crate) async fn configure(netns: &Netns, wanted: &Wanted<'_>) -> Result<Inside, Failure> {
    let (ipv4, ipv6) = (wanted.has(false), wanted.has(true));
    netns.run(|| settings(wanted, ipv4, ipv6))??;
    let links = Links::of(netns)?;
    let link = must_find(&links, wanted.ifname).await?;
    links.up(link.index, wanted.ifname).await?;
    for address in wanted.addresses {
        add_address(&links, &link, *address).await?;
    }
    if ipv4 {
        let to = IpNet::from(IpAddr::from(GATEWAY));
        add_route(&links, to, on_link(to, link.index)?).await?;
    }
    for to in wanted.routes {
        if wanted.has(to.addr().is_ipv6()) {
            add_route(&links, *to, through_host(*to, link.index)?).await?;
        }
    }
    Ok(Inside {
        mac: link.mac,
        peer: link.peer,
    })
}

/// Sets the kernel settings that must precede bringing the interface up.
fn settings(wanted: &Wanted<'_>, ipv4: bool, ipv6: bool) -> Result<(), Failure> {
    let forwards = if wanted.forwards { "1" } else { "0" };
    if ipv4 {
        sysctl::set("ipv4/ip_forward", forwards)?;
    }
    if ipv6 {
        for scope in ["all", "default", "lo"] {
            sysctl::set(&format!("ipv6/conf/{scope}/disable_ipv6"), "0")?;
        }
        sysctl::set("ipv6/conf/all/forwarding", forwards)?;
        let own = |name: &str| format!("ipv6/conf/{}/{name}", wanted.ifname);
        sysctl::set(&own("disable_ipv6"), "0")?;
        // No other host has its addresses, and the host is its only router.
        sysctl::set(&own("accept_dad"), "0")?;
        sysctl::set(&own("accept_ra"), "0")?;
    }
    Ok(())
}

async fn must_find(links: &Links, ifname: &str) -> Result<Link, Failure> {
    let found = links.find(ifname).await?;
    found.ok_or_else(|| {
        Failure::new(
            Code::Kernel,
            format!("interface {ifname} is not in the container"),
        )
    })
}

async fn add_address(links: &Links, link: &Link, address: IpAddr) -> Result<(), Failure> {
    let length = if address.is_ipv4() { 32 } else { 128 };
    let mut request = links
        .handle
        .address()
        .add(link.index, address, length)
        .replace();
    if address.is_ipv6() {
        request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
    }
    let doing = || format!("adding {address} to {}", link.name);
    let added = answered(&doing, request.execute()).await;
    added.map_err(|refused| refused.failure(&doing()))
}

fn on_link(to: IpNet, index: u32) -> Result<RouteMessage, Failure> {
    let route = RouteMessageBuilder::<IpAddr>::new().output_interface(index);
    let route = route
        .destination_prefix(to.addr(), to.prefix_len())
        .map_err(|error| no_route(to, &error))?;
    Ok(route.scope(RouteScope::Link).build())
}

fn through_host(to: IpNet, index: u32) -> Result<RouteMessage, Failure> {
    let host: IpAddr = match to {
        IpNet::V4(_) => GATEWAY.into(),
        IpNet::V6(_) => GATEWAY_V6.into(),
    };
    let route = RouteMessageBuilder::<IpAddr>::new().output_interface(index);
    let route = route
        .destination_prefix(to.addr(), to.prefix_len())
        .map_err(|error| no_route(to, &error))?;
    Ok(route
        .gateway(host)
        .map_err(|error| no_route(to, &error))?
        .build())
}

fn no_route(to: IpNet, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Config, format!("a route to {to}: {error}"))
}

async fn add_route(links: &Links, to: IpNet, route: RouteMessage) -> Result<(), Failure> {
    let doing = || format!("adding the route to {to}");
    let added = answered(&doing, links.handle.route().add(route).execute()).await;
    match added {
        Ok(()) | Err(Refused::Kernel(libc::EEXIST, _)) => Ok(()),
        Err(refused) => Err(refused.failure(&doing())),
    }
}

/// Returns the addresses of an interface, without link-local ones.
async fn addresses(links: &Links, index: u32) -> Result<Vec<IpAddr>, Failure> {
    let doing = || "listing addresses".to_owned();
    let listed = links
        .handle
        .address()
        .get()
        .set_link_index_filter(index)
        .execute();
    let listed = answered(&doing, listed.try_collect::<Vec<_>>()).await;
    let listed = listed.map_err(|refused| refused.failure(&doing()))?;
    let found = listed.into_iter().flat_map(|message| {
        message
            .attributes
            .into_iter()
            .find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(address),
                _ => None,
            })
    });
    let link_local =
        |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    Ok(found.filter(|address| !link_local(address)).collect())
}

/// Returns the differences between the wanted and the present configuration (CHECK).
pub(crate) async fn faults(netns: &Netns, wanted: &Wanted<'_>) -> Result<Vec<String>, Failure> {
    let links = Links::of(netns)?;
    let Some(link) = links.find(wanted.ifname).await? else {
        return Ok(vec![format!(
            "interface {} is not in the container",
            wanted.ifname
        )]);
    };
    let mut faults = Vec::new();
    if !link.up {
        faults.push(format!("interface {} is down", wanted.ifname));
    }
    let has = addresses(&links, link.index).await?;
    for address in wanted.addresses {
        if !has.contains(address) {
            faults.push(format!("interface {} has not {address}", wanted.ifname));
        }
    }
    let routes = destinations(&links, link.index).await?;
    let gateway = wanted
        .has(false)
        .then(|| IpNet::from(IpAddr::from(GATEWAY)));
    let wanted_routes = wanted
        .routes
        .iter()
        .copied()
        .filter(|to| wanted.has(to.addr().is_ipv6()));
    for to in gateway.into_iter().chain(wanted_routes) {
        if !routes.contains(&to.trunc()) {
            faults.push(format!("there is no route to {to} on {}", wanted.ifname));
        }
    }
    Ok(faults)
}

/// Returns the destinations of the main table's routes over an interface.
async fn destinations(links: &Links, index: u32) -> Result<Vec<IpNet>, Failure> {
    use rtnetlink::packet_route::AddressFamily;
    use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};

    let mut all = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut asked = RouteMessage::default();
        asked.header.address_family = family;
        let doing = || "listing routes".to_owned();
        let listed = links
            .handle
            .route()
            .get(asked)
            .execute()
            .try_collect::<Vec<_>>();
        let listed = answered(&doing, listed)
            .await
            .map_err(|refused| refused.failure(&doing()))?;
        for route in listed {
            let on_it = route
                .attributes
                .iter()
                .any(|a| matches!(a, RouteAttribute::Oif(oif) if *oif == index));
            let to = route
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    RouteAttribute::Destination(RouteAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
                    RouteAttribute::Destination(RouteAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
                    _ => None,
                });
            let unspecified: IpAddr = match family {
                AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
                _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
            };
            if on_it
                && let Ok(to) = IpNet::new(
                    to.unwrap_or(unspecified),
                    route.header.destination_prefix_length,
                )
            {
                all.push(to);
            }
        }
    }
    Ok(all)
}
