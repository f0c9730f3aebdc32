//! Events of the controller of Kubernetes.

/// Appends these rows to `$rows`, and passes them to the first one of the macros in parentheses.
macro_rules! kubernetes_events {
    (($next:ident $($later:ident)*) $($rows:tt)*) => { $next! { ($($later)*) $($rows)*
        #[doc = "All objects of a kind were read from the API server, at a revision. Changes follow."]
        KubernetesListed "kubernetes.listed" INFO "objects listed" {
            kind: Text, objects: u64, revision: u64,
        }
        #[doc = "A request to the API server failed; it is repeated. The objects of the kind stay as they are. Emitted once for each reason."]
        KubernetesRequestFailed "kubernetes.request_failed" WARN "request to the API server failed; keeping the last objects" {
            kind: Text, reason: Text,
        }
        #[doc = "A part of an object is invalid or unsupported; `reason` has the consequence."]
        KubernetesPartInvalid "kubernetes.part_invalid" WARN "part of an object is not converted" {
            object: Text, field: Text, reason: Text,
        }
        #[doc = "Nothing is deleted, because the API server may have lost objects. An operator confirms the server with its `uid`."]
        KubernetesDeletionsHeld "kubernetes.deletions_held" WARN "deletions held until the API server is confirmed" {
            reason: Text, uid: Option<Text>,
        }
        #[doc = "Resources without an object are deleted again."]
        KubernetesDeletionsAllowed "kubernetes.deletions_allowed" INFO "deletions allowed" {
            uid: Text,
        }
        #[doc = "A resource was deleted, because its object does not exist."]
        KubernetesResourceDeleted "kubernetes.resource_deleted" INFO "resource deleted" {
            resource: Text,
        }
        #[doc = "A resource cannot be written; it is tried again. Emitted once for each reason."]
        KubernetesWriteFailed "kubernetes.write_failed" WARN "resource not written" {
            resource: Text, reason: Text,
        }
        #[doc = "An address without a pod, or an inconsistency of address management, was repaired."]
        KubernetesCollected "kubernetes.collected" INFO "collected" {
            finding: Text,
        }
        #[doc = "Addresses and Nodes cannot be collected; it is tried again. Emitted once for each reason."]
        KubernetesCollectionFailed "kubernetes.collection_failed" WARN "nothing collected" {
            reason: Text,
        }
        #[doc = "A field of KubeControllersConfiguration `default`, or a variable of the environment, has no effect or is invalid."]
        KubernetesSettingIgnored "kubernetes.setting_ignored" WARN "setting of the controllers ignored" {
            setting: Text, reason: Text,
        }
        #[doc = "This replica holds the lease: it writes."]
        KubernetesLeading "kubernetes.leading" INFO "leading" {
            lease: Text, identity: Text,
        }
        #[doc = "This replica does not hold the lease, or cannot renew it: it reads and compares, and writes nothing."]
        KubernetesFollowing "kubernetes.following" INFO "following; writing nothing" {
            lease: Text, identity: Text,
        }
        #[doc = "This replica has found differing resources for a minute, and the holder of the lease writes none of them. `resources` is their number."]
        KubernetesLeaderIdle "kubernetes.leader_idle" WARN "the leader writes nothing" {
            leader: Text, resources: u64,
        }
        #[doc = "Another program writes the same resources, so this replica writes nothing until its restart."]
        KubernetesStoodDown "kubernetes.stood_down" WARN "another program writes; writing nothing until a restart" {
            reason: Text,
        }
    } };
}
