//! Text forms: AS paths and communities as people write them.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

use alloc::vec::Vec;

use nom::branch::alt;
use nom::bytes::complete::{tag, take_while1};
use nom::character::complete::{char, one_of, space0, space1, u16 as number16, u32 as number32};
use nom::combinator::{all_consuming, map, map_opt, map_res, opt, value};
use nom::multi::{separated_list0, separated_list1};
use nom::sequence::{delimited, preceded, separated_pair};
use nom::{IResult, Parser};

use crate::asn::Asn;
use crate::attr::{AsPath, SegmentKind};
use crate::community::{Community, ExtendedCommunity, LargeCommunity};

/// The expected form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextError {
    /// An AS path: "64512 64513 {64514,64515}".
    AsPath,
    /// A community: "64512:100" or a well-known name.
    Community,
    /// An extended community: "rt:64512:100".
    ExtendedCommunity,
    /// A large community: "64512:1:2".
    LargeCommunity,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsPath => "not an AS path: write it like 64512 64513 {64514,64515}",
            Self::Community => "not a community: write it like 64512:100 or no-export",
            Self::ExtendedCommunity => {
                "not an extended community: write it like rt:64512:100 or 0x0002fc0000000064"
            }
            Self::LargeCommunity => "not a large community: write it like 64512:1:2",
        })
    }
}

impl core::error::Error for TextError {}

type Output<'a, T> = IResult<&'a str, T, ()>;

fn whole<'a, T>(parser: impl Parser<&'a str, Output = T, Error = ()>, text: &'a str) -> Option<T> {
    all_consuming(parser)
        .parse(text)
        .ok()
        .map(|(_, value)| value)
}

impl FromStr for AsPath {
    type Err = TextError;

    /// Parses the text of `Display`.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let path = delimited(space0, separated_list0(space1, segment), space0);
        let segments: Vec<(SegmentKind, Vec<Asn>)> = whole(path, text).ok_or(TextError::AsPath)?;
        Ok(Self::from_segments(
            segments.iter().map(|(kind, asns)| (*kind, asns.as_slice())),
        ))
    }
}

fn asn(text: &str) -> Output<'_, Asn> {
    let token = take_while1(|c: char| c.is_ascii_alphanumeric() || c == '.');
    // RFC 7607 §2: no path holds AS 0.
    map_opt(map_res(token, Asn::from_str), |asn| {
        (asn != Asn::ZERO).then_some(asn)
    })
    .parse(text)
}

fn segment(text: &str) -> Output<'_, (SegmentKind, Vec<Asn>)> {
    let comma = || delimited(space0, char(','), space0);
    alt((
        map(separated_list1(space1, asn), |asns| {
            (SegmentKind::Sequence, asns)
        }),
        map(
            delimited(char('{'), separated_list1(comma(), asn), char('}')),
            |asns| (SegmentKind::Set, asns),
        ),
        map(
            delimited(char('('), separated_list1(space1, asn), char(')')),
            |asns| (SegmentKind::ConfedSequence, asns),
        ),
        map(
            delimited(char('['), separated_list1(comma(), asn), char(']')),
            |asns| (SegmentKind::ConfedSet, asns),
        ),
    ))
    .parse(text)
}

impl FromStr for Community {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        if let Some(community) = Self::by_name(text) {
            return Ok(community);
        }
        let halves = separated_pair(number16, char(':'), number16);
        let (high, low) = whole(halves, text).ok_or(TextError::Community)?;
        Ok(Self::new(high, low))
    }
}

impl FromStr for LargeCommunity {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let part = || preceded(char(':'), number32);
        let (global, local1, local2) =
            whole((number32, part(), part()), text).ok_or(TextError::LargeCommunity)?;
        Ok(Self {
            global,
            local1,
            local2,
        })
    }
}

impl FromStr for ExtendedCommunity {
    type Err = TextError;

    /// Reads "rt:" and "ro:" with "asn:number", "asnL:number" (four-octet AS) or
    /// "address:number", "bandwidth:" and "link-bandwidth:" with "asn:octets per second", and "0x"
    /// with 16 hex digits.
    fn from_str(text: &str) -> Result<Self, TextError> {
        whole(alt((named, bandwidth, hex)), text).ok_or(TextError::ExtendedCommunity)
    }
}

fn named(text: &str) -> Output<'_, ExtendedCommunity> {
    let mut subkind = alt((value(0x02, tag("rt:")), value(0x03, tag("ro:"))));
    let (rest, subkind) = subkind.parse(text)?;
    let (rest, community) = alt((ipv4_form, as_form)).parse(rest)?;
    let [kind, _, value @ ..] = community.0;
    let [a, b, c, d, e, f] = value;
    Ok((rest, ExtendedCommunity([kind, subkind, a, b, c, d, e, f])))
}

