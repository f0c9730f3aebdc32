//! The routes learned over BGP, as prefixes with the next hops in use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use bgp_io::bgp_proto::{Attributes, ExtendedCommunity, NextHop};
use ipnet::IpNet;

/// The paths in use to a prefix, as far as the kernel route depends on them; empty without next
/// hops.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Paths {
    /// LOCAL_PREF of all of them, if present.
    pub(super) local_pref: Option<u32>,
    /// Their next hops.
    pub(super) next_hops: Vec<IpAddr>,
    /// The bandwidth of each next hop in octets per second, if weights follow it and all paths have one.
    pub(super) bandwidths: Vec<u64>,
}

impl Paths {
    /// Adds a path that is equal to the others. If `is_weighted`, its bandwidth counts: of several, the lowest one.
    pub(super) fn add(&mut self, attributes: &Attributes, is_weighted: bool) {
        let next_hop = attributes.next_hop.as_ref();
        let next_hop = next_hop.and_then(|next_hop| match next_hop {
            NextHop::V4(address) => Some(IpAddr::from(*address)),
            NextHop::V6 { global, .. } => Some((*global).into()),
            NextHop::Opaque(_) => None,
        });
        if let Some(next_hop) = next_hop {
            self.local_pref = attributes.local_pref;
            self.next_hops.push(next_hop);
            let all = attributes.extended_communities.iter();
            let bandwidth = all.filter_map(ExtendedCommunity::octets_per_s);
            if is_weighted && let Some(bandwidth) = bandwidth.min_by(f32::total_cmp) {
                self.bandwidths.push(bandwidth as u64);
            }
        }
    }

    /// Returns the same paths with each next hop once, in order. Without a bandwidth of each path there is none.
    fn canonical(mut self) -> Self {
        if self.bandwidths.len() != self.next_hops.len() {
            self.bandwidths.clear();
            self.next_hops.sort_unstable();
            self.next_hops.dedup();
            return self;
        }
        let both = self.next_hops.into_iter().zip(self.bandwidths);
        let mut both: Vec<_> = both.collect();
        both.sort_unstable();
        both.dedup_by_key(|(next_hop, _)| *next_hop);
        (self.next_hops, self.bandwidths) = both.into_iter().unzip();
        self
    }
}

/// Prefixes and the paths to them; equal sets of paths are stored once.
#[derive(Debug, Default)]
pub(super) struct Learned {
    routes: BTreeMap<IpNet, Rc<Paths>>,
    sets: BTreeSet<Rc<Paths>>,
    /// Prefixes of a table that is being read again, not yet confirmed.
    unconfirmed: BTreeSet<IpNet>,
}

impl Learned {
    /// Sets the paths to a prefix, empty for a removed route. Returns whether they changed.
    pub(super) fn set(&mut self, prefix: IpNet, paths: Paths) -> bool {
        self.unconfirmed.remove(&prefix);
        if paths.next_hops.is_empty() {
            return self.routes.remove(&prefix).is_some();
        }
        let set = self.intern(paths.canonical());
        let before = self.routes.insert(prefix, Rc::clone(&set));
        before.is_none_or(|before| before != set)
    }

    /// Returns the paths to a prefix.
    pub(super) fn get(&self, prefix: &IpNet) -> Option<&Paths> {
        self.routes.get(prefix).map(|set| &**set)
    }

    /// Returns all prefixes.
    pub(super) fn prefixes(&self) -> Vec<IpNet> {
        self.routes.keys().copied().collect()
    }

    /// Returns the prefixes with this next hop.
    pub(super) fn over(&self, next_hop: IpAddr) -> Vec<IpNet> {
        let over = self
            .routes
            .iter()
            .filter(|(_, set)| set.next_hops.contains(&next_hop));
        over.map(|(prefix, _)| *prefix).collect()
    }

    /// Marks a family's table as being read again: prefixes that do not reappear are removed.
    pub(super) fn doubt(&mut self, ipv6: bool) {
        let family = self.routes.keys().filter(|prefix| is_ipv6(prefix) == ipv6);
        self.unconfirmed.extend(family);
    }

    /// Ends reading a family's table: returns the prefixes that did not reappear.
    pub(super) fn take_unconfirmed(&mut self, ipv6: bool) -> Vec<IpNet> {
        let (gone, left) = std::mem::take(&mut self.unconfirmed)
            .into_iter()
            .partition(|p| is_ipv6(p) == ipv6);
        self.unconfirmed = left;
        gone.into_iter().collect()
    }

