//! Encoding and decoding of UPDATEs by the load generator.
//!
//! Separate from `bgp-proto` on purpose: a checker that shares its codec with the daemon under test
//! would share its mistakes, and a decoder of only what the workloads send takes less time than the
//! daemons. It rejects everything else. `testkit` provides headers, OPENs and the other messages.

use std::net::Ipv4Addr;

use bgp_io::bgp_proto::{
    AddPathMode, Asn, Capability, Family, HEADER_OCTETS, MESSAGE_OCTETS_MAX, MessageKind, Open,
    RouterId,
};
use testkit::{Encode, Raw};

mod read;

pub use read::{Received, Update, prefixes_v4, prefixes_v6};

const UPDATE: u8 = MessageKind::Update.0;

/// The capabilities and parameters that a speaker offers in its OPEN.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Its autonomous system.
    pub asn: u32,
    /// Its BGP identifier.
    pub id: Ipv4Addr,
    /// Hold time in seconds.
    pub hold_time_s: u16,
    /// Whether IPv6 routes are carried, too.
    pub ipv6: bool,
    /// Whether ADD-PATH is offered in both directions.
    pub add_path: bool,
}

impl Offer {
    /// Returns the OPEN with MP, four-octet AS and the other offered capabilities.
    pub fn open(&self) -> Open {
        let families = [Family::IPV4_UNICAST, Family::IPV6_UNICAST];
        let families = &families[..if self.ipv6 { 2 } else { 1 }];
        let mut capabilities = vec![
            Capability::RouteRefresh,
            Capability::FourOctetAsn(Asn(self.asn)),
        ];
        capabilities.extend(families.iter().copied().map(Capability::MultiProtocol));
        if self.add_path {
            let both = families.iter().map(|family| (*family, AddPathMode::Both));
            capabilities.push(Capability::AddPath(both.collect()));
        }
        Open {
            asn: Asn(self.asn),
            hold_time: self.hold_time_s,
            id: RouterId(self.id),
            capabilities,
        }
    }
}

/// The range of clients without a configuration of their own.
#[derive(Clone, Copy, Debug)]
pub struct Range;

impl Range {
    /// Their addresses.
    pub const PREFIX: &str = "10.127.0.0/16";
    /// How many may be connected at once.
    pub const LIMIT: u16 = 100;

    /// Returns an address of the range.
    pub fn address(nth: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from_be_bytes([10, 127, 0, 1]) + nth)
    }
}

/// ADD-PATH for IPv4 in a daemon's OPEN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddPath {
    /// It accepts path identifiers.
    pub receives: bool,
    /// It sends them to a peer that accepts them.
    pub sends: bool,
}

impl AddPath {
    /// Looks for ADD-PATH (RFC 7911 §4) in an OPEN.
    pub fn of(open: &Open) -> Self {
        let offers = open
            .capabilities
            .iter()
            .flat_map(|capability| match capability {
                Capability::AddPath(families) => families.as_slice(),
                _ => &[],
            });
        let mut found = Self::default();
        for (_, mode) in offers.filter(|(family, _)| *family == Family::IPV4_UNICAST) {
            found.receives |= *mode != AddPathMode::Send;
            found.sends |= *mode != AddPathMode::Receive;
        }
        found
    }
}

/// The attributes of a set of routes, without the prefixes.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// AS_PATH as one sequence.
    pub path: Vec<u32>,
    /// NEXT_HOP; see [`next_hop_v6`] for the IPv6 form of IPv6 routes.
    pub next_hop: [u8; 4],
    /// LOCAL_PREF, inside an AS.
    pub local_pref: Option<u32>,
    /// COMMUNITIES.
    pub communities: Vec<u32>,
}

impl Attributes {
    fn encode(&self, next_hop: bool) -> Vec<u8> {
        let mut octets = vec![0x40, 1, 1, 0];
        let path = sequence(&self.path);
        octets.extend([0x40, 2, length8(path.len())]);
        octets.extend(path);
        if next_hop {
            octets.extend([0x40, 3, 4]);
            octets.extend(self.next_hop);
        }
        if let Some(preference) = self.local_pref {
            octets.extend([0x40, 5, 4]);
            octets.extend(preference.to_be_bytes());
        }
        if !self.communities.is_empty() {
            octets.extend([0xc0, 8, length8(4 * self.communities.len())]);
            octets.extend(
                self.communities
                    .iter()
                    .flat_map(|value| value.to_be_bytes()),
            );
        }
        octets
    }
}

