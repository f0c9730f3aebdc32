//! The stored values, and the desired state that follows from them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use calico_model::{
    AffinityOwner, BgpConfigurationSpec, BgpPeerSpec, BlockAffinity, DEFAULT_ALLOW_PROFILE,
    FabricKey, FabricValueError, FelixConfigurationSpec, IpPoolSpec, IpamKey, Key, Kind, Metadata,
    NodeSpec, ProfileSpec, Registration, ResourceKey, SERVICES_PREFIX, ServiceName, Spec, TierSpec,
};
use fib_sync::Tunnel;
use ipnet::IpNet;

use super::assignments::Assignments;
use super::automatic::{Automatic, is_requested};
use super::desired::Desired;
use super::fabric::{BgpPorts, Fabric};
use super::hosts::Hosts;
use super::overlay::OverlayInputs;
use super::policy::{Index, List, Policy, Tiers, broken, policy};
use super::pools::Pools;
use super::profile::Profile;
use super::read::{self, Read, profile_key};
use super::stored_settings::StoredSettings;
use super::types::{Endpoint, ListName, Problem};
use super::unsupported::unsupported;
use crate::render::{Budgets, Compiled, Control, PacketLog, Selected, SetId};

/// The kinds of resource that Felix reads. The datastore is watched for no others, except for the
/// ClusterInformation.
pub const KINDS: [Kind; 17] = [
    Kind::Node,
    Kind::BgpConfiguration,
    Kind::BgpPeer,
    Kind::FelixConfiguration,
    Kind::IpPool,
    Kind::Tier,
    Kind::Profile,
    Kind::GlobalNetworkPolicy,
    Kind::NetworkPolicy,
    Kind::GlobalNetworkSet,
    Kind::NetworkSet,
    Kind::HostEndpoint,
    Kind::WorkloadEndpoint,
    Kind::StagedGlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedKubernetesNetworkPolicy,
    Kind::LiveMigration,
];

/// Holds the stored values for one host. The result depends only on the current values, in whatever
/// order and however often they arrived. The exception: an unparsable value leaves the previous one
/// in effect.
#[derive(Clone, Debug)]
pub struct Calculator {
    pub(super) hostname: String,
    /// Settings of the host itself, which override stored ones.
    pub(super) local: Option<FelixConfigurationSpec>,
    /// Policies also apply to traffic from the host to its own workloads.
    pub(super) police_host: bool,
    /// The budgets of each workload.
    pub(super) budgets: Budgets,
    /// The bit of the connection mark of cut connections, if connections are cut.
    pub(super) cut_mark: Option<u32>,
    /// The group of the packet log to which rules report, while the flow log is on.
    pub(super) flows: Option<PacketLog>,
    /// Endpoints of this host, by key.
    pub(super) endpoints: BTreeMap<String, Endpoint>,
    /// All profiles, by name.
    pub(super) profiles: BTreeMap<String, Profile>,
    /// All policies, by key.
    pub(super) policies: BTreeMap<String, Policy>,
    pub(super) tiers: Tiers,
    pub(super) pools: Pools,
    /// Addresses and ports of the fabric itself.
    pub(super) fabric: Fabric,
    /// Tunnel ends of nodes, and owners of blocks.
    pub(super) overlay: OverlayInputs,
    /// The tunnel devices of this host that may be the fabric's, by name.
    pub(super) tunnels: BTreeMap<String, Tunnel>,
    /// The rules that this host needs, and the addresses that they select.
    pub(super) index: Index,
    /// The services with endpoints in the datastore.
    pub(super) services: Arc<BTreeSet<ServiceName>>,
    /// The policies and profiles that name a service, whether it exists or not.
    pub(super) users_of_services: BTreeMap<ServiceName, BTreeSet<ListName>>,
    /// The stored settings.
    pub(super) stored: StoredSettings,
    /// Staged policies as stored, by key.
    pub(super) staged: BTreeMap<String, Box<[u8]>>,
    /// Rejected values, by key.
    pub(super) refused: BTreeMap<String, Problem>,
    /// The unsupported fields of values in effect, by key.
    unsupported: BTreeMap<String, BTreeSet<Problem>>,
    /// Changes that are not recomputed yet: most stored values concern other hosts.
    pub(super) news: News,
    /// The result of the last recomputation, with its inputs.
    pub(super) desired: Desired,
    /// The addresses and ports of the last full recomputation, if some were added since.
    pub(super) recomputed_control: Option<Control>,
    pub(super) assignments: Assignments,
    pub(super) hosts: Hosts,
}

