//! Changes every key of the datastore during sessions with BIRD.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bgp_config::changes::{Effect, STORE_KEYS};
use interop_tests::{Ground, Kind, Setup, Site, Store, in_ground};
use ipnet::IpNet;

use super::Pair;
use flips::flips;

mod flips;

/// The datastore's content, by key.
type Contents = BTreeMap<String, String>;

fn resource(kind: &str, name: &str) -> String {
    format!("/calico/resources/v3/projectcalico.org/{kind}/{name}")
}

const CONFIGURATION: &str = "bgpconfigurations/default";
const PEERING: &str = "bgppeers/bird";
const WORKLOADS: &str = "bgppeers/workloads";
const TIMERS: &str = "bfdconfigurations/fast";
const FILTER: &str = "bgpfilters/some";
const POOL: &str = "ippools/pool-v4";
const OURS: &str = "nodes/h1";
const THEIRS: &str = "nodes/h2";
const BLOCK: &str = "/calico/ipam/v2/host/h1/ipv4/block/10.65.7.0-26";

/// BIRD's session over IPv6, which only the full mesh has.
const OVER_IPV6: &str = "peer1";

/// A second address of the daemon's host.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);

/// Returns a datastore with BIRD as a node: the daemon peers with it by the full mesh, or by a
/// BGPPeer of all nodes. BIRD dials in both cases.
fn contents(mesh: bool) -> Contents {
    let secret = r#""secretKeyRef":{"name":"bird","key":"word"}"#;
    let password = format!(r#","nodeMeshPassword":{{{secret}}}"#);
    // A password of a disabled mesh is not part of the configuration.
    let password = if mesh { &*password } else { "" };
    let mut all = BTreeMap::from([
        (OURS, addresses(1)),
        (THEIRS, addresses(2)),
        (POOL, r#""cidr":"10.65.0.0/16""#.to_owned()),
        (
            FILTER,
            r#""exportV4":[{"cidr":"10.98.0.0/16","matchOperator":"In","action":"Reject"}]"#
                .to_owned(),
        ),
        (
            CONFIGURATION,
            format!(r#""nodeToNodeMeshEnabled":{mesh}{password}"#),
        ),
    ]);
    if !mesh {
        let peering = format!(
            r#""peerIP":"10.0.0.2","asNumber":64512,"filters":["some"],"password":{{{secret}}}"#
        );
        all.insert(PEERING, peering);
    }
    all.into_iter()
        .map(|(place, spec)| {
            let (kind, name) = place.split_once('/').expect("a kind and a name");
            let text = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}"#);
            (resource(kind, name), text)
        })
        .collect()
}

fn addresses(number: u8) -> String {
    let (v4, v6) = (Site::v4(number), Site::v6(number));
    format!(r#""bgp":{{"ipv4Address":"{v4}/24","ipv6Address":"{v6}/64"}}"#)
}

/// One change in the datastore: a field of a resource, starting from the mesh or from the BGPPeer.
struct Flip {
    mesh: bool,
    place: &'static str,
    from: &'static str,
    to: &'static str,
    ends: bool,
    /// Whether the change concerns the session over IPv6.
    ipv6: bool,
    /// Whether BIRD is to dial another address than that of the daemon's node.
    elsewhere: bool,
}

const fn flip(place: &'static str, from: &'static str, to: &'static str) -> Flip {
    Flip {
        mesh: false,
        place,
        from,
        to,
        ends: false,
        ipv6: false,
        elsewhere: false,
    }
}

impl Flip {
    const fn over_ipv6(self) -> Self {
        let (mesh, ipv6) = (true, true);
        Self { mesh, ipv6, ..self }
    }

    const fn dialed_elsewhere(self) -> Self {
        let elsewhere = true;
        Self { elsewhere, ..self }
    }

    const fn of_mesh(self) -> Self {
        Self { mesh: true, ..self }
    }

    const fn ends(self) -> Self {
        Self { ends: true, ..self }
    }

    /// Returns the datastore's content before the change.
    fn base(&self) -> Contents {
        let mut contents = contents(self.mesh);
        if self.elsewhere {
            let peering = contents.get_mut(&resource("bgppeers", "bird"));
            let peering = peering.expect("a peering");
            *peering = peering.replace("\"spec\":{", r#""spec":{"sourceAddress":"None","#);
        }
        contents
    }

    fn contents(&self) -> Contents {
        let mut contents = self.base();
        if self.place == BLOCK {
            contents.insert(BLOCK.to_owned(), r#"{"state":"confirmed"}"#.to_owned());
            return contents;
        }
        let (kind, name) = self.place.split_once('/').expect("a kind and a name");
        let created = match self.place {
            WORKLOADS => Some(r#"{"spec":{"localWorkloadSelector":"all()","asNumber":65010}}"#),
            TIMERS => Some(r#"{"spec":{"nodeSelector":"all()","interfaces":[{}]}}"#),
            _ => None,
        };
        if let Some(text) = created {
            contents.insert(resource(kind, name), text.to_owned());
            return contents;
        }
        let text = contents
            .get_mut(&resource(kind, name))
            .expect("it is there");
        assert!(text.contains(self.from), "{text} has no {}", self.from);
        *text = text.replacen(self.from, self.to, 1);
        contents
    }

    fn is_password(&self) -> bool {
        self.to.contains("\"other\"")
    }
}

/// A client with its configuration in the datastore, and the datastore's current content.
struct Stored {
    pair: Pair,
    store: Store,
    has: Contents,
    /// How many invalid values were written as markers of the daemon's progress.
    marks: u32,
    /// The address that BIRD dials.
    dials: IpAddr,
}

impl Stored {
    /// Starts the pair; `keys` are further lines of the daemon's configuration file.
    async fn new(ground: &Ground, keys: &str) -> Self {
        let store = ground.store().await.expect("a store");
        let has = contents(false);
        for (key, text) in &has {
            store.write(key, text).await;
        }
        let us = ground.stored_with(Kind::Client, 1, keys).await;
        let links = us.site.host.links().expect("links");
        for (address, length) in [(IpAddr::from(ELSEWHERE), 24), (Site::v6(7).into(), 64)] {
            let address = IpNet::new(address, length).expect("a length that fits");
            links.add_address("eth0", address).await.expect("added");
        }
        std::fs::create_dir(us.site.host.directory().join("bird")).expect("made");
        us.site.save("bird/word", "secret\n");
        us.site.save("bird/other", "another\n");
        let theirs = Setup::fabric()
            .neighbor(Site::v4(1), 64512)
            .carrying(&["ipv4-unicast"])
            .password("secret")
            .add_path()
            .neighbor(Site::v6(1), 64512)
            .carrying(&["ipv6-unicast"])
            .password("secret");
        let bird = ground.speaker(Kind::Bird, 2, &theirs).await;
        let pair = Pair::begun(us, bird).await;
        Self {
            pair,
            store,
            has,
            marks: 0,
            dials: Site::v4(1).into(),
        }
    }

    /// Writes each difference to the wanted content, and waits each time until the daemon has
    /// processed it.
    async fn set(&mut self, wanted: Contents) {
        let keys: BTreeSet<String> = self.has.keys().chain(wanted.keys()).cloned().collect();
        let mut keys: Vec<String> = keys.into_iter().collect();
        // Additions come before deletions, so that every peer is always configured by some
        // resource.
        keys.sort_by_key(|key| (self.has.contains_key(key), !wanted.contains_key(key)));
        for key in keys {
            let (old, new) = (self.has.get(&key), wanted.get(&key));
            if old == new {
                continue;
            }
            match new {
                Some(text) => self.store.write(&key, text).await,
                None => self.store.remove(&key).await,
            }
            self.has_decided(&key).await;
        }
        self.has = wanted;
    }

    /// Writes an invalid value after the key and waits until the daemon reports it: it has then
    /// processed the key, too.
    async fn has_decided(&mut self, key: &str) {
        self.marks += 1;
        let (beside, _) = key.rsplit_once('/').expect("a path");
        let mark = match key {
            BLOCK => format!("{beside}/10.66.{}.0-26", self.marks),
            _ => format!("{beside}/mark-{}", self.marks),
        };
        let logged = format!("key=\"{mark}\"");
        let change = async || self.store.write(&mark, "not a value").await;
        self.pair.us.answers(&logged, change).await;
        self.store.remove(&mark).await;
    }

    /// Has BIRD dial another address of the daemon's host, or that of its node again.
    async fn dial(&mut self, address: Ipv4Addr) {
        if self.dials == address {
            return;
        }
        let bird = &self.pair.bird.site;
        let neighbor = |address| format!("neighbor {address} as");
        let text = bird.load("bird.conf");
        let text = text.replace(&neighbor(self.dials), &neighbor(address.into()));
        bird.save("bird.conf", &text);
        self.pair.ask("configure").await;
        self.dials = address.into();
    }

    async fn begins(&mut self, flip: &Flip) {
        self.set(flip.base()).await;
        let at = if flip.elsewhere {
            ELSEWHERE
        } else {
            Site::v4(1)
        };
        self.dial(at).await;
        self.pair.is_up().await;
        if flip.ipv6 {
            self.pair.is_up_at(OVER_IPV6).await;
        }
    }

    async fn goes_through(&mut self, key: &str, flip: &Flip) {
        let what = format!("{key}: {} in {}", flip.to, flip.place);
        self.begins(flip).await;
        let before = self.pair.whole().await;
        let before_ipv6 = self.pair.session_of(OVER_IPV6).await;
        let failures = self.pair.us.site.tcp_counter("TCPMD5Failure");
        self.set(flip.contents()).await;
        let mut lost = None;
        if flip.is_password() {
            lost = Some(self.pair.does_not_receive(failures).await);
        } else if flip.ends && flip.ipv6 {
            self.pair.is_over(OVER_IPV6, &what, &before_ipv6).await;
        } else if flip.ends {
            self.pair.is_over("peer0", &what, &before).await;
        }
        let stays = !flip.ends || flip.ipv6;
        if stays && lost.is_none() {
            self.pair.is_kept(&before, &what).await;
        }
        self.set(flip.base()).await;
        if let Some(net) = lost {
            self.pair.receives(net).await;
        }
        self.pair.is_up().await;
        if stays {
            self.pair.is_kept(&before, &what).await;
        }
    }
}

#[test]
fn bird_keeps_the_sessions_through_changes_of_the_store() {
    let name = "bird_keeps_the_sessions_through_changes_of_the_store";
    in_ground(&[Kind::Bird], name, async |ground| {
        let mut stored = Stored::new(&ground, "").await;
        for row in STORE_KEYS {
            let flips = flips(row.key);
            for flip in flips {
                stored.goes_through(row.key, flip).await;
            }
            // The worst effect of the row's changes is the one that the page states.
            let ends = flips.iter().any(|flip| flip.ends);
            assert_eq!(
                ends,
                row.effect() >= Some(Effect::Renegotiated),
                "{}",
                row.key
            );
        }
    });
}

/// The only exception on the page: a reflector sends several paths to a client with multipath,
/// which both OPENs negotiate.
#[test]
fn multipath_node_is_reset_when_it_becomes_a_reflector() {
    let name = "multipath_node_is_reset_when_it_becomes_a_reflector";
    in_ground(&[Kind::Bird], name, async |ground| {
        let mut stored = Stored::new(&ground, "multipath = 4\n").await;
        let key = "Node: `spec.bgp.routeReflectorClusterID`";
        for flip in flips(key) {
            let ends = flip.place == OURS;
            stored.goes_through(key, &Flip { ends, ..*flip }).await;
        }
    });
}