fn ipv4_form(text: &str) -> Output<'_, ExtendedCommunity> {
    let dotted = take_while1(|c: char| c.is_ascii_digit() || c == '.');
    let address = map_res(dotted, Ipv4Addr::from_str);
    map(
        separated_pair(address, char(':'), number16),
        |(address, number)| ExtendedCommunity::route_target_ipv4(address, number),
    )
    .parse(text)
}

/// A number above 65535 or one marked "L" is a four-octet AS.
fn as_form(text: &str) -> Output<'_, ExtendedCommunity> {
    let parts = (number32, opt(one_of("lL")), preceded(char(':'), number32));
    map_opt(parts, |(asn, four_octet, number)| {
        match (four_octet, u16::try_from(asn)) {
            (None, Ok(asn)) => Some(ExtendedCommunity::route_target_as2(asn, number)),
            _ => Some(ExtendedCommunity::route_target_as4(
                asn,
                u16::try_from(number).ok()?,
            )),
        }
    })
    .parse(text)
}

fn bandwidth(text: &str) -> Output<'_, ExtendedCommunity> {
    let kind = alt((
        value(true, tag("bandwidth:")),
        value(false, tag("link-bandwidth:")),
    ));
    let digits = take_while1(|c: char| c.is_ascii_digit() || c == '.');
    let number = map_opt(digits, |digits: &str| {
        f32::from_str(digits)
            .ok()
            .filter(|number| number.is_finite())
    });
    map(
        (kind, number16, preceded(char(':'), number)),
        |(is_transitive, asn, number)| {
            ExtendedCommunity::link_bandwidth(asn, number, is_transitive)
        },
    )
    .parse(text)
}

fn hex(text: &str) -> Output<'_, ExtendedCommunity> {
    let digits = preceded(tag("0x"), take_while1(|c: char| c.is_ascii_hexdigit()));
    map_opt(digits, |digits: &str| {
        let octets = u64::from_str_radix(digits, 16).ok()?.to_be_bytes();
        (digits.len() == 16).then_some(ExtendedCommunity(octets))
    })
    .parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn as_paths_round_trip() {
        for text in [
            "",
            "64512",
            "64512 4200000000 {3,4}",
            "(65001 65002) 1 [5,6]",
            "{1} {2}",
        ] {
            assert_eq!(text.parse::<AsPath>().unwrap().to_string(), text);
        }
        assert_eq!(
            "1.1 AS2 { 3 , 4 }".parse::<AsPath>(),
            Err(TextError::AsPath)
        );
        assert_eq!(
            " 1.1 AS2 ".parse::<AsPath>().unwrap().to_string(),
            "65537 2"
        );
        for bad in ["0", "1,2", "{}", "{1", "1 x", "4294967296"] {
            assert_eq!(bad.parse::<AsPath>(), Err(TextError::AsPath), "{bad}");
        }
    }

    #[test]
    fn communities_round_trip() {
        for text in [
            "64512:100",
            "0:0",
            "no-export",
            "llgr-stale",
            "graceful-shutdown",
        ] {
            assert_eq!(text.parse::<Community>().unwrap().to_string(), text);
        }
        for bad in ["", "1", "65536:0", "1:2:3", "no-such"] {
            assert_eq!(bad.parse::<Community>(), Err(TextError::Community), "{bad}");
        }
        let large = "4200000000:1:2";
        assert_eq!(large.parse::<LargeCommunity>().unwrap().to_string(), large);
        assert!("1:2".parse::<LargeCommunity>().is_err());
    }

    #[test]
    fn extended_communities_round_trip() {
        let texts = [
            "rt:64512:100",
            "ro:10.0.0.1:7",
            "rt:70000L:9",
            "rt:1L:9",
            "bandwidth:64512:125000000",
            "link-bandwidth:23456:0.5",
            "0x030b000000000008",
        ];
        for text in texts {
            assert_eq!(text.parse::<ExtendedCommunity>().unwrap().to_string(), text);
        }
        let four_octet = "rt:70000:9".parse::<ExtendedCommunity>().unwrap();
        assert_eq!(four_octet, ExtendedCommunity::route_target_as4(70_000, 9));
        for bad in [
            "rt:1",
            "rt:70000:65536",
            "0x00",
            "xx:1:2",
            "rt:1:2 ",
            "bandwidth:1:-1",
            "bandwidth:1:inf",
        ] {
            assert!(bad.parse::<ExtendedCommunity>().is_err(), "{bad}");
        }
    }
}