/// Changes that are not recomputed yet.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    /// Keys of endpoints of this host, including former ones.
    pub(super) endpoints: BTreeSet<String>,
    /// Keys of values that are rejected, or are no longer rejected.
    pub(super) refused: BTreeSet<String>,
    /// Tiers, which concern all endpoints.
    pub(super) tiers: bool,
    pub(super) pools: bool,
    pub(super) fabric: bool,
    /// Facts about the fabric that this host has without the content of the datastore.
    pub(super) local: bool,
    /// The tunnel devices of this host.
    pub(super) tunnels: bool,
    /// Host endpoints of this host, or the interfaces that they may apply to.
    pub(super) hosts: bool,
    pub(super) settings: bool,
    /// Services in rules that have appeared or disappeared.
    pub(super) services: BTreeSet<ServiceName>,
    /// The previous and present unsupported fields of a value, for each value where they differ.
    pub(super) unsupported: Vec<[BTreeSet<Problem>; 2]>,
}

impl News {
    fn is_empty(&self) -> bool {
        let fabric = self.fabric || self.local || self.tunnels;
        let single = self.tiers || self.pools || self.hosts || fabric || self.settings;
        let none = self.endpoints.is_empty() && self.refused.is_empty();
        let none = none && self.services.is_empty();
        none && self.unsupported.is_empty() && !single
    }
}

impl Calculator {
    /// Returns a calculator without any stored value. `local` overrides stored settings.
    pub fn new(hostname: impl Into<String>, local: Option<FelixConfigurationSpec>) -> Self {
        Self {
            hostname: hostname.into(),
            local,
            police_host: false,
            budgets: Budgets::default(),
            cut_mark: None,
            flows: None,
            endpoints: BTreeMap::new(),
            profiles: BTreeMap::new(),
            policies: BTreeMap::new(),
            tiers: Tiers::default(),
            pools: Pools::default(),
            fabric: Fabric::default(),
            overlay: OverlayInputs::default(),
            tunnels: BTreeMap::new(),
            index: Index::default(),
            services: Arc::default(),
            users_of_services: BTreeMap::new(),
            stored: StoredSettings::default(),
            staged: BTreeMap::new(),
            refused: BTreeMap::new(),
            unsupported: BTreeMap::new(),
            news: News {
                settings: true,
                fabric: true,
                ..News::default()
            },
            desired: Desired::default(),
            recomputed_control: None,
            assignments: Assignments::default(),
            hosts: Hosts::default(),
        }
    }

    /// Sets the sources that may reach control ports of the fabric.
    #[must_use]
    pub(crate) fn with_control_exceptions(mut self, sources: Vec<IpNet>) -> Self {
        self.fabric.exceptions(sources);
        self
    }

    /// Sets whether policies apply to traffic of the host to its own workloads.
    #[must_use]
    pub(crate) const fn with_policed_host(mut self, police: bool) -> Self {
        self.police_host = police;
        self
    }

    /// Sets the budgets of each workload.
    pub(crate) const fn set_budgets(&mut self, budgets: Budgets) {
        self.budgets = budgets;
        self.news.settings = true;
    }

    /// Sets the bit of the connection mark of cut connections; without it, connections are not cut.
    pub(crate) const fn set_cut_mark(&mut self, mark: Option<u32>) {
        self.cut_mark = mark;
        self.news.settings = true;
    }

    /// Returns whether policies also apply to traffic from the host to its own workloads.
    pub(crate) const fn polices_host(&self) -> bool {
        self.police_host
    }

    /// Sets the host's own settings, the sources that may reach control ports, and whether policies
    /// apply to traffic of the host.
    pub(crate) fn reconfigure(
        &mut self,
        local: FelixConfigurationSpec,
        exceptions: Vec<IpNet>,
        police_host: bool,
    ) {
        (self.local, self.police_host) = (Some(local), police_host);
        self.fabric.exceptions(exceptions);
        (self.news.settings, self.news.fabric) = (true, true);
    }

    /// Sets the address for scrapers in the file of this host.
    pub(crate) fn scraped_at(&mut self, at: Option<SocketAddr>) {
        self.news.local |= self.fabric.scraped_at(at);
    }

    /// Sets the addresses of the datastore, as this host resolves them.
    pub(crate) fn datastore_at(&mut self, at: BTreeSet<SocketAddr>) {
        self.news.local |= self.fabric.datastore(at);
    }

    /// Sets the ports in the files of this host's BGP daemons.
    pub(crate) fn bgp_files(&mut self, files: BgpPorts) {
        self.news.local |= self.fabric.files(files);
    }

