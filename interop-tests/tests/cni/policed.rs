//! Containers under a NetworkPolicy.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use interop_tests::PATIENCE;
use netns_lab::{Error, until};
use serde_json::{Value, json};

use crate::host::{Container, Node, addresses, on_a_host};

/// The ports of the server.
pub(crate) const PORTS: [u16; 2] = [80, 81];

/// How long to wait for an answer where none is expected; dropped packets are counted.
const SILENCE: Duration = Duration::from_millis(300);

/// Returns a policy of the server: its clients may connect to this port.
fn policy(port: u16) -> Value {
    json!({
        "kind": "NetworkPolicy", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "server", "namespace": "prod"},
        "spec": {
            "selector": "app == 'server'", "types": ["Ingress"],
            "ingress": [{
                "action": "Allow", "protocol": "TCP",
                "source": {"selector": "app == 'client'"}, "destination": {"ports": [port]},
            }],
        },
    })
}

/// Listeners of both families in a container; the kernel accepts for them.
pub(crate) fn listen(server: &Container) -> Vec<TcpListener> {
    let ports = PORTS.into_iter();
    let listen = || ports.map(|port| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap());
    server.host().run(|| listen().collect()).unwrap()
}

pub(crate) fn connect(
    from: &Container,
    to: IpAddr,
    port: u16,
    within: Duration,
) -> io::Result<TcpStream> {
    let to = SocketAddr::new(to, port);
    let connect = || TcpStream::connect_timeout(&to, within);
    from.host().run(connect).unwrap()
}

/// Returns how many packets the end of a tier has dropped on this host.
async fn dropped(node: &Node) -> u64 {
    let rules = node.output("nft list table inet cambric-felix").await;
    let ends = rules
        .lines()
        .filter(|line| line.contains("drop comment \"tier default: no policy decides\""));
    let counts = ends.map(|line| {
        let (_, rest) = line.split_once("packets ").expect("a counter");
        let number = rest.split(' ').next().unwrap_or_default();
        number.parse::<u64>().expect("a number")
    });
    counts.sum()
}

/// Waits until the client cannot connect to a port because its packets are dropped. `open` states
/// whether it could connect before; a missing answer alone is no proof.
pub(crate) async fn is_cut_off(node: &Node, from: &Container, to: IpAddr, port: u16, open: bool) {
    let what = format!("packets to {to} port {port} are dropped");
    until::<(), Error>(PATIENCE, &what, async || {
        let before = dropped(node).await;
        match connect(from, to, port, SILENCE) {
            Ok(_) => assert!(open, "{to} port {port} was reached"),
            Err(error) => assert_ne!(error.kind(), ErrorKind::ConnectionRefused),
        }
        let now = dropped(node).await;
        Ok((now > before)
            .then_some(())
            .ok_or_else(|| format!("{now} in all")))
    })
    .await
    .unwrap();
}

#[test]
fn policy_between_containers_changes_live() {
    if interop_tests::foreign("nft").is_none() {
        return;
    }
    on_a_host("cni and a NetworkPolicy", async |fabric, node| {
        let config = node.network(json!({}));
        let server = Container::new(&fabric, "server").await;
        let server = server.of_pod("server", "app=server");
        let client = Container::new(&fabric, "client").await;
        let client = client.of_pod("client", "app=client");
        let served = node.asks("ADD", &server, &config).await;
        let served = addresses(&served.expect("connected"));
        node.asks("ADD", &client, &config).await.expect("connected");
        let _listening = listen(&server);
        // The profile of the namespace accepts all traffic.
        for (to, port) in served.iter().zip(PORTS) {
            connect(&client, *to, port, PATIENCE).expect("connected");
        }

        for (allowed, denied) in [(PORTS[0], PORTS[1]), (PORTS[1], PORTS[0])] {
            let written = fabric.resources.apply(policy(allowed)).await;
            written.expect("written");
            is_cut_off(&node, &client, served[0], denied, true).await;
            // The policy is now applied in full.
            for to in &served {
                is_cut_off(&node, &client, *to, denied, false).await;
                connect(&client, *to, allowed, PATIENCE).expect("connected");
            }
        }
        // The policy applies to the server only, for ingress.
        let own = node.asks("ADD", &client, &config).await;
        let _back = listen(&client);
        for to in addresses(&own.expect("the same")) {
            connect(&server, to, PORTS[0], PATIENCE).expect("connected");
        }
    });
}
