//! Import and export policies of a peer, with the results of Calico's nodes.

use std::collections::BTreeMap;

use calico_model::{BgpFilterRule, BgpFilterSpec, EncapsulationMode, IpPoolSpec, Kind};
use ipnet::IpNet;
use rib::{Edit, InterfaceGlob, Match, Outcome, Policy, Rules, Source, Term, Then};

use crate::duties::{Duties, service_ranges};
use crate::farewell;
use crate::fault::Fault;
use crate::filter::{self, equal, inside};
use crate::own::{Own, key_of};
use crate::peer::Want;
use crate::priority::{DEGREE_MIN, degree_of};

/// Interfaces that Felix makes for tunnels: routes through them are not exported within the AS.
const TUNNELS: [&str; 2] = ["*.cali", "*.calico"];

/// The interface of IP-in-IP tunnels.
pub const IPIP_INTERFACE: &str = "tunl0";

/// Interfaces with routes that never leave the node.
const LOCAL_ONLY: &str = "bpf*.cali";

/// The policies of all peers, each distinct one made once: peers with the same export policy share
/// an update group.
#[derive(Debug)]
pub(crate) struct Policies<'v> {
    own: &'v Own<'v>,
    duties: &'v Duties,
    made: BTreeMap<Wanted, Policy>,
    faults: Vec<Fault>,
}

/// The inputs of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    export: bool,
    ipv6: bool,
    internal: bool,
    filters: Vec<String>,
    /// Addresses of services that are not for this peer.
    hidden: Vec<IpNet>,
}

