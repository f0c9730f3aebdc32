//! The variables of calico-node.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use calico_model::{GoDuration, Network};
use serde_json::{Map, Value, json};

use super::detect::Method;
use super::limits::DETECTION_INTERVAL;

/// The settings of a start.
#[derive(Debug)]
pub(super) struct Settings {
    /// The name of the Node.
    pub(super) name: String,
    /// The name of the node in Kubernetes.
    pub(super) kubernetes: Option<String>,
    pub(super) ipv4: Family,
    pub(super) ipv6: Family,
    /// The AS number; `None`: as it is stored.
    pub(super) as_number: Option<String>,
    /// The pools to create if there is none of their family: IPv4 and IPv6.
    pub(super) pools: [Option<Pool>; 2],
    pub(super) refuses_conflicts: bool,
    pub(super) waits: bool,
    /// Whether the Node has the addresses of this host.
    pub(super) has_addresses: bool,
    /// Whether the node runs BGP.
    pub(super) bgp: bool,
    /// Time between two searches of addresses; `None`: only at the start.
    pub(super) interval: Option<Duration>,
    /// Whether this program maintains the kubeconfig of the CNI plugin.
    pub(super) manages_cni: bool,
    /// The service account of the plugin.
    pub(super) account: String,
    /// Variables without an effect, with reasons.
    pub(super) notes: Vec<String>,
}

/// The address of a family.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) source: Source,
    pub(super) method: Method,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// As it is stored; if there is none, IPv4 is searched.
    Stored,
    Searched,
    Absent,
    Given(Network),
}

/// A pool to create.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pool {
    pub(super) name: &'static str,
    /// The range; `None`: the default one.
    pub(super) cidr: Option<Network>,
    /// The other fields of its spec.
    pub(super) spec: Map<String, Value>,
}

/// Variables without an effect, and the reasons.
const WITHOUT_EFFECT: [(&str, &str); 15] = [
    (
        "CALICO_ROUTER_ID",
        "the BGP identifier of a node is its IPv4 address, otherwise a hash of its name",
    ),
    (
        "CALICO_ADVERTISE_CLUSTER_IPS",
        "set serviceClusterIPs in the BGPConfiguration",
    ),
    ("CALICO_DISABLE_FILE_LOGGING", "there are no log files"),
    ("CALICO_STARTUP_LOGLEVEL", "use the option --log"),
    ("CLUSTER_TYPE", "the ClusterInformation has no type here"),
    ("SLEEP", "use the option --once"),
    ("CALICO_NODENAME", "use NODENAME"),
    ("CALICO_NODENAME_FILE", "use the option --nodename-file"),
    ("CALICO_WAIT_FOR_DATASTORE", "use WAIT_FOR_DATASTORE"),
    ("KUBECONFIG", "use the option --kubeconfig"),
    (
        "USE_POD_CIDR",
        "a network for each node is that of another IPAM plugin, with usePodCidr",
    ),
    (
        "BGP_LOGSEVERITYSCREEN",
        "set logSeverityScreen in the BGPConfiguration",
    ),
    ("UPDATE_CNI_BINARIES", "the programs are always replaced"),
    ("SKIP_CNI_BINARIES", "the programs have names of their own"),
    (
        "CALICO_EARLY_NETWORKING",
        "the addresses of the host are configured before",
    ),
];

/// The prefix of the variables that Felix follows in its own environment.
const OF_FELIX: &str = "FELIX_";

/// The beginnings of calico-node's variables. Unsupported ones are reported.
const OF_CALICO: [&str; 6] = ["CALICO_", "CNI_", "DATASTORE_", "ETCD_", "IP_", "IP6_"];

/// Variables with such a beginning that are followed.
const FOLLOWED: [&str; 14] = [
    "CALICO_CNI_SERVICE_ACCOUNT",
    "CALICO_K8S_NODE_REF",
    "CALICO_MANAGE_CNI",
    "CALICO_NETWORKING_BACKEND",
    "CNI_CONF_ETCD_CA_CERT",
    "CNI_CONF_ETCD_CERT",
    "CNI_CONF_ETCD_KEY",
    "CNI_CONF_NAME",
    "CNI_MTU",
    "CNI_NETWORK_CONFIG",
    TEMPLATE_FILE,
    "CNI_NET_DIR",
    "IP6_AUTODETECTION_METHOD",
    "IP_AUTODETECTION_METHOD",
];

