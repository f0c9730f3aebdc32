//! The members of a selector, and their elements in the packet filter's set.
//!
//! While all members are single addresses, the set is a hash of addresses. A network, which only a
//! network set contributes, makes it a set of intervals. nftables rejects overlapping intervals, so
//! a member inside another member is then left out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::limits::CHANGED_SINGLY_MAX;
use crate::render::{Assembly, Family, Key, SetKind};

/// A member of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// An address or a network.
    Net(IpNet),
    /// An address with a protocol and a port.
    Port(IpAddr, u8, u16),
}

/// The members of a set.
#[derive(Clone, Debug)]
pub(super) enum Items {
    /// Of a selector.
    Nets(Networks),
    /// Of names of ports: each with the number of resources that contribute it.
    Ports(BTreeMap<Item, u32>),
}

impl Items {
    /// Increments the count of a member; returns whether it is new.
    pub(super) fn add(&mut self, item: Item) -> bool {
        match (self, item) {
            (Self::Nets(nets), Item::Net(net)) => nets.add(net),
            (Self::Ports(ports), item @ Item::Port(..)) => {
                let count = ports.entry(item).or_insert(0);
                *count += 1;
                *count == 1
            }
            _ => false,
        }
    }

    /// Decrements the count of a member; returns whether it reached zero.
    pub(super) fn remove(&mut self, item: &Item) -> bool {
        match (self, item) {
            (Self::Nets(nets), Item::Net(net)) => nets.remove(net),
            (Self::Ports(ports), Item::Port(..)) => count_off(ports, item),
            _ => false,
        }
    }
}

/// The changes of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The set is new: all of its members are. There may have been another one of its name.
    pub(super) is_new: bool,
    /// Otherwise, the added or removed members.
    pub(super) items: BTreeSet<Item>,
}

impl Changed {
    /// Adds members.
    pub(super) fn extend(&mut self, items: impl IntoIterator<Item = Item>) {
        if !self.is_new {
            self.items.extend(items);
        }
    }

    /// Records that the set is another one.
    pub(super) fn renew(&mut self) {
        self.is_new = true;
        self.items.clear();
    }
}

/// Updates the set `name` with the members of the family that are among `changed`. Without members
/// the set is removed: no rule refers to it.
pub(super) fn exchange(
    rules: &mut Assembly,
    name: &str,
    family: Family,
    members: Option<&Items>,
    changed: &Changed,
) {
    let ports = match members {
        None => {
            rules.remove_members(name);
            return;
        }
        Some(Items::Nets(nets)) => {
            exchange_nets(rules, name, family, nets, changed);
            return;
        }
        Some(Items::Ports(ports)) => ports,
    };
    let kind = SetKind::EndpointPort(family);
    let key_of = |item: &Item| match *item {
        Item::Port(address, protocol, port) if Family::of(address) == family => {
            Some(Key::EndpointPort(address, protocol, port))
        }
        _ => None,
    };
    if is_to_be_filled(rules, name, kind, changed, ports.len()) {
        rules.replace_members(name, kind, ports.keys().filter_map(key_of));
        return;
    }
    for item in &changed.items {
        if let Some(key) = key_of(item) {
            rules.put_element(name, &key, ports.contains_key(item).then_some(None));
        }
    }
}

/// Returns whether a set is new, or has another kind now, or has more changed members than it has
/// `members`: then it is filled again at once.
fn is_to_be_filled(
    rules: &Assembly,
    name: &str,
    kind: SetKind,
    changed: &Changed,
    members: usize,
) -> bool {
    let held = rules.ruleset().sets.get(name).map(|set| set.kind);
    let is_filled_sooner = changed.items.len() > members.max(CHANGED_SINGLY_MAX);
    changed.is_new || held != Some(kind) || is_filled_sooner
}

/// Addresses and networks, each with the number of resources that contribute it.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks {
    // Apart, a network of IPv4 takes 5 octets instead of 18.
    ipv4: BTreeMap<Ipv4Net, u32>,
    ipv6: BTreeMap<Ipv6Net, u32>,
    /// Number of networks of more than one address, by prefix length.
    lengths: BTreeMap<(Family, u8), u32>,
}

impl Networks {
    /// Increments the count of a network; returns whether it is new.
    pub(super) fn add(&mut self, net: IpNet) -> bool {
        let count = match net {
            IpNet::V4(net) => self.ipv4.entry(net).or_insert(0),
            IpNet::V6(net) => self.ipv6.entry(net).or_insert(0),
        };
        *count += 1;
        let is_new = *count == 1;
        if is_new && is_wide(&net) {
            *self.lengths.entry(length(&net)).or_insert(0) += 1;
        }
        is_new
    }

