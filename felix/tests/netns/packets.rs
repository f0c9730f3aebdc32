//! The whole daemon on a real kernel: workloads in network namespaces behind one host, real
//! packets. Needs root and `CAMBRIC_LAB=1`.

use std::net::{TcpListener, TcpStream};

use crate::world::flow::Flow;
use crate::world::host::{Host, OPEN, PATIENCE, RESOURCES, announce, key, mac, pair, workload};
use crate::world::{self, Workload, count_at, count_of, lab, pings, run, try_run};
use calico_store::KeyRange;
use cambric_felix::apply::conntrack;
use daemon_common::report::Endpoint;
use daemon_common::{Command, Reply};
use serde_json::json;

#[test]
fn open_workloads_reach_each_other_their_host_reaches_them() {
    lab(
        "open_workloads_reach_each_other_their_host_reaches_them",
        || {
            let (host, one, two) = pair();
            assert!(one.namespace.pings("10.65.0.2") && two.namespace.pings("10.65.0.1"));
            assert!(one.namespace.pings("fd65::2") && two.namespace.pings("fd65::1"));
            assert!(pings("10.65.0.1") && pings("fd65::2"));
            let routes = run("ip route show proto 80");
            assert!(
                routes.contains("10.65.0.1 dev cali1 scope link metric 256"),
                "{routes}"
            );
            let routes = run("ip -6 route show proto 80");
            assert!(routes.contains("fd65::1 dev cali1 metric 256"), "{routes}");
            let neighbors = run("ip neigh show nud permanent dev cali1");
            assert!(
                neighbors.contains(&format!("10.65.0.1 lladdr {}", mac(1))),
                "{neighbors}"
            );
            assert!(host.counted("from-cali1", "profile projectcalico-default-allow") > 0);
            let Reply::Status(status) = host.ask(&Command::Status {}) else {
                panic!()
            };
            assert_eq!((status.ready, status.waiting_for), (true, vec![]));
        },
    );
}

// Promise (Felix): Packets that no rule allows do not pass.
#[test]
fn a_source_address_that_is_not_the_endpoints_is_dropped() {
    lab(
        "a_source_address_that_is_not_the_endpoints_is_dropped",
        || {
            let (host, one, two) = pair();
            one.namespace.run("ip address add 10.65.0.99/32 dev lo");
            one.namespace
                .run("ip address add fd65::99/128 dev lo nodad");
            for (source, target, family) in [
                ("10.65.0.99", "10.65.0.2", "ip"),
                ("fd65::99", "fd65::2", "ip6"),
            ] {
                // The gateway's link address must be known: it is not announced to an unknown
                // source.
                assert!(one.namespace.pings(target));
                count_at(&two.namespace, &format!("{family} saddr {source}"));
                let dropped = || host.counted("workload-source", "source is not");
                let before = dropped();
                host.until("some are dropped", || {
                    assert!(one.namespace.is_cut_off(&format!("-I {source} {target}")));
                    dropped() >= before + 3
                });
                assert_eq!(count_of(&two.namespace), 0, "{source} got through");
                two.namespace.run("nft delete table inet t");
                // The neighbor's address is no better.
                let own = if family == "ip" {
                    "10.65.0.1"
                } else {
                    "fd65::1"
                };
                count_at(&two.namespace, &format!("{family} saddr {own}"));
                assert!(one.namespace.pings(&format!("-I {own} {target}")));
                assert!(count_of(&two.namespace) > 0, "the counter works");
                two.namespace.run("nft delete table inet t");
            }
        },
    );
}

