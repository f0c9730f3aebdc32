//! The keys of the files, as they are written.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;

use admin::daemon::LogFormat;
use admin::metrics::MetricsSection;
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use toml::Spanned;

use crate::limits::BGP_PORT;
use crate::prefix_limit::LimitKeys;
use crate::value::{
    AsNumber, GracefulRestart, Hops, NextHop, Password, PathMode, PathsSent, PeerAsn, Policy,
    UserKey,
};

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
    pub neighbor: Vec<Spanned<Neighbor>>,
    /// `[[neighbor_range]]`.
    #[serde(default)]
    pub neighbor_range: Vec<Spanned<NeighborRange>>,
}

/// Where a speaker listens unless it is told otherwise: on all addresses.
pub(crate) fn listen_default(port: u16) -> Vec<SocketAddr> {
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
        self.neighbor.iter().filter_map(|neighbor| {
            let Neighbor { address, port, .. } = neighbor.get_ref();
            let port = port.as_ref()?;
            Some(SocketAddr::new(*address.get_ref(), *port.get_ref()))
        })
    }
}

/// One `[[neighbor]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbor {
    /// `name`: the address when absent.
    pub name: Option<Spanned<String>>,
    /// `address`.
    pub address: Spanned<IpAddr>,
    /// `port` to dial.
    pub port: Option<Spanned<u16>>,
    /// `source`: the address to dial from.
    pub source: Option<Spanned<IpAddr>>,
    /// `passive`: never dial.
    #[serde(default)]
    pub passive: bool,
    /// `asn`.
    pub asn: Spanned<PeerAsn>,
    /// `hold_time` in seconds.
    pub hold_time: Option<Spanned<u16>>,
    /// `keepalive` in seconds: a third of the hold time when absent, and never more.
    pub keepalive: Option<Spanned<u16>>,
    /// `connect_retry` in seconds.
    pub connect_retry: Option<Spanned<u16>>,
    /// `handshake_time` in seconds: the limit from a connection to an established session.
    pub handshake_time: Option<Spanned<u16>>,
    /// `families` offered to it.
    pub families: Option<Vec<Spanned<String>>>,
    /// `import` policy.
    pub import: Option<Policy>,
    /// `own_as_max`: how often our own AS may be in what it sends.
    pub own_as_max: Option<u8>,
    /// `allow_as_sets`: whether its AS_PATHs may have AS_SETs (RFC 9774).
    pub allow_as_sets: Option<bool>,
    /// `multihop`: whether an external neighbor may be more than one hop away.
    pub multihop: Option<bool>,
    /// `export` policy.
    pub export: Option<Policy>,
    /// `next_hop` in what we send it.
    pub next_hop: Option<NextHop>,
    /// `ttl_security`: hops it may be away.
    pub ttl_security: Option<Spanned<Hops>>,
    /// `password`: TCP-MD5 key.
    pub password: Option<Spanned<Password>>,
    /// `route_reflector_client`: RFC 4456.
    pub route_reflector_client: Option<Spanned<bool>>,
    /// `cluster_id` of a client: the speaker's when absent.
    pub cluster_id: Option<Spanned<Ipv4Addr>>,
    /// `graceful_restart`: `true`, `false`, or seconds.
    pub graceful_restart: Option<Spanned<GracefulRestart>>,
    /// `add_path`: RFC 7911.
    pub add_path: Option<Spanned<PathMode>>,
    /// `add_path_send`: which paths we send then.
    pub add_path_send: Option<Spanned<PathsSent>>,
    /// `[[prefix_limit]]`: how many paths may come.
    #[serde(default)]
    pub prefix_limit: Vec<Spanned<LimitKeys>>,
    /// `extended_messages`: RFC 8654.
    pub extended_messages: Option<bool>,
    /// `extended_next_hop`: RFC 8950.
    pub extended_next_hop: Option<bool>,
}

