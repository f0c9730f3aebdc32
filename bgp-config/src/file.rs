//! The keys of the files, in their written form.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;

use daemon_common::config::{Problem, Problems};
use daemon_common::daemon::LogFormat;
use daemon_common::health::HealthSection;
use daemon_common::metrics::MetricsSection;
use rib::OriginMode;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use toml::Spanned;

use crate::limits::BGP_PORT;
use crate::section::Section;
use crate::value::{AsNumber, MemoryMax, UserKey};

/// A BGP daemon's file. `K` is its `[kernel]` section, or [`NoKernel`]; `D` its `[datastore]`
/// section and `N` its `[datastore_snapshot]` section, or [`NoStore`] where the file is the only
/// source.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    bound = "K: DeserializeOwned, D: DeserializeOwned, N: DeserializeOwned"
)]
pub struct BgpFile<K, D = NoStore, N = NoStore> {
    /// `asn`: local autonomous system.
    pub asn: Option<Spanned<AsNumber>>,
    /// `router_id`: local BGP identifier.
    pub router_id: Option<Spanned<Ipv4Addr>>,
    /// `listen`: addresses on which connections are accepted; an empty list to only dial.
    pub listen: Option<Spanned<Vec<Spanned<SocketAddr>>>>,
    /// `control`: path of the control socket.
    pub control: Option<PathBuf>,
    /// `bfd_socket`: path of the socket of cambric-bfd for its clients.
    pub bfd_socket: Option<PathBuf>,
    /// `bird_control`: path of a socket with the protocol of BIRD's control socket.
    pub bird_control: Option<PathBuf>,
    /// `bird6_control`: path of the socket for IPv6, where BIRD has a separate process for it.
    pub bird6_control: Option<PathBuf>,
    /// `[metrics]`: the address for scrapers; none if absent.
    pub metrics: Option<MetricsSection>,
    /// `[health]`: the address for probes; none if absent.
    pub health: Option<HealthSection>,
    /// `log`: level or directives.
    #[serde(default = "log_default")]
    pub log: Spanned<String>,
    /// `log_format`: `text` or `json`.
    #[serde(default)]
    pub log_format: LogFormat,
    /// `families`: the tables of this speaker, and the default families of a neighbor.
    #[serde(default = "families_default")]
    pub families: Vec<Spanned<String>>,
    /// `multipath`: equal-cost paths of a prefix that may be used at once.
    pub multipath: Option<Spanned<u16>>,
    /// `memory_max`: the octets that neighbors and groups may take; the limit of the process's
    /// control group if absent.
    pub memory_max: Option<Spanned<MemoryMax>>,
    /// `privileges`: whether the daemon gives up privileges at the start: `drop` or `keep`.
    pub privileges: Option<Spanned<String>>,
    /// `next_hop_ipv4`: local IPv4 next hop on sessions that are not over IPv4.
    pub next_hop_ipv4: Option<Spanned<Ipv4Addr>>,
    /// `next_hop_ipv6`: local IPv6 next hop on sessions that are not over IPv6.
    pub next_hop_ipv6: Option<Spanned<Ipv6Addr>>,
    /// `cluster_id`: RFC 4456 §7; the router id when absent.
    pub cluster_id: Option<Spanned<Ipv4Addr>>,
    /// `restart_wait` in seconds: longest delay of route selection after a restart.
    pub restart_wait: Option<Spanned<u32>>,
    /// `registration_ttl` in seconds: how long a reflector's registration lasts without a
    /// keepalive.
    pub registration_ttl: Option<Spanned<u32>>,
    /// `absence_wait` in seconds: how long a reflector without a registration but with an
    /// established session counts as registered.
    pub absence_wait: Option<Spanned<u32>>,
    /// `origin_validation`: whether routes are compared with the records of the datastore: `off`,
    /// `warn` or `enforce`.
    pub origin_validation: Option<Spanned<String>>,
    /// `hostname`: name in the OPEN (FQDN capability); none if absent. With a datastore, the name
    /// of this host's node.
    pub hostname: Option<Spanned<String>>,
    /// `reflectors`: how many of the fabric's reflectors a node peers with.
    pub reflectors: Option<Spanned<u16>>,
    /// `[datastore]`: the datastore with the remaining configuration.
    pub datastore: Option<Spanned<D>>,
    /// `[datastore_snapshot]`: file that caches the datastore's state over a restart.
    pub datastore_snapshot: Option<Spanned<N>>,
    /// `[secrets]`: the passwords that the datastore refers to.
    pub secrets: Option<Spanned<SecretsSection>>,
    /// `[guard]`: the host guard of the BGP port.
    #[serde(default)]
    pub guard: GuardSection,
    /// `[kernel]`: the daemon's own section.
    pub kernel: Option<K>,
    /// `[[neighbor]]`.
    #[serde(default)]
    pub neighbor: Vec<Section>,
    /// `[[neighbor_range]]`.
    #[serde(default)]
    pub neighbor_range: Vec<Section>,
}

