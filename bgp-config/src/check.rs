//! Validation of a whole file: its meaning, and all its mistakes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use bgp_proto::{Asn, ClusterId, FamilySet, RouterId};
use bgp_speaker::SpeakerConfig;
use bgp_speaker::keys::read_families;
use daemon_common::config::{Problem, Problems, Report, Source};
use rib::{NextHops, OriginMode};
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::duplicates::twice;
use crate::file::{BgpFile, listen_default};
use crate::host::Host;
use crate::limits::{
    ABSENCE_WAIT_S, ABSENCE_WAIT_S_MAX, BGP_PORT, HOSTNAME_OCTETS_MAX, MULTIPATH_MAX,
    REFLECTORS_MAX, REGISTRATION_TTL_S, REGISTRATION_TTL_S_MAX, REGISTRATION_TTL_S_MIN,
    RESTART_WAIT_S, RESTART_WAIT_S_MAX,
};
use crate::neighbor;
use crate::section::problem;
use crate::value::AsNumber;

/// The configuration of a speaker and its listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The speaker.
    pub speaker: SpeakerConfig,
    /// The addresses on which it accepts connections.
    pub listen: Vec<SocketAddr>,
    /// The longest delay of route selection after a restart of the daemon (RFC 4724 §4.1).
    pub restart_wait: Duration,
    /// Remarks on valid but notable configuration: a neighbor without a policy, so that no route
    /// passes.
    pub notes: Vec<String>,
}

impl Intent {
    /// Returns the BGP ports of this host: those on which the daemon listens, and always the port
    /// of BGP. A neighbor's port is not included: other services may have the same number.
    pub fn ports(&self) -> BTreeSet<u16> {
        let listen = self.listen.iter().map(SocketAddr::port);
        let named = listen.chain([BGP_PORT]);
        named.filter(|port| *port != 0).collect()
    }

    /// Returns the address and the port of each neighbor.
    pub fn dialed(&self) -> impl Iterator<Item = SocketAddr> {
        let peers = self.speaker.peers.iter();
        peers.map(|peer| SocketAddr::new(peer.remote, peer.port))
    }
}

/// The source of a speaker's configuration.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The file, as a whole.
    File(Box<Intent>),
    /// The datastore, for this node.
    Store(Host),
}

impl<K: DeserializeOwned> BgpFile<K> {
    /// Parses and checks a file without a datastore. `next_hops` is a property of the daemon, not
    /// set by the operator.
    ///
    /// # Errors
    ///
    /// Every mistake found, in one report.
    pub fn read(source: &Source, next_hops: NextHops) -> Result<(Self, Intent), Report> {
        let (file, mut problems) = source.examine::<Self>();
        let Some(file) = file else {
            return Err(problems.into_report());
        };
        if let Err(error) = daemon_common::daemon::log_filter(file.log.get_ref()) {
            problems.push(Problem::at(file.log.span(), error.to_string()));
        }
        let intent = file.intent(next_hops, &mut problems);
        problems.finish()?;
        Ok((file, intent))
    }
}

impl<K, D, N> BgpFile<K, D, N> {
    /// Returns the meaning of the file, as far as it is valid: only usable when `problems` stays
    /// empty. `own_name` is the machine's hostname.
    pub fn origin(
        &self,
        next_hops: NextHops,
        own_name: &str,
        problems: &mut Problems<'_>,
    ) -> Origin {
        if let Err(error) = daemon_common::daemon::log_filter(self.log.get_ref()) {
            problems.push(Problem::at(self.log.span(), error.to_string()));
        }
        match &self.datastore {
            None => Origin::File(Box::new(self.intent(next_hops, problems))),
            Some(_) => Origin::Store(self.host(next_hops, own_name, problems)),
        }
    }

