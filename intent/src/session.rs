//! The keys that neighbours and ranges share, as a [`PeerConfig`].

use std::net::IpAddr;

use admin::config::{Problem, Problems};
use bgp_fsm::{GracefulRestartConfig, PeerAs, SessionConfig};
use bgp_proto::{Asn, ClusterId, FamilySet, RouterId};
use bgp_speaker::PeerConfig;
use rib::{NextHopMode, Outcome, Policy, Role, Rules};
use toml::Spanned;

use crate::add_path::add_path;
use crate::check::family_set;
use crate::file::SessionKeys;
use crate::limits::{
    BGP_PORT, HANDSHAKE_S_MAX, NAME_OCTETS_MAX, PASSWORD_OCTETS_MAX, RESTART_TIME_S,
    RESTART_TIME_S_MAX, TTL_SECURITY_HOPS_MAX,
};
use crate::prefix_limit::prefix_limits;
use crate::value::{GracefulRestart, Hops, NextHop, PeerAsn};
use crate::value::{Password, Policy as PolicyWord};

/// What every neighbour takes from the top of the file.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) local_asn: Asn,
    pub(crate) local_id: RouterId,
    pub(crate) families: FamilySet,
    pub(crate) hostname: Option<String>,
}

impl Common {
    /// One peer out of its keys. Names what is wrong in `problems`, what is odd in `notes`.
    pub(crate) fn peer(
        &self,
        name: String,
        remote: IpAddr,
        keys: &SessionKeys<'_>,
        problems: &mut Problems<'_>,
        notes: &mut Vec<String>,
    ) -> PeerConfig {
        let role = self.role(keys, problems);
        if role == Role::External {
            notes.extend(missing_policies(&name, keys));
        }
        let mut session = self.session(keys, problems);
        let send_paths = add_path(keys, &mut session, problems);
        let prefix_limits = prefix_limits(keys.prefix_limit, session.families, problems);
        PeerConfig {
            name,
            remote,
            port: BGP_PORT,
            local: None,
            role,
            session,
            next_hop: match keys.next_hop {
                None | Some(NextHop::Auto) => NextHopMode::Auto,
                Some(NextHop::Own) => NextHopMode::Own,
                Some(NextHop::Keep) => NextHopMode::Keep,
            },
            import: policy(keys.import, role),
            own_as_max: keys.own_as_max.unwrap_or_default(),
            allow_as_sets: keys.allow_as_sets.unwrap_or_default(),
            multihop: keys.multihop.unwrap_or_default(),
            export: policy(keys.export, role),
            send_paths,
            cluster_id: self.cluster_id(keys, role, problems),
            prefix_limits,
            ttl_security_hops: keys
                .ttl_security
                .and_then(|hops| ttl_security(hops, problems)),
            password: keys
                .password
                .map(|password| md5_key(password, problems).into()),
        }
    }

    fn cluster_id(
        &self,
        keys: &SessionKeys<'_>,
        role: Role,
        problems: &mut Problems<'_>,
    ) -> Option<ClusterId> {
        let id = keys.cluster_id?;
        if role != Role::Client {
            // RFC 4456 §7: a cluster is a reflector with its clients.
            let message = "only a route reflector client belongs to a cluster";
            problems.push(Problem::at(id.span(), message).help("route_reflector_client = true"));
        }
        if id.get_ref().is_unspecified() {
            problems.push(Problem::at(
                id.span(),
                "cluster_id 0.0.0.0 is not a cluster",
            ));
        }
        Some(ClusterId(*id.get_ref()))
    }

