//! The routes of a workload: numbered prefixes, and the attribute sets of the expected paths.

use anyhow::{Result, bail};

use crate::wire::{Attributes, Prefix, Received, announce, sequence, withdraw};

/// The number of a path's attribute set, plus one; 0 for no path.
pub type Tag = u32;

/// No path.
pub const NONE: Tag = 0;
/// A path that does not belong to the workload, or is not the expected result of one.
pub const WRONG: Tag = u32::MAX;

/// The origin AS of attribute set `n` is this plus `n` where AS paths are not empty.
const SET_AS: u32 = 4_200_000_000;

/// The address of client 0; the others follow in order. All are on the loopback link.
pub const CLIENTS: u32 = u32::from_be_bytes([10, 64, 16, 0]);

/// The prefixes of a workload, each with a number that one lookup finds.
#[derive(Debug)]
pub struct Prefixes {
    all: Vec<Prefix>,
    /// The first address of the IPv4 prefixes, and the shift of the offset.
    base: u32,
    shift: u32,
    /// By shifted address, the number of the prefix that begins there.
    index: Vec<u32>,
    /// The number of the first IPv6 prefix; they continue from `FIRST_V6`.
    first_v6: usize,
}

/// The first half of the address of the first IPv6 prefix: 2001:db8:0:0::/64.
const FIRST_V6: u64 = 0x2001_0db8_0000_0000;

impl Prefixes {
    /// Numbers IPv4 prefixes, at most one in each block of `1 << shift` addresses, and `v6` IPv6
    /// prefixes after them.
    pub fn new(mut all: Vec<Prefix>, shift: u32, v6: usize) -> Self {
        let address = |prefix: &Prefix| match prefix {
            Prefix::V4(address, _) => *address,
            Prefix::V6(_) => unreachable!("IPv6 prefixes are numbered here"),
        };
        let base = all.iter().map(address).min().unwrap_or_default() >> shift << shift;
        let end = all.iter().map(address).max().unwrap_or_default();
        let mut index = vec![u32::MAX; ((end - base) >> shift) as usize + 1];
        for (number, prefix) in all.iter().enumerate() {
            let place = &mut index[((address(prefix) - base) >> shift) as usize];
            assert_eq!(*place, u32::MAX, "two prefixes in one block");
            *place = number as u32;
        }
        let first_v6 = all.len();
        all.extend((0..v6 as u64).map(|n| Prefix::V6(FIRST_V6 + n)));
        Self {
            all,
            base,
            shift,
            index,
            first_v6,
        }
    }

    /// Returns the number of prefixes.
    pub const fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the prefix with this number.
    pub fn get(&self, number: usize) -> Prefix {
        self.all[number]
    }

    /// Returns the number of an IPv4 prefix.
    #[inline]
    pub fn find_v4(&self, address: u32, length: u8) -> Option<usize> {
        let block = address.wrapping_sub(self.base) >> self.shift;
        let number = *self.index.get(block as usize)? as usize;
        (*self.all.get(number)? == Prefix::V4(address, length)).then_some(number)
    }

    /// Returns the number of an IPv6 prefix.
    #[inline]
    pub fn find_v6(&self, half: u64) -> Option<usize> {
        let number = self.first_v6 + usize::try_from(half.checked_sub(FIRST_V6)?).ok()?;
        (number < self.all.len()).then_some(number)
    }
}

/// One set of attributes and its sender.
#[derive(Clone, Debug)]
pub struct Set {
    /// The session that sends it.
    pub source: usize,
    /// The sent attributes.
    pub sent: Attributes,
}

/// The change of attributes between a sender and a receiver.
#[derive(Clone, Copy, Debug)]
pub enum Passing {
    /// Reflected (RFC 4456): ORIGINATOR_ID and this CLUSTER_LIST are added.
    Reflected([u8; 4]),
    /// Copied octet for octet.
    Copied,
    /// Advertised to another AS by this AS, with the other value as its address.
    External(u32, [u8; 4]),
}

/// All attribute sets of a workload, as receivers must see them.
#[derive(Debug)]
pub struct Sets {
    sets: Vec<Set>,
    /// AS_PATH and COMMUNITIES of each as received.
    seen: Vec<(Vec<u8>, Vec<u8>)>,
    passing: Passing,
}

