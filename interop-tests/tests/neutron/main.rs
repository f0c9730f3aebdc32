//! OpenStack's Neutron with networking-calico, whose driver writes to the datastore and reads
//! Felix's reports.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod cloud;
mod compute;
mod dhcp;
mod groups;
mod written;

use std::time::Duration;

use calico_store::LeaseId;
use cloud::{Cloud, PROJECT, eventually};
use compute::{Compute, METADATA, Port};
use interop_tests::in_ground;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Waits until Neutron has reports of both hosts.
async fn both_live(cloud: &Cloud) {
    // The driver writes the whole ClusterInformation.
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
        let spec = json!({"bgp": {"ipv4Address": format!("10.0.0.{number}/24"),
            "ipv6Address": format!("fd00::{number}/64")}});
        create("Node", &format!("h{number}"), spec).await;
    }
    for (name, cidr) in [("openstack", "10.65.0.0/16"), ("openstack-v6", "fd65::/48")] {
        create("IPPool", name, json!({"cidr": cidr})).await;
    }
    let elected = elected(cloud).await;
    assert!(elected.starts_with("h8:"), "{elected}");
    for host in ["h1", "h2"] {
        let agent = cloud.felix_is(host, true).await;
        assert_eq!(agent["agent_type"], "Calico per-host agent (felix)");
        assert_eq!(agent["binary"], "calico-felix");
    }
}

