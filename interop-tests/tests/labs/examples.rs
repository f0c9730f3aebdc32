//! The programs in `examples/`, built from the packages of the published crates, beside BIRD.

use std::net::Ipv4Addr;

use interop_tests::{
    Kind, PATIENCE, Route, Setup, Site, Speaker, Table, differences, example, in_ground, table,
};
use ipnet::{IpNet, Ipv4Net};
use netns_lab::{Error, Process, Program, until};
use serde_json::Value;

/// The AS of the fabric, and that of an external peer.
const ASN: u32 = 64512;
const EXTERNAL: u32 = 64513;

const IPV4: &[&str] = &["ipv4-unicast"];

/// Starts an example on a host.
fn start(site: &Site, name: &str, arguments: &[&str]) -> Process {
    let program = Program::new(example(name)).args(arguments.iter().copied());
    site.host.spawn(name, &program).expect("it starts")
}

/// Waits until the program has written a line that is wanted.
async fn writes(process: &mut Process, what: &str, wanted: impl Fn(&str) -> bool) {
    let waited = until(PATIENCE, what, async || {
        process.check()?;
        let text = std::fs::read_to_string(process.log()).unwrap_or_default();
        let found = text.lines().any(&wanted);
        Ok::<_, Error>(found.then_some(()).ok_or_else(|| "no such line".to_owned()))
    });
    if let Err(error) = waited.await {
        panic!("{error}\n{}", process.log_tail());
    }
}

/// Returns the setup of BIRD with one IPv4 session.
fn bird(asn: u32, peer_asn: u32) -> Setup {
    let setup = Setup::of(asn).neighbor(Site::v4(1), peer_asn);
    setup.carrying(IPV4)
}

/// Returns whether a line of the collector has this prefix and AS_PATH; `None` is a withdrawal.
fn is_change(line: &str, prefix: &str, as_path: Option<&str>) -> bool {
    let Ok(line) = serde_json::from_str::<Value>(line) else {
        return false;
    };
    line["family"] == "ipv4-unicast"
        && line["prefix"] == prefix
        && line["attributes"]["AS_PATH"].as_str() == as_path
}

#[test]
fn collector_prints_routes_of_bird_as_json() {
    let name = "collector_prints_routes_of_bird_as_json";
    in_ground(&[Kind::Bird], name, async |ground| {
        let site = ground.site(1).await.expect("a host");
        let arguments = ["10.0.0.1:179", "64512", "10.0.0.1", "10.0.0.2", "64513"];
        let mut collector = start(&site, "collector", &arguments);
        let setup = bird(EXTERNAL, ASN).announcing("10.65.1.0/24");
        let bird = ground.speaker(Kind::Bird, 2, &setup).await;
        writes(&mut collector, "the route as JSON", |line| {
            is_change(line, "10.65.1.0/24", Some("64513"))
        })
        .await;
        let withdrawn = bird.withdraw("10.65.1.0/24".parse().expect("a prefix"));
        withdrawn.await.expect("withdrawn");
        writes(&mut collector, "its withdrawal", |line| {
            is_change(line, "10.65.1.0/24", None)
        })
        .await;
    });
}

/// Returns whether a line of `updates` has this prefix in a list of routes, with this AS_PATH.
fn has_route(line: &str, list: &str, prefix: &str, as_path: Option<&str>) -> bool {
    let message: Value = serde_json::from_str(line).unwrap_or_default();
    let batches = message["routes"].as_array().into_iter().flatten();
    let mut batches = batches.filter(|batch| batch["attributes"]["AS_PATH"].as_str() == as_path);
    batches.any(|batch| {
        let mut routes = batch[list].as_array().into_iter().flatten();
        routes.any(|route| route["net"] == prefix)
    })
}

#[test]
fn updates_prints_messages_of_bird_as_json() {
    let name = "updates_prints_messages_of_bird_as_json";
    in_ground(&[Kind::Bird], name, async |ground| {
        let setup = bird(EXTERNAL, ASN).announcing("10.65.1.0/24");
        let bird = ground.speaker(Kind::Bird, 2, &setup).await;
        let site = ground.site(1).await.expect("a host");
        let arguments = ["64512", "10.0.0.1", "10.0.0.2:179", "64513"];
        let mut updates = start(&site, "updates", &arguments);
        // BIRD refuses connections until it listens, and the program dials once.
        let established = until(PATIENCE, "a session with BIRD", async || {
            if updates.check().is_err() {
                updates = start(&site, "updates", &arguments);
            }
            let text = std::fs::read_to_string(updates.log()).unwrap_or_default();
            let is_up = text.contains("Established");
            Ok::<_, Error>(is_up.then_some(()).ok_or(text))
        });
        established.await.unwrap_or_else(|error| panic!("{error}"));
        writes(&mut updates, "the route as JSON", |line| {
            has_route(line, "announced", "10.65.1.0/24", Some("64513"))
        })
        .await;
        let withdrawn = bird.withdraw("10.65.1.0/24".parse().expect("a prefix"));
        withdrawn.await.expect("withdrawn");
        writes(&mut updates, "its withdrawal", |line| {
            has_route(line, "withdrawn", "10.65.1.0/24", None)
        })
        .await;
    });
}

