//! `cambric ipam`.

use std::net::IpAddr;

use calico_store::{LeaseId, Store};
use serde_json::{Value, json};

use crate::tool::Tool;

const POOL: &str = "10.65.0.0/16";

/// A pool, two nodes, and three addresses: a used one, an unused one, and a borrowed one.
async fn fabric(tool: &Tool) -> (IpAddr, IpAddr) {
    let spec = json!({"metadata": {"name": "vm-pool"}, "spec": {"cidr": POOL}});
    tool.put("ippools/vm-pool", &spec).await;
    for node in ["a", "b"] {
        let node_value = json!({"metadata": {"name": node}, "spec": {}});
        tool.put(&format!("nodes/{node}"), &node_value).await;
    }
    let used = tool.assign("a", "net.used", POOL).await;
    let leaked = tool.assign("a", "net.leaked", POOL).await;
    let name = "a-cni-w-eth0";
    let endpoint = json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"node": "a", "ipNetworks": [used.to_string()]}});
    tool.put(&format!("workloadendpoints/default/{name}"), &endpoint)
        .await;
    (used, leaked)
}

fn json_of(tool: &Tool, arguments: &[&str]) -> Value {
    let mut all = vec!["ipam", "show", "-o", "json"];
    all.extend(arguments);
    serde_json::from_str(&tool.done(&all)).unwrap()
}

pub(crate) async fn addresses_are_shown_and_settings_changed(tool: &Tool) {
    let (used, _) = fabric(tool).await;
    let output = tool.done(&["ipam", "show"]);
    assert_eq!(
        output,
        "\
+----------+--------------+-----------+------------+--------------+
| GROUPING | CIDR         | IPS TOTAL | IPS IN USE | IPS FREE     |
+----------+--------------+-----------+------------+--------------+
| IP Pool  | 10.65.0.0/16 | 65536     | 2 (0%)     | 65534 (100%) |
+----------+--------------+-----------+------------+--------------+
"
    );
    let output = tool.done(&["ipam", "show", "--show-blocks"]);
    assert!(output.contains("| Block    | 10.65."), "{output}");
    assert!(
        output.contains("| 64        | 2 (3%)     | 62 (97%)"),
        "{output}"
    );
    let value = json_of(tool, &["--show-blocks"]);
    assert_eq!(value[0]["pool"], "vm-pool");
    assert_eq!(value[0]["blocks"][0]["affinity"], "host:a");
    assert_eq!(value[0]["blocks"][0]["inUse"], 2);

    let output = tool.done(&["ipam", "show", &format!("--ip={used}")]);
    assert_eq!(
        output,
        format!("IP {used} is in use\nHandle: net.used\nAttributes:\n  node: a\n")
    );
    let output = tool.done(&["ipam", "show", "--ip", "10.65.255.255"]);
    assert_eq!(output, "10.65.255.255 is not assigned\n");
    tool.refused(&["ipam", "show", "--ip", "10.65.255"]);

    // Without blocks of its own, a host borrows.
    let off = json!({"auto_allocate_blocks": false, "newer": [1]});
    let config = "/calico/ipam/v2/config";
    let store = tool.store().await;
    store
        .put(config.into(), off.to_string().into(), LeaseId::NONE)
        .await
        .unwrap();
    let borrowed = tool.assign("b", "net.borrowed", POOL).await;
    let value = json_of(tool, &["--show-borrowed"]);
    assert_eq!(
        value,
        json!([{"ip": borrowed, "borrowingNode": "b", "block": value[0]["block"], "blockOwner": "a",
            "type": "workload", "allocatedTo": "net.borrowed"}])
    );
    let output = tool.done(&["ipam", "show", "--show-borrowed"]);
    assert!(output.contains(&format!("| {borrowed} ")), "{output}");

    let output = tool.done(&["ipam", "configure", "--strictaffinity=true"]);
    assert_eq!(output, "Successfully set StrictAffinity to: true\n");
    tool.done(&["ipam", "configure", "--max-blocks-per-host", "7"]);
    let found = store.get(config.into()).await.unwrap().unwrap();
    let now: Value = serde_json::from_slice(&found.value).unwrap();
    let expected = json!({"strict_affinity": true, "maxBlocksPerHost": 7, "newer": [1]});
    assert_eq!(now, expected, "what is not known here stays");
    let output = tool.done(&["ipam", "show", "--show-configuration"]);
    assert_eq!(
        output,
        "\
+--------------------+-------+
| PROPERTY           | VALUE |
+--------------------+-------+
| StrictAffinity     | true  |
| AutoAllocateBlocks | false |
| MaxBlocksPerHost   | 7     |
| IPCooldownSeconds  | 0     |
+--------------------+-------+
"
    );
    for wrong in [
        vec!["ipam", "configure"],
        vec!["ipam", "configure", "--strictaffinity"],
        vec!["ipam", "configure", "--ip-cooldown-seconds", "1201"],
    ] {
        tool.refused(&wrong);
    }
    // Without a stored setting, blocks are allocated automatically.
    assert!(store.delete(config.into()).await.unwrap());
    tool.done(&["ipam", "configure", "--strictaffinity=true"]);
    let found = store.get(config.into()).await.unwrap().unwrap();
    let now: Value = serde_json::from_slice(&found.value).unwrap();
    let expected = json!({"strict_affinity": true, "auto_allocate_blocks": true});
    assert_eq!(now, expected);
}

