//! The routes learned over BGP, as prefixes with the next hops in use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use ipnet::IpNet;

/// Prefixes and their next hops; equal sets of next hops are kept once.
#[derive(Debug, Default)]
pub(super) struct Learned {
    routes: BTreeMap<IpNet, Rc<[IpAddr]>>,
    sets: BTreeSet<Rc<[IpAddr]>>,
    /// Prefixes of a table that is being given to us anew, not given yet.
    unconfirmed: BTreeSet<IpNet>,
}

impl Learned {
    /// Notes the next hops of a prefix, none of them for a route that is gone. Returns whether
    /// that is new.
    pub(super) fn set(&mut self, prefix: IpNet, mut next_hops: Vec<IpAddr>) -> bool {
        self.unconfirmed.remove(&prefix);
        if next_hops.is_empty() {
            return self.routes.remove(&prefix).is_some();
        }
        next_hops.sort_unstable();
        next_hops.dedup();
        let set = self.intern(next_hops);
        let before = self.routes.insert(prefix, Rc::clone(&set));
        before.is_none_or(|before| before != set)
    }

    /// The next hops of a prefix.
    pub(super) fn get(&self, prefix: &IpNet) -> &[IpAddr] {
        self.routes.get(prefix).map_or(&[], |set| set)
    }

    /// All prefixes.
    pub(super) fn prefixes(&self) -> Vec<IpNet> {
        self.routes.keys().copied().collect()
    }

    /// Prefixes with this next hop.
    pub(super) fn over(&self, next_hop: IpAddr) -> Vec<IpNet> {
        let over = self
            .routes
            .iter()
            .filter(|(_, set)| set.contains(&next_hop));
        over.map(|(prefix, _)| *prefix).collect()
    }

    /// A family's table will be given anew: what is not given again is gone.
    pub(super) fn doubt(&mut self, ipv6: bool) {
        let family = self.routes.keys().filter(|prefix| is_ipv6(prefix) == ipv6);
        self.unconfirmed.extend(family);
    }

    /// A family's table was given whole: what is not in it.
    pub(super) fn take_unconfirmed(&mut self, ipv6: bool) -> Vec<IpNet> {
        let (gone, left) = std::mem::take(&mut self.unconfirmed)
            .into_iter()
            .partition(|p| is_ipv6(p) == ipv6);
        self.unconfirmed = left;
        gone.into_iter().collect()
    }

    fn intern(&mut self, next_hops: Vec<IpAddr>) -> Rc<[IpAddr]> {
        if let Some(set) = self.sets.get(next_hops.as_slice()) {
            return Rc::clone(set);
        }
        // Forget sets that nobody uses any more before there are twice as many as routes.
        if self.sets.len() > 2 * self.routes.len() + 16 {
            self.sets.retain(|set| Rc::strong_count(set) > 1);
        }
        let set: Rc<[IpAddr]> = next_hops.into();
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

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn sets_are_shared_and_forgotten() {
        let mut learned = Learned::default();
        assert!(learned.set(net("10.65.0.1/32"), ips(&["10.0.0.2", "10.0.0.1"])));
        assert!(learned.set(
            net("10.65.0.2/32"),
            ips(&["10.0.0.1", "10.0.0.2", "10.0.0.1"])
        ));
        assert_eq!(learned.sets.len(), 1);
        assert!(
            !learned.set(net("10.65.0.1/32"), ips(&["10.0.0.1", "10.0.0.2"])),
            "the same"
        );
        assert_eq!(learned.over("10.0.0.2".parse().unwrap()).len(), 2);
        assert!(learned.set(net("10.65.0.1/32"), Vec::new()));
        assert!(
            !learned.set(net("10.65.0.1/32"), Vec::new()),
            "gone already"
        );
        for i in 0..1000_u32 {
            learned.set(
                net("10.65.0.1/32"),
                vec![std::net::Ipv4Addr::from(i).into()],
            );
        }
        assert!(learned.sets.len() < 40, "{}", learned.sets.len());
    }

    #[test]
    fn what_is_not_given_again_is_gone() {
        let mut learned = Learned::default();
        for prefix in ["10.65.0.1/32", "10.65.0.2/32", "fd65::1/128"] {
            learned.set(net(prefix), ips(&["10.0.0.1"]));
        }
        learned.doubt(false);
        learned.set(net("10.65.0.2/32"), ips(&["10.0.0.1"]));
        assert_eq!(learned.take_unconfirmed(false), [net("10.65.0.1/32")]);
        assert!(learned.take_unconfirmed(true).is_empty());
    }
}
