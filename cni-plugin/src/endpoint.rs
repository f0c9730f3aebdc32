//! The stored endpoint of an attachment.

use std::net::IpAddr;

use calico_model::{API_VERSION, IpNat, Kind, Mac, WorkloadEndpointSpec};
use calico_store::resources::{Item, ResourceError};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::facts::Facts;
use crate::failure::{Code, Failure};
use crate::identity::Identity;
use crate::limits::WRITE_ATTEMPTS_MAX;
use crate::site::{Site, key, text};

/// Annotation with the network of an endpoint.
pub(crate) const NETWORK_ANNOTATION: &str = "cni.cambric/network";

/// Annotation with the result of another IPAM plugin besides addresses: routes and DNS.
const TAKEN_ANNOTATION: &str = "cni.cambric/ipam-result";

/// The content of an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) facts: &'a Facts,
    pub(crate) mac: Option<Mac>,
    pub(crate) addresses: &'a [IpAddr],
    /// The result of address management.
    pub(crate) taken: &'a Answer,
}

impl Endpoint<'_> {
    fn resource(&self, site: &Site<'_>) -> Result<Value, Failure> {
        let (identity, facts) = (self.identity, self.facts);
        let spec = WorkloadEndpointSpec {
            orchestrator: identity.orchestrator.to_owned(),
            node: site.config.node.clone(),
            container_id: identity.container_id.clone(),
            pod: identity.pod.clone(),
            endpoint: identity.ifname.clone(),
            service_account_name: facts.service_account.clone(),
            interface_name: identity.interface.clone(),
            mac: self.mac,
            ip_networks: self
                .addresses
                .iter()
                .map(|address| (*address).into())
                .collect(),
            profiles: facts.profiles.clone(),
            ports: facts.ports.clone(),
            ip_nats: self.floating()?,
            allow_spoofed_source_prefixes: facts.request.source_prefixes.clone(),
            ..WorkloadEndpointSpec::default()
        };
        let failed = |error| Failure::new(Code::Decode, format!("the endpoint: {error}"));
        let spec = serde_json::to_value(spec).map_err(failed)?;
        let mut annotations = json!({NETWORK_ANNOTATION: site.config.network});
        let besides = besides_addresses(self.taken);
        if besides != Answer::default() {
            let besides = serde_json::to_string(&besides).map_err(failed)?;
            annotations[TAKEN_ANNOTATION] = besides.into();
        }
        Ok(json!({
            "kind": Kind::WorkloadEndpoint.name(), "apiVersion": API_VERSION,
            "metadata": {
                "name": identity.name.to_string(), "namespace": identity.namespace,
                "labels": facts.labels, "annotations": annotations,
            },
            "spec": spec,
        }))
    }

    /// Returns the floating addresses, each with its address of the same family.
    fn floating(&self) -> Result<Vec<IpNat>, Failure> {
        let floating = self.facts.request.floating.iter();
        let nats = floating.map(|external| {
            let mut own = self.addresses.iter();
            let internal = own.find(|own| own.is_ipv4() == external.is_ipv4());
            let internal = internal.ok_or_else(|| {
                let message = format!(
                    "annotation floatingIPs: the container has no address of the family of {external}"
                );
                Failure::new(Code::Config, message)
            })?;
            Ok(IpNat {
                internal_ip: *internal,
                external_ip: *external,
                unknown: Default::default(),
            })
        });
        nats.collect()
    }

    /// Writes the endpoint, replacing the one that was read before if there was one.
    pub(crate) async fn write(&self, site: &Site<'_>, found: Option<&Item>) -> Result<(), Failure> {
        let mut resource = self.resource(site)?;
        let key = self.identity.key()?;
        let mut over = found.map(|item| item.revision.to_string());
        for _ in 0..WRITE_ATTEMPTS_MAX {
            let written = match over.take() {
                Some(version) => {
                    resource["metadata"]["resourceVersion"] = version.into();
                    site.resources.replace(resource.clone()).await
                }
                None => {
                    resource["metadata"]["resourceVersion"] = Value::Null;
                    site.resources.create(resource.clone()).await
                }
            };
            match written {
                Ok(_) => return Ok(()),
                // Another writer has changed it in the meantime: replace the present version.
                Err(
                    ResourceError::Exists(_)
                    | ResourceError::Stale { .. }
                    | ResourceError::Missing(_),
                ) => {
                    over = site.find(&key).await?.map(|item| item.revision.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        let message = format!(
            "endpoint {}: too many concurrent writes by other programs",
            self.identity.name
        );
        Err(Failure::new(Code::Later, message))
    }
}

/// Reads the stored endpoint with the name of an attachment, whatever container it belongs to.
pub(crate) async fn find(site: &Site<'_>, identity: &Identity) -> Result<Option<Item>, Failure> {
    site.find(&identity.key()?).await
}

/// Returns whether a stored endpoint belongs to this container.
pub(crate) fn is_of(item: &Item, container_id: &str) -> bool {
    text(item, "containerID") == container_id
}

fn besides_addresses(taken: &Answer) -> Answer {
    Answer {
        routes: taken.routes.clone(),
        dns: taken.dns.clone(),
        ..Answer::default()
    }
}

/// Returns the result of address management for a stored endpoint, without its addresses.
pub(crate) fn taken(item: &Item) -> Result<Answer, Failure> {
    let kept = &item.value["metadata"]["annotations"][TAKEN_ANNOTATION];
    let Some(text) = kept.as_str() else {
        return Ok(Answer::default());
    };
    serde_json::from_str(text).map_err(|error| {
        let message = format!(
            "endpoint {}: annotation {TAKEN_ANNOTATION}: {error}",
            item.key.name()
        );
        Failure::new(Code::Store, message)
    })
}

/// Deletes an endpoint if it has not been written since it was read. Returns whether it was
/// deleted.
pub(crate) async fn delete(site: &Site<'_>, item: &Item) -> Result<bool, Failure> {
    let version = item.revision.to_string();
    match site.resources.delete(&item.key, Some(&version)).await {
        Ok(_) => Ok(true),
        Err(ResourceError::Missing(_) | ResourceError::Stale { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Creates the missing profiles of an endpoint, unless another program maintains them.
pub(crate) async fn make_profiles(
    site: &Site<'_>,
    identity: &Identity,
    facts: &Facts,
) -> Result<(), Failure> {
    if site.config.api_server {
        return Ok(());
    }
    for name in &facts.profiles {
        let key = key(Kind::Profile, None, name)?;
        if site.find(&key).await?.is_some() {
            continue;
        }
        let resource = json!({
            "kind": Kind::Profile.name(), "apiVersion": API_VERSION,
            "metadata": {"name": name}, "spec": profile(name, identity, facts),
        });
        match site.resources.create(resource).await {
            Ok(_) | Err(ResourceError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the profile of this name as Calico's controllers, or its plugin, write it.
fn profile(name: &str, identity: &Identity, facts: &Facts) -> Value {
    if name.starts_with("kns.") {
        json!({
            "ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}],
            "labelsToApply": {"pcns.projectcalico.org/name": identity.namespace},
        })
    } else if name.starts_with("ksa.") {
        json!({"labelsToApply": {"pcsa.projectcalico.org/name": facts.service_account}})
    } else {
        json!({
            "ingress": [{"action": "Allow", "source": {"selector": format!("has({name})")}}],
            "egress": [{"action": "Allow"}],
            "labelsToApply": {name: ""},
        })
    }
}
