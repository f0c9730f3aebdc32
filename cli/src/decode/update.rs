//! UPDATE messages and the paths of tables.

use bgp_proto::attr::RawAttrs;
use bgp_proto::{
    AttrBlock, AttrCode, Family, FamilySet, Fault, FaultKind, HEADER_OCTETS, NextHop, Nlri,
    NlriIter, Notification, PeerKind, SessionParams, UpdateView,
};

use crate::decode::attributes;
use crate::decode::octets::to_hex;
use crate::decode::schema::{AttributeReport, FaultReport, NlriReport, Reach, Routes, Unreach};

/// Returns the parameters of a session about which only the encoding of its messages is known.
pub(crate) fn params(kind: PeerKind, as4: bool, add_path: bool) -> SessionParams {
    SessionParams {
        kind,
        as4,
        families: FamilySet::all(),
        add_path_receive: match add_path {
            true => FamilySet::all(),
            false => FamilySet::EMPTY,
        },
        extended_receive: true,
        extended_next_hop: true,
        ..SessionParams::default()
    }
}

/// Returns the session's parameters with all families: the whole content of a message is printed
/// even if a session would ignore a part. The faults are those of the real session.
pub(crate) fn lenient(params: &SessionParams) -> SessionParams {
    SessionParams {
        kind: PeerKind::Internal,
        v4_mapped_next_hop: true,
        ..params.clone()
    }
}

/// Returns whether there are malformed routes.
pub(crate) fn has_bad_routes(routes: &Routes) -> bool {
    let bad = [
        FaultKind::NlriSyntax.slug(),
        FaultKind::OpaqueNlriSyntax.slug(),
    ];
    routes.faults.iter().any(|fault| bad.contains(&fault.fault))
}

/// Reports an UPDATE with its body.
pub(crate) fn report(
    view: &UpdateView<'_>,
    mut faults: Vec<Fault>,
    body: &[u8],
    params: &SessionParams,
) -> Result<Routes, Notification> {
    let (shown, _) = UpdateView::parse(body, &lenient(params))?;
    for attrs in view.batches_as_sent().filter_map(|batch| batch.attrs) {
        let (_, found) = attrs.parse();
        faults.extend(
            found
                .iter()
                .filter(|fault| !faults.contains(fault))
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    let mut routes = Routes::default();
    for batch in shown.batches_as_sent() {
        let family = batch.family.to_string();
        let add_path = params.add_path_receive.contains(batch.family);
        let unreach = nlri(batch.unreach, add_path, &mut faults);
        if !unreach.is_empty() {
            routes.unreach.push(Unreach {
                family: family.clone(),
                nlri: unreach,
            });
        }
        let list = nlri(batch.reach, add_path, &mut faults);
        if let Some(attrs) = batch.attrs {
            let (set, _) = attrs.parse();
            routes
                .reach
                .push(reach(family, set.next_hop.as_ref(), list));
        }
    }
    routes.end_of_rib = view.end_of_rib().map(|family| family.to_string());
    routes.attributes = message_attributes(body, params, &faults);
    routes.faults = faults
        .iter()
        .map(|fault| fault_report(fault, HEADER_OCTETS))
        .collect();
    Ok(routes)
}

/// Returns the attributes of an UPDATE, with or without routes.
fn message_attributes(body: &[u8], params: &SessionParams, faults: &[Fault]) -> AttributeReport {
    let Some((octets, at)) = attribute_field(body) else {
        return AttributeReport::default();
    };
    let block = AttrBlock::from_octets(octets, Family::IPV4_UNICAST, None, &lenient(params));
    let (set, found) = block.parse();
    let mut report = attributes::report(&set, &found, octets);
    // Multiprotocol attributes that could not be split.
    let unused = RawAttrs::new(octets, at)
        .map_while(Result::ok)
        .filter(|attr| {
            faults.iter().any(|fault| {
                let here = fault.attr == attr.code && usize::from(fault.at) == attr.at;
                here && !matches!(fault.kind, FaultKind::Flags | FaultKind::NextHop)
            }) && matches!(attr.code, AttrCode::MpReach | AttrCode::MpUnreach)
        });
    report
        .unknown
        .extend(unused.map(|attr| attributes::unknown(&attr)));
    report
}

/// The path attributes in the body of an UPDATE, and their offset.
fn attribute_field(body: &[u8]) -> Option<(&[u8], usize)> {
    let (len, rest) = body.split_first_chunk::<2>()?;
    let withdrawn = usize::from(u16::from_be_bytes(*len));
    let (len, rest) = rest.get(withdrawn..)?.split_first_chunk::<2>()?;
    let octets = rest.get(..usize::from(u16::from_be_bytes(*len)))?;
    Some((octets, 4 + withdrawn))
}

/// Reports a path of a table.
pub(crate) fn table_path(
    block: &AttrBlock<'_>,
    octets: &[u8],
    family: Family,
    nlri: NlriReport,
) -> Routes {
    let (set, faults) = block.parse();
    Routes {
        reach: vec![reach(family.to_string(), set.next_hop.as_ref(), vec![nlri])],
        attributes: attributes::report(&set, &faults, octets),
        faults: faults.iter().map(|fault| fault_report(fault, 0)).collect(),
        ..Routes::default()
    }
}

fn reach(family: String, next_hop: Option<&NextHop>, nlri: Vec<NlriReport>) -> Reach {
    let (next_hop, link_local) = match next_hop {
        Some(NextHop::V6 { global, link_local }) => (
            Some(global.to_string()),
            link_local.map(|local| local.to_string()),
        ),
        other => (other.map(ToString::to_string), None),
    };
    Reach {
        family,
        next_hop,
        link_local,
        nlri,
    }
}

fn nlri(routes: NlriIter<'_>, add_path: bool, faults: &mut Vec<Fault>) -> Vec<NlriReport> {
    let mut list = Vec::new();
    for route in routes {
        match route {
            Ok(route) => list.push(nlri_report(&route, add_path)),
            Err(fault) => faults.push(fault),
        }
    }
    list
}

/// Reports one destination.
pub(crate) fn nlri_report(route: &Nlri<'_>, add_path: bool) -> NlriReport {
    let opaque = match route.net {
        bgp_proto::Net::Opaque(octets) => Some(to_hex(octets)),
        _ => None,
    };
    NlriReport {
        prefix: route.net.prefix().map(|prefix| prefix.to_string()),
        opaque,
        path_id: add_path.then_some(route.path_id),
    }
}

fn fault_report(fault: &Fault, before: usize) -> FaultReport {
    FaultReport {
        at: before + usize::from(fault.at),
        attribute: (fault.attr != AttrCode::None).then(|| fault.attr.to_string()),
        fault: fault.kind.slug(),
        text: fault.kind.text().into(),
        remedy: fault.remedy().name(),
    }
}