/// The file with the template, which may refer to any variable.
const TEMPLATE_FILE: &str = "CNI_NETWORK_CONFIG_FILE";

/// Variables of the datastore, which the connection follows or rejects, also with the prefix `CALICO_`.
const OF_DATASTORE: [&str; 11] = [
    "DATASTORE_TYPE",
    "ETCD_CA_CERT",
    "ETCD_CA_CERT_FILE",
    "ETCD_CERT",
    "ETCD_CERT_FILE",
    "ETCD_DISCOVERY_SRV",
    "ETCD_ENDPOINTS",
    "ETCD_KEY",
    "ETCD_KEY_FILE",
    "ETCD_PASSWORD",
    "ETCD_USERNAME",
];

/// Fields of a pool. IP-in-IP is for IPv4 only.
const OF_POOL: [&str; 7] = [
    "BLOCK_SIZE",
    "CIDR",
    "DISABLE_BGP_EXPORT",
    IPIP,
    "NAT_OUTGOING",
    "NODE_SELECTOR",
    "VXLAN",
];
const IPIP: &str = "IPIP";

impl Settings {
    /// Reads the variables of the environment. `host` is the name of this host.
    pub(super) fn of(variables: &BTreeMap<String, String>, host: &str) -> Result<Self> {
        let get = |name: &str| variables.get(name).map_or("", |value| value.trim());
        let set = |name: &str| Some(get(name).to_owned()).filter(|value| !value.is_empty());
        let flag = |name: &str, default: bool| match get(name).to_ascii_lowercase().as_str() {
            "" => Ok(default),
            "true" | "yes" | "1" => Ok(true),
            "false" | "no" | "0" => Ok(false),
            _ => bail!("{name}: is neither true nor false"),
        };
        let name = set("NODENAME").unwrap_or_else(|| {
            let host = set("HOSTNAME").unwrap_or_else(|| host.to_owned());
            host.trim().to_lowercase()
        });
        let (has_addresses, bgp) = match get("CALICO_NETWORKING_BACKEND") {
            "" | "bird" => (true, true),
            "vxlan" => (true, false),
            "none" => (false, false),
            other => bail!("CALICO_NETWORKING_BACKEND: \"{other}\" is not bird, vxlan or none"),
        };
        let no_pools = flag("NO_DEFAULT_POOLS", false)?;
        let pool = |ipv6: bool| match no_pools {
            true => Ok(None),
            false => pool(variables, ipv6),
        };
        let interval = match get("AUTODETECT_POLL_INTERVAL") {
            "" => DETECTION_INTERVAL,
            text => {
                let parsed: Result<GoDuration, _> = serde_json::from_value(json!(text));
                parsed
                    .context("AUTODETECT_POLL_INTERVAL: is not a duration such as 60s")?
                    .0
            }
        };
        let settings = Self {
            kubernetes: set("CALICO_K8S_NODE_REF"),
            ipv4: family(variables, "IP", false)?,
            ipv6: family(variables, "IP6", true)?,
            as_number: set("AS"),
            pools: [pool(false)?, pool(true)?],
            refuses_conflicts: !flag("DISABLE_NODE_IP_CHECK", false)?,
            waits: flag("WAIT_FOR_DATASTORE", false)?,
            has_addresses,
            bgp,
            interval: Some(interval).filter(|interval| !interval.is_zero()),
            manages_cni: flag("CALICO_MANAGE_CNI", true)?,
            account: set("CALICO_CNI_SERVICE_ACCOUNT")
                .unwrap_or_else(|| "calico-cni-plugin".to_owned()),
            notes: notes(variables),
            name,
        };
        if settings.name.is_empty() {
            bail!("NODENAME: is missing, and this host has no name");
        }
        if let Some(number) = &settings.as_number {
            let parsed: Result<calico_model::AsNumber, _> = serde_json::from_value(json!(number));
            parsed.with_context(|| format!("AS: \"{number}\" is not an AS number"))?;
        }
        Ok(settings)
    }
}

