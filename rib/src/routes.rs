//! Routes of one peer as a monitor receives them (RFC 7854, RFC 8671).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use bgp_proto::{Attributes, Family, Nlri};

use crate::destination::Destination;
use crate::peer::PeerId;

/// A table of a peer, before or after policy (RFC 7854 §2, RFC 8671 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Adj-RIB-In, pre-policy: routes as the peer sent them.
    AdjRibInPrePolicy,
    /// Adj-RIB-In, post-policy: routes that the import policy accepted, as it changed them.
    AdjRibInPostPolicy,
    /// Adj-RIB-Out, post-policy: routes as the peer is sent them.
    AdjRibOutPostPolicy,
}

impl Stage {
    /// Returns the name, such as `adj-rib-in-pre-policy`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdjRibInPrePolicy => "adj-rib-in-pre-policy",
            Self::AdjRibInPostPolicy => "adj-rib-in-post-policy",
            Self::AdjRibOutPostPolicy => "adj-rib-out-post-policy",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// Returns whether a stage is in the set.
    #[must_use]
    pub const fn contains(self, stage: Stage) -> bool {
        self.0 & stage.bit() != 0
    }
}

impl FromIterator<Stage> for Stages {
    fn from_iter<I: IntoIterator<Item = Stage>>(stages: I) -> Self {
        let stages = stages.into_iter();
        Self(stages.fold(0, |set, stage| set | stage.bit()))
    }
}

impl<const N: usize> From<[Stage; N]> for Stages {
    fn from(stages: [Stage; N]) -> Self {
        stages.into_iter().collect()
    }
}

/// Routes of one peer, stage and family that were announced with the same attributes, or withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// The peer.
    pub peer: PeerId,
    /// The table.
    pub stage: Stage,
    /// The family.
    pub family: Family,
    /// The attributes, shared by consecutive records with the same set; `None` if the routes were
    /// withdrawn.
    pub attributes: Option<Arc<Attributes>>,
    /// Path identifiers and destinations.
    destinations: Vec<(u32, Destination)>,
    octets: usize,
}

impl Routes {
    /// Returns a record without routes, to be filled by [`push`](Self::push).
    #[must_use]
    pub fn new(
        peer: PeerId,
        stage: Stage,
        family: Family,
        attributes: Option<Arc<Attributes>>,
    ) -> Self {
        let octets = attributes.as_deref().map_or(0, attribute_octets);
        Self::with_octets((peer, stage, family), attributes, octets)
    }

    /// Does the same with attributes of a known size.
    pub(crate) fn with_octets(
        (peer, stage, family): (PeerId, Stage, Family),
        attributes: Option<Arc<Attributes>>,
        octets: usize,
    ) -> Self {
        Self {
            peer,
            stage,
            family,
            attributes,
            destinations: Vec::new(),
            octets: size_of::<Self>() + octets,
        }
    }

    /// Adds a route. Returns the octets that it takes.
    pub fn push(&mut self, nlri: &Nlri<'_>) -> usize {
        let destination = Destination::new(nlri.net);
        let octets = size_of::<(u32, Destination)>() + destination.heap_octets();
        self.destinations.push((nlri.path_id, destination));
        self.octets += octets;
        octets
    }

    /// Returns the routes with their path identifiers, in the order in which they came; the
    /// identifier is 0 for none (RFC 7911 §3).
    pub fn nlri(&self) -> impl Iterator<Item = Nlri<'_>> {
        self.destinations.iter().map(|(path_id, destination)| Nlri {
            path_id: *path_id,
            net: destination.net(),
        })
    }

    /// Returns the number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.destinations.len()
    }

    /// Returns whether there are no routes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.destinations.is_empty()
    }

    /// Returns about how many octets of memory the record takes, with its attributes.
    #[must_use]
    pub const fn octets(&self) -> usize {
        self.octets
    }

    /// Returns whether a record of these attributes continues this one.
    pub(crate) fn has_attributes(&self, attributes: Option<&Arc<Attributes>>) -> bool {
        match (&self.attributes, attributes) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// Returns about how many octets of memory a set of attributes takes.
pub(crate) fn attribute_octets(attributes: &Attributes) -> usize {
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    size_of::<Attributes>() + block.len()
}
