//! The schema of the data model: every field of every kind, and which program supports it.
//!
//! It is one table for writing, reporting and the operators' page: `cambric apply` rejects a field
//! that is not in it, and [`unsupported_fields`] returns the fields of a resource without effect,
//! with the reason.

mod felix_configuration;
mod others;
mod policy;
mod routing;
mod severity;
#[cfg(test)]
mod tests;
mod unsupported;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;

use crate::key::kind::Kind;
pub use severity::Severity;
pub use unsupported::{UnsupportedField, unsupported_fields, unsupported_in_rule};

/// A part of the suite that supports a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// The agent of a host.
    Felix,
    /// The BGP client and the route reflector.
    Bgp,
    /// Address management: the CNI plugin and `cambric ipam`.
    Ipam,
    /// The controller of Kubernetes.
    Kubernetes,
    /// Every program that reads the datastore.
    Datastore,
}

impl Program {
    /// Returns its name for operators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Felix => "Felix",
            Self::Bgp => "the BGP daemons",
            Self::Ipam => "address management",
            Self::Kubernetes => "cambric-kube",
            Self::Datastore => "every program",
        }
    }
}

/// The effect of a set field.
#[derive(Clone, Copy)]
pub(crate) enum Support {
    /// This program supports it.
    By(Program),
    /// A comment, an identity or a record, in Calico too: no program acts on it.
    Record,
    /// Declared by its parts.
    Parts,
    /// No program supports it.
    No {
        /// The program that reports it; `None`: it is reported where it is written and shown.
        due: Option<Program>,
        /// Whether a value requests anything.
        asks: fn(&Value) -> bool,
        /// The measure taken.
        reason: &'static str,
    },
}

/// The type of a field's value.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Anything.
    Any,
    /// Text, a list of texts, or an object of texts.
    Text,
    /// An object with these fields.
    Object(Fields),
    /// A list of objects with these fields.
    List(Fields),
    /// A list of rules.
    Rules,
}

impl Shape {
    /// Returns the fields of its objects, and whether it is a list of them.
    pub(crate) const fn parts(self) -> Option<(Fields, bool)> {
        match self {
            Self::Any | Self::Text => None,
            Self::Object(fields) => Some((fields, false)),
            Self::List(fields) => Some((fields, true)),
            Self::Rules => Some((policy::RULE, true)),
        }
    }
}

/// A field.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) support: Support,
}

pub(crate) type Fields = &'static [Field];

/// Returns a field that a program supports.
const fn by(program: Program, name: &'static str, shape: Shape) -> Field {
    let support = Support::By(program);
    Field {
        name,
        shape,
        support,
    }
}

const fn felix(name: &'static str, shape: Shape) -> Field {
    by(Program::Felix, name, shape)
}

const fn bgp(name: &'static str, shape: Shape) -> Field {
    by(Program::Bgp, name, shape)
}

const fn ipam(name: &'static str, shape: Shape) -> Field {
    by(Program::Ipam, name, shape)
}

/// Declares a field that no program acts on, in Calico either.
const fn record(name: &'static str, shape: Shape) -> Field {
    let support = Support::Record;
    Field {
        name,
        shape,
        support,
    }
}

/// Declares a field by its parts.
const fn parts(name: &'static str, shape: Shape) -> Field {
    let support = Support::Parts;
    Field {
        name,
        shape,
        support,
    }
}

/// Declares a field that no program supports; `due` reports it if a value is set.
const fn no(
    due: Option<Program>,
    name: &'static str,
    shape: Shape,
    asks: fn(&Value) -> bool,
    reason: &'static str,
) -> Field {
    let support = Support::No { due, asks, reason };
    Field {
        name,
        shape,
        support,
    }
}

/// Returns true for every value.
fn always(_: &Value) -> bool {
    true
}

/// Returns whether a value, or a part of it, is more than `null`, false, a zero or an empty text.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => list.iter().any(is_set),
        Value::Object(fields) => fields.values().any(is_set),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Bool(true) => true,
    }
}

/// Returns whether a value may be a condition: it is more than `null` or an empty object.
fn may_match(value: &Value) -> bool {
    !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty())
}