impl Sets {
    /// Makes the expected form of `sets`.
    pub fn new(sets: Vec<Set>, passing: Passing) -> Self {
        let seen = sets.iter().map(|set| {
            let mut path = set.sent.path.clone();
            if let Passing::External(asn, _) = passing {
                path.insert(0, asn);
            }
            let communities = set.sent.communities.iter();
            (
                sequence(&path),
                communities.flat_map(|value| value.to_be_bytes()).collect(),
            )
        });
        Self {
            seen: seen.collect(),
            sets,
            passing,
        }
    }

    /// Returns the set of a tag.
    pub fn get(&self, tag: Tag) -> Option<&Set> {
        self.sets.get((tag as usize).checked_sub(1)?)
    }

    /// Identifies the set of received attributes; fails if any attribute is wrong.
    pub fn identify(&self, received: &Received<'_>) -> Result<Tag> {
        let Some(tag) = self.candidate(received) else {
            bail!("attributes that no generator sent: {received:02x?}");
        };
        let at = tag as usize - 1;
        let (set, (path, communities)) = (&self.sets[at], &self.seen[at]);
        let good = received.origin == Some(&[0])
            && received.path == Some(path)
            && received.communities.unwrap_or_default() == communities
            // Some programs add a MED of 0, which is equivalent to no MED.
            && received.med.is_none_or(|med| med == [0; 4])
            && self.is_passed_on(set, received);
        if !good {
            bail!("attributes that are not those of set {at}, {set:?}: {received:02x?}");
        }
        Ok(tag)
    }

    /// Returns the set that the attributes indicate: by the origin AS, or by the next hop.
    fn candidate(&self, received: &Received<'_>) -> Option<Tag> {
        let last = match received.path? {
            [] => {
                let (_, hop) = received.next_hop?.split_last_chunk()?;
                u32::from_be_bytes(*hop).checked_sub(CLIENTS)?
            }
            path => u32::from_be_bytes(*path.last_chunk()?).checked_sub(SET_AS)?,
        };
        ((last as usize) < self.sets.len()).then_some(last + 1)
    }

    fn is_passed_on(&self, set: &Set, received: &Received<'_>) -> bool {
        let client = (CLIENTS + set.source as u32).to_be_bytes();
        let hop = received.next_hop.and_then(|hop| hop.last_chunk::<4>());
        let preference = set.sent.local_pref.map(u32::to_be_bytes);
        let internal = received.local_pref == preference.as_ref().map(|octets| &octets[..])
            && hop == Some(&set.sent.next_hop);
        match self.passing {
            Passing::Reflected(cluster) => {
                internal
                    && received.originator == Some(&client)
                    && received.clusters == Some(&cluster)
            }
            Passing::Copied => {
                internal && received.originator.is_none() && received.clusters.is_none()
            }
            // All are on one subnet: the next hop may remain the sender's (RFC 4271 §5.1.3).
            Passing::External(_, own) => {
                received.local_pref.is_none()
                    && received.originator.is_none()
                    && received.clusters.is_none()
                    && (hop == Some(&own) || hop == Some(&set.sent.next_hop))
            }
        }
    }
}

/// Returns the AS path that identifies set `number`, from `first` over `between`.
pub fn path_of_set(number: usize, first: u32, between: &[u32]) -> Vec<u32> {
    let mut path = vec![first];
    path.extend(between);
    path.push(SET_AS + number as u32);
    path
}

/// Prefixes that one session sends with one set of attributes.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The set.
    pub tag: Tag,
    /// The numbers of the prefixes, all of one family.
    pub numbers: Vec<usize>,
}

/// All routes of a workload.
#[derive(Debug)]
pub struct Routes {
    /// The prefixes.
    pub prefixes: Prefixes,
    /// The attribute sets.
    pub sets: Sets,
    /// The sent bundles, in this order in each session.
    pub bundles: Vec<Bundle>,
    /// By prefix, the set of the best path while everything is announced.
    pub winners: Vec<Tag>,
}

