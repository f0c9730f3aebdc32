//! A client of Kubernetes' API server. Objects are JSON.
//!
//! - [`Access`] is the address of a server with the credentials of the client: from its parts, or from a
//!   [`Kubeconfig`].
//! - [`Server`] sends requests over one connection: objects, pages of lists, [watches](Lines), creations,
//!   replacements and patches. Each has a limit of time and of octets. [`Unread`] fields are not kept.
//! - [`Failure`] is the reason why a request failed. It never has a credential.

mod kubeconfig;
pub mod limits;
mod server;

pub use kubeconfig::{
    Kubeconfig, KubeconfigError, Overrides, cluster_access, is_pod, own_namespace,
};
pub use server::{Access, AccessError, Credential, Failure, Lines, Server, Trust, Unread, parse};
