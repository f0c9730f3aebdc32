//! The Nodes of the datastore that belong to Nodes of the API server.

use calico_model::{NodeSpec, Resource};

use crate::objects::Objects;
use crate::stored::Value;

/// The orchestrator in the references of a Node.
const ORCHESTRATOR: &str = "k8s";

/// Returns the names of the API server's Nodes that a stored Node refers to (`spec.orchRefs`). A Node
/// without such a reference belongs to another orchestrator.
pub(crate) fn node_of(found: &Value) -> Vec<String> {
    let Ok(node) = Resource::<NodeSpec>::parse(&found.octets) else {
        return Vec::new();
    };
    let references = node.spec.orch_refs.into_iter();
    let own = references.filter(|reference| reference.orchestrator == ORCHESTRATOR);
    let names = own.map(|reference| reference.node_name);
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns whether a stored Node refers to Nodes of the API server, and none of these exists. The list
/// of the Nodes must be complete.
pub(crate) fn is_stale(found: &Value, objects: &Objects) -> bool {
    let names = node_of(found);
    !names.is_empty() && names.iter().all(|name| !objects.has_node(name))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use calico_store::Revision;
    use serde_json::json;

    use super::*;
    use crate::kinds::Watched;
    use crate::object::Object;

    fn stored(references: &serde_json::Value) -> Value {
        let value = json!({"metadata": {"name": "h1"}, "spec": {"orchRefs": references}});
        Value {
            octets: Bytes::from(value.to_string()),
            revision: Revision(1),
        }
    }

    #[test]
    fn node_is_stale_without_any_of_its_references() {
        let reference = |name: &str| json!({"orchestrator": "k8s", "nodeName": name});
        let mut objects = Objects::default();
        let node = json!({"metadata": {"name": "a"}});
        objects.set_all(Watched::Node, vec![Object::new(Watched::Node, &node)]);
        // The labels of this one cannot be read, but it exists.
        let unreadable = json!({"metadata": {"name": "u", "labels": 7}});
        objects.set(Watched::Node, Object::new(Watched::Node, &unreadable));
        for (references, is_expected) in [
            (json!([reference("b")]), true),
            (json!([reference("a")]), false),
            (json!([reference("u")]), false),
            (json!([reference("b"), reference("a")]), false),
            (json!([]), false),
            (
                json!([{"orchestrator": "openstack", "nodeName": "b"}]),
                false,
            ),
            (json!([{"orchestrator": "k8s"}]), false),
        ] {
            let is_found = is_stale(&stored(&references), &objects);
            assert_eq!(is_found, is_expected, "{references}");
        }
    }
}
