//! A file as a whole: what it means, and everything that is wrong with it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use admin::config::{Problem, Problems, Report, Source};
use bgp_proto::{ClusterId, FAMILIES, Family, FamilySet, RouterId};
use bgp_speaker::SpeakerConfig;
use rib::NextHops;
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::file::BgpFile;
use crate::limits::{HOSTNAME_OCTETS_MAX, MULTIPATH_MAX, RESTART_WAIT_S, RESTART_WAIT_S_MAX};
use crate::neighbor;
use crate::session::Common;

/// What a file means.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The speaker.
    pub speaker: SpeakerConfig,
    /// How long the choice of routes waits at most after a restart of ours (RFC 4724 §4.1).
    pub restart_wait: Duration,
    /// What is allowed but worth knowing: a neighbour that nothing passes for want of a policy.
    pub notes: Vec<String>,
}

impl<K: DeserializeOwned> BgpFile<K> {
    /// Parses and checks a file. `next_hops` is the daemon's own choice, not the operator's.
    ///
    /// # Errors
    ///
    /// Every mistake found, in one report.
    pub fn read(source: &Source, next_hops: NextHops) -> Result<(Self, Intent), Report> {
        let file: Self = source.parse()?;
        let mut problems = source.problems();
        let intent = file.intent(next_hops, &mut problems);
        problems.finish()?;
        Ok((file, intent))
    }
}

impl<K> BgpFile<K> {
    /// What the file means, as far as it can be told: only good when `problems` stays empty.
    pub fn intent(&self, next_hops: NextHops, problems: &mut Problems<'_>) -> Intent {
        self.check_addresses(problems);
        let mut notes = Vec::new();
        let families = family_set(&self.families, None, problems);
        let common = Common {
            local_asn: self.asn.get_ref().0,
            local_id: RouterId(*self.router_id.get_ref()),
            families,
            hostname: self.hostname(problems),
        };
        let peers = neighbor::peers(&self.neighbor, &common, problems, &mut notes);
        let ranges = neighbor::ranges(&self.neighbor_range, &common, problems, &mut notes);
        let speaker = SpeakerConfig {
            local_asn: common.local_asn,
            router_id: common.local_id,
            cluster_id: self.cluster_id.as_ref().map(|id| ClusterId(*id.get_ref())),
            families,
            multipath_max: self.multipath(problems),
            next_hops,
            own_next_hop_v4: self
                .next_hop_ipv4
                .as_ref()
                .map(|address| *address.get_ref()),
            own_next_hop_v6: self
                .next_hop_ipv6
                .as_ref()
                .map(|address| *address.get_ref()),
            peers,
            ranges,
        };
        Intent {
            speaker,
            restart_wait: self.restart_wait(problems),
            notes,
        }
    }

    fn check_addresses(&self, problems: &mut Problems<'_>) {
        let router_id = &self.router_id;
        if router_id.get_ref().is_unspecified() {
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
        let listen = self.listen.iter().map(|at| (*at.get_ref(), at.span()));
        twice(listen, "listen address", problems);
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
        let Some(wait) = &self.restart_wait else {
            return Duration::from_secs(RESTART_WAIT_S.into());
        };
        if *wait.get_ref() > RESTART_WAIT_S_MAX {
            let message = format!("restart_wait is at most {RESTART_WAIT_S_MAX} seconds");
            problems.push(Problem::at(wait.span(), message));
        }
        Duration::from_secs((*wait.get_ref()).into())
    }

    fn hostname(&self, problems: &mut Problems<'_>) -> Option<String> {
        let hostname = self.hostname.as_ref()?;
        let text = hostname.get_ref();
        if text.is_empty() || text.len() > HOSTNAME_OCTETS_MAX {
            let message = format!("a hostname has 1 to {HOSTNAME_OCTETS_MAX} octets");
            problems.push(Problem::at(hostname.span(), message));
        }
        Some(text.clone())
    }
}

/// Family names as a set. `within` are the speaker's families, where there are any to be within.
pub(crate) fn family_set(
    names: &[Spanned<String>],
    within: Option<FamilySet>,
    problems: &mut Problems<'_>,
) -> FamilySet {
    let mut set = FamilySet::default();
    for name in names {
        match name
            .get_ref()
            .parse::<Family>()
            .ok()
            .filter(|family| family.row().is_some())
        {
            None => problems.push(unknown_family(name)),
            Some(family) if within.is_some_and(|within| !within.contains(family)) => problems.push(
                Problem::at(
                    name.span(),
                    format!("this speaker has no table for {family}"),
                )
                .help("add it to `families` at the top of the file"),
            ),
            Some(family) => {
                set.insert(family);
            }
        }
    }
    if let Some(last) = names
        .last()
        .filter(|_| set.is_empty() && problems.is_empty())
    {
        problems.push(Problem::at(last.span(), "no family is left"));
    }
    set
}

fn unknown_family(name: &Spanned<String>) -> Problem {
    let known: Vec<&str> = FAMILIES.iter().map(|row| row.name).collect();
    Problem::at(name.span(), format!("unknown family `{}`", name.get_ref()))
        .help(format!("known families: {}", known.join(", ")))
}

/// An address that a session or a next hop can have.
pub(crate) fn unicast(address: IpAddr, span: Range<usize>, problems: &mut Problems<'_>) {
    if address.is_unspecified() || address.is_multicast() {
        problems.push(Problem::at(
            span,
            format!("{address} is not a unicast address"),
        ));
    }
}

/// Reports each value that was given before, and shows where.
pub(crate) fn twice<T: Ord + ToString>(
    values: impl IntoIterator<Item = (T, Range<usize>)>,
    what: &str,
    problems: &mut Problems<'_>,
) {
    let mut seen = BTreeMap::new();
    for (value, span) in values {
        match seen.entry(value) {
            Entry::Vacant(place) => {
                place.insert(span);
            }
            Entry::Occupied(first) => {
                let message = format!("{what} {} is given twice", first.key().to_string());
                let problem = Problem::at(span, message).label("again here");
                problems.push(problem.related(first.get().clone(), "first here"));
            }
        }
    }
}