fn family(variables: &BTreeMap<String, String>, name: &str, ipv6: bool) -> Result<Family> {
    let get = |name: &str| variables.get(name).map_or("", |value| value.trim());
    let source = match get(name) {
        "" => Source::Stored,
        "autodetect" => Source::Searched,
        "none" => Source::Absent,
        text => {
            let given: Option<Network> = text.parse().ok();
            let given = given.filter(|given| given.address().is_ipv6() == ipv6);
            let family = if ipv6 { "IPv6" } else { "IPv4" };
            Source::Given(given.with_context(|| {
                format!("{name}: \"{text}\" is not autodetect, none or an {family} address")
            })?)
        }
    };
    let method = format!("{name}_AUTODETECTION_METHOD");
    Ok(Family {
        source,
        method: Method::parse(get(&method)).context(method)?,
    })
}

/// Returns the pool to create. Without a range there is one of IPv4, and none of IPv6.
fn pool(variables: &BTreeMap<String, String>, ipv6: bool) -> Result<Option<Pool>> {
    let version = if ipv6 { "6" } else { "4" };
    let full = |field: &str| format!("CALICO_IPV{version}POOL_{field}");
    let get = |field: &str| variables.get(&full(field)).map_or("", |value| value.trim());
    let cidr = match get("CIDR") {
        "none" => return Ok(None),
        "" if ipv6 => return Ok(None),
        "" => None,
        text => {
            let parsed: Option<Network> = text.parse().ok();
            let parsed = parsed.filter(|cidr| cidr.address().is_ipv6() == ipv6);
            Some(parsed.with_context(|| format!("{}: \"{text}\" is not a network", full("CIDR")))?)
        }
    };
    let mode = |field: &str| {
        Ok(match get(field).to_ascii_lowercase().as_str() {
            "" | "never" | "off" => "Never",
            "always" => "Always",
            "crosssubnet" | "cross-subnet" => "CrossSubnet",
            other => bail!(
                "{}: \"{other}\" is not Always, CrossSubnet or Never",
                full(field)
            ),
        })
    };
    let flag = |field: &str, default: bool| match get(field).to_ascii_lowercase().as_str() {
        "" => Ok(default),
        "true" => Ok(true),
        "false" => Ok(false),
        _ => bail!("{}: is neither true nor false", full(field)),
    };
    let mut spec = Map::new();
    let size = match get("BLOCK_SIZE") {
        "" => {
            if ipv6 {
                122
            } else {
                26
            }
        }
        text => text.parse::<u8>().with_context(|| {
            format!("{}: \"{text}\" is not a prefix length", full("BLOCK_SIZE"))
        })?,
    };
    spec.insert("blockSize".to_owned(), size.into());
    let ipip = if ipv6 { "Never" } else { mode(IPIP)? };
    let vxlan = mode("VXLAN")?;
    if ipip != "Never" && vxlan != "Never" {
        bail!("{} and {} exclude each other", full(IPIP), full("VXLAN"));
    }
    spec.insert("ipipMode".to_owned(), ipip.into());
    spec.insert("vxlanMode".to_owned(), vxlan.into());
    spec.insert(
        "natOutgoing".to_owned(),
        flag("NAT_OUTGOING", !ipv6)?.into(),
    );
    spec.insert(
        "disableBGPExport".to_owned(),
        flag("DISABLE_BGP_EXPORT", false)?.into(),
    );
    let selector = match get("NODE_SELECTOR") {
        "" => "all()",
        selector => selector,
    };
    spec.insert("nodeSelector".to_owned(), selector.into());
    let name = if ipv6 {
        "default-ipv6-ippool"
    } else {
        "default-ipv4-ippool"
    };
    Ok(Some(Pool { name, cidr, spec }))
}

