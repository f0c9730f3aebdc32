//! The rights of an account, as a file of manifests grants them.

use serde_json::Value;

/// The shipped file.
const SHIPPED: &str = include_str!("../../../packaging/kubernetes/rbac.yaml");

/// The rights of one account.
#[derive(Debug, Clone, Default)]
pub(super) struct Rights(Vec<Rule>);

#[derive(Debug, Clone)]
struct Rule {
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    verbs: Vec<String>,
    /// The namespace of a rule of a Role; a ClusterRole has none.
    namespace: Option<String>,
}

/// A request for which a right is necessary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) verb: String,
    pub(super) group: String,
    /// The resource, with its subresource: `nodes/status`.
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

impl Rights {
    /// Returns the rights that the shipped file grants to a service account of kube-system.
    pub(super) fn shipped(account: &str) -> Self {
        let documents: Vec<Value> = serde_saphyr::from_multiple(SHIPPED).expect("valid YAML");
        let of_kind = |kind: &str| {
            let all = documents
                .iter()
                .filter(move |document| document["kind"] == kind);
            all.cloned().collect::<Vec<_>>()
        };
        let is_bound = |binding: &&Value| {
            let subjects = binding["subjects"].as_array().into_iter().flatten();
            let mut subjects = subjects.filter(|subject| subject["kind"] == "ServiceAccount");
            subjects.any(|subject| subject["name"] == account)
        };
        let mut rules = Vec::new();
        for (binding, role) in [
            ("ClusterRoleBinding", "ClusterRole"),
            ("RoleBinding", "Role"),
        ] {
            let bindings = of_kind(binding);
            for binding in bindings.iter().filter(is_bound) {
                let namespace = binding["metadata"]["namespace"].as_str();
                assert_eq!(binding["roleRef"]["kind"], role);
                let roles = of_kind(role);
                let named = |found: &&Value| {
                    found["metadata"]["name"] == binding["roleRef"]["name"]
                        && found["metadata"]["namespace"].as_str() == namespace
                };
                let found = roles.iter().find(named).expect("the role of a binding");
                let all = found["rules"].as_array().expect("rules").iter();
                rules.extend(all.map(|rule| Rule::of(rule, namespace)));
            }
        }
        assert!(!rules.is_empty(), "{account} has no rights");
        Self(rules)
    }

    /// Returns whether a request is allowed.
    pub(super) fn allow(&self, wanted: &Wanted) -> bool {
        self.0.iter().any(|rule| rule.allows(wanted))
    }
}

impl Rule {
    fn of(rule: &Value, namespace: Option<&str>) -> Self {
        let texts = |field: &str| {
            let list = rule[field].as_array().into_iter().flatten();
            list.map(|text| text.as_str().expect("text").to_owned())
                .collect::<Vec<_>>()
        };
        Self {
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            verbs: texts("verbs"),
            namespace: namespace.map(str::to_owned),
        }
    }

    fn allows(&self, wanted: &Wanted) -> bool {
        let named = |name: &String| self.names.contains(name);
        self.groups.contains(&wanted.group)
            && self.resources.contains(&wanted.resource)
            && self.verbs.contains(&wanted.verb)
            && (self.names.is_empty() || wanted.name.as_ref().is_some_and(named))
            && (self.namespace.is_none() || self.namespace == wanted.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(verb: &str, resource: &str, namespace: &str, name: &str) -> Wanted {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Wanted {
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            namespace: text(namespace),
            name: text(name),
        }
    }

    #[test]
    fn shipped_rights_are_the_least_ones() {
        let plugin = Rights::shipped("calico-cni-plugin");
        assert!(plugin.allow(&wanted("get", "pods", "prod", "web")));
        for (verb, resource) in [
            ("list", "pods"),
            ("get", "secrets"),
            ("patch", "nodes/status"),
            ("get", "pods/status"),
        ] {
            assert!(
                !plugin.allow(&wanted(verb, resource, "prod", "web")),
                "{resource}"
            );
        }
        let node = Rights::shipped("calico-node");
        let token = |namespace: &str, name: &str| {
            node.allow(&wanted("create", "serviceaccounts/token", namespace, name))
        };
        assert!(token("kube-system", "calico-cni-plugin"));
        assert!(!token("prod", "calico-cni-plugin") && !token("kube-system", "cambric-kube"));
        assert!(node.allow(&wanted("patch", "nodes/status", "", "n1")));
        assert!(!node.allow(&wanted("patch", "nodes", "", "n1")));
        let controller = Rights::shipped("cambric-kube");
        assert!(controller.allow(&wanted("list", "pods", "", "")));
        assert!(!controller.allow(&wanted("delete", "pods", "prod", "web")));
        assert!(!controller.allow(&wanted("list", "secrets", "", "")));
        let lease = |verb: &str, namespace: &str, name: &str| {
            controller.allow(&Wanted {
                group: "coordination.k8s.io".to_owned(),
                ..wanted(verb, "leases", namespace, name)
            })
        };
        assert!(lease("update", "kube-system", "cambric-kube"));
        assert!(!lease("update", "kube-system", "kube-scheduler"));
        assert!(!lease("create", "prod", "") && !lease("delete", "kube-system", "cambric-kube"));
    }
}
