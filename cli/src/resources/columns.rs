//! The tables of each kind, as calicoctl prints them.

use calico_model::Kind;
use serde_json::Value;

use crate::show::clean;

/// Data for a table beside the resources themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    /// The AS number of nodes without one of their own.
    pub(crate) cluster_as: String,
    /// Whether namespaces are shown.
    pub(crate) namespaces: bool,
}

/// How a cell is made from a resource.
#[derive(Clone, Copy)]
pub(super) enum Cell {
    /// The field as text, or empty.
    Text(&'static str),
    /// The field as text, or this text.
    Or(&'static str, &'static str),
    /// The number of items of a list.
    Count(&'static str),
    /// The items of a list, or `name=value` of an object, with commas between them.
    List(&'static str),
    /// The same, cut to 80 characters.
    Short(&'static str),
    /// A number, in the way of Go: a million is `1e+06`.
    Float(&'static str),
    /// A value from more than one field.
    Made(fn(&Value, &Around) -> String),
}

use Cell::{Count, Float, List, Made, Or, Short, Text};

/// The table of a kind.
struct Table {
    /// Headings of the table.
    narrow: &'static [&'static str],
    /// Headings of the wide table.
    wide: &'static [&'static str],
    /// Heading and cell, beside name and namespace, which all have.
    cells: &'static [(&'static str, Cell)],
}

/// Returns the headings of a kind's table.
pub(super) fn headings(kind: Kind, wide: bool, around: &Around) -> Vec<String> {
    let table = table(kind);
    let namespace = (around.namespaces && kind.scope() == calico_model::Scope::Namespaced)
        .then_some("NAMESPACE");
    let headings = if wide { table.wide } else { table.narrow };
    let all = namespace.iter().chain(headings);
    all.map(|heading| (*heading).to_owned()).collect()
}

/// Returns the cells of columns with these headings; `None` if the kind lacks such a column.
pub(super) fn cells(kind: Kind, headings: &[String]) -> Option<Vec<Cell>> {
    let cells = table(kind).cells;
    headings
        .iter()
        .map(|heading| match heading.as_str() {
            "NAME" => Some(Text("/metadata/name")),
            "NAMESPACE" => Some(Text("/metadata/namespace")),
            heading => Some(cells.iter().find(|(known, _)| *known == heading)?.1),
        })
        .collect()
}

impl Cell {
    /// Returns the cell of a resource.
    pub(super) fn of(self, resource: &Value, around: &Around) -> String {
        clean(&self.text(resource, around))
    }

