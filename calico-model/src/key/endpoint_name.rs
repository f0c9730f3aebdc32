//! Names of workload endpoints: four parts separated by dashes; a dash within a part is doubled.

use std::fmt;
use std::str::FromStr;

/// The parts of a workload endpoint's name: `<node>-<orchestrator>-<workload>-<endpoint>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointName {
    node: String,
    orchestrator: String,
    workload: String,
    endpoint: String,
}

/// Why parts or a text are not a name of a workload endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointNameError {
    /// There are not four parts.
    #[error(
        "a name has four parts (node, orchestrator, workload, endpoint) with single dashes between them"
    )]
    Parts,
    /// A part is empty, so that the adjacent dashes would merge.
    #[error("a part of the name is empty")]
    Empty,
    /// A part begins or ends with a dash, which would be ambiguous with a separator.
    #[error("a part of the name begins or ends with '-'")]
    Dash,
    /// A part contains a slash, which keys cannot contain.
    #[error("a part of the name contains '/'")]
    Slash,
}

impl EndpointName {
    /// Returns a name from its parts. `workload` is the pod of a `k8s` endpoint, the container id
    /// of a `cni` one, the word `libnetwork` of a `libnetwork` one, and the workload of all others.
    pub fn new(
        node: &str,
        orchestrator: &str,
        workload: &str,
        endpoint: &str,
    ) -> Result<Self, EndpointNameError> {
        for part in [node, orchestrator, workload, endpoint] {
            if part.is_empty() {
                return Err(EndpointNameError::Empty);
            }
            if part.starts_with('-') || part.ends_with('-') {
                return Err(EndpointNameError::Dash);
            }
            if part.contains('/') {
                return Err(EndpointNameError::Slash);
            }
        }
        Ok(Self {
            node: node.to_owned(),
            orchestrator: orchestrator.to_owned(),
            workload: workload.to_owned(),
            endpoint: endpoint.to_owned(),
        })
    }

    /// Returns the common prefix of the names of a node's endpoints of one orchestrator. A dash
    /// within a part is doubled, so it is no prefix of a name of another node.
    pub fn prefix(node: &str, orchestrator: &str) -> String {
        format!("{}-{}-", doubled(node), doubled(orchestrator))
    }

    /// Returns whether a text begins as the names of a node's endpoints do. This does not need a
    /// valid name.
    pub fn is_of_node(text: &str, node: &str) -> bool {
        let rest = text.strip_prefix(&doubled(node));
        let rest = rest.and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| !rest.starts_with('-'))
    }

    /// Returns the host that the endpoint is on.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the orchestrator of the endpoint: `k8s`, `cni`, `openstack`, …
    pub fn orchestrator(&self) -> &str {
        &self.orchestrator
    }

    /// Returns the workload: its meaning depends on the orchestrator, see [`Self::new`].
    pub fn workload(&self) -> &str {
        &self.workload
    }

    /// Returns the endpoint within the workload, such as `eth0`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl FromStr for EndpointName {
    type Err = EndpointNameError;

    fn from_str(text: &str) -> Result<Self, EndpointNameError> {
        let mut parts = vec![String::new()];
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let separates = character == '-' && characters.next_if_eq(&'-').is_none();
            match parts.last_mut() {
                Some(part) if !separates => part.push(character),
                _ => parts.push(String::new()),
            }
        }
        match parts.as_slice() {
            [node, orchestrator, workload, endpoint] => {
                Self::new(node, orchestrator, workload, endpoint)
            }
            _ => Err(EndpointNameError::Parts),
        }
    }
}

impl fmt::Display for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{}-{}-{}",
            doubled(&self.node),
            doubled(&self.orchestrator),
            doubled(&self.workload),
            doubled(&self.endpoint)
        )
    }
}

fn doubled(part: &str) -> String {
    part.replace('-', "--")
}
