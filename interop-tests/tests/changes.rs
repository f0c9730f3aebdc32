//! Every key of a neighbour, changed under a living session with BIRD: whether BIRD has kept the
//! session is what the operator's page says.

use std::collections::BTreeMap;
use std::time::Duration;

use intent::changes::{Effect, NEIGHBOR_KEYS};
use interop_tests::{Ground, Kind, Setup, Site, Speaker, in_ground};
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
        let mut pair = Self { us, bird, marks: 0 };
        pair.us.reports("a status", |_| true).await;
        let waited = until(PATIENCE, "BIRD", async || {
            let answer = pair.ask("show status").await;
            let runs = answer.contains("up and running").then_some(());
            Ok::<_, Error>(runs.ok_or(answer))
        });
        waited.await.expect("BIRD runs");
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
        let net = self.announce_mark().await;
        let waited = until(PATIENCE, "segments of another key", async || {
            let found = self.us.site.tcp_counter("TCPMD5Failure") > before;
            Ok::<_, Error>(found.then_some(()).ok_or_else(String::new))
        });
        waited.await.expect("the key is in force at once");
        self.set(&keys()).await;
        self.hears(net).await;
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
