//! The commands for resources, as programs, against the small store and against Debian's etcd.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod addresses;
#[path = "../../../calico-store/tests/common/mod.rs"]
mod common;
mod locks;
mod notes;
mod reflectors;
mod removal;
mod roles;
mod rules;
mod tool;

use common::{Etcd, Served, certificates, users};
use serde_json::{Value, json};
use tool::Tool;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

/// Each scenario, against both stores.
macro_rules! against_both {
    ($($name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let served = Served::start().await;
                scenario::$name(&Tool::at(&served.url())).await;
                served.stop().await;
                if let Some(etcd) = Etcd::start().await {
                    scenario::$name(&Tool::at(&etcd.url())).await;
                }
            }
        )*
    };
}

against_both! {
    resource_is_created_read_changed_and_deleted
    resource_changed_by_others_is_not_overwritten
    all_faults_are_reported_before_any_write
    apply_writes_all_resources_or_none
    manifest_with_overlapping_pools_writes_nothing
    directories_lists_and_the_standard_input_are_read
    node_is_deleted_with_its_resources
    addresses_are_released_with_their_node_or_pool
    unknown_stored_fields_survive_until_deletion
    outdated_version_deletes_nothing
    addresses_now_used_by_others_are_kept
    words_and_namespaces_are_calicoctls
    policies_and_profiles_are_calicos
    reflectors_are_listed_drained_and_removed
    addresses_are_shown_and_settings_changed
    leaks_are_reported_and_given_back
    endpoints_that_do_not_fit_their_node_are_found
    unused_addresses_are_collected
    the_store_is_locked_and_unlocked
    fields_without_effect_are_reported
    rules_of_a_listing_are_compared
}

mod scenario {
    use super::*;

    pub(super) use crate::addresses::{
        addresses_are_shown_and_settings_changed, endpoints_that_do_not_fit_their_node_are_found,
        leaks_are_reported_and_given_back, unused_addresses_are_collected,
    };
    pub(super) use crate::locks::the_store_is_locked_and_unlocked;
    pub(super) use crate::notes::fields_without_effect_are_reported;
    pub(super) use crate::reflectors::reflectors_are_listed_drained_and_removed;
    pub(super) use crate::removal::{
        addresses_are_released_with_their_node_or_pool, addresses_now_used_by_others_are_kept,
        node_is_deleted_with_its_resources, outdated_version_deletes_nothing,
    };
    pub(super) use crate::rules::rules_of_a_listing_are_compared;

    const PEER: &str = "\
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata:
  name: rack-tor
  labels: {role: tor}
spec:
  nodeSelector: rack == 'r1'
  peerIP: 10.20.1.254
  asNumber: 64700
";

