//! Writing UPDATEs: one set of attributes and as many routes as fit.

use bytes::{BufMut, BytesMut};

use crate::attr::{
    AttrCode, FLAG_EXTENDED_LENGTH, FLAG_OPTIONAL, FLAG_TRANSITIVE, NextHop, RawAttrs, encode_mp,
    mp_octets,
};
use crate::family::Family;
use crate::header::{HEADER_OCTETS, MessageKind, put_header};
use crate::nlri::Nlri;
use crate::params::SessionParams;

/// How UPDATEs of one family are written on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodeParams {
    /// Whether AS numbers have four octets. The attribute block must be encoded so.
    pub as4: bool,
    /// Whether NLRI carry a path identifier (RFC 7911).
    pub add_path: bool,
    /// Longest message, header included, in octets.
    pub octets_max: usize,
}

impl EncodeParams {
    /// Creates the settings of a session for UPDATEs of `family`.
    pub const fn new(params: &SessionParams, family: Family) -> Self {
        Self {
            as4: params.as4,
            add_path: params.add_path_send.contains(family),
            octets_max: params.send_octets_max(),
        }
    }
}

/// The route does not fit any more: finish this message and begin another. If no route was pushed
/// yet ([`UpdateWriter::is_empty`]) the set of attributes is too large for any message, and its
/// routes cannot be sent (RFC 4271 §9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the UPDATE has no room for another route")
    }
}

impl core::error::Error for Full {}

/// The place of the message's routes.
#[derive(Clone, Copy, Debug)]
enum Layout<'w> {
    /// In the NLRI field, after all attributes.
    Body,
    /// In the withdrawn routes field.
    Withdrawn,
    /// In MP_REACH_NLRI, which precedes the attributes (RFC 7606 §5.1), so that these are appended
    /// at the end.
    MpReach { attributes: &'w [u8] },
    /// In MP_UNREACH_NLRI.
    MpUnreach,
}

/// Writes one UPDATE into a buffer.
#[derive(Debug)]
pub struct UpdateWriter<'w> {
    out: &'w mut BytesMut,
    layout: Layout<'w>,
    add_path: bool,
    /// Where the message begins in the buffer.
    start: usize,
    /// Where its routes begin in the buffer.
    routes: usize,
    /// How far the routes may reach in the buffer.
    limit: usize,
}

/// Octets of flags, type and two-octet length.
const ATTRIBUTE_HEAD: usize = 4;

