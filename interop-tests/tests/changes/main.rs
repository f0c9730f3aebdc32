//! Every key of a neighbour and of the store, changed under a living session with BIRD: whether BIRD
//! has kept the session is what the operator's page says.

mod store;

use std::collections::{BTreeMap, BTreeSet};

use bgp_config::changes::Effect;
use bgp_io::bgp_speaker::keys::{PEER_KEYS, Place};
use interop_tests::{Ground, Kind, PATIENCE, Setup, Site, Speaker, in_ground};
use ipnet::IpNet;
use netns_lab::{Error, until};

/// The neighbour, key by key as the file has it.
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
    ];
    keys.map(|(key, value)| (key, value.to_owned())).into()
}

/// A session of BIRD's.
#[derive(Clone, Debug)]
struct Session {
    state: String,
    /// The sockets that may be its connection: they tell two sessions apart that follow each other
    /// at once.
    sockets: BTreeSet<u64>,
}

impl Session {
    fn is_up(&self) -> bool {
        self.state == "Established"
    }

    /// Whether it is the one from before.
    fn is_still(&self, before: &Self) -> bool {
        self.state == before.state && !self.sockets.is_disjoint(&before.sockets)
    }
}

/// Established connections with the port of BGP, as `/proc/net/tcp` has them.
fn connections(text: &str) -> BTreeSet<u64> {
    let lines = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, ..] = *words else {
            return None;
        };
        let is_bgp = local.ends_with(":00B3") || remote.ends_with(":00B3");
        let inode = words.get(9).filter(|_| is_bgp && state == "01");
        // Who has none is not accepted yet, or closed already.
        inode?.parse().ok().filter(|inode| *inode > 0)
    });
    lines.collect()
}

struct Pair {
    us: Speaker,
    bird: Speaker,
    /// How many routes BIRD has announced, one after another, to mark where it stands.
    marks: u16,
    /// The session that is known to be whole.
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
        // It offers whatever we may, and leaves it to us to dial.
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

    /// BIRD's first session.
    async fn session(&self) -> Session {
        self.session_of("peer0").await
    }

    /// One of several.
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

    /// Waits until a session is over, also if it has begun anew.
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

    /// Waits until the session is up at either end, and returns it. What BIRD says of it alone may be
    /// said of one of two connections that we are still about to give up for the other, or of one
    /// that we do not have for Established yet: a route that has come over it says more.
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

    /// BIRD announces another route, and we have it: whatever we said before, BIRD has heard.
    async fn mark(&mut self) {
        let net = self.announce_mark().await;
        self.hears(net).await;
    }

    /// Whatever we said before, the session is the same.
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

/// The neighbor with the examples of these keys, which would matter to BIRD if they mattered at all.
fn with(others: &[&'static str]) -> Keys {
    let mut keys = keys();
    let rows = PEER_KEYS.iter().filter(|row| others.contains(&row.name));
    keys.extend(rows.map(|row| (row.name, (row.example)().to_string())));
    keys
}

#[test]
fn bird_keeps_the_sessions_that_the_page_says_stay() {
    in_ground(&[Kind::Bird], "changes", async |ground| {
        let mut pair = Pair::new(&ground).await;
        for row in PEER_KEYS.iter().filter(|row| row.is_in(Place::Neighbor)) {
            let (key, ends) = (row.name, row.effect >= Effect::Renegotiated);
            let before = pair.whole().await;
            match key {
                "password" => pair.change_password().await,
                // Only a client has a cluster.
                "cluster_id" => pair.set(&with(&["route_reflector_client", key])).await,
                _ => pair.set(&with(&[key])).await,
            }
            if ends {
                pair.is_over("peer0", key, &before).await;
                // Where there is one anew, BIRD gets over it first.
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
