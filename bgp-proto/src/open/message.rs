//! The OPEN message.

use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};

use super::capability::Capability;
use super::grammar;
use crate::asn::Asn;
use crate::family::Family;
use crate::header::{MessageKind, put_header};
use crate::id::RouterId;
use crate::notification::{Notification, open};
use crate::reader::Reader;

/// The version of the protocol (RFC 4271 §4.2).
pub const VERSION: u8 = 4;

/// Type of the optional parameter that holds capabilities (RFC 5492 §4).
const PARAMETER_CAPABILITIES: u8 = 2;

/// An OPEN (RFC 4271 §4.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Open {
    /// The AS number of the two-octet field; [`Open::asn`] gives the real one.
    pub asn: Asn,
    /// Proposed hold time in seconds: 0 or at least 3.
    pub hold_time: u16,
    /// The sender's BGP identifier; not zero.
    pub id: RouterId,
    /// Capabilities in the order they came, from all optional parameters.
    pub capabilities: Vec<Capability>,
}

impl Open {
    /// Reads the body of an OPEN.
    ///
    /// # Errors
    ///
    /// The NOTIFICATION that answers it by RFC 4271 §6.2. The caller must check whether the AS
    /// number and the hold time are acceptable.
    pub fn parse(body: &[u8]) -> Result<Self, Notification> {
        let mut reader = Reader::new(body, 0);
        let fields = (reader.u8(), reader.u16(), reader.u16(), reader.array::<4>());
        let (Some(version), Some(asn), Some(hold_time), Some(id)) = fields else {
            return Err(refuse(open::UNSPECIFIC, &[]));
        };
        // RFC 4271 §6.2: the data is the supported version.
        if version != VERSION {
            return Err(refuse(open::UNSUPPORTED_VERSION_NUMBER, &[0, VERSION]));
        }
        // RFC 7607 §2: AS 0 is reserved.
        if asn == 0 {
            return Err(refuse(open::BAD_PEER_AS, &[]));
        }
        // RFC 4271 §6.2: one or two seconds are refused.
        if matches!(hold_time, 1 | 2) {
            return Err(refuse(open::UNACCEPTABLE_HOLD_TIME, &[]));
        }
        // RFC 6286 §2.2: any number but zero.
        let id = RouterId::from(id);
        if id.is_zero() {
            return Err(refuse(open::BAD_BGP_IDENTIFIER, &[]));
        }
        let capabilities = parameters(reader.rest())?;
        Ok(Self {
            asn: Asn(u32::from(asn)),
            hold_time,
            id,
            capabilities,
        })
    }

    /// Appends the whole message, header included. All capabilities go into one optional
    /// parameter; if they need more than 255 octets, into the form of RFC 9072.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut capabilities = Vec::new();
        for capability in &self.capabilities {
            capability.encode(&mut capabilities);
        }
        let mut parameters = Vec::new();
        let len = capabilities.len();
        match (u8::try_from(len), u8::try_from(len + 2)) {
            (Ok(0), _) => parameters.push(0),
            (Ok(len), Ok(total)) => {
                parameters.extend_from_slice(&[total, PARAMETER_CAPABILITIES, len]);
            }
            // RFC 9072 §2
            _ => {
                let len = u16::try_from(len).unwrap_or(u16::MAX - 3);
                parameters.extend_from_slice(&[255, 255]);
                parameters.extend_from_slice(&(len + 3).to_be_bytes());
                parameters.push(PARAMETER_CAPABILITIES);
                parameters.extend_from_slice(&len.to_be_bytes());
            }
        }
        put_header(
            out,
            MessageKind::Open,
            9 + parameters.len() + capabilities.len(),
        );
        out.put_u8(VERSION);
        out.put_u16(self.asn.two_octet());
        out.put_u16(self.hold_time);
        out.put_slice(&self.id.octets());
        out.put_slice(&parameters);
        out.put_slice(&capabilities);
    }

    /// Returns the sender's AS number: that of the four-octet capability, else the field's (RFC
    /// 6793 §4.1).
    pub fn real_asn(&self) -> Asn {
        let four_octet = self
            .capabilities
            .iter()
            .find_map(|capability| match capability {
                Capability::FourOctetAsn(asn) => Some(*asn),
                _ => None,
            });
        four_octet.unwrap_or(self.asn)
    }

    /// Returns the sender's families: those of its multiprotocol capabilities, or IPv4 unicast if
    /// it sent none (RFC 4760 §8). Families without a row are among them.
    pub fn families(&self) -> impl Iterator<Item = Family> + '_ {
        let named = |capability: &Capability| match capability {
            Capability::MultiProtocol(family) => Some(*family),
            _ => None,
        };
        let none = !self
            .capabilities
            .iter()
            .any(|capability| named(capability).is_some());
        let implied = none.then_some(Family::IPV4_UNICAST);
        self.capabilities.iter().filter_map(named).chain(implied)
    }
}

fn refuse(subcode: u8, data: &[u8]) -> Notification {
    Notification::open_message(subcode, Bytes::copy_from_slice(data))
}

/// Collects the capabilities of all optional parameters (RFC 5492 §4: any number of them).
fn parameters(octets: &[u8]) -> Result<Vec<Capability>, Notification> {
    let malformed = || refuse(open::UNSPECIFIC, &[]);
    let (extended, mut left) = grammar::parameters(octets).ok_or_else(malformed)?;
    let mut capabilities = Vec::new();
    while !left.is_empty() {
        let (rest, (kind, value)) = grammar::parameter(extended, left).map_err(|_| malformed())?;
        // RFC 4271 §6.2: other parameters, the long retired authentication among them.
        if kind != PARAMETER_CAPABILITIES {
            return Err(refuse(open::UNSUPPORTED_OPTIONAL_PARAMETER, &[]));
        }
        capabilities.append(&mut grammar::capabilities(value).ok_or_else(malformed)?);
        left = rest;
    }
    Ok(capabilities)
}
