//! The tables as a whole, and what happens to sessions.

use bgp_fsm::{DownReason, HeldEnd, State};
use bgp_speaker::{Event, LimitAction, LimitLevel, Speaker};
use daemon_common::report::{Fact, TableFigures};
use rib::{NextHops, PeerId};

/// Facts of a speaker's tables for the status report.
pub fn facts(speaker: &Speaker) -> Vec<Fact> {
    let (config, stats) = (speaker.config(), speaker.rib().stats());
    let up = speaker.peers().filter(|peer| peer.params.is_some()).count();
    let next_hops = match config.next_hops {
        NextHops::AssumeReachable => format!("{}, assumed reachable at cost 0", stats.next_hops),
        NextHops::Track => stats.next_hops.to_string(),
    };
    [
        ("AS", config.local_asn.to_string()),
        ("router id", config.router_id.to_string()),
        (
            "sessions up",
            format!("{up} of {}", speaker.peers().count()),
        ),
        ("prefixes", stats.prefixes.to_string()),
        ("paths", stats.paths.to_string()),
        ("attribute sets", stats.attribute_sets.to_string()),
        ("next hops", next_hops),
    ]
    .map(|(name, value)| Fact {
        name: name.to_owned(),
        value,
    })
    .into()
}

/// What a speaker's tables count.
pub fn tables(speaker: &Speaker) -> TableFigures {
    let stats = speaker.rib().stats();
    TableFigures {
        prefixes: stats.prefixes as u64,
        paths: stats.paths as u64,
        attribute_sets: stats.attribute_sets as u64,
        malformed: speaker.malformed_total(),
    }
}

/// How much an operator should care about a [`Line`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// For those who look for something.
    Debug,
    /// The course of things.
    Info,
    /// Something is not as it should be.
    Warn,
}

/// One event of a speaker in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How much to care.
    pub weight: Weight,
    /// The words.
    pub text: String,
}

/// Why the last attempt at a session came to nothing, if one side has said so. (The end of a
/// session that was up is told by itself.)
fn turned_away(speaker: &Speaker, peer: PeerId) -> Option<String> {
    let view = speaker.peer(peer)?;
    let stats = view.session.stats();
    let (_, why) = stats.last_error.as_ref()?;
    let was_up = stats.failures <= 1 && stats.last_down.as_ref() == Some(why);
    let said = matches!(why, DownReason::Received(_) | DownReason::Sent(_));
    (said && !was_up && stats.failures > 0).then(|| why.to_string())
}

/// What a speaker's event says.
pub fn line(speaker: &Speaker, event: &Event) -> Line {
    let (weight, text) = match event {
        Event::State { peer, name, state } => {
            let idle = (*state == State::Idle).then_some(*peer);
            match idle.and_then(|peer| turned_away(speaker, peer)) {
                Some(why) => {
                    let text = format!("neighbor {name}: no session, {why}");
                    (Weight::Warn, text)
                }
                None => (Weight::Debug, format!("neighbor {name}: {state}")),
            }
        }
        Event::Up { name, params, .. } => {
            let families: Vec<String> = params.families.iter().map(|f| f.to_string()).collect();
            let text = format!(
                "neighbor {name}: up, AS {}, router id {}, {}",
                params.peer_asn,
                params.peer_id,
                families.join(" ")
            );
            (Weight::Info, text)
        }
        Event::Down { name, reason, .. } => {
            (Weight::Warn, format!("neighbor {name}: down, {reason}"))
        }
        Event::HeldEnded { peer, end } => (
            match end {
                HeldEnd::Promoted => Weight::Info,
                HeldEnd::Closed | HeldEnd::Replaced => Weight::Debug,
                HeldEnd::OlderAlive | HeldEnd::Expired | HeldEnd::Invalid(_) => Weight::Warn,
            },
            format!(
                "neighbor {}: another connection while one was in use: {end}",
                speaker.peer_name(*peer)
            ),
        ),
        // The fault tells the remedy that it asks for.
        Event::Malformed { name, fault, .. } => (
            Weight::Warn,
            format!("neighbor {name}: malformed UPDATE, {fault}"),
        ),
        Event::EndOfRib { name, family, .. } => (
            Weight::Info,
            format!("neighbor {name}: has sent all of {family}"),
        ),
        Event::PrefixLimit {
            name,
            family,
            level,
            limit,
            ..
        } => {
            let max = limit.max;
            let text = match (level, limit.action) {
                (LimitLevel::Below | LimitLevel::Near, _) => format!(
                    "neighbor {name}: {}% of its limit of {max} in {family} reached",
                    limit.warn_percent
                ),
                (LimitLevel::Passed, LimitAction::Warn) => {
                    format!("neighbor {name}: more than {max} paths in {family}")
                }
                (LimitLevel::Passed, LimitAction::Drop) => {
                    format!("neighbor {name}: paths beyond {max} in {family} are refused")
                }
                (LimitLevel::Passed, LimitAction::Restart { after_s }) => format!(
                    "neighbor {name}: more than {max} paths in {family}: session ended for \
                     {after_s} s"
                ),
            };
            (Weight::Warn, text)
        }
        Event::Selected { family } => (
            Weight::Info,
            format!("{family}: routes are passed on again after the restart"),
        ),
        Event::Refreshed { name, family, .. } => (
            Weight::Info,
            format!("neighbor {name}: has sent {family} again"),
        ),
        Event::RefreshOverdue { name, family, .. } => (
            Weight::Warn,
            format!(
                "neighbor {name}: began to send {family} again and never ended; what it had not \
                 sent again is dropped"
            ),
        ),
        Event::Handshakes {
            of,
            failures,
            remote,
            last,
        } => (
            Weight::Warn,
            format!(
                "{of}: connections that became no session since the last such line: {failures}; \
                 the last from {remote}, {last}"
            ),
        ),
    };
    Line { weight, text }
}