    fn role(&self, keys: &SessionKeys<'_>, problems: &mut Problems<'_>) -> Role {
        let internal = match keys.asn.get_ref() {
            PeerAsn::Internal => true,
            PeerAsn::External => false,
            PeerAsn::Exactly(asn) => *asn == self.local_asn,
        };
        let client = keys
            .route_reflector_client
            .filter(|client| *client.get_ref());
        match (internal, client) {
            (true, Some(_)) => Role::Client,
            (true, None) => Role::Internal,
            (false, None) => Role::External,
            (false, Some(client)) => {
                // RFC 4456 §1: clients are internal peers.
                let message = "only a neighbour of our own AS can be a route reflector client";
                problems.push(
                    Problem::at(client.span(), message)
                        .related(keys.asn.span(), format!("ours is AS {}", self.local_asn)),
                );
                Role::External
            }
        }
    }

    fn session(&self, keys: &SessionKeys<'_>, problems: &mut Problems<'_>) -> SessionConfig {
        let families = keys.families.map_or(self.families, |names| {
            family_set(names, Some(self.families), problems)
        });
        let mut session = SessionConfig {
            local_asn: self.local_asn,
            local_id: self.local_id,
            peer_asn: match *keys.asn.get_ref() {
                PeerAsn::Exactly(asn) => PeerAs::Exactly(asn),
                PeerAsn::Internal => PeerAs::Internal,
                PeerAsn::External => PeerAs::External,
            },
            families,
            graceful_restart: graceful_restart(keys, families, problems),
            extended_messages: keys.extended_messages.unwrap_or_default(),
            extended_next_hop: keys.extended_next_hop.unwrap_or_default(),
            hostname: self.hostname.clone(),
            ..SessionConfig::default()
        };
        if let Some(seconds) = keys.hold_time {
            session.hold_time_s = hold_time(seconds, problems);
        }
        if let Some(seconds) = keys.connect_retry {
            session.connect_retry_s = at_least_one(seconds, "connect_retry", problems);
        }
        if let Some(seconds) = keys.handshake_time {
            session.handshake_s = handshake_time(seconds, problems);
        }
        let keepalive = keys.keepalive;
        session.keepalive_s = keepalive.map(|seconds| at_least_one(seconds, "keepalive", problems));
        check_keepalive(keys, session.hold_time_s, problems);
        session
    }
}

/// A keepalive that would come too late, or never.
fn check_keepalive(keys: &SessionKeys<'_>, hold_time_s: u16, problems: &mut Problems<'_>) {
    let Some(keepalive) = keys.keepalive else {
        return;
    };
    let problem = match (*keepalive.get_ref(), hold_time_s) {
        // RFC 4271 §4.4
        (_, 0) => Problem::at(
            keepalive.span(),
            "keepalive is set, but with hold_time = 0 no KEEPALIVE is sent",
        )
        .help("leave keepalive out, or set a hold_time of at least 3 seconds"),
        (seconds, hold_time_s) if seconds >= hold_time_s => Problem::at(
            keepalive.span(),
            format!("keepalive is not below the hold time of {hold_time_s} seconds"),
        )
        .help("a third of the hold time is usual, and the default"),
        _ => return,
    };
    let problem = match keys.hold_time {
        Some(hold_time) => problem.related(hold_time.span(), "the hold time"),
        None => problem,
    };
    problems.push(problem);
}

/// A time of at least one second.
fn at_least_one(seconds: &Spanned<u16>, key: &str, problems: &mut Problems<'_>) -> u16 {
    if *seconds.get_ref() == 0 {
        let message = format!("{key} is at least 1 second");
        problems.push(Problem::at(seconds.span(), message));
    }
    *seconds.get_ref()
}

/// The name of a neighbour or a range, checked.
pub(crate) fn name(
    given: Option<&Spanned<String>>,
    default: impl ToString,
    problems: &mut Problems<'_>,
) -> String {
    let Some(given) = given else {
        return default.to_string();
    };
    let text = given.get_ref();
    let printable = text.chars().all(|c| !c.is_control());
    if text.trim().is_empty() || text.len() > NAME_OCTETS_MAX || !printable {
        let message = format!("a name has 1 to {NAME_OCTETS_MAX} printable octets");
        problems.push(Problem::at(given.span(), message));
    }
    text.clone()
}

