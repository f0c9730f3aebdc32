//! The control ports by the datastore and by the files of the daemons.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

/// The port of BGP.
pub(super) const BGP: u16 = 179;

/// The control ports that no resource of the datastore has, and the exceptions: both are in the files
/// of the daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// TCP ports that are closed like the port of BGP.
    pub ports: Vec<u16>,
    /// Single TCP services, such as the datastore's.
    pub services: Vec<SocketAddr>,
    /// Sources that may reach all of these.
    pub exceptions: Vec<IpAddr>,
}

impl Control {
    /// Reads the resources of BGP: the ports of the nodes, and the neighbors.
    pub(in crate::evaluator) fn read<'s>(
        configurations: impl Iterator<Item = &'s Value>,
        peers: impl Iterator<Item = &'s Value>,
    ) -> Self {
        let port = |value: &Value| u16::try_from(value["spec"]["listenPort"].as_u64()?).ok();
        Self {
            ports: configurations.filter_map(port).collect(),
            services: peers.filter_map(service).collect(),
            exceptions: Vec::new(),
        }
    }

    /// Adds those of the files.
    pub(in crate::evaluator) fn extend(&mut self, other: &Self) {
        self.ports.extend(&other.ports);
        self.services.extend(&other.services);
        self.exceptions.extend(&other.exceptions);
    }
}

/// Returns address and port of a BGPPeer: `10.0.0.9`, `10.0.0.9:1179` or `[fd00::9]:1179`.
fn service(peer: &Value) -> Option<SocketAddr> {
    let text = peer["spec"]["peerIP"].as_str()?;
    let alone = text.parse().map(|address: IpAddr| (address, BGP).into());
    alone.or_else(|_| text.parse()).ok()
}
