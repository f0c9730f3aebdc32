//! The kinds of resource, as a table.

use std::fmt;

use crate::key::RESOURCES_PREFIX;

/// Whether resources of a kind are namespaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Names are unique in the whole cluster.
    Cluster,
    /// Names are unique within a namespace.
    Namespaced,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident $name:literal $plural:literal $scope:ident $words:expr;)*) => {
        /// A kind of resource.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $variant,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            const fn row(self) -> (&'static str, &'static str, Scope, &'static [&'static str]) {
                match self {
                    $(Self::$variant => ($name, $plural, Scope::$scope, &$words),)*
                }
            }
        }
    };
}

kinds! {
    /// A host.
    Node "Node" "nodes" Cluster ["no", "nos"];
    /// BGP settings of the cluster or of one node.
    BgpConfiguration "BGPConfiguration" "bgpconfigurations" Cluster ["bgpconfig", "bgpconfigs"];
    /// A BGP peering of nodes.
    BgpPeer "BGPPeer" "bgppeers" Cluster ["bgpp", "bgpps", "bp", "bps"];
    /// Import and export rules.
    BgpFilter "BGPFilter" "bgpfilters" Cluster ["bgpf", "bgpfs", "bf", "bfs"];
    /// The timers of BFD for selected nodes.
    BfdConfiguration "BFDConfiguration" "bfdconfigurations" Cluster ["bfdconfig", "bfdconfigs"];
    /// A range from which addresses are assigned.
    IpPool "IPPool" "ippools" Cluster ["ipp", "ipps", "pool", "pools"];
    /// Addresses that are never assigned.
    IpReservation "IPReservation" "ipreservations" Cluster ["reservation", "reservations"];
    /// Settings of address management.
    IpamConfiguration "IPAMConfiguration" "ipamconfigurations" Cluster ["ipamconfig", "ipamconfigs"];
    /// The host of a block of addresses.
    BlockAffinity "BlockAffinity" "blockaffinities" Cluster ["affinity", "affinities"];
    /// An interface of a workload.
    WorkloadEndpoint "WorkloadEndpoint" "workloadendpoints" Namespaced ["wep", "weps"];
    /// An interface of a host.
    HostEndpoint "HostEndpoint" "hostendpoints" Cluster ["hep", "heps"];
    /// Rules and labels that endpoints inherit by name.
    Profile "Profile" "profiles" Cluster ["pro", "pros"];
    /// Policy of a namespace.
    NetworkPolicy "NetworkPolicy" "networkpolicies" Namespaced ["np", "policy", "policies", "pol", "pols"];
    /// Policy of a namespace, not yet enforced.
    StagedNetworkPolicy "StagedNetworkPolicy" "stagednetworkpolicies" Namespaced ["snp", "stagedpolicy", "stagedpolicies", "spol", "spols"];
    /// Kubernetes policy, not yet enforced.
    StagedKubernetesNetworkPolicy "StagedKubernetesNetworkPolicy" "stagedkubernetesnetworkpolicies" Namespaced ["sknp", "stagedkubernetespolicy", "stagedkubernetespolicies", "skpol", "skpols"];
    /// Policy of the whole cluster.
    GlobalNetworkPolicy "GlobalNetworkPolicy" "globalnetworkpolicies" Cluster ["gnp", "gnps"];
    /// Policy of the whole cluster, not yet enforced.
    StagedGlobalNetworkPolicy "StagedGlobalNetworkPolicy" "stagedglobalnetworkpolicies" Cluster ["sgnp", "sgnps"];
    /// An order of policies.
    Tier "Tier" "tiers" Cluster [];
    /// Networks with labels, in a namespace.
    NetworkSet "NetworkSet" "networksets" Namespaced ["netsets"];
    /// Networks with labels.
    GlobalNetworkSet "GlobalNetworkSet" "globalnetworksets" Cluster ["gnetsets"];
    /// Settings of the agent, for all hosts or one.
    FelixConfiguration "FelixConfiguration" "felixconfigurations" Cluster ["felixconfig", "felixconfigs"];
    /// The identity and state of the cluster.
    ClusterInformation "ClusterInformation" "clusterinformations" Cluster ["clusterinfo", "clusterinfos"];
    /// A workload that moves between hosts.
    LiveMigration "LiveMigration" "livemigrations" Namespaced [];
    /// Settings of the Kubernetes controllers.
    KubeControllersConfiguration "KubeControllersConfiguration" "kubecontrollersconfigurations" Cluster ["kubecontrollersconfig", "kubecontrollersconfigs"];
    /// A node's report about its routing.
    CalicoNodeStatus "CalicoNodeStatus" "caliconodestatuses" Cluster ["nodestatus", "nodestatuses"];
}

impl Kind {
    /// Returns the kind's name, as in a resource's `kind` field.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the kind's name in keys.
    pub const fn plural(self) -> &'static str {
        self.row().1
    }

    /// Returns whether its resources are namespaced.
    pub const fn scope(self) -> Scope {
        self.row().2
    }

    /// Returns the prefix of the keys of all its resources, with the slash at the end.
    pub fn prefix(self) -> String {
        format!("{RESOURCES_PREFIX}{}/", self.plural())
    }

    /// Returns the kind with this name, such as `WorkloadEndpoint`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Returns the kind for a word in any case: its name, its name in keys, or a short one such as
    /// `wep`.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        Self::ALL.iter().copied().find(|kind| {
            let (name, plural, _, words) = kind.row();
            name.eq_ignore_ascii_case(&word) || plural == word || words.contains(&word.as_str())
        })
    }

    /// Returns whether it is a kind of policy that may be stored under another name than its own.
    pub const fn is_policy(self) -> bool {
        matches!(
            self,
            Self::NetworkPolicy
                | Self::StagedNetworkPolicy
                | Self::GlobalNetworkPolicy
                | Self::StagedGlobalNetworkPolicy
        )
    }

    /// Returns the kind with this name in keys, such as `workloadendpoints`.
    pub fn from_plural(plural: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.plural() == plural)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