    fn intent(&self, next_hops: NextHops, problems: &mut Problems<'_>) -> Intent {
        self.check_origin_validation(problems);
        self.check_privileges(problems);
        self.check_addresses(problems);
        if !problems.is_lost("datastore") {
            self.check_store_keys(problems);
        }
        let mut notes = Vec::new();
        let mut speaker = self.speaker(next_hops, problems);
        let hostname = self.hostname(problems);
        let mut reading = neighbor::Reading {
            speaker: &speaker,
            is_asn_known: self.asn.is_some(),
            hostname: hostname.as_deref(),
            problems: &mut *problems,
            notes: &mut notes,
        };
        let (peers, ranges) = match reading.problems.is_lost("families") {
            true => (Vec::new(), Vec::new()),
            false => (
                reading.peers(&self.neighbor),
                reading.ranges(&self.neighbor_range),
            ),
        };
        (speaker.peers, speaker.ranges) = (peers, ranges);
        Intent {
            speaker,
            listen: self.listen.as_ref().map_or_else(
                || listen_default(BGP_PORT),
                |listen| listen.get_ref().iter().map(|at| *at.get_ref()).collect(),
            ),
            restart_wait: self.restart_wait(problems),
            notes,
        }
    }

    /// Reports a mode of origin validation that does not exist.
    fn check_origin_validation(&self, problems: &mut Problems<'_>) {
        let Some(mode) = &self.origin_validation else {
            return;
        };
        let name = mode.get_ref();
        if OriginMode::named(name).is_none() {
            let message = format!("\"{name}\" is no mode of origin_validation");
            let problem = Problem::at(mode.span(), message);
            problems.push(problem.help("one of \"off\", \"warn\" and \"enforce\""));
        }
    }

    /// Reports keys that have a meaning only with a datastore.
    fn check_store_keys(&self, problems: &mut Problems<'_>) {
        if let Some(secrets) = &self.secrets {
            let message = "[secrets] is for passwords of the store, and no [datastore] is given";
            let problem = Problem::at(secrets.span(), message);
            problems.push(problem.help("in a [[neighbor]] the key is `password`"));
        }
        if let Some(snapshot) = &self.datastore_snapshot {
            let message = "a snapshot is one of the store, and no [datastore] is given";
            problems.push(Problem::at(snapshot.span(), message));
        }
        if let Some(reflectors) = &self.reflectors {
            let message = "reflectors are chosen out of the store, and no [datastore] is given";
            let problem = Problem::at(reflectors.span(), message);
            problems.push(problem.help("without a store each reflector is a [[neighbor]]"));
        }
        let of_fabric = [
            ("registration_ttl", &self.registration_ttl),
            ("absence_wait", &self.absence_wait),
        ];
        let of_fabric = of_fabric.map(|(key, value)| (key, value.as_ref().map(Spanned::span)));
        // Another mode is a mistake with or without a datastore.
        let is_mode = |mode: &&Spanned<String>| OriginMode::named(mode.get_ref()).is_some();
        let validation = self
            .origin_validation
            .as_ref()
            .filter(is_mode)
            .map(Spanned::span);
        for (key, span) in of_fabric
            .into_iter()
            .chain([("origin_validation", validation)])
        {
            let Some(span) = span else { continue };
            let message =
                format!("{key} applies only with a [datastore], and no [datastore] is given");
            problems.push(Problem::at(span, message));
        }
    }

    /// Returns the speaker without its neighbors.
    fn speaker(&self, next_hops: NextHops, problems: &mut Problems<'_>) -> SpeakerConfig {
        let families = self.families(problems);
        let multipath_max = self.multipath(problems);
        let mut speaker = SpeakerConfig::new(
            self.required("asn", self.asn.as_ref(), problems).0,
            RouterId(self.required("router_id", self.router_id.as_ref(), problems)),
        );
        let (v4, v6) = (self.next_hop_ipv4.as_ref(), self.next_hop_ipv6.as_ref());
        speaker.cluster_id = self.cluster_id.as_ref().map(|id| ClusterId(*id.get_ref()));
        (speaker.families, speaker.multipath_max) = (families, multipath_max);
        speaker.next_hops = next_hops;
        speaker.own_next_hop_v4 = v4.map(|address| *address.get_ref());
        speaker.own_next_hop_v6 = v6.map(|address| *address.get_ref());
        speaker
    }

