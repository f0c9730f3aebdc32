//! Weights of next hops by the link bandwidth community, beside FRR.

use std::time::Duration;

use interop_tests::{Ground, Kind, Setup, Site, Speaker, in_ground};
use netns_lab::{Error, Host, Program, until};

const BOUND: Duration = Duration::from_secs(45);

/// The route of both instances of FRR.
const SHARED: &str = "10.65.9.0/24";
const OWN: &str = "10.65.1.0/26";

const FABRIC: u32 = 64512;
const EXTERNAL: u32 = 64600;
const V4: &[&str] = &["ipv4-unicast"];

async fn frr(ground: &Ground, number: u8, setup: Setup) -> Speaker {
    let site = ground.site(number).await.expect("a host");
    let setup = setup.neighbor(Site::v4(1), FABRIC).carrying(V4);
    let started = Speaker::start(Kind::Frr, site, &setup).await;
    started.expect("FRR")
}

/// Returns the next hops of the shared route with their weights, as `ip route` shows them.
async fn weights(host: &Host) -> Vec<(String, String)> {
    let program = Program::new("/bin/sh").args(["-c", "ip -4 route show"]);
    let (_, output) = host.output(&program).await.expect("ip route");
    let text = String::from_utf8_lossy(&output);
    let lines = text.lines().skip_while(|line| !line.starts_with(SHARED));
    let of_route = lines.skip(1).take_while(|line| line.contains("nexthop"));
    let value = |line: &str, name: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).unwrap_or_default().to_owned()
    };
    of_route
        .map(|line| (value(line, "via"), value(line, "weight")))
        .collect()
}

async fn has_weights(host: &Host, expected: [(u8, &str); 2]) {
    let expected =
        expected.map(|(number, weight)| (Site::v4(number).to_string(), weight.to_owned()));
    let waited = until(BOUND, "weights", async || {
        let found = weights(host).await;
        Ok::<_, Error>(if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        })
    });
    waited.await.unwrap_or_else(|error| panic!("{error}"));
}

/// Waits until FRR shows the route of the client with these words.
async fn shows(frr: &Speaker, words: &str) {
    let waited = until(BOUND, "the community", async || {
        let shown = frr
            .command(&format!("show bgp ipv4 unicast {OWN} json"))
            .await?;
        Ok::<_, Error>(if shown.contains(words) {
            Ok(())
        } else {
            Err(shown)
        })
    });
    waited.await.unwrap_or_else(|error| panic!("{error}"));
}

async fn weigh(ground: Ground, nexthop_objects: bool) {
    let shared = Setup::fabric().announcing(SHARED);
    let fast = shared.clone().with_link_bandwidth(2_000);
    let two = frr(&ground, 2, fast).await;
    let _three = frr(&ground, 3, shared.with_link_bandwidth(1_000)).await;
    let external = frr(&ground, 4, Setup::of(EXTERNAL)).await;
    let site = ground.site(1).await.expect("a host");
    let host = site.host.clone();
    let mut setup = Setup::fabric().announcing(OWN).with_link_bandwidth(2_500);
    for (number, asn) in [(2, FABRIC), (3, FABRIC), (4, EXTERNAL)] {
        setup = setup.neighbor(Site::v4(number), asn).carrying(V4);
    }
    setup.multipath = Some(4);
    setup.nexthop_objects = nexthop_objects;
    let started = Speaker::start(Kind::Client, site, &setup).await;
    let _one = started.expect("a client");
    has_weights(&host, [(2, "2"), (3, "1")]).await;
    // In bytes per second.
    let bandwidth = format!("LB:{FABRIC}:312500000");
    shows(&two, &bandwidth).await;
    shows(&external, &bandwidth).await;
}

// Promise (BGP): Next hops of a kernel route have weights by the link bandwidth community of FRR, and FRR reads
// the community of the daemon.
#[test]
fn link_bandwidths_of_frr_are_weights_of_kernel_routes() {
    in_ground(&[Kind::Frr], "link-bandwidth", async |ground| {
        weigh(ground, false).await;
    });
}

// Promise: as interop-tests link_bandwidths_of_frr_are_weights_of_kernel_routes
#[test]
fn link_bandwidths_of_frr_are_weights_of_nexthop_groups() {
    in_ground(&[Kind::Frr], "link-bandwidth-group", async |ground| {
        weigh(ground, true).await;
    });
}
