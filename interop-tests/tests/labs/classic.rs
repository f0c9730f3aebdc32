//! Hosts without a datastore: one session with a reflector, one route per workload interface, the
//! host itself as next hop.

use interop_tests::{Ground, Kind, PATIENCE, Setup, Site, Speaker, in_ground};
use ipnet::IpNet;
use netns_lab::{Error, VethEnd, until};

const REFLECTOR: u8 = 3;
/// `rtm_protocol` of routes that `cambric-bgp-client` installs.
const OURS: u8 = 119;

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

/// Starts a host as `docs/operate/bgp-client.md` describes it: kernel routes of `tap*`, `cali*` and
/// `dummy1` are announced, of any protocol in this lab.
async fn host(ground: &Ground, number: u8) -> Speaker {
    let setup = Setup::fabric().neighbor(Site::v4(REFLECTOR), 64512);
    let setup = setup.carrying(&["ipv4-unicast"]);
    let us = ground.speaker(Kind::Client, number, &setup).await;
    us.reports("a status", |_| true).await;
    us.reconfigure(|text| {
        let text = text.replace(r#"["cali*"]"#, r#"["tap*", "cali*", "dummy1"]"#);
        format!(
            "{text}source = \"{}\"\nnext_hop = \"self\"\n",
            Site::v4(number)
        )
    })
    .await;
    us.is_up().await;
    us
}

/// Adds an interface to a host, and a route through it.
async fn plug(us: &Speaker, name: &str, to: &str) {
    let links = us.site.host.links().expect("links");
    let far = format!("{name}-far");
    let end = |name| VethEnd {
        host: &us.site.host,
        name,
        mac: None,
    };
    let made = links.add_veth(end(name), end(&far)).await;
    made.expect("an interface");
    links.up(name).await.expect("up");
    links.up(&far).await.expect("up");
    links.add_route(net(to), None, name).await.expect("a route");
}

/// Waits until the daemon of a host has installed exactly these routes, all with one next hop.
async fn has_learned(us: &Speaker, by: u8, expected: &[&str]) {
    let links = us.site.host.links().expect("links");
    let mut expected: Vec<IpNet> = expected.iter().map(|text| net(text)).collect();
    expected.sort();
    let waited = until(PATIENCE, "the routes of the other host", async || {
        let routes = links.routes().await?;
        let ours = routes.iter().filter(|route| route.protocol == OURS);
        let gateway = Some(Site::v4(by).into());
        let mut found: Vec<IpNet> = ours
            .filter(|route| route.hops.iter().all(|hop| hop.gateway == gateway))
            .map(|route| route.net)
            .collect();
        found.sort();
        let agrees = found == expected;
        Ok::<_, Error>(agrees.then_some(()).ok_or_else(|| format!("{found:?}")))
    });
    if let Err(error) = waited.await {
        panic!("{error}\n{}", us.log_tail());
    }
}

fn workloads_are_reached_through(reflector: Kind, name: &str) {
    in_ground(&[reflector], name, async |ground| {
        let setup = Setup::fabric()
            .neighbor(Site::v4(1), 64512)
            .carrying(&["ipv4-unicast"])
            .neighbor(Site::v4(2), 64512)
            .carrying(&["ipv4-unicast"])
            .reflecting(Site::v4(REFLECTOR));
        let _reflector = ground.speaker(reflector, REFLECTOR, &setup).await;
        let [one, two] = [host(&ground, 1).await, host(&ground, 2).await];
        plug(&one, "tap0", "10.65.1.5/32").await;
        plug(&one, "tap1", "10.65.1.6/32").await;
        plug(&one, "dummy1", "192.0.2.1/32").await;
        // Routes of other interfaces are not announced, nor is a default route.
        plug(&one, "dummy0", "192.0.2.2/32").await;
        plug(&one, "eth1", "0.0.0.0/0").await;
        plug(&two, "tap0", "10.65.2.5/32").await;
        let all = ["10.65.1.5/32", "10.65.1.6/32", "192.0.2.1/32"];
        has_learned(&two, 1, &all).await;
        has_learned(&one, 2, &["10.65.2.5/32"]).await;

        // The route of a deleted workload is removed everywhere; that of a moved workload follows
        // it.
        let links = one.site.host.links().expect("links");
        links.delete("tap1").await.expect("gone");
        has_learned(&two, 1, &["10.65.1.5/32", "192.0.2.1/32"]).await;
        plug(&two, "tap1", "10.65.1.6/32").await;
        has_learned(&one, 2, &["10.65.2.5/32", "10.65.1.6/32"]).await;
        one.stood(|_| true).await;
    });
}

#[test]
fn hosts_without_a_store_reach_workloads_through_bird() {
    let name = "hosts_without_a_store_reach_workloads_through_bird";
    workloads_are_reached_through(Kind::Bird, name);
}

#[test]
fn storeless_hosts_reach_workloads_through_a_reflector() {
    let name = "storeless_hosts_reach_workloads_through_a_reflector";
    workloads_are_reached_through(Kind::Reflector, name);
}