    /// Returns a key that only a datastore can replace.
    fn required<T: Copy + Absent>(
        &self,
        key: &str,
        value: Option<&Spanned<T>>,
        problems: &mut Problems<'_>,
    ) -> T {
        value.map_or_else(
            || {
                if !problems.is_lost(key) && !problems.is_lost("datastore") {
                    let problem = Problem::whole(format!("missing key `{key}`"));
                    let help = "add it, or a [datastore] section to read it from the store";
                    problems.push(problem.help(help));
                }
                T::ABSENT
            },
            |value| *value.get_ref(),
        )
    }

    /// Returns the node that the datastore configures, with the settings that the file makes.
    fn host(&self, next_hops: NextHops, own_name: &str, problems: &mut Problems<'_>) -> Host {
        self.check_origin_validation(problems);
        self.check_privileges(problems);
        let spans = [
            ("asn", self.asn.as_ref().map(Spanned::span)),
            ("router_id", self.router_id.as_ref().map(Spanned::span)),
            ("listen", self.listen.as_ref().map(Spanned::span)),
            ("cluster_id", self.cluster_id.as_ref().map(Spanned::span)),
            (
                "next_hop_ipv4",
                self.next_hop_ipv4.as_ref().map(Spanned::span),
            ),
            (
                "next_hop_ipv6",
                self.next_hop_ipv6.as_ref().map(Spanned::span),
            ),
            ("[[neighbor]]", self.neighbor.first().map(|of| of.0.place())),
            (
                "[[neighbor_range]]",
                self.neighbor_range.first().map(|of| of.0.place()),
            ),
        ];
        for (key, span) in spans {
            let Some(span) = span else { continue };
            let mut problem = Problem::at(span, format!("{key} comes from the store"));
            if let Some(store) = &self.datastore {
                problem = problem.related(store.span(), "which is given here");
            }
            problems.push(
                problem.help("configure it in one place: there, or here without [datastore]"),
            );
        }
        let name = self.hostname(problems);
        Host {
            name: name.unwrap_or_else(|| own_name.to_owned()),
            families: self.families(problems),
            multipath_max: self.multipath(problems),
            next_hops,
            restart_wait: self.restart_wait(problems),
            reflects: false,
            reflectors: self.reflectors(problems),
            registration_ttl: self.registration_ttl(problems),
            absence_wait: self.absence_wait(problems),
        }
    }

    fn reflectors(&self, problems: &mut Problems<'_>) -> Option<usize> {
        let reflectors = self.reflectors.as_ref()?;
        let count = usize::from(*reflectors.get_ref());
        if !(1..=REFLECTORS_MAX).contains(&count) {
            let message = format!("reflectors is from 1 to {REFLECTORS_MAX}");
            problems.push(Problem::at(reflectors.span(), message));
        }
        Some(count)
    }

    fn check_addresses(&self, problems: &mut Problems<'_>) {
        if let Some(router_id) = self
            .router_id
            .as_ref()
            .filter(|id| id.get_ref().is_unspecified())
        {
            // RFC 6286 §2.1
            problems.push(
                Problem::at(
                    router_id.span(),
                    "router_id 0.0.0.0 is not a BGP identifier",
                )
                .help("use any number unique within the AS, commonly a loopback address"),
            );
        }
        if let Some(id) = self
            .cluster_id
            .as_ref()
            .filter(|id| id.get_ref().is_unspecified())
        {
            problems.push(Problem::at(
                id.span(),
                "cluster_id 0.0.0.0 is not a cluster",
            ));
        }
        let next_hops = [
            self.next_hop_ipv4
                .as_ref()
                .map(|at| (IpAddr::V4(*at.get_ref()), at.span())),
            self.next_hop_ipv6
                .as_ref()
                .map(|at| (IpAddr::V6(*at.get_ref()), at.span())),
        ];
        for (address, span) in next_hops.into_iter().flatten() {
            unicast(address, span, problems);
        }
        let listen = self.listen.iter().flat_map(Spanned::get_ref);
        let listen = listen.map(|at| (*at.get_ref(), at.span()));
        twice(listen, "listen address", problems);
    }

