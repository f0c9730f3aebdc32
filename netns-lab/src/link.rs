//! Links, addresses and routes of a host, over rtnetlink.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_core::DefaultNla;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::{
    BridgePortState, InfoData, InfoVeth, LinkAttribute, LinkMessage, LinkProtoInfoBridge,
};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteScope};
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
};
use tokio::task::JoinHandle;

use crate::{Error, Host};

/// The state of a bridge port (linux/if_link.h).
const IFLA_BRPORT_STATE: u16 = 1;

/// A connection to one host's rtnetlink.
#[derive(Debug)]
pub struct Links {
    handle: Handle,
    connection: JoinHandle<()>,
}

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Its host.
    pub host: &'a Host,
    /// Its name in the host.
    pub name: &'a str,
    /// Its MAC address; `None`: the kernel chooses one.
    pub mac: Option<[u8; 6]>,
}

impl Host {
    /// Returns a connection to this host's rtnetlink. Needs a running tokio runtime.
    ///
    /// # Errors
    ///
    /// If the socket cannot be opened.
    pub fn links(&self) -> Result<Links, Error> {
        Links::open(self)
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Links {
    pub(crate) fn open(host: &Host) -> Result<Self, Error> {
        let runtime = tokio::runtime::Handle::current();
        let (connection, handle, _) = host
            .run(|| {
                let _within = runtime.enter();
                rtnetlink::new_connection()
            })?
            .map_err(|e| Error::io("opening rtnetlink of", host.name(), e))?;
        Ok(Self {
            handle,
            connection: tokio::spawn(connection),
        })
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the index of a link, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the request.
    pub async fn index(&self, name: &str) -> Result<Option<u32>, Error> {
        Ok(self.find(name).await?.map(|link| link.header.index))
    }

    /// Returns the names of all links, with their indices.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the request.
    pub async fn names(&self) -> Result<Vec<(u32, String)>, Error> {
        let links: Vec<LinkMessage> = self
            .handle
            .link()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(|e| Error::link("listing", "links", e))?;
        let named = links.into_iter().filter_map(|link| {
            let index = link.header.index;
            link.attributes
                .into_iter()
                .find_map(|attribute| match attribute {
                    LinkAttribute::IfName(name) => Some((index, name)),
                    _ => None,
                })
        });
        Ok(named.collect())
    }

    async fn find(&self, name: &str) -> Result<Option<LinkMessage>, Error> {
        let mut found = Box::pin(self.handle.link().get().match_name(name).execute());
        match found.try_next().await {
            Ok(link) => Ok(link),
            Err(rtnetlink::Error::NetlinkError(e)) if -e.raw_code() == nix::libc::ENODEV => {
                Ok(None)
            }
            Err(e) => Err(Error::link("looking up", name, e)),
        }
    }

    async fn must_find(&self, name: &str) -> Result<u32, Error> {
        self.index(name)
            .await?
            .ok_or_else(|| Error::NoLink(name.to_owned()))
    }

    /// Creates a bridge, and brings it up.
    ///
    /// # Errors
    ///
    /// If the kernel rejects it.
    pub async fn add_bridge(&self, name: &str) -> Result<(), Error> {
        let bridge = LinkBridge::new(name).build();
        self.handle
            .link()
            .add(bridge)
            .execute()
            .await
            .map_err(|e| Error::link("adding", name, e))
    }

    /// Creates a veth pair, each end in its host (not necessarily this one), both down.
    ///
    /// # Errors
    ///
    /// If the kernel rejects it, for example because a name is taken.
    pub async fn add_veth(&self, a: VethEnd<'_>, b: VethEnd<'_>) -> Result<(), Error> {
        let mut peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(b.name)
            .setns_by_fd(b.host.network());
        if let Some(mac) = b.mac {
            peer = peer.address(mac.to_vec());
        }
        let mut pair = LinkMessageBuilder::<LinkVeth>::new(a.name, b.name)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer.build())))
            .setns_by_fd(a.host.network());
        if let Some(mac) = a.mac {
            pair = pair.address(mac.to_vec());
        }
        let request = self.handle.link().add(pair.build());
        request
            .execute()
            .await
            .map_err(|e| Error::link("adding", a.name, e))
    }

    /// Makes a link a port of a bridge.
    ///
    /// # Errors
    ///
    /// If either is missing or the kernel refuses.
    pub async fn attach(&self, name: &str, bridge: &str) -> Result<(), Error> {
        let controller = self.must_find(bridge).await?;
        let link = LinkUnspec::new_with_name(name)
            .controller(controller)
            .up()
            .build();
        self.change("attaching", name, link).await
    }

    /// Brings a link up.
    ///
    /// # Errors
    ///
    /// If it is missing or the kernel refuses.
    pub async fn up(&self, name: &str) -> Result<(), Error> {
        self.change(
            "bringing up",
            name,
            LinkUnspec::new_with_name(name).up().build(),
        )
        .await
    }

    /// Brings a link down.
    ///
    /// # Errors
    ///
    /// If it is missing or the kernel refuses.
    pub async fn down(&self, name: &str) -> Result<(), Error> {
        self.change(
            "bringing down",
            name,
            LinkUnspec::new_with_name(name).down().build(),
        )
        .await
    }

