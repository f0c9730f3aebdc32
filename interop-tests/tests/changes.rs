//! Every key of a neighbour and of the store, changed under a living session with BIRD: whether BIRD has kept the
//! session is what the operator's page says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use intent::changes::{Effect, NEIGHBOR_KEYS, STORE_KEYS};
use interop_tests::{Ground, Kind, Setup, Site, Speaker, Store, in_ground};
use ipnet::IpNet;
use lab::{Error, until};

const PATIENCE: Duration = Duration::from_secs(30);

/// The neighbour, key by key as the file has it.
type Keys = BTreeMap<&'static str, &'static str>;

fn keys() -> Keys {
    BTreeMap::from([
        ("name", "\"bird\""),
        ("address", "\"10.0.0.2\""),
        ("asn", "64512"),
        ("connect_retry", "1"),
        ("hold_time", "240"),
        ("password", "\"secret\""),
        ("ttl_security", "true"),
        ("add_path", "\"both\""),
    ])
}

/// What a key is changed to, so that it would matter to BIRD if it mattered at all.
fn changed(key: &str) -> &'static str {
    match key {
        "name" => "\"other\"",
        "address" => "\"10.0.0.9\"",
        "port" => "1179",
        "source" => "\"127.0.0.1\"",
        "passive" | "route_reflector_client" | "extended_messages" | "extended_next_hop" => "true",
        "asn" => "64513",
        "hold_time" => "30",
        "keepalive" => "2",
        "connect_retry" => "2",
        "families" => "[\"ipv4-unicast\"]",
        "import" | "export" => "\"deny\"",
        "next_hop" => "\"self\"",
        "ttl_security" => "3",
        "password" => "\"other\"",
        "cluster_id" => "\"10.9.9.9\"",
        "graceful_restart" => "77",
        "add_path" => "\"off\"",
        "add_path_send" => "\"equal-cost\"",
        "own_as_max" => "1",
        "prefix_limit" => "[{ max = 100 }]",
        _ => panic!("what would another {key} be?"),
    }
}

struct Pair {
    us: Speaker,
    bird: Speaker,
    /// How many routes BIRD has announced, one after another, to mark where it stands.
    marks: u8,
}

impl Pair {
    async fn new(ground: &Ground) -> Self {
        let ours = Setup::fabric().neighbor(Site::v4(2), 64512);
        let ours = ours.announcing("10.65.1.1/32");
        let mut theirs = Setup::fabric().neighbor(Site::v4(1), 64512);
        let neighbor = &mut theirs.neighbors[0];
        (neighbor.password, neighbor.ttl_security) = (Some("secret"), true);
        neighbor.add_path = true;
        let us = ground.speaker(Kind::Client, 1, &ours).await;
        let bird = ground.speaker(Kind::Bird, 2, &theirs).await;
        let mut pair = Self::begun(us, bird).await;
        // It offers whatever we may, and leaves it to us to dial.
        let text = pair.bird.site.load("bird.conf");
        let session = "protocol bgp peer0 {\n passive on; enable extended messages on;";
        let text = text.replace("protocol bgp peer0 {", session);
        let text = text.replace(" ipv4 {", " ipv4 { extended next hop on;");
        pair.bird.site.save("bird.conf", &text);
        pair.ask("configure").await;
        pair.set(&keys()).await;
        pair.is_up().await;
        pair
    }

    async fn begun(us: Speaker, bird: Speaker) -> Self {
        let pair = Self { us, bird, marks: 0 };
        pair.us.reports("a status", |_| true).await;
        let waited = until(PATIENCE, "BIRD", async || {
            let answer = pair.ask("show status").await;
            let runs = answer.contains("up and running").then_some(());
            Ok::<_, Error>(runs.ok_or(answer))
        });
        waited.await.expect("BIRD runs");
        pair
    }

    async fn ask(&self, words: &str) -> String {
        self.bird.tell(words).await.expect("BIRD answers")
    }