// Promise: as felix a_source_address_that_is_not_the_endpoints_is_dropped
#[test]
fn workload_interface_without_endpoint_drops_all_traffic() {
    lab(
        "workload_interface_without_endpoint_drops_all_traffic",
        || {
            let (host, one, _two) = pair();
            let nine = workload(9);
            // Everything that Felix would configure, except for the rules.
            run("ip route add 10.65.0.9 dev cali9");
            run("ip -6 route add fd65::9 dev cali9");
            run("ip -6 address add fe80::1/64 dev cali9 nodad");
            world::sysctl("ipv4/conf/cali9/proxy_arp", "1");
            world::sysctl("ipv4/conf/cali9/rp_filter", "0");
            for (theirs, ours, own) in [
                ("10.65.0.1", "10.65.0.9", "10.0.0.11"),
                ("fd65::1", "fd65::9", "fd00::11"),
            ] {
                assert!(nine.namespace.is_cut_off(theirs), "from it");
                assert!(one.namespace.is_cut_off(ours), "to it");
                assert!(nine.namespace.is_cut_off(own), "to the host");
                assert!(world::is_cut_off(ours), "from the host");
            }
            run("ip route del 10.65.0.9 dev cali9");
            run("ip -6 route del fd65::9 dev cali9");
            announce(&host, 9, OPEN);
            host.wait_up("cali9");
            assert!(nine.namespace.pings("10.65.0.1") && one.namespace.pings("10.65.0.9"));
            assert!(nine.namespace.pings("fd65::1") && one.namespace.pings("fd65::9"));
        },
    );
}

// Promise: as felix a_source_address_that_is_not_the_endpoints_is_dropped
#[test]
fn an_endpoint_without_profile_passes_nothing_until_it_has_one() {
    lab(
        "an_endpoint_without_profile_passes_nothing_until_it_has_one",
        || {
            let (host, one, _two) = pair();
            let three = workload(3);
            announce(&host, 3, &[]);
            host.wait_up("cali3");
            let closed = || {
                for (theirs, ours, own) in [
                    ("10.65.0.1", "10.65.0.3", "10.0.0.11"),
                    ("fd65::1", "fd65::3", "fd00::11"),
                ] {
                    assert!(three.namespace.is_cut_off(theirs), "from it");
                    assert!(one.namespace.is_cut_off(ours), "to it");
                    assert!(three.namespace.is_cut_off(own), "to the host");
                    assert!(pings(ours), "from the host");
                }
            };
            closed();
            announce(&host, 3, OPEN);
            host.until("open", || {
                run("nft list chain inet cambric-felix from-cali3").contains("accept")
            });
            assert!(three.namespace.pings("10.65.0.1") && one.namespace.pings("fd65::3"));
            announce(&host, 3, &[]);
            host.until("closed", || {
                run("nft list chain inet cambric-felix from-cali3").contains("drop")
            });
            closed();
        },
    );
}

#[test]
fn a_profile_of_one_direction_lets_answers_through() {
    lab("a_profile_of_one_direction_lets_answers_through", || {
        let (host, one, _two) = pair();
        let egress = json!({"spec": {"egress": [{"action": "Allow"}]}});
        host.put(&format!("{RESOURCES}profiles/out"), &egress);
        let four = workload(4);
        announce(&host, 4, &["out"]);
        host.wait_up("cali4");
        assert!(four.namespace.pings("10.65.0.1") && four.namespace.pings("fd65::1"));
        assert!(one.namespace.is_cut_off("10.65.0.4") && one.namespace.is_cut_off("fd65::4"));
    });
}

#[test]
fn workloads_reach_their_host_only_if_configured() {
    lab("workloads_reach_their_host_only_if_configured", || {
        let (host, one, _two) = pair();
        let is_open = || one.namespace.pings("10.0.0.11") && one.namespace.pings("fd00::11");
        let is_closed =
            || one.namespace.is_cut_off("10.0.0.11") && one.namespace.is_cut_off("fd00::11");
        host.until("some are dropped", || {
            assert!(is_closed());
            host.counted("workload-to-host", "endpoint to host: drop") > 0
        });
        let counts = |words: &str| {
            let words = words.to_owned();
            host.until(&words, || {
                run("nft list chain inet cambric-felix workload-to-host").contains(&words)
            });
        };
        host.configure(&json!({"defaultEndpointToHostAction": "Accept"}));
        counts("endpoint to host: accept");
        assert!(is_open());
        host.configure(&json!({"defaultEndpointToHostAction": "Return"}));
        counts("endpoint to host: return");
        assert!(is_open());
        host.configure(&json!({"defaultEndpointToHostAction": "Drop"}));
        counts("endpoint to host: drop");
        assert!(is_closed());
        assert!(pings("10.65.0.1"), "answers to the host pass");
    });
}

