//! Conversion of a speaker's session events to the daemon's events.

use std::net::IpAddr;

use bgp_fsm::{DownReason, HeldEnd, State};
use bgp_proto::{Fault, Remedy};
use bgp_speaker::limits::LIMIT_REST_S;
use bgp_speaker::{Event, LimitAction, LimitLevel, MemoryAction, PrefixLimit, Speaker};
use daemon_common::events::{Event as Emitted, Text};
use rib::PeerId;

/// A neighbor in the fields of an event.
struct Neighbor {
    name: Text,
    address: Option<IpAddr>,
}

/// Why a session ended in the fields of an event.
struct Ended {
    cause: Text,
    code: Option<u64>,
    subcode: Option<u64>,
    reason: Text,
}

impl Neighbor {
    fn new(speaker: &Speaker, peer: PeerId, name: &str) -> Self {
        Self {
            name: Text::new(name),
            address: speaker.peer_config(peer).map(|config| config.remote),
        }
    }
}

impl Ended {
    fn new(reason: &DownReason) -> Self {
        let (cause, notification) = match reason {
            DownReason::Sent(sent) => ("sent", Some(sent)),
            DownReason::Received(received) => ("received", Some(received)),
            DownReason::TransportLost => ("connection-lost", None),
            DownReason::Reopened => ("reopened", None),
            DownReason::LocalRestart => ("restart", None),
        };
        Self {
            cause: Text::new(cause),
            code: notification.map(|n| n.code.into()),
            subcode: notification.map(|n| n.subcode.into()),
            reason: Text::new(reason),
        }
    }
}

/// Returns an event of a speaker with its fields.
pub fn event(speaker: &Speaker, event: &Event) -> Option<Emitted> {
    let of = |peer: &PeerId, name: &str| Neighbor::new(speaker, *peer, name);
    Some(match event {
        Event::State { peer, name, state } => {
            return state_changed(speaker, *peer, of(peer, name), *state);
        }
        Event::Up { peer, name, params } => {
            let families: Vec<String> = params.families.iter().map(|f| f.to_string()).collect();
            let Neighbor { name, address } = of(peer, name);
            Emitted::SessionEstablished {
                neighbor: name,
                address,
                asn: params.peer_asn.0.into(),
                router_id: params.peer_id.0,
                families: Text::new(families.join(" ")),
                hold_time_s: params.hold_time_s.into(),
            }
        }
        Event::Down { peer, name, reason } => {
            let Neighbor { name, address } = of(peer, name);
            let ended = Ended::new(reason);
            Emitted::SessionClosed {
                neighbor: name,
                address,
                cause: ended.cause,
                code: ended.code,
                subcode: ended.subcode,
                reason: ended.reason,
            }
        }
        Event::LongLivedStale {
            peer,
            name,
            families,
        } => {
            let families: Vec<String> = families.iter().map(|f| f.to_string()).collect();
            let Neighbor { name, address } = of(peer, name);
            Emitted::SessionLongLivedStale {
                neighbor: name,
                address,
                families: Text::new(families.join(" ")),
            }
        }
        Event::PathFailed {
            peer,
            name,
            consequence,
        } => {
            let Neighbor { name, address } = of(peer, name);
            Emitted::BfdPathFailed {
                neighbor: name,
                address,
                consequence: Text::new(consequence),
            }
        }
        Event::HeldEnded { peer, end } => held_ended(of(peer, speaker.peer_name(*peer)), end),
        Event::Malformed {
            peer,
            name,
            fault,
            remedy,
        } => malformed(of(peer, name), fault, *remedy),
        Event::PrefixLimit {
            peer,
            name,
            family,
            level,
            limit,
        } => prefix_limit(of(peer, name), Text::new(family), *level, limit),
        Event::SentLimit {
            peer,
            name,
            family,
            level,
            limit,
        } => {
            let Neighbor { name, address } = of(peer, name);
            let (neighbor, family, max) = (name, Text::new(family), limit.max.into());
            match level {
                LimitLevel::Below | LimitLevel::Near => Emitted::SentLimitNear {
                    neighbor,
                    address,
                    family,
                    limit: max,
                    warn_percent: limit.warn_percent.into(),
                },
                LimitLevel::Passed => Emitted::SentLimitExceeded {
                    neighbor,
                    address,
                    family,
                    limit: max,
                },
            }
        }
        Event::Handshakes {
            of,
            failures,
            remote,
            last,
        } => Emitted::ConnectionHandshakesFailed {
            of: Text::new(of),
            failures: Text::new(failures),
            address: *remote,
            reason: Text::new(last),
        },
        Event::MemoryLimit { .. } | Event::MemoryCleared { .. } => {
            return of_memory(speaker, event);
        }
        event => return of_family(speaker, event),
    })
}

/// Returns an event of the limit of all accounts.
fn of_memory(speaker: &Speaker, event: &Event) -> Option<Emitted> {
    Some(match event {
        Event::MemoryLimit {
            peer,
            name,
            action,
            octets,
            total,
            octets_max,
        } => {
            let of = Neighbor::new(speaker, *peer, name);
            let (neighbor, address) = (of.name, of.address);
            let (bytes, total, limit) = (*octets as u64, *total as u64, *octets_max as u64);
            match action {
                MemoryAction::End => Emitted::MemorySessionEnded {
                    neighbor,
                    address,
                    bytes,
                    total,
                    limit,
                    idle_s: LIMIT_REST_S.into(),
                },
                _ => Emitted::MemoryPathsRejected {
                    neighbor,
                    address,
                    bytes,
                    total,
                    limit,
                },
            }
        }
        Event::MemoryCleared {
            peer,
            name,
            refresh,
        } => {
            let of = Neighbor::new(speaker, *peer, name);
            let (neighbor, address) = (of.name, of.address);
            match refresh {
                Ok(()) => Emitted::MemoryCleared { neighbor, address },
                Err(reason) => Emitted::MemoryIncomplete {
                    neighbor,
                    address,
                    reason: Text::new(reason),
                },
            }
        }
        _ => return None,
    })
}