    /// Sets the tunnel devices of this host that may be the fabric's, by name.
    pub(crate) fn tunnels(&mut self, tunnels: BTreeMap<String, Tunnel>) {
        self.news.tunnels |= self.tunnels != tunnels;
        self.tunnels = tunnels;
    }

    /// Records that `key` has this `value` now, or was deleted. Keys of other kinds are ignored.
    /// Returns the problem of an invalid value, which is ignored: the previous value stays in
    /// effect.
    pub fn change(&mut self, key: &str, value: Option<&[u8]>) -> Option<&Problem> {
        if let Ok(FabricKey::Reflector(_)) = key.parse() {
            let outcome = self.reflector(key, value);
            return self.take_outcome(key, outcome);
        }
        if key.starts_with(SERVICES_PREFIX) {
            let outcome = self.slice(key, value);
            return self.take_outcome(key, outcome);
        }
        let resource = match key.parse() {
            Ok(Key::Resource(resource)) => resource,
            Ok(Key::Ipam(IpamKey::Affinity { owner, block })) => {
                let outcome = self.affinity(key, &owner, block, value);
                return self.take_outcome(key, outcome);
            }
            _ => return None,
        };
        let outcome = match resource.kind() {
            Kind::WorkloadEndpoint => self.endpoint(key, &resource, value),
            Kind::Profile => self.profile(key, resource.name(), value),
            Kind::Tier => self.tier(key, resource.name(), value),
            Kind::NetworkPolicy | Kind::GlobalNetworkPolicy => self.policy(key, &resource, value),
            Kind::GlobalNetworkSet | Kind::NetworkSet => self.listed(key, &resource, value, "nets"),
            Kind::HostEndpoint => self.host_endpoint(key, &resource, value),
            Kind::IpPool => self.pool(key, value),
            Kind::Node | Kind::BgpConfiguration | Kind::BgpPeer => {
                self.fabric(key, &resource, value)
            }
            Kind::FelixConfiguration => self.configuration(key, resource.name(), value),
            // None of them has an effect, which is reported.
            Kind::StagedGlobalNetworkPolicy
            | Kind::StagedNetworkPolicy
            | Kind::StagedKubernetesNetworkPolicy => {
                self.staged(key, value);
                Ok(())
            }
            Kind::LiveMigration => Ok(()),
            _ => return None,
        };
        if outcome.is_ok() {
            self.note(key, resource.kind(), value);
        }
        self.take_outcome(key, outcome)
    }

    /// Records whether a value is rejected.
    fn take_outcome(&mut self, key: &str, outcome: Result<(), Problem>) -> Option<&Problem> {
        if self.refused.remove(key).is_some() || outcome.is_err() {
            self.news.refused.insert(key.to_owned());
        }
        let problem = outcome.err()?;
        Some(self.refused.entry(key.to_owned()).or_insert(problem))
    }

