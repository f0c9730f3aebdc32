//! The encoding of messages by the capabilities of both OPENs.

use bgp_proto::{Asn, Capability, FamilySet, Open, PeerKind};

/// How the messages of one direction are encoded. An OPEN that the capture lacks is assumed to
/// permit AS numbers of four octets and no path identifiers, and to be of the same AS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Whether both sides are in one AS.
    pub kind: PeerKind,
    /// Whether AS numbers have four octets (RFC 6793).
    pub as4: bool,
    /// Families with path identifiers in their NLRI (RFC 7911).
    pub add_path: FamilySet,
}

impl Encoding {
    pub(crate) fn new(sender: Option<&Open>, receiver: Option<&Open>) -> Self {
        let mut known = [sender, receiver].into_iter().flatten();
        let as4 = known.all(|open| four_octet_asn(open).is_some());
        let (Some(sender), Some(receiver)) = (sender, receiver) else {
            return Self {
                kind: PeerKind::Internal,
                as4,
                add_path: FamilySet::EMPTY,
            };
        };
        let asn = |open: &Open| four_octet_asn(open).unwrap_or(open.asn);
        let sent = add_path(sender, true);
        let kind = match asn(sender) == asn(receiver) {
            true => PeerKind::Internal,
            false => PeerKind::External,
        };
        Self {
            kind,
            as4,
            add_path: add_path(receiver, false)
                .iter()
                .filter(|family| sent.contains(*family))
                .collect(),
        }
    }
}

/// Returns the AS number of the capability.
fn four_octet_asn(open: &Open) -> Option<Asn> {
    let mut capabilities = open.capabilities.iter();
    capabilities.find_map(|capability| match capability {
        Capability::FourOctetAsn(asn) => Some(*asn),
        _ => None,
    })
}

/// Returns the families with path identifiers that the sender of an OPEN can send, or receive.
fn add_path(open: &Open, sends: bool) -> FamilySet {
    let entries = (open.capabilities.iter()).filter_map(|capability| match capability {
        Capability::AddPath(entries) => Some(entries),
        _ => None,
    });
    let can = entries.flatten().filter(|(_, mode)| match sends {
        true => mode.sends(),
        false => mode.receives(),
    });
    can.map(|(family, _)| *family).collect()
}
