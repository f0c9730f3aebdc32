//! MRT files.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Context;
use bgp_proto::{
    AttrBlock, Capability, FamilySet, MESSAGE_OCTETS_MAX_EXTENDED, MessageKind, Net, Nlri,
    NlriIter, Open, PeerKind, SessionParams, next_frame,
};
use bytes::BytesMut;
use mrt::{BgpStateChange, Entry, PeerIndex, Record, Rib, StateChange, TableDump, TableEntry};

use crate::decode::output::Output;
use crate::decode::schema::{Content, End, Line, NlriReport, Place, RibPath, Routes};
use crate::decode::update::params;
use crate::decode::{message, update};

/// Data of earlier records that later records need.
#[derive(Default)]
struct Known {
    /// The peers that RIB records refer to.
    peers: PeerIndex,
    /// Families for which a peer's OPEN offers to send path identifiers.
    add_path: BTreeMap<(IpAddr, IpAddr), FamilySet>,
}

/// Prints the records of an MRT file.
pub(crate) fn run(path: &Path, out: &mut Output<impl Write>) -> anyhow::Result<()> {
    let records = mrt::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut known = Known::default();
    for (record, message) in records.zip(1..) {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let place = Place {
                    offset: Some(error.at()),
                    ..Place::default()
                };
                let content = Content::Error {
                    error: error.to_string(),
                };
                out.line(&Line {
                    message,
                    place,
                    content,
                })?;
                break;
            }
        };
        for (place, content) in lines(&record, &mut known) {
            out.line(&Line {
                message,
                place,
                content,
            })?;
        }
    }
    Ok(())
}

/// Returns the parameters for tables, which have only what a session has accepted.
fn table_params(as4: bool) -> SessionParams {
    update::lenient(&params(PeerKind::Internal, as4, false))
}

/// Returns the objects of one record: several only for the paths of a table.
fn lines(record: &Record, known: &mut Known) -> Vec<(Place<'static>, Content)> {
    let place = Place {
        offset: Some(record.at),
        time: Some(record.time_s),
        microseconds: record.microseconds,
        ..Place::default()
    };
    let entry = match record.entry() {
        Ok(entry) => entry,
        Err(error) => {
            return vec![(
                place,
                Content::Error {
                    error: error.to_string(),
                },
            )];
        }
    };
    match entry {
        Entry::Message(message) => known.messages(&message, place),
        Entry::StateChange(change) => {
            let place = with_session(place, &change.session);
            vec![(place, state_change(change.old, change.new))]
        }
        Entry::BgpStateChange(change) => vec![bgp_state_change(&change, place)],
        Entry::PeerIndex(index) => {
            let content = peer_index(&index);
            known.peers = index;
            vec![(place, content)]
        }
        Entry::Rib(rib) => rib_paths(&rib, &known.peers, &place),
        Entry::TableDump(path) => vec![table_dump(&path, place)],
        Entry::TableEntry(path) => vec![table_entry(&path, place)],
        Entry::Snapshot { view, file } => vec![(place, Content::Snapshot { view, file })],
        _ => {
            let (kind, subtype) = (record.kind, record.subtype);
            vec![(place, Content::Record { kind, subtype })]
        }
    }
}

impl Known {
    fn messages(
        &mut self,
        message: &mrt::Bgp4mpMessage,
        place: Place<'static>,
    ) -> Vec<(Place<'static>, Content)> {
        let session = &message.session;
        let mut place = with_session(place, session);
        place.sent = message.sent;
        let internal = session.peer_asn == session.local_asn;
        let kind = if internal {
            PeerKind::Internal
        } else {
            PeerKind::External
        };
        let params = params(kind, message.as4, message.add_path);
        let ends = (session.peer_address, session.local_address);
        let mut contents = message::messages(&message.octets, &params);
        for content in &mut contents {
            if let Content::Update(routes) = content
                && update::has_bad_routes(routes)
            {
                self.with_path_ids(message, ends, &params, content);
            }
        }
        if let Some(families) = offered_add_path(&message.octets) {
            self.add_path.insert(ends, families);
        }
        contents
            .into_iter()
            .map(|content| (place.clone(), content))
            .collect()
    }

    /// Writers older than RFC 8050 do not mark messages with path identifiers. The routes are read
    /// with identifiers if the peer's OPEN offered to send them and the routes are valid only in
    /// this way.
    fn with_path_ids(
        &self,
        message: &mrt::Bgp4mpMessage,
        ends: (IpAddr, IpAddr),
        params: &SessionParams,
        content: &mut Content,
    ) {
        let Some(families) = self.add_path.get(&ends) else {
            return;
        };
        let params = SessionParams {
            add_path_receive: *families,
            ..params.clone()
        };
        let again = message::messages(&message.octets, &params)
            .into_iter()
            .next();
        if let Some(Content::Update(routes)) = again
            && !update::has_bad_routes(&routes)
        {
            *content = Content::Update(routes);
        }
    }
}

