//! The resources of the API: their paths and kinds.

/// A resource of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    /// Group and version, as in `apiVersion`.
    pub(super) version: &'static str,
    /// Its name in paths.
    pub(super) plural: &'static str,
    /// Its kind.
    pub(super) kind: &'static str,
    /// Whether its objects have a namespace.
    pub(super) is_namespaced: bool,
    /// Whether it exists only after [`super::ApiServer::define`].
    pub(super) is_custom: bool,
}

const fn core(plural: &'static str, kind: &'static str, is_namespaced: bool) -> Resource {
    Resource {
        version: "v1",
        plural,
        kind,
        is_namespaced,
        is_custom: false,
    }
}

const fn of(
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    is_namespaced: bool,
) -> Resource {
    Resource {
        version,
        ..core(plural, kind, is_namespaced)
    }
}

/// The group of rights. The server keeps its objects, and [`super::ApiServer::enforce`] applies rights.
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// All resources.
pub(super) const ALL: &[Resource] = &[
    core("namespaces", "Namespace", false),
    core("nodes", "Node", false),
    core("pods", "Pod", true),
    core("configmaps", "ConfigMap", true),
    core("services", "Service", true),
    core("events", "Event", true),
    core("serviceaccounts", "ServiceAccount", true),
    core("secrets", "Secret", true),
    of("apps/v1", "deployments", "Deployment", true),
    of("apps/v1", "daemonsets", "DaemonSet", true),
    of(RBAC, "roles", "Role", true),
    of(RBAC, "rolebindings", "RoleBinding", true),
    of(RBAC, "clusterroles", "ClusterRole", false),
    of(RBAC, "clusterrolebindings", "ClusterRoleBinding", false),
    of(
        "networking.k8s.io/v1",
        "networkpolicies",
        "NetworkPolicy",
        true,
    ),
    of(
        "discovery.k8s.io/v1",
        "endpointslices",
        "EndpointSlice",
        true,
    ),
    of("coordination.k8s.io/v1", "leases", "Lease", true),
    Resource {
        is_custom: true,
        ..of(
            "policy.networking.k8s.io/v1alpha2",
            "clusternetworkpolicies",
            "ClusterNetworkPolicy",
            false,
        )
    },
];

/// The path of reviews of the client's own rights.
pub(super) const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The end of the path of requests for a token.
pub(super) const TOKEN: &str = "/token";

/// Returns the resource of a kind.
pub(super) fn of_kind(kind: &str) -> Option<Resource> {
    ALL.iter().copied().find(|resource| resource.kind == kind)
}

/// The objects that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) resource: Resource,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) is_status: bool,
}

impl Target {
    /// Reads a path.
    pub(super) fn of(path: &str) -> Option<Self> {
        let (version, rest) = match path.strip_prefix("/api/v1/") {
            Some(rest) => ("v1".to_owned(), rest),
            None => {
                let mut parts = path.strip_prefix("/apis/")?.splitn(3, '/');
                let (group, version) = (parts.next()?, parts.next()?);
                (format!("{group}/{version}"), parts.next()?)
            }
        };
        let mut parts: Vec<&str> = rest.split('/').collect();
        let is_status = parts.len() > 1 && parts.last() == Some(&"status");
        if is_status {
            parts.pop();
        }
        let (namespace, plural, name) = match parts.as_slice() {
            ["namespaces"] => (None, "namespaces", None),
            ["namespaces", name] => (None, "namespaces", Some(*name)),
            ["namespaces", namespace, plural] => (Some(*namespace), *plural, None),
            ["namespaces", namespace, plural, name] => (Some(*namespace), *plural, Some(*name)),
            [plural] => (None, *plural, None),
            [plural, name] => (None, *plural, Some(*name)),
            _ => return None,
        };
        let found = |resource: &&Resource| resource.version == version && resource.plural == plural;
        let resource = *ALL.iter().find(found)?;
        // Only a list of all namespaces has no namespace.
        let fits = match (resource.is_namespaced, &namespace, name) {
            (true, None, Some(_)) | (false, Some(_), _) => false,
            (true, ..) | (false, None, _) => true,
        };
        fits.then(|| Self {
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            is_status,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_their_objects() {
        for (path, kind, namespace, name, is_status) in [
            ("/api/v1/namespaces", "Namespace", None, None, false),
            (
                "/api/v1/namespaces/prod",
                "Namespace",
                None,
                Some("prod"),
                false,
            ),
            ("/api/v1/pods", "Pod", None, None, false),
            (
                "/api/v1/namespaces/prod/pods/web",
                "Pod",
                Some("prod"),
                Some("web"),
                false,
            ),
            ("/api/v1/nodes/n1/status", "Node", None, Some("n1"), true),
            (
                "/apis/networking.k8s.io/v1/namespaces/prod/networkpolicies",
                "NetworkPolicy",
                Some("prod"),
                None,
                false,
            ),
        ] {
            let target = Target::of(path).expect(path);
            assert_eq!(target.resource.kind, kind);
            assert_eq!(target.namespace.as_deref(), namespace, "{path}");
            assert_eq!(target.name.as_deref(), name, "{path}");
            assert_eq!(target.is_status, is_status, "{path}");
        }
        for path in [
            "/",
            "/api/v1/pods/web",
            "/api/v1/namespaces/prod/nodes",
            "/apis/networking.k8s.io/v2/networkpolicies",
            "/api/v1/widgets",
        ] {
            assert_eq!(Target::of(path), None, "{path}");
        }
    }
}
