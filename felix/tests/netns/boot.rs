//! The tables of the boot, which drop all workload traffic until Felix has written its filter, with
//! real packets. Needs root and `CAMBRIC_LAB=1`.

use crate::guard::{connects, listen, outside};
use crate::world::host::{OPEN, PATIENCE, announce, pair, workload};
use crate::world::process::{Process, served};
use crate::world::{Namespace, Workload, lab, pings, run, sysctl, try_run};

/// The packaged file.
const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../packaging/etc/felix-boot.nft"
);

fn load() {
    run(&format!("nft -f {FILE}"));
}

fn exists(table: &str) -> bool {
    try_run(&format!("nft list table {table}")).status.success()
}

/// Configures what Felix would configure for a workload, except for the packet filter.
fn configure(n: u8) {
    run(&format!("ip route add 10.65.0.{n} dev cali{n}"));
    run(&format!("ip -6 route add fd65::{n} dev cali{n}"));
    run(&format!("ip -6 address add fe80::1/64 dev cali{n} nodad"));
    sysctl(&format!("ipv4/conf/cali{n}/proxy_arp"), "1");
    sysctl(&format!("ipv4/conf/cali{n}/rp_filter"), "0");
}

/// The addresses of the second workload, of the far end and of the host, and of the first workload.
const WAYS: [[&str; 4]; 2] = [
    ["10.65.0.2", "10.0.0.2", "10.0.0.11", "10.65.0.1"],
    ["fd65::2", "fd00::2", "fd00::11", "fd65::1"],
];

fn assert_open(one: &Workload, outside: &Namespace) {
    for [two, far, _, own] in WAYS {
        assert!(one.namespace.pings(two), "to {two}");
        assert!(one.namespace.pings(far), "to {far}");
        assert!(outside.pings(own), "from outside to {own}");
    }
}

fn assert_closed(one: &Workload, outside: &Namespace) {
    for [two, far, host, own] in WAYS {
        for to in [two, far, host] {
            assert!(one.namespace.is_cut_off(to), "to {to}");
        }
        assert!(outside.is_cut_off(own), "from outside to {own}");
        // The host itself is reached, and reaches others.
        assert!(outside.pings(host) && pings(far), "{host}");
    }
}

// Promise (Felix): With the tables of the boot, workloads have no traffic before the first complete
// packet filter.
#[test]
fn boot_is_closed_until_the_first_complete_filter() {
    lab("boot_is_closed_until_the_first_complete_filter", || {
        let (mut host, _) = served();
        let outside = outside();
        let (one, _two) = (workload(1), workload(2));
        sysctl("ipv4/ip_forward", "1");
        sysctl("ipv6/conf/all/forwarding", "1");
        run("ip address add 169.254.1.1/32 dev lo scope host");
        (1..=2).for_each(configure);
        assert_open(&one, &outside);
        load();
        assert_closed(&one, &outside);
        let _service = listen(22);
        let far = Workload { namespace: outside };
        assert!(connects(&far, "10.0.0.11:22", PATIENCE), "failsafe port");
        let outside = far.namespace;

        // Felix starts, has no datastore, and is killed before its first complete filter.
        (1..=2).for_each(|n| announce(&host, n, OPEN));
        let process = Process::start(&host, "http://127.0.0.1:1", "");
        let deadline = std::time::Instant::now() + PATIENCE;
        while !exists("inet cambric-felix") {
            assert!(std::time::Instant::now() < deadline, "no filter of Felix");
        }
        assert_closed(&one, &outside);
        drop(process);
        assert!(exists("inet cambric-felix-boot") && exists("arp cambric-felix-boot"));
        // Its own filter is removed, too: only the tables of the boot are left.
        run("nft delete table inet cambric-felix");
        run("nft delete table arp cambric-felix");
        assert_closed(&one, &outside);

        host.start();
        host.wait_up("cali1");
        host.wait_up("cali2");
        assert!(!exists("inet cambric-felix-boot") && !exists("arp cambric-felix-boot"));
        assert_open(&one, &outside);
    });
}

// Promise: as felix boot_is_closed_until_the_first_complete_filter
#[test]
fn boot_tables_end_if_the_kept_filter_is_complete() {
    lab("boot_tables_end_if_the_kept_filter_is_complete", || {
        let (mut host, one, _two) = pair();
        assert!(one.namespace.pings("10.65.0.2"));
        host.stop();
        let before = run("nft -a list table inet cambric-felix");
        let handle = |text: &str| text.lines().next().unwrap().to_owned();
        load();
        assert!(one.namespace.is_cut_off("10.65.0.2"));
        host.start();
        host.until("the tables of the boot are removed", || {
            !exists("inet cambric-felix-boot") && !exists("arp cambric-felix-boot")
        });
        assert!(one.namespace.pings("10.65.0.2"));
        let after = run("nft -a list table inet cambric-felix");
        assert_eq!(handle(&before), handle(&after), "the filter was kept");
        // Another program has removed one of the tables.
        host.stop();
        load();
        run("nft delete table inet cambric-felix-boot");
        host.start();
        host.until("the other table is removed", || {
            !exists("arp cambric-felix-boot")
        });
        assert!(one.namespace.pings("10.65.0.2"));
    });
}
