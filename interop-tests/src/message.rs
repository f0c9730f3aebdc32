//! UPDATEs by hand, also such as nobody should send.

use std::net::Ipv4Addr;

use bgp_proto::{
    AttrCode,
    attr::{FLAG_EXTENDED_LENGTH, FLAG_OPTIONAL, FLAG_TRANSITIVE},
};
use ipnet::Ipv4Net;

/// Flags of the well-known attributes.
pub const WELL_KNOWN: u8 = FLAG_TRANSITIVE;
/// Flags of optional attributes that go no further unless they are understood.
pub const OPTIONAL: u8 = FLAG_OPTIONAL;
/// Flags of optional attributes that go on.
pub const OPTIONAL_TRANSITIVE: u8 = FLAG_OPTIONAL | FLAG_TRANSITIVE;

/// An UPDATE for IPv4 unicast.
#[derive(Clone, Debug, Default)]
pub struct Update {
    withdrawn: Vec<u8>,
    attributes: Vec<(AttrCode, Vec<u8>)>,
    nlri: Vec<u8>,
}

impl Update {
    /// A plain internal route: ORIGIN, an empty AS_PATH, NEXT_HOP and LOCAL_PREF.
    pub fn via(next_hop: Ipv4Addr) -> Self {
        Self::default()
            .with(WELL_KNOWN, AttrCode::Origin, &[0])
            .with(WELL_KNOWN, AttrCode::AsPath, &[])
            .with(WELL_KNOWN, AttrCode::NextHop, &next_hop.octets())
            .with(WELL_KNOWN, AttrCode::LocalPref, &100_u32.to_be_bytes())
    }

    /// With one more attribute.
    #[must_use]
    pub fn with(self, flags: u8, code: AttrCode, value: &[u8]) -> Self {
        let octets = match u8::try_from(value.len()) {
            Ok(len) => [&[flags, code.0, len], value].concat(),
            Err(_) => {
                let len = u16::try_from(value.len()).expect("an attribute that fits");
                let flags = flags | FLAG_EXTENDED_LENGTH;
                [&[flags, code.0][..], &len.to_be_bytes(), value].concat()
            }
        };
        self.with_octets(code, &octets)
    }

    /// With one more attribute as it is, head and all.
    #[must_use]
    pub fn with_octets(mut self, code: AttrCode, octets: &[u8]) -> Self {
        self.attributes.push((code, octets.to_vec()));
        self
    }

    /// Without an attribute.
    #[must_use]
    pub fn without(mut self, code: AttrCode) -> Self {
        self.attributes.retain(|(present, _)| *present != code);
        self
    }

    /// With another value, or other flags, of an attribute.
    #[must_use]
    pub fn replacing(self, flags: u8, code: AttrCode, value: &[u8]) -> Self {
        self.without(code).with(flags, code, value)
    }

    /// Announcing `net`.
    #[must_use]
    pub fn announcing(mut self, net: Ipv4Net) -> Self {
        self.nlri.extend(nlri(net));
        self
    }

    /// Announcing what these octets say.
    #[must_use]
    pub fn announcing_octets(mut self, octets: &[u8]) -> Self {
        self.nlri.extend(octets);
        self
    }

    /// Withdrawing `net`.
    #[must_use]
    pub fn withdrawing(mut self, net: Ipv4Net) -> Self {
        self.withdrawn.extend(nlri(net));
        self
    }

    /// The whole message.
    ///
    /// # Panics
    /// If it has more octets than a message may.
    pub fn encode(&self) -> Vec<u8> {
        let attributes = self.attributes.iter();
        let attributes: Vec<u8> = attributes.flat_map(|(_, octets)| octets.clone()).collect();
        let field = |octets: &[u8]| {
            let len = u16::try_from(octets.len()).expect("a field that fits");
            [&len.to_be_bytes(), octets].concat()
        };
        let body = [
            field(&self.withdrawn),
            field(&attributes),
            self.nlri.clone(),
        ]
        .concat();
        let len = u16::try_from(19 + body.len()).expect("a message that fits");
        [&[0xff; 16][..], &len.to_be_bytes(), &[2], &body].concat()
    }
}

/// A prefix as a message has it.
pub fn nlri(net: Ipv4Net) -> Vec<u8> {
    let octets = usize::from(net.prefix_len().div_ceil(8));
    [&[net.prefix_len()], &net.network().octets()[..octets]].concat()
}