    /// Lets a bridge discard all packets from and to a port, or forward them again. The port stays up.
    ///
    /// # Errors
    ///
    /// If the port is missing or the kernel refuses.
    pub async fn discard(&self, name: &str, discards: bool) -> Result<(), Error> {
        let state = match discards {
            true => BridgePortState::Disabled,
            false => BridgePortState::Forwarding,
        };
        // The kernel ignores the state in RTM_NEWLINK, and in a message of another family.
        let mut message = LinkMessage::default();
        message.header.interface_family = AddressFamily::Bridge;
        message.header.index = self.must_find(name).await?;
        let state = DefaultNla::new(IFLA_BRPORT_STATE, vec![state.into()]);
        let port = LinkAttribute::ProtoInfoBridge(vec![LinkProtoInfoBridge::Other(state)]);
        message.attributes.push(port);
        let request = self.handle.link().set(message);
        request
            .execute()
            .await
            .map_err(|e| Error::link("setting the port state of", name, e))
    }

    async fn change(
        &self,
        doing: &'static str,
        name: &str,
        link: LinkMessage,
    ) -> Result<(), Error> {
        let request = self.handle.link().change(link);
        request
            .execute()
            .await
            .map_err(|e| Error::link(doing, name, e))
    }

    /// Deletes a link (of a veth pair, both ends).
    ///
    /// # Errors
    ///
    /// If it is missing or the kernel refuses.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        let index = self.must_find(name).await?;
        let request = self.handle.link().del(index);
        request
            .execute()
            .await
            .map_err(|e| Error::link("deleting", name, e))
    }

    /// Adds an address with its prefix length; it can be used at once.
    ///
    /// # Errors
    ///
    /// If the link is missing or the kernel refuses.
    pub async fn add_address(&self, name: &str, address: IpNet) -> Result<(), Error> {
        let index = self.must_find(name).await?;
        let (ip, length) = (address.addr(), address.prefix_len());
        let mut request = self.handle.address().add(index, ip, length);
        if ip.is_ipv6() {
            // Even with duplicate address detection off, an address is tentative until a kernel
            // worker has run; with this flag it never is.
            request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        request
            .execute()
            .await
            .map_err(|e| Error::link("adding address", address.to_string(), e))
    }

    /// Adds a route over a link, through `gateway` if there is one. A gateway without a route to it
    /// is treated as on the link.
    ///
    /// # Errors
    ///
    /// If the link is missing or the kernel refuses.
    pub async fn add_route(
        &self,
        net: IpNet,
        gateway: Option<IpAddr>,
        name: &str,
    ) -> Result<(), Error> {
        let route = self.route_to(net, gateway, name).await?;
        let request = self.handle.route().add(route);
        request
            .execute()
            .await
            .map_err(|e| Error::link("adding route", net.to_string(), e))
    }

    /// Adds a route over a link with this metric, in addition to existing ones.
    ///
    /// # Errors
    ///
    /// If the link is missing or the kernel refuses.
    pub async fn add_route_of(&self, net: IpNet, name: &str, metric: u32) -> Result<(), Error> {
        let mut route = self.route_to(net, None, name).await?;
        route.attributes.push(RouteAttribute::Priority(metric));
        let request = self.handle.route().add(route);
        request
            .execute()
            .await
            .map_err(|e| Error::link("adding route", net.to_string(), e))
    }

    /// Deletes a route over a link with this metric.
    ///
    /// # Errors
    ///
    /// If the link or the route is missing or the kernel refuses.
    pub async fn delete_route_of(&self, net: IpNet, name: &str, metric: u32) -> Result<(), Error> {
        let mut route = self.route_to(net, None, name).await?;
        route.attributes.push(RouteAttribute::Priority(metric));
        let request = self.handle.route().del(route);
        request
            .execute()
            .await
            .map_err(|e| Error::link("deleting route", net.to_string(), e))
    }

    /// Deletes a route over a link, whatever its metric.
    ///
    /// # Errors
    ///
    /// If the link or the route is missing or the kernel refuses.
    pub async fn delete_route(
        &self,
        net: IpNet,
        gateway: Option<IpAddr>,
        name: &str,
    ) -> Result<(), Error> {
        let route = self.route_to(net, gateway, name).await?;
        let request = self.handle.route().del(route);
        request
            .execute()
            .await
            .map_err(|e| Error::link("deleting route", net.to_string(), e))
    }

    /// Adds a permanent neighbor entry: the address is not resolved any more.
    ///
    /// # Errors
    ///
    /// If the link is missing or the kernel refuses.
    pub async fn add_neighbor(
        &self,
        name: &str,
        address: IpAddr,
        mac: [u8; 6],
    ) -> Result<(), Error> {
        let index = self.must_find(name).await?;
        let request = self.handle.neighbours().add(index, address);
        request
            .link_layer_address(&mac)
            .execute()
            .await
            .map_err(|e| Error::link("adding neighbor", address.to_string(), e))
    }

    async fn route_to(
        &self,
        net: IpNet,
        gateway: Option<IpAddr>,
        name: &str,
    ) -> Result<RouteMessage, Error> {
        let index = self.must_find(name).await?;
        let mixed = |_| Error::Unknown {
            kind: "gateway of the family of",
            name: net.to_string(),
        };
        let route = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(net.addr(), net.prefix_len())
            .map_err(mixed)?
            .output_interface(index);
        let route = match gateway {
            Some(gateway) => route.gateway(gateway).map_err(mixed)?.onlink(),
            None => route.scope(RouteScope::Link),
        };
        Ok(route.build())
    }
}
