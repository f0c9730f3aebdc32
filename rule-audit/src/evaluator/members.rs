//! Members of selectors: the endpoints of all hosts, network sets and host endpoints.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::selector::{Selector, Test};
use super::slices::{Service, ServiceName};
use super::values::{
    Labels, NAMESPACE, OF_ACCOUNT, OF_NAMESPACE, ORCHESTRATOR, SERVICE_ACCOUNT, labels,
    protocol_number, texts,
};
use crate::packet::Family;
use crate::ranges::{Ranges, parse_network};
use crate::space::Row;

/// A resource that selectors of rules can select.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    labels: BTreeMap<String, String>,
    nets: Vec<(Family, (u128, u128))>,
    ports: Vec<Port>,
}

/// A named port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    name: String,
    protocol: u128,
    number: u128,
}

/// All members, with an index of their labels.
#[derive(Debug, Default)]
pub(super) struct Members {
    all: Vec<Member>,
    by_label: BTreeMap<String, Vec<usize>>,
    by_value: BTreeMap<(String, String), Vec<usize>>,
    /// The addresses of selectors that were evaluated.
    known: RefCell<BTreeMap<(Selector, Family), Arc<Ranges>>>,
    services: BTreeMap<ServiceName, Service>,
}

impl Members {
    pub(super) fn new(all: Vec<Member>, services: BTreeMap<ServiceName, Service>) -> Self {
        let mut members = Self {
            all,
            services,
            ..Self::default()
        };
        for (at, member) in members.all.iter().enumerate() {
            for (label, value) in &member.labels {
                members.by_label.entry(label.clone()).or_default().push(at);
                let pair = (label.clone(), value.clone());
                members.by_value.entry(pair).or_default().push(at);
            }
        }
        members
    }

    /// Returns a service that the datastore has a slice of.
    pub(super) fn service(&self, name: &ServiceName) -> Option<&Service> {
        self.services.get(name)
    }

    /// Returns the addresses of the selected members.
    pub(super) fn addresses(&self, selector: &Selector, family: Family) -> Arc<Ranges> {
        let key = (selector.clone(), family);
        if let Some(known) = self.known.borrow().get(&key) {
            return Arc::clone(known);
        }
        let nets = self.selected(selector).flat_map(|member| &member.nets);
        let own = nets.filter(|(of, _)| *of == family);
        let found = Arc::new(Ranges::of(own.map(|(_, range)| *range)));
        self.known.borrow_mut().insert(key, Arc::clone(&found));
        found
    }

    /// Returns address and port of each named port of the selected members.
    pub(super) fn ports(
        &self,
        selector: &Selector,
        family: Family,
        protocol: u128,
        names: &BTreeSet<String>,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        for member in self.selected(selector) {
            let named = member.ports.iter();
            let named =
                named.filter(|port| port.protocol == protocol && names.contains(&port.name));
            for port in named {
                let nets = member.nets.iter().filter(|(of, _)| *of == family);
                rows.extend(nets.map(|(_, range)| vec![*range, (port.number, port.number)]));
            }
        }
        rows
    }

    fn selected(&self, selector: &Selector) -> impl Iterator<Item = &Member> {
        let places = self.candidates(selector);
        let places = places.unwrap_or_else(|| (0..self.all.len()).collect());
        let members = places.into_iter().filter_map(|at| self.all.get(at));
        members.filter(|member| selector.selects_map(&member.labels))
    }

    /// Returns about how many members [`Self::candidates`] returns.
    fn size(&self, selector: &Selector) -> Option<usize> {
        match selector {
            Selector::Is(label, Test::OneOf(values)) => {
                let sizes = values.iter().map(|value| {
                    let pair = (label.clone(), value.clone());
                    self.by_value.get(&pair).map_or(0, Vec::len)
                });
                Some(sizes.sum())
            }
            Selector::Has(label) | Selector::Is(label, _) => {
                Some(self.by_label.get(label).map_or(0, Vec::len))
            }
            Selector::And(parts) => parts.iter().filter_map(|part| self.size(part)).min(),
            Selector::Or(parts) => parts.iter().map(|part| self.size(part)).sum(),
            Selector::All | Selector::Global | Selector::IsNot(..) | Selector::Not(_) => None,
        }
    }

