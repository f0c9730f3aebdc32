//! `cambric kube check`: what stops pods of this cluster, in words.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use calico_kubernetes::{KubeNode, namespace_profile};
use calico_model::{IpPoolSpec, Kind, NodeSpec};
use calico_store::resources::Resources;
use kube_client::{Access, Kubeconfig, Overrides, Server, Trust, cluster_access};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::rights::{Part, shipped};
use crate::resources::Connection;
use crate::show::clean;

/// Objects in one page of a list.
const PAGE: usize = 500;

/// Pages of a list. Further objects are not checked, which is reported.
const PAGES_MAX: usize = 200;

/// Octets of a CNI configuration.
const CONFIGURATION_OCTETS_MAX: u64 = 1024 * 1024;

/// Objects that one line names.
const NAMED_MAX: usize = 5;

/// The object in which Calico's manifests have the settings of nodes.
const SETTINGS: &str = "/api/v1/namespaces/kube-system/configmaps/calico-config";

/// The arguments of `cambric kube check`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// The API server and the account whose rights are checked; in a pod, that of its service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The program to which this account belongs
    #[arg(long, value_enum, default_value = "controller")]
    part: Part,
    /// The directory of CNI configurations of this node; skipped if it does not exist
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_directory: PathBuf,
    /// Print a JSON list of the problems
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

/// The result of the checks.
#[derive(Debug, Default)]
struct Findings {
    /// Checks without a problem.
    passed: Vec<String>,
    /// Checks that were not possible, with reasons.
    skipped: Vec<String>,
    problems: Vec<String>,
}

impl Findings {
    /// Notes the result of a check.
    fn note(&mut self, check: &str, problems: Vec<String>) {
        if problems.is_empty() {
            self.passed.push(check.to_owned());
        }
        let problems = problems.into_iter();
        self.problems
            .extend(problems.map(|problem| format!("{check}: {problem}")));
    }

    fn text(&self) -> String {
        let lines = |word: &str, texts: &[String]| -> String {
            let lines = texts
                .iter()
                .map(|text| format!("{word:<8} {}\n", clean(text)));
            lines.collect()
        };
        lines("ok", &self.passed)
            + &lines("skipped", &self.skipped)
            + &lines("problem", &self.problems)
    }
}

