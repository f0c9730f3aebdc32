//! The received messages of a scripted peer: routes as octets, not interpreted.

use std::{collections::BTreeMap, fmt, net::Ipv4Addr};

use bgp_proto::{
    AttrCode, Family, FamilySet, Frame, MessageKind, Notification, SessionParams, UpdateView,
    attr::RawAttr,
};
use ipnet::Ipv4Net;

/// Everything received on a session.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The current routes: announced and not withdrawn since.
    pub routes: BTreeMap<Destination, Attributes>,
    /// Every destination that was ever announced, in order.
    pub announced: Vec<Destination>,
    /// The ORIGINATOR_ID of every route that was ever announced, in order.
    pub originators: Vec<Option<Ipv4Addr>>,
    /// Every destination that was ever withdrawn, in order.
    pub withdrawn: Vec<Destination>,
    /// Faults of the received messages: forms that a speaker should not send.
    pub oddities: Vec<String>,
    /// The received NOTIFICATION.
    pub notification: Option<Notification>,
    /// Whether the connection has ended.
    pub ended: bool,
}

/// A family, and the octets of the NLRI in a message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// Its family.
    pub family: Family,
    /// Its octets.
    pub nlri: Vec<u8>,
}

/// Attributes by type code: flags and value. The next hop of MP_REACH_NLRI is under code 14,
/// without the attribute's header and NLRI.
pub type Attributes = BTreeMap<u8, (u8, Vec<u8>)>;

impl Destination {
    /// An IPv4 prefix.
    pub fn v4(net: Ipv4Net) -> Self {
        Self {
            family: Family::IPV4_UNICAST,
            nlri: testkit::nlri(net),
        }
    }
}

impl Destination {
    /// Returns the key of the route: equal for its withdrawal, where labels may differ.
    fn key(&self) -> (Family, Vec<u8>) {
        let mut key = vec![];
        let row = self.family.row().expect("a family that is known");
        row.key(&self.nlri, &mut key);
        (self.family, key)
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.family)?;
        self.nlri
            .iter()
            .try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// Returns the identifiers in the value of an attribute; empty without the attribute.
fn ids(attributes: &Attributes, code: AttrCode) -> Vec<Ipv4Addr> {
    let octets = attributes.get(&code.0).map(|(_, value)| value.as_slice());
    let ids = octets.unwrap_or_default().as_chunks::<4>().0.iter();
    ids.map(|&octets| Ipv4Addr::from(octets)).collect()
}

impl Received {
    /// Returns whether there is a current route to `net`.
    pub fn has(&self, net: Ipv4Net) -> bool {
        self.routes.contains_key(&Destination::v4(net))
    }

    /// Returns ORIGINATOR_ID and CLUSTER_LIST of the current route to `net`.
    ///
    /// # Panics
    /// If there is no such route.
    pub fn reflection_of(&self, net: Ipv4Net) -> (Option<Ipv4Addr>, Vec<Ipv4Addr>) {
        let attributes = &self.routes[&Destination::v4(net)];
        let originator = ids(attributes, AttrCode::OriginatorId).first().copied();
        (originator, ids(attributes, AttrCode::ClusterList))
    }

    /// Records a received message.
    pub(crate) fn take(&mut self, frame: &Frame) {
        match frame.kind {
            MessageKind::Update => self.update(&frame.body),
            MessageKind::Notification => self.notification = Notification::parse(&frame.body),
            _ => {}
        }
    }

    fn update(&mut self, body: &[u8]) {
        let params = SessionParams {
            as4: true,
            families: FamilySet::all(),
            ..SessionParams::default()
        };
        let (view, faults) = match UpdateView::parse(body, &params) {
            Ok(parsed) => parsed,
            Err(notification) => return self.oddities.push(notification.to_string()),
        };
        let odd = faults.iter().map(|fault| format!("{fault:?}"));
        self.oddities.extend(odd);
        let attributes = self.attributes(view.raw_attributes());
        for batch in view.batches_as_sent() {
            let family = batch.family;
            for nlri in batch.unreach.flatten() {
                let destination = destination(family, nlri.net);
                let key = destination.key();
                self.routes.retain(|route, _| route.key() != key);
                self.withdrawn.push(destination);
            }
            for nlri in batch.reach.flatten() {
                let destination = destination(family, nlri.net);
                let mut attributes = attributes.clone();
                if let Some(hop) = mp_next_hop(body, family) {
                    attributes.insert(AttrCode::MpReach.0, (0x80, hop));
                }
                self.announced.push(destination.clone());
                let originator = ids(&attributes, AttrCode::OriginatorId).first().copied();
                self.originators.push(originator);
                let key = destination.key();
                self.routes.retain(|route, _| route.key() != key);
                self.routes.insert(destination, attributes);
            }
        }
    }

    /// Returns the attributes by type code, and records faults. RFC 4271 §5: sorted by type, each
    /// type once.
    fn attributes<'a>(&mut self, raw: impl Iterator<Item = RawAttr<'a>>) -> Attributes {
        let mut attributes = Attributes::new();
        let mut last = 0;
        for attribute in raw {
            let code = attribute.code.0;
            if code <= last {
                self.oddities.push(format!("attribute {code} after {last}"));
            }
            last = code;
            // The Extended Length flag carries no information.
            let flags = attribute.flags & !0x10;
            attributes.insert(code, (flags, attribute.value.to_vec()));
        }
        attributes
    }
}

fn destination(family: Family, net: bgp_proto::Net<'_>) -> Destination {
    let nlri = match net {
        bgp_proto::Net::V4(prefix) => {
            let octets = usize::from(prefix.len().div_ceil(8));
            [&[prefix.len()], &prefix.addr().octets()[..octets]].concat()
        }
        bgp_proto::Net::V6(prefix) => {
            let octets = usize::from(prefix.len().div_ceil(8));
            [&[prefix.len()], &prefix.addr().octets()[..octets]].concat()
        }
        bgp_proto::Net::Opaque(octets) => octets.to_vec(),
    };
    Destination { family, nlri }
}

/// Returns the octets of the next hop in the MP_REACH_NLRI (RFC 4760 §3) of an UPDATE, if it has
/// one of this family.
fn mp_next_hop(body: &[u8], family: Family) -> Option<Vec<u8>> {
    let field = |octets: &[u8]| -> Option<usize> {
        Some(usize::from(u16::from_be_bytes(*octets.first_chunk()?)))
    };
    let rest = body.get(2 + field(body)?..)?;
    let mut rest = rest.get(2..2 + field(rest)?)?;
    while let [flags, code, after @ ..] = rest {
        let (len, head) = match flags & 0x10 {
            0 => (usize::from(*after.first()?), 1),
            _ => (field(after)?, 2),
        };
        let value = after.get(head..head + len)?;
        rest = after.get(head + len..)?;
        if *code == AttrCode::MpReach.0
            && value.get(..3)? == [&family.afi.to_be_bytes()[..], &[family.safi]].concat()
        {
            return Some(value.get(4..4 + usize::from(*value.get(3)?))?.to_vec());
        }
    }
    None
}