    fn families(&self, problems: &mut Problems<'_>) -> FamilySet {
        let names = self.families.iter();
        let names = names.map(|name| (name.get_ref().as_str(), name.span()));
        let mut faults = Vec::new();
        let families = read_families(names, None, &mut faults);
        faults
            .into_iter()
            .for_each(|fault| problems.push(problem(fault)));
        families
    }

    fn multipath(&self, problems: &mut Problems<'_>) -> u16 {
        let Some(multipath) = &self.multipath else {
            return 1;
        };
        if !(1..=MULTIPATH_MAX).contains(multipath.get_ref()) {
            let message = format!("multipath is from 1 to {MULTIPATH_MAX}");
            problems.push(Problem::at(multipath.span(), message));
        }
        *multipath.get_ref()
    }

    fn restart_wait(&self, problems: &mut Problems<'_>) -> Duration {
        let value = self.restart_wait.as_ref();
        let bounds = 0..=RESTART_WAIT_S_MAX;
        seconds("restart_wait", value, RESTART_WAIT_S, bounds, problems)
    }

    fn registration_ttl(&self, problems: &mut Problems<'_>) -> Duration {
        let bounds = REGISTRATION_TTL_S_MIN..=REGISTRATION_TTL_S_MAX;
        let value = self.registration_ttl.as_ref();
        seconds(
            "registration_ttl",
            value,
            REGISTRATION_TTL_S,
            bounds,
            problems,
        )
    }

    fn absence_wait(&self, problems: &mut Problems<'_>) -> Duration {
        let value = self.absence_wait.as_ref();
        let bounds = 0..=ABSENCE_WAIT_S_MAX;
        seconds("absence_wait", value, ABSENCE_WAIT_S, bounds, problems)
    }

    fn hostname(&self, problems: &mut Problems<'_>) -> Option<String> {
        let hostname = self.hostname.as_ref()?;
        let text = hostname.get_ref();
        if text.is_empty() || text.len() > HOSTNAME_OCTETS_MAX {
            let message = format!("a hostname has 1 to {HOSTNAME_OCTETS_MAX} bytes");
            problems.push(Problem::at(hostname.span(), message));
        }
        Some(text.clone())
    }
}

/// Returns a time in seconds within bounds.
fn seconds(
    key: &str,
    value: Option<&Spanned<u32>>,
    default: u32,
    bounds: RangeInclusive<u32>,
    problems: &mut Problems<'_>,
) -> Duration {
    let Some(value) = value else {
        return Duration::from_secs(default.into());
    };
    let (least, most) = (bounds.start(), bounds.end());
    if value.get_ref() < least {
        let message = format!("{key} is at least {least} seconds");
        problems.push(Problem::at(value.span(), message));
    }
    if value.get_ref() > most {
        let message = format!("{key} is at most {most} seconds");
        problems.push(Problem::at(value.span(), message));
    }
    Duration::from_secs((*value.get_ref()).into())
}

/// A placeholder for a missing value until the problem is reported.
trait Absent {
    const ABSENT: Self;
}

impl Absent for AsNumber {
    const ABSENT: Self = Self(Asn(0));
}

impl Absent for Ipv4Addr {
    const ABSENT: Self = Self::UNSPECIFIED;
}

/// Checks an address of a session or a next hop.
fn unicast(address: IpAddr, span: Range<usize>, problems: &mut Problems<'_>) {
    if address.is_unspecified() || address.is_multicast() {
        problems.push(Problem::at(
            span,
            format!("{address} is not a unicast address"),
        ));
    }
}