/// Returns the default listening addresses of a speaker: all addresses of both IP versions.
pub fn listen_default(port: u16) -> Vec<SocketAddr> {
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    any.map(|address| SocketAddr::new(address, port)).into()
}

fn log_default() -> Spanned<String> {
    Spanned::new(0..0, "info".to_owned())
}

fn families_default() -> Vec<Spanned<String>> {
    ["ipv4-unicast", "ipv6-unicast"]
        .map(|name| Spanned::new(0..0, name.to_owned()))
        .into()
}

/// `[secrets]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretsSection {
    /// `dir`: the key `k` of the secret `s` is the file `s/k` in this directory.
    pub dir: PathBuf,
}

/// `[guard]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardSection {
    /// `enabled`: whether the host guard protects this daemon's ports.
    pub enabled: bool,
    /// `users`: users that may use the ports, in addition to root and the daemon's own user.
    pub users: Vec<Spanned<UserKey>>,
    /// `ports`: ports that are guarded in addition to those of the configuration.
    pub ports: Vec<Spanned<NonZeroU16>>,
}

impl Default for GuardSection {
    fn default() -> Self {
        Self {
            enabled: true,
            users: Vec::new(),
            ports: Vec::new(),
        }
    }
}

/// The values of `privileges`.
const PRIVILEGES: [&str; 2] = ["drop", "keep"];

impl<K, D, N> BgpFile<K, D, N> {
    /// Returns whether the daemon keeps all privileges of the process that starts it.
    pub fn keeps_privileges(&self) -> bool {
        let value = self.privileges.as_ref();
        value.is_some_and(|value| value.get_ref() == "keep")
    }

    /// Reports another value of `privileges`.
    pub(crate) fn check_privileges(&self, problems: &mut Problems<'_>) {
        let Some(value) = &self.privileges else {
            return;
        };
        let name = value.get_ref();
        if !PRIVILEGES.contains(&name.as_str()) {
            let problem = Problem::at(
                value.span(),
                format!("\"{name}\" is no value of privileges"),
            );
            problems.push(problem.help("one of \"drop\" and \"keep\""));
        }
    }

    /// Returns the consequence for routes without a record in the datastore.
    pub fn origin_mode(&self) -> OriginMode {
        let mode = self.origin_validation.as_ref();
        let mode = mode.and_then(|mode| OriginMode::named(mode.get_ref()));
        mode.unwrap_or_default()
    }

    /// Returns the BGP ports of the file: those on which the daemon listens, always the port of
    /// BGP, and those of `[guard]`. A datastore may configure another one.
    pub fn ports(&self) -> BTreeSet<u16> {
        let listen = self.listen.iter().flat_map(Spanned::get_ref);
        let listen = listen.map(|at| at.get_ref().port());
        let more = self.guard.ports.iter().map(|port| port.get_ref().get());
        let named = listen.chain(more).chain([BGP_PORT]);
        named.filter(|port| *port != 0).collect()
    }

    /// Returns the address and the port of each neighbor of the file with a port of its own. A
    /// datastore may configure others.
    pub fn dialed(&self) -> impl Iterator<Item = SocketAddr> {
        let neighbors = self.neighbor.iter();
        neighbors
            .filter_map(|neighbor| Some(SocketAddr::new(neighbor.address()?, neighbor.port()?)))
    }
}

/// The `[kernel]` section of a daemon that never writes kernel routes: an error.
#[derive(Clone, Copy, Debug)]
pub enum NoKernel {}

impl<'de> Deserialize<'de> for NoKernel {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom(
            "this daemon never writes a route: [kernel] belongs to cambric-bgp-client",
        ))
    }
}

/// The `[datastore]` section of a file that does not support one: an error.
#[derive(Clone, Copy, Debug)]
pub enum NoStore {}

impl<'de> Deserialize<'de> for NoStore {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("no store is read here"))
    }
}
