//! The values of Calico's manifest for etcd, as docs/operate/kubernetes.md lists them: its ConfigMap, its
//! variables, and its CNI configuration.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::Stdio;

use interop_tests::own;
use serde_json::{Value, json};

use crate::program::{Replica, has_note};
use crate::rig::run;
use crate::start::{Bench, soon, stored};

/// The page with the tables.
const PAGE: &str = include_str!("../../../docs/operate/kubernetes.md");

/// The name of the node in Kubernetes.
const NODE: &str = "c07.example";

/// A variable of the manifest.
struct Variable {
    name: &'static str,
    value: String,
    program: &'static str,
    is_followed: bool,
}

/// Returns the cells of the table with this first cell in its head.
fn table(first: &str) -> Vec<Vec<&'static str>> {
    let head = format!("| {first} |");
    let lines = PAGE.lines().skip_while(|line| !line.starts_with(&head));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &'static str| {
        let inner = line.trim_matches('|').split('|');
        inner.map(str::trim).collect::<Vec<_>>()
    };
    rows.map(cells).collect()
}

fn code(cell: &'static str) -> &'static str {
    cell.split('`').nth(1).unwrap_or_default()
}

/// The CNI configuration with the fields and the placeholders of the manifest.
fn network() -> String {
    let placeholder = |name: &str| format!("__{name}__");
    let own = json!({
        "type": "calico", "log_level": "info", "log_file_path": "/var/log/calico/cni/cni.log",
        "etcd_endpoints": placeholder("ETCD_ENDPOINTS"), "etcd_key_file": placeholder("ETCD_KEY_FILE"),
        "etcd_cert_file": placeholder("ETCD_CERT_FILE"),
        "etcd_ca_cert_file": placeholder("ETCD_CA_CERT_FILE"),
        "mtu": "MTU", "ipam": {"type": "calico-ipam"}, "policy": {"type": "k8s"},
        "kubernetes": {"kubeconfig": placeholder("KUBECONFIG_FILEPATH")},
    });
    let ports = json!({"type": "portmap", "snat": true, "capabilities": {"portMappings": true}});
    let all = json!({"name": "k8s-pod-network", "cniVersion": "1.0.0", "plugins": [own, ports]});
    // A number without quotes.
    all.to_string().replace("\"MTU\"", "__CNI_MTU__")
}

/// Returns the variables of a program, with the values of the ConfigMap.
fn variables(endpoint: &str) -> Vec<Variable> {
    let keys = table("key of ConfigMap `calico-config`");
    let map: BTreeMap<&str, String> = keys
        .iter()
        .map(|row| {
            let value = match (code(row[0]), row[1]) {
                ("cni_network_config", _) => network(),
                ("etcd_endpoints", cell) => {
                    code(cell).replace("http://<ETCD_IP>:<ETCD_PORT>", endpoint)
                }
                (_, cell) if cell.starts_with("empty") => String::new(),
                (_, cell) => code(cell).to_owned(),
            };
            (code(row[0]), value)
        })
        .collect();
    assert_eq!(map.len(), 8, "the keys of the manifest");
    let rows = table("variable | value in the manifest");
    assert_eq!(rows.len(), 27, "the variables of the manifest");
    let all = rows.into_iter().map(|row| Variable {
        name: code(row[0]),
        value: match row[1] {
            "the name of the node" => NODE.to_owned(),
            cell if cell.starts_with("key ") => map[code(cell)].clone(),
            cell => code(cell).to_owned(),
        },
        program: row[2],
        is_followed: match row[3].split(':').next() {
            Some("followed") => true,
            Some("reported") => false,
            other => panic!("{other:?}"),
        },
    });
    all.collect()
}

// Promise (Kubernetes): The ConfigMap, the variables and the CNI configuration of Calico's manifest for etcd
// work unchanged; each variable without an effect is reported by name.
#[test]
fn values_of_calicos_manifest_prepare_a_node() {
    run(async {
        let Some(bench) = Bench::new().await else {
            return;
        };
        let all = variables(&bench.endpoint);
        let of = |program: &'static str| all.iter().filter(move |one| one.program == program);
        bench.daemon("felix", &[]);
        bench.daemon("bgp-client", &[]);
        let log = bench.path("start.log");
        let output = File::create(&log).expect("a file");
        let mut command = bench.start(&[]);
        command
            .env_remove("NODENAME")
            .env("HOSTNAME", NODE)
            .stdout(output.try_clone().expect("a file"))
            .stderr(output);
        for variable in of("cambric node start") {
            command.env(variable.name, &variable.value);
        }
        // In one container, as in Calico's pod, it has the variables of Felix as well.
        for variable in of("cambric-felix") {
            command.env(variable.name, &variable.value);
        }
        // The address is searched, but the host of the test may have no address but that of loopback.
        command.env("IP_AUTODETECTION_METHOD", "cidr=203.0.113.0/24");
        assert!(!command.status().await.expect("it runs").success());
        let found = std::fs::read_to_string(&log).expect("a log");
        assert!(found.contains("no interface of this host"), "{found}");
        command.env("IP", "127.0.0.1/8");
        let _started = command.spawn().expect("it starts");
        soon("the CNI configuration", || bench.configuration().is_some()).await;
        let log = std::fs::read_to_string(&log).expect("a log");
        for variable in &all {
            let is_reported = log.contains(&format!("{} has no effect", variable.name));
            let is_here = variable.program != "cambric-kube";
            let is_other = variable.program == "cambric-felix";
            let wanted = is_here && (is_other || !variable.is_followed);
            assert_eq!(is_reported, wanted, "{}\n{log}", variable.name);
        }
        assert!(
            log.contains("log_file_path of the CNI configuration has no effect"),
            "{log}"
        );

        let network = bench.configuration().expect("written");
        let plugin = &network["plugins"][0];
        assert_eq!(plugin["etcd_endpoints"], bench.endpoint);
        assert_eq!(plugin["mtu"], 0);
        let kubeconfig = &plugin["kubernetes"]["kubeconfig"];
        assert_eq!(*kubeconfig, "/etc/cni/net.d/calico-kubeconfig");
        for file in ["etcd_key_file", "etcd_cert_file", "etcd_ca_cert_file"] {
            assert_eq!(plugin[file], "", "{file}");
        }
        assert!(!network.to_string().contains("__"), "{network}");
        for (calico, program) in [("calico", "cambric-cni"), ("calico-ipam", "cambric-ipam")] {
            let link = std::fs::read_link(bench.path("bin") + "/" + calico);
            assert_eq!(link.expect("a link"), std::path::Path::new(program));
        }
        let node = stored(&bench.store, &format!("nodes/{NODE}")).await;
        assert_eq!(node["spec"]["orchRefs"][0]["nodeName"], NODE);
        assert!(node["spec"]["bgp"]["ipv4Address"].is_string(), "{node}");
        let pool = stored(&bench.store, "ippools/default-ipv4-ippool").await;
        let modes = [&pool["spec"]["ipipMode"], &pool["spec"]["vxlanMode"]];
        assert_eq!(modes, ["Always", "Never"].map(Value::from).each_ref());

        // The file of Felix that the start writes, with the variables of the manifest.
        let mut once = bench.start(&["--once", "--daemon-files", &bench.path("net.d")]);
        let done = once.env("NODENAME", NODE).status().await;
        assert!(done.expect("it runs").success());
        let check = async |name: &str, value: &str| {
            let mut command = tokio::process::Command::new(own("cambric-felix"));
            command.args(["--check", "--config", &bench.path("net.d/felix.toml")]);
            for variable in of("cambric-felix") {
                command.env(variable.name, &variable.value);
            }
            let output = command.env(name, value).stdin(Stdio::null()).output().await;
            output.expect("it runs").status.success()
        };
        for variable in of("cambric-felix") {
            let name = variable.name;
            assert!(check(name, &variable.value).await, "{name}");
            // Felix logs a variable without an effect, whatever its value is.
            assert_eq!(check(name, "maybe").await, !variable.is_followed, "{name}");
        }

        // The controller has no file with a datastore.
        bench.api.enforce("cambric-kube");
        let set: Vec<_> = of("cambric-kube").collect();
        let set: Vec<_> = set.iter().map(|one| (one.name, &*one.value)).collect();
        let table = format!("kubeconfig = {:?}", bench.path("kubeconfig"));
        let replica = Replica::start(&bench.path(""), "a", "", &table, &set);
        let status = replica.until("ready", |status| status.ready).await;
        for variable in of("cambric-kube") {
            assert!(!has_note(&status, variable.name), "{:?}", status.notes);
        }
        stored(&bench.store, "profiles/kns.prod").await;
    });
}
