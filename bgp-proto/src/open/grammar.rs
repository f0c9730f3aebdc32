//! The grammar of capabilities: deep and cold, so written with parser combinators.

use alloc::string::String;
use alloc::vec::Vec;

use nom::bytes::complete::take;
use nom::combinator::{all_consuming, map, map_opt, map_res, rest};
use nom::multi::{length_count, length_data, many0};
use nom::number::complete::{be_u8, be_u16, be_u24, be_u32};
use nom::{IResult, Parser};

use super::capability::{
    AddPathMode, BgpRole, Capability, CapabilityCode, ExtendedNextHopEntry, GracefulRestart,
    LongLivedEntry, OrfEntry, OrfMode,
};
use crate::asn::Asn;
use crate::family::Family;

type Input<'a> = &'a [u8];
type Output<'a, T> = IResult<Input<'a>, T, ()>;

/// One optional parameter: its type and value. With `extended` the length has two octets
/// (RFC 9072 §2).
pub(super) fn parameter(extended: bool, input: Input<'_>) -> Output<'_, (u8, Input<'_>)> {
    if extended {
        (be_u8, length_data(be_u16)).parse(input)
    } else {
        (be_u8, length_data(be_u8)).parse(input)
    }
}

/// The value of a capabilities parameter: capabilities one after the other (RFC 5492 §4).
pub(super) fn capabilities(input: Input<'_>) -> Option<Vec<Capability>> {
    let one = map((be_u8, length_data(be_u8)), |(code, value)| {
        capability(code, value)
    });
    whole(many0(one), input)
}

/// Reads a capability's value; one that does not fit its code is kept as octets.
fn capability(code: u8, value: Input<'_>) -> Capability {
    let unknown = || Capability::Unknown {
        code,
        data: value.to_vec(),
    };
    typed(CapabilityCode(code), value).unwrap_or_else(unknown)
}

fn typed(code: CapabilityCode, value: Input<'_>) -> Option<Capability> {
    let empty = |capability| value.is_empty().then_some(capability);
    match code {
        CapabilityCode::MultiProtocol => whole((be_u16, be_u8, be_u8), value)
            .map(|(afi, _reserved, safi)| Capability::MultiProtocol(Family::new(afi, safi))),
        CapabilityCode::RouteRefresh => empty(Capability::RouteRefresh),
        CapabilityCode::RouteRefreshPreStandard => empty(Capability::RouteRefreshPreStandard),
        CapabilityCode::OutboundRouteFiltering => {
            whole(many0(orf_entry), value).map(Capability::OutboundRouteFiltering)
        }
        CapabilityCode::ExtendedNextHop => {
            whole(many0(extended_next_hop), value).map(Capability::ExtendedNextHop)
        }
        CapabilityCode::ExtendedMessage => empty(Capability::ExtendedMessage),
        CapabilityCode::Role => whole(be_u8, value).map(|role| Capability::Role(BgpRole(role))),
        CapabilityCode::GracefulRestart => {
            whole(graceful_restart, value).map(Capability::GracefulRestart)
        }
        CapabilityCode::FourOctetAsn => {
            whole(be_u32, value).map(|asn| Capability::FourOctetAsn(Asn(asn)))
        }
        CapabilityCode::DynamicCapability => {
            let codes = value.iter().map(|code| CapabilityCode(*code)).collect();
            Some(Capability::DynamicCapability(codes))
        }
        CapabilityCode::AddPath => whole(many0(add_path), value).map(Capability::AddPath),
        CapabilityCode::EnhancedRouteRefresh => empty(Capability::EnhancedRouteRefresh),
        CapabilityCode::LongLivedGracefulRestart => {
            whole(many0(long_lived), value).map(Capability::LongLivedGracefulRestart)
        }
        CapabilityCode::Fqdn => whole((text, text), value)
            .map(|(hostname, domain)| Capability::Fqdn { hostname, domain }),
        CapabilityCode::BfdStrictMode => empty(Capability::BfdStrictMode),
        CapabilityCode::SoftwareVersion => whole(text, value).map(Capability::SoftwareVersion),
        CapabilityCode::PathsLimit => {
            whole(many0((family, be_u16)), value).map(Capability::PathsLimit)
        }
        CapabilityCode::LinkLocalNextHop => empty(Capability::LinkLocalNextHop),
        _ => None,
    }
}

/// Runs `parser` over all of `input`.
fn whole<'a, T>(
    parser: impl Parser<Input<'a>, Output = T, Error = ()>,
    input: Input<'a>,
) -> Option<T> {
    all_consuming(parser)
        .parse(input)
        .ok()
        .map(|(_, value)| value)
}

