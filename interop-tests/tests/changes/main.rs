//! Changes every key of a neighbor and of the datastore during a session with BIRD, and checks that
//! BIRD has kept or lost the session as docs/operate states.

mod store;

use std::collections::{BTreeMap, BTreeSet};

use bgp_config::changes::Effect;
use bgp_io::bgp_speaker::keys::{PEER_KEYS, Place};
use interop_tests::{Ground, Kind, PATIENCE, Setup, Site, Speaker, in_ground};
use ipnet::IpNet;
use netns_lab::{Error, until};

/// The neighbor, key by key as in the configuration file.
type Keys = BTreeMap<&'static str, String>;

fn keys() -> Keys {
    let keys = [
        ("name", "\"bird\""),
        ("address", "\"10.0.0.2\""),
        ("asn", "64512"),
        ("connect_retry", "1"),
        ("hold_time", "240"),
        ("password", "\"secret\""),
        ("ttl_security", "true"),
        ("add_path", "\"both\""),
        ("bfd_auth", "\"simple\""),
        ("bfd_keys", "\"1 key\""),
    ];
    keys.map(|(key, value)| (key, value.to_owned())).into()
}

/// A session of BIRD.
#[derive(Clone, Debug)]
struct Session {
    state: String,
    /// The sockets that may be its connection: they distinguish two sessions that follow each other
    /// at once.
    sockets: BTreeSet<u64>,
}

impl Session {
    fn is_up(&self) -> bool {
        self.state == "Established"
    }

    /// Returns whether it is still the session from `before`.
    fn is_still(&self, before: &Self) -> bool {
        self.state == before.state && !self.sockets.is_disjoint(&before.sockets)
    }
}

/// Returns the established connections with the BGP port, from `/proc/net/tcp`.
fn connections(text: &str) -> BTreeSet<u64> {
    let lines = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, ..] = *words else {
            return None;
        };
        let is_bgp = local.ends_with(":00B3") || remote.ends_with(":00B3");
        let inode = words.get(9).filter(|_| is_bgp && state == "01");
        // A connection without an inode is not accepted yet, or is already closed.
        inode?.parse().ok().filter(|inode| *inode > 0)
    });
    lines.collect()
}

