//! In a stable state the received routes of a speaker are exactly those that the neighbor has sent:
//! the same paths with the same attributes. The sent routes are read from the wire, at the sender.

use std::collections::BTreeMap;

use bgp_proto::{Attributes, Family, Prefix, SessionParams, UpdateView};
use bgp_speaker::{PeerView, Speaker};
use bytes::Bytes;

use crate::agenda::At;
use crate::world::World;

/// A path of a neighbor: family, destination, path identifier.
type Path = (Family, Prefix, u32);

/// Returns the differences between held and sent paths of any neighbor, one line each.
pub fn check(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, machine) in world.machines.iter().enumerate() {
        let Some(bgp) = &machine.bgp.run else {
            continue;
        };
        for peer in bgp.speaker.peers() {
            if let Some(sent) = sent(world, at, &peer) {
                let held = held(&bgp.speaker, &peer);
                let of = format!("{} from {}", machine.name, peer.config.name);
                wrong.extend(differences(&sent, &held).map(|line| format!("{of}: {line}")));
            }
        }
    }
    wrong
}

/// Returns the paths that a neighbor has sent on the connection of its session.
fn sent(world: &World, at: At, peer: &PeerView<'_>) -> Option<BTreeMap<Path, Attributes>> {
    let (params, conn) = (peer.params?, peer.session.established()?);
    let mut paths = BTreeMap::new();
    for body in world.net.updates_to(at, peer.id, conn) {
        apply(&mut paths, body, params);
    }
    Some(paths)
}

fn apply(paths: &mut BTreeMap<Path, Attributes>, body: &Bytes, params: &SessionParams) {
    let Ok((view, _)) = UpdateView::parse(body, params) else {
        return;
    };
    for batch in view.batches() {
        let key =
            |nlri: bgp_proto::Nlri<'_>| Some((batch.family, nlri.net.prefix()?, nlri.path_id));
        for nlri in batch.unreach.clone().flatten().filter_map(key) {
            paths.remove(&nlri);
        }
        let Some(block) = &batch.attrs else { continue };
        let (attributes, _) = block.parse();
        for nlri in batch.reach.clone().flatten().filter_map(key) {
            paths.insert(nlri, attributes.clone());
        }
    }
}

/// Returns the paths that a speaker holds from a neighbor, as received.
fn held(speaker: &Speaker, peer: &PeerView<'_>) -> BTreeMap<Path, Attributes> {
    let mut paths = BTreeMap::new();
    for family in speaker.config().families.iter() {
        for route in speaker.rib().prefixes(family) {
            let Some(prefix) = route.net.prefix() else {
                continue;
            };
            for path in route.paths.iter().filter(|path| path.peer == peer.id) {
                paths.insert((family, prefix, path.path_id), path.received.clone());
            }
        }
    }
    paths
}

fn differences(
    sent: &BTreeMap<Path, Attributes>,
    held: &BTreeMap<Path, Attributes>,
) -> impl Iterator<Item = String> {
    let missing = sent.iter().filter_map(|(path, attributes)| {
        let (_, prefix, id) = path;
        match held.get(path) {
            None => Some(format!("{prefix} id {id} was sent and is not held")),
            Some(held) if held != attributes => Some(format!(
                "{prefix} id {id} was sent as {attributes:?}, and is held as {held:?}"
            )),
            Some(_) => None,
        }
    });
    let more = held.keys().filter(|path| !sent.contains_key(path));
    let more = more.map(|(_, prefix, id)| format!("{prefix} id {id} is held and was not sent"));
    missing.chain(more)
}
