//! UPDATEs attribute by attribute, also malformed ones.

use std::net::Ipv4Addr;

use bgp_proto::attr::{FLAG_EXTENDED_LENGTH, FLAG_OPTIONAL, FLAG_TRANSITIVE};
use bgp_proto::{Asn, AttrCode, ClusterId, Ipv4Prefix, MessageKind};
use bytes::BytesMut;

use crate::message::{Encode, Raw};

/// Flags of the well-known attributes.
pub const WELL_KNOWN: u8 = FLAG_TRANSITIVE;
/// Flags of optional attributes that a receiver passes on only if it understands them.
pub const OPTIONAL: u8 = FLAG_OPTIONAL;
/// Flags of optional attributes that a receiver passes on in any case.
pub const OPTIONAL_TRANSITIVE: u8 = FLAG_OPTIONAL | FLAG_TRANSITIVE;

/// The next hop of [`Update::reach`].
const NEXT_HOP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);

/// An UPDATE for IPv4 unicast (RFC 4271 §4.3), encoded without the codec of `bgp-proto`, which is
/// usually the subject of the test. Other families go into MP_REACH_NLRI, as octets.
#[derive(Clone, Debug, Default)]
pub struct Update {
    withdrawn: Vec<u8>,
    attributes: Vec<(AttrCode, Vec<u8>)>,
    nlri: Vec<u8>,
}

impl Update {
    /// Returns a plain internal route without destinations: ORIGIN, an empty AS_PATH, NEXT_HOP and
    /// LOCAL_PREF.
    pub fn via(next_hop: Ipv4Addr) -> Self {
        Self::default()
            .with(WELL_KNOWN, AttrCode::Origin, &[0])
            .with(WELL_KNOWN, AttrCode::AsPath, &[])
            .with(WELL_KNOWN, AttrCode::NextHop, &next_hop.octets())
            .with(WELL_KNOWN, AttrCode::LocalPref, &100_u32.to_be_bytes())
    }

    /// Returns a plain internal route to these prefixes by way of 10.0.0.99.
    ///
    /// # Panics
    /// If one of them is no IPv4 prefix.
    pub fn reach<T: AsRef<str>>(nets: impl AsRef<[T]>) -> Self {
        let nets = nets.as_ref().iter();
        nets.fold(Self::via(NEXT_HOP), |update, net| {
            update.announcing(parsed(net.as_ref()))
        })
    }

    /// Returns the withdrawal of these prefixes.
    ///
    /// # Panics
    /// If one of them is no IPv4 prefix.
    pub fn unreach<T: AsRef<str>>(nets: impl AsRef<[T]>) -> Self {
        let nets = nets.as_ref().iter();
        nets.fold(Self::default(), |update, net| {
            update.withdrawing(parsed(net.as_ref()))
        })
    }

    /// Adds an attribute.
    ///
    /// # Panics
    /// If its value has more than 65,535 octets.
    #[must_use]
    pub fn with(self, flags: u8, code: AttrCode, value: &[u8]) -> Self {
        let octets = match u8::try_from(value.len()) {
            Ok(len) => [&[flags, code.0, len], value].concat(),
            Err(_) => {
                let flags = flags | FLAG_EXTENDED_LENGTH;
                [&[flags, code.0][..], &length(value), value].concat()
            }
        };
        self.with_octets(code, &octets)
    }

    /// Adds an attribute as it is, flags, code and length included.
    #[must_use]
    pub fn with_octets(mut self, code: AttrCode, octets: &[u8]) -> Self {
        self.attributes.push((code, octets.to_vec()));
        self
    }

    /// Removes an attribute.
    #[must_use]
    pub fn without(mut self, code: AttrCode) -> Self {
        self.attributes.retain(|(present, _)| *present != code);
        self
    }

    /// Replaces an attribute's value and flags; it becomes the last one.
    ///
    /// # Panics
    /// If the value has more than 65,535 octets.
    #[must_use]
    pub fn replacing(self, flags: u8, code: AttrCode, value: &[u8]) -> Self {
        self.without(code).with(flags, code, value)
    }