    /// Configures our neighbour anew.
    async fn set(&mut self, keys: &Keys) {
        let lines = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
        let section = lines.collect::<String>();
        let edit = |text: String| {
            let (speaker, _) = text.split_once("[[neighbor]]").expect("a neighbour");
            format!("{speaker}[[neighbor]]\n{section}")
        };
        self.us.reconfigure(edit).await;
    }

    /// The state of BIRD's session, and since when it has been so.
    async fn session(&self) -> (String, String) {
        let text = self.ask("show protocols peer0").await;
        let line = text.lines().find(|line| line.starts_with("peer0"));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        let word = |at: usize| words.get(at).copied().unwrap_or_default().to_owned();
        (word(5), word(4))
    }

    async fn wait(&self, what: &str, wanted: impl Fn(&(String, String)) -> bool) {
        let waited = until(PATIENCE, what, async || {
            let session = self.session().await;
            let come = wanted(&session).then_some(());
            Ok::<_, Error>(come.ok_or_else(|| format!("{session:?}")))
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}\n{}", self.us.log_tail(), self.bird.log_tail());
        }
    }

    async fn is_up(&self) {
        self.wait("the session", |(state, _)| state == "Established")
            .await;
    }

    /// BIRD announces another route, and we have it: whatever we said before, BIRD has heard.
    async fn mark(&mut self) {
        let net = self.announce_mark().await;
        self.hears(net).await;
    }

    async fn announce_mark(&mut self) -> IpNet {
        self.marks += 1;
        let net = format!("10.70.{}.0/24", self.marks);
        let own = format!("protocol static marks {{ ipv4; route {net} blackhole; }}\n");
        self.bird.site.save("own.conf", &own);
        self.ask("configure").await;
        net.parse().expect("a net")
    }

    async fn hears(&self, net: IpNet) {
        let waited = until(PATIENCE, "a route of BIRD's", async || {
            let paths = self.us.all_paths().await.unwrap_or_default();
            let heard = paths.iter().any(|(heard, _)| *heard == net);
            Ok::<_, Error>(heard.then_some(()).ok_or_else(String::new))
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}\n{}", self.us.log_tail(), self.bird.log_tail());
        }
    }

    /// Changes the password on our side alone, and back: what BIRD says meanwhile is lost, and
    /// comes as soon as both have the same again.
    async fn change_password(&mut self) {
        let before = self.us.site.tcp_counter("TCPMD5Failure");
        let other = with(&["password"]);
        self.set(&other).await;
        let net = self.is_not_heard(before).await;
        self.set(&keys()).await;
        self.hears(net).await;
    }

    /// BIRD announces another route, which does not come through: the passwords differ.
    async fn is_not_heard(&mut self, before: u64) -> IpNet {
        let net = self.announce_mark().await;
        let waited = until(PATIENCE, "segments of another key", async || {
            let found = self.us.site.tcp_counter("TCPMD5Failure") > before;
            Ok::<_, Error>(found.then_some(()).ok_or_else(String::new))
        });
        waited.await.expect("the key is in force at once");
        net
    }
}

