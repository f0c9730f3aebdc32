//! Limits of the bandwidth of endpoints, with real packets. Needs root and `CAMBRIC_LAB=1`.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::attacks::{QINQ, SOURCE, VLAN, datagram, tagged};
use crate::encapsulation::dropped_as;
use crate::guard::notes;
use crate::world::frame::{self, Wire};
use crate::world::host::{Host, key, mac, workload};
use crate::world::{Workload, count_at, count_of, lab, run, try_run};

/// Octets of a transfer, and the limits: its duration without the burst is half a second.
const OCTETS: usize = 1_000_000;
const RATE: u64 = 1_000_000;
const BURST: u64 = 500_000;
const PORT: u16 = 5001;

/// Writes endpoint `n` with these limits.
fn limit(host: &Host, n: u8, controls: &Value) {
    host.endpoint_with(n, &json!({}), &json!({ "qosControls": controls }));
}

/// Creates a host with two workloads, the first with these limits.
fn pair(controls: &Value) -> (Host, Workload, Workload) {
    let host = Host::new();
    let both = (workload(1), workload(2));
    limit(&host, 1, controls);
    limit(&host, 2, &json!({}));
    (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
    (host, both.0, both.1)
}

/// Returns the limits of both directions in bits, the burst as above.
fn both(rate: u64) -> Value {
    json!({
        "ingressBandwidth": rate * 8, "ingressBurst": BURST * 8,
        "egressBandwidth": rate * 8, "egressBurst": BURST * 8,
    })
}

/// Returns the token buckets of the host: device and rate.
fn buckets() -> Vec<(String, u64)> {
    let listed: Vec<Value> = serde_json::from_str(&run("tc -j qdisc show")).expect("JSON");
    let buckets = listed.iter().filter(|qdisc| qdisc["kind"] == "tbf");
    let mut buckets: Vec<(String, u64)> = buckets
        .map(|qdisc| {
            let device = qdisc["dev"].as_str().unwrap().to_owned();
            (device, qdisc["options"]["rate"].as_u64().unwrap())
        })
        .collect();
    buckets.sort();
    buckets
}

/// Returns what the bucket of a device has counted.
fn counted(device: &str, figure: &str) -> u64 {
    let text = run(&format!("tc -s -j qdisc show dev {device} root"));
    let listed: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    listed[0][figure].as_u64().expect("a number")
}

/// Returns the device of the packets from the first workload.
fn shaper() -> String {
    let listed = run("ip -o link show type ifb");
    let mut lines = listed.lines().filter(|line| line.contains("bwcab"));
    let name = lines.next().expect("a device").split(": ").nth(1).unwrap();
    assert_eq!(lines.next(), None);
    name.to_owned()
}

fn has_no_shaper() -> bool {
    !run("ip -o link show type ifb").contains("bwcab")
        && !run("tc qdisc show dev cali1").contains("ingress")
}

/// Sends octets to a workload. Returns the time until they have arrived.
fn transfer(from: &Workload, to: &Workload, address: &str) -> Duration {
    let listen = || TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap();
    let listener = to.namespace.within(listen);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut octets = vec![0; OCTETS];
        stream.read_exact(&mut octets).unwrap();
    });
    let address = SocketAddr::new(address.parse().unwrap(), PORT);
    let mut stream = from
        .namespace
        .within(|| TcpStream::connect(address))
        .unwrap();
    let begun = Instant::now();
    stream.write_all(&vec![0; OCTETS]).unwrap();
    server.join().unwrap();
    begun.elapsed()
}

/// Returns the problem of the first endpoint, which is up.
fn problem(host: &Host) -> Option<String> {
    let all = host.endpoints().endpoints;
    let one = all.into_iter().find(|one| one.interface == "cali1");
    let one = one.filter(|one| one.state == "up");
    one.and_then(|one| one.problem)
}