    /// Decrements the count of a network; returns whether it reached zero.
    pub(super) fn remove(&mut self, net: &IpNet) -> bool {
        let is_last = match net {
            IpNet::V4(net) => count_off(&mut self.ipv4, net),
            IpNet::V6(net) => count_off(&mut self.ipv6, net),
        };
        if is_last && is_wide(net) {
            count_off(&mut self.lengths, &length(net));
        }
        is_last
    }

    fn kind(&self, family: Family) -> SetKind {
        let mut lengths = self.lengths.range((family, 0)..=(family, u8::MAX));
        match lengths.next() {
            None => SetKind::Address(family),
            Some(_) => SetKind::Nets(family),
        }
    }

    /// Returns whether it is a member and not inside a larger one.
    fn shows(&self, net: &IpNet) -> bool {
        self.has(net) && !self.is_covered(net)
    }

    fn has(&self, net: &IpNet) -> bool {
        match net {
            IpNet::V4(net) => self.ipv4.contains_key(net),
            IpNet::V6(net) => self.ipv6.contains_key(net),
        }
    }

    /// Returns the number of members of a family.
    fn len(&self, family: Family) -> usize {
        match family {
            Family::V4 => self.ipv4.len(),
            Family::V6 => self.ipv6.len(),
        }
    }

    /// Returns the members of a family.
    fn of(&self, family: Family) -> impl Iterator<Item = IpNet> {
        let ipv4 = self.ipv4.keys().copied().map(IpNet::V4);
        let ipv6 = self.ipv6.keys().copied().map(IpNet::V6);
        let ipv4 = (family == Family::V4).then_some(ipv4);
        let ipv6 = (family == Family::V6).then_some(ipv6);
        ipv4.into_iter().flatten().chain(ipv6.into_iter().flatten())
    }

    /// Returns whether it is inside a larger one.
    fn is_covered(&self, net: &IpNet) -> bool {
        let family = Family::of(net.addr());
        let mut larger = self.lengths.range((family, 0)..(family, net.prefix_len()));
        let covers = |((_, length), _): (&(Family, u8), &u32)| {
            let larger = IpNet::new(net.addr(), *length);
            larger.is_ok_and(|larger| self.has(&larger.trunc()))
        };
        larger.any(covers)
    }

    /// Returns the members inside a network, including itself. They follow its first address
    /// directly in the sort order.
    fn inside(&self, net: IpNet) -> impl Iterator<Item = IpNet> {
        let (ipv4, ipv6) = match net {
            IpNet::V4(net) => (Some(self.ipv4.range(net..)), None),
            IpNet::V6(net) => (None, Some(self.ipv6.range(net..))),
        };
        let ipv4 = ipv4.into_iter().flatten();
        let ipv6 = ipv6.into_iter().flatten();
        let ipv4 = ipv4.map(|(one, _)| IpNet::V4(*one));
        let from = ipv4.chain(ipv6.map(|(one, _)| IpNet::V6(*one)));
        from.take_while(move |one| net.contains(one))
    }
}

/// Updates a set of addresses or networks.
fn exchange_nets(
    rules: &mut Assembly,
    name: &str,
    family: Family,
    members: &Networks,
    changed: &Changed,
) {
    let kind = members.kind(family);
    let is_of_family = |net: &IpNet| Family::of(net.addr()) == family;
    let key_of = |net: &IpNet| match kind {
        SetKind::Nets(_) => Key::Net(*net),
        _ => Key::Address(net.addr()),
    };
    if is_to_be_filled(rules, name, kind, changed, members.len(family)) {
        let shown = members.of(family).filter(|net| !members.is_covered(net));
        rules.replace_members(name, kind, shown.map(|net| key_of(&net)));
        return;
    }
    let mut due: BTreeSet<IpNet> = BTreeSet::new();
    let changed = changed.items.iter().filter_map(|item| match item {
        Item::Net(net) => Some(net),
        Item::Port(..) => None,
    });
    for net in changed.filter(|net| is_of_family(net)) {
        due.insert(*net);
        if is_wide(net) {
            due.extend(members.inside(*net));
        }
    }
    for net in due {
        rules.put_element(name, &key_of(&net), members.shows(&net).then_some(None));
    }
}

fn length(net: &IpNet) -> (Family, u8) {
    (Family::of(net.addr()), net.prefix_len())
}

