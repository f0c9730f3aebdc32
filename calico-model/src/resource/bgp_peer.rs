//! BGPPeer: peerings of nodes in addition to the mesh.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Metadata, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, empty_as_none, is_false, or_default};
use crate::limits::SELECTOR_OCTETS_MAX;
use crate::selector::Selector;
use crate::validate::{Faults, Invalid, NAME, Problem};
use crate::value::asn::AsNumber;
use crate::value::duration::GoDuration;
use crate::value::peer_address::PeerAddress;
use crate::value::words::words;

/// Spec of a peering: its nodes ([`Self::node`], [`Self::node_selector`]; all nodes without either)
/// and their peers ([`Self::peer_ip`], [`Self::peer_selector`] or
/// [`Self::local_workload_selector`]).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeerSpec {
    /// The only node of the peering.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub node: String,
    /// The nodes of the peering.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub node_selector: Option<Selector>,
    /// The peer's address.
    #[serde(
        rename = "peerIP",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub peer_ip: Option<PeerAddress>,
    /// The peer's AS number; see [`Self::remote_as`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_number: Option<AsNumber>,
    /// The local AS number for this peer, if it differs.
    #[serde(
        rename = "localASNumber",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub local_as_number: Option<AsNumber>,
    /// The nodes that are peers.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub peer_selector: Option<Selector>,
    /// The older form of [`Self::next_hop_mode`].
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub keep_original_next_hop: bool,
    /// The next hop of advertised routes; see [`Self::next_hop`].
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub next_hop_mode: Option<NextHopMode>,
    /// The sessions' password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<BgpPassword>,
    /// The local address of the session; see [`Self::source`].
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub source_address: Option<SourceAddress>,
    /// How the loss of the path to the peer is detected, beside the hold timer.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub failure_detection_mode: Option<FailureDetectionMode>,
    /// The restart time advertised to the peer for graceful restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_restart_time: Option<GoDuration>,
    /// The time between two KEEPALIVE messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_time: Option<GoDuration>,
    /// Maximum number of occurrences of the own AS number in the path of a received route.
    #[serde(
        rename = "numAllowedLocalASNumbers",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub num_allowed_local_as_numbers: Option<u32>,
    /// Distance to the peer in hops (RFC 5082); missing or 0 for any distance.
    #[serde(
        rename = "ttlSecurity",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl_security: Option<u8>,
    /// The gateway to the peer.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub reachable_by: Option<IpAddr>,
    /// Names of filters, in order.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub filters: Vec<String>,
    /// The workloads of the node itself that are its peers.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub local_workload_selector: Option<Selector>,
    /// Whether selected peer nodes get the reverse peering automatically; see [`Self::reverses`].
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub reverse_peering: Option<ReversePeering>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

words! {
    /// The next hop of routes advertised to a peer.
    #[derive(Default)]
    NextHopMode, "one of \"Auto\", \"Self\" and \"Keep\"";
    /// As specified for BGP (RFC 4271 §5.1.3).
    #[default]
    Auto "Auto",
    /// Always the own address.
    OwnAddress "Self",
    /// Unchanged.
    Keep "Keep",
}

words! {
    /// The local address of a session.
    #[derive(Default)]
    SourceAddress, "one of \"UseNodeIP\" and \"None\"";
    /// The node's BGP address.
    #[default]
    UseNodeIp "UseNodeIP",
    /// The address that the kernel chooses.
    None "None",
}

words! {
    /// How the loss of the path to a peer is detected, beside the hold timer.
    #[derive(Default)]
    FailureDetectionMode, "one of \"None\" and \"BFDIfDirectlyConnected\"";
    /// By the hold timer only.
    #[default]
    None "None",
    /// By BFD, if the peer is on a link of the node.
    BfdIfDirectlyConnected "BFDIfDirectlyConnected",
}

words! {
    /// How the reverse direction of a peering between nodes is configured.
    #[derive(Default)]
    ReversePeering, "one of \"Auto\" and \"Manual\"";
    /// Automatically.
    #[default]
    Auto "Auto",
    /// With a separate peering.
    Manual "Manual",
}

/// The source of a password.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpPassword {
    /// A key of a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A key of a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct SecretKeyRef {
    /// The secret's name.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// The key within the secret.
    #[serde(default, deserialize_with = "or_default")]
    pub key: String,
    /// Whether the secret may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