struct Pair {
    us: Speaker,
    bird: Speaker,
    /// The number of marker routes that BIRD has announced so far.
    marks: u16,
    /// The session that is known to be up at both ends.
    whole: Option<Session>,
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
        // BIRD offers every capability that the daemon may offer, and never dials.
        let text = pair.bird.site.load("bird.conf");
        let session = "protocol bgp peer0 {\n passive on; enable extended messages on;";
        let text = text.replace("protocol bgp peer0 {", session);
        let text = text.replace(" ipv4 {", " ipv4 { extended next hop on;");
        pair.bird.site.save("bird.conf", &text);
        pair.ask("configure").await;
        pair.set(&keys()).await;
        pair
    }

    async fn begun(us: Speaker, bird: Speaker) -> Self {
        let pair = Self {
            us,
            bird,
            marks: 0,
            whole: None,
        };
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
        self.bird.command(words).await.expect("BIRD answers")
    }

    /// Replaces the daemon's configuration of its neighbor.
    async fn set(&mut self, keys: &Keys) {
        let lines = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
        let section = lines.collect::<String>();
        let edit = |text: String| {
            let (speaker, _) = text.split_once("[[neighbor]]").expect("a neighbor");
            format!("{speaker}[[neighbor]]\n{section}")
        };
        self.us.reconfigure(edit).await;
    }

    /// Returns BIRD's first session.
    async fn session(&self) -> Session {
        self.session_of("peer0").await
    }

    /// Returns one of several sessions.
    async fn session_of(&self, protocol: &str) -> Session {
        let text = self.ask(&format!("show protocols {protocol}")).await;
        let line = text.lines().find(|line| line.starts_with(protocol));
        let state = line.unwrap_or_default().split_whitespace().nth(5);
        let table = match protocol {
            "peer0" => "/proc/thread-self/net/tcp",
            _ => "/proc/thread-self/net/tcp6",
        };
        let read = || std::fs::read_to_string(table).expect("a table");
        let table = self.bird.site.host.run(read).expect("a thread");
        Session {
            state: state.unwrap_or_default().to_owned(),
            sockets: connections(&table),
        }
    }

    async fn wait_for(&self, protocol: &str, what: &str, wanted: impl Fn(&Session) -> bool) {
        let waited = until(PATIENCE, what, async || {
            let session = self.session_of(protocol).await;
            let come = wanted(&session).then_some(());
            Ok::<_, Error>(come.ok_or_else(|| format!("{session:?}")))
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}\n{}", self.us.log_tail(), self.bird.log_tail());
        }
    }

    /// Waits until a session is over, also if it has been re-established.
    async fn is_over(&self, protocol: &str, what: &str, before: &Session) {
        self.wait_for(protocol, what, |session| !session.is_still(before))
            .await;
    }

    async fn is_up(&self) {
        self.is_up_at("peer0").await;
    }

    async fn is_up_at(&self, protocol: &str) {
        self.wait_for(protocol, "the session", Session::is_up).await;
    }

    /// Waits until the session is up at both ends, and returns it. BIRD's state alone is not
    /// enough: it may be that of one of two connections that the daemon is about to close, or of
    /// one that is not Established at the daemon yet. A route received over the session proves
    /// more.
    async fn whole(&mut self) -> Session {
        self.is_up().await;
        let session = self.session().await;
        if (self.whole.as_ref()).is_some_and(|whole| session.is_still(whole)) {
            return session;
        }
        self.mark().await;
        self.is_up().await;
        let session = self.session().await;
        self.whole = Some(session.clone());
        session
    }

    /// Has BIRD announce another route and waits until the daemon has it: BIRD has then processed
    /// everything that the daemon sent before.
    async fn mark(&mut self) {
        let net = self.announce_mark().await;
        self.receives(net).await;
    }

    /// Asserts that the session is the same after BIRD has processed everything that the daemon
    /// sent before.
    async fn is_kept(&mut self, before: &Session, what: &str) {
        self.mark().await;
        let session = self.session().await;
        assert!(
            session.is_still(before),
            "{what}: {session:?}, {before:?}\n{}",
            self.us.log_tail()
        );
    }

    async fn announce_mark(&mut self) -> IpNet {
        self.marks = self
            .marks
            .checked_add(1)
            .expect("a route that was not there before");
        let [high, low] = self.marks.to_be_bytes();
        let net = format!("10.{}.{low}.0/24", 70 + high);
        let own = format!("protocol static marks {{ ipv4; route {net} blackhole; }}\n");
        self.bird.site.save("own.conf", &own);
        self.ask("configure").await;
        net.parse().expect("a net")
    }

    async fn receives(&self, net: IpNet) {
        let waited = until(PATIENCE, "a route of BIRD's", async || {
            let paths = self.us.all_paths().await.unwrap_or_default();
            let received = paths.iter().any(|(received, _)| *received == net);
            Ok::<_, Error>(received.then_some(()).ok_or_else(String::new))
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}\n{}", self.us.log_tail(), self.bird.log_tail());
        }
    }

    /// Changes the password at the daemon alone, and back: segments that BIRD sends in between are
    /// lost, and are retransmitted once both ends have the same password again.
    async fn change_password(&mut self) {
        let before = self.us.site.tcp_counter("TCPMD5Failure");
        let other = with(&["password"]);
        self.set(&other).await;
        let net = self.does_not_receive(before).await;
        self.set(&keys()).await;
        self.receives(net).await;
    }

    /// Has BIRD announce another route, which does not arrive: the passwords differ.
    async fn does_not_receive(&mut self, before: u64) -> IpNet {
        let net = self.announce_mark().await;
        let waited = until(PATIENCE, "segments of another key", async || {
            let found = self.us.site.tcp_counter("TCPMD5Failure") > before;
            Ok::<_, Error>(found.then_some(()).ok_or_else(String::new))
        });
        waited.await.expect("the key is in effect at once");
        net
    }
}

/// Returns the neighbor with the example values of these keys, which would affect BIRD if they were
/// applied to its session.
fn with(others: &[&'static str]) -> Keys {
    let mut keys = keys();
    let rows = PEER_KEYS.iter().filter(|row| others.contains(&row.name));
    keys.extend(rows.map(|row| (row.name, (row.example)().to_string())));
    keys
}

// Promise: as bgp-speaker the_table_is_what_a_living_session_sees
#[test]
fn bird_keeps_the_sessions_that_the_page_lists() {
    in_ground(&[Kind::Bird], "changes", async |ground| {
        let mut pair = Pair::new(&ground).await;
        for row in PEER_KEYS.iter().filter(|row| row.is_in(Place::Neighbor)) {
            let (key, ends) = (row.name, row.effect >= Effect::Renegotiated);
            let before = pair.whole().await;
            match key {
                "password" => pair.change_password().await,
                // Only a client can have a cluster.
                "cluster_id" => pair.set(&with(&["route_reflector_client", key])).await,
                "bfd_strict" => pair.set(&with(&["bfd", key])).await,
                _ => pair.set(&with(&[key])).await,
            }
            if ends {
                pair.is_over("peer0", key, &before).await;
                // Where a new session is expected, BIRD must first have left its back-off.
                if !["address", "source", "asn"].contains(&key) {
                    pair.is_up().await;
                }
            } else {
                pair.is_kept(&before, &format!("after another {key}")).await;
            }
            pair.set(&keys()).await;
            pair.is_up().await;
            if !ends {
                pair.is_kept(&before, &format!("after {key} is back")).await;
            }
        }
    });
}
