//! Pools with IP-in-IP encapsulation: a missing kernel prerequisite is reported until it is there,
//! and nothing else waits for it.

use std::net::IpAddr;

use daemon_common::report::Status;
use interop_tests::{Kind, Setup, Site, in_ground};
use netns_lab::{Error, Links, VethEnd, until};

use super::{PATIENCE, begun, net};

/// Returns the interface and the gateway of the kernel's route to a network; `None` without such a
/// route.
async fn way(links: &Links, to: &str) -> Option<(u32, IpAddr)> {
    let routes = links.routes().await.expect("routes");
    let route = routes.into_iter().find(|route| route.net == net(to))?;
    let hop = route.hops.first()?;
    Some((hop.link?, hop.gateway?))
}

async fn goes(links: &Links, to: &str, wanted: Option<(u32, IpAddr)>) {
    let waited = until(PATIENCE, to, async || {
        let found = way(links, to).await;
        let is_so = found == wanted;
        Ok::<_, Error>(is_so.then_some(()).ok_or_else(|| format!("{found:?}")))
    });
    waited.await.expect("the way");
}

#[test]
fn tunnel_routes_wait_for_the_interface_with_a_note() {
    let name = "tunnel_routes_wait_for_the_interface_with_a_note";
    in_ground(&[Kind::Bird], name, async |ground| {
        let store = ground.store().await.expect("a store");
        store.node(1, "").await;
        let settings = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false,
            "programClusterRoutes":"Enabled"}}"#;
        store.put("bgpconfigurations", "default", settings).await;
        let tunneled = r#"{"spec":{"cidr":"10.65.0.0/16","ipipMode":"Always"}}"#;
        store.put("ippools", "pool-v4", tunneled).await;
        let across = r#"{"spec":{"cidr":"10.66.0.0/16","ipipMode":"CrossSubnet"}}"#;
        store.put("ippools", "across", across).await;
        let peering = r#"{"spec":{"peerIP":"10.0.0.2","asNumber":64700}}"#;
        store.put("bgppeers", "tor", peering).await;
        let us = begun(&ground, Kind::Client, 1).await;
        let tor = Setup::of(64700).neighbor(Site::v4(1), 64512);
        let tor = tor.carrying(&["ipv4-unicast"]).announcing("10.65.8.0/26");
        let tor = tor.announcing("10.66.8.0/26").announcing("192.0.2.0/24");
        let _tor = ground.speaker(Kind::Bird, 2, &tor).await;

        // Other routes do not wait.
        let links = us.site.host.links().expect("links");
        let eth0 = links.index("eth0").await.expect("links").expect("eth0");
        let direct = Some((eth0, Site::v4(2).into()));
        for to in ["192.0.2.0/24", "10.66.8.0/26"] {
            goes(&links, to, direct).await;
        }
        let reports = |words: &'static str| {
            move |status: &Status| {
                let begins = "kernel routes not installed: 1: pools with ipipMode need";
                let mut notes = status.notes.iter();
                notes.any(|note| note.starts_with(begins) && note.contains(words))
            }
        };
        // A kernel with the module has made the interface in the host, down.
        let has = links.index("tunl0").await.expect("links").is_some();
        if has {
            println!("this kernel has IP-in-IP: the route goes through a real tunnel");
        } else {
            us.reports(
                "that the interface is missing",
                reports("tunl0, which is not there"),
            )
            .await;
            assert_eq!(way(&links, "10.65.8.0/26").await, None);
            println!("this kernel has no IP-in-IP: another interface stands for the tunnel");
            let end = |name| VethEnd {
                host: &us.site.host,
                name,
                mac: None,
            };
            let made = links.add_veth(end("tunl0"), end("tunl0-end"));
            made.await.expect("an interface");
        }
        us.reports(
            "that the interface is down",
            reports("tunl0, which is down"),
        )
        .await;
        links.up("tunl0").await.expect("up");
        let tunnel = links.index("tunl0").await.expect("links").expect("tunl0");
        let through = Some((tunnel, Site::v4(2).into()));
        goes(&links, "10.65.8.0/26", through).await;
        us.reports("nothing of tunnels", |status| {
            !status.notes.iter().any(|note| note.contains("tunl0"))
        })
        .await;

        // Within the node's subnet such a pool needs no encapsulation.
        let across = tunneled.replace("Always", "CrossSubnet");
        store.put("ippools", "pool-v4", &across).await;
        goes(&links, "10.65.8.0/26", direct).await;
        store.put("ippools", "pool-v4", tunneled).await;
        goes(&links, "10.65.8.0/26", through).await;
        // Where Felix programs these routes the daemon does not.
        let felix = settings.replace("\"Enabled\"", "\"EnabledNoEncapOnly\"");
        store.put("bgpconfigurations", "default", &felix).await;
        for to in ["10.65.8.0/26", "10.66.8.0/26"] {
            goes(&links, to, None).await;
        }
        goes(&links, "192.0.2.0/24", direct).await;
    });
}