/// Returns whether it is more than one address.
fn is_wide(net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

/// Returns whether the count reached zero.
fn count_off<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else {
        return false;
    };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(key);
    }
    is_last
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::render::Set;

    const NAME: &str = "set";

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn elements(rules: &Assembly) -> Vec<String> {
        let set: Option<&Set> = rules.ruleset().sets.get(NAME);
        let keys = set.into_iter().flat_map(|set| set.elements.keys());
        keys.map(ToString::to_string).collect()
    }

    fn put(rules: &mut Assembly, members: &mut Networks, come: &[&str], gone: &[&str]) {
        let (come, gone) = (
            come.iter().map(|one| net(one)),
            gone.iter().map(|one| net(one)),
        );
        let mut changed = Changed::default();
        changed.extend(come.filter(|one| members.add(*one)).map(Item::Net));
        changed.extend(gone.filter(|one| members.remove(one)).map(Item::Net));
        exchange_nets(rules, NAME, Family::V4, members, &changed);
    }

    #[test]
    fn member_is_left_out_while_a_network_contains_it() {
        let (mut rules, mut members) = (Assembly::default(), Networks::default());
        let all = ["10.0.0.1/32", "10.0.1.1/32"];
        put(&mut rules, &mut members, &all, &[]);
        assert_eq!(elements(&rules), ["10.0.0.1", "10.0.1.1"]);
        put(&mut rules, &mut members, &["10.0.0.0/24"], &[]);
        assert_eq!(elements(&rules), ["10.0.0.0/24", "10.0.1.1"]);
        put(&mut rules, &mut members, &["10.0.0.0/8"], &[]);
        assert_eq!(elements(&rules), ["10.0.0.0/8"]);
        put(&mut rules, &mut members, &[], &["10.0.0.0/8"]);
        assert_eq!(elements(&rules), ["10.0.0.0/24", "10.0.1.1"]);
        put(&mut rules, &mut members, &[], &["10.0.0.0/24"]);
        assert_eq!(elements(&rules), all.map(|one| one.replace("/32", "")));
        let kind = rules.ruleset().sets[NAME].kind;
        assert_eq!(kind, SetKind::Address(Family::V4));
    }

    #[test]
    fn set_that_changes_as_a_whole_is_filled_at_once() {
        let (mut rules, mut members) = (Assembly::default(), Networks::default());
        let many: Vec<String> = (0..=CHANGED_SINGLY_MAX)
            .map(|number| format!("10.0.{number}.1/32"))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let is_whole = |rules: &mut Assembly| rules.take_touched().created.contains(NAME);
        put(&mut rules, &mut members, &["10.1.0.1/32"], &[]);
        put(&mut rules, &mut members, &many, &[]);
        assert!(is_whole(&mut rules), "a new set");
        assert_eq!(elements(&rules).len(), many.len() + 1);
        put(&mut rules, &mut members, &[], &many[..many.len() - 1]);
        assert!(!is_whole(&mut rules), "not more than are changed singly");
        put(&mut rules, &mut members, &many[..many.len() - 1], &[]);
        assert!(!is_whole(&mut rules));
        put(&mut rules, &mut members, &[], &many);
        assert!(is_whole(&mut rules), "more than are left");
        assert_eq!(elements(&rules), ["10.1.0.1"]);
    }

    fn any_net() -> impl Strategy<Value = IpNet> {
        (0..16_u8, 28..=32_u8).prop_map(|(last, length)| {
            let address = std::net::Ipv4Addr::new(10, 0, 0, last);
            IpNet::new(address.into(), length).unwrap().trunc()
        })
    }

    proptest! {
        /// Checks that, after any sequence of changes, no two elements overlap, and together they
        /// are the members.
        #[test]
        fn elements_are_the_members_without_overlap(
            steps in prop::collection::vec((any_net(), any::<bool>()), 1..40)
        ) {
            let (mut rules, mut members) = (Assembly::default(), Networks::default());
            for (net, comes) in steps {
                let is_other = if comes { members.add(net) } else { members.remove(&net) };
                let mut changed = Changed::default();
                changed.extend(is_other.then_some(Item::Net(net)));
                exchange_nets(&mut rules, NAME, Family::V4, &members, &changed);
                let set = &rules.ruleset().sets[NAME];
                for last in 0..16 {
                    let address: IpAddr = std::net::Ipv4Addr::new(10, 0, 0, last).into();
                    let holding = set.elements.keys().filter(|key| match key {
                        Key::Net(net) => net.contains(&address),
                        Key::Address(one) => *one == address,
                        _ => false,
                    });
                    let is_member = members.of(Family::V4).any(|net| net.contains(&address));
                    prop_assert_eq!(holding.count(), usize::from(is_member));
                }
            }
        }
    }
}
