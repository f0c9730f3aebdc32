//! Automatic host endpoints: each Node with an annotation counts as one with a host endpoint for all of
//! its interfaces, as Calico's controller writes them. Nothing is written to the datastore.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_model::{DEFAULT_ALLOW_PROFILE, Kind, Metadata};
use ipnet::IpNet;

use super::policy::{Member, Role};
use super::read::{is_taken_on, profile_key};
use super::types::{AppliesTo, HostEndpoint, Problem};

/// The annotation of a Node, with the value [`AUTO`].
pub(super) const ANNOTATION: &str = "cambric.io/host-endpoint";

/// The value of the annotation.
const AUTO: &str = "auto";

/// The end of the name of an automatic host endpoint (as in Calico).
const SUFFIX: &str = "-auto-hep";

/// The label of automatic host endpoints, and its value (as in Calico).
const CREATED_BY: (&str, &str) = ("projectcalico.org/created-by", "calico-kube-controllers");

/// A host endpoint in the form that the calculator keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Automatic {
    /// For this host.
    pub(super) endpoint: Option<HostEndpoint>,
    /// For the selectors of rules.
    pub(super) member: Member,
}

/// Returns the key of the automatic host endpoint of a node.
pub(super) fn key_of(node: &str) -> String {
    format!("{}{node}{SUFFIX}", Kind::HostEndpoint.prefix())
}

/// Returns whether a Node requests an automatic host endpoint, or an invalid value.
pub(super) fn is_requested(key: &str, metadata: &Metadata) -> Result<bool, Problem> {
    match metadata.annotations.get(ANNOTATION).map(String::as_str) {
        None => Ok(false),
        Some(AUTO) => Ok(true),
        Some(other) => {
            let field = format!("metadata.annotations.{ANNOTATION}");
            Err(Problem::new(
                key,
                field,
                format!("'{other}' is not '{AUTO}': the host endpoint exists as with '{AUTO}'"),
            ))
        }
    }
}

impl Automatic {
    /// Returns the host endpoint of a node with these labels and addresses.
    pub(super) fn of(
        labels: &BTreeMap<String, String>,
        addresses: impl Iterator<Item = IpAddr>,
        is_own: bool,
    ) -> Self {
        let mut labels = labels.clone();
        labels.retain(|label, _| !is_taken_on(label));
        labels.insert(CREATED_BY.0.to_owned(), CREATED_BY.1.to_owned());
        let endpoint = is_own.then(|| HostEndpoint {
            applies_to: AppliesTo::All,
            profiles: vec![DEFAULT_ALLOW_PROFILE.to_owned()],
        });
        let role = match is_own {
            true => Role::Host,
            false => Role::Selected,
        };
        let member = Member {
            labels,
            profiles: vec![profile_key(DEFAULT_ALLOW_PROFILE)],
            addresses: addresses.map(IpNet::from).collect(),
            role,
            ..Member::default()
        };
        Self { endpoint, member }
    }
}