    /// Returns whether any relevant change was recorded since it was [recomputed](Self::recompute).
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty() || self.index.is_touched() || self.overlay.has_news()
    }

    /// Returns how often a selector was evaluated on labels, which measures the cost of policies.
    #[cfg(test)]
    pub(crate) const fn selector_checks(&self) -> u64 {
        self.index.checks()
    }

    /// Returns the desired state of this host as of the last [recomputation](Self::recompute).
    pub const fn desired(&self) -> &Desired {
        &self.desired
    }

    fn endpoint(
        &mut self,
        key: &str,
        resource: &ResourceKey,
        value: Option<&[u8]>,
    ) -> Result<(), Problem> {
        let read = match value {
            Some(octets) => read::endpoint(key, resource, octets, &self.hostname)?,
            None => Read::Absent,
        };
        let (local, member, problem) = match read {
            Read::Absent => (None, None, None),
            Read::Local(endpoint, member) => (Some(*endpoint), Some(member), None),
            Read::Remote(member, problem) => (None, Some(member), problem),
            // As an endpoint of another host it stays unchanged.
            Read::Unreadable(problem) => {
                self.put_endpoint(key, None);
                return Err(problem);
            }
        };
        self.put_endpoint(key, local);
        let overlay = self.desired.settings.overlay;
        let is_in_overlay = self.pools.use_vxlan()
            || overlay.enabled == Some(true)
            || self.overlay.no_encap(overlay.cluster_routes);
        if is_in_overlay {
            self.overlay.endpoint_left(self.index.remote_endpoint(key));
        }
        self.index.put_member(key, member);
        if is_in_overlay {
            self.overlay.endpoint(key, self.index.remote_endpoint(key));
        }
        problem.map_or(Ok(()), Err)
    }

    /// Records a resource of which selectors select networks or addresses.
    fn listed(
        &mut self,
        key: &str,
        resource: &ResourceKey,
        value: Option<&[u8]>,
        list: &str,
    ) -> Result<(), Problem> {
        let (member, problem) = match value {
            Some(octets) => {
                let (member, problem) = read::listed(key, resource, octets, list)?;
                (Some(member), problem)
            }
            None => (None, None),
        };
        self.index.put_member(key, member);
        problem.map_or(Ok(()), Err)
    }

    fn put_endpoint(&mut self, key: &str, endpoint: Option<Endpoint>) {
        if self.endpoints.get(key) == endpoint.as_ref() {
            return;
        }
        match endpoint {
            Some(endpoint) => self.endpoints.insert(key.to_owned(), endpoint),
            None => self.endpoints.remove(key),
        };
        self.news.endpoints.insert(key.to_owned());
    }

    fn profile(&mut self, key: &str, name: &str, value: Option<&[u8]>) -> Result<(), Problem> {
        // It exists without being stored; a stored value of its name is ignored.
        if name == DEFAULT_ALLOW_PROFILE {
            return Ok(());
        }
        let profile = match value {
            Some(octets) => {
                let profile = read::resource::<ProfileSpec>(key, octets)?;
                Some(Profile::new(name, &profile.spec).within(&self.context()))
            }
            None => None,
        };
        self.put_profile(name, profile);
        Ok(())
    }

    pub(super) fn put_profile(&mut self, name: &str, profile: Option<Profile>) {
        let old = self.profiles.get(name);
        if old == profile.as_ref() {
            return;
        }
        let services =
            |profile: Option<&Profile>| named(profile.into_iter().flat_map(Profile::chains));
        let (old, new) = (services(old), services(profile.as_ref()));
        self.put_services(&ListName::Profile(name.to_owned()), &old, &new);
        let list = profile.as_ref().map(|profile| List {
            subjects: None,
            is_of_hosts: false,
            selected: selected(profile.chains()),
            labels: profile.labels.clone(),
        });
        let key = profile_key(name);
        self.index.put_list(&key, list);
        self.index.touch_users(&key);
        match profile {
            Some(profile) => self.profiles.insert(name.to_owned(), profile),
            None => self.profiles.remove(name),
        };
    }

    fn tier(&mut self, key: &str, name: &str, value: Option<&[u8]>) -> Result<(), Problem> {
        let spec = match value {
            Some(octets) => Some(read::resource::<TierSpec>(key, octets)?.spec),
            None => None,
        };
        self.news.tiers |= self.tiers.put(name, spec.as_ref());
        Ok(())
    }

    fn pool(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), Problem> {
        let spec = match value {
            Some(octets) => Some(read::resource::<IpPoolSpec>(key, octets)?.spec),
            None => None,
        };
        self.news.pools |= self.pools.put(key, spec.as_ref())?;
        Ok(())
    }

    fn fabric(
        &mut self,
        key: &str,
        resource: &ResourceKey,
        value: Option<&[u8]>,
    ) -> Result<(), Problem> {
        let fabric = &mut self.fabric;
        self.news.fabric |= match resource.kind() {
            Kind::Node => {
                let node = value.map(|octets| read::resource::<NodeSpec>(key, octets));
                let node = node.transpose()?;
                if resource.name() == self.hostname {
                    let labels = node.as_ref().map(|node| node.metadata.labels.clone());
                    self.news.settings |= self.stored.put_labels(labels.unwrap_or_default());
                }
                let (metadata, spec) = match node {
                    Some(node) => (node.metadata, Some(node.spec)),
                    None => (Metadata::default(), None),
                };
                let changed = fabric.node(key, spec.as_ref());
                self.news.fabric |= changed;
                let requested = is_requested(key, &metadata);
                // An invalid value never opens the host: it counts as a request, and is reported.
                let automatic = matches!(requested, Ok(true) | Err(_)).then(|| {
                    let is_own = resource.name() == self.hostname;
                    Automatic::of(&metadata.labels, fabric.addresses_of(key), is_own)
                });
                self.put_automatic(resource.name(), automatic);
                let overlay = self.overlay.node(key, resource.name(), spec.as_ref());
                return requested.map(drop).and(overlay);
            }
            Kind::BgpConfiguration => {
                let spec = spec::<BgpConfigurationSpec>(key, value)?;
                if resource.name() == "default" {
                    let routes = spec.as_ref().and_then(|spec| spec.program_cluster_routes);
                    self.overlay.bgp_routes(routes);
                }
                fabric.settings(key, resource.name(), spec.as_ref())
            }
            _ => fabric.peer(key, spec::<BgpPeerSpec>(key, value)?.as_ref()),
        };
        Ok(())
    }

    /// Records whether a block belongs to a host.
    fn affinity(
        &mut self,
        key: &str,
        owner: &AffinityOwner,
        block: IpNet,
        value: Option<&[u8]>,
    ) -> Result<(), Problem> {
        let AffinityOwner::Host(host) = owner else {
            return Ok(());
        };
        let affinity = value.map(BlockAffinity::parse).transpose();
        let affinity =
            affinity.map_err(|error| Problem::new(key, error.field, error.source.to_string()))?;
        let has = affinity.is_some_and(|affinity| affinity.is_announced());
        self.overlay.affinity(block, host, has);
        Ok(())
    }

    fn reflector(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), Problem> {
        let refused = |error: FabricValueError| Problem::new(key, "", error.to_string());
        let registration = value.map(Registration::parse).transpose();
        let registration = registration.map_err(refused)?;
        self.news.fabric |= self.fabric.reflector(key, registration.as_ref());
        Ok(())
    }

    fn policy(
        &mut self,
        key: &str,
        resource: &ResourceKey,
        value: Option<&[u8]>,
    ) -> Result<(), Problem> {
        let read = match value {
            Some(octets) => policy(key, resource, octets).map(Some),
            None => Ok(None),
        };
        let (policy, outcome) = match (read, value) {
            (Ok(policy), _) => (policy, Ok(())),
            // No valid value of it is known.
            (Err(mut problem), Some(octets))
                if self.policies.get(key).is_none_or(|old| old.broken) =>
            {
                let (policy, words) = broken(resource, octets, &problem);
                problem.reason = format!("{}; {words}", problem.reason);
                (Some(policy), Err(problem))
            }
            (Err(problem), _) => return Err(problem),
        };
        let policy = policy.map(|policy| policy.within(&self.context()));
        self.put_policy(key, policy);
        outcome
    }

    pub(super) fn put_policy(&mut self, key: &str, policy: Option<Policy>) {
        let old = self.policies.get(key);
        if old == policy.as_ref() {
            return;
        }
        let services = |policy: Option<&Policy>| named(policy.into_iter().flat_map(Policy::sides));
        let (old, new) = (services(old), services(policy.as_ref()));
        self.put_services(&ListName::Policy(key.to_owned()), &old, &new);
        let asked = policy.as_ref().filter(|policy| policy.is_asked());
        let list = asked.map(|policy| List {
            subjects: Some(policy.subjects.clone()),
            is_of_hosts: !policy.scope.is_for_workloads(),
            selected: selected(policy.sides()),
            labels: BTreeMap::new(),
        });
        self.index.put_list(key, list);
        self.index.touch_users(key);
        match policy {
            Some(policy) => self.policies.insert(key.to_owned(), policy),
            None => self.policies.remove(key),
        };
    }

    /// Records the unsupported fields of a key's value in effect.
    fn note(&mut self, key: &str, kind: Kind, value: Option<&[u8]>) {
        let is_reported = match kind {
            // Unsupported fields of another host's endpoints and settings are reported by that
            // host.
            Kind::WorkloadEndpoint => self.endpoints.contains_key(key),
            Kind::FelixConfiguration => {
                let name = key.rsplit('/').next().unwrap_or_default();
                let host = name.strip_prefix("node.");
                host.is_none_or(|host| host == self.hostname)
            }
            _ => true,
        };
        let value = value.filter(|_| is_reported);
        let found = value.map(|octets| unsupported(key, kind, octets));
        let found = found.unwrap_or_default();
        let before = match found.is_empty() {
            true => self.unsupported.remove(key),
            false => self.unsupported.insert(key.to_owned(), found.clone()),
        };
        let before = before.unwrap_or_default();
        if before != found {
            self.news.unsupported.push([before, found]);
        }
    }
}

/// Returns the spec of a resource, if it exists.
fn spec<S: Spec>(key: &str, value: Option<&[u8]>) -> Result<Option<S>, Problem> {
    let read = value.map(|octets| read::resource::<S>(key, octets));
    Ok(read.transpose()?.map(|resource| resource.spec))
}

/// Returns the services that rules name.
fn named<'c>(chains: impl Iterator<Item = &'c Compiled>) -> BTreeSet<ServiceName> {
    chains.flat_map(Compiled::services).cloned().collect()
}

fn selected<'c>(chains: impl Iterator<Item = &'c Compiled>) -> BTreeMap<SetId, Arc<Selected>> {
    chains.flat_map(|chain| chain.selected.clone()).collect()
}
