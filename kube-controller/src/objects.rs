//! The objects of all kinds, with the keys of their resources.

use std::collections::{BTreeMap, BTreeSet};

use calico_kubernetes::{KubeNode, KubeService, KubeSlice, Outcome, PodEndpoint, Report};
use calico_model::ServiceName;

use crate::kinds::Watched;
use crate::limits::OBJECTS_OF_KIND_MAX;
use crate::object::{Object, ObjectId, Wanted};
use crate::target::Target;

/// How much of a kind is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completeness {
    /// No complete list was read.
    #[default]
    Unknown,
    /// All objects are known.
    Complete,
    /// The server does not have the kind.
    Missing,
}

/// The objects of a kind.
#[derive(Debug, Default)]
struct OfKind {
    objects: BTreeMap<ObjectId, Object>,
    completeness: Completeness,
}

/// The resources that may have to be written after a change of objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// The keys of the controller.
    pub keys: BTreeSet<Target>,
    /// The pods whose endpoints may differ.
    pub pods: BTreeSet<ObjectId>,
    /// Whether labels of Nodes may differ, and with them the nodes of pods.
    pub nodes: bool,
    /// The services that may have other routes or members.
    pub services: BTreeSet<ServiceName>,
}

/// The objects of the API server.
#[derive(Debug, Default)]
pub struct Objects {
    kinds: BTreeMap<Watched, OfKind>,
    /// The object of each key.
    owners: BTreeMap<Target, (Watched, ObjectId)>,
    /// The slices of each service.
    slices: BTreeMap<ServiceName, BTreeSet<ObjectId>>,
}

impl Objects {
    /// Replaces all objects of a kind.
    pub fn set_all(&mut self, watched: Watched, objects: Vec<Object>) -> Touched {
        let mut touched = Touched::default();
        let mut of_kind = self.kinds.remove(&watched).unwrap_or_default();
        let mut before = std::mem::take(&mut of_kind.objects);
        of_kind.completeness = Completeness::Complete;
        self.kinds.insert(watched, of_kind);
        for object in objects {
            let earlier = before.remove(&object.id);
            self.replace(watched, earlier.as_ref(), &object, &mut touched);
            let of_kind = self.kinds.entry(watched).or_default();
            of_kind.objects.insert(object.id.clone(), object);
        }
        for object in before.into_values() {
            self.forget(watched, &object, &mut touched);
        }
        touched
    }

    /// Records that the server does not have a kind. Objects that were known stay: a missing kind is
    /// no deletion of each of its objects.
    pub fn set_missing(&mut self, watched: Watched) {
        let of_kind = self.kinds.entry(watched).or_default();
        of_kind.completeness = Completeness::Missing;
    }

    /// Adds or replaces an object. A new one beyond the limit of its kind is left out, and the kind is
    /// no longer complete.
    pub fn set(&mut self, watched: Watched, object: Object) -> Touched {
        let mut touched = Touched::default();
        let of_kind = self.kinds.entry(watched).or_default();
        let is_new = !of_kind.objects.contains_key(&object.id);
        if is_new && of_kind.objects.len() >= OBJECTS_OF_KIND_MAX {
            of_kind.completeness = Completeness::Unknown;
            return touched;
        }
        let earlier = of_kind.objects.insert(object.id.clone(), object.clone());
        self.replace(watched, earlier.as_ref(), &object, &mut touched);
        touched
    }

    /// Removes an object.
    pub fn remove(&mut self, watched: Watched, id: &ObjectId) -> Touched {
        let mut touched = Touched::default();
        let of_kind = self.kinds.get_mut(&watched);
        if let Some(object) = of_kind.and_then(|kind| kind.objects.remove(id)) {
            self.forget(watched, &object, &mut touched);
        }
        touched
    }

