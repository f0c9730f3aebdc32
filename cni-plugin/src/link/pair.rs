//! The pair of interfaces between host and container.

use std::net::Ipv6Addr;

use calico_model::Mac;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth};

use super::{HOST_MAC, Links, Netns, Refused, answered, sysctl};
use crate::failure::{Code, Failure};

/// The IPv6 gateway of every container: the link-local address that follows from the Ethernet
/// address of the host's end.
pub(crate) const GATEWAY_V6: Ipv6Addr =
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0xecee, 0xeeff, 0xfeee, 0xeeee);

/// A pair to create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<'a> {
    /// The host's end.
    pub(crate) interface: &'a str,
    /// Its alias.
    pub(crate) alias: &'a str,
    /// The container's end.
    pub(crate) ifname: &'a str,
    /// Its Ethernet address; `None`: the kernel chooses one.
    pub(crate) mac: Option<Mac>,
    pub(crate) mtu: Option<u32>,
    pub(crate) queues: Option<u32>,
    pub(crate) ipv6: bool,
}

/// Creates a pair, and brings the host's end up.
pub(crate) async fn make(host: &Links, netns: &Netns, pair: &Pair<'_>) -> Result<(), Failure> {
    let mut inside = LinkMessageBuilder::<LinkUnspec>::new()
        .name(pair.ifname)
        .setns_by_fd(netns.descriptor());
    let mut outside = LinkMessageBuilder::<LinkVeth>::new(pair.interface, pair.ifname)
        .address(HOST_MAC.0.to_vec());
    if let Some(mac) = pair.mac {
        inside = inside.address(mac.0.to_vec());
    }
    if let Some(mtu) = pair.mtu {
        inside = inside.mtu(mtu);
        outside = outside.mtu(mtu);
    }
    if let Some(queues) = pair.queues {
        let both = [
            LinkAttribute::NumTxQueues(queues),
            LinkAttribute::NumRxQueues(queues),
        ];
        for attribute in both {
            inside = inside.append_extra_attribute(attribute.clone());
            outside = outside.append_extra_attribute(attribute);
        }
    }
    let outside = outside.set_info_data(InfoData::Veth(InfoVeth::Peer(inside.build())));
    let doing = || format!("making interfaces {} and {}", pair.interface, pair.ifname);
    let made = answered(&doing, host.handle.link().add(outside.build()).execute()).await;
    match made {
        Ok(()) => {}
        Err(Refused::Kernel(libc::EEXIST, _)) => {
            let message = format!("{}: one of them exists already", doing());
            return Err(Failure::new(Code::Kernel, message));
        }
        Err(refused) => return Err(refused.failure(&doing())),
    }
    if pair.ipv6 {
        // The gateway address, which is configured in containers, is usable at once.
        sysctl::set(&format!("ipv6/conf/{}/accept_dad", pair.interface), "0")?;
    }
    let up = LinkUnspec::new_with_name(pair.interface)
        .alias(pair.alias)
        .up();
    host.change(
        &|| format!("bringing up interface {}", pair.interface),
        up.build(),
    )
    .await?;
    if pair.ipv6 {
        gateway(host, pair.interface).await?;
    }
    Ok(())
}

/// Adds the gateway address to the host's end, unless the kernel has added it.
async fn gateway(host: &Links, interface: &str) -> Result<(), Failure> {
    let Some(link) = host.find(interface).await? else {
        let message = format!("interface {interface} was deleted");
        return Err(Failure::new(Code::Kernel, message));
    };
    let mut request = host
        .handle
        .address()
        .add(link.index, GATEWAY_V6.into(), 64)
        .replace();
    request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
    let doing = || format!("adding {GATEWAY_V6} to {interface}");
    match answered(&doing, request.execute()).await {
        Ok(()) | Err(Refused::Kernel(libc::EEXIST, _)) => Ok(()),
        Err(refused) => Err(refused.failure(&doing())),
    }
}