    pub(super) async fn resource_is_created_read_changed_and_deleted(tool: &Tool) {
        let file = tool.file("peer.yaml", PEER);
        let output = tool.done(&["create", "-f", &file]);
        assert_eq!(output, "Successfully created 1 'BGPPeer' resource(s)\n");
        let stored = tool.stored("bgppeers/rack-tor").await;
        let (uid, time) = (
            &stored["metadata"]["uid"],
            &stored["metadata"]["creationTimestamp"],
        );
        assert_eq!(
            stored,
            json!({"kind": "BGPPeer", "apiVersion": "projectcalico.org/v3",
                "metadata": {"name": "rack-tor", "uid": uid, "creationTimestamp": time, "labels": {"role": "tor"}},
                "spec": {"nodeSelector": "rack == 'r1'", "peerIP": "10.20.1.254", "asNumber": 64700}})
        );
        assert_eq!(uid.as_str().unwrap().split('-').count(), 5);
        assert!(time.as_str().unwrap().ends_with('Z'));
        assert_eq!(
            tool.stored("tiers/default").await["spec"]["defaultAction"],
            "Deny"
        );

        let refused = tool.refused(&["create", "-f", &file]);
        assert!(
            refused.contains("peer.yaml:1:1: BGPPeer(rack-tor) already exists"),
            "{refused}"
        );
        let output = tool.done(&["create", "--skip-exists", "-f", &file]);
        assert_eq!(output, "Skipped 1 existing resource(s)\n");

        // The output can be used as input.
        for form in ["yaml", "json"] {
            let printed = tool.done(&["get", "bgppeer", "rack-tor", "-o", form]);
            let again = tool.file("again", &printed.replace("64700", "64701"));
            let output = tool.done(&["replace", "-f", &again]);
            assert_eq!(output, "Successfully replaced 1 'BGPPeer' resource(s)\n");
            let now = tool.stored("bgppeers/rack-tor").await;
            assert_eq!(now["spec"]["asNumber"], 64701);
            assert_eq!(now["metadata"], stored["metadata"]);
        }
        let text = tool.done(&["get", "bgppeers"]);
        assert!(text.starts_with("NAME       PEERIP"), "{text}");
        let list: Value = serde_json::from_str(&tool.done(&["get", "bp", "-o", "json"])).unwrap();
        assert_eq!(
            (&list["kind"], list["items"].as_array().unwrap().len()),
            (&json!("BGPPeerList"), 1)
        );

        let output = tool.done(&["delete", "-f", &file]);
        assert_eq!(output, "Successfully deleted 1 'BGPPeer' resource(s)\n");
        assert_eq!(tool.value("bgppeers/rack-tor").await, None);
        let refused = tool.refused(&["delete", "bgppeer", "rack-tor"]);
        assert!(
            refused.contains("BGPPeer(rack-tor) does not exist"),
            "{refused}"
        );
        let output = tool.done(&["delete", "--skip-not-exists", "bgppeer", "rack-tor"]);
        assert_eq!(output, "Skipped 1 missing resource(s)\n");
        let refused = tool.refused(&["replace", "-f", &file]);
        assert!(refused.contains("does not exist"), "{refused}");
        let refused = tool.refused(&["get", "bgppeer", "rack-tor"]);
        assert!(
            refused.contains("BGPPeer(rack-tor) does not exist"),
            "{refused}"
        );
    }

    // Promise (Datastore): No client overwrites a resource that it has not read.
    pub(super) async fn resource_changed_by_others_is_not_overwritten(tool: &Tool) {
        tool.apply("peer.yaml", PEER);
        let read = tool.done(&["get", "bgppeer", "rack-tor", "-o", "yaml"]);
        let mine = tool.file("mine.yaml", &read.replace("10.20.1.254", "10.20.1.253"));
        tool.apply("peer.yaml", &PEER.replace("64700", "64777"));
        for verb in ["apply", "replace", "delete"] {
            let refused = tool.refused(&[verb, "-f", &mine]);
            assert!(
                refused.contains("BGPPeer(rack-tor): resource version"),
                "{refused}"
            );
            assert!(
                refused.contains("is out of date, the latest is"),
                "{refused}"
            );
        }
        let stored = tool.stored("bgppeers/rack-tor").await;
        assert_eq!(stored["spec"]["peerIP"], "10.20.1.254");
        assert_eq!(stored["spec"]["asNumber"], 64777);
    }

