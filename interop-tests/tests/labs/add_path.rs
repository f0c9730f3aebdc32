//! Several paths of a prefix (RFC 7911): Cambric's reflector sends them to other implementations,
//! and other reflectors send them to Cambric's client.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use interop_tests::{Ground, Kind, PATIENCE, Setup, Site, Speaker, in_ground};
use ipnet::IpNet;

const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const NET: &str = "10.65.0.1/32";

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

/// A client of the reflector on host 1.
fn client(own: &[&str]) -> Setup {
    let setup = Setup::fabric().neighbor(Site::v4(1), 64512);
    own.iter().fold(setup, |setup, net| setup.announcing(net))
}

/// Waits until a speaker holds exactly the paths of these hosts to a prefix, each as the reflector
/// has reflected it.
async fn holds(speaker: &Speaker, prefix: &str, hosts: &[u8]) {
    let wanted: Vec<u8> = hosts.to_vec();
    let what = format!("paths to {prefix} at host {}", speaker.site.number);
    let held = netns_lab::until(PATIENCE, &what, async || {
        let paths = match speaker.all_paths().await {
            Ok(paths) => paths,
            Err(silent) => return Ok(Err(silent)),
        };
        let paths = paths.iter().filter(|(to, _)| *to == net(prefix));
        let mut found = Vec::new();
        for (_, route) in paths {
            let source = (1..=9).find(|&host| Some(Site::v4(host).into()) == route.next_hop);
            let source = source.expect("the next hop of a host");
            assert_eq!(route.originator_id, Some(Site::v4(source)));
            assert_eq!(route.cluster_list, [CLUSTER]);
            found.push(source);
        }
        found.sort_unstable();
        let same = found == wanted;
        Ok::<_, netns_lab::Error>(same.then_some(()).ok_or_else(|| format!("{found:?}")))
    });
    if let Err(error) = held.await {
        panic!("{error}\n{}", speaker.log_tail());
    }
}

#[test]
fn bird_holds_the_paths_of_both_clients_behind_our_reflector() {
    in_ground(&[Kind::Bird], "add-path to BIRD", async |ground| {
        let mut reflector = Setup::fabric();
        for plain in [2, 3] {
            reflector = reflector.neighbor(Site::v4(plain), 64512);
        }
        for several in [4, 5] {
            reflector = reflector.neighbor(Site::v4(several), 64512).add_path();
        }
        let reflector = ground
            .speaker(Kind::Reflector, 1, &reflector.reflecting(CLUSTER))
            .await;
        let one = ground.speaker(Kind::Client, 2, &client(&[NET])).await;
        let two = ground
            .speaker(Kind::Client, 3, &client(&[NET, "10.65.0.3/32"]))
            .await;
        let bird = ground.speaker(Kind::Bird, 4, &client(&[]).add_path()).await;
        holds(&bird, NET, &[2, 3]).await;
        holds(&bird, "10.65.0.3/32", &[3]).await;
        holds(&one, NET, &[]).await;
        holds(&two, NET, &[2]).await;

        // The reflector reports all paths.
        let paths = reflector.paths(net(NET)).await;
        let sent: Vec<_> = paths
            .iter()
            .map(|path| {
                (
                    path.best,
                    path.sent_to
                        .iter()
                        .map(|to| (to.neighbor.as_str(), to.path_id.is_some()))
                        .collect(),
                )
            })
            .collect();
        let best = vec![("n10-0-0-3", false), ("n10-0-0-4", true)];
        assert_eq!(sent, [(true, best), (false, vec![("n10-0-0-4", true)])]);

        // A client that connects late receives the same paths, and originates the prefix itself.
        let late = ground.speaker(Kind::Bird, 5, &client(&[]).add_path()).await;
        holds(&late, NET, &[2, 3]).await;
        let mut own = client(&[NET]);
        late.announce(&own.own.remove(0)).await.expect("announced");
        holds(&bird, NET, &[2, 3, 5]).await;
        holds(&late, NET, &[2, 3]).await;

        // A path that one host withdraws is removed and the others stay, also when it was the best.
        one.withdraw(net(NET)).await.expect("withdrawn");
        holds(&bird, NET, &[3, 5]).await;
        holds(&late, NET, &[3]).await;
        one.announce(&client(&[NET]).own[0])
            .await
            .expect("announced");
        holds(&bird, NET, &[2, 3, 5]).await;
        late.withdraw(net(NET)).await.expect("withdrawn");
        two.withdraw(net(NET)).await.expect("withdrawn");
        holds(&bird, NET, &[2]).await;
        one.withdraw(net(NET)).await.expect("withdrawn");
        for client in [&one, &two, &bird, &late] {
            holds(client, NET, &[]).await;
        }
        holds(&bird, "10.65.0.3/32", &[3]).await;
    });
}

