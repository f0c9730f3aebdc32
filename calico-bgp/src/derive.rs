//! Derivation of a daemon's configuration from the current state of the datastore.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bgp_config::{Host, Intent, listen_default};
use bgp_proto::ClusterId;
use bgp_speaker::{PeerConfig, RangeConfig, SpeakerConfig};
use calico_model::BindMode;

use crate::duties::{Duties, duties};
use crate::export::Policies;
use crate::fault::Fault;
use crate::own::{Own, Secrets};
use crate::peer::Want;
use crate::reflectors::{self, Wish};
use crate::unsupported::unsupported;
use crate::view::{Node, View};
use crate::{bfd, clients, explicit, mesh};

/// The derived configuration and state of a node's daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// The speaker; `None` while the datastore is not sufficient to configure one.
    pub intent: Option<Intent>,
    /// The peers that exist because of the mesh, the choice of reflectors or a selector.
    pub chosen: Chosen,
    /// The registration that a reflector writes into the datastore.
    pub wish: Option<Wish>,
    /// For a reflector: the addresses of the other reflectors, with their cluster IDs.
    pub reflectors: BTreeMap<IpAddr, Ipv4Addr>,
    /// The duties of the daemon beside its sessions.
    pub duties: Duties,
    /// The origin of each peer, as text for operators.
    pub origins: BTreeMap<IpAddr, String>,
    /// Everything in the datastore that is not applied, and why.
    pub faults: Vec<Fault>,
}

/// The peers that exist because of the mesh, the choice of reflectors or a `peerSelector`. Peers
/// that are configured by their address do not belong to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The addresses of these peers.
    pub peers: BTreeSet<IpAddr>,
    /// The peers with a BGPPeer that selects this node; the other side removes these sessions.
    pub selecting: BTreeSet<IpAddr>,
    /// The BGPPeers with a `peerSelector` that selects a current or former peer.
    pub peerings: BTreeMap<IpAddr, String>,
    /// The addresses of all existing hosts, except hosts whose session is impossible because a
    /// password is missing. A session with any other address is never kept.
    pub hosts: BTreeSet<IpAddr>,
    /// The configuration of former peers as derived from today's datastore: a session that is kept
    /// until other peers have sent its routes uses today's policies and password.
    pub former: BTreeMap<IpAddr, PeerConfig>,
}

/// The peers of the former derivation that the fabric determined, by address, with the BGPPeer that
/// selected them, if there is one.
pub type Placed = BTreeMap<IpAddr, Option<String>>;

/// Derives the configuration of the daemon on `host`.
pub fn derive(view: &View, host: &Host, secrets: &Secrets) -> Derived {
    derive_after(view, host, secrets, &Placed::new())
}

/// Derives the configuration after a former derivation with the peers `before`.
pub fn derive_after(view: &View, host: &Host, secrets: &Secrets, before: &Placed) -> Derived {
    let mut derived = Derived {
        intent: None,
        chosen: Chosen::default(),
        wish: None,
        reflectors: BTreeMap::new(),
        duties: Duties::default(),
        origins: BTreeMap::new(),
        faults: view.faults().cloned().collect(),
    };
    let cluster = Own::cluster_of(view);
    match Own::find(view, host, secrets, &cluster) {
        Ok(own) => fill(own, before, &mut derived),
        Err(fault) => derived.faults.push(fault),
    }
    derived
}

fn fill(mut own: Own<'_>, before: &Placed, derived: &mut Derived) {
    derived.wish = own.host.reflects.then(|| reflectors::wish(&own));
    if let Some(wish) = &derived.wish {
        let faults = [wish.cluster.fault(), reflectors::fault(&own)];
        derived.faults.extend(faults.into_iter().flatten());
        own.cluster_id = wish.cluster.certain().map(ClusterId);
        if own.cluster_id.is_none() {
            return; // The claim is in progress.
        }
    }
    derived.duties = duties(&own);
    derived.chosen.hosts = hosts(own.view);
    if own.host.reflects {
        derived.reflectors = reflectors::others(&own);
    }
    derived.intent = Some(intent(&own, before, derived));
}

fn hosts(view: &View) -> BTreeSet<IpAddr> {
    let nodes = view.nodes.values().flat_map(Node::addresses);
    let reflectors = view
        .fleet
        .all()
        .flat_map(|(_, registration)| registration.addresses());
    nodes.chain(reflectors).collect()
}

fn intent(own: &Own<'_>, before: &Placed, derived: &mut Derived) -> Intent {
    let node = own.node;
    let [v4, v6] = [node.v4, node.v6].map(|network| network.map(|network| network.address()));
    derived.faults.extend(unsupported(own));
    derived.faults.extend(bfd::faults(own));
    let (peers, ranges) = peers(own, before, derived);
    let mut speaker = SpeakerConfig::new(own.asn, own.router_id);
    speaker.cluster_id = own.cluster_id;
    speaker.families = own.host.families;
    speaker.multipath_max = own.host.multipath_max;
    speaker.next_hops = own.host.next_hops;
    speaker.own_next_hop_v4 = v4.and_then(|address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    speaker.own_next_hop_v6 = v6.and_then(|address| match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    });
    (speaker.peers, speaker.ranges) = (peers, ranges);
    Intent {
        speaker,
        listen: listen(own),
        restart_wait: own.host.restart_wait,
        notes: notes(own),
    }
}

