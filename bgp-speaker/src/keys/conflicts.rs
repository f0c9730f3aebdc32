//! Conflicts between keys.

use alloc::{format, string::String, string::ToString as _, vec::Vec};
use core::net::IpAddr;

use bgp_fsm::PeerAs;
use rib::Role;

use super::{Given, PeerConfig, value::Invalid};

/// Reports conflicting keys of a peer, and resets a role that its AS does not allow.
pub(super) fn check(given: &Given, peer: &mut PeerConfig, faults: &mut Vec<Invalid>) {
    let found = [
        link_local(given, peer),
        source(given, peer),
        client(given, peer),
        keepalive(given, peer),
        cluster(given, peer),
        paths(given, peer),
        second_key(given, peer),
        bfd_keys(given, peer),
        bfd_strict(given, peer),
        graceful(given, peer),
        long_lived(given, peer),
    ];
    faults.extend(found.into_iter().flatten());
    if !peer.is_internal() {
        peer.role = Role::External;
    }
}

fn link_local(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    let place = given.place_of("address")?;
    let is_link_local = matches!(peer.remote, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let message = "a link-local neighbor would need an interface, which is not supported";
    let invalid = Invalid::at(place, message).help("use a global or unique local address");
    is_link_local.then_some(invalid)
}

fn source(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    let (place, source) = (given.place_of("source")?, peer.local?);
    if source.is_ipv4() != peer.remote.is_ipv4() {
        let message = "source and address are of different IP versions";
        let invalid = Invalid::at(place, message);
        return Some(invalid.related(given.place_of("address"), "the neighbor's address"));
    }
    let message = "source and address are the same: a speaker is no neighbor of itself";
    (source == peer.remote).then(|| Invalid::at(place, message))
}

/// RFC 4456 §1: clients are internal peers.
fn client(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    let place = given.place_of("route_reflector_client")?;
    let message = "only a neighbor of the local AS can be a route reflector client";
    let ours = format!("the local AS is {}", peer.session.local_asn);
    let invalid = Invalid::at(place, message).related(given.place_of("asn"), ours);
    (peer.role == Role::Client && !peer.is_internal()).then_some(invalid)
}

/// Reports a keepalive interval that is too long for the hold time, or unused.
fn keepalive(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    let place = given.place_of("keepalive")?;
    let (message, help) = match (peer.session.keepalive_s?, peer.session.hold_time_s) {
        // RFC 4271 §4.4
        (_, 0) => (
            String::from("keepalive is set, but with hold_time = 0 no KEEPALIVE is sent"),
            "leave keepalive out, or set a hold_time of at least 3 seconds",
        ),
        (seconds, hold) if seconds >= hold => (
            format!("keepalive is not below the hold time of {hold} seconds"),
            "a third of the hold time is usual, and the default",
        ),
        _ => return None,
    };
    let invalid = Invalid::at(place, message).help(help);
    Some(invalid.related(given.place_of("hold_time"), "the hold time"))
}

/// Without a session of BFD, the session of BGP would never be established.
fn bfd_strict(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    let place = given.place_of("bfd_strict")?;
    let message = "bfd_strict waits for BFD, and the neighbor has no BFD";
    let invalid = Invalid::at(place, message).help("set bfd, or leave bfd_strict out");
    (peer.session.bfd_strict && peer.bfd.is_none()).then_some(invalid)
}

/// RFC 4456 §7: a cluster is a reflector with its clients.
fn cluster(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    let place = given.place_of("cluster_id")?;
    let message = "only a route reflector client belongs to a cluster";
    let invalid = Invalid::at(place, message).help("route_reflector_client = true");
    (peer.role != Role::Client).then_some(invalid)
}

fn paths(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    let place = given.place_of("add_path_send")?;
    let is_sent = given.get("add_path").and_then(|mode| mode.value.text());
    let is_sent = is_sent.is_some_and(|mode| ["send", "both"].contains(&mode));
    let message =
        "add_path_send selects the paths to send, but add_path does not allow to send several";
    let invalid = Invalid::at(place, message).help("set add_path to \"send\" or \"both\"");
    let invalid = invalid.related(given.place_of("add_path"), "add_path is here");
    (!is_sent && !peer.send_paths.is_empty()).then_some(invalid)
}

fn second_key(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    let place = given.place_of("second_password")?;
    let message = "second_password is for the change of a password, but there is no password";
    let invalid = Invalid::at(place, message).help("set password to the key in use");
    peer.password.is_none().then_some(invalid)
}

/// Reports keys of BFD without their type, or the type without keys. No session may run without the
/// authentication that a mistake leaves out.
fn bfd_keys(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    match (peer.bfd_auth, &peer.bfd_keys) {
        (None, None) => None,
        (Some(auth), Some(keys)) => {
            let reason = auth.keys(keys).err()?;
            let help = "each line has the number of a key, a space and the key";
            Some(Invalid::at(given.place_of("bfd_keys")?, reason.to_string()).help(help))
        }
        (Some(_), None) => {
            let message = "bfd_auth needs keys: set bfd_keys";
            Some(Invalid::at(given.place_of("bfd_auth")?, message))
        }
        // An invalid type has its own report.
        (None, Some(_)) if given.place_of("bfd_auth").is_some() => None,
        (None, Some(_)) => {
            let message = "bfd_keys needs bfd_auth, the type of the authentication";
            Some(Invalid::at(given.place_of("bfd_keys")?, message))
        }
    }
}

/// Reports a key of graceful restart without graceful restart. RFC 9494 §4.1: the capability of
/// long-lived graceful restart is never without the other.
fn graceful(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    const NEED: [&str; 3] = [
        "graceful_notification",
        "stale_time",
        "long_lived_stale_time",
    ];
    let mut found = NEED
        .iter()
        .filter_map(|key| Some((key, given.place_of(key)?)));
    let (key, place) = found
        .next()
        .filter(|_| peer.session.graceful_restart.is_none())?;
    let message = format!("{key} needs graceful_restart, which is false");
    let invalid = Invalid::at(place, message).help("graceful_restart = true");
    Some(invalid.related(given.place_of("graceful_restart"), "it is here"))
}

/// Reports a family with a long-lived stale time that the session does not have.
fn long_lived(given: &Given, peer: &PeerConfig) -> Option<Invalid> {
    let place = given.place_of("long_lived_stale_time")?;
    let session = &peer.session;
    let mut named = session.long_lived_stale_time_s.keys();
    let absent = named.find(|family| !session.families.contains(**family))?;
    let message = format!("the session has no routes of {absent}");
    let invalid = Invalid::at(place, message).help("add it to `families` of the neighbor");
    Some(invalid.related(given.place_of("families"), "its families are here"))
}

impl PeerConfig {
    /// Returns whether its configured AS is the local one.
    fn is_internal(&self) -> bool {
        match self.session.peer_asn {
            PeerAs::Exactly(asn) => asn == self.session.local_asn,
            PeerAs::Internal => true,
            PeerAs::External | PeerAs::Any => false,
        }
    }

    /// Sets the AS of the peer, and the role that follows from it.
    pub(super) fn set_asn(&mut self, asn: PeerAs) {
        self.session.peer_asn = asn;
        self.role = match (self.is_internal(), self.role) {
            (false, _) => Role::External,
            (true, Role::Client) => Role::Client,
            (true, _) => Role::Internal,
        };
    }
}
