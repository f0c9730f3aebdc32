//! Events of single routes, from a network in virtual time to readers at the control socket.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use bgp_io::Input;
use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_proto::{Attributes, Ipv4Prefix};
use bgp_io::rib::{Match, Outcome, Role, Rules, Term, Then};
use daemon_common::command::EventQuery;
use daemon_common::control::Control;
use daemon_common::limits::{EVENT_WATCH_IDLE, EVENTS_MAX};
use daemon_common::report::{EventPage, EventRecord};
use daemon_common::{Command, Reply, client};
use testkit::Network;
use testkit::fixture::{address, neighbor, speaker_config};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::*;

const NOW: Instant = Instant::from_secs(1);

/// Watches belong to the process: only one test at a time may have some.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Two speakers, of which the first rejects the prefixes in 10.99.0.0/16 of the second.
fn network() -> Network {
    let mut network = Network::new(7);
    for (us, them) in [(1, 2), (2, 1)] {
        let mut config = speaker_config(us);
        let mut peer = neighbor(us, them, Role::Internal);
        if us == 1 {
            peer.import = rejecting("10.99.0.0/16").into();
        }
        config.peers.push(peer);
        network.start(us, address(us).into(), config);
    }
    network.advance(Duration::from_secs(20));
    assert_eq!(network.established(1).len(), 1);
    network
}

fn rejecting(prefix: &str) -> Rules {
    let range = PrefixRange::inside(prefix.parse().expect("a prefix"));
    Rules::new(
        "filter lab",
        vec![Term::new(
            "rule 1",
            vec![Match::Net(PrefixSet::from_iter([range]))],
            Vec::new(),
            Then::Reject,
        )],
        Outcome::Accept,
    )
}

/// A control socket, and a reader of it.
struct Reader {
    _control: Control,
    _directory: tempfile::TempDir,
    path: PathBuf,
    watch: Option<u64>,
    after: u64,
}

fn query(name: &str, prefix: Option<&str>) -> EventQuery {
    EventQuery {
        name: Some(name.to_owned()),
        prefix: prefix.map(|prefix| prefix.parse().expect("a prefix")),
        wait: true,
        ..EventQuery::default()
    }
}

async fn ask(path: &Path, query: EventQuery) -> EventPage {
    match client::call(path, &Command::Events(query)).await {
        Ok(Reply::Events(page)) => page,
        other => panic!("{other:?}"),
    }
}

impl Reader {
    /// Begins to watch while `routes` takes its turns.
    async fn open(routes: &mut RouteEvents, speaker: &mut Speaker, query: EventQuery) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("control.sock");
        let control = Control::bind(&path).expect("bound");
        let mut opened = pin!(ask(&path, query));
        let page = loop {
            tokio::select! {
                page = &mut opened => break page,
                () = events::watches_changed() => {}
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            routes.look(speaker);
        };
        assert!(page.watch.is_some() && page.events.is_empty(), "{page:?}");
        Self {
            watch: page.watch,
            after: page.next,
            path: path.clone(),
            _control: control,
            _directory: directory,
        }
    }

    async fn next(&mut self) -> EventPage {
        let query = EventQuery {
            watch: self.watch,
            after: Some(self.after),
            wait: true,
            ..EventQuery::default()
        };
        let page = ask(&self.path, query).await;
        self.after = page.next;
        page
    }

    /// Reads so many events.
    async fn read(&mut self, count: usize) -> Vec<EventRecord> {
        let mut all = Vec::new();
        while all.len() < count {
            let page = self.next().await;
            assert!(!page.events.is_empty() && page.lost == 0, "{page:?}");
            all.extend(page.events);
        }
        all
    }

    /// Disconnects, and waits until the watch has ended.
    async fn leave(self) {
        tokio::time::pause();
        tokio::time::sleep(2 * EVENT_WATCH_IDLE).await;
        tokio::time::resume();
    }
}

fn words(record: &EventRecord) -> String {
    let field = |name: &str| record.fields.get(name).map(ToString::to_string);
    let fields = ["prefix", "neighbor", "policy", "paths"].map(field);
    let fields: Vec<String> = fields.into_iter().flatten().collect();
    format!("{} {}", record.event, fields.join(" ").replace('"', ""))
}