/// Runs `cambric kube check`. The exit code is 1 if there is a problem.
pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let mut findings = Findings::default();
    check_plugin(&args.cni_directory, &mut findings).await;
    let server = match access(&args) {
        Ok(access) => check_server(Server::new(access), args.part, &mut findings).await,
        Err(error) => {
            findings.note("API server", vec![format!("{error:#}")]);
            None
        }
    };
    match args.connection.resources().await {
        Ok(resources) => check_store(&resources, server, &mut findings).await,
        Err(error) => findings.note("datastore", vec![format!("{error:#}")]),
    }
    match args.json {
        true => println!("{}", json!(findings.problems)),
        false => print!("{}", findings.text()),
    }
    Ok(match findings.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn access(args: &Args) -> Result<Access> {
    if let Some(file) = &args.kubeconfig {
        let access = Kubeconfig::read(file).and_then(|read| read.access(&Overrides::default()));
        return Ok(access?);
    }
    let found = cluster_access(|name| std::env::var(name).ok(), Trust::default());
    found?.context("this is no pod: name a file with --kubeconfig")
}

/// Checks the rights of an account. Returns the server if it answers.
async fn check_server(mut server: Server, part: Part, findings: &mut Findings) -> Option<Server> {
    let rights = match shipped(part) {
        Ok(rights) => rights,
        Err(error) => {
            findings.note("rights", vec![format!("{error:#}")]);
            return None;
        }
    };
    let mut missing = Vec::new();
    for right in rights {
        match right.is_granted(&mut server).await {
            Ok(true) => {}
            Ok(false) => missing.push(format!(
                "{} may not {}: apply packaging/kubernetes/rbac.yaml",
                part.account(),
                right.text()
            )),
            Err(error) => {
                findings.note("API server", vec![error.to_string()]);
                return None;
            }
        }
    }
    findings.note("API server", Vec::new());
    findings.note(&format!("rights of {}", part.account()), missing);
    match server.object(SETTINGS).await {
        Ok(settings) => {
            let text = settings["data"]["cni_network_config"].as_str();
            findings.note(
                "ConfigMap calico-config",
                template_faults(text.unwrap_or_default()),
            );
        }
        Err(error) if error.is_missing() => {}
        Err(error) => findings
            .skipped
            .push(format!("ConfigMap calico-config: {error}")),
    }
    Some(server)
}

/// Returns the problems of a template, whose numbers can be placeholders.
fn template_faults(text: &str) -> Vec<String> {
    match is_of_kubernetes(text) {
        true => vec![wrong_datastore("cni_network_config")],
        false => Vec::new(),
    }
}

fn is_of_kubernetes(text: &str) -> bool {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    compact.contains("\"datastore_type\":\"kubernetes\"")
}

fn wrong_datastore(place: &str) -> String {
    format!(
        "{place}: datastore_type is \"kubernetes\", so Calico keeps its resources in the API server; here \
         the datastore is etcd (\"etcdv3\")"
    )
}

/// Checks the CNI configuration of this node: the file that runtimes use.
async fn check_plugin(directory: &Path, findings: &mut Findings) {
    let check = "CNI configuration";
    let Ok(entries) = fs::read_dir(directory) else {
        findings
            .skipped
            .push(format!("{check}: {} does not exist", directory.display()));
        return;
    };
    let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_used = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("conf" | "conflist" | "json"))
    };
    let mut files: Vec<PathBuf> = entries.filter(is_used).collect();
    files.sort();
    let Some(file) = files.first() else {
        let problem = format!(
            "{} has no configuration: `cambric node start` writes it when the daemons are ready \
             (`cambric check ready`)",
            directory.display()
        );
        findings.note(check, vec![problem]);
        return;
    };
    let place = file.display().to_string();
    let octets = fs::metadata(file).map_or(0, |metadata| metadata.len());
    let text = match fs::read_to_string(file) {
        Ok(text) if octets <= CONFIGURATION_OCTETS_MAX => text,
        Ok(_) => return findings.note(check, vec![format!("{place}: is too long")]),
        Err(error) => return findings.note(check, vec![format!("{place}: {error}")]),
    };
    // The error of the parser could quote a token.
    let Ok(config) = serde_json::from_str::<Value>(&text) else {
        return findings.note(check, vec![format!("{place}: is not JSON")]);
    };
    let (problems, kubeconfig) = configuration_faults(&place, &config);
    findings.note(check, problems);
    let Some(kubeconfig) = kubeconfig else {
        return;
    };
    let read = Kubeconfig::read(&kubeconfig).and_then(|read| read.access(&Overrides::default()));
    match read {
        Err(error) => findings.note("kubeconfig of the CNI plugin", vec![error.to_string()]),
        Ok(access) => {
            let mut faults = Vec::new();
            for (field, fault) in access.faults() {
                faults.push(format!("{}: {field}: {fault}", kubeconfig.display()));
            }
            let mut server = Server::new(access);
            for right in shipped(Part::Cni).unwrap_or_default() {
                match right.is_granted(&mut server).await {
                    Ok(true) => {}
                    Ok(false) => faults.push(format!("it may not {}", right.text())),
                    Err(error) => {
                        faults.push(error.to_string());
                        break;
                    }
                }
            }
            findings.note("kubeconfig of the CNI plugin", faults);
        }
    }
}

