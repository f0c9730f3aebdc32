//! Real labs, as root: `CAMBRIC_LAB=1 cargo test -p cambric-netns-lab`.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::fabric::{Fabric, Plan, Shape};
use crate::{Pinger, Program, RouteEventKind, RouteMonitor, VethEnd, in_lab, usage, within};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn two_hosts_on_a_veth_ping_each_other() {
    in_lab("two_hosts_on_a_veth_ping_each_other", async |lab| {
        let (a, b) = (lab.host("a").await.unwrap(), lab.host("b").await.unwrap());
        let links = lab.root().links().unwrap();
        let mac = Some([2, 0, 0, 0, 0, 7]);
        let ends = (
            VethEnd {
                host: &a,
                name: "left",
                mac,
            },
            VethEnd {
                host: &b,
                name: "right",
                mac: None,
            },
        );
        links.add_veth(ends.0, ends.1).await.unwrap();
        for (host, name, v4, v6) in [
            (&a, "left", "192.0.2.1/29", "fd01::1/64"),
            (&b, "right", "192.0.2.2/29", "fd01::2/64"),
        ] {
            let links = host.links().unwrap();
            links.up(name).await.unwrap();
            links.add_address(name, v4.parse().unwrap()).await.unwrap();
            links.add_address(name, v6.parse().unwrap()).await.unwrap();
        }
        assert_eq!(
            links.index("left").await.unwrap(),
            None,
            "the link is not the root's"
        );
        let pinger =
            Pinger::open(&a, "192.0.2.1".parse().unwrap(), "fd01::1".parse().unwrap()).unwrap();
        for to in ["192.0.2.2", "fd01::2"] {
            let to: IpAddr = to.parse().unwrap();
            assert!(pinger.ping(to, SOON).await.is_some(), "no answer from {to}");
        }
        let unused = "192.0.2.3".parse().unwrap();
        assert_eq!(pinger.ping(unused, Duration::from_millis(50)).await, None);

        let there = "192.0.2.2".parse().unwrap();
        let mut flow = pinger.flow(there, Duration::from_millis(5));
        flow.sends(1).await;
        // A later request is answered later.
        assert!(pinger.ping(there, SOON).await.is_some());
        b.links().unwrap().down("right").await.unwrap();
        flow.sends(2).await;
        let report = flow.stop().await;
        assert!(report.received >= 1 && report.lost() >= 1, "{report:?}");
    });
}

#[test]
fn routes_and_their_changes_are_read() {
    in_lab("routes_and_their_changes_are_read", async |lab| {
        let host = lab.host("a").await.unwrap();
        let links = host.links().unwrap();
        links.add_bridge("br0").await.unwrap();
        links
            .add_address("br0", "192.0.2.1/24".parse().unwrap())
            .await
            .unwrap();
        let began = Instant::now();
        let mut monitor = RouteMonitor::open(&host).unwrap();
        let net = "198.51.100.0/24".parse().unwrap();
        let gateway: IpAddr = "192.0.2.9".parse().unwrap();
        links.add_route(net, Some(gateway), "br0").await.unwrap();
        let routes = links.routes().await.unwrap();
        let route = routes.iter().find(|route| route.net == net).unwrap();
        assert_eq!(route.hops[0].gateway, Some(gateway));
        assert!(route.unicast);
        links.delete_route(net, Some(gateway), "br0").await.unwrap();
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(RouteEventKind::Gone(r)) if r.net == net) {
            within(SOON, "the route goes", monitor.changed())
                .await
                .unwrap();
            let (events, missed) = monitor.events_since(began);
            assert!(!missed);
            seen = events.into_iter().map(|event| event.kind).collect();
            seen.retain(|kind| {
                matches!(kind,
                RouteEventKind::Put(r) | RouteEventKind::Gone(r) if r.net == net)
            });
        }
        assert!(
            matches!(&seen[0], RouteEventKind::Put(r) if r == route),
            "{seen:?}"
        );
    });
}

#[test]
fn a_process_is_in_its_host_logged_measured_and_killed() {
    in_lab(
        "a_process_is_in_its_host_logged_measured_and_killed",
        async |lab| {
            let host = lab.host("here").await.unwrap();
            let script = "cat /proc/sys/kernel/hostname; ls /run/cambric; exec sleep 1000";
            let program = Program::new("/bin/sh").arg("-c").arg(script);
            let mut process = host.spawn("sleeper", &program).unwrap();
            let (log, _) = crate::until(SOON, "output", async || {
                let log = process.log_tail();
                let whole = log.lines().count() == 2;
                Ok::<_, crate::Error>(if whole { Ok(log) } else { Err(log) })
            })
            .await
            .unwrap();
            assert_eq!(log, "here\nsleeper.log\n");
            process.check().unwrap();
            let pid = process.pid();
            assert!(process.usage().is_some_and(|used| used.resident_octets > 0));
            process.kill().await.unwrap();
            assert!(process.check().is_err());
            assert_eq!(usage(pid), None);
        },
    );
}