    /// Returns the members that may be selected, if the selector requires a label.
    fn candidates(&self, selector: &Selector) -> Option<BTreeSet<usize>> {
        let list = |found: Option<&Vec<usize>>| found.into_iter().flatten().copied().collect();
        match selector {
            Selector::Is(label, Test::OneOf(values)) => {
                let lists = values.iter().map(|value| {
                    let pair = (label.clone(), value.clone());
                    self.by_value.get(&pair).into_iter().flatten()
                });
                Some(lists.flatten().copied().collect())
            }
            Selector::Has(label) | Selector::Is(label, _) => Some(list(self.by_label.get(label))),
            Selector::And(parts) => {
                let sized = parts
                    .iter()
                    .filter_map(|part| Some((self.size(part)?, part)));
                let (_, smallest) = sized.min_by_key(|(size, _)| *size)?;
                self.candidates(smallest)
            }
            Selector::Or(parts) => {
                let lists = parts.iter().map(|part| self.candidates(part));
                let lists: Option<Vec<BTreeSet<usize>>> = lists.collect();
                Some(lists?.into_iter().flatten().collect())
            }
            Selector::All | Selector::Global | Selector::IsNot(..) | Selector::Not(_) => None,
        }
    }
}

/// Returns the labels of a workload endpoint that are its own.
pub(super) fn own_labels(namespace: &str, value: &Value) -> BTreeMap<String, String> {
    let mut own = labels(&value["metadata"]["labels"]);
    own.retain(|label, _| !is_inherited(label));
    let spec = |field: &str| value["spec"][field].as_str().unwrap_or_default();
    for (label, text) in [
        (NAMESPACE, namespace),
        (ORCHESTRATOR, spec("orchestrator")),
        (SERVICE_ACCOUNT, spec("serviceAccountName")),
    ] {
        if !text.is_empty() {
            own.insert(label.to_owned(), text.to_owned());
        }
    }
    own
}

/// Adds the labels of profiles. A label of its own, or of an earlier profile, has precedence.
pub(super) fn effective(
    mut own: BTreeMap<String, String>,
    names: &[String],
    inherited: &BTreeMap<String, Labels>,
) -> BTreeMap<String, String> {
    for labels in names.iter().filter_map(|name| inherited.get(name)) {
        for (label, value) in labels {
            own.entry(label.clone()).or_insert_with(|| value.clone());
        }
    }
    own
}

/// Reads a workload endpoint of any host. Invalid addresses and ports are left out.
pub(super) fn member(
    namespace: &str,
    value: &Value,
    inherited: &BTreeMap<String, Labels>,
) -> Member {
    let spec = &value["spec"];
    let names = texts(&spec["profiles"]);
    Member {
        labels: effective(own_labels(namespace, value), &names, inherited),
        nets: nets(&spec["ipNetworks"]),
        ports: ports(&spec["ports"]),
    }
}

/// Reads a network set or host endpoint.
pub(super) fn set_member(
    namespace: Option<&str>,
    value: &Value,
    field: &str,
    inherited: &BTreeMap<String, Labels>,
) -> Member {
    let spec = &value["spec"];
    let mut own = labels_of_host(value);
    let mut names = texts(&spec["profiles"]);
    if let Some(namespace) = namespace {
        own.insert(NAMESPACE.to_owned(), namespace.to_owned());
        names = vec![format!("kns.{namespace}")];
    }
    Member {
        labels: effective(own, &names, inherited),
        nets: nets(&spec[field]),
        ports: ports(&spec["ports"]),
    }
}

/// Returns the labels of a host endpoint or network set that are its own.
pub(super) fn labels_of_host(value: &Value) -> BTreeMap<String, String> {
    let mut own = labels(&value["metadata"]["labels"]);
    own.retain(|label, _| !is_inherited(label));
    own
}

fn is_inherited(label: &str) -> bool {
    label.starts_with(OF_NAMESPACE) || label.starts_with(OF_ACCOUNT)
}

fn nets(value: &Value) -> Vec<(Family, (u128, u128))> {
    let list = texts(value);
    list.iter().filter_map(|text| parse_network(text)).collect()
}

fn ports(value: &Value) -> Vec<Port> {
    let list = value.as_array().into_iter().flatten();
    let ports = list.filter_map(|port| {
        let number = port["port"]
            .as_u64()
            .filter(|number| (1..=65535).contains(number))?;
        Some(Port {
            name: port["name"].as_str()?.to_owned(),
            protocol: protocol_number(&port["protocol"])?,
            number: number.into(),
        })
    });
    ports.filter(|port| !port.name.is_empty()).collect()
}