    fn replace(
        &mut self,
        watched: Watched,
        earlier: Option<&Object>,
        object: &Object,
        touched: &mut Touched,
    ) {
        if earlier == Some(object) {
            return;
        }
        if let Some(earlier) = earlier {
            self.forget(watched, earlier, touched);
        }
        for key in object.keys(watched) {
            self.owners
                .insert(key.clone(), (watched, object.id.clone()));
            touched.keys.insert(key);
        }
        if let Some(service) = &object.service {
            let slices = self.slices.entry(service.clone()).or_default();
            slices.insert(object.id.clone());
        }
        touch_others(watched, object, touched);
    }

    fn forget(&mut self, watched: Watched, object: &Object, touched: &mut Touched) {
        if let Some(service) = &object.service
            && let Some(slices) = self.slices.get_mut(service)
        {
            slices.remove(&object.id);
            if slices.is_empty() {
                self.slices.remove(service);
            }
        }
        for key in object.keys(watched) {
            self.owners.remove(&key);
            touched.keys.insert(key);
        }
        touch_others(watched, object, touched);
    }

    /// Returns how much of a kind is known.
    pub fn completeness(&self, watched: Watched) -> Completeness {
        let of_kind = self.kinds.get(&watched);
        of_kind.map(|kind| kind.completeness).unwrap_or_default()
    }

    /// Returns the number of objects of a kind.
    pub fn count(&self, watched: Watched) -> usize {
        let of_kind = self.kinds.get(&watched);
        of_kind.map_or(0, |kind| kind.objects.len())
    }

    /// Returns an object.
    pub fn get(&self, watched: Watched, id: &ObjectId) -> Option<&Object> {
        self.kinds.get(&watched)?.objects.get(id)
    }

    /// Returns the object of a key.
    pub fn owner(&self, key: &Target) -> Option<&Object> {
        let (watched, id) = self.owners.get(key)?;
        self.get(*watched, id)
    }

    /// Returns the keys of all objects.
    pub fn keys(&self) -> impl Iterator<Item = &Target> {
        self.owners.keys()
    }

    /// Returns a namespace.
    pub fn namespace(&self, name: &str) -> Option<&Object> {
        let id = ObjectId {
            name: name.to_owned(),
            ..ObjectId::default()
        };
        self.get(Watched::Namespace, &id)
    }

    /// Returns a pod with an endpoint.
    pub fn pod(&self, id: &ObjectId) -> Option<&PodEndpoint> {
        match self.get(Watched::Pod, id)?.wanted() {
            Some(Wanted::Endpoint(pod)) => Some(pod),
            _ => None,
        }
    }

    /// Returns whether there is a node, readable or not.
    pub fn has_node(&self, name: &str) -> bool {
        let id = ObjectId {
            name: name.to_owned(),
            ..ObjectId::default()
        };
        self.get(Watched::Node, &id).is_some()
    }

    /// Returns a node.
    pub fn node(&self, name: &str) -> Option<&KubeNode> {
        let id = ObjectId {
            name: name.to_owned(),
            ..ObjectId::default()
        };
        match self.get(Watched::Node, &id)?.wanted() {
            Some(Wanted::Node(node)) => Some(node),
            _ => None,
        }
    }

    /// Returns a service.
    pub fn service(&self, name: &ServiceName) -> Option<&KubeService> {
        let id = ObjectId {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
        };
        match self.get(Watched::Service, &id)?.wanted() {
            Some(Wanted::Service(service)) => Some(service),
            _ => None,
        }
    }