fn family(input: Input<'_>) -> Output<'_, Family> {
    map((be_u16, be_u8), |(afi, safi)| Family::new(afi, safi)).parse(input)
}

/// A text with its length in one octet ahead.
fn text(input: Input<'_>) -> Output<'_, String> {
    map_res(length_data(be_u8), |octets: &[u8]| {
        String::from_utf8(octets.to_vec())
    })
    .parse(input)
}

fn add_path(input: Input<'_>) -> Output<'_, (Family, AddPathMode)> {
    (family, map_opt(be_u8, AddPathMode::from_wire)).parse(input)
}

fn extended_next_hop(input: Input<'_>) -> Output<'_, ExtendedNextHopEntry> {
    map((be_u16, be_u16, be_u16), |(afi, safi, next_hop_afi)| {
        ExtendedNextHopEntry {
            afi,
            safi,
            next_hop_afi,
        }
    })
    .parse(input)
}

fn graceful_restart(input: Input<'_>) -> Output<'_, GracefulRestart> {
    let entry = map((family, be_u8), |(family, flags)| {
        (family, flags & 0x80 != 0)
    });
    map((be_u16, many0(entry)), |(head, families)| GracefulRestart {
        restart_state: head & 0x8000 != 0,
        notification: head & 0x4000 != 0, // RFC 8538 §2
        time_s: head & GracefulRestart::TIME_S_MAX,
        families,
    })
    .parse(input)
}

fn long_lived(input: Input<'_>) -> Output<'_, LongLivedEntry> {
    map((family, be_u8, be_u24), |(family, flags, stale_time_s)| {
        LongLivedEntry {
            family,
            forwarding: flags & 0x80 != 0,
            stale_time_s,
        }
    })
    .parse(input)
}

fn orf_entry(input: Input<'_>) -> Output<'_, OrfEntry> {
    let mode = map((be_u8, be_u8), |(kind, mode)| (kind, OrfMode(mode)));
    map(
        (be_u16, take(1usize), be_u8, length_count(be_u8, mode)),
        |(afi, _reserved, safi, types): (_, Input<'_>, _, _)| OrfEntry {
            family: Family::new(afi, safi),
            types,
        },
    )
    .parse(input)
}

/// Everything after the fixed fields of an OPEN: length octet, then the parameters.
pub(super) fn parameters(input: Input<'_>) -> Option<(bool, Input<'_>)> {
    let (after, (len, kind)) = (
        be_u8::<Input<'_>, ()>,
        nom::combinator::opt(be_u8::<Input<'_>, ()>),
    )
        .parse(input)
        .ok()?;
    // RFC 9072 §2: a first type of 255 announces the extended form; the length octet is then
    // 255 as sent, and anything but 0 on receipt.
    if len != 0 && kind == Some(255) {
        return whole(length_data(be_u16), after).map(|parameters| (true, parameters));
    }
    let (_, (_, parameters)) = (be_u8::<Input<'_>, ()>, rest::<Input<'_>, ()>)
        .parse(input)
        .ok()?;
    (parameters.len() == usize::from(len)).then_some((false, parameters))
}