impl Routes {
    /// Returns the UPDATEs with which `session` announces the bundles that `pick` selects by their
    /// index.
    pub fn announcements(
        &self,
        session: usize,
        pick: impl Fn(usize) -> bool,
        path_id: Option<u32>,
    ) -> Vec<u8> {
        let mut octets = vec![];
        for (set, prefixes) in self.picked(session, pick) {
            octets.extend(announce(&set.sent, &prefixes, path_id));
        }
        octets
    }

    /// Returns the UPDATEs with which `session` withdraws them.
    pub fn withdrawals(
        &self,
        session: usize,
        pick: impl Fn(usize) -> bool,
        path_id: Option<u32>,
    ) -> Vec<u8> {
        let prefixes = self
            .picked(session, pick)
            .flat_map(|(_, prefixes)| prefixes);
        let (v4, v6): (Vec<_>, Vec<_>) = prefixes.partition(|p| matches!(p, Prefix::V4(..)));
        let mut octets = withdraw(&v4, path_id);
        octets.extend(withdraw(&v6, path_id));
        octets
    }

    fn picked(
        &self,
        session: usize,
        pick: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = (&Set, Vec<Prefix>)> {
        let bundles = self.bundles.iter().enumerate();
        bundles.filter_map(move |(place, bundle)| {
            let set = self.sets.get(bundle.tag)?;
            let numbers = bundle.numbers.iter();
            (set.source == session && pick(place)).then(|| {
                (
                    set,
                    numbers.map(|&number| self.prefixes.get(number)).collect(),
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets() -> Sets {
        let set = |source: u32| Set {
            source: source as usize,
            sent: Attributes {
                next_hop: (CLIENTS + source).to_be_bytes(),
                local_pref: Some(100),
                ..Attributes::default()
            },
        };
        Sets::new(vec![set(0), set(1)], Passing::Reflected([10, 0, 0, 9]))
    }

    #[test]
    fn attributes_are_right_in_one_way_only() {
        let (sets, client) = (sets(), (CLIENTS + 1).to_be_bytes());
        let right = Received {
            origin: Some(&[0]),
            path: Some(&[]),
            next_hop: Some(&client),
            local_pref: Some(&[0, 0, 0, 100]),
            originator: Some(&client),
            clusters: Some(&[10, 0, 0, 9]),
            ..Received::default()
        };
        assert_eq!(sets.identify(&right).expect("right"), 2);
        let other = CLIENTS.to_be_bytes();
        let wrong = [
            Received {
                origin: Some(&[2]),
                ..right
            },
            Received {
                path: Some(&[2, 1, 0, 0, 0, 1]),
                ..right
            },
            Received {
                next_hop: Some(&other),
                ..right
            },
            Received {
                local_pref: None,
                ..right
            },
            Received {
                med: Some(&[0, 0, 0, 1]),
                ..right
            },
            Received {
                communities: Some(&[0, 0, 0, 1]),
                ..right
            },
            Received {
                originator: Some(&other),
                ..right
            },
            Received {
                originator: None,
                ..right
            },
            Received {
                clusters: None,
                ..right
            },
            Received {
                clusters: Some(&[10, 0, 0, 9, 10, 0, 0, 9]),
                ..right
            },
        ];
        for wrong in wrong {
            assert!(sets.identify(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn prefix_is_found_by_address_and_length() {
        let prefixes = Prefixes::new(
            vec![Prefix::V4(0x0a00_0100, 24), Prefix::V4(0x0a00_0200, 23)],
            8,
            2,
        );
        assert_eq!(prefixes.find_v4(0x0a00_0200, 23), Some(1));
        assert_eq!(prefixes.find_v4(0x0a00_0200, 24), None);
        assert_eq!(prefixes.find_v4(0x0a00_0000, 24), None);
        assert_eq!(prefixes.find_v4(0xffff_ff00, 24), None);
        let Prefix::V6(half) = prefixes.get(3) else {
            panic!("an IPv6 prefix");
        };
        assert_eq!(prefixes.find_v6(half), Some(3));
        assert_eq!(prefixes.find_v6(half + 1), None);
        assert_eq!(prefixes.find_v6(0), None);
    }
}
