//! The content of the datastore, as far as the controller compares it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use calico_model::{EndpointName, Key, Kind, ResourceKey};
use calico_store::{Change, KeyRange, KeyValue, Revision};

use crate::guard::{CONFIRMED_KEY, KEYS_PREFIX, SERVER_KEY};
use crate::object::ObjectId;

/// The kinds of resources that the controller reads and writes.
const KINDS: [Kind; 6] = [
    Kind::Profile,
    Kind::Tier,
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::WorkloadEndpoint,
    Kind::Node,
];

/// The orchestrator in the names of pods' endpoints.
const ORCHESTRATOR: &str = "k8s";

/// A stored value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The octets.
    pub octets: Bytes,
    /// The revision of its last write.
    pub revision: Revision,
}

/// The resources in the datastore.
#[derive(Debug, Default)]
pub struct Stored {
    resources: BTreeMap<ResourceKey, Value>,
    /// The endpoints of each pod.
    endpoints: BTreeMap<ObjectId, BTreeSet<ResourceKey>>,
    record: Option<Value>,
    confirmation: Option<Value>,
}

/// The part of the datastore that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A resource.
    Resource(ResourceKey),
    /// The record of the API server.
    Record,
    /// The confirmation of an operator.
    Confirmation,
    /// No part that the controller reads.
    Other,
}

impl Stored {
    /// Returns the ranges to follow.
    pub fn ranges() -> impl Iterator<Item = KeyRange> {
        let kinds = KINDS.into_iter().map(|kind| kind.prefix());
        let all = kinds.chain([KEYS_PREFIX.to_owned()]);
        all.map(KeyRange::prefix)
    }

    /// Applies a change of the datastore.
    pub fn apply(&mut self, change: Change) -> Part {
        match change {
            Change::Put(KeyValue {
                key,
                value: octets,
                mod_revision: revision,
                ..
            }) => self.set(&key, Some(Value { octets, revision })),
            Change::Delete(key) => self.set(&key, None),
        }
    }

    /// Sets the value of a key. A value that is older than the known one is ignored: the controller
    /// has written that itself.
    pub fn set(&mut self, key: &[u8], value: Option<Value>) -> Part {
        let text = String::from_utf8_lossy(key);
        match &*text {
            SERVER_KEY => {
                if !is_older(self.record.as_ref(), value.as_ref()) {
                    self.record = value;
                }
                return Part::Record;
            }
            CONFIRMED_KEY => {
                self.confirmation = value;
                return Part::Confirmation;
            }
            _ => {}
        }
        match text.parse() {
            Ok(Key::Resource(key)) => {
                self.set_resource(&key, value);
                Part::Resource(key)
            }
            _ => Part::Other,
        }
    }

    /// Sets the value of a resource.
    pub fn set_resource(&mut self, key: &ResourceKey, value: Option<Value>) {
        if is_older(self.resources.get(key), value.as_ref()) {
            return;
        }
        let pod = pod_of(key);
        match value {
            Some(value) => {
                self.resources.insert(key.clone(), value);
                if let Some(pod) = pod {
                    self.endpoints.entry(pod).or_default().insert(key.clone());
                }
            }
            None => {
                self.resources.remove(key);
                if let Some(pod) = pod
                    && let Some(keys) = self.endpoints.get_mut(&pod)
                {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.endpoints.remove(&pod);
                    }
                }
            }
        }
    }

    /// Returns the stored value of a resource.
    pub fn get(&self, key: &ResourceKey) -> Option<&Value> {
        self.resources.get(key)
    }

    /// Returns the keys of all resources.
    pub fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.resources.keys()
    }

    /// Returns the endpoints of a pod.
    pub fn endpoints(&self, pod: &ObjectId) -> impl Iterator<Item = &ResourceKey> {
        self.endpoints.get(pod).into_iter().flatten()
    }

    /// Returns the record of the API server.
    pub const fn record(&self) -> Option<&Value> {
        self.record.as_ref()
    }

    /// Returns the text with which an operator confirms an API server.
    pub const fn confirmation(&self) -> Option<&Value> {
        self.confirmation.as_ref()
    }
}

fn is_older(known: Option<&Value>, value: Option<&Value>) -> bool {
    match (known, value) {
        (Some(known), Some(value)) => value.revision < known.revision,
        _ => false,
    }
}

/// Returns the pod of an endpoint; `None` for other resources.
pub(crate) fn pod_of(key: &ResourceKey) -> Option<ObjectId> {
    let name = endpoint_name(key)?;
    Some(ObjectId {
        namespace: key.namespace().unwrap_or_default().to_owned(),
        name: name.workload().to_owned(),
    })
}

/// Returns the name of the endpoint of a pod; `None` for other resources.
pub(crate) fn endpoint_name(key: &ResourceKey) -> Option<EndpointName> {
    if key.kind() != Kind::WorkloadEndpoint {
        return None;
    }
    let name: EndpointName = key.name().parse().ok()?;
    (name.orchestrator() == ORCHESTRATOR).then_some(name)
}

#[cfg(test)]
mod tests {
    use calico_store::roles::{EtcdRole, Owner, Part as Role};

    use super::*;

    fn value(revision: i64) -> Value {
        Value {
            octets: Bytes::from_static(b"{}"),
            revision: Revision(revision),
        }
    }

    #[test]
    fn role_of_etcd_has_the_ranges() {
        let role = EtcdRole::new(Role::KubeController, &Owner::default());
        let granted: Vec<_> = role.read_ranges().collect();
        for range in Stored::ranges() {
            let is_granted = granted.iter().any(|own| own.covers(&range));
            assert!(is_granted, "{range}");
        }
        assert!(role.writes(SERVER_KEY.as_bytes()));
        assert!(!role.writes(b"/calico/resources/v3/projectcalico.org/ippools/p"));
    }

    #[test]
    fn endpoints_are_found_by_their_pod() {
        let mut stored = Stored::default();
        let prefix = Kind::WorkloadEndpoint.prefix();
        let key = format!("{prefix}prod/r1--c07-k8s-web--0-eth0");
        let other = format!("{prefix}prod/r1--c07-openstack-web--0-eth0");
        stored.set(other.as_bytes(), Some(value(1)));
        let Part::Resource(found) = stored.set(key.as_bytes(), Some(value(2))) else {
            panic!("no resource");
        };
        let pod = ObjectId {
            namespace: "prod".into(),
            name: "web-0".into(),
        };
        assert_eq!(stored.endpoints(&pod).collect::<Vec<_>>(), [&found]);
        stored.set(key.as_bytes(), None);
        assert_eq!(stored.endpoints(&pod).count(), 0);
    }

    #[test]
    fn older_values_are_ignored() {
        let mut stored = Stored::default();
        let key = format!("{}kns.a", Kind::Profile.prefix());
        for revision in [2, 5, 4] {
            stored.set(key.as_bytes(), Some(value(revision)));
        }
        let found = stored.keys().next().and_then(|key| stored.get(key));
        assert_eq!(found, Some(&value(5)));
    }

    #[test]
    fn own_keys_and_foreign_keys_are_distinguished() {
        let mut stored = Stored::default();
        let set = |stored: &mut Stored, key: &str| stored.set(key.as_bytes(), Some(value(1)));
        assert_eq!(set(&mut stored, SERVER_KEY), Part::Record);
        assert_eq!(set(&mut stored, CONFIRMED_KEY), Part::Confirmation);
        assert_eq!(set(&mut stored, "/cambric/x"), Part::Other);
        assert!(stored.record().is_some() && stored.confirmation().is_some());
    }
}