/// Returns the variables without an effect. Values are not quoted.
fn notes(variables: &BTreeMap<String, String>) -> Vec<String> {
    let set = variables
        .iter()
        .filter(|(_, value)| !value.trim().is_empty());
    let template = variables.get("CNI_NETWORK_CONFIG");
    // The file may have any placeholder.
    let is_in_template = |name: &str| {
        let has = template.is_some_and(|text| text.contains(&format!("__{name}__")));
        has || variables.contains_key(TEMPLATE_FILE) && name.starts_with("CNI_")
    };
    let noted = set.filter_map(|(name, _)| {
        let mut without = WITHOUT_EFFECT.iter();
        if let Some((_, why)) = without.find(|(known, _)| known == name) {
            return Some(format!("{name} has no effect: {why}"));
        }
        if name.starts_with(OF_FELIX) {
            return Some(format!(
                "{name} has no effect here: Felix follows it in its own environment"
            ));
        }
        let is_of_calico = OF_CALICO.iter().any(|start| name.starts_with(start));
        let is_other = is_of_calico && !is_followed(name) && !is_in_template(name);
        is_other.then(|| format!("{name} has no effect: it is unknown"))
    });
    noted.collect()
}

/// Returns whether a variable has an effect.
fn is_followed(name: &str) -> bool {
    let own = name.strip_prefix("CALICO_").unwrap_or(name);
    let of_pool = |prefix: &str| {
        let field = own.strip_prefix(prefix).filter(|_| own != name);
        field.filter(|field| OF_POOL.contains(field))
    };
    FOLLOWED.contains(&name)
        || OF_DATASTORE.contains(&own)
        || of_pool("IPV4POOL_").is_some()
        || of_pool("IPV6POOL_").is_some_and(|field| field != IPIP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings> {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::of(&variables.collect(), "Host.Example\n")
    }

    #[test]
    fn variables_of_calicos_manifest_are_followed() {
        let settings = read(&[
            ("DATASTORE_TYPE", "etcdv3"),
            ("WAIT_FOR_DATASTORE", "true"),
            ("CALICO_K8S_NODE_REF", "c07.example"),
            ("NODENAME", "r1-c07"),
            ("CALICO_NETWORKING_BACKEND", "bird"),
            ("CLUSTER_TYPE", "k8s,bgp"),
            ("IP", "autodetect"),
            ("IP6", "none"),
            ("IP_AUTODETECTION_METHOD", "interface=eth.*"),
            ("AS", "64512"),
            ("CALICO_IPV4POOL_CIDR", "10.244.0.0/16"),
            ("CALICO_IPV4POOL_IPIP", "Always"),
            ("CALICO_IPV4POOL_VXLAN", "Never"),
            ("CALICO_IPV4POOL_BLOCK_SIZE", "24"),
            ("CALICO_IPV4POOL_NODE_SELECTOR", "rack == 'r1'"),
            ("CALICO_DISABLE_FILE_LOGGING", "true"),
            ("FELIX_IPV6SUPPORT", "false"),
            ("CALICO_NEW", "secret"),
        ])
        .expect("settings");
        assert_eq!(settings.name, "r1-c07");
        assert_eq!(settings.kubernetes.as_deref(), Some("c07.example"));
        assert_eq!(settings.ipv4.source, Source::Searched);
        assert_eq!(settings.ipv6.source, Source::Absent);
        assert!(matches!(settings.ipv4.method, Method::Interface(_)));
        assert!(settings.waits && settings.bgp && settings.refuses_conflicts);
        assert_eq!(settings.account, "calico-cni-plugin");
        let [Some(pool), None] = &settings.pools else {
            panic!("{:?}", settings.pools);
        };
        assert_eq!(pool.cidr, Some("10.244.0.0/16".parse().unwrap()));
        let spec = json!({"blockSize": 24, "ipipMode": "Always", "vxlanMode": "Never",
            "natOutgoing": true, "disableBGPExport": false, "nodeSelector": "rack == 'r1'"});
        assert_eq!(json!(pool.spec), spec);
        assert_eq!(settings.notes.len(), 4, "{:?}", settings.notes);
        assert!(!settings.notes.concat().contains("secret"));
    }

    #[test]
    fn defaults_are_those_of_calico() {
        let settings = read(&[]).expect("settings");
        assert_eq!(settings.name, "host.example");
        assert_eq!(settings.ipv4.source, Source::Stored);
        assert_eq!(settings.interval, Some(DETECTION_INTERVAL));
        let [Some(pool), None] = &settings.pools else {
            panic!("{:?}", settings.pools);
        };
        assert_eq!((pool.name, pool.cidr), ("default-ipv4-ippool", None));
        assert_eq!(pool.spec["blockSize"], 26);
        assert_eq!(
            read(&[("NO_DEFAULT_POOLS", "true")]).unwrap().pools,
            [None, None]
        );
        let none = [
            ("CALICO_IPV4POOL_CIDR", "none"),
            ("CALICO_IPV6POOL_CIDR", "fd00::/48"),
        ];
        let [None, Some(pool)] = read(&none).unwrap().pools else {
            panic!("IPv6");
        };
        assert_eq!(pool.spec["natOutgoing"], false);
        assert_eq!(
            read(&[("AUTODETECT_POLL_INTERVAL", "0s")])
                .unwrap()
                .interval,
            None
        );
    }

    #[test]
    fn invalid_variable_is_named() {
        for (name, value) in [
            ("IP", "10.0.0"),
            ("IP", "fd00::1"),
            ("IP6", "10.0.0.1"),
            ("IP_AUTODETECTION_METHOD", "any"),
            ("AS", "many"),
            ("CALICO_NETWORKING_BACKEND", "x"),
            ("CALICO_IPV4POOL_CIDR", "fd00::/48"),
            ("CALICO_IPV4POOL_IPIP", "maybe"),
            ("CALICO_IPV4POOL_BLOCK_SIZE", "x"),
            ("CALICO_IPV4POOL_NAT_OUTGOING", "x"),
            ("WAIT_FOR_DATASTORE", "perhaps"),
            ("AUTODETECT_POLL_INTERVAL", "x"),
        ] {
            let error = format!("{:#}", read(&[(name, value)]).expect_err(name));
            assert!(error.contains(name), "{name}: {error}");
        }
        let both = [
            ("CALICO_IPV4POOL_IPIP", "Always"),
            ("CALICO_IPV4POOL_VXLAN", "Always"),
        ];
        assert!(read(&both).is_err());
    }

    #[test]
    fn each_variable_of_calico_is_followed_or_reported() {
        let noted = |name: &str| {
            // A note needs no valid value.
            let variables = BTreeMap::from([(name.to_owned(), "QXZ".to_owned())]);
            let notes = notes(&variables);
            let is_named = |note: &String| note.split(' ').next() == Some(name);
            assert!(notes.iter().all(is_named), "{notes:?}");
            assert!(!notes.concat().contains("QXZ"));
            notes.len()
        };
        for name in FOLLOWED.iter().chain(&OF_DATASTORE) {
            assert_eq!(noted(name), 0, "{name}");
        }
        for name in [
            "IP",
            "CALICO_ETCD_ENDPOINTS",
            "CALICO_IPV4POOL_IPIP",
            "CALICO_IPV6POOL_CIDR",
            "NODENAME",
            "PATH",
            "KUBERNETES_SERVICE_HOST",
        ] {
            assert_eq!(noted(name), 0, "{name}");
        }
        for name in [
            "CALICO_NODENAME",
            "CALICO_NODENAME_FILE",
            "CALICO_WAIT_FOR_DATASTORE",
            "CALICO_IPV4POOL_BLOCKSIZE",
            "CALICO_IPV6POOL_IPIP",
            "CALICO_K8S_API_ENDPOINT",
            "CALICO_CNI_X",
            "CALICO_IP",
            "IP_AUTODETECT_METHOD",
            "IP6_AUTODETECTION",
            "CNI_NETDIR",
            "ETCD_ENDPOINT",
            "USE_POD_CIDR",
            "BGP_LOGSEVERITYSCREEN",
            "KUBECONFIG",
        ] {
            assert_eq!(noted(name), 1, "{name}");
        }
        let variables = [
            ("CNI_NETWORK_CONFIG", r#"{"mtu": "__CNI_OTHER__"}"#),
            ("CNI_OTHER", "7"),
        ];
        assert_eq!(read(&variables).expect("settings").notes, [""; 0]);
    }
}