#[test]
fn removal_withdraws_everything() {
    lab("removal_withdraws_everything", || {
        let (host, one, _two) = pair();
        assert!(one.namespace.pings("10.65.0.2"));
        host.delete(&key("w2"));
        host.wait("cali2", "gone", |endpoint| endpoint.is_none());
        host.until("no routes", || {
            !run("ip route show proto 80").contains("10.65.0.2")
        });
        host.until("no routes", || {
            !run("ip -6 route show proto 80").contains("fd65::2")
        });
        assert!(!run("ip neigh show nud permanent").contains("10.65.0.2"));
        assert!(!run("nft list table inet cambric-felix").contains("cali2"));
        assert!(one.namespace.is_cut_off("10.65.0.2"));
    });
}

#[test]
fn the_interface_may_come_late_and_go_and_come_again() {
    lab("the_interface_may_come_late_and_go_and_come_again", || {
        let host = Host::new();
        let one = workload(1);
        announce(&host, 1, OPEN);
        announce(&host, 2, OPEN);
        host.wait_up("cali1");
        let down = |reason: &'static str| {
            move |endpoint: Option<&Endpoint>| {
                endpoint.is_some_and(|e| e.state == "down" && e.problem.as_deref() == Some(reason))
            }
        };
        host.wait("cali2", "absent", down("interface cali2 does not exist"));
        let two = workload(2);
        host.wait_up("cali2");
        assert!(one.namespace.pings("10.65.0.2") && one.namespace.pings("fd65::2"));
        run("ip link set cali2 down");
        host.wait("cali2", "down", down("interface cali2 is down"));
        run("ip link set cali2 up");
        host.wait_up("cali2");
        assert!(one.namespace.pings("10.65.0.2") && two.namespace.pings("fd65::1"));
        two.namespace.run("ip link set eth0 down");
        host.wait(
            "cali2",
            "without carrier",
            down("interface cali2 has no carrier"),
        );
        run("ip link delete cali2");
        host.wait("cali2", "absent", down("interface cali2 does not exist"));
        let two = workload(2);
        host.wait_up("cali2");
        assert!(one.namespace.pings("10.65.0.2") && two.namespace.pings("fd65::1"));
    });
}

/// Returns the number of transactions of the packet filter.
fn transactions(host: &Host) -> u64 {
    match host.ask(&Command::Status {}) {
        Reply::Status(status) => status.endpoints.unwrap().rules_transactions,
        other => panic!("{other:?}"),
    }
}

/// A stopped Felix leaves a record, so the next one keeps the table. Without the record it replaces
/// the table; then the kernel may drop a packet that a CPU is just filtering, because the old sets
/// are empty from that moment on: a restart may cost a flow one packet, but never two in a row.
#[test]
fn restart_interrupts_no_flow() {
    const RESTARTS: usize = 4;
    lab("restart_interrupts_no_flow", || {
        let (mut host, one, _two) = pair();
        assert!(one.namespace.pings("10.65.0.2") && one.namespace.pings("fd65::2"));
        let flows = ["10.65.0.2", "fd65::2"].map(|to| Flow::start(&one.namespace, to));
        for replaces in [false, true].into_iter().cycle().take(RESTARTS) {
            let before = flows.each_ref().map(Flow::sent);
            host.stop();
            if replaces {
                run("nft delete table inet cambric-felix-record");
            }
            host.start();
            host.wait_up("cali2");
            assert_eq!(transactions(&host) > 0, replaces);
            host.until("packets of both flows", || {
                let mut both = flows.iter().zip(before);
                both.all(|(flow, before)| flow.sent() >= before + 10)
            });
        }
        for flow in flows {
            let (sent, lost) = (flow.sent(), flow.end());
            let in_a_row = lost.iter().any(|number| lost.contains(&(number + 1)));
            assert!(
                !in_a_row && lost.len() <= RESTARTS / 2,
                "unanswered of {sent}: {lost:?}"
            );
        }
    });
}

