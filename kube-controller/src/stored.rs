//! The content of the datastore, as far as the controller compares it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use calico_model::{ANNOUNCEMENTS_PREFIX, EndpointName, Kind, ResourceKey, SERVICES_PREFIX};
use calico_store::{Change, KeyRange, KeyValue, Revision};

use crate::felix::{Changed, REPORTS_PREFIX, Reports, is_configuration};
use crate::guard::{CONFIRMED_KEY, KEYS_PREFIX, SERVER_KEY};
use crate::object::ObjectId;
use crate::target::Target;

/// The kinds of resources that the controller reads and writes.
const KINDS: [Kind; 11] = [
    Kind::Profile,
    Kind::Tier,
    Kind::NetworkPolicy,
    Kind::GlobalNetworkPolicy,
    Kind::WorkloadEndpoint,
    Kind::Node,
    Kind::HostEndpoint,
    Kind::BgpConfiguration,
    Kind::FelixConfiguration,
    Kind::IpPool,
    Kind::KubeControllersConfiguration,
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
    resources: BTreeMap<Target, Value>,
    /// The reports of Felix about endpoints.
    reports: Reports,
    /// The endpoints of each pod.
    endpoints: BTreeMap<ObjectId, BTreeSet<Target>>,
    record: Option<Value>,
    confirmation: Option<Value>,
    /// The revisions of own writes that the follower has not delivered yet, by key.
    own: BTreeMap<String, Revision>,
}

/// The part of the datastore that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A key that the controller compares.
    Target(Target),
    /// The pools.
    Pools,
    /// Reports of Felix.
    Reports(Changed),
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
        let others = [
            KEYS_PREFIX,
            ANNOUNCEMENTS_PREFIX,
            SERVICES_PREFIX,
            REPORTS_PREFIX,
        ];
        let all = kinds.chain(others.map(str::to_owned));
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

    /// Sets the value of a key, as the follower delivers it. A value that is older than an own write
    /// of the key is ignored until the follower has delivered that write.
    pub fn set(&mut self, key: &[u8], value: Option<Value>) -> Part {
        let text = String::from_utf8_lossy(key);
        let is_ignored = self.is_older_than_own(&text, value.as_ref());
        match &*text {
            SERVER_KEY => {
                if !is_ignored {
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
        if text.starts_with(REPORTS_PREFIX) {
            let octets = value.as_ref().map(|value| &*value.octets);
            return Part::Reports(self.reports.take(&text, octets));
        }
        let Some(target) = Target::parse(&text) else {
            return Part::Other;
        };
        if target.resource().map(ResourceKey::kind) == Some(Kind::IpPool) {
            return Part::Pools;
        }
        if let Some(key) = target.resource().filter(|key| is_configuration(key)) {
            let octets = value.as_ref().map(|value| &*value.octets);
            return Part::Reports(self.reports.set_configuration(key, octets));
        }
        if !is_ignored {
            self.set_target(&target, value);
        }
        Part::Target(target)
    }

    /// Returns whether the follower has not yet reached the last own write of a key.
    fn is_older_than_own(&mut self, key: &str, value: Option<&Value>) -> bool {
        let (Some(own), Some(value)) = (self.own.get(key), value) else {
            return false;
        };
        let is_older = value.revision < *own;
        if !is_older {
            self.own.remove(key);
        }
        is_older
    }

    /// Sets the value of a resource after an own write at a revision, or after the conflict of a
    /// write. `was`: the revision that the write required. If the follower has delivered another value
    /// since, it also delivers the present one.
    pub fn set_own(
        &mut self,
        key: &Target,
        was: Revision,
        value: Option<Value>,
        written: Option<Revision>,
    ) {
        let known = self.resources.get(key).map(|value| value.revision);
        if known.unwrap_or(Revision::ZERO) != was {
            return;
        }
        match written {
            Some(revision) => drop(self.own.insert(key.to_string(), revision)),
            None => drop(self.own.remove(&key.to_string())),
        }
        self.set_target(key, value);
    }

    /// Sets the record after an own write. `was`: the revision of the record before it.
    pub fn set_own_record(&mut self, was: Option<Revision>, value: Value) {
        if self.record.as_ref().map(|record| record.revision) == was {
            self.own.insert(SERVER_KEY.to_owned(), value.revision);
            self.record = Some(value);
        }
    }

    /// Forgets which own writes the follower has not delivered: it reads the datastore again, which may
    /// have been restored from a backup.
    pub fn forget_own(&mut self) {
        self.own.clear();
    }

    fn set_target(&mut self, key: &Target, value: Option<Value>) {
        let pod = key.resource().and_then(pod_of);
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

    /// Returns the stored value of a key.
    pub fn get(&self, key: &Target) -> Option<&Value> {
        self.resources.get(key)
    }

    /// Returns what Felix reports about endpoints.
    pub const fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Returns all keys.
    pub fn keys(&self) -> impl Iterator<Item = &Target> {
        self.resources.keys()
    }

    /// Returns the resources of a kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &ResourceKey> {
        let resources = self.resources.keys().filter_map(Target::resource);
        resources.filter(move |key| key.kind() == kind)
    }

    /// Returns the endpoints of a pod.
    pub fn endpoints(&self, pod: &ObjectId) -> impl Iterator<Item = &Target> {
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
        let Part::Target(found) = stored.set(key.as_bytes(), Some(value(2))) else {
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

    /// Returns a store with a profile of revision 2, and the key of it.
    fn one() -> (Stored, Target) {
        let mut stored = Stored::default();
        let key = format!("{}kns.a", Kind::Profile.prefix());
        match stored.set(key.as_bytes(), Some(value(2))) {
            Part::Target(key) => (stored, key),
            part => panic!("{part:?}"),
        }
    }

    fn deliver(stored: &mut Stored, key: &Target, revision: i64) {
        stored.set(key.to_string().as_bytes(), Some(value(revision)));
    }

    #[test]
    fn values_before_an_own_write_are_ignored() {
        let (mut stored, key) = one();
        let own = Revision(5);
        stored.set_own(&key, Revision(2), Some(value(5)), Some(own));
        deliver(&mut stored, &key, 4);
        assert_eq!(stored.get(&key), Some(&value(5)));
        // Once the own write was delivered, the follower counts alone.
        deliver(&mut stored, &key, 5);
        deliver(&mut stored, &key, 3);
        assert_eq!(stored.get(&key), Some(&value(3)));
    }

    #[test]
    fn restored_datastore_replaces_values_of_own_writes() {
        let (mut stored, key) = one();
        stored.set_own(&key, Revision(2), Some(value(5)), Some(Revision(5)));
        stored.set_own_record(None, value(6));
        stored.forget_own();
        deliver(&mut stored, &key, 1);
        stored.set(SERVER_KEY.as_bytes(), Some(value(1)));
        assert_eq!(stored.get(&key), Some(&value(1)));
        assert_eq!(stored.record(), Some(&value(1)));
        // A conflict has the present value, also if that is older.
        deliver(&mut stored, &key, 9);
        stored.set_own(&key, Revision(9), Some(value(2)), None);
        assert_eq!(stored.get(&key), Some(&value(2)));
    }

    #[test]
    fn late_result_of_a_write_does_not_replace_a_newer_value() {
        let (mut stored, key) = one();
        deliver(&mut stored, &key, 7);
        stored.set_own(&key, Revision(2), Some(value(5)), Some(Revision(5)));
        assert_eq!(stored.get(&key), Some(&value(7)));
        deliver(&mut stored, &key, 4);
        assert_eq!(stored.get(&key), Some(&value(4)));
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
