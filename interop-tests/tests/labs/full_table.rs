//! A full Internet table, as one router really sent it, through Cambric's reflector to BIRD. The
//! result is compared with BIRD's table when it receives the same octets directly.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    net::Ipv4Addr,
    path::Path,
    time::Duration,
};

use bgp_proto::MessageKind;
use interop_tests::{
    Ground, Kind, Setup, Site, Speaker,
    sender::{Opening, Sender},
};
use ipnet::Ipv4Net;
use mrt::Entry;
use netns_lab::Program;
use testkit::{Octets, Update};

/// The AS in which the table was recorded.
const ASN: u32 = 3856;
const TABLE: &str = "../../shared/data/mrt/full-table-2015.updates-et.gz";
/// The prefixes that BIRD holds at the end (three prefixes are withdrawn again).
const PREFIXES: usize = 577_703;
/// Sent last: a speaker that has it has received all other routes. It is never routed (RFC 2544).
const MARK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 24);
/// How long the transfer of the table may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// Known difference: their AS_PATH ends in AS 0, which RFC 7607 §2 treats as withdrawn and BIRD
/// 2.0.12 keeps.
const AS_ZERO: [&str; 4] = [
    "103.225.92.0/24",
    "103.225.93.0/24",
    "103.225.94.0/24",
    "103.225.95.0/24",
];

#[test]
fn the_far_end_holds_what_was_sent() {
    let name = "the full table through the reflector to BIRD";
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    if !recording.is_file() {
        println!("skipped: {name}: {} is not there", recording.display());
        return;
    }
    if !netns_lab::allowed(name) || !Kind::Bird.is_installed() {
        return;
    }
    let messages = updates(&recording);
    netns_lab::in_lab(name, async |lab| {
        through(Ground::new(lab).await.expect("a ground"), &messages).await
    });
}

/// The UPDATEs of the recording, one after the other.
fn updates(recording: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for record in mrt::open(recording).expect("a recording") {
        let record = record.expect("a whole record");
        if let Ok(Entry::Message(message)) = record.entry()
            && message.octets.get(18) == Some(&MessageKind::Update.0)
        {
            all.extend_from_slice(&message.octets);
        }
    }
    all
}

async fn through(ground: Ground, messages: &[u8]) {
    let client = |of| Setup::of(ASN).neighbor(Site::v4(of), ASN);
    let reflector = client(2)
        .neighbor(Site::v4(4), ASN)
        .allowing_as_sets() // BIRD 2.0 accepts routes with them.
        .reflecting([10, 9, 9, 9].into());
    let start = async |kind, number, setup: &Setup| {
        let site = ground.site(number).await.expect("a host");
        Speaker::start(kind, site, setup).await.expect("a speaker")
    };
    let reflector = start(Kind::Reflector, 1, &reflector).await;
    let behind = start(Kind::Bird, 2, &client(1)).await;
    let direct = start(Kind::Bird, 3, &client(4)).await;
    let source = ground.site(4).await.expect("a host");
    for speaker in [&reflector, &direct] {
        let to = Site::v4(speaker.site.number);
        let mut sender = Sender::insist(&source, to, &Opening::of(&source, ASN)).await;
        let sent = sender.send(Octets(messages)).await;
        sent.unwrap_or_else(|e| panic!("{e}: {}", speaker.log_tail()));
        let mark = Update::via(Site::v4(4)).announcing(MARK);
        sender.send(&mark).await.expect("sent");
        // The session stays: its end would remove the routes.
        std::mem::forget(sender);
    }
    let mut expected = settled(&direct).await;
    assert_eq!(expected.len(), PREFIXES);
    for net in AS_ZERO {
        expected
            .remove(net)
            .expect("a path with AS 0, as BIRD keeps it");
    }
    let found = settled(&behind).await;
    let differing = expected
        .iter()
        .filter(|(net, route)| found.get(*net) != Some(route));
    let differing: Vec<_> = differing.take(5).collect();
    assert!(
        differing.is_empty() && found.len() == expected.len(),
        "differing: {differing:?}"
    );
}

/// Returns BIRD's routes once all have arrived, without the marker: a hash of the attributes by
/// prefix.
async fn settled(bird: &Speaker) -> BTreeMap<String, u64> {
    let control = bird.site.host.directory().join("bird.ctl");
    let ask = |words: &[&str]| Program::new("birdc").arg("-s").arg(&control).args(words);
    let mark = MARK.to_string();
    let marked = netns_lab::until(PATIENCE, "BIRD's table", async || {
        let asked = ask(&["show", "route", &mark]);
        let (_, text) = bird.site.host.output(&asked).await?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok::<_, netns_lab::Error>(if text.contains(&format!("\n{mark} ")) {
            Ok(())
        } else {
            Err(text)
        })
    });
    if let Err(error) = marked.await {
        panic!("{error}\n{}", bird.log_tail());
    }
    let (_, text) = bird
        .site
        .host
        .output(&ask(&["show", "route", "all"]))
        .await
        .expect("its table");
    let mut routes = hashes(&String::from_utf8_lossy(&text));
    routes.remove(&mark).expect("the mark");
    routes
}

/// Returns the hashes of all attributes except the CLUSTER_LIST, which a reflector lengthens, and
/// AGGREGATORs of AS 0, which RFC 7607 §2 discards.
fn hashes(text: &str) -> BTreeMap<String, u64> {
    let mut routes = BTreeMap::new();
    let mut current: Option<(String, DefaultHasher)> = None;
    for line in text.lines() {
        if !line.starts_with(char::is_whitespace) {
            routes.extend(current.take().map(|(net, hasher)| (net, hasher.finish())));
            let net = line
                .split_whitespace()
                .next()
                .filter(|net| net.contains('/'));
            current = net.map(|net| (net.to_owned(), DefaultHasher::new()));
        } else if let Some((_, hasher)) = &mut current
            && line.trim_start().starts_with("BGP.")
            && !line.contains("BGP.cluster_list")
            && !(line.contains("BGP.aggregator") && line.ends_with(" AS0"))
        {
            line.trim().hash(hasher);
        }
    }
    routes.extend(current.take().map(|(net, hasher)| (net, hasher.finish())));
    routes
}