    /// Replaces AS_PATH by one sequence of four-octet AS numbers, and NEXT_HOP.
    ///
    /// # Panics
    /// If there are more than 255 AS numbers, or the UPDATE has no AS_PATH or no NEXT_HOP.
    #[must_use]
    pub fn path(mut self, asns: &[Asn], next_hop: Ipv4Addr) -> Self {
        let mut value = vec![2, u8::try_from(asns.len()).expect("at most 255 AS numbers")];
        value.extend(asns.iter().flat_map(|asn| asn.0.to_be_bytes()));
        for (code, value) in [
            (AttrCode::AsPath, value),
            (AttrCode::NextHop, next_hop.octets().to_vec()),
        ] {
            let octets = Self::default().with(WELL_KNOWN, code, &value).attributes;
            let place = self.attributes.iter_mut().find(|(of, _)| *of == code);
            let place = place.expect("a route");
            *place = octets.into_iter().next().expect("one attribute");
        }
        self
    }

    /// Adds CLUSTER_LIST (RFC 4456 §8).
    ///
    /// # Panics
    /// If there are more than 16,383 cluster IDs.
    #[must_use]
    pub fn clusters(self, clusters: &[ClusterId]) -> Self {
        let value: Vec<u8> = clusters.iter().flat_map(|id| id.0.octets()).collect();
        self.with(OPTIONAL, AttrCode::ClusterList, &value)
    }

    /// Announces `net`.
    #[must_use]
    pub fn announcing(self, net: impl Into<Ipv4Prefix>) -> Self {
        self.announcing_octets(&nlri(net))
    }

    /// Appends octets to the announced prefixes as they are.
    #[must_use]
    pub fn announcing_octets(mut self, octets: &[u8]) -> Self {
        self.nlri.extend(octets);
        self
    }

    /// Withdraws `net`.
    #[must_use]
    pub fn withdrawing(mut self, net: impl Into<Ipv4Prefix>) -> Self {
        self.withdrawn.extend(nlri(net));
        self
    }
}

impl Encode for Update {
    /// # Panics
    /// If the message, or the length of one of its parts, is greater than its length field can
    /// express: 65,535 octets.
    fn encode(&self, out: &mut BytesMut) {
        let attributes = self.attributes.iter();
        let attributes: Vec<u8> = attributes.flat_map(|(_, octets)| octets.clone()).collect();
        let body = [
            &length(&self.withdrawn),
            &*self.withdrawn,
            &length(&attributes),
            &attributes,
            &self.nlri,
        ];
        Raw(MessageKind::Update.0, &body.concat()).encode(out);
    }
}

fn length(octets: &[u8]) -> [u8; 2] {
    let length = u16::try_from(octets.len()).expect("at most 65,535 octets");
    length.to_be_bytes()
}

fn parsed(net: &str) -> Ipv4Prefix {
    let parsed = net.parse();
    parsed.unwrap_or_else(|_| panic!("{net} is no IPv4 prefix"))
}

/// Returns a prefix as an UPDATE has it: its length, and as many octets as that takes.
pub fn nlri(net: impl Into<Ipv4Prefix>) -> Vec<u8> {
    let net = net.into();
    let octets = usize::from(net.len().div_ceil(8));
    [&[net.len()], &net.addr().octets()[..octets]].concat()
}

#[cfg(test)]
mod tests {
    use bgp_proto::{FamilySet, PeerKind, SessionParams, UpdateView, next_frame};

    use super::*;

    #[test]
    fn update_of_the_builder_is_read_without_faults() {
        let values: Vec<[u8; 4]> = (0..100_u32).map(u32::to_be_bytes).collect();
        let long = Update::reach(["10.65.0.0/16", "10.66.7.8/32"])
            .path(&[Asn(65_001), Asn(70_000)], Ipv4Addr::new(192, 0, 2, 7))
            .clusters(&[ClusterId(NEXT_HOP)])
            .with(OPTIONAL_TRANSITIVE, AttrCode::Communities, &values.concat());
        let params = SessionParams {
            as4: true,
            families: FamilySet::UNICAST,
            kind: PeerKind::Internal,
            ..SessionParams::default()
        };
        let frame = next_frame(&mut long.octets(), 4096).unwrap().unwrap();
        let (view, faults) = UpdateView::parse(&frame.body, &params).unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        let batch = view.batches().next().unwrap();
        assert_eq!(batch.reach.map(Result::unwrap).count(), 2);
        let (attributes, faults) = batch.attrs.unwrap().parse();
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(attributes.as_path.to_string(), "65001 70000");
        assert_eq!(attributes.local_pref, Some(100));
        assert_eq!(attributes.cluster_list, [ClusterId(NEXT_HOP)]);
        assert_eq!(attributes.communities.len(), 100);
    }
}