/// What stands in for the policy that an external neighbour lacks: nothing passes (RFC 8212 §2).
/// It differs from a `deny` that was asked for only in its name, which reports show.
#[must_use]
pub fn no_policy() -> Policy {
    Policy::from(Rules {
        name: "deny (no policy, RFC 8212)".to_owned(),
        terms: Vec::new(),
        otherwise: Outcome::Reject,
    })
}

fn policy(word: Option<PolicyWord>, role: Role) -> Policy {
    match (word, role) {
        (None, Role::External) => no_policy(),
        (Some(PolicyWord::Deny), _) => Policy::RejectAll,
        (Some(PolicyWord::Accept) | None, _) => Policy::AcceptAll,
    }
}

fn missing_policies(name: &str, keys: &SessionKeys<'_>) -> Option<String> {
    let missing = match (keys.import, keys.export) {
        (None, None) => "import and export",
        (None, Some(_)) => "import",
        (Some(_), None) => "export",
        (Some(_), Some(_)) => return None,
    };
    Some(format!(
        "neighbor {name}: external and without {missing} policy, so nothing passes there \
         (RFC 8212); set import and export to \"accept\" or \"deny\""
    ))
}

fn hold_time(seconds: &Spanned<u16>, problems: &mut Problems<'_>) -> u16 {
    if matches!(seconds.get_ref(), 1 | 2) {
        // RFC 4271 §4.2
        problems.push(
            Problem::at(seconds.span(), "hold_time is 0 or at least 3 seconds")
                .help("0 switches keepalives off, 90 is the default"),
        );
    }
    *seconds.get_ref()
}

fn handshake_time(seconds: &Spanned<u16>, problems: &mut Problems<'_>) -> u16 {
    if !(1..=HANDSHAKE_S_MAX).contains(seconds.get_ref()) {
        let message = format!("handshake_time is from 1 to {HANDSHAKE_S_MAX} seconds");
        problems.push(Problem::at(seconds.span(), message).help("15 is the default"));
    }
    *seconds.get_ref()
}

fn graceful_restart(
    keys: &SessionKeys<'_>,
    families: FamilySet,
    problems: &mut Problems<'_>,
) -> Option<GracefulRestartConfig> {
    let time_s = match keys
        .graceful_restart
        .map(|key| (key.span(), *key.get_ref()))
    {
        None | Some((_, GracefulRestart::On)) => RESTART_TIME_S,
        Some((_, GracefulRestart::Off)) => return None,
        Some((span, GracefulRestart::Seconds(seconds))) => {
            let fits = u16::try_from(seconds)
                .ok()
                .filter(|time| *time <= RESTART_TIME_S_MAX);
            fits.unwrap_or_else(|| {
                let message = format!("a restart time is at most {RESTART_TIME_S_MAX} seconds");
                problems.push(Problem::at(span, message));
                RESTART_TIME_S
            })
        }
    };
    // Forwarding is the kernel's, or other hosts': it outlives this process in every family.
    Some(GracefulRestartConfig {
        time_s,
        restarting: false,
        families_forwarding: families,
    })
}

fn ttl_security(hops: &Spanned<Hops>, problems: &mut Problems<'_>) -> Option<u8> {
    let Hops::Most(most) = *hops.get_ref() else {
        return None;
    };
    let fits = u8::try_from(most)
        .ok()
        .filter(|most| (1..=TTL_SECURITY_HOPS_MAX).contains(most));
    if fits.is_none() {
        let message = format!("ttl_security is from 1 to {TTL_SECURITY_HOPS_MAX} hops");
        problems.push(Problem::at(hops.span(), message));
    }
    fits
}

fn md5_key(password: &Spanned<Password>, problems: &mut Problems<'_>) -> String {
    let Password(key) = password.get_ref();
    if key.is_empty() || key.len() > PASSWORD_OCTETS_MAX {
        let message = format!("a password has 1 to {PASSWORD_OCTETS_MAX} octets");
        problems.push(Problem::at(password.span(), message));
    }
    key.clone()
}
