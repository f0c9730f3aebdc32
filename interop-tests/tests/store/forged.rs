//! A node that advertises the address of another node's workload as if it were a route reflector: with
//! forged attributes of RFC 4456, and with a registration of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bgp_proto::{Asn, AttrCode, Capability, Family, Ipv4Prefix, MessageKind, Open, RouterId};
use calico_model::FabricKey;
use interop_tests::{Ground, Kind, Site, Speaker, Store, in_ground};
use netns_lab::{Error, until};
use testkit::{Encode, EndOfRib, OPTIONAL, TcpPeer, Update, WELL_KNOWN};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{PATIENCE, begun, net};

const REFLECTOR: u8 = 11;
/// The node that sends to the workload, the node of the workload, and the attacker.
const FROM: u8 = 1;
const HOME: u8 = 2;
const ATTACKER: u8 = 3;

/// The address of the workload, outside the block of its node: so the node advertises it.
const TO: &str = "10.65.200.9/32";
/// The metric of a workload's route on its settled node.
const METRIC: u32 = 1024;
/// The cluster that the attacker pretends to be.
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);

/// Pause before the attacker connects again.
const AGAIN: Duration = Duration::from_millis(100);

struct Fabric {
    store: Store,
    reflector: Speaker,
    from: Speaker,
    _home: Speaker,
    attacker: Site,
}

impl Fabric {
    /// Starts a fabric whose daemons have a mode of origin validation. The workload is reachable.
    async fn new(ground: &Ground, mode: &str) -> Self {
        let store = ground.store().await.expect("a store");
        let settings = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false}}"#;
        store.put("bgpconfigurations", "default", settings).await;
        // The label is the operator's record that the node is a route reflector.
        let at = Site::v4(REFLECTOR);
        let name = format!("h{REFLECTOR}");
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"cambric.io/reflector-weight":"1"}}}},
                "spec":{{"bgp":{{"ipv4Address":"{at}/24"}}}}}}"#
        );
        store.put("nodes", &name, &text).await;
        for number in [FROM, HOME, ATTACKER] {
            store.node(number, "").await;
            store.block(number, &format!("10.65.{number}.0/26")).await;
        }
        let text = format!(r#"{{"spec":{{"node":"h{HOME}","ipNetworks":["{TO}"]}}}}"#);
        store.put("workloadendpoints", "ns/w", &text).await;
        let keys = format!("origin_validation = \"{mode}\"\n");
        let reflector = ground.stored_with(Kind::Reflector, REFLECTOR, &keys).await;
        let from = ground.stored_with(Kind::Client, FROM, &keys).await;
        let home = begun(ground, Kind::Client, HOME).await;
        let links = home.site.host.links().expect("links");
        links.add_address("lo", net(TO)).await.expect("an address");
        let added = links.add_route_of(net(TO), "cali0", METRIC).await;
        added.expect("a route");
        let fabric = Self {
            store,
            reflector,
            from,
            _home: home,
            attacker: ground.site(ATTACKER).await.expect("a host"),
        };
        has(&fabric.reflector, &client(HOME), true).await;
        has(&fabric.from, &registered(REFLECTOR), true).await;
        fabric
    }

    /// Writes a registration of the attacker, as a route reflector that accepts clients.
    async fn register(&self) {
        let text = format!(
            r#"{{"asNumber":64512,"ipv4Address":"{}","clusterID":"{CLUSTER}","weight":1000}}"#,
            Site::v4(ATTACKER)
        );
        let key = FabricKey::Reflector(format!("h{ATTACKER}")).to_string();
        self.store.write(&key, &text).await;
    }
}

/// Returns the name of a node as a client of the route reflector.
fn client(number: u8) -> String {
    format!("h{number}-{}", Site::v4(number))
}

/// Returns the name of a registered route reflector as a neighbor.
fn registered(number: u8) -> String {
    let address = Site::v4(number).to_string();
    format!("Reflector_{}", address.replace('.', "_"))
}

/// Waits until a daemon has a path from a neighbor, which it uses or does not use.
async fn has(speaker: &Speaker, neighbor: &str, used: bool) {
    let what = format!("{TO} from {neighbor}, used: {used}");
    let waited = until(PATIENCE, &what, async || {
        let paths = speaker.paths(net(TO)).await;
        let path = paths.iter().find(|path| path.neighbor == neighbor);
        let is_so = path.is_some_and(|path| path.best == used);
        Ok::<_, Error>(is_so.then_some(()).ok_or_else(|| format!("{paths:?}")))
    });
    if let Err(error) = waited.await {
        panic!("{error}\n{}", speaker.log_tail());
    }
}