// Promise (Felix): The bandwidth of a workload is limited in each direction.
#[test]
fn bandwidth_is_limited_in_each_direction() {
    lab("bandwidth_is_limited_in_each_direction", || {
        let (host, one, two) = pair(&both(RATE));
        host.until("two buckets", || buckets().len() == 2);
        let shaper = shaper();
        let wanted = [(shaper.clone(), RATE), ("cali1".to_owned(), RATE)];
        assert_eq!(buckets(), wanted);
        // A slow machine can only take longer.
        let least = Duration::from_secs_f64((OCTETS as f64 - BURST as f64) / RATE as f64 * 0.9);
        for (from, to, address, device) in [
            (&two, &one, "10.65.0.1", "cali1"),
            (&two, &one, "fd65::1", "cali1"),
            (&one, &two, "10.65.0.2", &*shaper),
            (&one, &two, "fd65::2", &*shaper),
        ] {
            let bytes = counted(device, "bytes");
            let took = transfer(from, to, address);
            assert!(
                counted(device, "bytes") >= bytes + OCTETS as u64,
                "{address}"
            );
            assert!(counted(device, "overlimits") > 0, "{address}");
            assert!(took >= least, "{address}: {took:?}");
        }
        // The rules still apply to redirected packets.
        assert!(one.namespace.pings("10.65.0.2"));
        run("ip neigh flush dev cali2");
        one.namespace.run("ip address add 10.65.0.9/32 dev eth0");
        assert!(
            !one.namespace
                .within(|| crate::world::ping("-w 1 -I 10.65.0.9 10.65.0.2"))
        );
        assert!(dropped_as(&host, SOURCE) > 0);
    });
}

// Promise (Felix): A changed or removed limit of bandwidth is applied to a running workload.
#[test]
fn changed_bandwidth_is_applied_to_a_running_workload() {
    lab("changed_bandwidth_is_applied_to_a_running_workload", || {
        let (mut host, one, _two) = pair(&both(RATE));
        host.until("two buckets", || buckets().len() == 2);
        let shaper = shaper();
        limit(&host, 1, &both(2 * RATE));
        let wanted = [(shaper.clone(), 2 * RATE), ("cali1".to_owned(), 2 * RATE)];
        host.until("other rates", || buckets() == wanted);
        // Wide rates and peak rates.
        let wide = 1_u64 << 33;
        limit(
            &host,
            1,
            &json!({"ingressBandwidth": wide * 8, "egressBandwidth": RATE * 8,
                "egressPeakrate": RATE * 16, "egressMinburst": 2000}),
        );
        host.until("a wide rate", || {
            buckets().contains(&("cali1".to_owned(), wide))
        });
        host.until("a peak rate", || {
            run(&format!("tc qdisc show dev {shaper}")).contains("peakrate 16Mbit")
        });
        assert!(one.namespace.pings("10.65.0.2"));
        // Another program removes the device: it is made again.
        limit(&host, 1, &both(RATE));
        let wanted = [(shaper.clone(), RATE), ("cali1".to_owned(), RATE)];
        host.until("former rates", || buckets() == wanted);
        run(&format!("ip link delete {shaper}"));
        host.until("a device again", || buckets() == wanted);
        assert!(one.namespace.pings("10.65.0.2"));
        // A restart keeps the limits, and removes those that are not wanted any more.
        host.stop();
        assert_eq!(buckets(), wanted);
        host.start();
        host.wait_up("cali1");
        host.until("the same", || buckets() == wanted);
        host.stop();
        limit(&host, 1, &json!({"egressBandwidth": RATE * 8}));
        host.start();
        host.until("one direction", || buckets() == wanted[..1]);
        limit(&host, 1, &json!({}));
        host.until("no limit", || buckets().is_empty() && has_no_shaper());
        assert!(one.namespace.pings("10.65.0.2"));
        assert_eq!(problem(&host), None);
    });
}

#[test]
fn devices_of_removed_interfaces_are_removed() {
    lab("devices_of_removed_interfaces_are_removed", || {
        let (mut host, one, _two) = pair(&both(RATE));
        host.until("two buckets", || buckets().len() == 2);
        run("ip link delete cali1");
        host.until("no device", || buckets().is_empty());
        drop(one);
        let one = workload(1);
        host.wait_up("cali1");
        host.until("two buckets again", || buckets().len() == 2);
        assert!(one.namespace.pings("10.65.0.2"));
        // While Felix is stopped.
        host.stop();
        run("ip link delete cali1");
        assert_eq!(buckets().len(), 1);
        host.delete(&key("p1"));
        host.start();
        host.until("no device of an earlier run", || buckets().is_empty());
        // The endpoint is removed before its interface.
        let _one = workload(1);
        limit(&host, 1, &both(RATE));
        host.until("two buckets", || buckets().len() == 2);
        host.delete(&key("p1"));
        host.until("no limit", || buckets().is_empty() && has_no_shaper());
        // While Felix is stopped, and the interface stays; the bucket of another program stays, too.
        limit(&host, 1, &both(RATE));
        host.until("two buckets", || buckets().len() == 2);
        host.stop();
        host.delete(&key("p1"));
        assert_eq!(buckets().len(), 2);
        let _nine = workload(9);
        run("tc qdisc add dev cali9 root handle 1: tbf rate 7mbit burst 10kb latency 25ms");
        host.start();
        host.until("no limit of an earlier run", || {
            buckets() == [("cali9".to_owned(), 875_000)] && has_no_shaper()
        });
    });
}

