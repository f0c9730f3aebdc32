//! Workloads: containers, each with its own host that a CNI plugin connects to a node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ipnet::IpNet;

use super::plan::Place;
use crate::{Error, Host, Pinger};

/// One workload of a fabric.
#[derive(Debug)]
pub struct Workload {
    /// Its name, which is also its container's id.
    pub name: String,
    /// Its node.
    pub place: Place,
    /// Its namespaces.
    pub host: Host,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    pinger: Pinger,
}

impl Workload {
    pub(super) const fn new(host: Host, name: String, place: Place) -> Self {
        Self {
            name,
            place,
            host,
            connection: None,
        }
    }

    /// Returns the path of its network namespace for other processes.
    pub fn netns(&self) -> PathBuf {
        let descriptor = self.host.namespace_files().network;
        PathBuf::from(format!("/proc/{}/fd/{descriptor}", std::process::id()))
    }

    /// Records a connection to a node, with these addresses.
    ///
    /// # Errors
    ///
    /// If it cannot open sockets for pings.
    pub fn connected(&mut self, place: Place, v4: Ipv4Addr, v6: Ipv6Addr) -> Result<(), Error> {
        let pinger = Pinger::open(&self.host, v4, v6)?;
        self.place = place;
        self.connection = Some(Connection { v4, v6, pinger });
        Ok(())
    }

    /// Records that it has no connection any more.
    pub fn disconnected(&mut self) {
        self.connection = None;
    }

    /// Returns its addresses, IPv4 first; none while it is not connected.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let connection = self.connection.as_ref().into_iter();
        connection.flat_map(|it| [IpAddr::V4(it.v4), IpAddr::V6(it.v6)])
    }

    /// Returns its addresses as host prefixes.
    pub fn nets(&self) -> impl Iterator<Item = IpNet> {
        self.addresses().map(IpNet::from)
    }

    /// Returns its pinger, while it is connected.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] while it is not.
    pub fn pinger(&self) -> Result<&Pinger, Error> {
        let connection = self.connection.as_ref().ok_or_else(|| Error::Unknown {
            kind: "connection of",
            name: self.name.clone(),
        })?;
        Ok(&connection.pinger)
    }
}
