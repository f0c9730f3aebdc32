//! The data of an attachment besides its identity: from the runtime, or from the API server.

use std::collections::BTreeMap;

use calico_kubernetes::{AddressRequest, Converted, account_profile, namespace_profile};
use calico_model::{EndpointPort, Mac};
use serde_json::{Value, json};

use crate::api::{POD_UID, Pod};
use crate::config::Config;
use crate::failure::{Code, Failure};
use crate::identity::Identity;
use crate::request::Request;

/// Key of a pod's annotations as passed by containerd and CRI-O, if the configuration has this
/// capability.
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// The beginning of Calico's annotations in reports of a conversion.
const OWN_FIELD: &str = "metadata.annotations[cni.projectcalico.org/";

/// The beginning of annotations with limits of traffic that no other plugin follows.
const LIMITS_FIELD: &str = "metadata.annotations[qos.projectcalico.org/";

/// Prefix of the labels that endpoints inherit from their namespace.
const NAMESPACE_LABELS: &str = calico_kubernetes::NAMESPACE_LABELS;

/// Further data about an attachment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) service_account: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The profiles that give it rules and labels.
    pub(crate) profiles: Vec<String>,
    pub(crate) ports: Vec<EndpointPort>,
    /// The labels of its namespace; `None` if they are those of its profile.
    pub(crate) namespace: Option<BTreeMap<String, String>>,
    /// The requested MAC address of the container.
    pub(crate) mac: Option<Mac>,
    /// The requested addresses.
    pub(crate) request: AddressRequest,
}

impl Facts {
    /// Returns the data of an attachment.
    pub(crate) async fn of(
        request: &Request,
        config: &Config,
        identity: &Identity,
    ) -> Result<Self, Failure> {
        let api = config.api.as_ref().filter(|_| config.kubernetes);
        let mut facts = match api.filter(|_| !identity.pod.is_empty()) {
            Some(api) => {
                let uid = request.args.get(POD_UID).map(String::as_str);
                let uid = uid.filter(|uid| !uid.is_empty());
                Self::of_api(api.pod(identity, uid).await?)?
            }
            None => Self::of_runtime(request, config, identity)?,
        };
        let mac = config.runtime.get("mac").and_then(Value::as_str);
        let mac = mac.or_else(|| request.args.get("MAC").map(String::as_str));
        facts.mac = match mac {
            Some(text) => Some(text.parse().map_err(|error| {
                Failure::new(Code::Config, format!("the MAC address \"{text}\": {error}"))
            })?),
            None => facts.request.mac,
        };
        facts.allowed(config)?;
        Ok(facts)
    }

    fn of_api(pod: Pod) -> Result<Self, Failure> {
        let labels = pod.namespace.into_iter();
        let labels = labels.filter_map(|(key, value)| {
            Some((key.strip_prefix(NAMESPACE_LABELS)?.to_owned(), value))
        });
        Ok(Self {
            service_account: pod.endpoint.service_account,
            labels: pod.endpoint.labels,
            profiles: pod.endpoint.profiles,
            ports: pod.endpoint.ports,
            namespace: Some(labels.collect()),
            mac: None,
            request: requested(pod.request)?,
        })
    }

    /// Returns the data that the runtime has passed.
    fn of_runtime(
        request: &Request,
        config: &Config,
        identity: &Identity,
    ) -> Result<Self, Failure> {
        let arg = |key: &str| {
            let value = request.args.get(key);
            value.map(String::as_str).unwrap_or_default()
        };
        let annotations: BTreeMap<String, String> = match config.runtime.get(ANNOTATIONS) {
            Some(value) => serde_json::from_value(value.clone()).map_err(|error| {
                Failure::new(
                    Code::Config,
                    format!("runtimeConfig.{ANNOTATIONS}: {error}"),
                )
            })?,
            None => BTreeMap::new(),
        };
        let service_account = arg("K8S_POD_SERVICE_ACCOUNT").to_owned();
        let mut labels = labels(arg("K8S_POD_LABELS"), &config.args)?;
        if !service_account.is_empty() {
            labels.insert(
                "projectcalico.org/serviceaccount".to_owned(),
                service_account.clone(),
            );
        }
        // The annotations of a container that is no pod have the same meaning.
        let metadata = json!({"name": "pod", "namespace": "default", "annotations": annotations});
        let asked =
            calico_kubernetes::address_request(&Value::Null, &json!({ "metadata": metadata }));
        Ok(Self {
            profiles: profiles(config, identity, &service_account),
            service_account,
            labels,
            request: requested(asked)?,
            ..Self::default()
        })
    }