/// Returns the problems of a configuration, and the kubeconfig that it names.
fn configuration_faults(place: &str, config: &Value) -> (Vec<String>, Option<PathBuf>) {
    let own = ["calico", "cambric-cni"];
    let of_list = config["plugins"].as_array().into_iter().flatten();
    let mut plugins = of_list.chain(Some(config));
    let plugin = plugins.find(|plugin| own.iter().any(|name| plugin["type"] == *name));
    let Some(plugin) = plugin else {
        let problem =
            format!("{place}: is of another plugin; runtimes use the first file of the directory");
        return (vec![problem], None);
    };
    let mut problems = Vec::new();
    if plugin["datastore_type"] == "kubernetes" {
        problems.push(wrong_datastore(place));
    }
    if plugin["policy"]["type"] != "k8s" {
        problems.push(format!(
            "{place}: policy.type is not \"k8s\": pods have neither labels nor profiles of Kubernetes"
        ));
    }
    for field in ["etcd_endpoints", "nodename"] {
        let text = plugin[field].as_str().unwrap_or_default();
        if text.contains("__") || text.contains('<') {
            problems.push(format!("{place}: {field}: has a placeholder"));
        }
    }
    let kubeconfig = plugin["kubernetes"]["kubeconfig"].as_str();
    if kubeconfig.is_none() {
        problems.push(format!(
            "{place}: kubernetes.kubeconfig is missing: the plugin cannot read pods"
        ));
    }
    (problems, kubeconfig.map(PathBuf::from))
}

/// Reads the names of all objects of a kind. `None` if the account may not list them.
async fn list(server: &mut Server, plural: &str, findings: &mut Findings) -> Option<Vec<Value>> {
    let mut all = Vec::new();
    let mut further = String::new();
    for _ in 0..PAGES_MAX {
        let path = format!("/api/v1/{plural}?limit={PAGE}{further}");
        let page = match server.read(&path).await {
            Ok(page) => page,
            Err(error) => {
                findings.skipped.push(format!("{plural}: {error}"));
                return None;
            }
        };
        all.extend(page["items"].as_array().into_iter().flatten().cloned());
        match page["metadata"]["continue"].as_str() {
            None | Some("") => return Some(all),
            Some(token)
                if token
                    .bytes()
                    .all(|c| c.is_ascii_alphanumeric() || b"-_=.".contains(&c)) =>
            {
                further = format!("&continue={token}");
            }
            Some(_) => break,
        }
    }
    findings
        .skipped
        .push(format!("{plural}: only the first {} were read", all.len()));
    Some(all)
}

async fn check_store(resources: &Resources, server: Option<Server>, findings: &mut Findings) {
    let read = tokio::try_join!(
        resources.list(Kind::IpPool, None),
        resources.list(Kind::Profile, None),
        resources.list(Kind::Node, None),
    );
    let (pools, profiles, nodes) = match read {
        Ok(read) => read,
        Err(error) => return findings.note("datastore", vec![error.to_string()]),
    };
    findings.note("datastore", Vec::new());
    let enabled = pools.items.iter().any(|pool| {
        let spec = IpPoolSpec::deserialize(&pool.value["spec"]);
        spec.is_ok_and(|spec| !spec.disabled)
    });
    let problem = "no enabled IPPool: pods get no address; `cambric node start` creates one, or \
                   `cambric apply`";
    findings.note(
        "pools",
        if enabled {
            vec![]
        } else {
            vec![problem.to_owned()]
        },
    );
    let Some(mut server) = server else {
        return;
    };
    if let Some(namespaces) = list(&mut server, "namespaces", findings).await {
        let stored: BTreeSet<&str> = profiles.items.iter().map(|item| item.key.name()).collect();
        let names = namespaces
            .iter()
            .filter_map(|namespace| namespace["metadata"]["name"].as_str());
        let missing: Vec<&str> = names
            .filter(|name| !stored.contains(namespace_profile(name).as_str()))
            .collect();
        let problems = match missing.is_empty() {
            true => vec![],
            false => vec![format!(
                "no profile of {}: their pods drop all traffic until cambric-kube writes it",
                named("namespace", &missing)
            )],
        };
        findings.note("profiles", problems);
    }
    if let Some(objects) = list(&mut server, "nodes", findings).await {
        let objects = objects.iter().map(calico_kubernetes::node);
        let objects: Vec<KubeNode> = objects.filter_map(|node| node.resource()).collect();
        let stored: Vec<(&str, NodeSpec)> = nodes
            .items
            .iter()
            .filter_map(|node| {
                let spec = NodeSpec::deserialize(&node.value["spec"]).ok()?;
                Some((node.key.name(), spec))
            })
            .collect();
        findings.note("names of nodes", node_faults(&objects, &stored));
    }
}

