//! Received octets of a scripted peer: a stream split into messages, messages as text.

use std::collections::VecDeque;
use std::fmt;

use bgp_proto::{
    AddPathMode, Capability, Family, FamilySet, Fault, Frame, HEADER_OCTETS, MARKER,
    MESSAGE_OCTETS_MAX, MESSAGE_OCTETS_MAX_EXTENDED, Message, MessageKind, Net, NlriIter,
    Notification, Open, RouteRefresh, SessionParams, UpdateView, next_frame,
};
use bytes::BytesMut;

use crate::limits::{HEX_OCTETS_MAX, HISTORY_MAX};

/// A message, or the part of an UPDATE that concerns one family and direction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Received {
    /// OPEN.
    Open(Open),
    /// KEEPALIVE.
    Keepalive,
    /// Announced prefixes, in their order; with `path` and the identifier where the session has
    /// path identifiers (RFC 7911).
    Reach(Vec<String>),
    /// Withdrawn prefixes, in their order.
    Unreach(Vec<String>),
    /// The End-of-RIB marker of a family (RFC 4724 §2).
    EndOfRib(Family),
    /// ROUTE-REFRESH, or a marker of RFC 7313.
    Refresh(RouteRefresh),
    /// NOTIFICATION.
    Notification(Notification),
    /// Octets that are no message, or a message with faults, and why.
    Malformed(String),
    /// The end of the stream.
    Closed,
}

impl Received {
    /// Returns the type of message that it came in, if it came in one.
    #[must_use]
    pub const fn kind(&self) -> Option<MessageKind> {
        Some(match self {
            Self::Open(_) => MessageKind::Open,
            Self::Keepalive => MessageKind::Keepalive,
            Self::Reach(_) | Self::Unreach(_) | Self::EndOfRib(_) => MessageKind::Update,
            Self::Refresh(_) => MessageKind::RouteRefresh,
            Self::Notification(_) => MessageKind::Notification,
            Self::Malformed(_) | Self::Closed => return None,
        })
    }
}

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(open) => write!(f, "OPEN of AS {} with id {}", open.asn, open.id),
            Self::Keepalive => f.write_str("KEEPALIVE"),
            Self::Reach(nets) => write!(f, "UPDATE that announces {}", nets.join(" ")),
            Self::Unreach(nets) => write!(f, "UPDATE that withdraws {}", nets.join(" ")),
            Self::EndOfRib(family) => write!(f, "End-of-RIB of {family}"),
            Self::Refresh(refresh) => write!(f, "ROUTE-REFRESH {refresh:?}"),
            Self::Notification(notification) => write!(
                f,
                "NOTIFICATION {}/{} ({notification})",
                notification.code, notification.subcode
            ),
            Self::Malformed(why) => write!(f, "malformed octets: {why}"),
            Self::Closed => f.write_str("the end of the stream"),
        }
    }
}

/// The received octets that were not requested yet.
#[derive(Debug)]
pub(crate) struct Inbox {
    octets: BytesMut,
    /// How UPDATEs are read.
    params: SessionParams,
    /// The longest message that the speaker may send (RFC 8654 §4).
    octets_max: usize,
    /// The families for which the peer has offered to receive several paths (RFC 7911 §4).
    offered: FamilySet,
    /// Parts of messages that were taken off `octets`, with the messages.
    parts: VecDeque<(Received, Frame)>,
    closed: bool,
    /// The last parts that were returned.
    history: VecDeque<String>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            octets: BytesMut::new(),
            params: params(),
            octets_max: MESSAGE_OCTETS_MAX,
            offered: FamilySet::EMPTY,
            parts: VecDeque::new(),
            closed: false,
            history: VecDeque::new(),
        }
    }
}

