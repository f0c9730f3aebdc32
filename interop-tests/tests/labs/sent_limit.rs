//! A limit of the paths that a neighbor is sent (`prefix_limit_out`), as other implementations see
//! it.

use std::net::Ipv4Addr;

use interop_tests::{
    Ground, Kind, PATIENCE, Route, Setup, Site, Speaker, Table, labs,
    sender::{Opening, Sender},
};
use ipnet::{IpNet, Ipv4Net};
use netns_lab::{Error, until};
use testkit::Update;

const ASN: u32 = 64512;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const V4: &[&str] = &["ipv4-unicast"];
const LIMIT: usize = 3;

labs! {
    neighbor_holds_exactly_the_limit: Bird Frr;
}

fn net(number: u8) -> Ipv4Net {
    Ipv4Net::new(Ipv4Addr::new(10, 65, number, 0), 24).expect("a prefix")
}

fn expected(numbers: &[u8], source: Ipv4Addr) -> Table {
    let route = Route::via(Site::v4(2)).local_pref(100);
    let route = route.reflected(source, CLUSTER);
    let numbers = numbers.iter();
    numbers
        .map(|&number| (IpNet::from(net(number)), route.clone()))
        .collect()
}

/// Waits until the reflector has suppressed paths for the neighbor, or has sent it all.
async fn is_suppressing(reflector: &Speaker, wanted: bool) {
    let waited = until(PATIENCE, "the state of the limit", async || {
        let neighbors = reflector.neighbors().await.neighbors;
        let mut families = neighbors.iter().flat_map(|neighbor| &neighbor.families);
        let limited = families.find(|family| family.sent_limit == Some(LIMIT as u32));
        let is = limited.is_some_and(|family| family.is_suppressing == wanted);
        Ok::<_, Error>(is.then_some(()).ok_or_else(|| format!("{limited:?}")))
    });
    waited.await.expect("the limit");
}

async fn neighbor_holds_exactly_the_limit(kind: Kind, ground: Ground) {
    let setup = Setup::fabric().neighbor(Site::v4(2), ASN).carrying(V4);
    let setup = setup.neighbor(Site::v4(3), ASN).carrying(V4);
    let reflector = ground
        .speaker(Kind::Reflector, 1, &setup.reflecting(CLUSTER))
        .await;
    reflector.reports("a status", |_| true).await;
    // The neighbor of the last section is host 3.
    let with_limit = |text: String| format!("{text}prefix_limit_out = {LIMIT}\n");
    reflector.reconfigure(with_limit).await;
    let client = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(V4);
    let guest = ground.speaker(kind, 3, &client).await;
    let site = ground.site(2).await.expect("a host");
    let opening = Opening::of(&site, ASN);
    let mut source = Sender::insist(&site, Site::v4(1), &opening).await;
    let update = |numbers: &[u8]| {
        let numbers = numbers.iter();
        numbers.fold(Update::via(Site::v4(2)), |update, &number| {
            update.announcing(net(number))
        })
    };
    let holds = async |numbers: &[u8]| {
        guest.holds(&expected(numbers, opening.id)).await;
    };
    source.send(&update(&[1, 2, 3])).await.expect("sent");
    holds(&[1, 2, 3]).await;
    source.send(&update(&[4])).await.expect("sent");
    is_suppressing(&reflector, true).await;
    holds(&[1, 2, 3]).await;
    source
        .send(&Update::default().withdrawing(net(2)))
        .await
        .expect("sent");
    holds(&[1, 3, 4]).await;
    is_suppressing(&reflector, false).await;
    source.send(&update(&[5, 6])).await.expect("sent");
    is_suppressing(&reflector, true).await;
    holds(&[1, 3, 4]).await;
    let without = |text: String| text.replace(&format!("prefix_limit_out = {LIMIT}\n"), "");
    reflector.reconfigure(without).await;
    holds(&[1, 3, 4, 5, 6]).await;
}
