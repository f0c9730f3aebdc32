//! Sets of numbers as ranges: addresses, protocols, ports, types and states.

use std::net::IpAddr;

use crate::family::Family;

/// A set of numbers: ranges in order that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// Returns the set of one number.
    pub fn one(value: u128) -> Self {
        Self(vec![(value, value)])
    }

    /// Returns the union of ranges in any order. A range of which the end is before the start is empty.
    pub fn of(ranges: impl IntoIterator<Item = (u128, u128)>) -> Self {
        let mut given: Vec<(u128, u128)> = ranges
            .into_iter()
            .filter(|(first, last)| first <= last)
            .collect();
        given.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(given.len());
        for (first, last) in given {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        merged.shrink_to_fit();
        Self(merged)
    }

    /// Returns whether the set contains a number.
    pub fn contains(&self, value: u128) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= value);
        after > 0
            && self
                .0
                .get(after - 1)
                .is_some_and(|(_, last)| value <= *last)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (u128, u128)> + '_ {
        self.0.iter().copied()
    }

    /// Returns the numbers that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut at, mut beside) = (0, 0);
        let mut common = Vec::new();
        while let (Some(one), Some(two)) = (self.0.get(at), other.0.get(beside)) {
            let (first, last) = (one.0.max(two.0), one.1.min(two.1));
            if first <= last {
                common.push((first, last));
            }
            if one.1 < two.1 {
                at += 1;
            } else {
                beside += 1;
            }
        }
        Self::of(common)
    }
}

/// Returns the number of an address.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Returns the address with a number.
pub fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(u32::try_from(number).unwrap_or(u32::MAX).into()),
        Family::V6 => IpAddr::V6(number.into()),
    }
}

/// Returns the first and last address of a network.
pub fn network(base: IpAddr, length: u8) -> Option<(Family, (u128, u128))> {
    let (family, bits) = match base {
        IpAddr::V4(_) => (Family::V4, 32_u32),
        IpAddr::V6(_) => (Family::V6, 128),
    };
    let free = bits.checked_sub(u32::from(length))?;
    let mask = u128::MAX.checked_shl(free).unwrap_or(0);
    let first = number(base) & mask;
    Some((family, (first, first | (!mask & family.last()))))
}

/// Parses an address, or a network such as `10.65.0.0/16`.
pub fn parse_network(text: &str) -> Option<(Family, (u128, u128))> {
    let (base, length) = match text.split_once('/') {
        Some((base, length)) => (base, Some(length)),
        None => (text, None),
    };
    let base: IpAddr = base.parse().ok()?;
    let whole = if base.is_ipv4() { 32 } else { 128 };
    let length = match length {
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            digits.parse().ok()?
        }
        Some(_) => return None,
        None => whole,
    };
    network(base, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_and_searched() {
        let set = Ranges::of([(5, 7), (1, 2), (8, 9), (20, 10), (30, u128::MAX)]);
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [(1, 2), (5, 9), (30, u128::MAX)]
        );
        for (value, is_member) in [(0, false), (1, true), (3, false), (9, true), (10, false)] {
            assert_eq!(set.contains(value), is_member, "{value}");
        }
        let common = set.intersection(&Ranges::of([(2, 6), (9, 40)]));
        assert_eq!(
            common.iter().collect::<Vec<_>>(),
            [(2, 2), (5, 6), (9, 9), (30, 40)]
        );
        assert!(Ranges::default().is_empty());
    }

    #[test]
    fn networks_have_first_and_last_address() {
        let parsed = |text| {
            parse_network(text).map(|(family, (first, last))| {
                (
                    address(family, first).to_string(),
                    address(family, last).to_string(),
                )
            })
        };
        let pair = |one: &str, two: &str| Some((one.to_owned(), two.to_owned()));
        assert_eq!(parsed("10.1.2.3/8"), pair("10.0.0.0", "10.255.255.255"));
        assert_eq!(parsed("0.0.0.0/0"), pair("0.0.0.0", "255.255.255.255"));
        assert_eq!(parsed("fd65::7"), pair("fd65::7", "fd65::7"));
        assert_eq!(parsed("fd65::7/127"), pair("fd65::6", "fd65::7"));
        assert_eq!(parsed("::/0").map(|pair| pair.0), Some("::".to_owned()));
        for text in [
            "10.0.0.0/33",
            "10.0.0/8",
            "fd65::/129",
            "10.0.0.0/+8",
            "",
            "x",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
