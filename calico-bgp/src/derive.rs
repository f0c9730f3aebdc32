//! From what is known of the store to what a node's daemon is to do.

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
use crate::unheeded::unheeded;
use crate::view::{Node, View};
use crate::{clients, explicit, mesh};

/// What the daemon of a node is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// The speaker; `None` while the store does not say enough to be one.
    pub intent: Option<Intent>,
    /// Which of its peers come and go with the fabric.
    pub chosen: Chosen,
    /// What a reflector has to say of itself.
    pub wish: Option<Wish>,
    /// The addresses of the other reflectors, for a reflector, with their cluster ids.
    pub reflectors: BTreeMap<IpAddr, Ipv4Addr>,
    /// What it does beside its sessions.
    pub duties: Duties,
    /// What each of its peers comes from, for people.
    pub origins: BTreeMap<IpAddr, String>,
    /// What in the store is not done, and why.
    pub faults: Vec<Fault>,
}

/// Which of the peers of a configuration come and go with the fabric: nodes that the mesh, the choice
/// of reflectors or a `peerSelector` has put there. A peer that is written down by its address does
/// not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// The addresses of these peers.
    pub peers: BTreeSet<IpAddr>,
    /// Those of them that have selected us, not we them: they go by themselves.
    pub selecting: BTreeSet<IpAddr>,
    /// The BGPPeers by which peers that are wanted, or are no longer, were selected.
    pub peerings: BTreeMap<IpAddr, String>,
    /// The addresses of all hosts that there are, but for those with which there can be no session for
    /// want of a password: with whoever is not among them nobody keeps one.
    pub hosts: BTreeSet<IpAddr>,
    /// Those that they are no longer to be peers with, as they would be: a session that is kept until
    /// others carry its routes has the policies and the password of today.
    pub former: BTreeMap<IpAddr, PeerConfig>,
}

/// The peers that the fabric has put there before, by address; with the BGPPeer by which they were
/// selected, if one has.
pub type Placed = BTreeMap<IpAddr, Option<String>>;

/// Works out what the daemon of `host` is to do.
pub fn derive(view: &View, host: &Host, secrets: &Secrets) -> Derived {
    derive_after(view, host, secrets, &Placed::new())
}

/// The same, where the fabric has put peers before.
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
            return; // It is being claimed.
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
    let reflectors = view.fleet.all().flat_map(|(_, said)| said.addresses());
    nodes.chain(reflectors).collect()
}

fn intent(own: &Own<'_>, before: &Placed, derived: &mut Derived) -> Intent {
    let node = own.node;
    let [v4, v6] = [node.v4, node.v6].map(|network| network.map(|network| network.address()));
    derived.faults.extend(unheeded(own));
    let (peers, ranges) = peers(own, before, derived);
    let speaker = SpeakerConfig {
        local_asn: own.asn,
        router_id: own.router_id,
        cluster_id: own.cluster_id,
        families: own.host.families,
        multipath_max: own.host.multipath_max,
        next_hops: own.host.next_hops,
        own_next_hop_v4: v4.and_then(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }),
        own_next_hop_v6: v6.and_then(|address| match address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        }),
        peers,
        ranges,
    };
    Intent {
        speaker,
        listen: listen(own),
        restart_wait: own.host.restart_wait,
        notes: notes(own),
    }
}

/// All peers: a peering goes before the choice of reflectors and that before the mesh, and an
/// address is had once.
fn peers(
    own: &Own<'_>,
    before: &Placed,
    derived: &mut Derived,
) -> (Vec<PeerConfig>, Vec<RangeConfig>) {
    let faults = &mut derived.faults;
    let explicit::Wants {
        all: mut wants,
        mut barred,
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
    } = former(own, before, taken, &mut barred);
    match own.fabric_password() {
        Ok(password) => {
            let clients = clients.iter_mut().map(|client| &mut client.want);
            for want in chosen.iter_mut().chain(clients).chain(&mut by_fabric) {
                want.password.clone_from(&password);
            }
        }
        Err(fault) => {
            if !(chosen.is_empty() && clients.is_empty()) {
                faults.push(fault);
            }
            clients.clear();
            let without = chosen.drain(..).chain(by_fabric.drain(..));
            barred.extend(without.map(|want| want.remote));
        }
    }
    former.extend(by_fabric);
    chosen.extend(wants.extract_if(.., |want| want.selected.is_some()));
    derived.chosen.note(&chosen, &former, &barred);
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
    /// Takes note of whom the fabric wants, has wanted, and cannot have.
    fn note(&mut self, wanted: &[Want<'_>], former: &[Want<'_>], barred: &BTreeSet<IpAddr>) {
        self.peers = wanted.iter().map(|want| want.remote).collect();
        let selecting = wanted.iter().filter(|want| want.selects_us);
        self.selecting = selecting.map(|want| want.remote).collect();
        let selected = wanted.iter().chain(former);
        let selected = selected.filter_map(|want| Some((want.remote, want.selected?.to_owned())));
        self.peerings = selected.collect();
        self.hosts.retain(|host| !barred.contains(host));
    }
}

/// Those of the peers that the fabric has put there before who are not wanted by now.
#[derive(Default)]
struct Former<'v> {
    /// Those that a BGPPeer had selected.
    selected: Vec<Want<'v>>,
    /// Those of the mesh and of the choice of reflectors.
    placed: Vec<Want<'v>>,
}

fn former<'v>(
    own: &Own<'v>,
    before: &Placed,
    mut taken: BTreeSet<IpAddr>,
    barred: &mut BTreeSet<IpAddr>,
) -> Former<'v> {
    let gone = before.iter().filter(|(remote, _)| !taken.contains(remote));
    let gone: Placed = gone.map(|(at, by)| (*at, by.clone())).collect();
    if gone.is_empty() {
        return Former::default();
    }
    let selected = gone
        .iter()
        .filter_map(|(at, by)| Some((*at, by.as_deref()?)));
    let selected = explicit::at(own, selected, barred);
    let placed = gone.iter().filter(|(_, by)| by.is_none());
    let addresses: BTreeSet<IpAddr> = placed.map(|(at, _)| *at).collect();
    let mut placed = reflectors::at(own, &addresses);
    placed.extend(mesh::at(own, &addresses));
    placed.retain(|want| taken.insert(want.remote));
    Former { selected, placed }
}

/// Where the node listens: on all addresses, or on its own.
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
