//! The traced peers, and their messages as lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use bgp_speaker::bgp_fsm::Conn;
use bgp_speaker::bgp_proto::{
    Frame, MARKER, MessageKind, Notification, Open, RouteBatch, RouteRefresh, SessionParams,
    UpdateView,
};
use bgp_speaker::rib::PeerId;
use bytes::{Buf, BytesMut};

use crate::limits::TRACED_TEXT_OCTETS_MAX;

/// The peers that are traced.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// The traced peers with a transport: the last octets to a dynamic peer are written after the
    /// speaker has removed it.
    pub(crate) peers: BTreeMap<PeerId, IpAddr>,
    /// The written octets of incomplete messages.
    pub(crate) sent: BTreeMap<(PeerId, Conn), BytesMut>,
    /// Messages reported in this turn.
    pub(crate) reported: usize,
    /// Messages of each peer that were not reported in this turn.
    pub(crate) missed: BTreeMap<IpAddr, u64>,
}

impl Trace {
    pub(crate) fn is_on(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Removes a transport: nothing more will be written to it.
    pub(crate) fn forget(&mut self, peer: PeerId, conn: Conn) {
        self.sent.remove(&(peer, conn));
    }

    /// Removes a dynamic peer: its ID may be used again.
    pub(crate) fn gone(&mut self, peer: PeerId) {
        self.peers.remove(&peer);
    }
}

/// Drops octets up to the next marker: the trace began within a message.
pub(crate) fn resynchronize(buffer: &mut BytesMut) {
    let rest = buffer.get(1..).unwrap_or_default();
    let marker = rest.windows(MARKER.len()).position(|w| w == MARKER);
    // A marker may begin in the last octets.
    let kept = buffer.len().min(MARKER.len() - 1);
    let to = marker.map_or(buffer.len() - kept, |at| at + 1);
    buffer.advance(to.max(1).min(buffer.len()));
}

/// A text with a maximum length.
struct Line(String);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            if self.0.len() + c.len_utf8() > TRACED_TEXT_OCTETS_MAX {
                return Err(std::fmt::Error);
            }
            self.0.push(c);
        }
        Ok(())
    }
}

/// Returns the content of a message as text. `params` are those of the session, once it has any.
pub(crate) fn text(frame: &Frame, params: Option<&SessionParams>, sent: bool) -> String {
    let mut line = Line(String::new());
    // An error means that the rest does not fit.
    let _ = match frame.kind {
        MessageKind::Open => open(&mut line, &frame.body),
        MessageKind::Update => match params {
            Some(params) => update(&mut line, &frame.body, params, sent),
            None => Ok(()),
        },
        MessageKind::Notification => match Notification::parse(&frame.body) {
            Some(what) => write!(line, "code={} subcode={} {what}", what.code, what.subcode),
            None => write!(line, "malformed"),
        },
        MessageKind::RouteRefresh => match RouteRefresh::parse(&frame.body) {
            Ok(what) => write!(line, "{} {}", what.family, what.subtype),
            Err(error) => write!(line, "malformed: {error}"),
        },
        _ => Ok(()),
    };
    line.0
}

fn open(line: &mut Line, body: &[u8]) -> std::fmt::Result {
    match Open::parse(body) {
        Ok(open) => {
            let (asn, hold_time) = (open.asn, open.hold_time);
            write!(
                line,
                "asn={asn} router_id={} hold_time={hold_time}",
                open.id
            )?;
            let mut capabilities = open.capabilities.iter();
            capabilities.try_for_each(|capability| write!(line, " {capability}"))
        }
        Err(error) => write!(line, "malformed: {error}"),
    }
}

fn update(line: &mut Line, body: &[u8], params: &SessionParams, sent: bool) -> std::fmt::Result {
    let mut params = params.clone();
    if sent {
        params.add_path_receive = params.add_path_send;
    }
    let (view, faults) = match UpdateView::parse(body, &params) {
        Ok(parsed) => parsed,
        Err(error) => return write!(line, "malformed: {error}"),
    };
    if let Some(family) = view.end_of_rib() {
        return write!(line, "{family} End-of-RIB");
    }
    if let Some(fault) = faults.first() {
        write!(line, "malformed: {fault} ")?;
    }
    view.batches_as_sent().try_for_each(|one| batch(line, one))
}