    /// Checks that the network allows what the annotations request.
    fn allowed(&self, config: &Config) -> Result<(), Failure> {
        let refuse = |annotation: &str, why: &str| {
            let message = format!("annotation {annotation}: {why}");
            Err(Failure::new(Code::Config, message))
        };
        let request = &self.request;
        if !request.addresses_without_ipam.is_empty() && !config.without_ipam {
            let why = "feature_control.ip_addrs_no_ipam does not allow it";
            return refuse("ipAddrsNoIpam", why);
        }
        if !request.floating.is_empty() && !config.floating {
            return refuse(
                "floatingIPs",
                "feature_control.floating_ips does not allow it",
            );
        }
        let Some(plugin) = &config.ipam.delegate else {
            return Ok(());
        };
        let asked = [
            ("ipv4pools", request.ipv4_pools.is_some()),
            ("ipv6pools", request.ipv6_pools.is_some()),
            ("ipFamilies", request.families.is_some()),
            ("ipAddrs", !request.addresses.is_empty()),
            ("ipAddrsNoIpam", !request.addresses_without_ipam.is_empty()),
        ];
        match asked.iter().find(|(_, is_asked)| *is_asked) {
            Some((annotation, _)) => {
                let why = format!("the addresses of this network are those of plugin \"{plugin}\"");
                refuse(annotation, &why)
            }
            None => Ok(()),
        }
    }
}

/// Returns the profiles of an attachment whose pod is not read from an API server.
fn profiles(config: &Config, identity: &Identity, account: &str) -> Vec<String> {
    if identity.orchestrator != "k8s" && !config.kubernetes {
        return vec![config.network.clone()];
    }
    let mut profiles = vec![namespace_profile(&identity.namespace)];
    if !account.is_empty() {
        profiles.push(account_profile(&identity.namespace, account));
    }
    profiles
}

/// Returns the request of the annotations, or the first one that cannot be followed.
fn requested(converted: Converted<AddressRequest>) -> Result<AddressRequest, Failure> {
    let mut reports = converted.reports.iter();
    if let Some(limit) = reports.find(|report| report.field.starts_with(LIMITS_FIELD)) {
        let message = format!("{}: {}", limit.field, limit.reason);
        return Err(Failure::new(Code::Unsupported, message));
    }
    let first = converted.reports.first().map(|report| {
        let own = report.field.strip_prefix(OWN_FIELD);
        let name = own.and_then(|own| own.strip_suffix(']'));
        let place = name.map_or_else(|| report.field.clone(), |name| format!("annotation {name}"));
        format!("{place}: {}", report.reason)
    });
    let message = first.unwrap_or_default();
    let failure = || Failure::new(Code::Config, message);
    converted.resource().ok_or_else(failure)
}

/// Returns the labels: `app=web,tier=front` of `CNI_ARGS`, and the labels of the specification's
/// conventions.
fn labels(text: &str, args: &Value) -> Result<BTreeMap<String, String>, Failure> {
    let wrong = |message: String| Failure::new(Code::Environment, message);
    let mut labels = BTreeMap::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            wrong(format!(
                "CNI_ARGS: K8S_POD_LABELS has \"{pair}\", which is not key=value"
            ))
        })?;
        labels.insert(key.to_owned(), value.to_owned());
    }
    for label in args["labels"].as_array().into_iter().flatten() {
        let (Some(key), Some(value)) = (label["key"].as_str(), label["value"].as_str()) else {
            return Err(wrong(format!(
                "args.cni.labels has {label}, which has no key and value"
            )));
        };
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_from_two_places() {
        let args = json!({"labels": [{"key": "tier", "value": "front"}]});
        let found = labels("app=web,empty=", &args).unwrap();
        let expected = [("app", "web"), ("empty", ""), ("tier", "front")];
        assert_eq!(
            found,
            expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
        );
        assert_eq!(labels("app", &Value::Null).unwrap_err().code, 4);
        assert_eq!(
            labels("", &json!({"labels": [{"key": "a"}]}))
                .unwrap_err()
                .code,
            4
        );
    }

    #[test]
    fn unsupported_limit_of_traffic_is_refused_by_name() {
        let annotations = json!({"qos.projectcalico.org/ingressBandwidth": "1M"});
        let metadata = json!({"name": "web", "namespace": "prod", "annotations": annotations});
        let asked =
            calico_kubernetes::address_request(&Value::Null, &json!({ "metadata": metadata }));
        let failure = requested(asked).unwrap_err();
        assert_eq!(failure.code, Code::Unsupported as u16);
        assert!(
            failure
                .message
                .contains("qos.projectcalico.org/ingressBandwidth")
        );
        // Another plugin of the chain follows this one.
        let annotations = json!({"kubernetes.io/ingress-bandwidth": "1M"});
        let metadata = json!({"name": "web", "namespace": "prod", "annotations": annotations});
        let asked =
            calico_kubernetes::address_request(&Value::Null, &json!({ "metadata": metadata }));
        assert!(requested(asked).is_ok());
    }
}