impl Inbox {
    /// Records sent octets of the peer: its OPEN decides whether it may be sent path identifiers
    /// and long messages.
    pub(crate) fn sent(&mut self, octets: &[u8]) {
        if octets.get(HEADER_OCTETS - 1) == Some(&MessageKind::Open.0)
            && let Ok(open) = Open::parse(octets.get(HEADER_OCTETS..).unwrap_or_default())
        {
            self.offered = add_path(&open, AddPathMode::Receive);
            if open.capabilities.contains(&Capability::ExtendedMessage) {
                self.octets_max = MESSAGE_OCTETS_MAX_EXTENDED;
            }
        }
    }

    pub(crate) fn push(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// The buffer, to read into.
    #[cfg(feature = "tokio")]
    pub(crate) const fn buffer(&mut self) -> &mut BytesMut {
        &mut self.octets
    }

    pub(crate) fn has_rest(&self) -> bool {
        !self.octets.is_empty()
    }

    pub(crate) const fn close(&mut self) {
        self.closed = true;
    }

    #[cfg(feature = "tokio")]
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the next complete message; octets that are not a message are returned as an error,
    /// repeatedly.
    pub(crate) fn frame(&mut self) -> Result<Option<Frame>, Notification> {
        if let Some((_, frame)) = self.parts.pop_front() {
            self.parts.clear(); // They are of the same message.
            return Ok(Some(frame));
        }
        next_frame(&mut self.octets, self.octets_max)
    }

    /// Takes the next part of a message, or the end of the stream behind the last one.
    pub(crate) fn next(&mut self) -> Option<(Received, String)> {
        while self.parts.is_empty() {
            match next_frame(&mut self.octets, self.octets_max) {
                Ok(Some(frame)) => {
                    let parts = parts(&frame, &self.params);
                    if let Some((Received::Open(open), _)) = parts.first() {
                        let sends = add_path(open, AddPathMode::Send).iter();
                        let both = sends.filter(|family| self.offered.contains(*family));
                        self.params.add_path_receive = both.collect();
                    }
                    self.parts.extend(parts);
                }
                Ok(None) if self.closed => return Some((Received::Closed, String::new())),
                Ok(None) => return None,
                Err(fault) => {
                    let text = hex(&self.octets);
                    return Some((Received::Malformed(fault.to_string()), text));
                }
            }
        }
        let (part, frame) = self.parts.pop_front()?;
        let text = format!("type {}, body {}", frame.kind.0, hex(&frame.body));
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(part.to_string());
        Some((part, text))
    }

    /// Returns the earlier messages, for a failure text.
    pub(crate) fn history(&self) -> String {
        match self.history.is_empty() {
            true => "nothing".into(),
            false => {
                let lines: Vec<&str> = self.history.iter().map(String::as_str).collect();
                lines.join("; ")
            }
        }
    }
}

/// Returns the length of the message at the start of `octets`, which may be incomplete; `None` if
/// its header is (RFC 4271 §4.1). For readers that copy nothing.
///
/// # Errors
/// The octets if they are not the header of a message of at most 4096 octets.
#[inline]
pub fn message_octets(octets: &[u8]) -> Result<Option<usize>, NoHeader> {
    let Some(header) = octets.first_chunk::<HEADER_OCTETS>() else {
        return Ok(None);
    };
    let octets = usize::from(u16::from_be_bytes([header[16], header[17]]));
    let is_length = (HEADER_OCTETS..=MESSAGE_OCTETS_MAX).contains(&octets);
    match header[..16] == MARKER && is_length {
        true => Ok(Some(octets)),
        false => Err(NoHeader(*header)),
    }
}

/// Octets that are no header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHeader(pub [u8; HEADER_OCTETS]);

impl fmt::Display for NoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a BGP header: {}", hex(&self.0))
    }
}

impl std::error::Error for NoHeader {}

/// Octets in hexadecimal, cut where they are many.
pub(crate) fn hex(octets: &[u8]) -> String {
    let shown = octets.iter().take(HEX_OCTETS_MAX);
    let mut text: String = shown.map(|octet| format!("{octet:02x}")).collect();
    if octets.len() > HEX_OCTETS_MAX {
        text += &format!("... ({} octets)", octets.len());
    }
    text
}