impl<'w> UpdateWriter<'w> {
    /// Begins a message that announces routes of `family`.
    ///
    /// `attr_block` is [`Attributes::encode`](crate::Attributes::encode); a NEXT_HOP in it is
    /// replaced by `next_hop`: as NEXT_HOP for IPv4 unicast with an IPv4 next hop, otherwise in
    /// MP_REACH_NLRI. Routes of a family with an optional next hop may have none.
    pub fn reach<'h>(
        out: &'w mut BytesMut,
        family: Family,
        attr_block: &'w [u8],
        next_hop: impl Into<Option<&'h NextHop>>,
        params: &EncodeParams,
    ) -> Self {
        let next_hop = next_hop.into();
        let start = out.len();
        put_header(out, MessageKind::Update, 0);
        out.put_u16(0); // no withdrawn routes
        out.put_u16(0); // attribute length, set at the end
        let layout = match (family, next_hop) {
            (Family::IPV4_UNICAST, Some(NextHop::V4(address))) => {
                put_with_next_hop(out, attr_block, &address.octets());
                Layout::Body
            }
            _ => {
                put_mp_head(out, AttrCode::MpReach, family);
                let octets = next_hop.map_or(0, |next_hop| mp_octets(family, next_hop));
                out.put_u8(u8::try_from(octets).unwrap_or(u8::MAX));
                if let Some(next_hop) = next_hop {
                    encode_mp(family, next_hop, &mut |octets| out.put_slice(octets));
                }
                out.put_u8(0); // reserved
                Layout::MpReach {
                    attributes: attr_block,
                }
            }
        };
        Self::begin(out, start, layout, params)
    }

    /// Begins a message that withdraws routes of `family`.
    pub fn unreach(out: &'w mut BytesMut, family: Family, params: &EncodeParams) -> Self {
        let start = out.len();
        put_header(out, MessageKind::Update, 0);
        out.put_u16(0); // withdrawn length, set at the end
        let layout = if family == Family::IPV4_UNICAST {
            Layout::Withdrawn
        } else {
            out.put_u16(0); // attribute length, set at the end
            put_mp_head(out, AttrCode::MpUnreach, family);
            Layout::MpUnreach
        };
        Self::begin(out, start, layout, params)
    }

    fn begin(
        out: &'w mut BytesMut,
        start: usize,
        layout: Layout<'w>,
        params: &EncodeParams,
    ) -> Self {
        let trailer = match layout {
            Layout::Body | Layout::MpUnreach => 0,
            Layout::Withdrawn => 2,
            Layout::MpReach { attributes } => octets_without_next_hop(attributes),
        };
        let routes = out.len();
        let limit = (start + params.octets_max).saturating_sub(trailer);
        Self {
            out,
            layout,
            add_path: params.add_path,
            start,
            routes,
            limit,
        }
    }

    /// Adds a route.
    ///
    /// # Errors
    ///
    /// [`Full`] if it does not fit; the message is as it was.
    #[inline]
    pub fn push(&mut self, nlri: &Nlri<'_>) -> Result<(), Full> {
        let path_id_octets = if self.add_path { 4 } else { 0 };
        let octets = nlri.net.wire_octets() + path_id_octets;
        if self.out.len() + octets > self.limit {
            return Err(Full);
        }
        if self.add_path {
            self.out.put_u32(nlri.path_id);
        }
        nlri.net.put(self.out);
        Ok(())
    }

    /// Returns whether no route has been added.
    pub fn is_empty(&self) -> bool {
        self.out.len() == self.routes
    }

    /// Ends the message. Without any route the buffer is left as it was before.
    pub fn finish(self) {
        if self.is_empty() {
            self.out.truncate(self.start);
            return;
        }
        let body = self.start + HEADER_OCTETS;
        let routes_end = self.out.len();
        match self.layout {
            Layout::Body => set_u16(self.out, body + 2, self.routes - (body + 4)),
            Layout::Withdrawn => {
                set_u16(self.out, body, routes_end - (body + 2));
                self.out.put_u16(0); // no attributes
            }
            Layout::MpUnreach => {
                set_u16(self.out, body + 6, routes_end - (body + 8));
                set_u16(self.out, body + 2, routes_end - (body + 4));
            }
            Layout::MpReach { attributes } => {
                set_u16(self.out, body + 6, routes_end - (body + 8));
                put_without_next_hop(self.out, attributes);
                let end = self.out.len();
                set_u16(self.out, body + 2, end - (body + 4));
            }
        }
        let end = self.out.len();
        set_u16(self.out, self.start + 16, end - self.start);
    }

    /// Appends the End-of-RIB marker of `family` (RFC 4724 §2). Only for families that were
    /// negotiated: others end the session at some peers.
    pub fn end_of_rib(out: &mut BytesMut, family: Family) {
        if family == Family::IPV4_UNICAST {
            put_header(out, MessageKind::Update, 4);
            out.put_u32(0);
            return;
        }
        put_header(out, MessageKind::Update, 4 + 6);
        out.put_u16(0);
        out.put_u16(6);
        out.put_slice(&[FLAG_OPTIONAL, AttrCode::MpUnreach.0, 3]);
        out.put_u16(family.afi);
        out.put_u8(family.safi);
    }

    /// Appends a KEEPALIVE (RFC 4271 §4.4).
    pub fn keepalive(out: &mut BytesMut) {
        put_header(out, MessageKind::Keepalive, 0);
    }
}

/// Appends flags, type, a length to be set later, AFI and SAFI.
fn put_mp_head(out: &mut BytesMut, code: AttrCode, family: Family) {
    out.put_slice(&[FLAG_OPTIONAL | FLAG_EXTENDED_LENGTH, code.0, 0, 0]);
    out.put_u16(family.afi);
    out.put_u8(family.safi);
    const { assert!(ATTRIBUTE_HEAD == 4) };
}

fn set_u16(out: &mut BytesMut, at: usize, value: usize) {
    debug_assert!(value <= usize::from(u16::MAX));
    let value = u16::try_from(value).unwrap_or(u16::MAX);
    if let Some(field) = out.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Returns the block's octets before and after the place of NEXT_HOP.
fn around_next_hop(block: &[u8]) -> (&[u8], &[u8]) {
    let mut end = 0;
    for attr in RawAttrs::new(block, 0).map_while(Result::ok) {
        if attr.code >= AttrCode::NextHop {
            let after = match attr.code {
                AttrCode::NextHop => end + attr.octets.len(),
                _ => end,
            };
            let halves = (block.get(..end), block.get(after..));
            return (halves.0.unwrap_or_default(), halves.1.unwrap_or_default());
        }
        end += attr.octets.len();
    }
    (block, &[])
}

fn octets_without_next_hop(block: &[u8]) -> usize {
    let (before, after) = around_next_hop(block);
    before.len() + after.len()
}

fn put_without_next_hop(out: &mut BytesMut, block: &[u8]) {
    let (before, after) = around_next_hop(block);
    out.put_slice(before);
    out.put_slice(after);
}

fn put_with_next_hop(out: &mut BytesMut, block: &[u8], address: &[u8; 4]) {
    let (before, after) = around_next_hop(block);
    out.put_slice(before);
    out.put_slice(&[FLAG_TRANSITIVE, AttrCode::NextHop.0, 4]);
    out.put_slice(address);
    out.put_slice(after);
}