pub(crate) async fn leaks_are_reported_and_given_back(tool: &Tool) {
    let (used, leaked) = fabric(tool).await;
    let name = "b-cni-w-eth0";
    let stray = json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"node": "b", "ipNetworks": ["10.65.200.1/32", "192.0.2.1/32"]}});
    tool.put(&format!("workloadendpoints/default/{name}"), &stray)
        .await;
    let file = tool.path("report");
    let output = tool.done(&["ipam", "check", "--show-problem-ips", "-o", &file]);
    for part in [
        "Found 1 IPAM blocks.",
        "IPAM blocks record 2 allocations.",
        "Workloads and nodes are using 3 IPs.",
        &format!("  {leaked} leaked; handle net.leaked\n"),
        "Found 1 IPs that are allocated in IPAM but not actually in use.",
        "Found 1 in-use IPs that are not in active IP pools.",
        "Found 1 in-use IPs that are in active IP pools but have no corresponding IPAM allocation.",
        "Check complete; found 3 problems.\n",
    ] {
        assert!(output.contains(part), "{part}\n{output}");
    }
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let of = |address: IpAddr| &report["allocations"][address.to_string()][0];
    assert_eq!(of(used)["inUse"], true);
    assert_eq!(
        of(used)["owners"],
        json!(["Workload(default/a-cni-w-eth0)"])
    );
    assert_eq!(of(leaked)["inUse"], false);
    assert_eq!(of(leaked)["handle"], "net.leaked");
    // All fields of calicoctl's report.
    let fields = |value: &Value| {
        let fields = value.as_object().unwrap().keys().cloned();
        fields.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        fields(&report),
        "allocations clusterGUID clusterInformationRevision clusterType datastoreLocked problems version"
    );
    assert_eq!(
        fields(of(leaked)),
        "borrowed handle inUse ip node owners sequenceNumber"
    );
    assert_eq!(
        (&of(leaked)["owners"], &of(leaked)["node"]),
        (&Value::Null, &json!("a"))
    );
    let output = tool.done(&["ipam", "check", "--show-all-ips"]);
    let line = format!("  {used} belongs to Workload(default/a-cni-w-eth0)\n");
    assert!(output.contains(&line), "{output}");

    let refused = tool.refused(&["ipam", "release", "--ip", &used.to_string()]);
    assert!(
        refused.contains("is used by Workload(default/a-cni-w-eth0); --force"),
        "{refused}"
    );
    // Released, and allocated to another handle since: a late report has no effect on it.
    let again = tool.done(&["ipam", "release", "--ip", &leaked.to_string()]);
    assert_eq!(
        again,
        format!("Successfully released IP address {leaked}\n")
    );
    let output = tool.done(&["ipam", "release", "--ip", &leaked.to_string()]);
    assert_eq!(output, format!("IP address {leaked} is not assigned\n"));
    let mut next = tool.assign("a", "net.next", POOL).await;
    while next != leaked {
        next = tool.assign("a", "net.next", POOL).await;
    }
    let output = tool.done(&["ipam", "release", "--from-report", &file]);
    assert!(
        output.contains("Successfully released 0 IPs; 1 have changed"),
        "{output}"
    );
    tool.done(&["ipam", "check", "-o", &file]);
    let second = tool.path("second");
    tool.done(&["ipam", "check", "-o", &second]);
    let both = [
        "ipam",
        "release",
        "--from-report",
        &file,
        "--from-report",
        &second,
    ];
    let output = tool.done(&both);
    assert!(
        output.contains("Successfully released 63 IPs; 0 have"),
        "{output}"
    );
    assert_eq!(tool.addresses().await.0, ["net.used"]);
    let output = tool.done(&["ipam", "release", "--force", "--ip", &used.to_string()]);
    assert_eq!(output, format!("Successfully released IP address {used}\n"));
    tool.refused(&["ipam", "release"]);
}

