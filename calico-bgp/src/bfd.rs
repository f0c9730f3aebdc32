//! The sessions of BFD that the datastore configures: which peers have one, over how many hops, and with
//! which timers.

use std::net::IpAddr;

use bgp_speaker::{Bfd, BfdMode};
use calico_model::{BfdConfigurationSpec, BfdInterface, FailureDetectionMode, Kind};

use crate::bfd_timers::BfdTimers;
use crate::fabric_bfd;
use crate::fault::Fault;
use crate::limits::BFD_IDLE_MS_MIN;
use crate::own::{Own, key_of};
use crate::view::{FABRIC_BFD_ANNOTATION, Node};

/// Returns the faults of the annotations, and of the timers of the selected BFDConfigurations.
pub(crate) fn faults(own: &Own<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, text) in fabric_bfd::invalid(own.view, &own.host.name) {
        let field = format!("metadata.annotations[{FABRIC_BFD_ANNOTATION}]");
        let reason = format!("\"{text}\" is neither \"true\" nor \"false\"");
        let key = key_of(Kind::BgpConfiguration, &name);
        faults.push(Fault::new(key, field, reason));
    }
    let mut before: Vec<(String, BfdTimers)> = Vec::new();
    for (name, spec) in selected(own) {
        for (at, interface) in spec.interfaces.iter().enumerate() {
            let key = key_of(Kind::BfdConfiguration, name);
            let place = format!("spec.interfaces[{at}]");
            let timers = timers_of(interface);
            if interface.idle_send_interval.is_some() && interface.idle_ms() < BFD_IDLE_MS_MIN {
                let field = format!("{place}.idleSendInterval");
                let reason = "counts as 1s, the least that RFC 5880 §6.8.3 permits";
                faults.push(Fault::new(key.clone(), field, reason));
            }
            if let Some((by, _)) = before.iter().find(|(_, one)| one.covers(&timers)) {
                let field = format!("{place}.matchPattern");
                let reason = format!("not used: {by} matches the same interfaces before it");
                faults.push(Fault::new(key, field, reason));
            }
            before.push((format!("{place} of {name}"), timers));
        }
    }
    faults
}

/// Returns the BFDConfigurations that select this node, in the order of their names.
pub(crate) fn selected<'v>(
    own: &Own<'v>,
) -> impl Iterator<Item = (&'v str, &'v BfdConfigurationSpec)> {
    let labels = &own.node.labels;
    let all = own.view.bfd.iter();
    let all = all.map(|(name, stored)| (name.as_str(), &stored.0));
    all.filter(move |(_, spec)| {
        let selector = spec.node_selector.as_ref();
        selector.is_none_or(|selector| selector.matches(labels))
    })
}

/// Returns the timers by interface: the first match counts.
pub(crate) fn timers(own: &Own<'_>) -> Vec<BfdTimers> {
    let interfaces = selected(own).flat_map(|(_, spec)| &spec.interfaces);
    interfaces.map(timers_of).collect()
}

fn timers_of(interface: &BfdInterface) -> BfdTimers {
    BfdTimers {
        pattern: interface.match_pattern.clone(),
        send_ms: interface.send_ms(),
        receive_ms: interface.receive_ms(),
        idle_ms: interface.idle_ms().max(BFD_IDLE_MS_MIN),
        multiplier: interface.packets(),
    }
}

/// Returns the session of BFD with a peer, after the annotations of its BGPPeer. Calico's field has
/// precedence over them.
///
/// If the peer is a node, both sides compute the same number of hops, from the stored subnets alone.
pub(crate) fn session(
    own: &Node,
    (host, remote): (Option<&Node>, IpAddr),
    detection: Option<FailureDetectionMode>,
    annotated: Option<Bfd>,
) -> Option<Bfd> {
    let is_on_link = host.map(|host| is_on_link(own, host, remote));
    let mode = match is_on_link {
        Some(true) => BfdMode::SingleHop,
        Some(false) => BfdMode::Multihop,
        None => BfdMode::Auto,
    };
    let mut bfd = match detection {
        None => annotated?,
        Some(FailureDetectionMode::None) => return None,
        Some(FailureDetectionMode::BfdIfDirectlyConnected) => {
            let is_possible = mode != BfdMode::Multihop;
            is_possible.then_some(Bfd::default().over(BfdMode::SingleHop))?
        }
    };
    if bfd.mode == BfdMode::Auto {
        bfd.mode = mode;
    }
    Some(bfd)
}

/// Returns whether each of two nodes has the other one's address in its subnet.
fn is_on_link(own: &Node, other: &Node, remote: IpAddr) -> bool {
    let subnet = |node: &Node| {
        let networks = [node.v4, node.v6].into_iter().flatten();
        networks
            .map(|network| network.0)
            .find(|network| network.addr().is_ipv4() == remote.is_ipv4())
    };
    let subnets = subnet(own).zip(subnet(other));
    subnets.is_some_and(|(own, other)| own.contains(&remote) && other.contains(&own.addr()))
}