/// One `[[neighbor_range]]`: neighbours that come unasked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighborRange {
    /// `name`: the prefix when absent.
    pub name: Option<Spanned<String>>,
    /// `prefix` of their addresses.
    pub prefix: Spanned<IpNet>,
    /// `limit`: how many at once.
    pub limit: Spanned<u16>,
    /// `asn`.
    pub asn: Spanned<PeerAsn>,
    /// `hold_time` in seconds.
    pub hold_time: Option<Spanned<u16>>,
    /// `keepalive` in seconds: a third of the hold time when absent, and never more.
    pub keepalive: Option<Spanned<u16>>,
    /// `handshake_time` in seconds: the limit from a connection to an established session.
    pub handshake_time: Option<Spanned<u16>>,
    /// `families` offered to them.
    pub families: Option<Vec<Spanned<String>>>,
    /// `import` policy.
    pub import: Option<Policy>,
    /// `own_as_max`: how often our own AS may be in what it sends.
    pub own_as_max: Option<u8>,
    /// `allow_as_sets`: whether its AS_PATHs may have AS_SETs (RFC 9774).
    pub allow_as_sets: Option<bool>,
    /// `multihop`: whether an external neighbor may be more than one hop away.
    pub multihop: Option<bool>,
    /// `export` policy.
    pub export: Option<Policy>,
    /// `next_hop` in what we send them.
    pub next_hop: Option<NextHop>,
    /// `ttl_security`: hops they may be away.
    pub ttl_security: Option<Spanned<Hops>>,
    /// `password`: TCP-MD5 key.
    pub password: Option<Spanned<Password>>,
    /// `route_reflector_client`: RFC 4456.
    pub route_reflector_client: Option<Spanned<bool>>,
    /// `cluster_id` of a client: the speaker's when absent.
    pub cluster_id: Option<Spanned<Ipv4Addr>>,
    /// `graceful_restart`: `true`, `false`, or seconds.
    pub graceful_restart: Option<Spanned<GracefulRestart>>,
    /// `add_path`: RFC 7911.
    pub add_path: Option<Spanned<PathMode>>,
    /// `add_path_send`: which paths we send then.
    pub add_path_send: Option<Spanned<PathsSent>>,
    /// `[[prefix_limit]]`: how many paths may come.
    #[serde(default)]
    pub prefix_limit: Vec<Spanned<LimitKeys>>,
    /// `extended_messages`: RFC 8654.
    pub extended_messages: Option<bool>,
    /// `extended_next_hop`: RFC 8950.
    pub extended_next_hop: Option<bool>,
}

/// The keys that a `[[neighbor]]` and a `[[neighbor_range]]` share; see the fields of
/// [`Neighbor`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "each field is documented at `Neighbor`")]
pub struct SessionKeys<'f> {
    pub asn: &'f Spanned<PeerAsn>,
    pub hold_time: Option<&'f Spanned<u16>>,
    pub keepalive: Option<&'f Spanned<u16>>,
    pub connect_retry: Option<&'f Spanned<u16>>,
    pub handshake_time: Option<&'f Spanned<u16>>,
    pub families: Option<&'f [Spanned<String>]>,
    pub import: Option<Policy>,
    pub own_as_max: Option<u8>,
    pub allow_as_sets: Option<bool>,
    pub multihop: Option<bool>,
    pub export: Option<Policy>,
    pub next_hop: Option<NextHop>,
    pub ttl_security: Option<&'f Spanned<Hops>>,
    pub password: Option<&'f Spanned<Password>>,
    pub route_reflector_client: Option<&'f Spanned<bool>>,
    pub cluster_id: Option<&'f Spanned<Ipv4Addr>>,
    pub graceful_restart: Option<&'f Spanned<GracefulRestart>>,
    pub add_path: Option<&'f Spanned<PathMode>>,
    pub add_path_send: Option<&'f Spanned<PathsSent>>,
    pub prefix_limit: &'f [Spanned<LimitKeys>],
    pub extended_messages: Option<bool>,
    pub extended_next_hop: Option<bool>,
}

impl Neighbor {
    /// What it shares with a range.
    pub fn session(&self) -> SessionKeys<'_> {
        SessionKeys {
            asn: &self.asn,
            hold_time: self.hold_time.as_ref(),
            keepalive: self.keepalive.as_ref(),
            connect_retry: self.connect_retry.as_ref(),
            handshake_time: self.handshake_time.as_ref(),
            families: self.families.as_deref(),
            import: self.import,
            own_as_max: self.own_as_max,
            allow_as_sets: self.allow_as_sets,
            multihop: self.multihop,
            export: self.export,
            next_hop: self.next_hop,
            ttl_security: self.ttl_security.as_ref(),
            password: self.password.as_ref(),
            route_reflector_client: self.route_reflector_client.as_ref(),
            cluster_id: self.cluster_id.as_ref(),
            graceful_restart: self.graceful_restart.as_ref(),
            add_path: self.add_path.as_ref(),
            add_path_send: self.add_path_send.as_ref(),
            prefix_limit: &self.prefix_limit,
            extended_messages: self.extended_messages,
            extended_next_hop: self.extended_next_hop,
        }
    }
}

impl NeighborRange {
    /// What it shares with a neighbour.
    pub fn session(&self) -> SessionKeys<'_> {
        SessionKeys {
            asn: &self.asn,
            hold_time: self.hold_time.as_ref(),
            keepalive: self.keepalive.as_ref(),
            connect_retry: None,
            handshake_time: self.handshake_time.as_ref(),
            families: self.families.as_deref(),
            import: self.import,
            own_as_max: self.own_as_max,
            allow_as_sets: self.allow_as_sets,
            multihop: self.multihop,
            export: self.export,
            next_hop: self.next_hop,
            ttl_security: self.ttl_security.as_ref(),
            password: self.password.as_ref(),
            route_reflector_client: self.route_reflector_client.as_ref(),
            cluster_id: self.cluster_id.as_ref(),
            graceful_restart: self.graceful_restart.as_ref(),
            add_path: self.add_path.as_ref(),
            add_path_send: self.add_path_send.as_ref(),
            prefix_limit: &self.prefix_limit,
            extended_messages: self.extended_messages,
            extended_next_hop: self.extended_next_hop,
        }
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
