//! The keys of the files, as they are written.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;

use daemon_common::daemon::LogFormat;
use daemon_common::metrics::MetricsSection;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use toml::Spanned;

use crate::limits::BGP_PORT;
use crate::section::Section;
use crate::value::{AsNumber, UserKey};

/// A BGP daemon's file. `K` is its `[kernel]` section, [`NoKernel`] where there is none; `D` its
/// `[datastore]` section and `N` its `[datastore_snapshot]` section, [`NoStore`] where the file has
/// to say everything itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    bound = "K: DeserializeOwned, D: DeserializeOwned, N: DeserializeOwned"
)]
pub struct BgpFile<K, D = NoStore, N = NoStore> {
    /// `asn`: our autonomous system.
    pub asn: Option<Spanned<AsNumber>>,
    /// `router_id`: our BGP identifier.
    pub router_id: Option<Spanned<Ipv4Addr>>,
    /// `listen`: addresses to accept connections on; none to only dial.
    pub listen: Option<Spanned<Vec<Spanned<SocketAddr>>>>,
    /// `control`: path of the control socket.
    pub control: Option<PathBuf>,
    /// `bird_control`: path of a socket that speaks as BIRD's does.
    pub bird_control: Option<PathBuf>,
    /// `bird6_control`: that of its IPv6 half, where there are two.
    pub bird6_control: Option<PathBuf>,
    /// `[metrics]`: where scrapers are answered; nowhere when absent.
    pub metrics: Option<MetricsSection>,
    /// `log`: level or directives.
    #[serde(default = "log_default")]
    pub log: Spanned<String>,
    /// `log_format`: `text` or `json`.
    #[serde(default)]
    pub log_format: LogFormat,
    /// `families`: the tables of this speaker, and what a neighbour gets that names none.
    #[serde(default = "families_default")]
    pub families: Vec<Spanned<String>>,
    /// `multipath`: equal paths that a prefix may use at once.
    pub multipath: Option<Spanned<u16>>,
    /// `next_hop_ipv4`: our next hop where the session is not over IPv4.
    pub next_hop_ipv4: Option<Spanned<Ipv4Addr>>,
    /// `next_hop_ipv6`: our next hop where the session is not over IPv6.
    pub next_hop_ipv6: Option<Spanned<Ipv6Addr>>,
    /// `cluster_id`: RFC 4456 §7; the router id when absent.
    pub cluster_id: Option<Spanned<Ipv4Addr>>,
    /// `restart_wait` in seconds: how long the choice of routes waits after a restart.
    pub restart_wait: Option<Spanned<u32>>,
    /// `registration_ttl` in seconds: how long a reflector's registration outlives its last word.
    pub registration_ttl: Option<Spanned<u32>>,
    /// `absence_wait` in seconds: how long a reflector whose registration is gone but whose session
    /// is up counts as if it were registered.
    pub absence_wait: Option<Spanned<u32>>,
    /// `hostname`: what our OPEN tells of ourselves; nothing when absent. With a store, the name
    /// of our node there.
    pub hostname: Option<Spanned<String>>,
    /// `reflectors`: how many of the fabric's reflectors a node peers with.
    pub reflectors: Option<Spanned<u16>>,
    /// `[datastore]`: the store that tells the rest.
    pub datastore: Option<Spanned<D>>,
    /// `[datastore_snapshot]`: where what is known of the store is kept over a restart.
    pub datastore_snapshot: Option<Spanned<N>>,
    /// `[secrets]`: where the passwords are that the store points to.
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

/// Returns where a speaker listens by default: on all addresses of both IP versions.
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
    /// `dir`: the key `k` of the secret `s` is the file `s/k` there.
    pub dir: PathBuf,
}

/// `[guard]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardSection {
    /// `enabled`: whether ports are guarded on behalf of this daemon.
    pub enabled: bool,
    /// `users` that may use the ports beside root and the daemon's own user.
    pub users: Vec<Spanned<UserKey>>,
    /// `ports` that are guarded beside those of the configuration.
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

impl<K, D, N> BgpFile<K, D, N> {
    /// The BGP ports that the file names: where the daemon listens, the port of BGP in any case, and
    /// those of `[guard]`. A datastore may name another to listen on.
    pub fn ports(&self) -> BTreeSet<u16> {
        let listen = self.listen.iter().flat_map(Spanned::get_ref);
        let listen = listen.map(|at| at.get_ref().port());
        let more = self.guard.ports.iter().map(|port| port.get_ref().get());
        let named = listen.chain(more).chain([BGP_PORT]);
        named.filter(|port| *port != 0).collect()
    }

    /// The neighbors of the file with a port of their own: the address and the port of each. A
    /// datastore may name others.
    pub fn dialed(&self) -> impl Iterator<Item = SocketAddr> {
        let neighbors = self.neighbor.iter();
        neighbors
            .filter_map(|neighbor| Some(SocketAddr::new(neighbor.address()?, neighbor.port()?)))
    }
}

/// The `[kernel]` section of a daemon that never touches the kernel's routes: an error.
#[derive(Clone, Copy, Debug)]
pub enum NoKernel {}

impl<'de> Deserialize<'de> for NoKernel {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom(
            "this daemon never writes a route: [kernel] belongs to cambric-bgp-client",
        ))
    }
}

/// The `[datastore]` section where there is no store: an error.
#[derive(Clone, Copy, Debug)]
pub enum NoStore {}

impl<'de> Deserialize<'de> for NoStore {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("no store is read here"))
    }
}
