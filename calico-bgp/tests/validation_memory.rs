//! The memory cost of an endpoint for the index of origin validation, and the time to read all
//! endpoints of a large fabric, as stated in `docs/design/origin-validation.md`.

#[path = "../../bgp-proto/tests/counting/mod.rs"]
mod counting;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use calico_bgp::validation::{Neighbor, Origin, OriginIndex, Owner, ReceivedRoute};

/// Endpoints of a large fabric; without optimization a tenth of them.
const ENDPOINTS: u32 = if cfg!(debug_assertions) {
    25_000
} else {
    250_000
};
/// Its nodes.
const NODES: u32 = 2_500;
/// Octets that an endpoint may cost.
const ENDPOINT_OCTETS: usize = 64;
/// The time in which all endpoints are to be read: the limit of a restarted reflector.
const TIME_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 20 });

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";

/// The IPv4 address of an endpoint: those of a node are not adjacent.
fn v4(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a40_0000 + number)
}

/// Its IPv6 address: blocks of 64 addresses without a common prefix.
fn v6(number: u32) -> Ipv6Addr {
    let block = u64::from(number / 64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let high = 0xfd65_0000_0000_0000 | u128::from(block >> 16);
    Ipv6Addr::from_bits(
        high << 64 | u128::from(block) << 6 & 0xffff_ffff_ffff_ffc0 | u128::from(number % 64),
    )
}

fn key(number: u32) -> String {
    let node = number % NODES;
    format!(
        "{RESOURCES}workloadendpoints/tenant-{}/node--{node}-k8s-application--{number}-eth0",
        number % 50
    )
}

fn endpoint(number: u32, is_dual: bool) -> String {
    let node = number % NODES;
    let v6 = match is_dual {
        true => format!(r#","{}/128""#, v6(number)),
        false => String::new(),
    };
    format!(
        r#"{{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{{
        "name":"node--{node}-k8s-application--{number}-eth0","namespace":"tenant-{}",
        "uid":"d3e4f4a8-9c06-4f62-b1a7-60ab4bd5f3a2","labels":{{"app":"application-{number}",
        "projectcalico.org/orchestrator":"k8s"}}}},"spec":{{"orchestrator":"k8s","workload":"",
        "node":"node-{node}","pod":"application-{number}","endpoint":"eth0",
        "ipNetworks":["{}/32"{v6}],"profiles":["kns.tenant","ksa.tenant.default"],
        "interfaceName":"cali0123456789a","mac":"ee:ee:ee:ee:ee:ee"}}}}"#,
        number % 50,
        v4(number),
    )
}

/// Reads all endpoints; returns the index, the octets of an endpoint, and the time.
fn read_all(is_dual: bool) -> (OriginIndex, usize, Duration) {
    let mut index = OriginIndex::new(7);
    for node in 0..NODES {
        let key = format!("{RESOURCES}nodes/node-{node}");
        let address = Ipv4Addr::from_bits(0x0a00_0001 + node);
        let value = format!(
            r#"{{"metadata":{{"name":"node-{node}"}},"spec":{{"bgp":{{"ipv4Address":"{address}"}}}}}}"#
        );
        index
            .take(key.as_bytes(), Some(value.as_bytes()))
            .expect("valid");
    }
    let before = counting::live();
    let mut spent = Duration::ZERO;
    // In the order of keys of a real datastore, addresses have no order.
    for number in (0..ENDPOINTS).map(|number| number * 101 % ENDPOINTS) {
        let (key, value) = (key(number), endpoint(number, is_dual));
        let start = Instant::now();
        let affected = index.take(key.as_bytes(), Some(value.as_bytes()));
        spent += start.elapsed();
        assert!(!affected.expect("valid").is_empty());
    }
    let octets = (counting::live() - before) / usize::try_from(ENDPOINTS).expect("a size");
    (index, octets, spent)
}

/// Asserts that the index answers for the endpoints, and that their removal returns the memory.
fn check(mut index: OriginIndex, is_dual: bool) {
    let node = 17;
    let name = format!("node-{node}");
    let next_hop = Ipv4Addr::from_bits(0x0a00_0001 + node).into();
    let route = |number: u32| ReceivedRoute {
        prefix: ipnet::IpNet::from(std::net::IpAddr::from(v4(number))).into(),
        next_hop: Some(next_hop),
        has_originator_id: false,
    };
    let neighbor = Neighbor::Node(&name);
    assert_eq!(index.origin(neighbor, &route(node)), Origin::Confirmed);
    let of_other = index.origin(neighbor, &route(node + 1));
    assert_eq!(of_other, Origin::Conflict(Owner::Node("node-18")));
    let full = counting::live();
    for number in 0..ENDPOINTS {
        index
            .take(key(number).as_bytes(), None)
            .expect("a deletion");
    }
    let rows = if is_dual { 55 } else { 22 };
    let returned = full - counting::live();
    let expected = rows * usize::try_from(ENDPOINTS).expect("a size");
    assert!(returned > expected, "{returned} of {expected} octets");
    assert_eq!(index.origin(neighbor, &route(node)), Origin::Unknown);
}

// Promise (Datastore): The index of origin validation holds at most 64 bytes for an endpoint.
#[test]
fn endpoint_costs_at_most_64_octets() {
    for is_dual in [false, true] {
        let (index, octets, spent) = read_all(is_dual);
        println!("two addresses: {is_dual}; {octets} octets an endpoint; all in {spent:?}");
        assert!(octets <= ENDPOINT_OCTETS, "{octets} octets");
        assert!(spent < TIME_MAX, "{spent:?}");
        check(index, is_dual);
    }
}
