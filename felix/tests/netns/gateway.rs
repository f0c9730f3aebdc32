//! The workloads' gateways on a real kernel. Needs root and `CAMBRIC_LAB=1`.

use crate::world::{lab, run};
use cambric_felix::apply::Neighbors;

/// ff02::1:ff00:1, the solicited-node group of fe80::1.
const GROUP: &str = "ff0200000000000000000001ff000001";

#[test]
fn gateway_answers_solicitations_with_its_address() {
    lab("gateway_answers_solicitations_with_its_address", || {
        let mut neighbors = Neighbors::open(80).unwrap();
        // Many, because the kernel's own join is often fast enough, too.
        for number in 1..=50 {
            run(&format!(
                "ip link add cali{number} up type veth peer name p{number}"
            ));
            // `7: cali1@p1: <…`
            let link = run(&format!("ip -o link show cali{number}"));
            let interface = link.split(':').next().unwrap().parse().unwrap();
            neighbors.put_gateway_ipv6(interface).unwrap();
            let groups = std::fs::read_to_string("/proc/thread-self/net/igmp6").unwrap();
            let name = format!("cali{number}");
            let joined = groups.lines().any(|line| {
                let mut words = line.split_whitespace().skip(1);
                words.next() == Some(name.as_str()) && words.next() == Some(GROUP)
            });
            assert!(
                joined,
                "{name} has its address and misses the group: {groups}"
            );
        }
    });
}
