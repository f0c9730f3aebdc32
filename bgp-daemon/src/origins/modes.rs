//! The modes of the neighbors.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use bgp_io::bgp_speaker::{PeerConfig, SpeakerConfig};
use bgp_io::rib::{OriginMode, OriginRules};

/// The mode of the daemon, and those of its neighbors.
#[derive(Debug)]
pub(crate) struct Modes {
    /// The mode for neighbors without one of their own.
    default: OriginMode,
    enforces: bool,
    warns: bool,
    /// The neighbors and ranges with settings of their own.
    rules: BTreeMap<IpAddr, OriginRules>,
}

impl Modes {
    pub(super) const fn new(default: OriginMode) -> Self {
        Self {
            enforces: matches!(default, OriginMode::Enforce),
            warns: matches!(default, OriginMode::Warn),
            rules: BTreeMap::new(),
            default,
        }
    }

    /// Returns whether any neighbor has, or had, the mode `enforce`: the tables reject its paths
    /// that the records do not confirm.
    pub(crate) const fn enforces(&self) -> bool {
        self.enforces
    }

    /// Returns whether any neighbor has, or had, the mode `warn`.
    pub(super) const fn warns(&self) -> bool {
        self.warns
    }

    /// Returns whether any neighbor has, or had, a mode other than `off`.
    pub(crate) const fn is_enabled(&self) -> bool {
        self.enforces || self.warns
    }

    /// Adopts the modes of a configuration; returns whether any setting of a neighbor differs. A mode
    /// stays in effect until the daemon ends: a neighbor that is no longer configured may be kept for
    /// some time.
    pub(super) fn adopt(&mut self, config: &SpeakerConfig) -> bool {
        let ranges = config.ranges.iter().map(|range| &range.template);
        let all = config.peers.iter().chain(ranges);
        let rules = all.map(|peer| (peer.remote, rules_of(peer)));
        let rules = rules.filter(|(_, rules)| *rules != OriginRules::default());
        let rules: BTreeMap<IpAddr, OriginRules> = rules.collect();
        for mode in rules.values().filter_map(|rules| rules.mode) {
            self.enforces |= mode == OriginMode::Enforce;
            self.warns |= mode == OriginMode::Warn;
        }
        let differs = rules != self.rules;
        self.rules = rules;
        differs
    }
}

impl fmt::Display for Modes {
    /// Writes the mode of the daemon, and how many neighbors have another one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.default.name())?;
        for mode in OriginMode::ALL {
            let rules = self.rules.values();
            let count = rules.filter(|rules| rules.mode == Some(mode)).count();
            if mode != self.default && count > 0 {
                write!(f, ", {} for {count} of the neighbors", mode.name())?;
            }
        }
        Ok(())
    }
}

/// Returns the settings of a neighbor for the validation of its routes.
pub(super) const fn rules_of(peer: &PeerConfig) -> OriginRules {
    OriginRules {
        mode: peer.origin_validation,
        is_transit: peer.is_transit,
    }
}
