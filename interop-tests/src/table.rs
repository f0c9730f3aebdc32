//! Routes in one form, for every program that they were read from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr},
};

use ipnet::IpNet;

/// The best route of each prefix.
pub type Table = BTreeMap<IpNet, Route>;

/// One route with its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// NEXT_HOP; `None` for routes that the speaker originates.
    pub next_hop: Option<IpAddr>,
    /// AS_PATH, sequences only; a set is shown as the programs print it.
    pub as_path: String,
    /// ORIGIN: `igp`, `egp`, `incomplete`.
    pub origin: String,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// COMMUNITIES.
    pub communities: BTreeSet<String>,
    /// LARGE_COMMUNITIES.
    pub large_communities: BTreeSet<String>,
    /// ORIGINATOR_ID.
    pub originator_id: Option<Ipv4Addr>,
    /// CLUSTER_LIST.
    pub cluster_list: Vec<Ipv4Addr>,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            next_hop: None,
            as_path: String::new(),
            origin: "igp".to_owned(),
            local_pref: None,
            med: None,
            communities: BTreeSet::new(),
            large_communities: BTreeSet::new(),
            originator_id: None,
            cluster_list: vec![],
        }
    }
}

impl Route {
    /// Returns a plain route as a receiver is expected to have it.
    pub fn via(next_hop: impl Into<IpAddr>) -> Self {
        Self {
            next_hop: Some(next_hop.into()),
            ..Self::default()
        }
    }

    /// Sets the AS_PATH.
    #[must_use]
    pub fn path(mut self, as_path: &str) -> Self {
        self.as_path = as_path.to_owned();
        self
    }

    /// Sets the LOCAL_PREF.
    #[must_use]
    pub fn local_pref(mut self, local_pref: u32) -> Self {
        self.local_pref = Some(local_pref);
        self
    }

    /// Adds all the optional attributes of [`crate::Setup::adorned`].
    #[must_use]
    pub fn adorned(mut self) -> Self {
        self.med = Some(7);
        self.communities = ["64999:1", "64999:20"].map(str::to_owned).into();
        self.large_communities = ["64999:4:9".to_owned()].into();
        self
    }

    /// Adds ORIGINATOR_ID and CLUSTER_LIST as a reflector of `cluster` does.
    #[must_use]
    pub fn reflected(mut self, originator: Ipv4Addr, cluster: Ipv4Addr) -> Self {
        self.originator_id = Some(originator);
        self.cluster_list.insert(0, cluster);
        self
    }
}

/// Describes the differences between two tables; empty if they are equal.
pub fn differences(expected: &Table, found: &Table) -> String {
    let mut text = String::new();
    let nets: BTreeSet<&IpNet> = expected.keys().chain(found.keys()).collect();
    for net in nets {
        let line = match (expected.get(net), found.get(net)) {
            (Some(expected), Some(found)) if expected == found => continue,
            (Some(expected), Some(found)) => {
                format!("{net}:\n  expected {expected:?}\n  found    {found:?}")
            }
            (Some(_), None) => format!("{net}: missing"),
            (None, Some(found)) => format!("{net}: not expected: {found:?}"),
            (None, None) => continue,
        };
        let _ = writeln!(text, "{line}");
    }
    text
}