#[test]
fn a_question_that_is_given_up_does_not_keep_the_lab() {
    in_lab("a_question_that_is_given_up", async |lab| {
        let host = lab.host("a").await.unwrap();
        let program = Program::new("/bin/sleep").arg("1000");
        let soon = Duration::from_millis(100);
        let asked = within(soon, "an answer", host.output(&program)).await;
        assert!(asked.is_err(), "the deadline is earlier");
        // The end of the lab would wait for it.
    });
}

#[test]
fn nothing_outlives_the_lab() {
    if !crate::allowed("nothing_outlives_the_lab") {
        return;
    }
    let pid = std::sync::Mutex::new(0);
    in_lab("nothing_outlives_the_lab", async |lab| {
        let host = lab.host("a").await.unwrap();
        // Only the kernel may kill its child.
        let program = Program::new("/bin/sh").args(["-c", "sleep 1000 & wait"]);
        let process = host.spawn("parent", &program).unwrap();
        let children = format!("/proc/{0}/task/{0}/children", process.pid());
        let (child, _) = crate::until(SOON, "the child", async || {
            let text = std::fs::read_to_string(&children).unwrap_or_default();
            Ok::<_, crate::Error>(text.trim().parse::<u32>().map_err(|e| e.to_string()))
        })
        .await
        .unwrap();
        *pid.lock().unwrap() = child;
    });
    assert_eq!(
        usage(*pid.lock().unwrap()),
        None,
        "the child is gone with the lab"
    );
}

#[test]
fn a_fabric_without_daemons_joins_its_machines_and_workloads() {
    in_lab(
        "a_fabric_without_daemons_joins_its_machines_and_workloads",
        async |lab| {
            let shape = Shape {
                nodes: 2,
                reflectors: 1,
                workloads_per_node: 1,
                mesh: false,
            };
            let plan = Plan::new(shape).unwrap();
            let mut fabric = Fabric::build(lab, plan.clone()).await.unwrap();
            for (place, workload) in &plan.workloads {
                fabric.add_workload(workload, *place).await.unwrap();
            }
            let (node, reflector) = (&plan.nodes[0], &plan.reflectors[0]);
            let pinger = Pinger::open(&fabric.nodes[0].host, node.v4, node.v6).unwrap();
            for to in [
                IpAddr::V4(reflector.v4),
                IpAddr::V6(reflector.v6),
                IpAddr::V6(plan.store().v6),
            ] {
                assert!(pinger.ping(to, SOON).await.is_some(), "no answer from {to}");
            }
            assert!(fabric.workloads[1].pinger().is_err());
            assert!(fabric.workloads[1].netns().exists());
            assert!(fabric.host("w2").is_some() && fabric.host("w3").is_none());
        },
    );
}

#[test]
fn discarding_bridge_port_drops_all_packets() {
    in_lab("discarding_bridge_port_drops_all_packets", async |lab| {
        let shape = Shape {
            nodes: 2,
            reflectors: 1,
            workloads_per_node: 0,
            mesh: false,
        };
        let plan = Plan::new(shape).unwrap();
        let fabric = Fabric::build(lab, plan.clone()).await.unwrap();
        let cut = &plan.nodes[0];
        let there = IpAddr::V4(cut.v4);
        let pinger = |place: usize| {
            let node = &plan.nodes[place];
            Pinger::open(&fabric.nodes[place].host, node.v4, node.v6).unwrap()
        };
        let (inside, outside) = (pinger(0), pinger(1));
        let elsewhere = IpAddr::V4(plan.reflectors[0].v4);
        let briefly = Duration::from_millis(200);
        for _ in 0..3 {
            for to in [there, elsewhere] {
                assert!(
                    outside.ping(to, SOON).await.is_some(),
                    "no answer from {to}"
                );
            }
            fabric.discard(0, true).await.unwrap();
            assert_eq!(outside.ping(there, briefly).await, None);
            assert_eq!(inside.ping(elsewhere, briefly).await, None);
            assert!(outside.ping(elsewhere, SOON).await.is_some());
            fabric.discard(0, false).await.unwrap();
        }
        assert!(inside.ping(elsewhere, SOON).await.is_some());
    });
}
