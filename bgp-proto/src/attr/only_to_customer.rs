//! ONLY_TO_CUSTOMER: a mark against route leaks (RFC 9234 §5). It is carried unchanged; the speaker
//! has no BGP Role and so neither adds it nor acts on it.

use crate::asn::Asn;
use crate::attr::field::Item;
use crate::attr::report::Report;

/// The AS that marked the route. A length other than 4 is malformed (RFC 9234 §5).
impl Item for Asn {
    type Octets = [u8; 4];

    fn from_octets(octets: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(octets))
    }

    fn octets(&self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    fn report(&self) -> Report {
        Report::Number(u64::from(self.0))
    }
}

#[cfg(test)]
mod tests {
    use crate::attr::samples::*;
    use crate::{Asn, FaultKind, Remedy};

    const OTC: &[u8] = &[0xc0, 35, 4, 0, 1, 0, 0];

    #[test]
    fn otc_passes_unchanged_and_without_partial() {
        let set = decoded(OTC);
        assert_eq!(set.rare.otc, Some(Asn(65_536)));
        assert_eq!(encoded(&set), OTC);
        let partial = &[0xe0, 35, 4, 0, 1, 0, 0];
        assert_eq!(encoded(&decoded(partial)), partial, "a Partial flag stays");
        assert_eq!(shown(&set), "ONLY_TO_CUSTOMER 65536");
    }

    #[test]
    fn otc_of_another_length_withdraws_the_route() {
        for octets in [&[0xc0, 35, 0][..], &[0xc0, 35, 3, 0, 0, 1]] {
            let (kind, remedy) = fault(octets);
            assert_eq!((kind, remedy), (FaultKind::Length, Remedy::TreatAsWithdraw));
        }
        let (kind, remedy) = fault(&[0x80, 35, 4, 0, 0, 0, 1]);
        assert_eq!((kind, remedy), (FaultKind::Flags, Remedy::TreatAsWithdraw));
    }
}