/// Returns the server that was elected to resynchronize the datastore.
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
fn neutron_drives_two_hosts_and_gets_their_status() {
    in_ground(
        &[],
        "neutron_drives_two_hosts_and_gets_their_status",
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
    let network = text(&cloud.create("network", json!({"name": "n"})).await["id"]);
    let subnet_key = subnets(&cloud, &network).await;
    let other = json!({"name": "other"});
    let other = text(&cloud.create("security_group", other).await["id"]);

    both_live(&cloud).await;
    let agent = dhcp::Agent::start(&cloud, &two);

    // Two machines of one group, and a third of another group on the host of the first.
    let plain = json!({"network_id": network});
    let mut a = Port::create(&cloud, "a", &one, plain.clone()).await;
    let mut b = Port::create(&cloud, "b", &two, plain.clone()).await;
    let grouped = json!({"network_id": network, "security_groups": [other]});
    let mut c = Port::create(&cloud, "c", &one, grouped).await;
    let default = default_group(&cloud).await;
    written::endpoint(&cloud, &a, &network, (&default, "default"), &[]).await;
    written::endpoint(&cloud, &b, &network, (&default, "default"), &[]).await;
    written::endpoint(&cloud, &c, &network, (&other, "other"), &[]).await;
    let members = written::of_members(&default);
    let members = members.each_ref().map(String::as_str);
    written::policy(&cloud, &default, &members, &written::OUT).await;
    written::policy(&cloud, &other, &[], &written::OUT).await;

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
    let mut served = None;
    if let Some(agent) = agent {
        let port = Port::create(&cloud, "d", &two, plain).await;
        served = Some(agent.serves(&cloud, &two, port, &a).await);
    }
    groups::decide(&cloud, &one, [&a, &b, &c], [&default, &other]).await;
    groups::pairs(&cloud, [&a, &b], &network, &default).await;
    metadata(&one, &c).await;
    receives_down_and_error(&cloud, &one, &a, &c).await;
    outlives(&mut cloud, (&mut one, &two), [&a, &b, &c], &subnet_key).await;
    drop(served);
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Makes a subnet of each family; returns the key of the first. Neutron draws the addresses of ports
/// from the pools, which leave out those that [`groups::pairs`] adds.
async fn subnets(cloud: &Cloud, network: &str) -> String {
    let v4 = json!({"network_id": network, "ip_version": 4, "cidr": "10.65.0.0/24",
        "dns_nameservers": ["10.0.0.254"],
        "allocation_pools": [{"start": "10.65.0.10", "end": "10.65.0.199"}]});
    let v6 = json!({"network_id": network, "ip_version": 6, "cidr": "fd65::/64",
        "gateway_ip": "fd65::1",
        "allocation_pools": [{"start": "fd65::100", "end": "fd65::fff"}]});
    let [v4, v6] = [
        cloud.create("subnet", v4).await,
        cloud.create("subnet", v6).await,
    ]
    .map(|subnet| format!("/calico/dhcp/v2/no-region/subnet/{}", text(&subnet["id"])));
    let servers = r#", "dns_servers": ["10.0.0.254"]"#;
    let expected = written::subnet(network, "10.65.0.0/24", "10.65.0.1", servers);
    assert_eq!(cloud.stored(&v4).await, Some(expected));
    let expected = written::subnet(network, "fd65::/64", "fd65::1", "");
    assert_eq!(cloud.stored(&v6).await, Some(expected));
    v4
}

/// Returns the group of ports without an explicit group.
async fn default_group(cloud: &Cloud) -> String {
    let path = format!("security-groups?name=default&tenant_id={PROJECT}");
    let groups = cloud.ask("GET", &path, Value::Null).await.unwrap();
    text(&groups["security_groups"][0]["id"])
}

/// Asserts the metadata that every machine of OpenStack gets from its host, in any group: the
/// service's answer for the machine's own address.
async fn metadata(at: &Compute, port: &Port) {
    let service = at.serve_metadata().await;
    let answer = port.reads_metadata().unwrap();
    assert!(
        answer.starts_with("HTTP/1.0 200 ") && answer.ends_with(METADATA),
        "{answer}"
    );
    let asked = format!(r#"{} - - "#, port.address);
    let log = service.log_tail();
    assert!(
        log.lines().any(|line| line.starts_with(&asked)
            && line.ends_with(r#""GET /latest/meta-data HTTP/1.0" 200 -"#)),
        "{log}"
    );
}

/// Sets the interface of a port down and up again; another port is rejected.
async fn receives_down_and_error(cloud: &Cloud, one: &Compute, a: &Port, c: &Port) {
    let links = one.site.host.links().unwrap();
    links.down(&a.tap).await.unwrap();
    cloud.port_is(&a.id, "DOWN").await;
    links.up(&a.tap).await.unwrap();
    cloud.port_is(&a.id, "ACTIVE").await;

    // It requests the address of another port on its host.
    let pair = json!({"allowed_address_pairs": [{"ip_address": a.address.to_string()}]});
    cloud.change_port(&c.id, pair).await;
    cloud.port_is(&c.id, "ERROR").await;
    let as_received = cloud.stored(&c.status_key()).await.unwrap();
    let as_received: Value = serde_json::from_str(&as_received).unwrap();
    assert_eq!(as_received["status"], "error");
    let reason = as_received["reason"].as_str().unwrap();
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

/// Kills a Felix and Neutron. The key of Felix expires with its lease, and Neutron, once restarted,
/// marks that Felix as down. Neutron corrects wrong data in the datastore, without any change in a
/// kernel. Traffic continues all the time.
async fn outlives(
    cloud: &mut Cloud,
    (one, two): (&mut Compute, &Compute),
    [a, b, c]: [&Port; 3],
    subnet_key: &str,
) {
    let status = "/calico/felix/v2/no-region/host/h1/status";
    eventually("a sign of life", async || {
        let found = cloud.stored(status).await;
        found.map(drop).ok_or_else(|| "none".to_owned())
    })
    .await;
    let before = elected(cloud).await;
    let rules = [one.rules().await, two.rules().await];
    let monitors = [&*one, two].map(|host| netns_lab::RouteMonitor::open(&host.site.host).unwrap());
    let begun = std::time::Instant::now();
    let flows = b
        .addresses()
        .map(|address| a.pinger().flow(address, Duration::from_millis(20)));

    one.felix.signal(Signal::SIGKILL).unwrap();
    cloud.kill().await;
    let stray = spoil(cloud, a, subnet_key).await;
    cloud.restart().await;
    // The driver starts its work with the first change, instead of some time after its start.
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
    for flow in flows {
        let report = flow.stop().await;
        assert_eq!(report.lost(), 0, "{report:?}");
    }
    for monitor in &monitors {
        let (events, missed) = monitor.events_since(begun.into());
        assert!(events.is_empty() && !missed, "{events:?}");
    }
    assert_eq!(rules, [one.rules().await, two.rules().await]);

    one.restart();
    cloud.felix_is("h1", true).await;
}

/// Deletes a subnet, and adds a port of an unknown host, as if it had been deleted while Neutron
/// was down; returns its key.
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
