//! The control ports by the datastore and by the files of the daemons.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::Value;

/// The port of BGP.
pub(super) const BGP: u16 = 179;

/// The control ports, and the exceptions. Some are in the files of the daemons only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// TCP ports that are closed like the port of BGP.
    pub ports: Vec<u16>,
    /// Single TCP services of this host's files, such as the datastore's. The port of one on a host of the
    /// fabric is closed on all hosts.
    pub services: Vec<SocketAddr>,
    /// BGP peers and route reflectors of the datastore: only their own addresses are closed.
    pub peers: Vec<SocketAddr>,
    /// Sources that may reach all of these: first and last address.
    pub exceptions: Vec<(IpAddr, IpAddr)>,
    /// Why some ports are not known, such as an unreadable file. Then the result is never equal.
    pub unread: Vec<String>,
}

impl Control {
    /// Reads the resources of BGP: the ports of the nodes, the neighbors, and the route reflectors.
    pub(in crate::evaluator) fn read<'s>(
        configurations: impl Iterator<Item = &'s Value>,
        peers: impl Iterator<Item = &'s Value>,
        reflectors: impl Iterator<Item = &'s Value>,
    ) -> Self {
        let port = |value: &Value| u16::try_from(value["spec"]["listenPort"].as_u64()?).ok();
        let peers = peers.filter_map(service);
        Self {
            ports: configurations.filter_map(port).collect(),
            peers: peers.chain(reflectors.flat_map(of_reflector)).collect(),
            ..Self::default()
        }
    }

    /// Closes the port of a socket on all hosts, unless it has a loopback address.
    pub(in crate::evaluator) fn close(&mut self, socket: SocketAddr) {
        if !socket.ip().is_loopback() {
            let each = Ipv4Addr::UNSPECIFIED.into();
            self.services.push(SocketAddr::new(each, socket.port()));
        }
    }

    /// Adds those of another one.
    pub fn extend(&mut self, other: &Self) {
        self.ports.extend(&other.ports);
        self.services.extend(&other.services);
        self.peers.extend(&other.peers);
        self.unread.extend(other.unread.iter().cloned());
        self.exceptions.extend(&other.exceptions);
    }
}

/// Returns address and port of a BGPPeer: `10.0.0.9`, `10.0.0.9:1179` or `[fd00::9]:1179`.
fn service(peer: &Value) -> Option<SocketAddr> {
    let text = peer["spec"]["peerIP"].as_str()?;
    let alone = text.parse().map(|address: IpAddr| (address, BGP).into());
    alone.or_else(|_| text.parse()).ok()
}

/// Returns the addresses and the port of a running route reflector.
fn of_reflector(registration: &Value) -> Vec<SocketAddr> {
    let port = registration["port"].as_u64();
    let port = port.and_then(|port| u16::try_from(port).ok());
    let addresses = [&registration["ipv4Address"], &registration["ipv6Address"]];
    let addresses = addresses.into_iter().filter_map(Value::as_str);
    let addresses = addresses.filter_map(|text| text.parse().ok());
    addresses
        .map(|address| SocketAddr::new(address, port.unwrap_or(BGP)))
        .collect()
}
