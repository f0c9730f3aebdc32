//! Interfaces: the pair between host and container, and the configuration of the container's end.
//!
//! One request creates the pair with both ends in their namespaces and with the name and alias of
//! the host's end, so that an interrupted call never leaves an interface under another name. Felix
//! sets the routes on the host and the settings by which the host answers for its workloads.

mod container;
mod netns;
mod pair;
mod sysctl;

use std::net::Ipv4Addr;

use calico_model::Mac;
use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::{Handle, LinkUnspec};
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) use container::{Inside, Wanted, configure, faults};
pub(crate) use netns::Netns;
pub(crate) use pair::{Pair, make};

use crate::failure::{Code, Failure};
use crate::limits::KERNEL_TIMEOUT;

/// The Ethernet address of the host's end of every pair.
pub(crate) const HOST_MAC: Mac = Mac([0xee; 6]);

/// The gateway of every container: an address for which the host answers on every workload
/// interface.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// A connection to the link and address tables of a network namespace.
#[derive(Debug)]
pub(crate) struct Links {
    handle: Handle,
    task: JoinHandle<()>,
}

/// An existing interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: Option<Mac>,
    pub(crate) alias: String,
    pub(crate) up: bool,
    pub(crate) is_veth: bool,
    /// Index of the other end.
    pub(crate) peer: Option<u32>,
}

impl Drop for Links {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Links {
    /// Connects to the namespace of the calling thread.
    pub(crate) fn here() -> Result<Self, Failure> {
        let (connection, handle, _) = rtnetlink::new_connection()
            .map_err(|error| Failure::new(Code::Kernel, format!("opening rtnetlink: {error}")))?;
        let task = tokio::spawn(connection);
        Ok(Self { handle, task })
    }

    /// Connects to the namespace of a container.
    pub(crate) fn of(netns: &Netns) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Handle::current();
        netns.run(|| {
            let _within = runtime.enter();
            Self::here()
        })?
    }

    /// Returns the interface of this name.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Link>, Failure> {
        let mut found = Box::pin(self.handle.link().get().match_name(name).execute());
        let doing = || format!("looking for interface {name}");
        match answered(&doing, found.try_next()).await {
            Ok(link) => Ok(link.map(Link::of)),
            Err(Refused::Kernel(libc::ENODEV, _)) => Ok(None),
            Err(refused) => Err(refused.failure(&doing())),
        }
    }

    /// Returns all interfaces with this name prefix.
    pub(crate) async fn beginning(&self, prefix: &str) -> Result<Vec<Link>, Failure> {
        let listed = self.handle.link().get().execute().try_collect::<Vec<_>>();
        let doing = || "listing interfaces".to_owned();
        let listed = answered(&doing, listed)
            .await
            .map_err(|refused| refused.failure(&doing()))?;
        let links = listed.into_iter().map(Link::of);
        Ok(links.filter(|link| link.name.starts_with(prefix)).collect())
    }

    /// Deletes an interface, and with it the other end of a pair. A missing interface is not an
    /// error.
    pub(crate) async fn delete(&self, link: &Link) -> Result<(), Failure> {
        let doing = || format!("deleting interface {}", link.name);
        match answered(&doing, self.handle.link().del(link.index).execute()).await {
            Ok(()) | Err(Refused::Kernel(libc::ENODEV, _)) => Ok(()),
            Err(refused) => Err(refused.failure(&doing())),
        }
    }

    async fn change(&self, doing: &dyn Fn() -> String, link: LinkMessage) -> Result<(), Failure> {
        let changed = answered(doing, self.handle.link().change(link).execute()).await;
        changed.map_err(|refused| refused.failure(&doing()))
    }

    /// Brings an interface up.
    pub(crate) async fn up(&self, index: u32, name: &str) -> Result<(), Failure> {
        let link = LinkUnspec::new_with_index(index).up().build();
        self.change(&|| format!("bringing up interface {name}"), link)
            .await
    }
}

impl Link {
    fn of(message: LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            mac: None,
            alias: String::new(),
            up: message.header.flags.contains(LinkFlags::Up),
            is_veth: false,
            peer: None,
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::IfAlias(alias) => link.alias = alias,
                LinkAttribute::Address(octets) => link.mac = octets.try_into().ok().map(Mac),
                LinkAttribute::Link(index) => link.peer = Some(index),
                LinkAttribute::LinkInfo(infos) => {
                    link.is_veth = infos.contains(&LinkInfo::Kind(InfoKind::Veth));
                }
                _ => {}
            }
        }
        link
    }
}

/// A request that failed.
#[derive(Debug)]
enum Refused {
    /// The kernel's error number and its text.
    Kernel(i32, String),
    /// There was no answer.
    Other(String),
}

impl Refused {
    fn failure(self, doing: &str) -> Failure {
        let (Self::Kernel(_, why) | Self::Other(why)) = self;
        Failure::new(Code::Kernel, format!("{doing}: {why}"))
    }
}

/// Waits for the kernel's answer, which arrives at once or not at all.
async fn answered<T>(
    doing: &dyn Fn() -> String,
    request: impl Future<Output = Result<T, rtnetlink::Error>>,
) -> Result<T, Refused> {
    match timeout(KERNEL_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(rtnetlink::Error::NetlinkError(message))) => {
            let number = -message.raw_code();
            Err(Refused::Kernel(number, message.to_io().to_string()))
        }
        Ok(Err(error)) => Err(Refused::Other(error.to_string())),
        Err(_) => Err(Refused::Other(format!(
            "{}: no answer within {KERNEL_TIMEOUT:?}",
            doing()
        ))),
    }
}