/// Returns the families of the add-path capability, if the octets are an OPEN.
fn offered_add_path(octets: &[u8]) -> Option<FamilySet> {
    let mut buf = BytesMut::from(octets);
    let frame = next_frame(&mut buf, MESSAGE_OCTETS_MAX_EXTENDED).ok()??;
    if frame.kind != MessageKind::Open {
        return None;
    }
    let open = Open::parse(&frame.body).ok()?;
    let offered = open
        .capabilities
        .iter()
        .filter_map(|capability| match capability {
            Capability::AddPath(entries) => Some(entries),
            _ => None,
        });
    Some(
        offered
            .flatten()
            .filter(|(_, mode)| mode.sends())
            .map(|(family, _)| *family)
            .collect(),
    )
}

fn with_session(place: Place<'static>, session: &mrt::Session) -> Place<'static> {
    let peer = End {
        address: session.peer_address,
        asn: session.peer_asn.0,
        id: None,
    };
    let local = End {
        address: session.local_address,
        asn: session.local_asn.0,
        id: None,
    };
    Place {
        peer: Some(peer),
        local: Some(local),
        ..place
    }
}

fn bgp_state_change(
    change: &BgpStateChange,
    mut place: Place<'static>,
) -> (Place<'static>, Content) {
    place.peer = Some(End {
        address: change.peer_address.into(),
        asn: change.peer_asn.0,
        id: None,
    });
    (place, state_change(change.old, change.new))
}

fn state_change(old: u16, new: u16) -> Content {
    let name = |state: u16| {
        StateChange::state_name(state).map_or_else(|| state.to_string(), ToString::to_string)
    };
    Content::StateChange {
        old: name(old),
        new: name(new),
    }
}

const fn end(peer: &mrt::Peer) -> End {
    End {
        address: peer.address,
        asn: peer.asn.0,
        id: Some(peer.id),
    }
}

fn peer_index(index: &PeerIndex) -> Content {
    Content::PeerIndex {
        collector: index.collector_id,
        view: index.view.clone(),
        peers: index.peers.iter().map(end).collect(),
    }
}

fn rib_paths(rib: &Rib, peers: &PeerIndex, place: &Place<'_>) -> Vec<(Place<'static>, Content)> {
    let params = table_params(true);
    let route = NlriIter::new(rib.family, false, &rib.nlri, 0).find_map(Result::ok);
    let route = route.unwrap_or_else(|| Nlri::new(Net::Opaque(&rib.nlri)));
    let paths = rib.entries.iter().enumerate().map(|(entry, path)| {
        let block = mrt::table_attributes(&path.attributes, rib.family, &params);
        let nlri = Nlri {
            path_id: path.path_id.unwrap_or_default(),
            ..route
        };
        let report = update::nlri_report(&nlri, path.path_id.is_some());
        let routes = update::table_path(&block, &path.attributes, rib.family, report);
        let place = Place {
            offset: place.offset,
            time: place.time,
            peer: peers.peers.get(usize::from(path.peer)).map(end),
            ..Place::default()
        };
        let (sequence, originated) = (rib.sequence, path.originated_s);
        (
            place,
            Content::Rib(Box::new(RibPath {
                entry,
                sequence,
                originated,
                routes,
            })),
        )
    });
    paths.collect()
}

fn table_dump(path: &TableDump, place: Place<'static>) -> (Place<'static>, Content) {
    let family = path.family();
    let params = table_params(false);
    let block = mrt::table_attributes(&path.attributes, family, &params);
    let nlri = update::nlri_report(&Nlri::new(path.prefix.into()), false);
    let routes = update::table_path(&block, &path.attributes, family, nlri);
    let peer = End {
        address: path.peer_address,
        asn: path.peer_asn.0,
        id: None,
    };
    let place = Place {
        peer: Some(peer),
        ..place
    };
    let sequence = u32::from(path.sequence);
    (place, single(sequence, path.originated_s, routes))
}

fn table_entry(path: &TableEntry, place: Place<'static>) -> (Place<'static>, Content) {
    let params = table_params(false);
    let next_hop = (!path.next_hop.is_empty()).then_some(&path.next_hop[..]);
    let block = AttrBlock::from_octets(&path.attributes, path.family, next_hop, &params);
    let route = NlriIter::new(path.family, false, &path.nlri, 0).find_map(Result::ok);
    let nlri = match route {
        Some(route) => update::nlri_report(&route, false),
        None => NlriReport {
            prefix: None,
            opaque: None,
            path_id: None,
        },
    };
    let routes = update::table_path(&block, &path.attributes, path.family, nlri);
    let place = with_session(place, &path.session);
    (place, single(0, path.changed_s, routes))
}

fn single(sequence: u32, originated: u32, routes: Routes) -> Content {
    Content::Rib(Box::new(RibPath {
        entry: 0,
        sequence,
        originated,
        routes,
    }))
}
