//! The session key of a neighbor that is another implementation and has one key: the steps of
//! `docs/operate/session-keys.md` for a static neighbor, beside BIRD, FRR and OpenBGPD.
//!
//! BIRD and FRR reset the session when its key is changed. OpenBGPD keeps the old key on the
//! connection, so the session has to be cleared. Each test prints how long that takes.

use std::net::Ipv4Addr;
use std::time::Instant;

use daemon_common::report::Neighbor;
use interop_tests::{Ground, Kind, Own, PATIENCE, Setup, Speaker};
use ipnet::IpNet;
use netns_lab::{Error, until};

use crate::session_keys::accepts_only;

const ASN: u32 = 64512;
const V4: &[&str] = &["ipv4-unicast"];
const OLD: &str = "old-key-of-the-session";
const NEW: &str = "new-key-of-the-session";
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The side that opens the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialer {
    Cambric,
    Neighbor,
}

/// Cambric's client and the neighbor.
struct Pair {
    us: Speaker,
    them: Speaker,
    dialer: Dialer,
    /// Routes announced so far.
    routes: u8,
}

impl Pair {
    async fn new(ground: &Ground, kind: Kind, dialer: Dialer) -> Self {
        let setup = |address| {
            let setup = Setup::fabric().neighbor(address, ASN).carrying(V4);
            setup.password(OLD)
        };
        let (ours, theirs) = match dialer {
            Dialer::Cambric => (setup(THEIRS), setup(OURS).passive()),
            Dialer::Neighbor => (setup(THEIRS).passive(), setup(OURS)),
        };
        // The listening side is first.
        let (us, them) = match dialer {
            Dialer::Cambric => {
                let them = ground.speaker(kind, 2, &theirs).await;
                (ground.speaker(Kind::Client, 1, &ours).await, them)
            }
            Dialer::Neighbor => {
                let us = ground.speaker(Kind::Client, 1, &ours).await;
                us.reports("a status", |_| true).await;
                (us, ground.speaker(kind, 2, &theirs).await)
            }
        };
        us.is_up().await;
        let pair = Self {
            us,
            them,
            dialer,
            routes: 0,
        };
        assert_eq!(pair.session().await.flaps, 0);
        pair
    }

    async fn session(&self) -> Neighbor {
        let mut neighbors = self.us.neighbors().await.neighbors;
        neighbors.pop().expect("the neighbor")
    }

    /// Takes one step on Cambric's side.
    async fn step(&self, used: &str, second: Option<&str>) {
        let second = second.map(|key| format!("second_password = \"{key}\"\n"));
        let keys = format!("password = \"{used}\"\n{}", second.unwrap_or_default());
        let edit = |text: String| {
            let lines = text.lines().filter(|line| !line.contains("password = "));
            let text: String = lines.map(|line| format!("{line}\n")).collect();
            let (speaker, neighbor) = text.split_once("[[neighbor]]\n").expect("a neighbor");
            format!("{speaker}[[neighbor]]\n{keys}{neighbor}")
        };
        self.us.reconfigure(edit).await;
    }

    /// Changes the key of the neighbor, as its manual has it.
    async fn change_theirs(&self) {
        let replaced = |file: &str| {
            let text = self.them.site.load(file).replace(OLD, NEW);
            self.them.site.save(file, &text);
        };
        let commands = match self.them.kind {
            Kind::Bird => {
                replaced("bird.conf");
                vec!["configure".to_owned()]
            }
            Kind::Openbgpd => {
                replaced("bgpd.conf");
                vec!["reload".to_owned(), format!("neighbor {OURS} clear")]
            }
            Kind::Frr => vec![format!(
                "configure terminal\nrouter bgp {ASN}\nneighbor {OURS} password {NEW}"
            )],
            other => panic!("{other:?} is not tested"),
        };
        for command in commands {
            self.them.command(&command).await.expect("an answer");
        }
    }

    /// Has both sides announce a route, and waits until the other side has it.
    async fn routes_pass(&mut self) {
        self.routes += 1;
        for (from, to, number) in [(&self.us, &self.them, 1), (&self.them, &self.us, 2)] {
            let net = format!("10.65.{number}.{}/32", self.routes);
            let net: IpNet = net.parse().expect("a prefix");
            from.announce(&Own::plain(net)).await.expect("announced");
            let waited = until(PATIENCE, "a route", async || {
                let found = to.learned().await;
                let has = found.as_ref().is_ok_and(|found| found.contains_key(&net));
                Ok::<_, Error>(has.then_some(()).ok_or_else(|| format!("{found:?}")))
            });
            if let Err(error) = waited.await {
                panic!("{error}\n{}\n{}", from.log_tail(), to.log_tail());
            }
        }
    }

    /// Asserts that routes pass over the session from before.
    async fn is_kept(&mut self, before: &Neighbor, step: &str) {
        self.routes_pass().await;
        let now = self.session().await;
        let is_same = |one: &Neighbor| (one.flaps, one.local, one.remote);
        let why = now.last_down.as_deref();
        assert_eq!(is_same(&now), is_same(before), "{step}: {why:?}");
    }

    /// Changes the neighbor's key and waits until the session is up again; prints how long that
    /// took.
    async fn changes_over(&mut self) -> Neighbor {
        let before = self.session().await;
        let begun = Instant::now();
        self.change_theirs().await;
        let reset = until(PATIENCE, "the end of the session", async || {
            let now = self.session().await;
            let is_over = now.flaps > before.flaps;
            Ok::<_, Error>(is_over.then_some(()).ok_or_else(String::new))
        });
        reset.await.expect("the neighbor resets the session");
        self.us.is_up().await;
        let took = begun.elapsed();
        println!("{:?}: up {took:?} after the change", self.them.kind);
        self.routes_pass().await;
        let after = self.session().await;
        let why = after.last_down.as_deref();
        assert_eq!(after.flaps, before.flaps + 1, "{why:?}");
        after
    }

    /// Changes the key in the order of the page.
    async fn rotates(&mut self) {
        let before = self.session().await;
        self.routes_pass().await;
        self.step(OLD, Some(NEW)).await;
        self.is_kept(&before, "step 1").await;
        let after = match self.dialer {
            Dialer::Cambric => {
                let after = self.changes_over().await;
                self.step(NEW, Some(OLD)).await;
                after
            }
            Dialer::Neighbor => {
                self.step(NEW, Some(OLD)).await;
                self.changes_over().await
            }
        };
        self.is_kept(&after, "step 2").await;
        self.step(NEW, None).await;
        self.is_kept(&after, "step 3").await;
        accepts_only(&self.us.site, &self.them.site, NEW, &[OLD]).await;
    }
}

/// Cambric opens the connection: the neighbor has the new key between the steps 1 and 2.
async fn key_changes_where_cambric_dials(kind: Kind, ground: Ground) {
    let mut pair = Pair::new(&ground, kind, Dialer::Cambric).await;
    pair.rotates().await;
}

/// The neighbor opens the connection: it has the new key right after step 2.
async fn key_changes_where_neighbor_dials(kind: Kind, ground: Ground) {
    let mut pair = Pair::new(&ground, kind, Dialer::Neighbor).await;
    pair.rotates().await;
}

interop_tests::labs! {
    key_changes_where_cambric_dials: Bird Frr Openbgpd;
    key_changes_where_neighbor_dials: Bird Frr Openbgpd;
}
