//! OpenStack's Neutron, whose own driver for Calico writes to the store and reads what Felix tells.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod cloud;
mod compute;

use std::time::Duration;

use cloud::{Cloud, PROJECT, eventually};
use compute::{Compute, Port};
use datastore::LeaseId;
use interop_tests::in_ground;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// What the store holds of a port, as the driver wrote it.
async fn is_written(cloud: &Cloud, port: &Port, group: &str) {
    let stored = cloud.stored(&port.endpoint_key()).await.expect("stored");
    let stored: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(stored["kind"], "WorkloadEndpoint");
    assert_eq!(
        stored["spec"],
        json!({"orchestrator": "openstack", "workload": port.device, "node": port.host,
            "endpoint": port.id, "interfaceName": port.tap, "mac": port.mac,
            "ipNetworks": [format!("{}/32", port.address)], "allowedIps": [],
            "ipv4Gateway": "10.65.0.1"})
    );
    let labels = &stored["metadata"]["labels"];
    assert!(
        labels[format!("sg.projectcalico.org/openstack-{group}")].is_string(),
        "{labels}"
    );
    assert_eq!(labels["projectcalico.org/orchestrator"], "openstack");
    let policy = format!(
        "/calico/resources/v3/projectcalico.org/networkpolicies/openstack/ossg.default.{group}"
    );
    let policy = cloud.stored(&policy).await.expect("its security group");
    let policy: Value = serde_json::from_str(&policy).unwrap();
    assert_eq!(
        policy["spec"]["selector"],
        format!("has(sg.projectcalico.org/openstack-{group})")
    );
}

