//! `cambric etcd-roles`: the roles of etcd for the parts of a fabric.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Result, ensure};
use calico_bgp::placement::cluster_ids;
use calico_model::{Region, is_resource_name};
use calico_store::roles::{EtcdRole, Namespaces, Owner, Part, Permission};
use calico_store::{KeyRange, RangeEnd};
use clap::ValueEnum;
use serde_json::{Value, json};

/// Number of cluster IDs that the role of a route reflector may claim: its BGP identifier, and three
/// hashes of its name.
const CLUSTER_IDS: usize = 4;

/// The arguments of `cambric etcd-roles`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A Node with Felix, the BGP client and the CNI plugin; repeat for several
    #[arg(long = "node", value_name = "NODE", value_parser = name)]
    nodes: Vec<String>,
    /// The Node of a route reflector, and its BGP identifier. Without an identifier, the reflector
    /// may claim no cluster ID: its Node has `routeReflectorClusterID`
    #[arg(long = "reflector", value_name = "NODE[=ROUTER-ID]")]
    reflectors: Vec<Reflector>,
    /// A namespace of endpoints that the CNI plugins write; repeat for several. Containers without
    /// a pod are in `default`
    #[arg(long = "namespace", value_name = "NAMESPACE", default_value = "default", value_parser = name)]
    namespaces: Vec<String>,
    /// The CNI plugin of each node writes endpoints of all nodes, in all namespaces
    #[arg(long, conflicts_with = "namespaces")]
    all_namespaces: bool,
    /// The region of the reports of Felix: `openstackRegion`
    #[arg(long, value_name = "REGION", default_value = "", value_parser = region)]
    region: Region,
    /// Print only the roles of this part; repeat for several
    #[arg(long = "part", value_name = "PART", value_parser = part)]
    parts: Vec<Part>,
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "commands")]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Commands of etcdctl
    Commands,
    /// JSON
    Json,
}

#[derive(Clone, Debug)]
struct Reflector {
    node: String,
    router_id: Option<Ipv4Addr>,
}

impl FromStr for Reflector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((node, id)) = text.split_once('=') else {
            let node = name(text)?;
            return Ok(Self {
                node,
                router_id: None,
            });
        };
        let id = id.parse().ok().filter(|id: &Ipv4Addr| !id.is_unspecified());
        let id =
            id.ok_or("a BGP identifier has the form of an IPv4 address, and is not 0.0.0.0")?;
        Ok(Self {
            node: name(node)?,
            router_id: Some(id),
        })
    }
}

/// Accepts the names of resources, which a shell does not change.
fn name(text: &str) -> Result<String, String> {
    match is_resource_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a name has lower-case letters, digits, '-' and '.'".to_owned()),
    }
}

fn region(text: &str) -> Result<Region, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let region = Region::new(text).ok();
    let region = region.filter(|_| text.chars().all(is_plain));
    region.ok_or_else(|| "a region has letters, digits, '-', '.' and '_'".to_owned())
}

fn part(text: &str) -> Result<Part, String> {
    let found = Part::ALL.into_iter().find(|part| part.name() == text);
    found.ok_or_else(|| format!("one of {}", Part::ALL.map(Part::name).join(", ")))
}