/// Returns all peers, each address once: BGPPeers have precedence over the choice of reflectors,
/// and that over the mesh.
fn peers(
    own: &Own<'_>,
    before: &Placed,
    derived: &mut Derived,
) -> (Vec<PeerConfig>, Vec<RangeConfig>) {
    let faults = &mut derived.faults;
    let explicit::Wants {
        all: mut wants,
        mut without_key,
        ..
    } = explicit::wants(own, faults);
    let mut taken: BTreeSet<IpAddr> = wants.iter().map(|want| want.remote).collect();
    let mesh = mesh::wants(own);
    let alone = wants.is_empty() && mesh.is_empty();
    let mut chosen = reflectors::wants(own, alone, faults);
    chosen.extend(mesh);
    chosen.retain(|want| taken.insert(want.remote));
    let mut clients = clients::of_reflector(own);
    clients.retain(|client| !taken.contains(&client.want.remote));
    let Former {
        selected: mut former,
        placed: mut by_fabric,
    } = former(own, before, taken, &mut without_key);
    match own.fabric_keys() {
        Ok(keys) => {
            let clients = clients.iter_mut().map(|client| &mut client.want);
            for want in chosen.iter_mut().chain(clients).chain(&mut by_fabric) {
                want.keys.clone_from(&keys);
            }
        }
        Err(fault) => {
            if !(chosen.is_empty() && clients.is_empty()) {
                faults.push(fault);
            }
            clients.clear();
            let without = chosen.drain(..).chain(by_fabric.drain(..));
            without_key.extend(without.map(|want| want.remote));
        }
    }
    former.extend(by_fabric);
    chosen.extend(wants.extract_if(.., |want| want.selected.is_some()));
    derived.chosen.note(&chosen, &former, &without_key);
    wants.extend(chosen);
    let origins = wants.iter().map(|want| (want.remote, want.from.clone()));
    derived.origins = origins.collect();
    let mut policies = Policies::new(own, &derived.duties);
    let peers = wants.into_iter().map(|want| want.peer(own, &mut policies));
    let mut peers: Vec<PeerConfig> = peers.collect();
    peers.sort_by(|a, b| a.name.cmp(&b.name));
    let ranges = clients.into_iter();
    let ranges = ranges.map(|client| clients::range(client, own, &mut policies));
    let ranges = ranges.collect();
    let former = former.into_iter();
    let former = former.map(|want| (want.remote, want.peer(own, &mut policies)));
    derived.chosen.former = former.collect();
    faults.extend(policies.faults());
    (peers, ranges)
}

impl Chosen {
    /// Records the peers that the fabric determines now, those that it determined before, and those
    /// that are impossible.
    fn note(&mut self, wanted: &[Want<'_>], former: &[Want<'_>], without_key: &BTreeSet<IpAddr>) {
        self.peers = wanted.iter().map(|want| want.remote).collect();
        let selecting = wanted.iter().filter(|want| want.selects_us);
        self.selecting = selecting.map(|want| want.remote).collect();
        let selected = wanted.iter().chain(former);
        let selected = selected.filter_map(|want| Some((want.remote, want.selected?.to_owned())));
        self.peerings = selected.collect();
        self.hosts.retain(|host| !without_key.contains(host));
    }
}

/// The peers of the former derivation that are no longer wanted.
#[derive(Default)]
struct Former<'v> {
    /// Peers that a BGPPeer selected.
    selected: Vec<Want<'v>>,
    /// Peers of the mesh and of the choice of reflectors.
    placed: Vec<Want<'v>>,
}

fn former<'v>(
    own: &Own<'v>,
    before: &Placed,
    mut taken: BTreeSet<IpAddr>,
    without_key: &mut BTreeSet<IpAddr>,
) -> Former<'v> {
    let gone = before.iter().filter(|(remote, _)| !taken.contains(remote));
    let gone: Placed = gone.map(|(at, by)| (*at, by.clone())).collect();
    if gone.is_empty() {
        return Former::default();
    }
    let selected = gone
        .iter()
        .filter_map(|(at, by)| Some((*at, by.as_deref()?)));
    let selected = explicit::at(own, selected, without_key);
    let placed = gone.iter().filter(|(_, by)| by.is_none());
    let addresses: BTreeSet<IpAddr> = placed.map(|(at, _)| *at).collect();
    let mut placed = reflectors::at(own, &addresses);
    placed.extend(mesh::at(own, &addresses));
    placed.retain(|want| taken.insert(want.remote));
    Former { selected, placed }
}

/// Returns the addresses on which the node listens: all addresses, or its own ones.
fn listen(own: &Own<'_>) -> Vec<SocketAddr> {
    let port = own.port_of(&own.host.name);
    match own.cluster.bind() {
        BindMode::None => listen_default(port),
        BindMode::NodeIp => {
            let addresses = own.node.addresses();
            addresses.map(|at| SocketAddr::new(at, port)).collect()
        }
    }
}

fn notes(own: &Own<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if own.view.pools.is_empty() {
        notes
            .push("there is no IPPool in the datastore: only own blocks are advertised".to_owned());
    }
    let name = &own.host.name;
    if !own.host.reflects && own.view.fleet.has(name) {
        notes.push(format!(
            "this node counts as one of the fabric's reflectors, by a registration or a cluster id of \
             this name: it is in no mesh and no reflector accepts it; once no reflector of this name \
             runs, \"cambric reflector remove {name}\" ends that"
        ));
    }
    notes
}
