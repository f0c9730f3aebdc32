//! `add_path` and `add_path_send`: several paths to a prefix (RFC 7911).

use std::collections::BTreeMap;

use admin::config::{Problem, Problems};
use bgp_fsm::SessionConfig;
use bgp_proto::{Family, FamilySet};
use rib::SendPaths;
use rib::limits::BEST_PATHS_MAX;
use toml::Spanned;

use crate::check::family_set;
use crate::file::SessionKeys;
use crate::value::{PathLimit, PathMode, PathsSent};

/// Puts into a session what it offers, and tells which paths are sent in which family.
pub(crate) fn add_path(
    keys: &SessionKeys<'_>,
    session: &mut SessionConfig,
    problems: &mut Problems<'_>,
) -> BTreeMap<Family, SendPaths> {
    let mode = keys.add_path.map_or(PathMode::Off, |mode| *mode.get_ref());
    if mode.receives() {
        session.add_path_receive = session.families;
    }
    if !mode.sends() {
        if let Some(given) = keys.add_path_send {
            problems.push(without_sending(keys, given));
        }
        return BTreeMap::new();
    }
    let send = send_paths(keys.add_path_send, session.families, problems);
    session.add_path_send = send.keys().copied().collect();
    send
}

fn without_sending(keys: &SessionKeys<'_>, given: &Spanned<PathsSent>) -> Problem {
    let message = "add_path_send says which paths are sent, but add_path does not let any be sent";
    let problem = Problem::at(given.span(), message).help("set add_path to \"send\" or \"both\"");
    match keys.add_path {
        Some(mode) => problem.related(mode.span(), "add_path is here"),
        None => problem,
    }
}

fn send_paths(
    given: Option<&Spanned<PathsSent>>,
    families: FamilySet,
    problems: &mut Problems<'_>,
) -> BTreeMap<Family, SendPaths> {
    let everywhere = |send| families.iter().map(|family| (family, send)).collect();
    let Some(given) = given else {
        return everywhere(SendPaths::All);
    };
    match given.get_ref() {
        PathsSent::Everywhere(limit) => {
            everywhere(limited(&Spanned::new(given.span(), *limit), problems))
        }
        PathsSent::Families(each) => each
            .iter()
            .flat_map(|(name, limit)| {
                let family = family_set(core::slice::from_ref(name), Some(families), problems);
                let send = limited(limit, problems);
                family
                    .iter()
                    .map(move |family| (family, send))
                    .collect::<Vec<_>>()
            })
            .collect(),
    }
}

fn limited(limit: &Spanned<PathLimit>, problems: &mut Problems<'_>) -> SendPaths {
    match *limit.get_ref() {
        PathLimit::All => SendPaths::All,
        PathLimit::EqualCost => SendPaths::EqualCost,
        PathLimit::Best(most) => {
            let fits = u8::try_from(most)
                .ok()
                .filter(|most| (1..=BEST_PATHS_MAX).contains(most));
            SendPaths::Best(fits.unwrap_or_else(|| {
                let message = format!("of the best paths, 1 to {BEST_PATHS_MAX} can be sent");
                problems.push(
                    Problem::at(limit.span(), message).help("\"all\" sends every path there is"),
                );
                1
            }))
        }
    }
}