    /// Returns the names of all services.
    pub fn services(&self) -> impl Iterator<Item = ServiceName> + '_ {
        let of_kind = self.kinds.get(&Watched::Service).into_iter();
        let ids = of_kind.flat_map(|kind| kind.objects.keys());
        ids.map(|id| ServiceName {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        })
    }

    /// Returns whether all objects of a kind are readable.
    pub fn all_readable(&self, watched: Watched) -> bool {
        let of_kind = self.kinds.get(&watched).into_iter();
        let mut objects = of_kind.flat_map(|kind| kind.objects.values());
        objects.all(|object| object.outcome != Outcome::Unreadable)
    }

    /// Returns whether a service has slices, also unreadable ones.
    pub fn has_slices(&self, service: &ServiceName) -> bool {
        self.slices.contains_key(service)
    }

    /// Returns the readable slices of a service.
    pub fn slices(&self, service: &ServiceName) -> impl Iterator<Item = &KubeSlice> {
        let ids = self.slices.get(service).into_iter().flatten();
        ids.filter_map(|id| match self.get(Watched::EndpointSlice, id)?.wanted() {
            Some(Wanted::Slice(slice)) => Some(&**slice),
            _ => None,
        })
    }

    /// Returns the reports about all objects.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        let objects = self.kinds.values().flat_map(|kind| kind.objects.values());
        objects.flat_map(|object| &object.reports)
    }
}

/// Marks the resources of other writers that an object affects.
fn touch_others(watched: Watched, object: &Object, touched: &mut Touched) {
    let id = &object.id;
    match watched {
        Watched::Pod => {
            touched.pods.insert(id.clone());
        }
        Watched::Service => drop(touched.services.insert(ServiceName {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        })),
        Watched::EndpointSlice => touched.services.extend(object.service.clone()),
        Watched::Node => touched.nodes = true,
        Watched::Namespace
        | Watched::ServiceAccount
        | Watched::NetworkPolicy
        | Watched::ClusterNetworkPolicy => {}
    }
}

#[cfg(test)]
mod tests {
    use calico_model::ResourceKey;
    use serde_json::json;

    use super::*;

    fn namespace(name: &str, team: &str) -> Object {
        let value = json!({"metadata": {"name": name, "labels": {"team": team}}});
        Object::new(Watched::Namespace, &value)
    }

    fn names(touched: &Touched) -> Vec<&str> {
        let keys = touched.keys.iter().filter_map(Target::resource);
        keys.map(ResourceKey::name).collect()
    }

    #[test]
    fn list_touches_only_what_differs() {
        let mut objects = Objects::default();
        let kind = Watched::Namespace;
        assert_eq!(objects.completeness(kind), Completeness::Unknown);
        let all = || vec![namespace("a", "x"), namespace("b", "x")];
        assert_eq!(names(&objects.set_all(kind, all())), ["kns.a", "kns.b"]);
        assert_eq!(objects.completeness(kind), Completeness::Complete);
        assert_eq!(objects.set_all(kind, all()), Touched::default());
        let changed = vec![namespace("a", "y"), namespace("c", "x")];
        let touched = objects.set_all(kind, changed);
        assert_eq!(names(&touched), ["kns.a", "kns.b", "kns.c"]);
        let known = objects.keys().filter_map(Target::resource);
        let known: Vec<_> = known.map(ResourceKey::name).collect();
        assert_eq!(known, ["kns.a", "kns.c"]);
    }

    #[test]
    fn removed_object_has_no_key() {
        let mut objects = Objects::default();
        let object = namespace("a", "x");
        let touched = objects.set(Watched::Namespace, object.clone());
        assert_eq!(names(&touched), ["kns.a"]);
        let key = touched.keys.first().expect("a key").clone();
        assert_eq!(objects.owner(&key), Some(&object));
        assert_eq!(
            objects.set(Watched::Namespace, object.clone()),
            Touched::default()
        );
        let touched = objects.remove(Watched::Namespace, &object.id);
        assert_eq!(names(&touched), ["kns.a"]);
        assert_eq!(objects.owner(&key), None);
        assert_eq!(objects.count(Watched::Namespace), 0);
    }

    #[test]
    fn missing_kind_keeps_its_objects() {
        let mut objects = Objects::default();
        objects.set_all(Watched::Namespace, vec![namespace("a", "x")]);
        objects.set_missing(Watched::Namespace);
        assert_eq!(objects.count(Watched::Namespace), 1);
        assert_eq!(
            objects.completeness(Watched::Namespace),
            Completeness::Missing
        );
    }
}