// Promise (Daemons): Events of single routes are created only while a reader watches them.
#[tokio::test]
async fn routes_are_read_only_while_they_are_watched() {
    let _alone = ALONE.lock().await;
    let mut network = network();
    let mut routes = RouteEvents::new();
    network.announce(2, "10.65.0.0/24");
    network.announce(2, "10.99.1.0/24");
    network.settle();
    let unwatched = |network: &mut Network, routes: &mut RouteEvents| {
        let speaker = network.speaker_mut(1);
        assert_eq!(routes.look(speaker), Looked::default());
        speaker.readers() == 0
            && !REJECTIONS
                .iter()
                .any(|(_, by)| speaker.rib().watches_rejected(*by))
            && !events::is_watched()
    };
    assert!(unwatched(&mut network, &mut routes));
    let asked = query("route", None);
    let mut reader = Reader::open(&mut routes, network.speaker_mut(1), asked).await;
    assert_eq!(network.speaker(1).readers(), 1);
    for (prefix, announce) in [
        ("10.99.2.0/24", true),
        ("10.65.1.0/24", true),
        ("10.65.0.0/24", false),
    ] {
        match announce {
            true => network.announce(2, prefix),
            false => network.withdraw(2, prefix),
        }
        network.settle();
        routes.look(network.speaker_mut(1));
    }
    let seen: Vec<String> = reader.read(3).await.iter().map(words).collect();
    let name = network
        .speaker(1)
        .peers()
        .next()
        .expect("one")
        .config
        .name
        .clone();
    assert_eq!(
        seen,
        [
            format!("route.filtered 10.99.2.0/24 {name} filter lab, rule 1"),
            format!("route.chosen 10.65.1.0/24 {name} 1"),
            "route.withdrawn 10.65.0.0/24".to_owned(),
        ],
        "nothing of what was there before"
    );
    reader.leave().await;
    routes.look(network.speaker_mut(1));
    assert!(unwatched(&mut network, &mut routes));
}

/// A speaker between two others, of which one is not sent the prefixes in 10.99.0.0/16.
#[tokio::test]
async fn rejected_export_names_the_neighbors_without_the_route() {
    let _alone = ALONE.lock().await;
    let mut network = Network::new(8);
    for (us, peers) in [(1, &[2, 3][..]), (2, &[1]), (3, &[1])] {
        let mut config = speaker_config(us);
        for &them in peers {
            let role = match us {
                1 => Role::Client,
                _ => Role::Internal,
            };
            let mut peer = neighbor(us, them, role);
            if us == 1 && them == 3 {
                peer.export = rejecting("10.99.0.0/16").into();
            }
            config.peers.push(peer);
        }
        network.start(us, address(us).into(), config);
    }
    network.advance(Duration::from_secs(20));
    assert_eq!(network.established(1).len(), 2);
    let mut routes = RouteEvents::new();
    let asked = query("route.export_filtered", None);
    let mut reader = Reader::open(&mut routes, network.speaker_mut(1), asked).await;
    for prefix in ["10.65.1.0/24", "10.99.2.0/24"] {
        network.announce(2, prefix);
        network.settle();
        routes.look(network.speaker_mut(1));
    }
    let [event] = &reader.read(1).await[..] else {
        panic!("one event")
    };
    let fields: Vec<String> = event
        .fields
        .iter()
        .map(|(name, value)| format!("{name}={value}").replace('"', ""))
        .collect();
    let expected = [
        "prefix=10.99.2.0/24",
        "family=ipv4-unicast",
        "neighbor=n2",
        "address=10.0.0.2",
        "to=n3",
        "to_count=1",
        "policy=filter lab, rule 1",
    ];
    let mut expected: Vec<&str> = expected.into();
    expected.sort_unstable_by_key(|field| field.split('=').next());
    let mut fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    fields.sort_unstable_by_key(|field| field.split('=').next());
    assert_eq!(fields, expected);
    // Its own routes are not sent back to a neighbor: its export policy is not the reason.
    network.announce(3, "10.99.3.0/24");
    network.settle();
    routes.look(network.speaker_mut(1));
    network.announce(2, "10.99.4.0/24");
    network.settle();
    routes.look(network.speaker_mut(1));
    let [event] = &reader.read(1).await[..] else {
        panic!("one event")
    };
    assert_eq!(event.fields["prefix"], "10.99.4.0/24");
    reader.leave().await;
}

fn announce(speaker: &mut Speaker, number: u32, med: Option<u32>) {
    let local = Input::Local {
        family: Family::IPV4_UNICAST,
        net: Net::V4(Ipv4Prefix::host((0x0a41_0000 + number).into())),
        attributes: Some(Attributes {
            med,
            ..Attributes::default()
        }),
        interface: None,
    };
    speaker.handle(NOW, local);
}

fn run(speaker: &mut Speaker) {
    while speaker.run(NOW, Budget(10_000)) == Progress::More {}
}