/// The neighbour with other values of these keys.
fn with(others: &[&'static str]) -> Keys {
    let mut keys = keys();
    keys.extend(others.iter().map(|key| (*key, changed(key))));
    keys
}

#[test]
fn bird_keeps_the_sessions_that_the_page_says_stay() {
    in_ground(&[Kind::Bird], "changes", async |ground| {
        let mut pair = Pair::new(&ground).await;
        for row in NEIGHBOR_KEYS {
            let (key, ends) = (row.key, row.effect() >= Some(Effect::Settled));
            let before = pair.session().await;
            match key {
                "password" => pair.change_password().await,
                // Only a client has a cluster.
                "cluster_id" => pair.set(&with(&["route_reflector_client", key])).await,
                _ => pair.set(&with(&[key])).await,
            }
            if ends {
                pair.wait(key, |session| *session != before).await;
            } else {
                pair.mark().await;
                assert_eq!(pair.session().await, before, "after another {key}");
            }
            pair.set(&keys()).await;
            pair.is_up().await;
            if !ends {
                pair.mark().await;
                assert_eq!(pair.session().await, before, "after {key} is back");
            }
        }
    });
}

/// What the store has, by key.
type Contents = BTreeMap<String, String>;

fn resource(kind: &str, name: &str) -> String {
    format!("/calico/resources/v3/projectcalico.org/{kind}/{name}")
}

const CONFIGURATION: &str = "bgpconfigurations/default";
const PEERING: &str = "bgppeers/bird";
const FILTER: &str = "bgpfilters/some";
const POOL: &str = "ippools/pool-v4";
const OURS: &str = "nodes/h1";
const THEIRS: &str = "nodes/h2";
const BLOCK: &str = "/calico/ipam/v2/host/h1/ipv4/block/10.65.7.0-26";

/// BIRD as a node: our peer by the mesh, or by a peering of all nodes. Either way it dials.
fn contents(mesh: bool) -> Contents {
    let secret = r#""secretKeyRef":{"name":"bird","key":"word"}"#;
    let password = format!(r#","nodeMeshPassword":{{{secret}}}"#);
    // A password of a mesh that there is not is no configuration.
    let password = if mesh { &*password } else { "" };
    let mut all = BTreeMap::from([
        (OURS, r#""bgp":{"ipv4Address":"10.0.0.1/24"}"#.to_owned()),
        (THEIRS, r#""bgp":{"ipv4Address":"10.0.0.2/24"}"#.to_owned()),
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

/// One change of the store: of a resource of the mesh's, or the peering's, contents.
struct Flip {
    mesh: bool,
    place: &'static str,
    from: &'static str,
    to: &'static str,
    ends: bool,
}

const fn flip(place: &'static str, from: &'static str, to: &'static str) -> Flip {
    let (mesh, ends) = (false, false);
    Flip {
        mesh,
        place,
        from,
        to,
        ends,
    }
}

impl Flip {
    const fn of_mesh(self) -> Self {
        Self { mesh: true, ..self }
    }

    const fn ends(self) -> Self {
        Self { ends: true, ..self }
    }

    fn contents(&self) -> Contents {
        let mut contents = contents(self.mesh);
        if self.place == BLOCK {
            contents.insert(BLOCK.to_owned(), r#"{"state":"confirmed"}"#.to_owned());
            return contents;
        }
        let (kind, name) = self.place.split_once('/').expect("a kind and a name");
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

/// Another field in a resource.
const fn field(place: &'static str, to: &'static str) -> Flip {
    flip(place, "\"spec\":{", to)
}

/// The flips of a row; each row must have some.
fn flips(key: &str) -> Vec<Flip> {
    let spec = field;
    match key {
        "Node of our own: `spec.bgp.asNumber`" => {
            vec![flip(OURS, "\"bgp\":{", r#""bgp":{"asNumber":64513,"#).ends()]
        }
        "Node of our own: `spec.bgp.ipv4Address`, `spec.bgp.ipv6Address`" => {
            vec![flip(OURS, "10.0.0.1/", "10.0.0.7/").ends()]
        }
        "Node of another: `spec.bgp.ipv4Address`, `spec.bgp.ipv6Address`" => {
            vec![flip(THEIRS, "10.0.0.2/", "10.0.0.9/").of_mesh().ends()]
        }
        "Node of another: `spec.bgp.asNumber`" => {
            vec![
                flip(THEIRS, "\"bgp\":{", r#""bgp":{"asNumber":64513,"#)
                    .of_mesh()
                    .ends(),
            ]
        }
        "Node: `spec.bgp.routeReflectorClusterID`" => {
            let cluster = r#""bgp":{"routeReflectorClusterID":"10.9.9.9","#;
            vec![
                flip(OURS, "\"bgp\":{", cluster),
                flip(THEIRS, "\"bgp\":{", cluster),
            ]
        }
        "Node: `metadata.labels`" => {
            let labels = r#""metadata":{"labels":{"rack":"r1"},"#;
            vec![
                flip(OURS, "\"metadata\":{", labels),
                flip(THEIRS, "\"metadata\":{", labels),
            ]
        }
        "BGPConfiguration `spec.nodeToNodeMeshEnabled`" => {
            vec![flip(CONFIGURATION, "false", "true")]
        }
        "BGPConfiguration `spec.asNumber`" => {
            vec![spec(CONFIGURATION, r#""spec":{"asNumber":64513,"#).ends()]
        }
        "BGPConfiguration `spec.listenPort`" => {
            vec![spec(CONFIGURATION, r#""spec":{"listenPort":1179,"#).of_mesh()]
        }
        "BGPConfiguration `spec.nodeMeshPassword`" => {
            vec![flip(CONFIGURATION, "\"word\"", "\"other\"").of_mesh()]
        }
        "BGPConfiguration `spec.nodeMeshMaxRestartTime`" => {
            vec![spec(CONFIGURATION, r#""spec":{"nodeMeshMaxRestartTime":"77s","#).of_mesh()]
        }
        "BGPConfiguration `spec.communities`, `spec.prefixAdvertisements`" => vec![spec(
            CONFIGURATION,
            r#""spec":{"communities":[{"name":"c","value":"64512:1"}],"prefixAdvertisements":[{"cidr":"10.65.0.0/16","communities":["c"]}],"#,
        )],
        "BGPPeer `spec.node`, `spec.nodeSelector`, `spec.peerSelector`, `spec.reversePeering`" => {
            vec![
                spec(PEERING, r#""spec":{"node":"h1","#),
                spec(PEERING, r#""spec":{"nodeSelector":"all()","#),
                flip(
                    PEERING,
                    r#""peerIP":"10.0.0.2","asNumber":64512"#,
                    r#""peerSelector":"all()""#,
                ),
                spec(PEERING, r#""spec":{"reversePeering":"Manual","#),
            ]
        }
        "BGPPeer `spec.peerIP`" => vec![
            flip(PEERING, "10.0.0.2", "10.0.0.2:1179"),
            flip(PEERING, "10.0.0.2", "10.0.0.9").ends(),
        ],
        "BGPPeer `spec.asNumber`" => vec![flip(PEERING, "64512", "64513").ends()],
        "BGPPeer `spec.localASNumber`" => {
            vec![spec(PEERING, r#""spec":{"localASNumber":64600,"#).ends()]
        }
        "BGPPeer `spec.sourceAddress`" => vec![spec(PEERING, r#""spec":{"sourceAddress":"None","#)],
        "BGPPeer `spec.nextHopMode`, `spec.keepOriginalNextHop`" => vec![
            spec(PEERING, r#""spec":{"nextHopMode":"Self","#),
            spec(PEERING, r#""spec":{"keepOriginalNextHop":true,"#),
        ],
        "BGPPeer `spec.password`, and the secret it names" => {
            vec![flip(PEERING, "\"word\"", "\"other\"")]
        }
        "BGPPeer `spec.maxRestartTime`" => {
            vec![spec(PEERING, r#""spec":{"maxRestartTime":"77s","#)]
        }
        "BGPPeer `spec.keepaliveTime`" => vec![spec(PEERING, r#""spec":{"keepaliveTime":"2s","#)],
        "BGPPeer `spec.numAllowedLocalASNumbers`" => {
            vec![spec(PEERING, r#""spec":{"numAllowedLocalASNumbers":1,"#)]
        }
        "BGPPeer `spec.ttlSecurity`" => vec![spec(PEERING, r#""spec":{"ttlSecurity":250,"#)],
        "BGPPeer `spec.filters`; BGPFilter: all" => vec![
            flip(PEERING, r#"["some"]"#, "[]"),
            flip(FILTER, "10.98.0.0", "10.99.0.0"),
            flip(FILTER, "exportV4", "importV4"),
        ],
        "BGPPeer `spec.reachableBy`" => vec![spec(PEERING, r#""spec":{"reachableBy":"10.0.0.2","#)],
        "IPPool: all; block affinities" => vec![
            spec(POOL, r#""spec":{"disableBGPExport":true,"#),
            flip(BLOCK, "", ""),
        ],
        _ => panic!("how is {key} changed?"),
    }
}

/// A client that the store tells everything, and what the store has by now.
struct Stored {
    pair: Pair,
    store: Store,
    has: Contents,
}

impl Stored {
    async fn new(ground: &Ground) -> Self {
        let store = ground.store().await.expect("a store");
        let has = contents(false);
        for (key, text) in &has {
            store.write(key, text).await;
        }
        let us = ground.stored(Kind::Client, 1).await;
        std::fs::create_dir(us.site.host.directory().join("bird")).expect("made");
        us.site.save("bird/word", "secret\n");
        us.site.save("bird/other", "another\n");
        let theirs = Setup::fabric().neighbor(Site::v4(1), 64512);
        let theirs = theirs.carrying(&["ipv4-unicast"]).password("secret");
        let bird = ground.speaker(Kind::Bird, 2, &theirs).await;
        let pair = Pair::begun(us, bird).await;
        pair.is_up().await;
        Self { pair, store, has }
    }

    /// Writes what is to be something else, and waits each time until the daemon has decided.
    async fn set(&mut self, wanted: Contents) {
        let keys: BTreeSet<String> = self.has.keys().chain(wanted.keys()).cloned().collect();
        let mut keys: Vec<String> = keys.into_iter().collect();
        // What comes is there before anything goes: no peer is without a reason in between.
        keys.sort_by_key(|key| (self.has.contains_key(key), !wanted.contains_key(key)));
        for key in keys {
            let (old, new) = (self.has.get(&key), wanted.get(&key));
            if old == new {
                continue;
            }
            let store = &self.store;
            let change = async || match new {
                Some(text) => store.write(&key, text).await,
                None => store.remove(&key).await,
            };
            self.pair.us.answers(DECIDED, change).await;
        }
        self.has = wanted;
    }

    async fn kept(&mut self, before: &(String, String), what: &str) {
        self.pair.mark().await;
        assert_eq!(self.pair.session().await, *before, "{what}");
    }

    async fn goes_through(&mut self, key: &str, flip: &Flip) {
        let what = format!("{key}: {} in {}", flip.to, flip.place);
        self.set(contents(flip.mesh)).await;
        let before = self.pair.session().await;
        let failures = self.pair.us.site.tcp_counter("TCPMD5Failure");
        self.set(flip.contents()).await;
        let lost = match (flip.ends, flip.is_password()) {
            (true, _) => {
                self.pair.wait(&what, |session| *session != before).await;
                None
            }
            (false, true) => Some(self.pair.is_not_heard(failures).await),
            (false, false) => {
                self.kept(&before, &what).await;
                None
            }
        };
        self.set(contents(flip.mesh)).await;
        if let Some(net) = lost {
            self.pair.hears(net).await;
        }
        self.pair.is_up().await;
        if !flip.ends {
            self.kept(&before, &what).await;
        }
    }
}

/// What the daemon writes of a configuration, whether it takes it or not.
const DECIDED: &str = "configuration ";

#[test]
fn bird_keeps_the_sessions_through_changes_of_the_store() {
    let name = "bird_keeps_the_sessions_through_changes_of_the_store";
    in_ground(&[Kind::Bird], name, async |ground| {
        let mut stored = Stored::new(&ground).await;
        for row in STORE_KEYS {
            let flips = flips(row.key);
            for flip in &flips {
                stored.goes_through(row.key, flip).await;
            }
            // The worst that they do is what the page says, but where it names an exception.
            let ends = flips.iter().any(|flip| flip.ends);
            let said = row.effect() >= Some(Effect::Settled) && !row.note.starts_with("unless");
            assert_eq!(ends, said, "{}", row.key);
        }
    });
}
