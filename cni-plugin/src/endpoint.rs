//! The endpoint of an attachment, as it is stored.

use std::net::IpAddr;

use calico_model::{API_VERSION, Kind, Mac, WorkloadEndpointSpec};
use calico_store::resources::{Item, ResourceError};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::failure::{Code, Failure};
use crate::identity::{Facts, Identity};
use crate::limits::WRITE_ATTEMPTS_MAX;
use crate::site::{Site, key, text};

/// Which network's an endpoint is.
pub(crate) const NETWORK_ANNOTATION: &str = "cni.cambric/network";

/// What another plugin's address management gave besides addresses: routes and DNS, as in a result.
const TAKEN_ANNOTATION: &str = "cni.cambric/ipam-result";

/// What an endpoint has.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) facts: &'a Facts,
    pub(crate) mac: Option<Mac>,
    pub(crate) addresses: &'a [IpAddr],
    /// What address management has answered.
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
            profiles: identity.profiles(site.config, facts),
            ..WorkloadEndpointSpec::default()
        };
        let mut labels = facts.labels.clone();
        if !facts.service_account.is_empty() {
            labels.insert(
                "projectcalico.org/serviceaccount".to_owned(),
                facts.service_account.clone(),
            );
        }
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
                "labels": labels, "annotations": annotations,
            },
            "spec": spec,
        }))
    }

    /// Writes it, over the one that was read before if there was one.
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
                // Somebody else has written it meanwhile: it goes over what is there now.
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
            "endpoint {} is written by others all the time",
            self.identity.name
        );
        Err(Failure::new(Code::Later, message))
    }
}

/// The stored endpoint of an attachment's name, whosever it is.
pub(crate) async fn find(site: &Site<'_>, identity: &Identity) -> Result<Option<Item>, Failure> {
    site.find(&identity.key()?).await
}

/// Whether a stored endpoint is of this container.
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

/// What address management has answered for a stored endpoint, its addresses left out.
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

/// Deletes an endpoint as it was read; one that others have written since is theirs. Tells whether it
/// was still there, and so.
pub(crate) async fn delete(site: &Site<'_>, item: &Item) -> Result<bool, Failure> {
    let version = item.revision.to_string();
    match site.resources.delete(&item.key, Some(&version)).await {
        Ok(_) => Ok(true),
        Err(ResourceError::Missing(_) | ResourceError::Stale { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes the profiles of an endpoint that nobody else looks after, where they are not there.
pub(crate) async fn make_profiles(
    site: &Site<'_>,
    identity: &Identity,
    facts: &Facts,
) -> Result<(), Failure> {
    if site.config.api_server {
        return Ok(());
    }
    for name in identity.profiles(site.config, facts) {
        let key = key(Kind::Profile, None, &name)?;
        if site.find(&key).await?.is_some() {
            continue;
        }
        let resource = json!({
            "kind": Kind::Profile.name(), "apiVersion": API_VERSION,
            "metadata": {"name": name}, "spec": profile(&name, identity, facts),
        });
        match site.resources.create(resource).await {
            Ok(_) | Err(ResourceError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What Calico's controllers, or its plugin, put into a profile of this name.
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
