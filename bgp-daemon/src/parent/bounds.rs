//! The parent's own reading of the configuration, with which it compares the commands of a parser.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use host_guard::{Cover, Holder};
use nix::unistd::geteuid;

use crate::{Config, Settings};

/// The bounds of a parser's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Ports that it may bind: those of the file, and that of BGP.
    ports: BTreeSet<u16>,
    /// The first port that needs no privilege.
    unprivileged_ports: u16,
    /// Whether the file enables the host guard.
    is_guarded: bool,
    /// The daemon of the host guard.
    holder: Holder,
    /// Users that the host guard allows.
    users: BTreeSet<u32>,
    /// Peers of the host guard; `None` if the datastore has the peers.
    peers: Option<BTreeSet<SocketAddr>>,
}

impl Bounds {
    /// Returns the bounds by a configuration file.
    pub fn new<S: Settings>(config: &Config<S>) -> Self {
        let section = &config.file.guard;
        let users = section.users.iter();
        let users = users.filter_map(|user| host_guard::user_id(&user.get_ref().0).ok());
        let intent = config.intent();
        let mut ports = config.file.ports();
        ports.extend(intent.iter().flat_map(|intent| intent.ports()));
        Self {
            unprivileged_ports: unprivileged_ports(),
            is_guarded: section.enabled,
            holder: holder::<S>(),
            users: users.chain([0, geteuid().as_raw()]).collect(),
            peers: intent.map(|intent| {
                let mut cover = Cover {
                    ports: ports.clone(),
                    ..Cover::default()
                };
                cover.dial(intent.dialed());
                cover.peers
            }),
            ports,
        }
    }

    /// Returns the daemon of the host guard.
    pub(super) const fn holder(&self) -> Holder {
        self.holder
    }

    /// Returns whether a parser may bind an address.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn check_port(&self, port: u16) -> Result<(), String> {
        if port != 0 && self.ports.contains(&port) {
            return Ok(());
        }
        Err(format!(
            "the configuration file does not name port {port}: a port below {} that comes from the \
             datastore must be one of guard.ports",
            self.unprivileged_ports
        ))
    }

    /// Returns the entries of the host guard for ports and peers of a parser, with the users of the
    /// file.
    ///
    /// # Errors
    ///
    /// A port or a peer is not of the file, or the file disables the guard.
    pub fn cover(
        &self,
        ports: BTreeSet<u16>,
        peers: BTreeSet<SocketAddr>,
    ) -> Result<Cover, String> {
        if !self.is_guarded {
            return Err("the configuration file disables the host guard".to_owned());
        }
        let is_privileged = |port: &&u16| **port < self.unprivileged_ports;
        ports
            .iter()
            .filter(is_privileged)
            .try_for_each(|port| self.check_port(*port))?;
        if let Some(own) = &self.peers
            && let Some(other) = peers.difference(own).next()
        {
            return Err(format!("the configuration file does not name peer {other}"));
        }
        let mut cover = Cover {
            ports,
            users: self.users.clone(),
            ..Cover::default()
        };
        cover.dial(peers);
        Ok(cover)
    }

    /// Returns whether a parser may remove its entries of the host guard.
    ///
    /// # Errors
    ///
    /// The file enables the guard.
    pub fn check_withdrawal(&self) -> Result<(), String> {
        match self.is_guarded {
            true => Err("the configuration file enables the host guard".to_owned()),
            false => Ok(()),
        }
    }
}

/// Returns the daemon of the host guard.
pub(crate) const fn holder<S: Settings>() -> Holder {
    if S::REFLECTS {
        Holder::RouteReflector
    } else {
        Holder::BgpClient
    }
}

/// Returns the first port that a process without CAP_NET_BIND_SERVICE can listen on.
fn unprivileged_ports() -> u16 {
    const DEFAULT: u16 = 1024;
    let start = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let start = start.ok().and_then(|start| start.trim().parse().ok());
    start.unwrap_or(DEFAULT)
}