    pub(super) async fn all_faults_are_reported_before_any_write(tool: &Tool) {
        let text = format!(
            "{PEER}---\n\
             kind: BGPPeer\nmetadata: {{name: other}}\nspec:\n  peerIP: 10.0.0.1\n  peerSelector: all()\n---\n\
             kind: BGPPeer\nmetadata: {{name: third}}\nspec:\n  nodeSelektor: all()\n---\n\
             kind: BGPPier\nmetadata: {{name: fourth}}\n---\n\
             kind: BGPPeer\nmetadata: {{name: fifth}}\nspec:\n  nodeSelector: a = b\n"
        );
        let refused = tool.apply_refused("faulty.yaml", &text);
        for part in [
            "`spec.peerSelector` must not be set: spec.peerIP is set",
            "faulty.yaml:15:17",
            "unknown field `spec.nodeSelektor`",
            "faulty.yaml:20:3",
            "^^^^^^^^^^^^ did you mean `nodeSelector`?",
            "unknown kind `BGPPier`",
            "faulty.yaml:22:7",
            "did you mean `BGPPeer`?",
            "faulty.yaml:28:17",
            "at octet 2",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert_eq!(tool.value("bgppeers/rack-tor").await, None);
        let refused = tool.apply_refused("odd.yaml", "a: [b\n");
        assert!(refused.contains("odd.yaml:"), "{refused}");
        let refused = tool.apply_refused("empty.yaml", "---\n");
        assert!(refused.contains("there is no resource in it"), "{refused}");
        tool.done(&[
            "apply",
            "--skip-empty",
            "-f",
            &tool.file("empty.yaml", "---\n"),
        ]);
        let refused = tool.refused(&["apply", "-f", "/nonexistent/file.yaml"]);
        assert!(
            refused.contains("/nonexistent/file.yaml cannot be read"),
            "{refused}"
        );
    }

    // Promise (Datastore): `cambric apply` writes up to 128 changes of its files together, or none of them.
    pub(super) async fn apply_writes_all_resources_or_none(tool: &Tool) {
        let set = |net: &str| {
            format!("---\nkind: NetworkSet\nmetadata: {{name: s}}\nspec: {{nets: [{net}]}}\n")
        };
        let both = format!("{PEER}{}", set("192.0.2.0/24"));
        tool.apply("both.yaml", &both);
        let read = tool.done(&["get", "bgppeer", "rack-tor", "-o", "yaml"]);
        tool.apply("peer.yaml", &PEER.replace("64700", "64777"));

        // One of them is based on an old version.
        let stale = tool.file("stale.yaml", &format!("{read}{}", set("10.0.0.0/8")));
        let output = tool.failed(&["apply", "-f", &stale]);
        assert_eq!(
            output.0,
            "bgppeer/rack-tor refused\nnetworkset/default/s not written\n\
             Failed to apply any resource(s)\n"
        );
        assert!(output.1.contains("is out of date"), "{}", output.1);
        let stored = tool.stored("networksets/default/s").await;
        assert_eq!(stored["spec"]["nets"], json!(["192.0.2.0/24"]));

        // A resource that only the daemons write.
        let cluster = "---\nkind: ClusterInformation\nmetadata: {name: default}\nspec: {}\n";
        let file = tool.file("cluster.yaml", &format!("{}{cluster}", set("10.0.0.0/8")));
        let (output, _) = tool.failed(&["apply", "-o", "json", "-f", &file]);
        let output: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(
            output[0],
            json!({"kind": "NetworkSet", "namespace": "default", "name": "s", "effect": "not written"})
        );
        assert_eq!(output[1]["effect"], "refused");
        assert!(output[1]["error"].as_str().unwrap().contains("daemons"));

        let file = tool.file("both.yaml", &both.replace("10.20.1.254", "10.20.1.253"));
        let output = tool.done(&["apply", "-o", "json", "-f", &file]);
        let output: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(output[0]["effect"], "configured");
        assert_eq!(output[1]["effect"], "unchanged");
        assert!(output[0]["resourceVersion"].is_string(), "{output}");

        let twice = tool.apply_refused("twice.yaml", &format!("{PEER}---\n{PEER}"));
        for part in ["`rack-tor` is there twice", "first here", "again here"] {
            assert!(twice.contains(part), "{part}: {twice}");
        }
    }

    pub(super) async fn manifest_with_overlapping_pools_writes_nothing(tool: &Tool) {
        let pool = |name: &str, cidr: &str| {
            format!("kind: IPPool\nmetadata: {{name: {name}}}\nspec: {{cidr: {cidr}}}\n---\n")
        };
        let text = [
            pool("a", "10.65.0.0/16"),
            pool("b", "10.65.128.0/17"),
            pool("c", "10.66.0.0/16"),
        ]
        .concat();
        let file = tool.file("pools.yaml", &text);
        for verb in ["apply", "create"] {
            let refused = tool.refused(&[verb, "-f", &file]);
            for part in [
                "nothing is written:",
                "pools.yaml:7:14",
                "10.65.128.0/17 overlaps with 10.65.0.0/16 of IPPool(a)",
            ] {
                assert!(refused.contains(part), "{verb}: {part}: {refused}");
            }
            assert_eq!(tool.keys().await, Vec::<String>::new(), "{verb}");
        }
        tool.apply("a.yaml", &pool("a", "10.65.0.0/16"));
        let clash = [pool("c", "10.66.0.0/16"), pool("d", "10.0.0.0/8")].concat();
        let refused = tool.apply_refused("clash.yaml", &clash);
        assert!(refused.contains("IPPool(a)"), "{refused}");
        assert_eq!(tool.value("ippools/c").await, None);
    }

    pub(super) async fn directories_lists_and_the_standard_input_are_read(tool: &Tool) {
        let set = |name: &str| json!({"kind": "GlobalNetworkSet", "metadata": {"name": name}, "spec": {"nets": []}});
        tool.file(
            "all/one.yaml",
            "kind: GlobalNetworkSet\nmetadata: {name: a}\n---\nkind: Tier\nmetadata: {name: t}\n",
        );
        tool.file("all/two.json", &json!([set("b"), set("c")]).to_string());
        tool.file("all/readme.txt", "not a manifest");
        tool.file(
            "all/deeper/three.yml",
            &json!({"kind": "GlobalNetworkSetList", "items": [set("d")]}).to_string(),
        );
        let output = tool.done(&["apply", "-f", &tool.path("all")]);
        assert_eq!(
            output,
            "globalnetworkset/a created\ntier/t created\nglobalnetworkset/b created\n\
             globalnetworkset/c created\nSuccessfully applied 4 resource(s)\n"
        );
        assert_eq!(tool.value("globalnetworksets/d").await, None);
        let output = tool.done(&["apply", "-R", "-f", &tool.path("all")]);
        assert_eq!(
            output,
            "globalnetworkset/d created\nglobalnetworkset/a unchanged\ntier/t unchanged\n\
             globalnetworkset/b unchanged\nglobalnetworkset/c unchanged\n\
             Successfully applied 5 resource(s)\n"
        );
        let output = tool.fed(&["create", "-f", "-"], &set("e").to_string());
        assert_eq!(
            output,
            "Successfully created 1 'GlobalNetworkSet' resource(s)\n"
        );
        let names = tool.done(&["get", "gnetsets", "-o", "custom-columns=NAME"]);
        let names: Vec<&str> = names.split_whitespace().collect();
        assert_eq!(names, ["NAME", "a", "b", "c", "d", "e"]);
        let yaml = tool.done(&[
            "get",
            "globalnetworkset",
            "a",
            "b",
            "--export",
            "-o",
            "yaml",
        ]);
        assert!(!yaml.contains("uid"), "{yaml}");
        tool.done(&["delete", "gnetsets", "a", "b"]);
        tool.done(&["create", "-f", &tool.file("back.yaml", &yaml)]);
        let text = tool.done(&["get", "tier,globalnetworkset"]);
        assert!(
            text.contains("kube-admin") && text.contains("\ne "),
            "{text}"
        );
    }

    pub(super) async fn unknown_stored_fields_survive_until_deletion(tool: &Tool) {
        let pool = json!({"kind": "IPPool", "metadata": {"name": "a"},
            "spec": {"cidr": "10.65.0.0/24", "newer": {"x": 1}}});
        tool.put("ippools/a", &pool).await;
        let read = tool.done(&["get", "ippool", "a", "-o", "yaml"]);
        let edited = tool.file("edited.yaml", &read.replace("x: 1", "x: 2"));
        tool.done(&["replace", "-f", &edited]);
        let stored = tool.stored("ippools/a").await;
        assert_eq!(stored["spec"]["newer"], json!({"x": 2}));
        let misspelled = tool.file("misspelled.yaml", &read.replace("newer", "never"));
        for verb in ["create", "apply", "replace"] {
            let refused = tool.refused(&[verb, "-f", &misspelled]);
            assert!(refused.contains("unknown field `spec.never`"), "{refused}");
        }
        tool.done(&["delete", "ippool", "a"]);
        assert_eq!(tool.value("ippools/a").await, None);
    }

    pub(super) async fn words_and_namespaces_are_calicoctls(tool: &Tool) {
        let set = "kind: NetworkSet\nmetadata: {name: dbs}\nspec: {nets: [192.0.2.0/24]}\n";
        let file = tool.file("set.yaml", set);
        tool.done(&["apply", "-f", &file]);
        tool.done(&["apply", "-n", "prod", "-f", &file]);
        assert_eq!(
            tool.stored("networksets/default/dbs").await["metadata"]["namespace"],
            "default"
        );
        tool.stored("networksets/prod/dbs").await;
        let one = tool.done(&["get", "netsets", "-n", "prod"]);
        assert_eq!(one, "NAMESPACE   NAME   \nprod        dbs    \n\n");
        let all = tool.done(&["get", "NetworkSets", "--all-namespaces"]);
        assert_eq!(all.lines().count(), 4, "{all}");
        assert_eq!(tool.done(&["get", "NETWORKSET"]), "NAME   \ndbs    \n\n");
        for (arguments, part) in [
            (&["get", "networkset", "dbs", "-A"][..], "--all-namespaces"),
            (&["get", "node", "-n", "prod"], "Node has no namespaces"),
            (&["get", "pods"], "\"pods\" is not a kind of resource"),
            (&["get", "np", "-n", "a", "-A"], "exclude each other"),
            (
                &["delete", "networkset", "dbs", "-n", "nowhere"],
                "NetworkSet(nowhere/dbs) does not exist",
            ),
            (&["get", "node", "-o", "xml"], "custom-columns"),
            (
                &["get", "node", "-o", "custom-columns=AGE"],
                "no such column",
            ),
        ] {
            let refused = tool.refused(arguments);
            assert!(refused.contains(part), "{arguments:?}: {refused}");
        }
        let placed = set.replace("dbs", "dbs, namespace: test");
        let refused = tool.refused(&[
            "apply",
            "-n",
            "prod",
            "-f",
            &tool.file("placed.yaml", &placed),
        ]);
        assert!(refused.contains("placed.yaml:2:"), "{refused}");
        tool.done(&["delete", "networkset", "dbs", "-n", "prod"]);
        let numbered = set.replace(
            "{name: dbs}",
            "{name: 17, namespace: 4, labels: {spare: true}}",
        );
        let numbered = tool.file("numbered.yaml", &numbered);
        tool.done(&["apply", "-f", &numbered]);
        assert_eq!(
            tool.stored("networksets/4/17").await["metadata"]["labels"]["spare"],
            "true"
        );
        tool.done(&["delete", "-f", &numbered]);
        tool.stored("networksets/default/dbs").await;
    }

    pub(super) async fn policies_and_profiles_are_calicos(tool: &Tool) {
        let policy = "kind: GlobalNetworkPolicy\nmetadata: {name: allow-dns}\nspec:\n  order: 100\n  selector: all()\n";
        tool.apply("policy.yaml", policy);
        let stored = tool.stored("globalnetworkpolicies/allow-dns").await;
        let annotation = &stored["metadata"]["annotations"]["projectcalico.org/metadata"];
        assert_eq!(annotation, "{\"name\":\"allow-dns\"}");
        let older =
            json!({"metadata": {"name": "default.older"}, "spec": {"tier": "default", "order": 1}});
        tool.put("globalnetworkpolicies/default.older", &older)
            .await;
        let text = tool.done(&["get", "gnp", "-o", "wide"]);
        assert!(
            text.contains("allow-dns             100     all()"),
            "{text}"
        );
        assert!(text.contains("\nolder       default   1 "), "{text}");
        let yaml = tool.done(&["get", "gnp", "allow-dns", "-o", "yaml"]);
        assert!(!yaml.contains("projectcalico.org/metadata"), "{yaml}");
        tool.apply("again.yaml", &yaml);
        tool.done(&["delete", "gnp", "older"]);
        assert_eq!(
            tool.value("globalnetworkpolicies/default.older").await,
            None
        );

        let text = tool.done(&[
            "get",
            "profile",
            "projectcalico-default-allow",
            "-o",
            "json",
        ]);
        let profile: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(profile["spec"]["egress"], json!([{"action": "Allow"}]));
        let refused = tool.fed_refused(&["apply", "-f", "-"], &text);
        assert!(refused.contains("`metadata.name` is reserved"), "{refused}");
    }
}

/// The values are readable by etcdctl.
#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_reads_what_is_written() {
    let (Some(etcd), Some(etcdctl)) = (Etcd::start().await, common::program("etcdctl")) else {
        return;
    };
    let tool = Tool::at(&etcd.url());
    let pool =
        "kind: IPPool\nmetadata: {name: vm-pool}\nspec: {cidr: 10.65.0.0/16, natOutgoing: true}\n";
    tool.fed(&["create", "-f", "-"], pool);
    let output = std::process::Command::new(etcdctl)
        .env("ETCDCTL_API", "3")
        .envs(common::PATIENT)
        .args(["--endpoints", &etcd.url(), "get", "--print-value-only"])
        .arg(format!("{PREFIX}ippools/vm-pool"))
        .output()
        .unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["kind"], "IPPool");
    assert_eq!(
        value["spec"],
        json!({"cidr": "10.65.0.0/16", "blockSize": 26, "ipipMode": "Never", "vxlanMode": "Never",
            "natOutgoing": true, "nodeSelector": "all()", "allowedUses": ["Workload", "Tunnel"],
            "assignmentMode": "Automatic"})
    );
    assert_eq!(value["metadata"].get("resourceVersion"), None);
}