/// Waits until the kernel of a host has a BGP route with exactly these hosts as next hops.
async fn forwards(host: &Speaker, prefix: &str, over: &[u8]) {
    let wanted: BTreeSet<IpAddr> = over.iter().map(|&to| Site::v4(to).into()).collect();
    let what = format!("next hops of {prefix} in the kernel");
    let held = netns_lab::until(PATIENCE, &what, async || {
        let routes = host.site.host.links()?.routes().await?;
        let routes = routes
            .iter()
            .filter(|route| route.net == net(prefix) && route.protocol == 119);
        let hops = routes.flat_map(|route| &route.hops);
        let found: BTreeSet<IpAddr> = hops.filter_map(|hop| hop.gateway).collect();
        let same = found == wanted;
        Ok::<_, netns_lab::Error>(same.then_some(()).ok_or_else(|| format!("{found:?}")))
    });
    if let Err(error) = held.await {
        panic!("{error}\n{}", host.log_tail());
    }
}

#[test]
fn a_client_balances_over_the_hosts_behind_our_reflector() {
    let name = "balancing over paths of a reflector";
    in_ground(&[Kind::Client], name, async |ground| {
        let mut reflector = Setup::fabric();
        for plain in [2, 3] {
            reflector = reflector.neighbor(Site::v4(plain), 64512);
        }
        let reflector = reflector.neighbor(Site::v4(4), 64512).add_path();
        let _reflector = ground
            .speaker(Kind::Reflector, 1, &reflector.reflecting(CLUSTER))
            .await;
        let one = ground.speaker(Kind::Client, 2, &client(&[NET])).await;
        let _two = ground.speaker(Kind::Client, 3, &client(&[NET])).await;
        let mut balances = client(&[]).add_path();
        balances.multipath = Some(4);
        let balances = ground.speaker(Kind::Client, 4, &balances).await;
        forwards(&balances, NET, &[2, 3]).await;
        one.withdraw(net(NET)).await.expect("withdrawn");
        forwards(&balances, NET, &[3]).await;
        one.announce(&client(&[NET]).own[0])
            .await
            .expect("announced");
        forwards(&balances, NET, &[2, 3]).await;
    });
}

/// Tests Cambric's reflector between two clients of Cambric and one of another kind.
async fn to(kind: Kind, ground: Ground) {
    let mut reflector = Setup::fabric();
    for plain in [2, 3] {
        reflector = reflector.neighbor(Site::v4(plain), 64512);
    }
    let reflector = reflector.neighbor(Site::v4(4), 64512).add_path();
    let _reflector = ground
        .speaker(Kind::Reflector, 1, &reflector.reflecting(CLUSTER))
        .await;
    let one = ground.speaker(Kind::Client, 2, &client(&[NET])).await;
    let _two = ground.speaker(Kind::Client, 3, &client(&[NET])).await;
    let them = client(&[]).carrying(&["ipv4-unicast"]).add_path();
    let them = ground.speaker(kind, 4, &them).await;
    holds(&them, NET, &[2, 3]).await;
    one.withdraw(net(NET)).await.expect("withdrawn");
    holds(&them, NET, &[3]).await;
    one.announce(&client(&[NET]).own[0])
        .await
        .expect("announced");
    holds(&them, NET, &[2, 3]).await;
}

/// Tests another reflector between three clients of Cambric.
async fn from(kind: Kind, ground: Ground) {
    let mut reflector = Setup::fabric();
    for plain in [2, 3] {
        reflector = reflector
            .neighbor(Site::v4(plain), 64512)
            .carrying(&["ipv4-unicast"]);
    }
    let reflector = reflector
        .neighbor(Site::v4(4), 64512)
        .carrying(&["ipv4-unicast"])
        .add_path();
    let _reflector = ground
        .speaker(kind, 1, &reflector.reflecting(CLUSTER))
        .await;
    let one = ground.speaker(Kind::Client, 2, &client(&[NET])).await;
    let _two = ground.speaker(Kind::Client, 3, &client(&[NET])).await;
    let ours = ground
        .speaker(Kind::Client, 4, &client(&[]).add_path())
        .await;
    holds(&ours, NET, &[2, 3]).await;
    one.withdraw(net(NET)).await.expect("withdrawn");
    holds(&ours, NET, &[3]).await;
}

interop_tests::labs! {
    Bird as bird: to, from;
    Frr as frr: to, from;
    Gobgp as gobgp: to, from;
    Openbgpd as openbgpd: to, from;
}