    fn intern(&mut self, paths: Paths) -> Rc<Paths> {
        if let Some(set) = self.sets.get(&paths) {
            return Rc::clone(set);
        }
        // Drops unused sets before there are twice as many sets as routes.
        if self.sets.len() > 2 * self.routes.len() + 16 {
            self.sets.retain(|set| Rc::strong_count(set) > 1);
        }
        let set = Rc::new(paths);
        self.sets.insert(Rc::clone(&set));
        set
    }
}

fn is_ipv6(prefix: &IpNet) -> bool {
    matches!(prefix, IpNet::V6(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn paths(next_hops: &[&str]) -> Paths {
        let next_hops = next_hops.iter().map(|text| text.parse().unwrap());
        Paths {
            local_pref: Some(100),
            next_hops: next_hops.collect(),
            bandwidths: Vec::new(),
        }
    }

    /// Returns a path over a next hop, with these link bandwidths.
    fn path(next_hop: &str, bandwidths: &[f32]) -> Attributes {
        let bandwidths = bandwidths.iter();
        let bandwidths = bandwidths.map(|one| ExtendedCommunity::link_bandwidth(1, *one, false));
        Attributes {
            next_hop: Some(NextHop::V4(next_hop.parse().unwrap())),
            extended_communities: bandwidths.collect(),
            ..Attributes::default()
        }
    }

    #[test]
    fn bandwidths_count_if_all_paths_have_one() {
        let of = |all: &[(&str, &[f32])], is_weighted| {
            let mut paths = Paths::default();
            for (next_hop, bandwidths) in all {
                paths.add(&path(next_hop, bandwidths), is_weighted);
            }
            paths.canonical()
        };
        let (low, high): (&[f32], &[f32]) = (&[1e9], &[2e9, 3e9, f32::NAN]);
        let all = [("10.0.0.2", high), ("10.0.0.1", low), ("10.0.0.2", low)];
        let paths = of(&all[..2], true);
        assert_eq!(paths.bandwidths, [1_000_000_000, 2_000_000_000]);
        assert_eq!(of(&all, true).bandwidths, [1_000_000_000; 2], "the lowest");
        assert!(of(&all, false).bandwidths.is_empty());
        let without = [("10.0.0.2", high), ("10.0.0.1", [f32::INFINITY].as_slice())];
        let paths = of(&without, true);
        assert!(paths.bandwidths.is_empty());
        assert_eq!(paths.next_hops.len(), 2);
    }

    #[test]
    fn sets_are_shared_and_forgotten() {
        let mut learned = Learned::default();
        assert!(learned.set(net("10.65.0.1/32"), paths(&["10.0.0.2", "10.0.0.1"])));
        assert!(learned.set(
            net("10.65.0.2/32"),
            paths(&["10.0.0.1", "10.0.0.2", "10.0.0.1"])
        ));
        assert_eq!(learned.sets.len(), 1);
        assert!(
            !learned.set(net("10.65.0.1/32"), paths(&["10.0.0.1", "10.0.0.2"])),
            "the same"
        );
        assert_eq!(learned.over("10.0.0.2".parse().unwrap()).len(), 2);
        let other = Paths {
            local_pref: Some(200),
            ..paths(&["10.0.0.1", "10.0.0.2"])
        };
        assert!(learned.set(net("10.65.0.1/32"), other), "another degree");
        assert!(learned.set(net("10.65.0.1/32"), Paths::default()));
        assert!(
            !learned.set(net("10.65.0.1/32"), Paths::default()),
            "gone already"
        );
        for i in 0..1000_u32 {
            let next_hops = vec![std::net::Ipv4Addr::from(i).into()];
            let paths = Paths {
                local_pref: Some(100),
                next_hops,
                bandwidths: Vec::new(),
            };
            learned.set(net("10.65.0.1/32"), paths);
        }
        assert!(learned.sets.len() < 40, "{}", learned.sets.len());
    }

    #[test]
    fn route_not_sent_again_is_deleted() {
        let mut learned = Learned::default();
        for prefix in ["10.65.0.1/32", "10.65.0.2/32", "fd65::1/128"] {
            learned.set(net(prefix), paths(&["10.0.0.1"]));
        }
        learned.doubt(false);
        learned.set(net("10.65.0.2/32"), paths(&["10.0.0.1"]));
        assert_eq!(learned.take_unconfirmed(false), [net("10.65.0.1/32")]);
        assert!(learned.take_unconfirmed(true).is_empty());
    }
}