// Promise: as daemon-common reader_that_lags_learns_how_many_events_it_lost
#[tokio::test]
async fn watcher_that_does_not_read_loses_a_counted_number() {
    let _alone = ALONE.lock().await;
    let mut speaker = Speaker::new(speaker_config(1), 1);
    let mut routes = RouteEvents::new();
    let asked = query("route.chosen", Some("10.0.0.0/8"));
    let mut reader = Reader::open(&mut routes, &mut speaker, asked).await;
    let asked = query("route.chosen", Some("10.65.0.7/32"));
    let mut narrow = Reader::open(&mut routes, &mut speaker, asked).await;
    // This client requests more and reads no answer.
    let mut silent = UnixStream::connect(&reader.path).await.expect("connected");
    let line = format!(
        r#"{{"command":"events","watch":{},"wait":true}}"#,
        reader.watch.expect("open")
    );
    for _ in 0..100 {
        silent
            .write_all(format!("{line}\n").as_bytes())
            .await
            .expect("written");
    }
    let count = 3 * EVENTS_MAX as u32;
    (0..count).for_each(|number| announce(&mut speaker, number, None));
    run(&mut speaker);
    // The speaker and the driver never wait for readers: as many turns as steps.
    let mut turns = 1;
    while routes.look(&mut speaker).has_more {
        turns += 1;
    }
    assert!(turns <= count / ROUTE_EVENTS_TURN_MAX + 1, "{turns}");
    let (mut seen, mut lost) = (0, 0);
    while seen + lost < u64::from(count) {
        let page = reader.next().await;
        assert!(!page.events.is_empty() || page.lost > 0, "{page:?}");
        seen += page.events.len() as u64;
        lost += page.lost;
    }
    assert_eq!(seen + lost, u64::from(count));
    assert!(seen <= EVENTS_MAX as u64 && lost > 0, "{seen} {lost}");
    let of_one = narrow.read(1).await;
    assert_eq!(of_one[0].fields["prefix"], "10.65.0.7/32");
    drop(silent);
    reader.leave().await;
}

/// Changes that the log no longer has are counted, and the table is not reported instead.
#[tokio::test]
async fn changes_that_the_log_dropped_are_reported_as_missing() {
    let _alone = ALONE.lock().await;
    let mut speaker = Speaker::new(speaker_config(1), 1);
    let mut routes = RouteEvents::new();
    let asked = query("route.chosen", Some("10.65.0.7/32"));
    let mut reader = Reader::open(&mut routes, &mut speaker, asked).await;
    // The log is cut when it is longer than twice the table, and than this. Entries that are out of
    // date count as long as an older one is not.
    let max = rib::RibConfig::default().limits.log_entries_min as u32;
    announce(&mut speaker, u32::MAX / 2, None);
    for number in (0..max / 2).cycle().take(max as usize + 9) {
        announce(&mut speaker, number, Some(1));
        announce(&mut speaker, number, Some(2));
    }
    run(&mut speaker);
    while routes.look(&mut speaker).has_more {}
    announce(&mut speaker, 7, None);
    run(&mut speaker);
    while routes.look(&mut speaker).has_more {}
    let seen = reader.read(2).await;
    let names: Vec<&str> = seen.iter().map(|record| record.event.as_str()).collect();
    assert_eq!(names, ["route.missed", "route.chosen"]);
    assert!(
        seen[0].fields["count"].as_u64() >= Some(u64::from(max)),
        "{seen:?}"
    );
    reader.leave().await;
}

// Promise (Daemons): A question about events that the daemon does not keep or does not report is
// rejected.
#[tokio::test]
async fn events_on_demand_are_never_answered_with_nothing() {
    let _alone = ALONE.lock().await;
    let mut speaker = Speaker::new(speaker_config(1), 1);
    let mut routes = RouteEvents::new();
    let asked = query("route.withdrawn", None);
    let reader = Reader::open(&mut routes, &mut speaker, asked).await;
    let history = |name: &str| {
        let query = EventQuery {
            wait: false,
            ..query(name, None)
        };
        let path = reader.path.clone();
        async move { client::call(&path, &Command::Events(query)).await }
    };
    let refused = history("route.chosen").await.expect_err("no history");
    assert!(
        refused.to_string().contains("only while it is watched"),
        "{refused}"
    );
    let Ok(Reply::Events(page)) = history("route").await else {
        panic!("a history");
    };
    let note = page.note.expect("what it does not have");
    assert!(
        note.contains("route.chosen") && !note.contains("route.refused"),
        "{note}"
    );
    let unknown = history("route.installed")
        .await
        .expect_err("no kernel here");
    assert!(unknown.to_string().contains("does not report"), "{unknown}");
    let mut stream = BufReader::new(UnixStream::connect(&reader.path).await.expect("connected"));
    let line = "{\"command\":\"events\",\"watch\":999,\"wait\":true}\n";
    stream.write_all(line.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_line(&mut answer).await.expect("an answer");
    assert!(answer.contains("has ended"), "{answer}");
    reader.leave().await;
}