fn node_faults(objects: &[KubeNode], stored: &[(&str, NodeSpec)]) -> Vec<String> {
    let has_node = |object: &&KubeNode| stored.iter().any(|(name, spec)| object.is(name, spec));
    let without = objects.iter().filter(|object| !has_node(object));
    let without: Vec<&str> = without.map(|object| object.name.as_str()).collect();
    let has_object =
        |(name, spec): &&(&str, NodeSpec)| objects.iter().any(|object| object.is(name, spec));
    let left = stored.iter().filter(|node| !has_object(node));
    let left: Vec<&str> = left.map(|(name, _)| *name).collect();
    let mut problems = Vec::new();
    if !without.is_empty() {
        problems.push(format!(
            "the datastore has no Node for {}: run `cambric node start` there with CALICO_K8S_NODE_REF, \
             which sets orchRefs",
            named("node", &without)
        ));
    }
    if !left.is_empty() {
        problems.push(format!(
            "{} of the datastore is none of Kubernetes: another name than NODENAME, or a node that was \
             removed",
            named("Node", &left)
        ));
    }
    problems
}

/// Returns the first names.
fn named(kind: &str, names: &[&str]) -> String {
    let first = names
        .iter()
        .take(NAMED_MAX)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => format!("{kind} {first}"),
        further => format!("{kind} {first} and {further} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_cni_configurations_are_explained() {
        let plugin = |field: &str, value: Value| {
            let mut plugin = json!({"type": "calico", "etcd_endpoints": "http://10.0.0.9:2379",
                "nodename": "n1", "policy": {"type": "k8s"},
                "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico-kubeconfig"}});
            plugin[field] = value;
            configuration_faults("a.conflist", &json!({"plugins": [plugin]}))
        };
        let (problems, kubeconfig) = plugin("mtu", json!(0));
        assert_eq!(problems, [""; 0]);
        assert_eq!(
            kubeconfig.as_deref(),
            Some(Path::new("/etc/cni/net.d/calico-kubeconfig"))
        );
        for (field, value, words) in [
            ("datastore_type", json!("kubernetes"), "etcdv3"),
            ("policy", json!({}), "policy.type"),
            ("etcd_endpoints", json!("__ETCD_ENDPOINTS__"), "placeholder"),
            (
                "etcd_endpoints",
                json!("http://<ETCD_IP>:<ETCD_PORT>"),
                "placeholder",
            ),
            ("kubernetes", json!({}), "kubeconfig"),
            ("type", json!("flannel"), "another plugin"),
        ] {
            let (problems, _) = plugin(field, value);
            assert_eq!(problems.len(), 1, "{field}: {problems:?}");
            assert!(problems[0].contains(words), "{problems:?}");
        }
        let template = "{\"datastore_type\": \"kubernetes\",\n \"mtu\": __CNI_MTU__}";
        assert_eq!(template_faults(template).len(), 1);
        assert_eq!(template_faults("{\"datastore_type\": \"etcdv3\"}"), [""; 0]);
    }

    #[test]
    fn mismatched_names_of_nodes_are_found() {
        let object = |name: &str| KubeNode {
            name: name.to_owned(),
            ..KubeNode::default()
        };
        let spec = |reference: &str| -> NodeSpec {
            let refs = json!({"orchRefs": [{"orchestrator": "k8s", "nodeName": reference}]});
            serde_json::from_value(refs).expect("a spec")
        };
        let objects = [object("n1"), object("n2.example"), object("n3")];
        let stored = [
            ("n1", NodeSpec::default()),
            ("n2", spec("n2.example")),
            ("n3.example", NodeSpec::default()),
        ];
        let problems = node_faults(&objects, &stored);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("no Node for node n3:"), "{problems:?}");
        assert!(
            problems[1].starts_with("Node n3.example of"),
            "{problems:?}"
        );
        assert!(node_faults(&objects[..2], &stored[..2]).is_empty());
    }

    #[test]
    fn findings_are_one_line_each() {
        let mut findings = Findings::default();
        findings.note("pools", Vec::new());
        findings.note("profiles", vec!["no profile".to_owned()]);
        let wanted = "ok       pools\nproblem  profiles: no profile\n";
        assert_eq!(findings.text(), wanted);
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(named("node", &many), "node a, b, c, d, e and 2 more");
    }
}
