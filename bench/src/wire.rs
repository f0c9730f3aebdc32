//! The octets of BGP, as the load generator writes and reads them.
//!
//! Apart from `bgp-proto` on purpose: a judge that shares its codec with the judged sees none of
//! its mistakes. It knows only what the workloads send, and refuses everything else.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};

mod read;

pub use read::{Received, Update, prefixes_v4, prefixes_v6};

/// Octets of a message's header.
pub const HEADER: usize = 19;
/// The largest message (RFC 4271 §4.1).
pub const MESSAGE_MAX: usize = 4096;

/// OPEN.
pub const OPEN: u8 = 1;
/// UPDATE.
pub const UPDATE: u8 = 2;
/// NOTIFICATION.
pub const NOTIFICATION: u8 = 3;
/// KEEPALIVE.
pub const KEEPALIVE: u8 = 4;

/// What a speaker offers when it opens a session.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Its autonomous system.
    pub asn: u32,
    /// Its BGP identifier.
    pub id: Ipv4Addr,
    /// Hold time in seconds.
    pub hold_time_s: u16,
    /// Whether IPv6 routes are carried too.
    pub ipv6: bool,
    /// Whether ADD-PATH is offered in both directions.
    pub add_path: bool,
}

/// Puts a header in front of `body`.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut octets = vec![0xff; 16];
    octets.extend(length16(HEADER + body.len()));
    octets.push(kind);
    octets.extend(body);
    octets
}

/// A KEEPALIVE.
pub fn keepalive() -> Vec<u8> {
    message(KEEPALIVE, &[])
}

/// An OPEN with MP, four-octet AS, route refresh and what else is offered.
pub fn open(offer: &Offer) -> Vec<u8> {
    let afis: &[u8] = if offer.ipv6 { &[1, 2] } else { &[1] };
    let mut capabilities = vec![2, 0, 65, 4];
    capabilities.extend(offer.asn.to_be_bytes());
    for afi in afis {
        capabilities.extend([1, 4, 0, *afi, 0, 1]);
    }
    if offer.add_path {
        capabilities.extend([69, length8(4 * afis.len())]);
        afis.iter()
            .for_each(|afi| capabilities.extend([0, *afi, 1, 3]));
    }
    // RFC 6793 §9: AS_TRANS where two octets are too few.
    let short = u16::try_from(offer.asn).unwrap_or(23456);
    let mut body = vec![4];
    body.extend(short.to_be_bytes());
    body.extend(offer.hold_time_s.to_be_bytes());
    body.extend(offer.id.octets());
    let length = length8(capabilities.len());
    body.extend([length + 2, 2, length]);
    body.extend(capabilities);
    message(OPEN, &body)
}

/// What a daemon's OPEN says about ADD-PATH for IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddPath {
    /// It takes path identifiers.
    pub receives: bool,
    /// It sends them, if we take them.
    pub sends: bool,
}

/// Looks for ADD-PATH (RFC 7911 §4) in the body of an OPEN.
pub fn add_path_of(open: &[u8]) -> Result<AddPath> {
    let mut add_path = AddPath::default();
    let parameters = open.get(10..).unwrap_or_default();
    each_value(parameters, |kind, value| match kind {
        2 => each_value(value, |code, value| {
            for family in value.as_chunks().0.iter().filter(|_| code == 69) {
                if let [0, 1, 1, directions] = family {
                    add_path.receives |= directions & 1 != 0;
                    add_path.sends |= directions & 2 != 0;
                }
            }
            Ok(())
        }),
        _ => Ok(()),
    })?;
    Ok(add_path)
}

fn each_value(mut octets: &[u8], mut each: impl FnMut(u8, &[u8]) -> Result<()>) -> Result<()> {
    while let [kind, length, rest @ ..] = octets {
        let length = usize::from(*length);
        ensure!(
            length <= rest.len(),
            "a parameter of an OPEN that is too long"
        );
        each(*kind, &rest[..length])?;
        octets = &rest[length..];
    }
    Ok(())
}

/// The attributes of a set of routes, without the prefixes.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// AS_PATH as one sequence.
    pub path: Vec<u32>,
    /// NEXT_HOP; for IPv6 routes its IPv6 form, see [`next_hop_v6`].
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

/// The value of an AS_PATH of one sequence, empty for none.
pub fn sequence(path: &[u32]) -> Vec<u8> {
    let mut octets = Vec::with_capacity(2 + 4 * path.len());
    if !path.is_empty() {
        octets.extend([2, length8(path.len())]);
        octets.extend(path.iter().flat_map(|asn| asn.to_be_bytes()));
    }
    octets
}

/// The IPv6 next hop that stands for an IPv4 address: fd00:: with it at the end.
pub fn next_hop_v6(address: [u8; 4]) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[0] = 0xfd;
    octets[12..].copy_from_slice(&address);
    octets
}

/// A prefix of either family; IPv6 ones are all /64, so that their first half says all.
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

/// The UPDATEs that announce `prefixes`, all of one family, with one set of attributes.
pub fn announce(attributes: &Attributes, prefixes: &[Prefix], path_id: Option<u32>) -> Vec<u8> {
    let v6 = matches!(prefixes.first(), Some(Prefix::V6(_)));
    let rest = attributes.encode(!v6);
    cut(prefixes, path_id, HEADER + 4 + 26 + rest.len(), |nlri| {
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
    })
}

/// The UPDATEs that withdraw `prefixes`, all of one family.
pub fn withdraw(prefixes: &[Prefix], path_id: Option<u32>) -> Vec<u8> {
    let v6 = matches!(prefixes.first(), Some(Prefix::V6(_)));
    cut(prefixes, path_id, HEADER + 4 + 7, |nlri| {
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

/// The End-of-RIB marker of IPv4 (RFC 4724 §2).
pub fn end_of_rib() -> Vec<u8> {
    message(UPDATE, &[0, 0, 0, 0])
}

/// Writes as many messages as `prefixes` take, beside `fixed` octets in each.
fn cut(
    prefixes: &[Prefix],
    path_id: Option<u32>,
    fixed: usize,
    body: impl Fn(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let (mut octets, mut nlri) = (vec![], vec![]);
    for prefix in prefixes {
        if fixed + nlri.len() + 13 > MESSAGE_MAX {
            octets.extend(message(UPDATE, &body(&nlri)));
            nlri.clear();
        }
        prefix.push(&mut nlri, path_id);
    }
    if !nlri.is_empty() {
        octets.extend(message(UPDATE, &body(&nlri)));
    }
    octets
}

/// The length of the message at the start of `octets`; `None` while its header is not whole.
pub fn frame(octets: &[u8]) -> Result<Option<usize>> {
    let Some(header) = octets.get(..HEADER) else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
    ensure!(
        header[..16] == [0xff; 16] && (HEADER..=MESSAGE_MAX).contains(&length),
        "not a BGP header: {header:02x?}"
    );
    Ok(Some(length))
}

/// The mask of a prefix length.
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