/// Writes the routes of one family: their number, the first of them, and their attributes.
fn batch(line: &mut Line, batch: RouteBatch<'_>) -> std::fmt::Result {
    write!(line, "{}", batch.family)?;
    for (what, routes) in [("withdrawn", batch.unreach), ("announced", batch.reach)] {
        let mut routes = routes.filter_map(Result::ok);
        if let Some(first) = routes.next() {
            let more = if routes.next().is_some() { " …" } else { "" };
            let count = 1 + usize::from(!more.is_empty()) + routes.count();
            write!(line, " {what}={count} ({}{more})", first.net)?;
        }
    }
    let Some(attributes) = batch.attrs else {
        return write!(line, " ");
    };
    let (set, _) = attributes.parse();
    for (code, value) in set.reports() {
        write!(line, " {code}={value}")?;
    }
    write!(line, " ")
}

#[cfg(test)]
mod tests {
    use bgp_speaker::bgp_proto::{
        AsPath, Asn, Attributes, EncodeParams, Family, FamilySet, HEADER_OCTETS,
        MESSAGE_OCTETS_MAX_EXTENDED, Net, NextHop, Nlri, UpdateWriter, next_frame,
    };

    use bytes::Bytes;

    use super::*;

    fn params() -> SessionParams {
        SessionParams {
            as4: true,
            families: FamilySet::UNICAST,
            ..SessionParams::default()
        }
    }

    /// An UPDATE with so many routes.
    fn announcement(routes: u8) -> BytesMut {
        let path = [Asn(65001), Asn(65002)];
        let attributes = Attributes {
            as_path: AsPath::sequence(&path),
            ..Attributes::default()
        };
        let mut block = Vec::new();
        attributes.encode(true, &mut block);
        let family = Family::IPV4_UNICAST;
        let next_hop = NextHop::V4("192.0.2.1".parse().expect("an address"));
        let encode = EncodeParams::new(&params(), family);
        let mut octets = BytesMut::new();
        let mut message = UpdateWriter::reach(&mut octets, family, &block, &next_hop, &encode);
        for at in 0..routes {
            let net = format!("198.51.{at}.0/24").parse().expect("a prefix");
            message.push(&Nlri::new(Net::V4(net))).expect("room");
        }
        message.finish();
        octets
    }

    fn frame(mut octets: BytesMut) -> Frame {
        let frame = next_frame(&mut octets, MESSAGE_OCTETS_MAX_EXTENDED);
        frame.expect("a header").expect("in full")
    }

    #[test]
    fn update_is_one_line_with_routes_and_attributes() {
        let line = text(&frame(announcement(3)), Some(&params()), false);
        assert!(
            line.starts_with("ipv4-unicast announced=3 (198.51.0.0/24 …)"),
            "{line}"
        );
        for part in ["65001 65002", "192.0.2.1"] {
            assert!(line.contains(part), "{line}");
        }
        let line = text(&frame(announcement(1)), Some(&params()), false);
        assert!(line.contains("announced=1 (198.51.0.0/24)"), "{line}");
    }

    #[test]
    fn malformed_message_of_any_octets_is_a_bounded_line() {
        let mut octets = announcement(200);
        let body = octets.split_off(HEADER_OCTETS).freeze();
        for kind in [
            MessageKind::Open,
            MessageKind::Update,
            MessageKind::Notification,
        ] {
            for at in 0..body.len() {
                let body = body.slice(at..);
                let frame = Frame { kind, body };
                let line = text(&frame, Some(&params()), true);
                assert!(line.len() <= TRACED_TEXT_OCTETS_MAX, "{line}");
            }
        }
    }

    #[test]
    fn notification_has_code_subcode_and_name() {
        let frame = Frame {
            kind: MessageKind::Notification,
            body: Bytes::from_static(&[6, 4]),
        };
        let line = text(&frame, None, true);
        assert_eq!(line, "code=6 subcode=4 Cease/Administrative Reset");
    }

    #[test]
    fn trace_that_begins_within_a_message_finds_the_next_one() {
        let next = announcement(1);
        for cut in 1..next.len() {
            let mut buffer = BytesMut::from(&next[cut..]);
            buffer.extend_from_slice(&next);
            let mut found = 0;
            loop {
                match next_frame(&mut buffer, MESSAGE_OCTETS_MAX_EXTENDED) {
                    Ok(Some(_)) => found += 1,
                    Ok(None) => break,
                    Err(_) => resynchronize(&mut buffer),
                }
            }
            assert_eq!(found, 1, "cut at {cut}");
        }
    }
}
