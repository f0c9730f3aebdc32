//! `prefix_limit`: how many paths a neighbour may announce (RFC 4271 §6.7).

use std::collections::BTreeMap;

use admin::config::{Problem, Problems};
use bgp_proto::{Family, FamilySet};
use bgp_speaker::{LimitAction, PrefixLimit};
use serde::Deserialize;
use toml::Spanned;

use crate::check::family_set;
use crate::limits::{LIMIT_REST_S, LIMIT_REST_S_MAX, LIMIT_WARN_PERCENT};

/// One `[[neighbor.prefix_limit]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitKeys {
    /// `families` it is about: all of the neighbour's when absent.
    pub families: Option<Vec<Spanned<String>>>,
    /// `max`: how many paths.
    pub max: Spanned<u32>,
    /// `warn`: the share of `max` in per cent from which on the log warns.
    pub warn: Option<Spanned<u8>>,
    /// `action` beyond `max`.
    #[serde(default)]
    pub action: ActionWord,
    /// `restart_after` in seconds: how long the session rests.
    pub restart_after: Option<Spanned<u32>>,
}

/// What happens beyond a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionWord {
    /// The log says so.
    Warn,
    /// What is too many is refused.
    #[default]
    Drop,
    /// The session ends and rests.
    Restart,
}

/// The limits of one neighbour with these families.
pub(crate) fn prefix_limits(
    limits: &[Spanned<LimitKeys>],
    families: FamilySet,
    problems: &mut Problems<'_>,
) -> BTreeMap<Family, PrefixLimit> {
    let mut found = BTreeMap::new();
    for entry in limits {
        let keys = entry.get_ref();
        let limit = limit(keys, problems);
        let names = keys.families.as_deref();
        let about = names.map_or(families, |names| {
            family_set(names, Some(families), problems)
        });
        for family in about.iter() {
            if found.insert(family, limit).is_some() {
                let message = format!("a second limit for {family}");
                problems.push(Problem::at(entry.span(), message));
            }
        }
    }
    found
}

fn limit(keys: &LimitKeys, problems: &mut Problems<'_>) -> PrefixLimit {
    if *keys.max.get_ref() == 0 {
        problems.push(
            Problem::at(keys.max.span(), "max is at least 1")
                .help("import = \"deny\" accepts nothing from a neighbour"),
        );
    }
    let warn = keys.warn.as_ref();
    if let Some(warn) = warn.filter(|warn| !(1..=100).contains(warn.get_ref())) {
        problems.push(Problem::at(
            warn.span(),
            "warn is from 1 to 100 per cent of max",
        ));
    }
    PrefixLimit {
        max: *keys.max.get_ref(),
        warn_percent: warn.map_or(LIMIT_WARN_PERCENT, |warn| *warn.get_ref()),
        action: action(keys, problems),
    }
}

fn action(keys: &LimitKeys, problems: &mut Problems<'_>) -> LimitAction {
    let after = keys.restart_after.as_ref();
    match (keys.action, after) {
        (ActionWord::Restart, None) => LimitAction::Restart {
            after_s: LIMIT_REST_S,
        },
        (ActionWord::Restart, Some(after)) => {
            if !(1..=LIMIT_REST_S_MAX).contains(after.get_ref()) {
                let message = format!("restart_after is from 1 to {LIMIT_REST_S_MAX} seconds");
                problems.push(Problem::at(after.span(), message));
            }
            LimitAction::Restart {
                after_s: *after.get_ref(),
            }
        }
        (word, after) => {
            if let Some(after) = after {
                let message = "restart_after goes with action = \"restart\"";
                problems.push(Problem::at(after.span(), message));
            }
            match word {
                ActionWord::Warn => LimitAction::Warn,
                ActionWord::Drop | ActionWord::Restart => LimitAction::Drop,
            }
        }
    }
}