impl BgpPeerSpec {
    /// Returns the peer's AS number, if it is given.
    pub fn remote_as(&self) -> Option<AsNumber> {
        self.as_number.filter(|number| *number != AsNumber(0))
    }

    /// Returns the local AS number for this peer, if it differs from the node's.
    pub fn local_as(&self) -> Option<AsNumber> {
        self.local_as_number.filter(|number| *number != AsNumber(0))
    }

    /// Returns the next hop of advertised routes. The older flag applies to external sessions only,
    /// and only if the mode is not given.
    pub fn next_hop(&self, external: bool) -> NextHopMode {
        self.next_hop_mode.unwrap_or({
            if self.keep_original_next_hop && external {
                NextHopMode::Keep
            } else {
                NextHopMode::Auto
            }
        })
    }

    /// Returns the local address of the session: the node's, unless the kernel has to choose.
    pub fn source(&self) -> SourceAddress {
        self.source_address.unwrap_or_default()
    }

    /// Returns the distance to the peer in hops, if it is checked (RFC 5082).
    pub fn hops(&self) -> Option<u8> {
        self.ttl_security.filter(|hops| *hops != 0)
    }

    /// Returns whether selected peer nodes get the reverse peering automatically.
    pub fn reverses(&self) -> bool {
        self.reverse_peering.unwrap_or_default() == ReversePeering::Auto
            && self.local_workload_selector.is_none()
    }

    /// Returns whether the peering applies to every node.
    pub const fn is_global(&self) -> bool {
        self.node.is_empty() && self.node_selector.is_none()
    }
}

impl Spec for BgpPeerSpec {
    const KIND: Option<Kind> = Some(Kind::BgpPeer);

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        faults.form("spec.node", &self.node, NAME);
        for (at, filter) in self.filters.iter().enumerate() {
            let field = format!("spec.filters[{at}]");
            faults.required(&field, filter);
            faults.form(field, filter, NAME);
        }
        for (field, selector) in [
            ("spec.nodeSelector", &self.node_selector),
            ("spec.peerSelector", &self.peer_selector),
            ("spec.localWorkloadSelector", &self.local_workload_selector),
        ] {
            let octets = selector
                .as_ref()
                .map_or(0, |selector| selector.text().len());
            faults.at_most(field, octets, SELECTOR_OCTETS_MAX);
        }
        self.validate_exclusive(&mut faults);
        let (peer, gateway) = (self.peer_ip.map(|peer| peer.address), self.reachable_by);
        if let (Some(peer), Some(gateway)) = (peer, gateway)
            && peer.is_ipv4() != gateway.is_ipv4()
        {
            let found = gateway.to_string();
            let expected = "an address of the family of spec.peerIP";
            faults.push("spec.reachableBy", Problem::Form { found, expected });
        }
        faults.0
    }
}

impl BgpPeerSpec {
    /// Checks which fields exclude and which require each other.
    fn validate_exclusive(&self, faults: &mut Faults) {
        let mut unwanted = |wrong: bool, field: &str, reason| {
            if wrong {
                faults.push(field, Problem::Unwanted(reason));
            }
        };
        let (by_address, by_selector) = (self.peer_ip.is_some(), self.peer_selector.is_some());
        let workloads = self.local_workload_selector.is_some();
        unwanted(
            !self.node.is_empty() && self.node_selector.is_some(),
            "spec.nodeSelector",
            "spec.node is set, and only one can be",
        );
        unwanted(
            by_address && by_selector,
            "spec.peerSelector",
            "spec.peerIP is set, and only one can be",
        );
        unwanted(
            by_selector && self.remote_as().is_some(),
            "spec.asNumber",
            "nodes that spec.peerSelector selects have their own",
        );
        unwanted(
            workloads && by_address,
            "spec.peerIP",
            "spec.localWorkloadSelector is set, and only one can be",
        );
        unwanted(
            workloads && by_selector,
            "spec.peerSelector",
            "spec.localWorkloadSelector is set, and only one can be",
        );
        unwanted(
            self.reachable_by.is_some() && !by_address,
            "spec.reachableBy",
            "it is the gateway to spec.peerIP, which is not set",
        );
        unwanted(
            self.keep_original_next_hop && self.next_hop_mode.is_some(),
            "spec.keepOriginalNextHop",
            "spec.nextHopMode is set, and only one can be",
        );
        if workloads && self.remote_as().is_none() {
            faults.push("spec.asNumber", Problem::Missing);
        }
    }
}
