//! The wishes of a Service for the addresses of its load balancer.

use std::net::IpAddr;

use serde_json::Value;

use crate::limits::ANNOTATION_VALUES_MAX;
use crate::name::letters_of_digest;
use crate::network::is_mapped;
use crate::object::{Labels, annotations, list, not};
use crate::report::{Fault, quoted};

/// The class of load balancers whose addresses Calico's controller assigns.
const CLASS: &str = "calico";

/// The annotations, as Calico has them.
const POOLS: [&str; 2] = ["projectcalico.org/ipv4pools", "projectcalico.org/ipv6pools"];
const ADDRESSES: &str = "projectcalico.org/loadBalancerIPs";

/// The names of the families, IPv4 first.
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// A Service of type `LoadBalancer`, as far as the assignment of addresses depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balancer {
    /// The UID of the Service.
    pub uid: String,
    /// The handle of its addresses in address management.
    pub handle: String,
    /// Whether its class is that of another controller: it is neither given an address nor changed.
    pub is_foreign: bool,
    /// Whether its class or an annotation requests an address from the pools.
    pub is_requested: bool,
    /// The addresses in its status, in their order.
    pub status: Vec<IpAddr>,
    /// Its wishes; the reason if they are invalid. The assigned addresses then stay.
    pub wish: Result<Wish, String>,
}

/// The wishes for addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// The families, in the order of the service; true for IPv6.
    pub families: Vec<bool>,
    /// The requested addresses, at most one of each family.
    pub addresses: Vec<IpAddr>,
    /// The pools by name or range for IPv4 and IPv6; `None`: all of load balancers.
    pub pools: [Option<Vec<String>>; 2],
}

impl Wish {
    /// Returns the requested address of a family.
    pub fn address(&self, is_ipv6: bool) -> Option<IpAddr> {
        let mut addresses = self.addresses.iter();
        addresses.find(|at| at.is_ipv6() == is_ipv6).copied()
    }
}

/// Reads the wishes of a Service; `None` if it is of another type.
pub(crate) fn balancer(value: &Value) -> Option<Balancer> {
    let spec = &value["spec"];
    if spec["type"] != "LoadBalancer" {
        return None;
    }
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
    let class = match &spec["loadBalancerClass"] {
        Value::Null => None,
        class => Some(class),
    };
    let annotations = annotations(value);
    let has = |name: &str| {
        let all = annotations.as_ref();
        all.is_ok_and(|all| all.contains_key(name))
    };
    let uid = text("uid").to_owned();
    Some(Balancer {
        handle: handle(text("name"), text("namespace"), &uid),
        uid,
        is_foreign: class.is_some_and(|class| class != CLASS),
        is_requested: class.is_some() || POOLS.iter().any(|name| has(name)) || has(ADDRESSES),
        status: status(value),
        wish: annotations
            .clone()
            .and_then(|annotations| wish(spec, &annotations))
            .map_err(|(field, reason)| format!("{field}: {reason}")),
    })
}

/// Returns the handle of a service's addresses: that of Calico, so that both find them.
fn handle(name: &str, namespace: &str, uid: &str) -> String {
    let text = format!("{name}-{namespace}-{uid}").to_lowercase();
    format!("lb-{}", letters_of_digest(&text))
}

/// Returns the addresses in the status, without those that are none.
fn status(value: &Value) -> Vec<IpAddr> {
    let entries = value["status"]["loadBalancer"]["ingress"].as_array();
    let entries = entries.into_iter().flatten();
    let addresses = entries.filter_map(|entry| entry["ip"].as_str()?.parse().ok());
    addresses.collect()
}

fn wish(spec: &Value, annotations: &Labels) -> Result<Wish, Fault> {
    let mut families = Vec::new();
    for (at, family) in list(&spec["ipFamilies"], "spec.ipFamilies")?
        .iter()
        .enumerate()
    {
        let known = FAMILIES.iter().position(|name| family == name);
        let fault = || (format!("spec.ipFamilies[{at}]"), not(family, "a family"));
        families.push(known.ok_or_else(fault)? == 1);
    }
    if families.is_empty() {
        families.push(false);
    }
    let mut addresses = Vec::new();
    for text in texts(annotations, ADDRESSES)?.unwrap_or_default() {
        let address = address(&text).map_err(|reason| (annotation(ADDRESSES), reason))?;
        addresses.push(address);
    }
    if addresses.is_empty()
        && let Some(text) = spec["loadBalancerIP"]
            .as_str()
            .filter(|text| !text.is_empty())
    {
        let field = || "spec.loadBalancerIP".to_owned();
        addresses.push(address(text).map_err(|reason| (field(), reason))?);
    }
    for address in &addresses {
        let is_ipv6 = address.is_ipv6();
        let same = addresses.iter().filter(|other| other.is_ipv6() == is_ipv6);
        if same.count() > 1 || !families.contains(&is_ipv6) {
            let reason = format!("{address}: there is one address for each family of the service");
            return Err((annotation(ADDRESSES), reason));
        }
    }
    let [v4, v6] = POOLS;
    Ok(Wish {
        families,
        addresses,
        pools: [texts(annotations, v4)?, texts(annotations, v6)?],
    })
}

