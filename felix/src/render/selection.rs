//! Selects the endpoints of a policy or of an end of a rule, and holds compiled rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use calico_model::{EntityRule, Rule as Stored, Selector, ServiceName};

use super::decision::{Denial, PacketLog};
use super::log::LogSettings;
use super::names::SetId;
use super::owner::{Direction, Owner};
use super::ruleset::{Chain, Set};

const NAMESPACE: &str = "projectcalico.org/namespace";
const SERVICE_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// Prefix of labels that endpoints inherit from their namespace and service account.
const OF_NAMESPACE: &str = "pcns.";
const OF_SERVICE_ACCOUNT: &str = "pcsa.";

/// An unsupported part of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The field, as a path.
    pub field: String,
    /// The problem, and the measure taken.
    pub reason: String,
}

impl Unsupported {
    pub(super) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// The members of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// The addresses of a selector's endpoints.
    Addresses(Selector),
    /// The ports of these with names, each with an address.
    Ports(Selector, NamedPorts),
    /// The addresses of a service's endpoints, each with their ports or without.
    Service(ServiceName, bool),
}

impl Selected {
    /// Returns the selector of endpoints, with names of their ports; `None` for a service.
    pub fn endpoints(&self) -> Option<(&Selector, Option<&NamedPorts>)> {
        match self {
            Self::Addresses(selector) => Some((selector, None)),
            Self::Ports(selector, ports) => Some((selector, Some(ports))),
            Self::Service(..) => None,
        }
    }
}

/// Ports by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPorts {
    /// The protocol of the ports.
    pub protocol: u8,
    /// Their names.
    pub names: BTreeSet<String>,
}

/// The rules of one direction of a policy or profile, as a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The chain's name.
    pub name: String,
    /// The chain. It accepts, drops, or returns: because no rule matched, or because of a `Pass`.
    pub chain: Arc<Chain>,
    /// Whether a rule has the action `Pass`.
    pub passes: bool,
    /// The sets of endpoints in its rules.
    pub selected: BTreeMap<SetId, Arc<Selected>>,
    /// The sets of ranges in its rules.
    pub sets: BTreeMap<String, Arc<Set>>,
    /// Its rules that explicitly allow a workload to send encapsulated packets.
    pub encapsulation: Option<(String, Arc<Chain>)>,
    /// Unsupported parts.
    pub unsupported: Vec<Unsupported>,
    /// The action of its rules that deny.
    pub(super) denial: Denial,
    /// The direction of its traffic.
    pub(super) direction: Direction,
    /// The packet log to which its rules report.
    pub(super) flows: Option<PacketLog>,
    /// The stored rules, if the chain depends on the context.
    pub(super) template: Option<Arc<Template>>,
}

/// The values outside a policy or profile that its chains depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The settings of `Log` rules.
    pub log: LogSettings,
    /// The action of rules that deny.
    pub denial: Denial,
    /// The packet log to which rules report.
    pub flows: Option<PacketLog>,
    /// The services with endpoints in the datastore.
    pub services: Arc<BTreeSet<ServiceName>>,
}

/// Rules to compile again in another context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pub(super) direction: Direction,
    pub(super) owner: Owner,
    pub(super) rules: Vec<Stored>,
    /// The services that they name.
    pub(super) services: BTreeSet<ServiceName>,
    /// The reason why all traffic after the rules is dropped.
    pub(super) closed: Option<String>,
}

/// Returns the endpoints that an end of a rule selects; `None` without a selector.
pub(super) fn selection(
    entity: &EntityRule,
    namespace: Option<&str>,
) -> Result<Option<Selector>, Unsupported> {
    let mut parts = Vec::new();
    let accounts = entity.service_accounts.as_ref();
    if !entity.namespace_selector.is_empty() {
        let selector = parse("namespaceSelector", &entity.namespace_selector)?;
        parts.push(selector.under(OF_NAMESPACE, NAMESPACE));
    } else if let Some(namespace) = namespace
        && (!entity.selector.is_empty() || !entity.not_selector.is_empty() || accounts.is_some())
    {
        parts.push(Selector::equal(NAMESPACE, namespace));
    }
    if let Some(accounts) = accounts {
        if !accounts.names.is_empty() {
            parts.push(Selector::any_of(
                SERVICE_ACCOUNT,
                accounts.names.iter().cloned(),
            ));
        }
        if !accounts.selector.is_empty() {
            let selector = parse("serviceAccounts.selector", &accounts.selector)?;
            parts.push(selector.under(OF_SERVICE_ACCOUNT, SERVICE_ACCOUNT));
        }
    }
    if !entity.selector.is_empty() {
        parts.push(parse("selector", &entity.selector)?);
    }
    Ok(parts.into_iter().reduce(|one, other| one.and(&other)))
}

/// Returns the service that an end of a rule names, if it does.
pub(super) fn service(
    entity: &EntityRule,
    namespace: Option<&str>,
    is_destination: bool,
) -> Result<Option<ServiceName>, Unsupported> {
    let Some(given) = &entity.services else {
        return Ok(None);
    };
    if given.name.is_empty() {
        return Err(Unsupported::new("services.name", "it is missing"));
    }
    let namespace = match &*given.namespace {
        "" => namespace.ok_or_else(|| {
            let reason = "it is missing, and the rules have no namespace of their own";
            Unsupported::new("services.namespace", reason)
        })?,
        given => given,
    };
    if let Some(other) = entity.field_beside_services(is_destination) {
        let reason = format!("it cannot be combined with {other}");
        return Err(Unsupported::new("services", reason));
    }
    Ok(Some(ServiceName {
        namespace: namespace.to_owned(),
        name: given.name.clone(),
    }))
}

pub(super) fn parse(field: &str, text: &str) -> Result<Selector, Unsupported> {
    text.parse()
        .map_err(|error: calico_model::SelectorError| Unsupported::new(field, error.to_string()))
}

/// Returns the endpoints of a policy.
///
/// # Errors
///
/// One of the texts is not a valid selector.
pub fn subjects(
    namespace: Option<&str>,
    selector: &str,
    namespace_selector: &str,
    service_account_selector: &str,
) -> Result<Selector, Unsupported> {
    let mut parts = Vec::new();
    if !selector.trim().is_empty() {
        parts.push(parse("selector", selector)?);
    }
    if !namespace_selector.is_empty() {
        let found = parse("namespaceSelector", namespace_selector)?;
        parts.push(found.under(OF_NAMESPACE, NAMESPACE));
    }
    if !service_account_selector.is_empty() {
        let found = parse("serviceAccountSelector", service_account_selector)?;
        parts.push(found.under(OF_SERVICE_ACCOUNT, SERVICE_ACCOUNT));
    }
    if let Some(namespace) = namespace {
        parts.push(Selector::equal(NAMESPACE, namespace));
    }
    let joined = parts.into_iter().reduce(|one, other| one.and(&other));
    joined.map_or_else(|| parse("selector", ""), Ok)
}