/// A file for calicoctl configures an etcd with TLS and users.
#[tokio::test(flavor = "multi_thread")]
async fn calicoctls_file_selects_the_store() {
    let Some(files) = certificates().await else {
        return;
    };
    let Some(etcd) = Etcd::start_tls(files.path()).await else {
        return;
    };
    if users(&etcd, files.path(), "/calico/").await.is_none() {
        return;
    }
    let tool = Tool::at("http://127.0.0.1:1");
    let file = |name: &str| files.path().join(name).display().to_string();
    let text = format!(
        "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  datastoreType: etcdv3\n  \
         etcdEndpoints: {}\n  etcdUsername: felix\n  etcdPassword: secret\n  etcdCACertFile: {}\n  \
         etcdCertFile: {}\n  etcdKeyFile: {}\n",
        etcd.url(),
        file("ca.pem"),
        file("client.pem"),
        file("client.key")
    );
    let config = tool.file("calicoctl.cfg", &text);
    let output = tool.fed(
        &["apply", "-c", &config, "-f", "-"],
        "kind: Tier\nmetadata: {name: t}\n",
    );
    assert_eq!(
        output,
        "tier/t created\nSuccessfully applied 1 'Tier' resource(s)\n"
    );
    let wrong = tool.file("wrong.cfg", &text.replace("secret", "guessed"));
    let refused = tool.refused(&["get", "tiers", "-c", &wrong]);
    assert!(refused.contains("access denied"), "{refused}");
    let refused = tool.refused(&["get", "tiers", "-c", "/nonexistent"]);
    assert!(refused.contains("/nonexistent cannot be read"), "{refused}");
}