    fn text(self, resource: &Value, around: &Around) -> String {
        let scalar = |path| resource.pointer(path).map_or_else(String::new, text);
        match self {
            Text(path) => scalar(path),
            Or(path, otherwise) => match scalar(path) {
                text if text.is_empty() => otherwise.to_owned(),
                text => text,
            },
            Count(path) => {
                let list = resource.pointer(path).and_then(Value::as_array);
                list.map_or(0, Vec::len).to_string()
            }
            List(path) => joined(resource.pointer(path)),
            Short(path) => short(joined(resource.pointer(path))),
            Float(path) => resource
                .pointer(path)
                .and_then(Value::as_f64)
                .map_or_else(|| "<nil>".to_owned(), float),
            Made(make) => make(resource, around),
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn joined(value: Option<&Value>) -> String {
    let items: Vec<String> = match value {
        Some(Value::Array(items)) => items.iter().map(text).collect(),
        Some(Value::Object(fields)) => fields
            .iter()
            .map(|(name, value)| format!("{name}={}", text(value)))
            .collect(),
        _ => Vec::new(),
    };
    items.join(",")
}

/// Cuts a text to 80 characters.
fn short(text: String) -> String {
    const LENGTH_MAX: usize = 80;
    if text.chars().count() <= LENGTH_MAX {
        return text;
    }
    let kept: String = text.chars().take(LENGTH_MAX - "...".len()).collect();
    kept + "..."
}

/// Returns a number in the shortest form, with an exponent of two digits from a million on.
fn float(number: f64) -> String {
    let plain = (1e-4..1e6).contains(&number.abs()) || number == 0.0;
    if plain {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

fn peers_nodes(peer: &Value, _: &Around) -> String {
    let field = |name| text(&peer["spec"][name]);
    match (field("node"), field("nodeSelector")) {
        (node, _) if !node.is_empty() => node,
        (_, selector) if !selector.is_empty() => selector,
        _ => "(global)".to_owned(),
    }
}

fn nodes_as(node: &Value, around: &Around) -> String {
    match node.pointer("/spec/bgp") {
        None | Some(Value::Null) => String::new(),
        Some(bgp) => match text(&bgp["asNumber"]) {
            number if number.is_empty() => format!("({})", around.cluster_as),
            number => number,
        },
    }
}

fn workload(endpoint: &Value, _: &Around) -> String {
    match text(&endpoint["spec"]["workload"]) {
        workload if workload.is_empty() => text(&endpoint["spec"]["pod"]),
        workload => workload,
    }
}

fn nats(endpoint: &Value, _: &Around) -> String {
    let nats = endpoint["spec"]["ipNATs"].as_array().into_iter().flatten();
    let one = |nat: &Value| {
        format!(
            "{{{} {}}}",
            text(&nat["internalIP"]),
            text(&nat["externalIP"])
        )
    };
    nats.map(one).collect::<Vec<_>>().join(",")
}

const NAME: &[&str] = &["NAME"];

const fn table(kind: Kind) -> Table {
    let (narrow, wide, cells): (&[&str], &[&str], &[(&str, Cell)]) = match kind {
        Kind::Node => (NAME, &["NAME", "ASN", "IPV4", "IPV6"], NODE),
        Kind::BgpConfiguration => (BGP_HEADINGS, BGP_HEADINGS, BGP_CONFIGURATION),
        Kind::BgpPeer => (PEER_HEADINGS, PEER_HEADINGS, BGP_PEER),
        Kind::BgpFilter => (FILTER_HEADINGS, FILTER_HEADINGS, BGP_FILTER),
        Kind::IpPool => (&["NAME", "CIDR", "SELECTOR"], POOL_HEADINGS, IP_POOL),
        Kind::BfdConfiguration => (
            &["NAME", "NODESELECTOR"],
            &["NAME", "NODESELECTOR", "INTERFACES"],
            &[
                ("NODESELECTOR", Or("/spec/nodeSelector", "all()")),
                ("INTERFACES", Count("/spec/interfaces")),
            ],
        ),
        Kind::IpReservation => (
            NAME,
            &["NAME", "CIDRS"],
            &[("CIDRS", Short("/spec/reservedCIDRs"))],
        ),
        Kind::IpamConfiguration => (
            &["NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS"],
            &[
                "NAME",
                "STRICTAFFINITY",
                "AUTOALLOCATEBLOCKS",
                "MAXBLOCKSPERHOST",
            ],
            IPAM_CONFIGURATION,
        ),
        Kind::WorkloadEndpoint => (
            &["WORKLOAD", "NODE", "NETWORKS", "INTERFACE"],
            &[
                "NAME",
                "WORKLOAD",
                "NODE",
                "NETWORKS",
                "INTERFACE",
                "PROFILES",
                "NATS",
            ],
            WORKLOAD_ENDPOINT,
        ),
        Kind::HostEndpoint => (
            &["NAME", "NODE"],
            &["NAME", "NODE", "INTERFACE", "IPS", "PROFILES"],
            HOST_ENDPOINT,
        ),
        Kind::Profile => (
            NAME,
            &["NAME", "LABELS"],
            &[("LABELS", List("/spec/labelsToApply"))],
        ),
        Kind::NetworkPolicy
        | Kind::GlobalNetworkPolicy
        | Kind::StagedNetworkPolicy
        | Kind::StagedGlobalNetworkPolicy => (
            &["NAME", "TIER"],
            &["NAME", "TIER", "ORDER", "SELECTOR"],
            POLICY,
        ),
        Kind::StagedKubernetesNetworkPolicy => (
            NAME,
            &["NAME", "PODSELECTOR"],
            &[("PODSELECTOR", Text("/spec/podSelector"))],
        ),
        Kind::Tier => (
            &["NAME", "ORDER"],
            &["NAME", "ORDER"],
            &[("ORDER", Float("/spec/order"))],
        ),
        Kind::NetworkSet | Kind::GlobalNetworkSet => {
            (NAME, &["NAME", "NETS"], &[("NETS", Short("/spec/nets"))])
        }
        Kind::ClusterInformation => (CLUSTER_HEADINGS, CLUSTER_HEADINGS, CLUSTER_INFORMATION),
        Kind::CalicoNodeStatus => (
            &["NAME", "NODE"],
            &["NAME", "NODE", "CLASSES"],
            &[
                ("NODE", Text("/spec/node")),
                ("CLASSES", List("/spec/classes")),
            ],
        ),
        Kind::BlockAffinity
        | Kind::FelixConfiguration
        | Kind::KubeControllersConfiguration
        | Kind::LiveMigration => (NAME, NAME, &[]),
    };
    Table {
        narrow,
        wide,
        cells,
    }
}

const NODE: &[(&str, Cell)] = &[
    ("ASN", Made(nodes_as)),
    ("IPV4", Text("/spec/bgp/ipv4Address")),
    ("IPV6", Text("/spec/bgp/ipv6Address")),
];

const BGP_HEADINGS: &[&str] = &["NAME", "LOGSEVERITY", "MESHENABLED", "ASNUMBER"];

const BGP_CONFIGURATION: &[(&str, Cell)] = &[
    ("LOGSEVERITY", Text("/spec/logSeverityScreen")),
    ("MESHENABLED", Or("/spec/nodeToNodeMeshEnabled", "-")),
    ("ASNUMBER", Or("/spec/asNumber", "-")),
];

const PEER_HEADINGS: &[&str] = &["NAME", "PEERIP", "NODE", "ASN"];

const BGP_PEER: &[(&str, Cell)] = &[
    ("PEERIP", Text("/spec/peerIP")),
    ("NODE", Made(peers_nodes)),
    ("ASN", Or("/spec/asNumber", "0")),
];

const FILTER_HEADINGS: &[&str] = &[
    "NAME",
    "NUMEXPORTV4",
    "NUMIMPORTV4",
    "NUMEXPORTV6",
    "NUMIMPORTV6",
];

const BGP_FILTER: &[(&str, Cell)] = &[
    ("NUMEXPORTV4", Count("/spec/exportV4")),
    ("NUMIMPORTV4", Count("/spec/importV4")),
    ("NUMEXPORTV6", Count("/spec/exportV6")),
    ("NUMIMPORTV6", Count("/spec/importV6")),
];

const POOL_HEADINGS: &[&str] = &[
    "NAME",
    "CIDR",
    "NAT",
    "IPIPMODE",
    "VXLANMODE",
    "DISABLED",
    "DISABLEBGPEXPORT",
    "SELECTOR",
    "ASSIGNMENTMODE",
];

const IP_POOL: &[(&str, Cell)] = &[
    ("CIDR", Text("/spec/cidr")),
    ("NAT", Or("/spec/natOutgoing", "false")),
    ("IPIPMODE", Or("/spec/ipipMode", "Never")),
    ("VXLANMODE", Or("/spec/vxlanMode", "Never")),
    ("DISABLED", Or("/spec/disabled", "false")),
    ("DISABLEBGPEXPORT", Or("/spec/disableBGPExport", "false")),
    ("SELECTOR", Text("/spec/nodeSelector")),
    ("ASSIGNMENTMODE", Text("/spec/assignmentMode")),
];

const IPAM_CONFIGURATION: &[(&str, Cell)] = &[
    ("STRICTAFFINITY", Or("/spec/strictAffinity", "false")),
    (
        "AUTOALLOCATEBLOCKS",
        Or("/spec/autoAllocateBlocks", "false"),
    ),
    ("MAXBLOCKSPERHOST", Or("/spec/maxBlocksPerHost", "0")),
];

const WORKLOAD_ENDPOINT: &[(&str, Cell)] = &[
    ("ORCHESTRATOR", Text("/spec/orchestrator")),
    ("WORKLOAD", Made(workload)),
    ("NODE", Text("/spec/node")),
    ("NETWORKS", List("/spec/ipNetworks")),
    ("INTERFACE", Text("/spec/interfaceName")),
    ("PROFILES", List("/spec/profiles")),
    ("NATS", Made(nats)),
];

const HOST_ENDPOINT: &[(&str, Cell)] = &[
    ("NODE", Text("/spec/node")),
    ("INTERFACE", Text("/spec/interfaceName")),
    ("IPS", List("/spec/expectedIPs")),
    ("PROFILES", List("/spec/profiles")),
];

const POLICY: &[(&str, Cell)] = &[
    ("TIER", Text("/spec/tier")),
    ("ORDER", Float("/spec/order")),
    ("SELECTOR", Text("/spec/selector")),
];

const CLUSTER_HEADINGS: &[&str] = &[
    "NAME",
    "CLUSTERGUID",
    "CLUSTERTYPE",
    "CALICOVERSION",
    "DATASTOREREADY",
];

const CLUSTER_INFORMATION: &[(&str, Cell)] = &[
    ("CLUSTERGUID", Text("/spec/clusterGUID")),
    ("CLUSTERTYPE", Text("/spec/clusterType")),
    ("CALICOVERSION", Text("/spec/calicoVersion")),
    ("DATASTOREREADY", Or("/spec/datastoreReady", "<nil>")),
];
