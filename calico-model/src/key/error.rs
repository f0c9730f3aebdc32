//! Why a text is not a key.

use super::endpoint_name::EndpointNameError;
use super::kind::{Kind, Scope};

/// Why a text is not a key of the data model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is not below `/calico/`.
    #[error("not a key below /calico/")]
    Foreign,
    /// A part of the path is missing, empty, or contains a slash.
    #[error("a part of the key is missing, empty or contains '/'")]
    Part,
    /// The kind of resource is unknown.
    #[error("no kind of resource has keys of this form")]
    UnknownKind,
    /// The kind is namespaced and the key has no namespace, or the other way round.
    #[error("{0}{text}", text = scope_text(*.0))]
    Scope(Kind),
    /// The name of a workload endpoint has the wrong form.
    #[error("not the name of a workload endpoint: {0}")]
    EndpointName(#[from] EndpointNameError),
    /// It is in the range of the agents' reports, but is not one of their keys.
    #[error("not a status key")]
    Status,
}

const fn scope_text(kind: Kind) -> &'static str {
    match kind.scope() {
        Scope::Cluster => " has no namespace",
        Scope::Namespaced => " needs a namespace",
    }
}