/// Returns the fields of a resource of a kind.
pub(crate) const fn fields(kind: Kind) -> Fields {
    match kind {
        Kind::Node => routing::NODE,
        Kind::IpPool => routing::IP_POOL,
        Kind::BgpConfiguration => routing::BGP_CONFIGURATION,
        Kind::BgpPeer => routing::BGP_PEER,
        Kind::BgpFilter => routing::BGP_FILTER,
        Kind::BfdConfiguration => routing::BFD_CONFIGURATION,
        Kind::IpReservation => routing::IP_RESERVATION,
        Kind::IpamConfiguration => routing::IPAM_CONFIGURATION,
        Kind::ClusterInformation => routing::CLUSTER_INFORMATION,
        Kind::WorkloadEndpoint => policy::WORKLOAD_ENDPOINT,
        Kind::HostEndpoint => policy::HOST_ENDPOINT,
        Kind::Profile => policy::PROFILE,
        Kind::NetworkPolicy => policy::NETWORK_POLICY,
        Kind::GlobalNetworkPolicy => policy::GLOBAL_NETWORK_POLICY,
        Kind::Tier => policy::TIER,
        Kind::NetworkSet | Kind::GlobalNetworkSet => policy::NETWORK_SET,
        Kind::StagedNetworkPolicy | Kind::StagedGlobalNetworkPolicy => policy::STAGED_POLICY,
        Kind::StagedKubernetesNetworkPolicy => policy::STAGED_KUBERNETES_POLICY,
        Kind::FelixConfiguration => felix_configuration::FELIX_CONFIGURATION,
        Kind::BlockAffinity => others::BLOCK_AFFINITY,
        Kind::LiveMigration => others::LIVE_MIGRATION,
        Kind::KubeControllersConfiguration => others::KUBE_CONTROLLERS_CONFIGURATION,
        Kind::CalicoNodeStatus => others::CALICO_NODE_STATUS,
    }
}

/// The declaration of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its path, such as `spec.ingress[].source.nets`.
    pub path: String,
    /// The effect when it is set.
    pub standing: Standing,
}

/// The effect of a set field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// This program supports it.
    Supported(Program),
    /// It is a record: in Calico, too, no program acts on it.
    Record,
    /// It has no effect.
    Unsupported {
        /// The program that reports it in its status, if there is one.
        due: Option<Program>,
        /// The measure taken.
        reason: &'static str,
    },
}

/// Returns the fields of a kind's spec down to those without parts.
pub fn declared(kind: Kind) -> Vec<Declared> {
    let mut found = Vec::new();
    if let Some(spec) = fields(kind).iter().find(|field| field.name == "spec") {
        declare("spec", spec, None, &mut found);
    }
    found
}

fn declare(path: &str, field: &Field, above: Option<Standing>, found: &mut Vec<Declared>) {
    let standing = match field.support {
        Support::By(program) => Some(Standing::Supported(program)),
        Support::Record => Some(Standing::Record),
        Support::No { due, reason, .. } => Some(Standing::Unsupported { due, reason }),
        Support::Parts => None,
    };
    let standing = above.or(standing);
    match (field.shape.parts(), standing) {
        (Some((fields, is_list)), _) => {
            let list = if is_list { "[]" } else { "" };
            for field in fields {
                let path = format!("{path}{list}.{}", field.name);
                declare(&path, field, standing, found);
            }
        }
        (None, Some(standing)) => found.push(Declared {
            path: path.to_owned(),
            standing,
        }),
        (None, None) => {}
    }
}

/// Returns the names of the fields that an object of a resource may have. `path` is that of the
/// object, such as `spec.ingress[0].source`; the empty path is the resource itself. Empty if the
/// schema does not restrict them.
pub fn known_fields(kind: Kind, path: &str) -> Vec<&'static str> {
    let steps = path.split('.').filter(|step| !step.is_empty());
    let mut here = fields(kind);
    for step in steps {
        let name = step.split('[').next().unwrap_or_default();
        let below = here.iter().find(|field| field.name == name);
        match below.and_then(|field| field.shape.parts()) {
            Some((fields, _)) => here = fields,
            None => return Vec::new(),
        }
    }
    here.iter().map(|field| field.name).collect()
}

/// Returns whether some kind has a field with this name whose value, without its parts, is no
/// secret.
pub fn is_public_field(name: &str) -> bool {
    static NAMES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
        let mut names = BTreeSet::new();
        for kind in Kind::ALL {
            collect_names(fields(*kind), &mut names);
        }
        SECRET_FIELDS.iter().for_each(|name| {
            names.remove(name);
        });
        names
    });
    NAMES.contains(name)
}

/// The fields whose values are secrets, or may be by mistake.
const SECRET_FIELDS: &[&str] = &["password", "nodeMeshPassword", "secretKeyRef", "key"];

fn collect_names(fields: Fields, names: &mut BTreeSet<&str>) {
    for field in fields {
        names.insert(field.name);
        if let Some((below, _)) = field.shape.parts() {
            collect_names(below, names);
        }
    }
}

const METADATA: Fields = {
    use Shape::{Any, Text};
    &[
        record("name", Text),
        record("namespace", Text),
        record("uid", Text),
        record("creationTimestamp", Any),
        record("labels", Text),
        record("annotations", Text),
        record("resourceVersion", Text),
        record("generateName", Any),
        record("generation", Any),
        record("selfLink", Any),
        record("managedFields", Any),
        record("ownerReferences", Any),
        record("finalizers", Any),
        record("deletionTimestamp", Any),
        record("deletionGracePeriodSeconds", Any),
    ]
};

/// The envelope of a spec.
macro_rules! envelope {
    ($spec:expr) => {
        &[
            super::record("kind", super::Shape::Any),
            super::record("apiVersion", super::Shape::Any),
            super::record("metadata", super::Shape::Object(super::METADATA)),
            $spec,
            super::record("status", super::Shape::Any),
        ]
    };
}
use envelope;