// Promise (Felix): Queueing disciplines of other programs at a workload interface are kept.
#[test]
fn foreign_qdiscs_are_kept_and_reported() {
    lab("foreign_qdiscs_are_kept_and_reported", || {
        let host = Host::new();
        let (one, _two) = (workload(1), workload(2));
        // As CNI's plugin `bandwidth` makes it.
        run("tc qdisc add dev cali1 root handle 1: tbf rate 7mbit burst 10kb latency 25ms");
        limit(&host, 1, &both(RATE));
        limit(&host, 2, &json!({}));
        (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
        let foreign = "another program has the root qdisc tbf 1: at cali1";
        host.until("the foreign one is reported", || {
            problem(&host).is_some_and(|text| text.contains(foreign))
        });
        assert!(notes(&host).contains(foreign));
        // The other direction is limited nevertheless.
        let shaper = shaper();
        let wanted = [(shaper.clone(), RATE), ("cali1".to_owned(), 875_000)];
        assert_eq!(buckets(), wanted);
        run("tc qdisc del dev cali1 root");
        host.until("both", || {
            buckets() == [(shaper.clone(), RATE), ("cali1".to_owned(), RATE)]
        });
        host.until("no problem", || problem(&host).is_none());
        // A filter of another program.
        limit(&host, 1, &json!({}));
        host.until("no limit", || buckets().is_empty() && has_no_shaper());
        run("tc qdisc add dev cali1 ingress");
        run("tc filter add dev cali1 parent ffff: protocol ip prio 7 u32 match u32 0 0");
        limit(&host, 1, &both(RATE));
        let foreign = "another program has the ingress filter u32 of priority 7 at cali1";
        host.until("the filter is reported", || {
            problem(&host).is_some_and(|text| text.contains(foreign))
        });
        limit(&host, 1, &json!({}));
        host.until("no bucket", || buckets().is_empty());
        host.until("no problem", || problem(&host).is_none());
        assert!(run("tc filter show dev cali1 parent ffff:").contains("pref 7"));
        assert!(one.namespace.pings("10.65.0.2"));
    });
}

#[test]
fn tagged_frames_are_dropped_where_bandwidth_is_limited() {
    lab(
        "tagged_frames_are_dropped_where_bandwidth_is_limited",
        || {
            let (host, one, two) = pair(&both(RATE));
            host.until("two buckets", || buckets().len() == 2);
            let wire = Wire::of(&one);
            let (own, gateway) = (frame::parsed(&mac(1)), frame::mac_of("cali1"));
            count_at(&two.namespace, "udp dport 9");
            let packet = datagram("10.65.0.1", "10.65.0.2");
            let plain = frame::ethernet(gateway, own, frame::IPV4, &packet);
            let received = count_of(&two.namespace);
            let tags: [&[(u16, u16)]; 3] = [
                &[(VLAN, 7)],
                &[(QINQ, 7), (VLAN, 8)],
                &[(VLAN, 0), (QINQ, 7)],
            ];
            for tags in tags {
                (0..10).for_each(|_| wire.send(&tagged(&plain, tags)));
            }
            host.until("without a tag", || {
                wire.send(&plain);
                count_of(&two.namespace) > received
            });
            let sent = counted(&shaper(), "packets");
            assert!(
                sent >= 31,
                "the tagged frames have passed the bucket: {sent}"
            );
            // Every packet without a tag arrives within the burst, and none with one.
            assert!(count_of(&two.namespace) <= received + sent - 30);
            assert!(try_run("tc qdisc show dev cali1").status.success());
        },
    );
}