/// BIRD records the messages that it receives from the injector, and the decoder reads them.
#[test]
fn injector_sends_10_000_routes_and_decoder_reads_them() {
    let name = "injector_sends_10_000_routes_and_decoder_reads_them";
    in_ground(&[Kind::Bird], name, async |ground| {
        let (one, two) = (ground.site(1).await, ground.site(2).await);
        let (one, two) = (one.expect("a host"), two.expect("a host"));
        let record = two.host.directory().join("record.mrt");
        let mut setup = bird(ASN, EXTERNAL);
        setup.extra = format!("mrtdump {record:?};\n");
        let bird = Speaker::start(Kind::Bird, two, &setup).await.expect("BIRD");
        records(&bird).await;
        let arguments = ["64513", "10.0.0.1", "10.0.0.2", "179", "64512", "10000"];
        let mut injector = start(&one, "injector", &arguments);
        writes(&mut injector, "all sent", |line| {
            line == "10000 routes are sent"
        })
        .await;
        let expected = injected(10_000);
        bird.holds(&expected).await;
        let decoder = Program::new(example("decoder")).arg(&record);
        let (status, text) = one.host.output(&decoder).await.expect("it starts");
        assert!(status.success(), "{status}");
        let text = String::from_utf8(text).expect("text");
        let decoded: Table = text.lines().flat_map(decoded_routes).collect();
        let differences = differences(&expected, &decoded);
        assert!(differences.is_empty(), "{differences}");
    });
}

/// Has BIRD record the messages of all sessions.
async fn records(bird: &Speaker) {
    let waited = until(PATIENCE, "BIRD", async || {
        let answer = bird.command("mrtdump all all").await?;
        let is_up = answer.contains("ready") && !answer.contains("syntax error");
        Ok::<_, Error>(is_up.then_some(()).ok_or(answer))
    });
    waited.await.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns the routes of the injector: 10.0.0.0/32 and the addresses after it.
fn injected(count: u32) -> Table {
    let first = Ipv4Addr::new(10, 0, 0, 0).to_bits();
    let net = |bits| Ipv4Net::new(Ipv4Addr::from_bits(bits), 32).expect("a length that fits");
    let route = Route::via(Site::v4(1)).path("64513").local_pref(100);
    let nets = (first..first + count).map(|bits| IpNet::V4(net(bits)));
    nets.map(|net| (net, route.clone())).collect()
}

/// Returns the routes of a recorded UPDATE, with the LOCAL_PREF that BIRD gives them.
fn decoded_routes(line: &str) -> Vec<(IpNet, Route)> {
    let line: Value = serde_json::from_str(line).expect("a line of JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut routes = Vec::new();
    for batch in list(&line["message"]["update"]) {
        assert_eq!(batch["family"], "ipv4-unicast", "{batch}");
        let attributes = &batch["attributes"];
        let text = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
        for entry in list(&batch["reach"]) {
            let route = Route {
                next_hop: text("NEXT_HOP").parse().ok(),
                as_path: text("AS_PATH"),
                origin: text("ORIGIN").to_lowercase(),
                local_pref: Some(100),
                ..Route::default()
            };
            let net = entry["net"].as_str().and_then(|net| net.parse().ok());
            routes.push((net.unwrap_or_else(|| panic!("no prefix: {entry}")), route));
        }
    }
    routes
}

#[test]
fn reflector_passes_routes_between_two_birds() {
    let name = "reflector_passes_routes_between_two_birds";
    in_ground(&[Kind::Bird], name, async |ground| {
        let site = ground.site(1).await.expect("a host");
        let arguments = ["10.0.0.1:179", "64512", "10.0.0.1", "10.0.0.0/24"];
        let mut reflector = start(&site, "reflector", &arguments);
        let client = |net| bird(ASN, ASN).announcing(net);
        let two = ground.speaker(Kind::Bird, 2, &client("10.65.2.0/24")).await;
        let three = ground.speaker(Kind::Bird, 3, &client("10.65.3.0/24")).await;
        let reflected = |originator| {
            let route = Route::via(Site::v4(originator)).local_pref(100);
            route.reflected(Site::v4(originator), Site::v4(1))
        };
        two.holds(&table([("10.65.3.0/24", reflected(3))])).await;
        three.holds(&table([("10.65.2.0/24", reflected(2))])).await;
        reflector.check().expect("it runs");
    });
}

#[test]
fn bad_open_is_refused_by_bird() {
    let name = "bad_open_is_refused_by_bird";
    in_ground(&[Kind::Bird], name, async |ground| {
        let site = ground.site(1).await.expect("a host");
        let _bird = ground.speaker(Kind::Bird, 2, &bird(ASN, EXTERNAL)).await;
        let to = format!("{}:179", Site::v4(2));
        let program = Program::new(example("bad-open")).arg(to);
        // BIRD refuses connections until it listens, and while it waits after an error.
        let ended = until(PATIENCE, "the NOTIFICATION", async || {
            let (status, text) = site.host.output(&program).await?;
            let text = String::from_utf8_lossy(&text).into_owned();
            Ok::<_, Error>(match status.success() {
                true => Ok(text),
                false => Err(status.to_string()),
            })
        });
        let (text, _) = ended.await.unwrap_or_else(|error| panic!("{error}"));
        assert!(text.contains("Unsupported Version Number"), "{text}");
    });
}