fn annotation(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

fn address(text: &str) -> Result<IpAddr, String> {
    let address = text.parse::<IpAddr>().ok();
    let address = address.filter(|address| !is_mapped(*address));
    address.ok_or_else(|| format!("{} is not an address", quoted(&text.into())))
}

/// Reads a list of texts in JSON.
fn texts(of: &Labels, name: &str) -> Result<Option<Vec<String>>, Fault> {
    let Some(text) = of.get(name) else {
        return Ok(None);
    };
    let texts: Option<Vec<String>> = serde_json::from_str(text).ok();
    let texts = texts.filter(|texts| (1..=ANNOTATION_VALUES_MAX).contains(&texts.len()));
    let found = || quoted(&text.as_str().into());
    let fault = || {
        (
            annotation(name),
            format!("{} is not a list of texts in JSON", found()),
        )
    };
    texts.map(Some).ok_or_else(fault)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: Value, annotations: Value) -> Balancer {
        let mut spec = spec;
        spec["type"] = "LoadBalancer".into();
        let value = json!({"metadata": {"name": "web", "namespace": "prod", "uid": "7",
            "annotations": annotations}, "spec": spec,
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "x"}]}}});
        balancer(&value).expect("a balancer")
    }

    #[test]
    fn handle_has_the_form_of_calico() {
        let found = of(json!({}), json!({}));
        assert_eq!(found.handle, "lb-PxXhecuKJ3TgKYd8KjDGg1Ty1W15v9ewSwNcSkbWs");
        assert_eq!(found.status, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        assert!(!found.is_foreign && !found.is_requested);
        assert_eq!(balancer(&json!({"spec": {"type": "NodePort"}})), None);
    }

    #[test]
    fn class_selects_the_controller() {
        let own = of(json!({"loadBalancerClass": "calico"}), json!({}));
        assert!(!own.is_foreign && own.is_requested);
        for class in [json!("metallb"), json!(""), json!(7)] {
            let other = of(json!({"loadBalancerClass": class}), json!({}));
            assert!(other.is_foreign);
        }
    }

    #[test]
    fn annotations_are_wishes() {
        let spec = json!({"ipFamilies": ["IPv6", "IPv4"]});
        let annotations = json!({"projectcalico.org/ipv4pools": "[\"lb\"]",
            "projectcalico.org/loadBalancerIPs": "[\"192.0.2.9\",\"fd92::9\"]"});
        let found = of(spec, annotations);
        assert!(found.is_requested);
        let wish = found.wish.unwrap();
        assert_eq!(wish.families, [true, false]);
        assert_eq!(wish.address(true), "fd92::9".parse().ok());
        assert_eq!(wish.address(false), "192.0.2.9".parse().ok());
        assert_eq!(wish.pools, [Some(vec!["lb".to_owned()]), None]);
        let spec = json!({"loadBalancerIP": "192.0.2.9"});
        let wish = of(spec, json!({})).wish.unwrap();
        assert_eq!(wish.address(false), "192.0.2.9".parse().ok());
    }

    #[test]
    fn invalid_wishes_have_a_reason() {
        for (spec, name, text) in [
            (json!({"ipFamilies": ["IPv5"]}), "ipv4pools", "[\"a\"]"),
            (json!({}), "ipv4pools", "lb"),
            (json!({}), "ipv6pools", "[]"),
            (json!({}), "loadBalancerIPs", "[\"x\"]"),
            (json!({}), "loadBalancerIPs", "[\"::ffff:192.0.2.9\"]"),
            (json!({}), "loadBalancerIPs", "[\"fd92::9\"]"),
            (
                json!({}),
                "loadBalancerIPs",
                "[\"192.0.2.8\",\"192.0.2.9\"]",
            ),
        ] {
            let annotations = json!({format!("projectcalico.org/{name}"): text});
            assert!(of(spec, annotations).wish.is_err(), "{name} {text}");
        }
    }
}
