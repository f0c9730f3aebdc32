//! The addresses of endpoints, with the nodes that hold them.
//!
//! A fabric has some hundred thousand endpoints, so an endpoint is held as one row of numbers for
//! its key, and one for each address. A key is represented by 64 bits of a hash with a seed. Two
//! of 250,000 keys have the same with a probability of 2 in 10⁹; the later endpoint then replaces
//! the earlier one.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp_proto::Prefix;

use super::sorted::Sorted;

/// The hash of an endpoint's key.
pub(super) type KeyHash = [u32; 2];

/// The number of a node.
pub(super) type NodeId = u32;

/// The addresses of one endpoint and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) node: NodeId,
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// The addresses of all endpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Endpoints {
    /// Key, node, IPv4 address.
    v4: Sorted<[u32; 4]>,
    /// Key, node, IPv6 address.
    v6: Sorted<[u32; 7]>,
    /// Key, node, IPv4 address, IPv6 address: most endpoints with both have one of each.
    both: Sorted<[u32; 8]>,
    /// Address, node.
    v4_at: Sorted<[u32; 2]>,
    v6_at: Sorted<[u32; 5]>,
}

impl Endpoints {
    /// Returns what is held for a key.
    pub(super) fn get(&self, [k, l]: KeyHash) -> Option<Held> {
        let is_of = |[a, b]: KeyHash| [a, b] == [k, l];
        let mut node = None;
        let mut addresses = BTreeSet::new();
        let v4 = self.v4.from([k, l, 0, 0]);
        for [_, _, of, a] in v4.take_while(|[a, b, ..]| is_of([*a, *b])) {
            node = Some(of);
            addresses.insert(Ipv4Addr::from_bits(a).into());
        }
        let v6 = self.v6.from([k, l, 0, 0, 0, 0, 0]);
        for [_, _, of, a, b, c, d] in v6.take_while(|[a, b, ..]| is_of([*a, *b])) {
            node = Some(of);
            addresses.insert(v6_of([a, b, c, d]).into());
        }
        let both = self.both.from([k, l, 0, 0, 0, 0, 0, 0]);
        for [_, _, of, v4, a, b, c, d] in both.take_while(|[a, b, ..]| is_of([*a, *b])) {
            node = Some(of);
            addresses.insert(Ipv4Addr::from_bits(v4).into());
            addresses.insert(v6_of([a, b, c, d]).into());
        }
        node.map(|node| Held { node, addresses })
    }

    /// Holds this for a key, in place of `former`, which is the result of [`get`](Self::get).
    pub(super) fn replace(&mut self, key: KeyHash, former: Option<&Held>, new: Option<&Held>) {
        for row in former.into_iter().flat_map(|held| rows(key, held)) {
            self.remove(row);
        }
        for row in new.into_iter().flat_map(|held| rows(key, held)) {
            self.insert(row);
        }
    }

    /// Returns the nodes with an endpoint that has this address, possibly several times.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = NodeId> + '_ {
        let v4 = match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(_) => None,
        };
        let v4 = v4.into_iter().flat_map(move |at| {
            let rows = self.v4_at.from([at, 0]);
            rows.take_while(move |row| row[0] == at).map(|row| row[1])
        });
        let v6 = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(words(address)),
        };
        let v6 = v6.into_iter().flat_map(move |at| {
            let [a, b, c, d] = at;
            let rows = self.v6_at.from([a, b, c, d, 0]);
            rows.take_while(move |row| row[..4] == at).map(|row| row[4])
        });
        v4.chain(v6)
    }

    /// Returns the lowest address in a prefix that an endpoint has, other than those of `except`.
    pub(super) fn first_in_prefix(&self, prefix: Prefix, except: Option<NodeId>) -> Option<IpAddr> {
        match prefix.addr() {
            IpAddr::V4(first) => {
                let rows = self.v4_at.from([first.to_bits(), 0]);
                rows.map(|[at, of]| (IpAddr::from(Ipv4Addr::from_bits(at)), of))
                    .take_while(|(at, _)| prefix.contains(*at))
                    .find_map(|(at, of)| (Some(of) != except).then_some(at))
            }
            IpAddr::V6(first) => {
                let [a, b, c, d] = words(first);
                let rows = self.v6_at.from([a, b, c, d, 0]);
                rows.map(|[a, b, c, d, of]| (IpAddr::from(v6_of([a, b, c, d])), of))
                    .take_while(|(at, _)| prefix.contains(*at))
                    .find_map(|(at, of)| (Some(of) != except).then_some(at))
            }
        }
    }

    fn insert(&mut self, row: Row) {
        match row {
            Row::V4(row) => self.v4.insert(row),
            Row::V6(row) => self.v6.insert(row),
            Row::Both(row) => self.both.insert(row),
            Row::V4At(row) => self.v4_at.insert(row),
            Row::V6At(row) => self.v6_at.insert(row),
        }
    }

    fn remove(&mut self, row: Row) {
        let found = match row {
            Row::V4(row) => self.v4.remove(&row),
            Row::V6(row) => self.v6.remove(&row),
            Row::Both(row) => self.both.remove(&row),
            Row::V4At(row) => self.v4_at.remove(&row),
            Row::V6At(row) => self.v6_at.remove(&row),
        };
        debug_assert!(found, "a row of what is held");
    }
}

/// A row of one of the lists.
enum Row {
    V4([u32; 4]),
    V6([u32; 7]),
    Both([u32; 8]),
    V4At([u32; 2]),
    V6At([u32; 5]),
}

/// Returns the rows of an endpoint. They depend on nothing else.
fn rows([k, l]: KeyHash, held: &Held) -> Vec<Row> {
    let node = held.node;
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let mut rows = Vec::new();
    for address in &held.addresses {
        match address {
            IpAddr::V4(address) => {
                v4.push(address.to_bits());
                rows.push(Row::V4At([address.to_bits(), node]));
            }
            IpAddr::V6(address) => {
                let [a, b, c, d] = words(*address);
                v6.push([a, b, c, d]);
                rows.push(Row::V6At([a, b, c, d, node]));
            }
        }
    }
    let pairs = v4.len().min(v6.len());
    let both = v4.iter().zip(&v6);
    rows.extend(both.map(|(v4, [a, b, c, d])| Row::Both([k, l, node, *v4, *a, *b, *c, *d])));
    rows.extend(v4.iter().skip(pairs).map(|v4| Row::V4([k, l, node, *v4])));
    let v6 = v6.iter().skip(pairs);
    rows.extend(v6.map(|[a, b, c, d]| Row::V6([k, l, node, *a, *b, *c, *d])));
    rows
}

/// Returns an address as numbers of the same order.
fn words(address: Ipv6Addr) -> [u32; 4] {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let word = |high: u16, low: u16| (u32::from(high) << 16) | u32::from(low);
    [word(a, b), word(c, d), word(e, f), word(g, h)]
}

fn v6_of(words: [u32; 4]) -> Ipv6Addr {
    let bits = words.into_iter();
    Ipv6Addr::from_bits(bits.fold(0, |bits, word| (bits << 32) | u128::from(word)))
}
