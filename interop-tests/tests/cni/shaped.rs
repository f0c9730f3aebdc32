//! The reference plugin `bandwidth`, chained after Cambric's.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use netns_lab::Program;
use serde_json::{Value, json};

use crate::ID;
use crate::host::{Container, Node, addresses, on_a_host};

/// Bits per second in each direction, and the burst in bits.
const RATE: u64 = 40_000_000;
const BURST: u64 = 800_000;

/// Octets that are sent, and returned.
const OCTETS: usize = 1_000_000;

const PORT: u16 = 5001;

/// Makes a device as the plugin does.
const PROBE: &str = "ip link add probe type ifb && \
    tc qdisc add dev probe root tbf rate 1mbit burst 10kb latency 25ms && ip link delete probe";

/// Returns whether the plugin and the kernel support it; prints a notice if not.
async fn is_possible(node: &Node) -> bool {
    let programs = ["/usr/lib/cni/bandwidth", "ip", "tc"];
    if !programs
        .iter()
        .all(|name| interop_tests::foreign(name).is_some())
    {
        return false;
    }
    let probe = Program::new("/bin/sh").args(["-c", PROBE]);
    let (status, _) = node.site.host.output(&probe).await.unwrap();
    if !status.success() {
        println!("skipped: the kernel has no tbf or no ifb; nothing is shaped");
    }
    status.success()
}

/// Lets plugins that are written in Go find containers and themselves: they look up their own
/// thread in `/proc`, which shows another pid namespace on a lab's host.
async fn let_go(node: &Node, containers: [&mut Container; 2]) {
    for container in containers {
        let file = format!("/run/cambric/{}.netns", container.id);
        let bind = format!("touch {file} && mount --bind {} {file}", container.netns);
        node.output(&bind).await;
        container.netns = file;
    }
    node.output("mount -t proc proc /proc").await;
}

/// Returns the token buckets of the host, by device.
async fn buckets(node: &Node) -> Vec<Value> {
    let text = node.output("tc -s -j qdisc show").await;
    let all: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    all.into_iter()
        .filter(|qdisc| qdisc["kind"] == "tbf")
        .collect()
}

/// Sends octets to a container, which returns as many.
fn transfer(from: &Container, to: &Container, address: IpAddr) {
    let listen = || TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap();
    let listener = to.host().run(listen).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut octets = vec![0; OCTETS];
        stream.read_exact(&mut octets).unwrap();
        stream.write_all(&octets).unwrap();
    });
    let connect = || TcpStream::connect(SocketAddr::new(address, PORT)).unwrap();
    let mut stream = from.host().run(connect).unwrap();
    let mut octets = vec![0; OCTETS];
    stream.write_all(&octets).unwrap();
    stream.read_exact(&mut octets).unwrap();
    server.join().unwrap();
}

#[test]
fn chained_plugin_shapes_the_traffic() {
    on_a_host("cni and bandwidth", async |fabric, node| {
        if !is_possible(&node).await {
            return;
        }
        // The newest version that Debian's plugins support.
        let config = node.network(json!({"cniVersion": "1.0.0"}));
        let mut one = Container::new(&fabric, ID).await;
        let mut two = Container::new(&fabric, "second").await;
        let_go(&node, [&mut one, &mut two]).await;
        let first = node.asks("ADD", &one, &config).await.expect("connected");
        node.asks("ADD", &two, &config).await.expect("connected");
        assert_eq!(buckets(&node).await, [Value::Null; 0]);
        let shaping = json!({
            "cniVersion": "1.0.0", "name": "fabric", "type": "bandwidth", "prevResult": first,
            "ingressRate": RATE, "ingressBurst": BURST, "egressRate": RATE, "egressBurst": BURST,
        });
        let shaped = node.asks("ADD", &one, &shaping).await.expect("shaped");
        assert_eq!(shaped["ips"], first["ips"]);
        transfer(&two, &one, addresses(&first)[0]);

        // Ingress is shaped where packets leave the host's end; egress on another device to which
        // the plugin redirects packets.
        let found = buckets(&node).await;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found.iter().any(|qdisc| qdisc["dev"] == "cali9f3c0123456"),
            "{found:?}"
        );
        for qdisc in &found {
            assert_eq!(qdisc["options"]["rate"], RATE / 8, "{qdisc}");
            // All octets passed here, and some were delayed.
            let figure = |name: &str| qdisc[name].as_u64().expect("a number");
            assert!(
                figure("bytes") > OCTETS as u64 && figure("overlimits") > 0,
                "{qdisc}"
            );
        }

        for (command, config) in [("CHECK", &shaping), ("DEL", &shaping), ("DEL", &config)] {
            let done = node.asks(command, &one, config).await;
            done.unwrap_or_else(|error| panic!("{command}: {error}"));
        }
        assert_eq!(buckets(&node).await, [Value::Null; 0]);
    });
}