/// Returns an event that is about one family.
fn of_family(speaker: &Speaker, event: &Event) -> Option<Emitted> {
    let of = |peer: &PeerId, name: &str| Neighbor::new(speaker, *peer, name);
    Some(match event {
        Event::EndOfRib { peer, name, family } => {
            let Neighbor { name, address } = of(peer, name);
            Emitted::SessionEndOfRib {
                neighbor: name,
                address,
                family: Text::new(family),
            }
        }
        Event::Refreshed { peer, name, family } => {
            let Neighbor { name, address } = of(peer, name);
            Emitted::SessionRefreshed {
                neighbor: name,
                address,
                family: Text::new(family),
            }
        }
        Event::RefreshOverdue { peer, name, family } => {
            let Neighbor { name, address } = of(peer, name);
            Emitted::SessionRefreshTimeout {
                neighbor: name,
                address,
                family: Text::new(family),
            }
        }
        Event::PrefixLimitCleared {
            peer,
            name,
            family,
            limit,
            refresh,
        } => {
            let Neighbor { name, address } = of(peer, name);
            let (neighbor, family, limit) = (name, Text::new(family), limit.max.into());
            match refresh {
                Ok(()) => Emitted::PrefixLimitCleared {
                    neighbor,
                    address,
                    family,
                    limit,
                },
                Err(reason) => Emitted::PrefixLimitIncomplete {
                    neighbor,
                    address,
                    family,
                    limit,
                    reason: Text::new(reason),
                },
            }
        }
        Event::SentLimitCleared {
            peer,
            name,
            family,
            limit,
        } => {
            let Neighbor { name, address } = of(peer, name);
            Emitted::SentLimitCleared {
                neighbor: name,
                address,
                family: Text::new(family),
                limit: limit.max.into(),
            }
        }
        Event::Selected { family } => Emitted::RestartDeferralEnded {
            family: Text::new(family),
        },
        _ => return None,
    })
}

/// Returns the event of a session's new state, with the reason if the attempt was rejected.
fn state_changed(
    speaker: &Speaker,
    peer: PeerId,
    neighbor: Neighbor,
    state: State,
) -> Option<Emitted> {
    let Neighbor { name, address } = neighbor;
    let idle = (state == State::Idle).then_some(peer);
    if let Some(ended) = idle.and_then(|peer| rejected(speaker, peer)) {
        return Some(Emitted::SessionRejected {
            neighbor: name,
            address,
            cause: ended.cause,
            code: ended.code,
            subcode: ended.subcode,
            reason: ended.reason,
        });
    }
    Some(Emitted::SessionStateChanged {
        neighbor: name,
        address,
        state: Text::new(state),
    })
}

/// Returns why the last attempt at a session was rejected, if one side sent a NOTIFICATION. (The
/// end of an established session is a separate event.)
fn rejected(speaker: &Speaker, peer: PeerId) -> Option<Ended> {
    let view = speaker.peer(peer)?;
    let stats = view.session.stats();
    let (_, why) = stats.last_error.as_ref()?;
    let was_up = stats.failures <= 1 && stats.last_down.as_ref() == Some(why);
    let has_reason = matches!(why, DownReason::Received(_) | DownReason::Sent(_));
    (has_reason && !was_up && stats.failures > 0).then(|| Ended::new(why))
}

fn held_ended(neighbor: Neighbor, end: &HeldEnd) -> Emitted {
    let Neighbor {
        name: neighbor,
        address,
    } = neighbor;
    let reason = Text::new(end);
    match end {
        HeldEnd::Promoted => Emitted::ConnectionPromoted {
            neighbor,
            address,
            reason,
        },
        HeldEnd::Closed | HeldEnd::Replaced => Emitted::ConnectionAbandoned {
            neighbor,
            address,
            reason,
        },
        HeldEnd::OlderAlive | HeldEnd::Expired | HeldEnd::Invalid(_) => {
            Emitted::ConnectionNotPromoted {
                neighbor,
                address,
                reason,
            }
        }
    }
}

fn malformed(neighbor: Neighbor, fault: &Fault, remedy: Remedy) -> Emitted {
    let Neighbor {
        name: neighbor,
        address,
    } = neighbor;
    Emitted::UpdateMalformed {
        neighbor,
        address,
        attribute: Text::new(fault.attr),
        octet: fault.at as u64,
        fault: Text::new(fault.kind.slug()),
        remedy: Text::new(remedy),
    }
}

fn prefix_limit(
    neighbor: Neighbor,
    family: Text,
    level: LimitLevel,
    limit: &PrefixLimit,
) -> Emitted {
    let Neighbor {
        name: neighbor,
        address,
    } = neighbor;
    let max = limit.max.into();
    let (action, idle_s) = match (level, limit.action) {
        (LimitLevel::Below | LimitLevel::Near, _) => {
            return Emitted::PrefixLimitNear {
                neighbor,
                address,
                family,
                limit: max,
                warn_percent: limit.warn_percent.into(),
            };
        }
        (LimitLevel::Passed, LimitAction::Warn) => ("warn", None),
        (LimitLevel::Passed, LimitAction::Drop) => ("drop", None),
        (LimitLevel::Passed, LimitAction::Restart { after_s }) => ("restart", Some(after_s)),
    };
    Emitted::PrefixLimitExceeded {
        neighbor,
        address,
        family,
        limit: max,
        action: Text::new(action),
        idle_s: idle_s.map(Into::into),
    }
}