/// Returns the value of an AS_PATH of one sequence; empty for an empty path.
pub fn sequence(path: &[u32]) -> Vec<u8> {
    let mut octets = Vec::with_capacity(2 + 4 * path.len());
    if !path.is_empty() {
        octets.extend([2, length8(path.len())]);
        octets.extend(path.iter().flat_map(|asn| asn.to_be_bytes()));
    }
    octets
}

/// Returns the IPv6 next hop for an IPv4 address: fd00:: with the address in its last octets.
pub fn next_hop_v6(address: [u8; 4]) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[0] = 0xfd;
    octets[12..].copy_from_slice(&address);
    octets
}

/// A prefix of either family; all IPv6 prefixes are /64, so their first half identifies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Address and length.
    V4(u32, u8),
    /// The first half of the address of a /64.
    V6(u64),
}

impl Prefix {
    fn push(self, octets: &mut Vec<u8>, path_id: Option<u32>) {
        octets.extend(path_id.into_iter().flat_map(u32::to_be_bytes));
        match self {
            Self::V4(address, length) => {
                octets.push(length);
                let kept = usize::from(length).div_ceil(8);
                octets.extend(&address.to_be_bytes()[..kept]);
            }
            Self::V6(half) => {
                octets.push(64);
                octets.extend(half.to_be_bytes());
            }
        }
    }
}

/// Returns the UPDATEs that announce `prefixes`, all of one family, with one set of attributes.
pub fn announce(attributes: &Attributes, prefixes: &[Prefix], path_id: Option<u32>) -> Vec<u8> {
    let v6 = matches!(prefixes.first(), Some(Prefix::V6(_)));
    let rest = attributes.encode(!v6);
    cut(
        prefixes,
        path_id,
        HEADER_OCTETS + 4 + 26 + rest.len(),
        |nlri| {
            let mut body = vec![0, 0];
            if v6 {
                let mut reach = vec![0, 2, 1, 16];
                reach.extend(next_hop_v6(attributes.next_hop));
                reach.push(0);
                reach.extend(nlri);
                body.extend(length16(4 + reach.len() + rest.len()));
                body.extend([0x90, 14]);
                body.extend(length16(reach.len()));
                body.extend(reach);
                body.extend(&rest);
            } else {
                body.extend(length16(rest.len()));
                body.extend(&rest);
                body.extend(nlri);
            }
            body
        },
    )
}

/// Returns the UPDATEs that withdraw `prefixes`, all of one family.
pub fn withdraw(prefixes: &[Prefix], path_id: Option<u32>) -> Vec<u8> {
    let v6 = matches!(prefixes.first(), Some(Prefix::V6(_)));
    cut(prefixes, path_id, HEADER_OCTETS + 4 + 7, |nlri| {
        let mut body = vec![];
        if v6 {
            body.extend([0, 0]);
            body.extend(length16(7 + nlri.len()));
            body.extend([0x90, 15]);
            body.extend(length16(3 + nlri.len()));
            body.extend([0, 2, 1]);
            body.extend(nlri);
        } else {
            body.extend(length16(nlri.len()));
            body.extend(nlri);
            body.extend([0, 0]);
        }
        body
    })
}

/// Writes as many messages as `prefixes` need, with `fixed` octets in each.
fn cut(
    prefixes: &[Prefix],
    path_id: Option<u32>,
    fixed: usize,
    body: impl Fn(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let (mut octets, mut nlri) = (vec![], vec![]);
    for prefix in prefixes {
        if fixed + nlri.len() + 13 > MESSAGE_OCTETS_MAX {
            octets.extend(Raw(UPDATE, &body(&nlri)).octets());
            nlri.clear();
        }
        prefix.push(&mut nlri, path_id);
    }
    if !nlri.is_empty() {
        octets.extend(Raw(UPDATE, &body(&nlri)).octets());
    }
    octets
}

/// Returns the mask of a prefix length.
pub const fn mask(length: u8) -> u32 {
    if length == 0 {
        0
    } else {
        u32::MAX << (32 - length as u32)
    }
}

fn length8(length: usize) -> u8 {
    u8::try_from(length).expect("the workloads keep attributes short")
}

fn length16(length: usize) -> [u8; 2] {
    let length = u16::try_from(length).expect("the workloads keep messages short");
    length.to_be_bytes()
}

#[cfg(test)]
mod tests;
