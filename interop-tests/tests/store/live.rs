//! Each change in the datastore takes effect, visible at a neighbor or in the kernel, and resets no
//! session except the one that it concerns. `bench --work live` measures how soon.

use std::time::Duration;

use calico_model::RESOURCES_PREFIX;
use interop_tests::{Ground, Kind, Own, Setup, Site, Speaker, Store, in_ground};
use ipnet::IpNet;

use super::{PATIENCE, begun, net};

/// How often each change is made and reverted.
const TRIES: usize = 2;

const TOR: &str = "bgppeers/tor";
const FILTER: &str = "bgpfilters/less";
const POOL: &str = "ippools/pool-v4";
const NODE: &str = "nodes/h1";
const BLOCK: &str = "/calico/ipam/v2/host/h1/ipv4/block/10.65.1.0-26";
const DRAIN: &str = "/cambric/v1/drain/h1";

const PEERING: &str =
    r#"{"spec":{"node":"h1","peerIP":"10.0.0.2","asNumber":64700,"filters":["less"]}}"#;
const HARMLESS: &str =
    r#"{"spec":{"exportV4":[{"cidr":"10.99.0.0/16","matchOperator":"In","action":"Reject"}]}}"#;
const OPEN: &str = r#"{"spec":{"cidr":"10.65.0.0/16"}}"#;
const READY: &str = r#"{"spec":{"bgp":{"ipv4Address":"10.0.0.1/24"}}}"#;

/// A change: the value of a key before and after, and where the effect is visible.
struct Case {
    name: &'static str,
    place: &'static str,
    before: Option<&'static str>,
    after: Option<&'static str>,
    seen: Seen,
}