impl<'v> Policies<'v> {
    pub(crate) fn new(own: &'v Own<'v>, duties: &'v Duties) -> Self {
        Self {
            own,
            duties,
            made: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    /// Returns the import policy of a peer: accepts all routes that its filters do not reject.
    pub(crate) fn import(&mut self, want: &Want<'_>) -> Policy {
        self.policy(want, false)
    }

    /// Returns the export policy of a peer.
    pub(crate) fn export(&mut self, want: &Want<'_>) -> Policy {
        self.policy(want, true)
    }

    /// Returns the faults that were found while the policies were made.
    pub(crate) fn faults(self) -> Vec<Fault> {
        self.faults
    }

    fn policy(&mut self, want: &Want<'_>, export: bool) -> Policy {
        let wanted = Wanted {
            export,
            ipv6: want.remote.is_ipv6(),
            internal: want.is_internal(),
            filters: want.filters.to_vec(),
            hidden: match export {
                true => self.not_for(want),
                false => Vec::new(),
            },
        };
        if let Some(policy) = self.made.get(&wanted) {
            return policy.clone();
        }
        let policy = self.make(&wanted);
        self.made.insert(wanted, policy.clone());
        policy
    }

    /// Returns the addresses of services that other peers alone receive.
    fn not_for(&self, want: &Want<'_>) -> Vec<IpNet> {
        let routes = self.duties.service_routes.iter();
        let routes = routes.filter(|(net, route)| {
            matches!(net, IpNet::V6(_)) == want.remote.is_ipv6()
                && !route.peers.is_empty()
                && !want.by.is_some_and(|name| route.peers.contains(name))
        });
        routes.map(|(net, _)| *net).collect()
    }

    fn make(&mut self, wanted: &Wanted) -> Policy {
        let Some(filters) = self.filters(wanted) else {
            return Policy::RejectAll;
        };
        let names = wanted.filters.join(" ");
        if !wanted.export {
            if filters.is_empty() {
                return Policy::AcceptAll;
            }
            return Policy::from(Rules::new(
                format!("filters {names}"),
                filters,
                Outcome::Accept,
            ));
        }
        let mut terms = vec![self.degree(wanted.ipv6)];
        if !wanted.hidden.is_empty() {
            let own = Match::Source(Source::Local);
            let nets = Match::Net(equal(wanted.hidden.iter().copied()));
            terms.push(term(
                "services of other peers",
                [own, nets],
                [],
                Then::Reject,
            ));
        }
        let mut name = String::new();
        if self.own.host.reflects && self.own.view.fleet.drains(&self.own.host.name) {
            terms.push(farewell());
            name.push_str("graceful shutdown, ");
        }
        if !names.is_empty() {
            name.push_str("filters ");
            name.push_str(&names);
            name.push_str(", ");
        }
        name.push_str("own blocks and pools");
        terms.extend(filters);
        terms.extend(self.calico(wanted));
        Policy::from(Rules::new(name, terms, Outcome::Reject))
    }

    /// Returns the terms of the filters in their order; `None` if one of them cannot be evaluated,
    /// so that all routes are rejected. A missing filter is skipped, as Calico does.
    fn filters(&mut self, wanted: &Wanted) -> Option<Vec<Term>> {
        let mut all = Vec::new();
        for name in &wanted.filters {
            let key = key_of(Kind::BgpFilter, name);
            let Some(filter) = self.own.view.filters.get(name) else {
                if self.own.view.is_faulty(&key) {
                    return None; // This is already reported.
                }
                self.fault(Fault::new(
                    key,
                    "",
                    "a BGPPeer refers to this filter, but it does not exist",
                ));
                continue;
            };
            let (list, rules) = rules(&filter.0, wanted);
            match filter::terms(name, list, rules) {
                Ok(terms) => all.extend(terms),
                Err((field, reason)) => {
                    let reason = format!(
                        "{reason}: all routes of peers with this filter are \
                        rejected"
                    );
                    self.fault(Fault::new(key, field, reason));
                    return None;
                }
            }
        }
        Some(all)
    }

    fn fault(&mut self, fault: Fault) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Returns the degree of preference of the normal metric.
    fn normal(&self, ipv6: bool) -> u32 {
        degree_of(self.own.cluster.route_priority(ipv6))
    }

    /// Returns the first term: routes that this node originates without a degree of preference from
    /// their metric get the normal one.
    fn degree(&self, ipv6: bool) -> Term {
        let none = Match::LocalPref {
            min: 0,
            max: DEGREE_MIN - 1,
        };
        term(
            "own routes",
            [Match::Source(Source::Local), none],
            [Edit::SetLocalPref(self.normal(ipv6))],
            Then::Next,
        )
    }

    /// Returns the default export terms of every peer.
    fn calico(&self, wanted: &Wanted) -> Vec<Term> {
        let of_family = |net: &IpNet| matches!(net, IpNet::V6(_)) == wanted.ipv6;
        let pools: Vec<(&IpPoolSpec, IpNet)> =
            self.pools().filter(|(_, net)| of_family(net)).collect();
        let blocks: Vec<IpNet> = self
            .duties
            .blocks
            .iter()
            .copied()
            .filter(of_family)
            .collect();
        let services: Vec<IpNet> = self
            .duties
            .services
            .iter()
            .copied()
            .filter(of_family)
            .collect();
        let addresses = self.addresses(of_family);
        let about = |name: &str, nets: Vec<IpNet>, more: Option<Match>, then| {
            let when = |nets| [Match::Net(inside(nets))].into_iter().chain(more);
            (!nets.is_empty()).then(|| term(name, when(nets), [], then))
        };
        let elevated = Match::LocalPref {
            min: self.normal(wanted.ipv6).saturating_add(1),
            max: u32::MAX,
        };
        let nets = |pools: &mut dyn Iterator<Item = &(&IpPoolSpec, IpNet)>| -> Vec<IpNet> {
            pools.map(|(_, net)| *net).collect()
        };
        let mut kept = pools.iter().filter(|(pool, _)| pool.disable_bgp_export);
        let mut exported = pools.iter().filter(|(pool, _)| !pool.disable_bgp_export);
        let own = Match::Net(equal(blocks.iter().copied()));
        let mut tunneled = pools.iter().filter(|(pool, _)| is_vxlan(pool));
        let first = [
            about(
                "IPPool disableBGPExport",
                nets(&mut kept),
                None,
                Then::Reject,
            ),
            about("IPPool vxlanMode", nets(&mut tunneled), None, Then::Reject),
            Some(self.hidden(wanted.internal)),
        ];
        let last = [
            (!blocks.is_empty()).then(|| term("own blocks", [own], [], Then::Accept)),
            about(
                "inside own blocks, elevated",
                blocks.clone(),
                Some(elevated),
                Then::Accept,
            ),
            about("inside own blocks", blocks, None, Then::Reject),
            about("service ranges", services, None, Then::Accept),
            about(
                "service addresses",
                addresses,
                Some(Match::Source(Source::Local)),
                Then::Accept,
            ),
            about(
                "service ranges of others",
                self.reflected(of_family),
                None,
                Then::Accept,
            ),
            about("pools", nets(&mut exported), None, Then::Accept),
        ];
        let first = first.into_iter().flatten();
        let last = last.into_iter().flatten();
        first
            .chain(self.communities(of_family))
            .chain(last)
            .collect()
    }

    fn pools(&self) -> impl Iterator<Item = (&'v IpPoolSpec, IpNet)> {
        let pools = self.own.view.pools.values();
        pools.filter_map(|pool| Some((&pool.0, pool.0.cidr?.0.trunc())))
    }

    /// Returns a term that rejects routes through Felix's tunnel interfaces towards internal peers,
    /// and routes of some interfaces towards all peers.
    fn hidden(&self, internal: bool) -> Term {
        let mut globs = vec![InterfaceGlob::from(LOCAL_ONLY)];
        if internal {
            globs.extend(TUNNELS.map(InterfaceGlob::from));
            if !self.own.cluster.programs().ipip() {
                globs.push(InterfaceGlob::from(IPIP_INTERFACE));
            }
        }
        let when = [Match::Interface(globs.into())];
        term("tunnels", when, [], Then::Reject)
    }

    /// Returns the terms of `prefixAdvertisements`: those of the node, or else those of the
    /// cluster.
    fn communities(&self, of_family: impl Fn(&IpNet) -> bool) -> Vec<Term> {
        let cluster = self.own.cluster;
        let own = self.own.settings.filter(|own| {
            let mut nets = own.prefix_advertisements.iter().map(|entry| entry.cidr.0);
            nets.any(|net| of_family(&net))
        });
        let settings = own.unwrap_or(cluster);
        let entries = settings.prefix_advertisements.iter();
        let entries = entries.filter(|entry| of_family(&entry.cidr.0));
        let terms = entries.map(|entry| {
            // Undefined names are reported with the resource.
            let known = settings.communities_of(entry, cluster).flatten();
            let edits: Vec<Edit> = known.map(filter::add).collect();
            let when = [Match::Net(inside([entry.cidr.0]))];
            term("prefixAdvertisements", when, edits, Then::Next)
        });
        terms.filter(|term| !term.edit.is_empty()).collect()
    }

    /// Returns the ranges inside which this node announces single addresses only. They do not depend on
    /// the services that exist, so that a new service changes no policy.
    fn addresses(&self, of_family: impl Fn(&IpNet) -> bool) -> Vec<IpNet> {
        if self.own.view.service_routes.is_none() {
            return Vec::new();
        }
        let ranges = service_ranges(self.own.cluster).filter(of_family);
        ranges
            .filter(|range| !self.duties.services.contains(range))
            .collect()
    }

    /// Returns the service ranges that a route reflector reflects.
    fn reflected(&self, of_family: impl Fn(&IpNet) -> bool) -> Vec<IpNet> {
        if self.own.cluster_id.is_none() {
            return Vec::new();
        }
        let ranges = [
            &self.own.cluster.service_load_balancer_ips,
            &self.own.cluster.service_external_ips,
        ];
        let ranges = ranges
            .into_iter()
            .flatten()
            .map(|range| range.cidr.0.trunc());
        ranges.filter(of_family).collect()
    }
}

/// Returns the term of a drained reflector (RFC 8326 §4.2): it adds GRACEFUL_SHUTDOWN to every
/// route and lowers LOCAL_PREF, so that peers without support for the community also prefer other
/// routes.
fn farewell() -> Term {
    term("farewell", [], farewell::edits(), Then::Next)
}

/// Returns whether a pool uses VXLAN, which Felix programs.
pub(crate) const fn is_vxlan(pool: &IpPoolSpec) -> bool {
    !matches!(pool.vxlan_mode, EncapsulationMode::Never)
}

fn rules<'f>(filter: &'f BgpFilterSpec, wanted: &Wanted) -> (&'static str, &'f [BgpFilterRule]) {
    match (wanted.export, wanted.ipv6) {
        (true, false) => ("exportV4", &filter.export_v4),
        (true, true) => ("exportV6", &filter.export_v6),
        (false, false) => ("importV4", &filter.import_v4),
        (false, true) => ("importV6", &filter.import_v6),
    }
}

fn term(
    name: &str,
    when: impl IntoIterator<Item = Match>,
    edit: impl IntoIterator<Item = Edit>,
    then: Then,
) -> Term {
    Term::new(
        name.to_owned(),
        when.into_iter().collect(),
        edit.into_iter().collect(),
        then,
    )
}
