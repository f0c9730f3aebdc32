use std::collections::BTreeSet;

use super::*;

fn pool(cidr: &str, block_size: u8) -> Pool {
    Pool {
        cidr: cidr.parse().expect("a range"),
        block_size,
    }
}

#[test]
fn every_block_of_a_pool_is_listed_once() {
    for host in ["a", "b", "node-17"] {
        for (pool, count) in [
            (pool("10.65.0.0/24", 26), 4),
            (pool("10.65.0.0/24", 32), 256),
            (pool("fd65::/120", 122), 4),
            (pool("10.65.0.0/26", 26), 1),
        ] {
            let blocks: Vec<IpNet> = blocks_of(pool, host).collect();
            let unique: BTreeSet<&IpNet> = blocks.iter().collect();
            assert_eq!((blocks.len(), unique.len()), (count, count));
            assert!(blocks.iter().all(|block| pool.cidr.contains(block)));
        }
    }
    assert_eq!(blocks_of(pool("::/0", 128), "a").take(3).count(), 3);
    assert_eq!(blocks_of(pool("fd65::/48", 122), "a").take(3).count(), 3);
}

#[test]
fn hosts_begin_in_different_places() {
    let first = |host: &str| blocks_of(pool("10.65.0.0/16", 26), host).next();
    let places: BTreeSet<_> = (0..100).map(|at| first(&format!("node-{at}"))).collect();
    assert!(places.len() > 80, "{}", places.len());
}

#[test]
fn a_workload_takes_from_pools_that_are_for_it() {
    let spec = |json: &str| serde_json::from_str::<IpPoolSpec>(json).expect("a spec");
    let pools = [
        spec(r#"{"cidr": "10.1.0.0/16", "disabled": true}"#),
        spec(r#"{"cidr": "10.2.0.0/16", "assignmentMode": "Manual"}"#),
        spec(r#"{"cidr": "10.3.0.0/16", "allowedUses": ["Tunnel"]}"#),
        spec(r#"{"cidr": "10.4.0.0/16", "nodeSelector": "rack == 'r2'"}"#),
        spec(r#"{"cidr": "10.5.0.0/16", "namespaceSelector": "env == 'prod'"}"#),
        spec(r#"{"cidr": "10.6.0.0/16", "nodeSelector": "rack == 'r1'"}"#),
        spec(r#"{"cidr": "fd65::/48"}"#),
    ];
    let labels = |label: &str, value: &str| Labels::from([(label.to_owned(), value.to_owned())]);
    let node = labels("rack", "r1");
    let chosen = |ipv6, namespace| {
        let chosen = Pool::for_workload(&pools, ipv6, &node, namespace);
        chosen
            .iter()
            .map(|pool| pool.cidr.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(chosen(false, None), ["10.6.0.0/16"]);
    let prod = labels("env", "prod");
    assert_eq!(chosen(false, Some(&prod)), ["10.5.0.0/16", "10.6.0.0/16"]);
    assert_eq!(chosen(true, None), ["fd65::/48"]);
}
