//! Host endpoints that have addresses instead of an interface.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::endpoints::{Endpoint, PATTERNS, UNLOCATED};
use super::fabric::Fabric;

impl Fabric {
    /// Assigns each host endpoint without an interface to the interfaces with one of its `expectedIPs`. The
    /// datastore does not have the addresses of interfaces, so the caller provides them.
    pub fn locate(&mut self, interfaces: &BTreeMap<String, BTreeSet<IpAddr>>) {
        let all = std::mem::take(&mut self.hosts).into_iter();
        // The order of names decides which of several host endpoints applies to an interface.
        self.hosts = all
            .flat_map(|host| match host.interface.is_empty() {
                true => self.at_interfaces(&host, interfaces),
                false => vec![host],
            })
            .collect();
    }

    fn at_interfaces(
        &self,
        host: &Endpoint,
        interfaces: &BTreeMap<String, BTreeSet<IpAddr>>,
    ) -> Vec<Endpoint> {
        let is_own = |own: &BTreeSet<IpAddr>| host.addresses.iter().any(|one| own.contains(one));
        let found = interfaces.iter().filter(|(_, own)| is_own(own));
        let names = found.map(|(name, _)| name);
        let names = names.filter(|name| !self.is_workload(name) && !self.is_excluded(name));
        let located = names.map(|name| {
            let fault = host.fault.clone().filter(|fault| fault != UNLOCATED);
            let has_patterns = fault.is_none() && self.has_patterns();
            Endpoint {
                interface: name.clone(),
                fault: fault.or_else(|| has_patterns.then(|| PATTERNS.to_owned())),
                ..host.clone()
            }
        });
        located.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn fabric(spec: &Value) -> Fabric {
        let prefix = "/calico/resources/v3/projectcalico.org";
        let addresses = json!(["10.0.0.11", "fd01::11"]);
        let settings = json!({"interfaceExclude": spec});
        let store = [
            (
                "hostendpoints/by-address",
                json!({"node": "n1", "expectedIPs": addresses}),
            ),
            (
                "hostendpoints/named",
                json!({"node": "n1", "interfaceName": "eth1"}),
            ),
            ("felixconfigurations/default", settings),
        ];
        let store = store.map(|(key, spec)| (format!("{prefix}/{key}"), json!({ "spec": spec })));
        let store: BTreeMap<String, Value> = store.into();
        Fabric::read(&store, "n1", |_| {})
    }

    fn located(spec: &Value) -> Vec<(String, bool)> {
        let mut fabric = fabric(spec);
        let interfaces = [
            ("cali1", "10.0.0.11"),
            ("eth0", "10.0.0.11"),
            ("eth1", "fd01::11"),
            ("eth2", "10.0.0.12"),
            ("excluded", "fd01::11"),
        ];
        let interfaces = interfaces.map(|(name, own)| {
            let own = BTreeSet::from([own.parse::<IpAddr>().unwrap()]);
            (name.to_owned(), own)
        });
        fabric.locate(&interfaces.into());
        let hosts = fabric.hosts.iter();
        let names = hosts.map(|host| (host.interface.clone(), host.fault.is_none()));
        names.collect()
    }

    #[test]
    fn host_endpoint_applies_to_interfaces_with_its_addresses() {
        let found = located(&json!("excluded"));
        let names = ["eth0", "eth1", "eth1"].map(|name| (name.to_owned(), true));
        assert_eq!(found, names);
    }

    #[test]
    fn host_endpoint_without_an_interface_has_a_fault() {
        let faults = fabric(&json!("")).hosts.into_iter();
        let faults: Vec<bool> = faults.map(|host| host.fault.is_some()).collect();
        assert_eq!(faults, [true, false]);
    }

    #[test]
    fn pattern_of_excluded_interfaces_is_a_fault() {
        let found = located(&json!("/^ex/,excluded"));
        assert!(found.iter().all(|(_, is_known)| !is_known), "{found:?}");
    }
}