/// An effect that is visible before the change and not after it.
#[derive(Clone, Copy)]
enum Seen {
    /// A route at the neighbor.
    Route(&'static str),
    /// Routes at the neighbor without the GRACEFUL_SHUTDOWN community.
    Staying,
    /// A kernel route through the neighbor.
    Kernel(&'static str),
    /// The neighbor's session.
    Session,
}

/// The case of the session is the last.
const CASES: &[Case] = &[
    Case {
        name: "a BGPPeer's filters",
        place: TOR,
        before: Some(r#"{"spec":{"node":"h1","peerIP":"10.0.0.2","asNumber":64700}}"#),
        after: Some(
            r#"{"spec":{"node":"h1","peerIP":"10.0.0.2","asNumber":64700,"filters":["strict"]}}"#,
        ),
        seen: Seen::Route("10.65.9.9/32"),
    },
    Case {
        name: "a BGPFilter",
        place: FILTER,
        before: Some(HARMLESS),
        after: Some(
            r#"{"spec":{"exportV4":[{"cidr":"10.65.9.0/24","matchOperator":"In","action":"Reject"}]}}"#,
        ),
        seen: Seen::Route("10.65.9.9/32"),
    },
    Case {
        name: "an IPPool's disableBGPExport",
        place: POOL,
        before: Some(OPEN),
        after: Some(r#"{"spec":{"cidr":"10.65.0.0/16","disableBGPExport":true}}"#),
        seen: Seen::Route("10.65.9.9/32"),
    },
    Case {
        name: "an IPPool's vxlanMode, in the kernel",
        place: POOL,
        before: Some(OPEN),
        after: Some(r#"{"spec":{"cidr":"10.65.0.0/16","vxlanMode":"Always"}}"#),
        seen: Seen::Kernel("10.65.8.0/26"),
    },
    Case {
        name: "a block that goes",
        place: BLOCK,
        before: Some(r#"{"state":"confirmed"}"#),
        after: Some(r#"{"state":"pending"}"#),
        seen: Seen::Route("10.65.1.0/26"),
    },
    Case {
        name: "a node that announces no services",
        place: NODE,
        before: Some(READY),
        after: Some(
            r#"{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"true"}},
                "spec":{"bgp":{"ipv4Address":"10.0.0.1/24"}}}"#,
        ),
        seen: Seen::Route("192.0.2.0/26"),
    },
    Case {
        name: "a drain",
        place: DRAIN,
        before: None,
        after: Some("{}"),
        seen: Seen::Staying,
    },
    Case {
        name: "a BGPPeer that goes, and comes",
        place: TOR,
        before: Some(PEERING),
        after: None,
        seen: Seen::Session,
    },
];

struct Pair {
    store: Store,
    us: Speaker,
    tor: Speaker,
}

impl Pair {
    async fn new(ground: &Ground) -> Self {
        let store = ground.store().await.expect("a store");
        store.put("nodes", "h1", READY).await;
        store.block(1, "10.65.1.0/26").await;
        let settings = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false,
            "serviceExternalIPs":[{"cidr":"192.0.2.0/26"}]}}"#;
        store.put("bgpconfigurations", "default", settings).await;
        let strict = r#"{"spec":{"exportV4":[{"cidr":"10.65.9.0/24","matchOperator":"In","action":"Reject"}]}}"#;
        store.put("bgpfilters", "strict", strict).await;
        store.put("bgpfilters", "less", HARMLESS).await;
        store.put("bgppeers", "tor", PEERING).await;
        let us = begun(ground, Kind::Client, 1).await;
        let borrowed = Own::plain(net("10.65.9.9/32"));
        us.announce(&borrowed).await.expect("announced");
        let tor = Setup::of(64700).neighbor(Site::v4(1), 64512);
        let tor = tor.carrying(&["ipv4-unicast"]).announcing("10.65.8.0/26");
        let tor = ground.speaker(Kind::Bird, 2, &tor).await;
        us.is_up().await;
        Self { store, us, tor }
    }

    async fn write(&self, place: &str, value: Option<&str>) {
        let key = match place.starts_with('/') {
            true => place.to_owned(),
            false => format!("{RESOURCES_PREFIX}{place}"),
        };
        match value {
            Some(text) => self.store.write(&key, text).await,
            None => self.store.remove(&key).await,
        }
    }

    /// Returns whether it is visible; an error if there is no answer.
    async fn is_seen(&self, seen: Seen) -> Result<bool, String> {
        Ok(match seen {
            Seen::Route(text) => self.tor_has(net(text)).await?.is_some(),
            Seen::Staying => {
                let leaving = |communities: Vec<String>| communities.contains(&"65535:0".into());
                let found = self.tor_has(net("10.65.1.0/26")).await?;
                found.is_some_and(|communities| !leaving(communities))
            }
            Seen::Kernel(text) => {
                let links = self.us.site.host.links().expect("links");
                let routes = links.routes().await.expect("routes");
                routes.iter().any(|route| route.net == net(text))
            }
            Seen::Session => self.session().await?.contains("Established"),
        })
    }

    /// Returns the communities of a route that the neighbor received from the daemon.
    async fn tor_has(&self, net: IpNet) -> Result<Option<Vec<String>>, String> {
        let table = self.tor.learned().await?;
        let route = table.get(&net);
        Ok(route.map(|route| route.communities.iter().cloned().collect()))
    }

    async fn session(&self) -> Result<String, String> {
        let found = self.tor.command("show protocols peer0").await;
        let found = found.map_err(|error| error.to_string())?;
        let answers = found.contains("peer0");
        answers
            .then_some(found)
            .ok_or_else(|| "it does not answer".to_owned())
    }

    /// Writes the initial values of a case.
    async fn begins(&self, case: &Case) {
        self.write(TOR, Some(PEERING)).await;
        if let Some(before) = case.before {
            self.write(case.place, Some(before)).await;
        }
        self.waits("the beginning", async || self.is_seen(case.seen).await)
            .await;
    }

    /// Waits until the neighbor has left its back-off after the end of a session: that time is not
    /// measured.
    async fn would_take_a_session(&self) {
        self.waits("a neighbor that rests no more", async || {
            let session = self.session().await?;
            let states = ["Established", "Active", "Connect"];
            Ok(states.iter().any(|state| session.contains(state)))
        })
        .await;
    }

    /// Waits for a condition; returns how long that took.
    async fn waits(&self, what: &str, there: impl AsyncFn() -> Result<bool, String>) -> Duration {
        let waited = netns_lab::until(PATIENCE, what, async || {
            let there = there().await;
            let there =
                there.and_then(|there| there.then_some(()).ok_or_else(|| "not yet".to_owned()));
            Ok::<_, netns_lab::Error>(there)
        });
        match waited.await {
            Ok(((), took)) => took,
            Err(error) => panic!("{error}\n{}", self.us.log_tail()),
        }
    }

    /// Makes a change, and returns how long it took until the effect was visible.
    async fn takes(&self, case: &Case, value: Option<&str>, seen: bool) -> Duration {
        self.write(case.place, value).await;
        self.waits(case.name, async || {
            Ok(self.is_seen(case.seen).await? == seen)
        })
        .await
    }
}

#[test]
fn each_store_change_resets_no_session_without_need() {
    let name = "each_store_change_resets_no_session_without_need";
    in_ground(&[Kind::Bird], name, async |ground| {
        let pair = Pair::new(&ground).await;
        for case in CASES {
            pair.begins(case).await;
            let mut took = Vec::new();
            for _ in 0..TRIES {
                took.push(pair.takes(case, case.after, false).await);
                pair.would_take_a_session().await;
                took.push(pair.takes(case, case.before, true).await);
            }
            println!("{}: {took:?}", case.name);
            if !matches!(case.seen, Seen::Session) {
                pair.us.stood(|_| true).await;
            }
        }
    });
}
