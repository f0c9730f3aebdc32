//! Route target membership (RFC 4684): the NLRI of the family, and the routes that it selects.

use crate::asn::Asn;
use crate::community::ExtendedCommunity;
use crate::family::{FamilyRow, Framing};

/// Bits of the origin AS in the NLRI.
const ORIGIN_BITS: u8 = 32;

/// Bits of the longest NLRI: origin AS and route target.
const BITS_MAX: u8 = 96;

/// A route target membership: a prefix of an origin AS and a route target (RFC 4684 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteTargetMembership {
    /// 0, or 32 to 96.
    bits: u8,
    /// The bits, then zeros.
    value: u128,
}

impl RouteTargetMembership {
    /// The default membership: every route is wanted.
    pub const DEFAULT: Self = Self { bits: 0, value: 0 };

    /// Returns the membership of one route target that an AS has originated.
    pub const fn new(origin: Asn, target: ExtendedCommunity) -> Self {
        let value = (origin.0 as u128) << 64 | u64::from_be_bytes(target.0) as u128;
        Self {
            bits: BITS_MAX,
            value: value << (u128::BITS - BITS_MAX as u32),
        }
    }

    /// Reads one NLRI with its length field, as in [`Net::Opaque`](crate::Net::Opaque). Returns
    /// `None` for a length that RFC 4684 §4 does not allow, and for too many or too few octets. Bits
    /// beyond the length are ignored.
    pub fn from_nlri(nlri: &[u8]) -> Option<Self> {
        let (&bits, rest) = nlri.split_first()?;
        let is_allowed = bits == 0 || (ORIGIN_BITS..=BITS_MAX).contains(&bits);
        if !is_allowed || rest.len() != usize::from(bits).div_ceil(8) {
            return None;
        }
        let mut octets = [0; 16];
        octets.get_mut(..rest.len())?.copy_from_slice(rest);
        let value = u128::from_be_bytes(octets) & front(bits);
        Some(Self { bits, value })
    }

    /// Appends the NLRI with its length field.
    pub fn put_nlri(&self, out: &mut alloc::vec::Vec<u8>) {
        out.push(self.bits);
        let octets = self.value.to_be_bytes();
        let len = usize::from(self.bits).div_ceil(8);
        out.extend_from_slice(octets.get(..len).unwrap_or(&octets));
    }

    /// Returns whether it is the default membership.
    pub const fn is_default(&self) -> bool {
        self.bits == 0
    }

    /// Returns the AS that originated it; `None` for the default membership.
    pub const fn origin(&self) -> Option<Asn> {
        match self.bits {
            0 => None,
            _ => Some(Asn((self.value >> (u128::BITS - ORIGIN_BITS as u32)) as u32)),
        }
    }

    /// Returns the wanted route targets.
    pub const fn targets(&self) -> RouteTargetPrefix {
        RouteTargetPrefix {
            bits: self.bits.saturating_sub(ORIGIN_BITS),
            value: (self.value >> ORIGIN_BITS) as u64,
        }
    }
}

/// The `bits` highest bits.
const fn front(bits: u8) -> u128 {
    match bits {
        0 => 0,
        bits => u128::MAX << (u128::BITS - bits as u32),
    }
}

/// The route targets with the same first bits, which a membership selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteTargetPrefix {
    /// At most 64.
    bits: u8,
    /// The bits, then zeros.
    value: u64,
}

impl RouteTargetPrefix {
    /// The prefix of all route targets.
    pub const ALL: Self = Self { bits: 0, value: 0 };

    /// Returns the route targets that begin with as many bits of this one; 64 is the most.
    pub const fn of(target: ExtendedCommunity, bits: u8) -> Self {
        let bits = if bits > 64 { 64 } else { bits };
        let mask = match bits {
            0 => 0,
            bits => u64::MAX << (u64::BITS - bits as u32),
        };
        Self {
            bits,
            value: u64::from_be_bytes(target.0) & mask,
        }
    }

    /// Returns the number of common bits.
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns whether a route target has these bits.
    pub fn contains(&self, target: ExtendedCommunity) -> bool {
        Self::of(target, self.bits) == *self
    }
}

impl FamilyRow {
    /// Returns whether the family is that of route target memberships (RFC 4684).
    pub const fn is_membership(&self) -> bool {
        matches!(self.framing, Framing::RouteTarget)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{Family, Fault, FaultKind, Net, NlriIter};

    const TARGET: ExtendedCommunity = ExtendedCommunity::route_target_as2(64_512, 7);

    fn nlri(membership: RouteTargetMembership) -> Vec<u8> {
        let mut out = Vec::new();
        membership.put_nlri(&mut out);
        out
    }

    #[test]
    fn membership_has_the_octets_of_gobgp() {
        let one = RouteTargetMembership::new(Asn(64_513), TARGET);
        let octets = [96, 0, 0, 0xfc, 1, 0, 2, 0xfc, 0, 0, 0, 0, 7];
        assert_eq!(nlri(one), octets);
        assert_eq!(RouteTargetMembership::from_nlri(&octets), Some(one));
        assert_eq!(one.origin(), Some(Asn(64_513)));
        assert_eq!(one.targets(), RouteTargetPrefix::of(TARGET, 64));
        assert_eq!(nlri(RouteTargetMembership::DEFAULT), [0]);
        assert!(RouteTargetMembership::from_nlri(&[0]).is_some_and(|all| all.is_default()));
    }

    #[test]
    fn membership_selects_targets_with_its_bits() {
        let other = ExtendedCommunity::route_target_as2(64_512, 6);
        let far = ExtendedCommunity::route_target_as4(64_512, 7);
        for (octets, selected) in [
            (&[0][..], [true, true, true]),
            (&[32, 0, 0, 0xfc, 0], [true, true, true]),
            (&[40, 0, 0, 0xfc, 0, 0], [true, true, false]),
            (
                &[95, 0, 0, 0xfc, 0, 0, 2, 0xfc, 0, 0, 0, 0, 7],
                [true, true, false],
            ),
            (
                &[96, 0, 0, 0xfc, 0, 0, 2, 0xfc, 0, 0, 0, 0, 7],
                [true, false, false],
            ),
        ] {
            let read = RouteTargetMembership::from_nlri(octets).expect("allowed");
            let found = [TARGET, other, far].map(|target| read.targets().contains(target));
            assert_eq!(found, selected, "{octets:?}");
        }
    }

    /// RFC 4684 §4, RFC 7606 §5.3.
    #[test]
    fn length_beyond_the_allowed_ones_is_a_fault() {
        for bits in 0..=u8::MAX {
            let mut octets = alloc::vec![0xff; 1 + usize::from(bits).div_ceil(8)];
            octets[0] = bits;
            let is_allowed = bits == 0 || (32..=96).contains(&bits);
            let read = RouteTargetMembership::from_nlri(&octets);
            assert_eq!(read.is_some(), is_allowed, "{bits}");
            let first = NlriIter::new(Family::ROUTE_TARGET, false, &octets, 0).next();
            match first.expect("one") {
                Ok(found) => assert_eq!((found.net, is_allowed), (Net::Opaque(&octets), true)),
                Err(Fault { kind, .. }) => {
                    assert_eq!((kind, is_allowed), (FaultKind::OpaqueNlriSyntax, false));
                }
            }
            octets.push(0);
            assert_eq!(RouteTargetMembership::from_nlri(&octets), None, "{bits}");
        }
        assert_eq!(RouteTargetMembership::from_nlri(&[]), None);
        assert_eq!(RouteTargetMembership::from_nlri(&[33, 0, 0, 0, 0]), None);
    }
}
