//! Next hops that a daemon must not use: the addresses of its own machine, which it reads from the
//! kernel, and of an external peer one hop away those that are not on the link (RFC 4271 §5.1.3).

use std::net::Ipv4Addr;

use bgp_proto::Asn;
use interop_tests::{Ground, Kind, PATIENCE, Setup, Site, Speaker, in_ground, sender};
use ipnet::{IpNet, Ipv4Net};
use netns_lab::{Error, until};
use testkit::Update;

const ASN: u32 = 64512;
const OTHER_ASN: u32 = 64513;
const OWN: &str = "not eligible: next hop is ourselves";
const OFF_LINK: &str = "not eligible: next hop not on the link";
/// A second address of the daemon's machine, which no session uses.
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const THIRD: u8 = 9;

/// Announces a route with this next hop, and waits for the reason why it is not used. The route of
/// an external peer has its AS in AS_PATH.
async fn is_refused(
    ours: &Speaker,
    peer: &mut sender::Sender,
    external: Option<u32>,
    next_hop: Ipv4Addr,
    expected: Option<&str>,
) {
    let net = Ipv4Net::new(Ipv4Addr::new(10, 65, 0, 1), 32).expect("a prefix");
    let mut update = Update::via(next_hop).announcing(net);
    if let Some(asn) = external {
        update = update.path(&[Asn(asn)], next_hop);
    }
    peer.send(&update).await.expect("sent");
    let waited = until(PATIENCE, "an evaluated route", async || {
        let paths = ours.paths(IpNet::from(net)).await;
        let found = paths
            .iter()
            .find(|path| path.next_hop == Some(next_hop.to_string()));
        Ok::<_, Error>(match found {
            Some(path) if path.lost.as_deref() == expected => Ok(()),
            _ => Err(format!("next hop {next_hop}, not {expected:?}: {paths:?}")),
        })
    });
    if let Err(error) = waited.await {
        panic!("{error}\n{}", ours.log_tail());
    }
}

async fn peer(ground: &Ground, number: u8, asn: u32) -> sender::Sender {
    let site = ground.site(number).await.expect("a host");
    let opening = sender::Opening::of(&site, asn);
    sender::Sender::insist(&site, Site::v4(1), &opening).await
}

#[test]
fn next_hops_of_the_machine_and_off_the_link_are_refused() {
    let name = "next_hops_of_the_machine_and_off_the_link_are_refused";
    in_ground(&[], name, async |ground| {
        let setup = [(2, ASN), (3, OTHER_ASN)].into_iter().fold(
            Setup::fabric().reflecting(Site::v4(1)),
            |setup, (number, asn)| {
                let setup = setup.neighbor(Site::v4(number), asn);
                setup.carrying(&["ipv4-unicast"])
            },
        );
        let site = ground.site(1).await.expect("a host");
        let links = site.host.links().expect("links");
        let second = IpNet::new(SECOND.into(), 32).expect("a prefix");
        let added = links.add_address("lo", second).await;
        added.expect("an address");
        let ours = Speaker::start(Kind::Reflector, site, &setup).await;
        let ours = ours.expect("a process");

        let mut internal = peer(&ground, 2, ASN).await;
        is_refused(&ours, &mut internal, None, SECOND, Some(OWN)).await;
        is_refused(&ours, &mut internal, None, ELSEWHERE, None).await;
        drop(internal);

        let mut external = peer(&ground, 3, OTHER_ASN).await;
        for (next_hop, expected) in [
            (SECOND, Some(OWN)),
            (ELSEWHERE, Some(OFF_LINK)),
            (Site::v4(THIRD), None),
        ] {
            is_refused(&ours, &mut external, Some(OTHER_ASN), next_hop, expected).await;
        }
    });
}
