//! The accesses of each part, as a table.

use std::fmt;

use calico_model::{
    ANNOUNCEMENTS_PREFIX, AffinityOwner, EndpointName, FABRIC_PREFIX, FabricKey, IPAM_PREFIX,
    IpamKey, Kind, SERVICES_PREFIX, ServiceRoutesKey, StatusKey,
};

use super::{Access, Namespaces, Owner};

/// A part of a fabric with credentials of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Felix of a node.
    Felix,
    /// The BGP client of a node.
    BgpClient,
    /// The CNI plugin of a node, with its address management.
    Cni,
    /// The start of a node: `cambric node start`.
    NodeStart,
    /// A route reflector.
    RouteReflector,
    /// The collector of unused addresses: `cambric ipam gc`.
    IpamGc,
    /// The program that creates workloads: Neutron's driver, or a controller.
    Orchestrator,
    /// The controller of Kubernetes: `cambric-kube`.
    KubeController,
    /// An operator with `cambric` or `calicoctl`.
    Operator,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 9] = [
        Self::Felix,
        Self::BgpClient,
        Self::Cni,
        Self::NodeStart,
        Self::RouteReflector,
        Self::IpamGc,
        Self::Orchestrator,
        Self::KubeController,
        Self::Operator,
    ];

    /// Returns whether each node has a role of this part.
    pub const fn is_of_one_node(self) -> bool {
        matches!(
            self,
            Self::Felix | Self::BgpClient | Self::Cni | Self::NodeStart | Self::RouteReflector
        )
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Felix => "felix",
            Self::BgpClient => "bgp-client",
            Self::Cni => "cni",
            Self::NodeStart => "node-start",
            Self::RouteReflector => "route-reflector",
            Self::IpamGc => "ipam-gc",
            Self::Orchestrator => "orchestrator",
            Self::KubeController => "kube-controller",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The keys of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keys {
    /// All resources of a kind.
    Kind(Kind),
    /// The resource `default` of a kind.
    Default(Kind),
    /// The Node of the owner.
    OwnNode,
    /// The FelixConfiguration of the owner's node.
    OwnFelixConfiguration,
    /// All keys with this prefix.
    Prefix(&'static str),
    /// The settings of address management.
    IpamConfig,
    /// The report that Felix of the node is alive, under a lease.
    OwnStatus,
    /// The same report without a lease.
    OwnLastStatus,
    /// The reported states of the node's workload endpoints.
    OwnEndpointStatus,
    /// The affinities of blocks to the node.
    OwnAffinities,
    /// The workload endpoints of the node that the CNI plugin writes.
    OwnEndpoints,
    /// The registration of the reflector.
    OwnRegistration,
    /// The report of the node's drain.
    OwnDrainReport,
    /// The affinities of blocks to load balancers.
    BalancerAffinities,
    /// The routes of services that the node announces.
    OwnServiceRoutes,
    /// The claims of the reflector's cluster IDs.
    OwnClusterIds,
    /// The key with which Neutron's driver tests its watch.
    RoundTrip,
}

/// One access of a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) part: Part,
    pub(super) access: Access,
    pub(super) keys: Keys,
    pub(super) purpose: &'static str,
}

const fn row(part: Part, access: Access, keys: Keys, purpose: &'static str) -> Row {
    Row {
        part,
        access,
        keys,
        purpose,
    }
}

/// The orchestrators of the CNI plugin's endpoints, as in their names.
const CNI_ORCHESTRATORS: [&str; 2] = ["cni", "k8s"];

use Access::{Read, ReadWrite, Write};
use Keys::{Default, Kind as All, Prefix};
use Part::{
    BgpClient, Cni, Felix, IpamGc, KubeController, NodeStart, Operator, Orchestrator,
    RouteReflector,
};

/// Every access, by part.
#[rustfmt::skip]
pub(super) const TABLE: &[Row] = &[
    row(Felix, Read, All(Kind::ClusterInformation), "whether the datastore is ready"),
    row(Felix, Read, All(Kind::Node), "addresses and tunnels of nodes"),
    row(Felix, Read, All(Kind::BgpConfiguration), "the BGP ports to protect"),
    row(Felix, Read, All(Kind::BgpPeer), "the BGP peers to protect"),
    row(Felix, Read, All(Kind::FelixConfiguration), "settings"),
    row(Felix, Read, All(Kind::IpPool), "pools: masquerading, tunnels"),
    row(Felix, Read, All(Kind::Tier), "policy"),
    row(Felix, Read, All(Kind::Profile), "policy"),
    row(Felix, Read, All(Kind::GlobalNetworkPolicy), "policy"),
    row(Felix, Read, All(Kind::NetworkPolicy), "policy"),
    row(Felix, Read, All(Kind::GlobalNetworkSet), "policy"),
    row(Felix, Read, All(Kind::NetworkSet), "policy"),
    row(Felix, Read, All(Kind::HostEndpoint), "policy of host interfaces"),
    row(Felix, Read, All(Kind::WorkloadEndpoint), "endpoints of the node, and the members of selectors"),
    row(Felix, Read, All(Kind::StagedGlobalNetworkPolicy), "previews of staged policies"),
    row(Felix, Read, All(Kind::StagedNetworkPolicy), "previews of staged policies"),
    row(Felix, Read, All(Kind::StagedKubernetesNetworkPolicy), "previews of staged policies"),
    row(Felix, Read, All(Kind::LiveMigration), "notes about live migrations"),
    row(Felix, Read, Prefix(FabricKey::REFLECTORS), "the route reflectors to protect"),
    row(Felix, Read, Prefix(SERVICES_PREFIX), "endpoints of services, for policy"),
    row(Felix, Read, Prefix(IpamKey::HOSTS), "owners of blocks, for routes through tunnels"),
    row(Felix, Write, Keys::OwnStatus, "report that Felix is alive"),
    row(Felix, Write, Keys::OwnLastStatus, "report that Felix is alive"),
    row(Felix, ReadWrite, Keys::OwnEndpointStatus, "report the state of endpoints"),

    row(BgpClient, Read, All(Kind::ClusterInformation), "whether the datastore is ready"),
    row(BgpClient, Read, All(Kind::Node), "neighbors"),
    row(BgpClient, Read, All(Kind::BgpConfiguration), "settings"),
    row(BgpClient, Read, All(Kind::BgpPeer), "neighbors"),
    row(BgpClient, Read, All(Kind::BgpFilter), "filters"),
    row(BgpClient, Read, All(Kind::BfdConfiguration), "timers of BFD"),
    row(BgpClient, Read, All(Kind::IpPool), "prefixes to advertise"),
    row(BgpClient, Read, Keys::OwnAffinities, "the blocks of the node"),
    row(BgpClient, Read, Prefix(FABRIC_PREFIX), "route reflectors, drain requests"),
    row(BgpClient, Read, Keys::OwnServiceRoutes, "the services that the node announces"),
    row(BgpClient, Read, All(Kind::WorkloadEndpoint), "origin validation, in a mesh"),
    row(BgpClient, Read, Prefix(IpamKey::HOSTS), "origin validation, in a mesh"),
    row(BgpClient, Read, Prefix(ANNOUNCEMENTS_PREFIX), "origin validation, in a mesh"),
    row(BgpClient, Write, Keys::OwnDrainReport, "report of a drain"),

    row(Cni, Read, Default(Kind::ClusterInformation), "whether the datastore is ready"),
    row(Cni, Read, Keys::OwnNode, "labels, for the selectors of pools"),
    row(Cni, Read, Default(Kind::FelixConfiguration), "how Felix reports that it is alive"),
    row(Cni, Read, Keys::OwnFelixConfiguration, "how Felix reports that it is alive"),
    row(Cni, Read, Keys::OwnStatus, "whether Felix is alive"),
    row(Cni, Read, All(Kind::IpPool), "pools"),
    row(Cni, Read, All(Kind::IpReservation), "reserved addresses"),
    row(Cni, Read, All(Kind::Profile), "whether the profiles of an endpoint exist"),
    row(Cni, Read, All(Kind::WorkloadEndpoint), "the node's endpoints, for GC"),
    row(Cni, Write, Keys::OwnEndpoints, "endpoints of containers on the node"),
    row(Cni, Read, Keys::IpamConfig, "settings of address management"),
    row(Cni, ReadWrite, Keys::OwnAffinities, "blocks of the node"),
    row(Cni, ReadWrite, Prefix(IpamKey::BLOCKS), "allocations, also in blocks of other nodes"),
    row(Cni, ReadWrite, Prefix(IpamKey::HANDLES), "allocations by container"),

    row(NodeStart, Read, Default(Kind::ClusterInformation), "whether the datastore is ready"),
    row(NodeStart, Read, All(Kind::Node), "whether another node has the address"),
    row(NodeStart, Write, Keys::OwnNode, "the addresses of the node"),
    row(NodeStart, Read, All(Kind::IpPool), "whether there are pools"),
    row(NodeStart, ReadWrite, Keys::OwnFelixConfiguration, "Felix as Kubernetes needs it"),

    row(RouteReflector, Read, All(Kind::ClusterInformation), "whether the datastore is ready"),
    row(RouteReflector, Read, All(Kind::Node), "clients"),
    row(RouteReflector, Read, All(Kind::BgpConfiguration), "settings"),
    row(RouteReflector, Read, All(Kind::BgpPeer), "neighbors"),
    row(RouteReflector, Read, All(Kind::BgpFilter), "filters"),
    row(RouteReflector, Read, All(Kind::BfdConfiguration), "timers of BFD"),
    row(RouteReflector, Read, All(Kind::IpPool), "pools, for filters"),
    row(RouteReflector, Read, Keys::OwnAffinities, "the blocks of the node"),
    row(RouteReflector, Read, Prefix(FABRIC_PREFIX), "other route reflectors, drain requests"),
    row(RouteReflector, Read, Keys::OwnServiceRoutes, "the services that the node announces"),
    row(RouteReflector, Read, All(Kind::WorkloadEndpoint), "origin validation"),
    row(RouteReflector, Read, Prefix(IpamKey::HOSTS), "origin validation"),
    row(RouteReflector, Read, Prefix(ANNOUNCEMENTS_PREFIX), "origin validation"),
    row(RouteReflector, Write, Keys::OwnRegistration, "registration, under a lease"),
    row(RouteReflector, Write, Keys::OwnClusterIds, "claims of a cluster ID"),

    row(IpamGc, Read, All(Kind::ClusterInformation), "whether the datastore is ready"),
    row(IpamGc, Read, All(Kind::Node), "users of addresses"),
    row(IpamGc, Read, All(Kind::WorkloadEndpoint), "users of addresses"),
    row(IpamGc, Read, All(Kind::IpPool), "pools"),
    row(IpamGc, Read, All(Kind::IpReservation), "reserved addresses"),
    row(IpamGc, ReadWrite, Prefix(IPAM_PREFIX), "blocks, affinities, handles"),

    row(Orchestrator, ReadWrite, All(Kind::WorkloadEndpoint), "ports of machines"),
    row(Orchestrator, ReadWrite, All(Kind::LiveMigration), "machines that move"),
    row(Orchestrator, ReadWrite, All(Kind::NetworkPolicy), "security groups"),
    row(Orchestrator, ReadWrite, All(Kind::NetworkSet), "groups of addresses"),
    row(Orchestrator, ReadWrite, All(Kind::Profile), "labels and rules of namespaces"),
    row(Orchestrator, ReadWrite, Prefix(SERVICES_PREFIX), "endpoints of services"),
    row(Orchestrator, ReadWrite, Default(Kind::ClusterInformation), "make the datastore ready"),
    row(Orchestrator, ReadWrite, Default(Kind::FelixConfiguration), "enable the reports of Felix"),
    row(Orchestrator, ReadWrite, Prefix("/calico/dhcp/"), "subnets, for the DHCP agent"),
    row(Orchestrator, ReadWrite, Prefix("/calico/openstack/"), "election of one driver"),
    row(Orchestrator, ReadWrite, Prefix("/calico/compaction/"), "election of one driver"),
    row(Orchestrator, Read, All(Kind::Node), "hosts"),
    row(Orchestrator, Read, All(Kind::Tier), "tiers of policy"),
    row(Orchestrator, Read, Prefix("/calico/felix/"), "reports of Felix"),
    row(Orchestrator, Write, Keys::RoundTrip, "test of the driver's watch"),

    row(KubeController, Read, All(Kind::ClusterInformation), "whether the datastore is ready"),
    row(KubeController, ReadWrite, All(Kind::Profile), "labels and rules of namespaces and service accounts"),
    row(KubeController, ReadWrite, All(Kind::Tier), "tiers of cluster policies"),
    row(KubeController, ReadWrite, All(Kind::NetworkPolicy), "policies"),
    row(KubeController, ReadWrite, All(Kind::GlobalNetworkPolicy), "cluster policies"),
    row(KubeController, ReadWrite, All(Kind::WorkloadEndpoint), "labels and ports of pods"),
    row(KubeController, ReadWrite, All(Kind::Node), "labels of nodes"),
    row(KubeController, Read, All(Kind::BgpConfiguration), "the ranges of services"),
    row(KubeController, Read, All(Kind::FelixConfiguration), "whether Felix reports the state of endpoints"),
    row(KubeController, Read, Prefix("/calico/felix/v2/"), "whether endpoints of services work"),
    row(KubeController, ReadWrite, All(Kind::HostEndpoint), "automatic host endpoints"),
    row(KubeController, ReadWrite, All(Kind::KubeControllersConfiguration), "settings, and their status"),
    row(KubeController, Read, All(Kind::IpPool), "addresses of load balancers, leaked addresses"),
    row(KubeController, Read, All(Kind::IpReservation), "reserved addresses"),
    row(KubeController, Read, Prefix(IPAM_PREFIX), "leaked addresses, settings"),
    row(KubeController, ReadWrite, Keys::BalancerAffinities, "blocks of load balancers"),
    row(KubeController, ReadWrite, Prefix(IpamKey::HOSTS), "blocks of deleted nodes"),
    row(KubeController, ReadWrite, Prefix(IpamKey::BLOCKS), "addresses of load balancers, leaked addresses"),
    row(KubeController, ReadWrite, Prefix(IpamKey::HANDLES), "addresses of load balancers, leaked addresses"),
    row(KubeController, ReadWrite, Prefix(ANNOUNCEMENTS_PREFIX), "the services that nodes announce"),
    row(KubeController, ReadWrite, Prefix(SERVICES_PREFIX), "endpoints of services, for policy"),
    row(KubeController, ReadWrite, Prefix("/cambric/kubernetes/v1/"), "the API server that is known, and the leader"),

    row(Operator, ReadWrite, Prefix("/calico/"), "all resources and addresses"),
    row(Operator, ReadWrite, Prefix("/cambric/"), "drain nodes, drain and remove route reflectors"),
];

impl Keys {
    /// Returns the keys, or the prefixes of the keys.
    pub(super) fn texts(self, owner: &Owner) -> Vec<String> {
        let node = &owner.node;
        let (region, host) = (owner.region.clone(), node.clone());
        let text = match self {
            Self::Kind(kind) => kind.prefix(),
            Self::Default(kind) => format!("{}default", kind.prefix()),
            Self::OwnNode => format!("{}{node}", Kind::Node.prefix()),
            Self::OwnFelixConfiguration => {
                format!("{}node.{node}", Kind::FelixConfiguration.prefix())
            }
            Self::Prefix(prefix) => prefix.to_owned(),
            Self::IpamConfig => IpamKey::Config.to_string(),
            Self::OwnStatus => StatusKey::Host { region, host }.to_string(),
            Self::OwnLastStatus => StatusKey::LastReported { region, host }.to_string(),
            Self::OwnEndpointStatus => StatusKey::workloads_prefix(&region, node),
            Self::OwnAffinities => IpamKey::affinities_prefix(&AffinityOwner::Host(node.clone())),
            Self::OwnRegistration => FabricKey::Reflector(node.clone()).to_string(),
            Self::BalancerAffinities => {
                let owner = AffinityOwner::Virtual("load-balancer".to_owned());
                IpamKey::affinities_prefix(&owner)
            }
            Self::OwnServiceRoutes => ServiceRoutesKey::prefix(node),
            Self::OwnDrainReport => FabricKey::DrainReport(node.clone()).to_string(),
            Self::OwnClusterIds => {
                let ids = owner.cluster_ids.iter();
                return ids.map(|id| FabricKey::Cluster(*id).to_string()).collect();
            }
            Self::OwnEndpoints => return endpoints(owner),
            Self::RoundTrip => format!("/calico/felix/v2/{region}/host/round-trip-check"),
        };
        vec![text]
    }
}

/// Returns the prefixes of the endpoints that the CNI plugin of a node writes.
fn endpoints(owner: &Owner) -> Vec<String> {
    let all = Kind::WorkloadEndpoint.prefix();
    let Namespaces::Only(namespaces) = &owner.namespaces else {
        return vec![all];
    };
    let of = |namespace: &String| {
        let of_node = |by| EndpointName::prefix(&owner.node, by);
        CNI_ORCHESTRATORS.map(|by| format!("{all}{namespace}/{}", of_node(by)))
    };
    namespaces.iter().flat_map(of).collect()
}