/// The attacker's sessions, which end when this is dropped: one that it opens to the route reflector, and
/// those that others open to it.
struct Sessions {
    _tasks: JoinSet<()>,
}

impl Sessions {
    fn open(attacker: &Site) -> Self {
        let mut tasks = JoinSet::new();
        let own = SocketAddr::from((Site::v4(ATTACKER), 179));
        let socket = attacker.host.run(|| std::net::TcpListener::bind(own));
        let socket = socket.expect("a thread").expect("a listener");
        socket.set_nonblocking(true).expect("a socket");
        let listener = TcpListener::from_std(socket).expect("a listener");
        tasks.spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                sessions.spawn(lie(TcpPeer::new(stream)));
            }
        });
        let host = attacker.host.clone();
        tasks.spawn(async move {
            loop {
                let to = SocketAddr::from((Site::v4(REFLECTOR), 179));
                let stream = host.run(|| std::net::TcpStream::connect(to));
                if let Ok(Ok(stream)) = stream {
                    stream.set_nonblocking(true).expect("a socket");
                    lie(TcpPeer::from_std(stream).expect("a stream")).await;
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
        Self { _tasks: tasks }
    }
}

/// Establishes a session, advertises the workload's address, and reads until the session ends.
async fn lie(mut peer: TcpPeer) {
    let open = Open {
        asn: Asn(64512),
        hold_time: 0,
        id: RouterId(Site::v4(ATTACKER)),
        capabilities: vec![
            Capability::FourOctetAsn(Asn(64512)),
            Capability::MultiProtocol(Family::IPV4_UNICAST),
        ],
    };
    if peer.establish(&open).await.is_err() {
        return;
    }
    let lie = Update::default()
        .with(WELL_KNOWN, AttrCode::Origin, &[0])
        .with(WELL_KNOWN, AttrCode::AsPath, &[])
        .with(WELL_KNOWN, AttrCode::NextHop, &Site::v4(ATTACKER).octets())
        .with(WELL_KNOWN, AttrCode::LocalPref, &u32::MAX.to_be_bytes())
        .with(OPTIONAL, AttrCode::OriginatorId, &Site::v4(HOME).octets())
        .with(OPTIONAL, AttrCode::ClusterList, &CLUSTER.octets())
        .announcing(Ipv4Prefix::new(Ipv4Addr::new(10, 65, 200, 9), 32).expect("a prefix"));
    for message in [lie.octets(), EndOfRib(Family::IPV4_UNICAST).octets()] {
        if peer.send(testkit::Octets(&message)).await.is_err() {
            return;
        }
    }
    while let Ok(Some(frame)) = peer.frame().await {
        if frame.kind == MessageKind::Notification {
            return;
        }
    }
}

/// Attacks a fabric with this mode in two ways; `works` is whether the daemons use the route.
async fn attack(ground: &Ground, mode: &str, works: bool) {
    let fabric = Fabric::new(ground, mode).await;
    // With forged attributes, as a client of the reflector.
    let _sessions = Sessions::open(&fabric.attacker);
    has(&fabric.reflector, &client(ATTACKER), works).await;
    has(&fabric.reflector, &client(HOME), !works).await;

    // With a registration: it is a reflector for the other one, and for the nodes.
    fabric.register().await;
    has(&fabric.reflector, &registered(ATTACKER), works).await;
    has(&fabric.reflector, &client(HOME), !works).await;
    has(&fabric.from, &registered(ATTACKER), works).await;
    has(&fabric.from, &registered(REFLECTOR), !works).await;
}

// Promise: as bgp-daemon route_of_another_node_is_not_used_and_reported
#[test]
fn forged_routes_of_a_reflector_are_not_used() {
    let name = "forged_routes_of_a_reflector_are_not_used";
    in_ground(&[], name, async |ground| {
        attack(&ground, "enforce", false).await;
    });
}

/// The same attack without validation succeeds, so the test above tests the validation.
#[test]
fn forged_routes_are_used_without_origin_validation() {
    let name = "forged_routes_are_used_without_origin_validation";
    in_ground(&[], name, async |ground| {
        attack(&ground, "off", true).await;
    });
}
