//! Capabilities as octets.

use alloc::vec::Vec;

use super::capability::{Capability, LongLivedEntry};
use crate::family::Family;

impl Capability {
    /// Appends code, length and value. A capability with a value longer than 255 octets is left
    /// out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[self.code().0, 0]);
        self.encode_value(out);
        match (u8::try_from(out.len() - start - 2), out.get_mut(start + 1)) {
            (Ok(len), Some(field)) => *field = len,
            _ => out.truncate(start),
        }
    }

    fn encode_value(&self, out: &mut Vec<u8>) {
        match self {
            Self::RouteRefresh
            | Self::RouteRefreshPreStandard
            | Self::ExtendedMessage
            | Self::EnhancedRouteRefresh
            | Self::BfdStrictMode
            | Self::LinkLocalNextHop => {}
            Self::MultiProtocol(family) => {
                out.extend_from_slice(&family.afi.to_be_bytes());
                out.extend_from_slice(&[0, family.safi]);
            }
            Self::Role(role) => out.push(role.0),
            Self::FourOctetAsn(asn) => out.extend_from_slice(&asn.0.to_be_bytes()),
            Self::DynamicCapability(codes) => out.extend(codes.iter().map(|code| code.0)),
            Self::Unknown { data, .. } => out.extend_from_slice(data),
            Self::Fqdn { hostname, domain } => {
                put_text(hostname, out);
                put_text(domain, out);
            }
            Self::SoftwareVersion(version) => put_text(version, out),
            _ => self.encode_list(out),
        }
    }

    fn encode_list(&self, out: &mut Vec<u8>) {
        match self {
            Self::AddPath(entries) => {
                for (family, mode) in entries {
                    put_family(*family, out);
                    out.push(mode.to_wire());
                }
            }
            Self::PathsLimit(entries) => {
                for (family, limit) in entries {
                    put_family(*family, out);
                    out.extend_from_slice(&limit.to_be_bytes());
                }
            }
            Self::GracefulRestart(graceful) => {
                let restart_state = u16::from(graceful.restart_state) << 15;
                let notification = u16::from(graceful.notification) << 14;
                let time_s = graceful.time_s.min(super::GracefulRestart::TIME_S_MAX);
                out.extend_from_slice(&(restart_state | notification | time_s).to_be_bytes());
                for (family, forwarding) in &graceful.families {
                    put_family(*family, out);
                    out.push(u8::from(*forwarding) << 7);
                }
            }
            Self::LongLivedGracefulRestart(entries) => {
                for entry in entries {
                    put_family(entry.family, out);
                    out.push(u8::from(entry.forwarding) << 7);
                    let [_, time_s @ ..] = entry
                        .stale_time_s
                        .min(LongLivedEntry::STALE_TIME_S_MAX)
                        .to_be_bytes();
                    out.extend_from_slice(&time_s);
                }
            }
            Self::ExtendedNextHop(entries) => {
                for entry in entries {
                    for field in [entry.afi, entry.safi, entry.next_hop_afi] {
                        out.extend_from_slice(&field.to_be_bytes());
                    }
                }
            }
            Self::OutboundRouteFiltering(entries) => {
                for entry in entries {
                    out.extend_from_slice(&entry.family.afi.to_be_bytes());
                    let count = u8::try_from(entry.types.len()).unwrap_or(u8::MAX);
                    out.extend_from_slice(&[0, entry.family.safi, count]);
                    for (kind, mode) in entry.types.iter().take(usize::from(count)) {
                        out.extend_from_slice(&[*kind, mode.0]);
                    }
                }
            }
            _ => {}
        }
    }
}

fn put_family(family: Family, out: &mut Vec<u8>) {
    out.extend_from_slice(&family.afi.to_be_bytes());
    out.push(family.safi);
}

/// A text with its length in one octet ahead, cut to fit at a character's border.
fn put_text(text: &str, out: &mut Vec<u8>) {
    let mut end = text.len().min(usize::from(u8::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push(u8::try_from(end).unwrap_or(u8::MAX));
    out.extend_from_slice(text.get(..end).unwrap_or_default().as_bytes());
}
