//! Changes of security groups, and their effect on packets.

use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::compute::{Compute, Port};
use crate::written;

/// Adds an ingress rule to a group; returns the path that deletes it.
async fn let_in(cloud: &Cloud, group: &str, mut rule: Value) -> String {
    rule["security_group_id"] = json!(group);
    rule["direction"] = json!("ingress");
    let rule = cloud.create("security_group_rule", rule).await;
    let id = rule["id"].as_str().expect("an id");
    format!("security-group-rules/{id}")
}

async fn delete(cloud: &Cloud, what: &str) {
    cloud.ask("DELETE", what, Value::Null).await.expect("gone");
}

/// Tests which machine reaches which: `a` and `b` of the default group, and `c` of the other one,
/// on the host of `a`.
pub(crate) async fn decide(
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
    let before = one.rules().await;

    // Members of a group may send echo requests to each other, and nothing else.
    let pings = json!({"ethertype": "IPv4", "protocol": "icmp", "remote_group_id": default});
    let pings = let_in(cloud, other, pings).await;
    let pings_v6 = json!({"ethertype": "IPv6", "protocol": "58", "remote_group_id": default});
    let pings_v6 = let_in(cloud, other, pings_v6).await;
    let members = format!("has(sg.projectcalico.org/openstack-{default})");
    let as_written = [(4, "ICMP"), (6, "58")].map(|(version, protocol)| format!(
        r#"{{"action": "Allow", "ipVersion": {version}, "protocol": "{protocol}", "source": {{"selector": "{members}"}}}}"#
    ));
    let as_written = as_written.each_ref().map(String::as_str);
    written::policy(cloud, other, &as_written, &written::OUT).await;
    b.reaches(c).await;
    c.listens([22, 23, 8000, 8010, 8011]);
    tokio::join!(c.reaches_not(a), b.connects_not(c.address.into(), 22),);
    // An established flow continues when the rule is deleted; `a` has none.
    delete(cloud, &pings).await;
    delete(cloud, &pings_v6).await;

    ports(cloud, [a, b, c], other).await;
    one.rules_are(&before).await;
    a.reaches_not(c).await;
}

/// Tests TCP ports that are open to all sources, and their closing.
async fn ports(cloud: &Cloud, [a, b, c]: [&Port; 3], group: &str) {
    let one = json!({"ethertype": "IPv4", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22,
        "remote_ip_prefix": "0.0.0.0/0"});
    let one = let_in(cloud, group, one).await;
    let range = json!({"ethertype": "IPv6", "protocol": "tcp", "port_range_min": 8000,
        "port_range_max": 8010, "remote_ip_prefix": format!("{}/128", b.address_v6)});
    let range = let_in(cloud, group, range).await;
    let as_written = [
        r#"{"action": "Allow", "ipVersion": 4, "protocol": "TCP", "source": {"nets": ["0.0.0.0/0"]}, "destination": {"ports": [22]}}"#.to_owned(),
        format!(
            r#"{{"action": "Allow", "ipVersion": 6, "protocol": "TCP", "source": {{"nets": ["{}/128"]}}, "destination": {{"ports": ["8000:8010"]}}}}"#,
            b.address_v6
        ),
    ];
    let as_written = as_written.each_ref().map(String::as_str);
    written::policy(cloud, group, &as_written, &written::OUT).await;

    let [v4, v6] = c.addresses();
    a.connects(v4, 22).await;
    b.connects(v4, 22).await;
    b.connects(v6, 8000).await;
    b.connects(v6, 8010).await;
    tokio::join!(
        a.connects_not(v4, 23),
        b.connects_not(v4, 8000),
        b.connects_not(v6, 22),
        b.connects_not(v6, 8011),
        a.connects_not(v6, 8000),
        a.receives_no(v4),
    );
    delete(cloud, &one).await;
    delete(cloud, &range).await;
    tokio::join!(b.connects_not(v4, 22), b.connects_not(v6, 8000));
}

/// Tests a port with an additional allowed address: it is announced and accepted as source, until
/// it is removed.
pub(crate) async fn pairs(cloud: &Cloud, [a, b]: [&Port; 2], network: &str, group: &str) {
    let addresses = ["10.65.0.200", "fd65::c8"].map(|text| text.parse().expect("an address"));
    let [v4, v6] = addresses;
    b.adds(v4).await;
    b.adds(v6).await;
    tokio::join!(a.receives_no(v4), a.receives_no(v6));
    let pairs: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"ip_address": address.to_string()}))
        .collect();
    let pairs = json!({"allowed_address_pairs": pairs});
    cloud.change_port(&b.id, pairs).await;
    let as_written = ["10.65.0.200/32", "fd65::c8/128"];
    written::endpoint(cloud, b, network, (group, "default"), &as_written).await;
    for address in addresses {
        a.receives(address).await;
        b.receives_from(address, a).await;
    }
    let none = json!({"allowed_address_pairs": []});
    cloud.change_port(&b.id, none).await;
    written::endpoint(cloud, b, network, (group, "default"), &[]).await;
    tokio::join!(a.receives_no(v4), a.receives_no(v6));
    a.reaches(b).await;
}