/// The parts of a message.
fn parts(frame: &Frame, params: &SessionParams) -> Vec<(Received, Frame)> {
    let parts = match Message::parse(frame.kind, &frame.body, params) {
        Ok(Message::Open(open)) => vec![Received::Open(open)],
        Ok(Message::Keepalive) => vec![Received::Keepalive],
        Ok(Message::RouteRefresh(refresh)) => vec![Received::Refresh(refresh)],
        Ok(Message::Notification(notification)) => vec![Received::Notification(notification)],
        Ok(Message::Update { view, faults }) => {
            update(&view, &faults).unwrap_or_else(|text| vec![Received::Malformed(text)])
        }
        Ok(other) => vec![Received::Malformed(other.kind().to_string())],
        Err(fault) => vec![Received::Malformed(fault.to_string())],
    };
    parts
        .into_iter()
        .map(|part| (part, frame.clone()))
        .collect()
}

fn update(view: &UpdateView<'_>, faults: &[Fault]) -> Result<Vec<Received>, String> {
    if let Some(fault) = faults.first() {
        return Err(fault.to_string());
    }
    if let Some(family) = view.end_of_rib() {
        return Ok(vec![Received::EndOfRib(family)]);
    }
    let mut parts = vec![];
    for batch in view.batches() {
        let (unreach, reach) = (names(batch.unreach)?, names(batch.reach)?);
        parts.extend(
            Some(unreach)
                .filter(|nets| !nets.is_empty())
                .map(Received::Unreach),
        );
        parts.extend(
            Some(reach)
                .filter(|nets| !nets.is_empty())
                .map(Received::Reach),
        );
    }
    Ok(parts)
}

/// The families for which an OPEN offers to send, or to receive, several paths (RFC 7911 §4).
fn add_path(open: &Open, way: AddPathMode) -> FamilySet {
    let families = open
        .capabilities
        .iter()
        .flat_map(|capability| match capability {
            Capability::AddPath(families) => families.as_slice(),
            _ => &[],
        });
    let offers = families.filter(|(_, mode)| [way, AddPathMode::Both].contains(mode));
    offers.map(|(family, _)| *family).collect()
}

/// Returns how a scripted peer reads UPDATEs: as in a session with four-octet AS numbers, all
/// families and long messages. It reads path identifiers as its OPEN and the speaker's settle.
#[must_use]
pub fn params() -> SessionParams {
    SessionParams {
        as4: true,
        families: FamilySet::all(),
        extended_receive: true,
        ..SessionParams::default()
    }
}

fn names(nets: NlriIter<'_>) -> Result<Vec<String>, String> {
    let names = nets.map(|nlri| {
        let nlri = nlri.map_err(|fault| format!("{fault:?}"))?;
        let net = match (nlri.net.prefix(), nlri.net) {
            (Some(prefix), _) => prefix.to_string(),
            (None, Net::Opaque(octets)) => hex(octets),
            (None, net) => format!("{net:?}"),
        };
        Ok(match nlri.path_id {
            0 => net,
            id => format!("{net} path {id}"),
        })
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_a_message_is_that_of_its_header() {
        let mut keepalive = [0xff; HEADER_OCTETS];
        keepalive[16..].copy_from_slice(&[0, 19, 4]);
        assert_eq!(message_octets(&keepalive), Ok(Some(19)));
        assert_eq!(message_octets(&keepalive[..18]), Ok(None));
        for (at, octet) in [(0, 0), (16, 0x10), (17, 18)] {
            let mut odd = keepalive;
            odd[at] = octet;
            let refused = message_octets(&odd).expect_err("no header");
            assert!(refused.to_string().starts_with("not a BGP header: "));
        }
    }
}