#[test]
fn workload_is_cut_off_before_felix_starts_and_rules_stay() {
    lab(
        "workload_is_cut_off_before_felix_starts_and_rules_stay",
        || {
            let (mut host, one, _two) = pair();
            host.stop();
            assert!(
                one.namespace.pings("10.65.0.2"),
                "a dead Felix does no harm"
            );
            let nine = workload(9);
            run("ip route add 10.65.0.9 dev cali9");
            assert!(
                nine.namespace.is_cut_off("10.65.0.1") && one.namespace.is_cut_off("10.65.0.9")
            );
            // An endpoint that was removed in the meantime is deleted.
            host.delete(&key("w2"));
            host.start();
            host.wait_up("cali1");
            host.until("stray route", || {
                !run("ip route show proto 80").contains("10.65.0.2")
            });
            assert!(!run("ip neigh show nud permanent").contains("10.65.0.2"));
            assert!(
                run("ip route show").contains("10.65.0.9"),
                "not ours to remove"
            );
        },
    );
}

#[test]
fn states_are_reported_into_the_store() {
    lab("states_are_reported_into_the_store", || {
        let host = Host::new();
        host.configure(
            &json!({"endpointReportingEnabled": true, "endpointReportingDelay": "10ms"}),
        );
        let _one = workload(1);
        announce(&host, 1, OPEN);
        let prefix = "/calico/felix/v2/no-region/host/n1/workload/";
        let reported = || {
            let listing = host
                .handle()
                .block_on(host.store.list(KeyRange::prefix(prefix)))
                .unwrap();
            let items = listing.items.iter();
            items
                .map(|item| {
                    let key = String::from_utf8_lossy(&item.key).into_owned();
                    (
                        key.replace(prefix, ""),
                        String::from_utf8_lossy(&item.value).into_owned(),
                    )
                })
                .collect::<Vec<_>>()
        };
        let is = |state: &str| {
            vec![(
                "k8s/ns%2fw1/endpoint/eth0".to_owned(),
                format!(r#"{{"status":"{state}"}}"#),
            )]
        };
        host.until("up", || reported() == is("up"));
        run("ip link set cali1 down");
        host.until("down", || reported() == is("down"));
        host.delete(&key("w1"));
        host.until("gone", || reported().is_empty());
    });
}

#[test]
fn host_with_strict_arp_and_default_route_uses_proxy() {
    lab("host_with_strict_arp_and_default_route_uses_proxy", || {
        world::sysctl("ipv4/conf/all/arp_ignore", "1");
        let host = Host::new();
        run("ip route add default via 10.0.0.1");
        let (one, _two) = (workload(1), workload(2));
        announce(&host, 1, OPEN);
        announce(&host, 2, OPEN);
        host.wait_up("cali1");
        host.wait_up("cali2");
        assert!(!run("ip address show dev lo").contains("169.254.1.1"));
        assert!(one.namespace.pings("10.65.0.2"));
    });
}

#[test]
fn connections_of_a_removed_address_are_flushed() {
    lab("connections_of_a_removed_address_are_flushed", || {
        let (_host, one, _two) = pair();
        assert!(one.namespace.pings("10.65.0.2") && one.namespace.pings("fd65::2"));
        let flush = |address: &str| conntrack::flush(&[address.parse().unwrap()].into()).unwrap();
        assert_eq!(flush("10.65.0.77"), 0);
        assert!(flush("10.65.0.1") > 0);
        assert_eq!(flush("10.65.0.2"), 0, "it was the same connection");
        assert!(flush("fd65::2") > 0);
    });
}

// Promise (Felix): An endpoint that gets the address of another one inherits no connection.
#[test]
fn endpoint_with_a_reused_address_inherits_no_connection() {
    lab(
        "endpoint_with_a_reused_address_inherits_no_connection",
        || {
            let (host, one, two) = pair();
            let _heirs = [3, 4].map(|n| {
                Workload::new(
                    &format!("cali{n}"),
                    &mac(n),
                    Some("10.65.0.1"),
                    Some("fd65::1"),
                )
            });
            let _nine = workload(9);
            announce(&host, 9, OPEN);
            host.wait_up("cali9");
            let listener = one
                .namespace
                .within(|| TcpListener::bind("[::]:80").unwrap());
            let connections = ["10.65.0.1:80", "[fd65::1]:80"].map(|address| {
                let address = address.parse().unwrap();
                let connect = || TcpStream::connect_timeout(&address, PATIENCE).unwrap();
                (two.namespace.within(connect), listener.accept().unwrap())
            });
            // A round of deleting connections has just started, so the next one is delayed.
            host.delete(&key("w9"));
            host.wait("cali9", "gone", |endpoint| endpoint.is_none());
            let inherited = || {
                let address = |text: &str| [text.parse().unwrap()].into();
                ["10.65.0.1", "fd65::1"].map(|a| conntrack::flush(&address(a)).unwrap())
            };
            // It moves at once, and it is unused for a moment.
            let networks = ["10.65.0.1/32", "fd65::1/128"];
            host.endpoint("w0", "cali3", Some(&mac(3)), &networks, OPEN);
            host.wait_up("cali3");
            assert_eq!(inherited(), [0, 0]);
            drop(connections);
            assert!(two.namespace.pings("10.65.0.1") && two.namespace.pings("fd65::1"));
            host.delete(&key("w0"));
            host.delete(&key("w1"));
            host.endpoint("w4", "cali4", Some(&mac(4)), &networks, OPEN);
            host.wait_up("cali4");
            assert_eq!(inherited(), [0, 0]);
            assert!(two.namespace.pings("10.65.0.1") && two.namespace.pings("fd65::1"));
        },
    );
}

#[test]
fn the_programs_errors_are_one_line() {
    lab("the_programs_errors_are_one_line", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("felix.toml");
        let program = env!("CARGO_BIN_EXE_cambric-felix");
        let run_with = |text: &str, more: &str| {
            std::fs::write(&path, text).unwrap();
            let output = try_run(&format!("{program} --config {} {more}", path.display()));
            (
                output.status.success(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        let store = "[datastore]\nendpoints = [\"http://127.0.0.1:1\"]\n";
        assert_eq!(run_with(store, "--check"), (true, String::new()));
        let (fine, error) = run_with(&format!("hostnam = \"x\"\n{store}"), "--check");
        assert!(
            !fine && error.contains("felix.toml:1:1") && error.contains("hostname"),
            "{error}"
        );
        let variable = "env FELIX_IPV6SUPPORT=maybe";
        let check = format!("{variable} {program} --config {} --check", path.display());
        std::fs::write(&path, store).unwrap();
        let output = try_run(&check);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && error.contains("FELIX_IPV6SUPPORT: 'maybe'"),
            "{error}"
        );
        std::fs::write(directory.path().join("felix.sock"), "").unwrap();
        let socket = directory.path().join("felix.sock");
        let (fine, error) = run_with(
            &format!("control = \"{}\"\nlog = \"off\"\n{store}", socket.display()),
            "",
        );
        assert!(
            !fine && error.lines().count() == 1 && error.contains("not a socket"),
            "{error}"
        );
    });
}