/// The credentials of a node can write any value below its names, and allocations of all nodes.
pub(crate) async fn endpoints_that_do_not_fit_their_node_are_found(tool: &Tool) {
    let (used, leaked) = fabric(tool).await;
    let output = tool.done(&["ipam", "check"]);
    assert!(output.contains("Found 0 mismatches of"), "{output}");
    for (name, node, address) in [
        ("b-cni-thief-eth0", "b", used),
        ("b-cni-other-eth0", "a", leaked),
        ("c-cni-w-eth0", "c", leaked),
    ] {
        let endpoint = json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"node": node, "ipNetworks": [address.to_string()]}});
        let key = format!("workloadendpoints/default/{name}");
        tool.put(&key, &endpoint).await;
    }
    let output = tool.done(&["ipam", "check"]);
    for line in [
        format!("endpoint default/b-cni-thief-eth0 of node b has {used}, allocated on node a"),
        "endpoint default/b-cni-other-eth0 has spec.node a, but not its name".to_owned(),
        "endpoint default/c-cni-w-eth0 has spec.node c, which does not exist".to_owned(),
        format!("endpoint default/c-cni-w-eth0 of node c has {leaked}, allocated on node a"),
        "Found 4 mismatches of endpoints and nodes.".to_owned(),
    ] {
        assert!(output.contains(&line), "{line}\n{output}");
    }
}

pub(crate) async fn unused_addresses_are_collected(tool: &Tool) {
    let (used, leaked) = fabric(tool).await;
    tool.assign("gone", "net.gone", POOL).await;
    let words = ["ipam", "gc", "--grace", "0s"];
    tool.refused(&words);
    let ready = json!({"metadata": {"name": "default"}, "spec": {"datastoreReady": true}});
    tool.put("clusterinformations/default", &ready).await;
    let output = tool.done(&[words.as_slice(), &["--dry-run"]].concat());
    let line = format!("{leaked} of net.leaked is leaked: no endpoint has it\n");
    assert!(output.contains(&line), "{output}");
    assert!(output.ends_with("Would collect 3 things.\n"), "{output}");
    assert_eq!(tool.addresses().await.0.len(), 3);

    let output = tool.done(&words);
    assert!(
        output.contains("belongs to node gone, which is deleted: done\n"),
        "{output}"
    );
    assert!(output.ends_with("Collected 3 of 3 things.\n"), "{output}");
    let (handles, affinities) = tool.addresses().await;
    assert_eq!(handles, ["net.used"]);
    assert_eq!(affinities.len(), 1);
    assert_eq!(tool.done(&words), "Nothing to collect.\n");
    let output = tool.done(&["ipam", "check"]);
    assert!(output.ends_with("found 0 problems.\n"), "{used}: {output}");

    // Periodic collection, until it is stopped.
    let later = tool.assign("a", "net.later", POOL).await;
    let mut watcher = tool.start(&["ipam", "gc", "--watch", "--grace", "1s", "--interval", "1s"]);
    let store = tool.store().await;
    let key = calico_store::KeyRange::prefix("/calico/ipam/v2/handle/net.later");
    let mut watch = store
        .watch(calico_store::WatchRequest {
            range: key.clone(),
            from: None,
            previous: false,
        })
        .await
        .unwrap();
    let wait = async {
        while !store.list(key.clone()).await.unwrap().items.is_empty() {
            watch.next().await.unwrap();
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(60), wait).await;
    assert!(waited.is_ok(), "{later} is not collected");
    watcher.stop();
    assert_eq!(tool.addresses().await.0, ["net.used"]);
    // If not all endpoints can be read, nothing is released.
    for node in ["a", "b"] {
        let key = format!("{}nodes/{node}", crate::PREFIX);
        assert!(store.delete(key.into()).await.unwrap());
    }
    let refused = tool.refused(&words);
    assert!(refused.contains("nothing is collected"), "{refused}");
}