/// Prints the roles.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let roles = args.roles();
    ensure!(
        !roles.is_empty(),
        "--part: these roles are of one node: add --node or --reflector"
    );
    match args.output {
        Format::Commands => roles.iter().for_each(|role| print!("{}", commands(role))),
        Format::Json => {
            let all: Vec<Value> = roles.iter().map(value).collect();
            println!("{}", serde_json::to_string_pretty(&all)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn roles(&self) -> Vec<EtcdRole> {
        let mut roles = Vec::new();
        for part in Part::ALL {
            if !self.parts.is_empty() && !self.parts.contains(&part) {
                continue;
            }
            let owners = match part {
                Part::RouteReflector => self
                    .reflectors
                    .iter()
                    .map(|of| self.reflector(of))
                    .collect(),
                _ if part.is_of_one_node() => self.nodes.iter().map(|of| self.owner(of)).collect(),
                _ => vec![self.owner("")],
            };
            roles.extend(owners.iter().map(|owner| EtcdRole::new(part, owner)));
        }
        roles
    }

    fn owner(&self, node: &str) -> Owner {
        Owner {
            node: node.to_owned(),
            region: self.region.clone(),
            cluster_ids: Vec::new(),
            namespaces: match self.all_namespaces {
                true => Namespaces::All,
                false => Namespaces::Only(self.namespaces.clone()),
            },
        }
    }

    fn reflector(&self, reflector: &Reflector) -> Owner {
        let ids = reflector.router_id.into_iter();
        let ids = ids.flat_map(|id| cluster_ids(&reflector.node, id).take(CLUSTER_IDS));
        Owner {
            cluster_ids: ids.collect(),
            ..self.owner(&reflector.node)
        }
    }
}

/// Returns the commands that create a role. No text in them needs quotes in a shell.
fn commands(role: &EtcdRole) -> String {
    let mut text = format!("etcdctl role add {}\n", role.name);
    for Permission { access, range, .. } in &role.permissions {
        let prefix = if is_prefix(range) {
            "--prefix=true "
        } else {
            ""
        };
        let name = &role.name;
        text.push_str(&format!(
            "etcdctl role grant-permission {name} {prefix}{access} {range}\n"
        ));
    }
    text
}

/// Returns whether a range has all keys with a prefix. Otherwise it is a single key.
fn is_prefix(range: &KeyRange) -> bool {
    range.end != RangeEnd::Single
}

fn value(role: &EtcdRole) -> Value {
    let permissions = role.permissions.iter().map(|permission| {
        let range = &permission.range;
        let end = match &range.end {
            RangeEnd::Before(end) => String::from_utf8_lossy(end).into(),
            RangeEnd::Single | RangeEnd::Open => Value::Null,
        };
        json!({
            "type": permission.access.to_string(), "key": range.to_string(), "rangeEnd": end,
            "use": permission.purpose,
        })
    });
    json!({
        "role": role.name, "part": role.part.name(),
        "permissions": permissions.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Result<Args, String> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let words = ["etcd-roles"].iter().chain(words);
        let line = <Line as clap::Parser>::try_parse_from(words);
        line.map(|line| line.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn roles_of_the_given_nodes_and_of_the_fabric_are_printed() {
        let args = args(&[
            "--node",
            "n1",
            "--node",
            "n2",
            "--reflector",
            "rr1=10.0.0.9",
        ])
        .unwrap();
        let names: Vec<String> = args.roles().into_iter().map(|role| role.name).collect();
        assert_eq!(
            names,
            [
                "cambric-felix-n1",
                "cambric-felix-n2",
                "cambric-bgp-client-n1",
                "cambric-bgp-client-n2",
                "cambric-cni-n1",
                "cambric-cni-n2",
                "cambric-node-start-n1",
                "cambric-node-start-n2",
                "cambric-route-reflector-rr1",
                "cambric-ipam-gc",
                "cambric-orchestrator",
                "cambric-kube-controller",
                "cambric-operator",
            ]
        );
    }

    #[test]
    fn commands_and_json_have_the_same_permissions() {
        let args = args(&["--reflector", "rr1=10.0.0.9", "--part", "route-reflector"]).unwrap();
        let roles = args.roles();
        let [role] = &roles[..] else {
            panic!("one role");
        };
        let text = commands(role);
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("etcdctl role add cambric-route-reflector-rr1")
        );
        let own = "etcdctl role grant-permission cambric-route-reflector-rr1 write ";
        let claims = lines
            .clone()
            .filter(|line| line.contains("write /cambric/v1/cluster/"));
        assert_eq!(claims.count(), CLUSTER_IDS);
        assert!(
            text.contains(&format!("{own}/cambric/v1/reflector/rr1\n")),
            "{text}"
        );
        assert!(
            text.contains(&format!("{own}/cambric/v1/cluster/10.0.0.9\n")),
            "{text}"
        );
        let of_json = value(role);
        let of_json = of_json["permissions"].as_array().unwrap();
        assert_eq!(lines.clone().count(), of_json.len());
        for (line, permission) in lines.zip(of_json) {
            let [kind, key] = ["type", "key"].map(|field| permission[field].as_str().unwrap());
            assert!(line.ends_with(&format!(" {kind} {key}")), "{line}");
            assert_eq!(
                line.contains("--prefix=true"),
                permission["rangeEnd"].is_string()
            );
        }
    }

    #[test]
    fn names_that_a_shell_would_change_are_rejected() {
        for words in [
            ["--node", "n1;reboot"],
            ["--node", "n1/"],
            ["--node", ""],
            ["--namespace", "$(x)"],
            ["--region", "a b"],
            ["--region", "a/b"],
            ["--reflector", "rr1=0.0.0.0"],
            ["--reflector", "rr 1=10.0.0.1"],
            ["--part", "kubelet"],
        ] {
            let error = args(&words).map(drop).unwrap_err();
            assert!(error.contains(words[0]), "{error}");
        }
        assert!(args(&["--all-namespaces", "--namespace", "a"]).is_err());
    }
}