/// Waits until Neutron has heard of both hosts.
async fn both_live(cloud: &Cloud) {
    // Everything that there is of the cluster, the driver has said.
    let information = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
    eventually("the driver's word of the cluster", async || {
        let found = cloud.stored(information).await.ok_or("nothing")?;
        let ready = found.contains(r#""datastoreReady": true"#) && found.contains("openstack");
        ready.then_some(()).ok_or(found)
    })
    .await;
    let create = async |kind: &str, name: &str, spec: Value| {
        let resource = json!({"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": {"name": name}, "spec": spec});
        cloud.resources.create(resource).await.expect("created");
    };
    for number in [1, 2] {
        let spec = json!({"bgp": {"ipv4Address": format!("10.0.0.{number}/24")}});
        create("Node", &format!("h{number}"), spec).await;
    }
    create("IPPool", "openstack", json!({"cidr": "10.65.0.0/16"})).await;
    let elected = elected(cloud).await;
    assert!(elected.starts_with("h8:"), "{elected}");
    for host in ["h1", "h2"] {
        let agent = cloud.felix_is(host, true).await;
        assert_eq!(agent["agent_type"], "Calico per-host agent (felix)");
        assert_eq!(agent["binary"], "calico-felix");
    }
}

/// The server that was elected to keep the store right.
async fn elected(cloud: &Cloud) -> String {
    let [newer, older] = ["v2/no-region", "v1"]
        .map(|version| format!("/calico/openstack/{version}/neutron_election"));
    eventually("an election", async || {
        let found = cloud.stored(&newer).await.ok_or("none")?;
        let same = cloud.stored(&older).await.as_ref() == Some(&found);
        same.then_some(found)
            .ok_or_else(|| "another one by the older key".to_owned())
    })
    .await
}

#[test]
fn neutron_drives_two_hosts_and_hears_back() {
    in_ground(
        &[],
        "neutron_drives_two_hosts_and_hears_back",
        async |ground| {
            if let Some(cloud) = Cloud::start(ground).await {
                from_ports_to_restarts(cloud).await;
            }
        },
    );
}

async fn from_ports_to_restarts(mut cloud: Cloud) {
    let mut one = Compute::start(&cloud, 1).await;
    let two = Compute::start(&cloud, 2).await;
    cloud.answers().await;
    let network = cloud.create("network", json!({"name": "n"})).await["id"].take();
    let subnet = json!({"network_id": network, "ip_version": 4, "cidr": "10.65.0.0/24"});
    let subnet = cloud.create("subnet", subnet).await["id"].take();
    let subnet_key = format!(
        "/calico/dhcp/v2/no-region/subnet/{}",
        subnet.as_str().unwrap()
    );
    assert!(
        cloud
            .stored(&subnet_key)
            .await
            .is_some_and(|stored| stored.contains("10.65.0.0/24"))
    );
    let other = cloud
        .create("security_group", json!({"name": "other"}))
        .await["id"]
        .take();

    both_live(&cloud).await;

    // Two of one group, and a third of another beside the first.
    let plain = json!({"network_id": network});
    let mut a = Port::create(&cloud, "a", &one, plain.clone()).await;
    let mut b = Port::create(&cloud, "b", &two, plain.clone()).await;
    let grouped = json!({"network_id": network, "security_groups": [other]});
    let mut c = Port::create(&cloud, "c", &one, grouped).await;
    let groups = cloud
        .ask(
            "GET",
            &format!("security-groups?name=default&tenant_id={PROJECT}"),
            Value::Null,
        )
        .await
        .unwrap();
    let default = groups["security_groups"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let other = other.as_str().unwrap().to_owned();
    is_written(&cloud, &a, &default).await;
    is_written(&cloud, &b, &default).await;
    is_written(&cloud, &c, &other).await;

    a.plug(&cloud, &one).await;
    b.plug(&cloud, &two).await;
    c.plug(&cloud, &one).await;
    for port in [&a, &b, &c] {
        cloud.port_is(&port.id, "ACTIVE").await;
        assert_eq!(
            cloud.stored(&port.status_key()).await.as_deref(),
            Some(r#"{"status":"up"}"#)
        );
    }
    groups_decide(&cloud, &one, [&a, &b, &c], [&default, &other]).await;
    hears_down_and_error(&cloud, &one, &a, &c).await;
    outlives(&mut cloud, (&mut one, &two), [&a, &b, &c], &subnet_key).await;
}

/// Who reaches whom: `a` and `b` of the default group, and `c` of the other one, on the host of `a`.
async fn groups_decide(
    cloud: &Cloud,
    one: &Compute,
    [a, b, c]: [&Port; 3],
    [default, other]: [&str; 2],
) {
    a.reaches(b).await;
    b.reaches(a).await;
    tokio::join!(
        a.reaches_not(c),
        b.reaches_not(c),
        c.reaches_not(a),
        c.reaches_not(b)
    );

    // What every machine of OpenStack's gets from its host, whatever its group says.
    let service = one.serve_metadata();
    assert_eq!(c.reads_metadata().unwrap(), "metadata");
    service.join().unwrap().unwrap();

    // A rule acts while everything runs, and so does its end; but not for who has begun.
    let before = one.rules().await;
    let rule = json!({"security_group_id": other, "direction": "ingress", "ethertype": "IPv4",
        "protocol": "icmp", "remote_group_id": default});
    let rule = cloud.create("security_group_rule", rule).await["id"].take();
    b.reaches(c).await;
    c.reaches_not(a).await;
    let gone = format!("security-group-rules/{}", rule.as_str().unwrap());
    cloud.ask("DELETE", &gone, Value::Null).await.unwrap();
    eventually("the rules of before", async || {
        let now = one.rules().await;
        (now == before).then_some(()).ok_or(now)
    })
    .await;
    a.reaches_not(c).await;
}

/// The interface of a port goes down and comes back; another port is refused.
async fn hears_down_and_error(cloud: &Cloud, one: &Compute, a: &Port, c: &Port) {
    let links = one.site.host.links().unwrap();
    links.down(&a.tap).await.unwrap();
    cloud.port_is(&a.id, "DOWN").await;
    links.up(&a.tap).await.unwrap();
    cloud.port_is(&a.id, "ACTIVE").await;

    // It asks for the address of another on its host.
    let pair = json!({"allowed_address_pairs": [{"ip_address": a.address.to_string()}]});
    cloud.change_port(&c.id, pair).await;
    cloud.port_is(&c.id, "ERROR").await;
    let told = cloud.stored(&c.status_key()).await.unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["status"], "error");
    let reason = told["reason"].as_str().unwrap();
    assert!(
        reason.contains(&a.address.to_string()) && reason.contains(&a.id),
        "{reason}"
    );
    cloud
        .change_port(&c.id, json!({"allowed_address_pairs": []}))
        .await;
    cloud.port_is(&c.id, "ACTIVE").await;
    cloud.port_is(&a.id, "ACTIVE").await;
}

/// A Felix and Neutron are killed. The key of Felix goes with its lease, and Neutron, when it comes
/// back, takes that one for dead; what is wrong in the store it puts right, and no kernel hears of it.
/// Packets go on all the while.
async fn outlives(
    cloud: &mut Cloud,
    (one, two): (&mut Compute, &Compute),
    [a, b, c]: [&Port; 3],
    subnet_key: &str,
) {
    let status = "/calico/felix/v2/no-region/host/h1/status";
    assert!(cloud.stored(status).await.is_some());
    let before = elected(cloud).await;
    let rules = [one.rules().await, two.rules().await];
    let monitors = [&*one, two].map(|host| lab::RouteMonitor::open(&host.site.host).unwrap());
    let begun = std::time::Instant::now();
    let flow = a.pinger().flow(b.address.into(), Duration::from_millis(20));

    one.felix.signal(Signal::SIGKILL).unwrap();
    cloud.kill().await;
    let stray = spoil(cloud, a, subnet_key).await;
    cloud.restart().await;
    // The driver begins its work with the first change, instead of a while after its start.
    cloud.change_port(&c.id, json!({"name": "c"})).await;
    eventually("the subnet is written again", async || {
        let written = cloud.stored(subnet_key).await;
        written.map(drop).ok_or_else(|| "nothing".to_owned())
    })
    .await;
    eventually("the stray port goes", async || {
        cloud.stored(&stray).await.map_or(Ok(()), Err)
    })
    .await;
    eventually("the end of the lease of Felix", async || {
        cloud.stored(status).await.map_or(Ok(()), Err)
    })
    .await;
    cloud.felix_is("h1", false).await;
    cloud.felix_is("h2", true).await;
    for port in [a, b] {
        cloud.port_is(&port.id, "ACTIVE").await;
    }
    assert_ne!(elected(cloud).await, before);
    let report = flow.stop().await;
    assert_eq!(report.lost(), 0, "{report:?}");
    for monitor in &monitors {
        let (events, missed) = monitor.events_since(begun.into());
        assert!(events.is_empty() && !missed, "{events:?}");
    }
    assert_eq!(rules, [one.rules().await, two.rules().await]);

    one.restart();
    cloud.felix_is("h1", true).await;
}

/// Takes a subnet away, and adds a port of a host that nobody knows, as if it had been deleted while
/// Neutron was away; returns its key.
async fn spoil(cloud: &Cloud, port: &Port, subnet_key: &str) -> String {
    let store = cloud.resources.store();
    store.delete(subnet_key.to_owned().into()).await.unwrap();
    let stray = port.endpoint_key().replace("/h1-", "/h9-");
    let value = cloud.stored(&port.endpoint_key()).await.unwrap();
    let value = value.replace(r#""node": "h1""#, r#""node": "h9""#);
    assert!(value.contains("h9"), "{value}");
    let put = store.put(stray.clone().into(), value.into(), LeaseId::default());
    put.await.unwrap();
    stray
}
