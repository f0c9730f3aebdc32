//! The keys of a neighbor: one table, [`PEER_KEYS`], and those that only a range has,
//! [`RANGE_KEYS`].
//!
//! A row is the complete definition of a key: its name, the form of its value, the field it sets
//! and its default, the effect of a change on an established session, and where an operator may
//! write it. The struct [`PeerConfig`] is generated from the rows, and so is everything that reads
//! or prints keys: files, the datastore, reports and the pages of the documentation. A new key is a
//! row, the code that uses its field, and a test.
//!
//! ```
//! use bgp_speaker::bgp_proto::{Asn, RouterId};
//! use bgp_speaker::keys::{Given, Value};
//! use bgp_speaker::SpeakerConfig;
//!
//! let speaker = SpeakerConfig::new(Asn(64512), RouterId("192.0.2.1".parse()?));
//! let mut invalid = Vec::new();
//! let given = Given::from([
//!     ("address", Value::from("192.0.2.2")),
//!     ("asn", Value::from("internal")),
//!     ("hold_time", Value::from(2)),
//! ]);
//! let peer = speaker.peer(&given, &mut invalid);
//! assert_eq!(peer.remote.to_string(), "192.0.2.2");
//! assert_eq!(invalid[0].to_string(), "hold_time is a number, 0 or at least 3 seconds");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[macro_use]
mod rows;

mod build;
mod conflicts;
mod defaults;
mod field;
mod given;
mod kind;
mod range;
mod read;
mod table;
#[cfg(test)]
mod tests;
mod value;

use alloc::{string::String, vec::Vec};

use bgp_proto::FamilySet;

pub use given::Given;
pub use kind::{Kind, usable};
pub use range::RANGE_KEYS;
pub use read::read_families;
pub use table::{PEER_KEYS, PeerConfig};
pub use value::{At, Invalid, Unknown, Value};

use crate::config::RangeConfig;
use read::Reader;

/// A key of a neighbor.
pub type PeerKey = Key<PeerConfig>;

/// A key of a range that a neighbor does not have.
pub type RangeKey = Key<RangeConfig>;

/// One key of a configuration `C`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Key<C> {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, for operators.
    pub meaning: &'static str,
    /// The form of its value.
    pub kind: Kind,
    /// The value or behavior if it is absent.
    pub default: Fallback,
    /// The effect of a change on an established session.
    pub effect: Effect,
    /// A further remark on a change.
    pub note: &'static str,
    /// The places in a file where it may be.
    pub places: &'static [Place],
    /// Its place in Calico's datastore.
    pub store: Store,
    /// Whether reports of the configuration contain it.
    pub report: Report,
    /// The advice for a rejected value.
    pub help: &'static str,
    /// A value other than the default.
    pub example: fn() -> Value,
    /// The fields of the configuration that it sets.
    pub fields: &'static [&'static str],
    pub(crate) get: fn(&C) -> Option<Value>,
    pub(crate) set: fn(&mut C, &Value),
    pub(crate) copy: fn(&C, &mut C),
    pub(crate) differs: fn(&C, &C) -> bool,
}

/// The value or behavior if a key is absent.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Fallback {
    /// The value in a new configuration.
    Field,
    /// This value.
    Value(fn() -> Value),
    /// The behavior that this text describes.
    Words(&'static str),
    /// None: the key is required.
    Required,
}

/// A place in a file where a key may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a `[[neighbor]]`.
    Neighbor,
    /// In a `[[neighbor_range]]`.
    Range,
}

/// The place of a key in Calico's datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Store {
    /// None: it has its default, or is derived from the fabric.
    Nowhere,
    /// In these fields of a BGPPeer.
    Fields(&'static [&'static str]),
    /// In an annotation of a BGPPeer, with the name [`Key::annotation`].
    Annotation,
}

/// Whether reports of the configuration contain a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// Always.
    Always,
    /// If it differs from a new configuration.
    IfSet,
    /// The same, and also in the report of the neighbor's session.
    InNeighbors,
    /// Never: the report has it in another form.
    Never,
}

/// The effect of a change on an established session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Takes effect at once; the peer receives no message.
    Live,
    /// Received routes are evaluated again locally and at once; the peer need not send them again.
    Reevaluated,
    /// If routes were rejected before, the peer receives a ROUTE-REFRESH (RFC 2918).
    Refreshed,
    /// The peer receives its routes by the new rules, and withdrawals of routes that they reject.
    Readvertised,
    /// Takes effect with the next session.
    NextSession,
    /// The session is reset if the two OPENs would now negotiate another result; otherwise the
    /// change takes effect with the next session.
    Renegotiated,
    /// The session is reset.
    Reset,
}

impl Effect {
    /// Returns whether a session that stays established does not have the whole change.
    pub(crate) const fn waits(self) -> bool {
        matches!(self, Self::NextSession | Self::Renegotiated)
    }
}

/// A configuration that has keys.
pub(crate) trait Keyed {
    /// Returns the families that its keys may name.
    fn families(&self) -> FamilySet;
}

impl Keyed for PeerConfig {
    fn families(&self) -> FamilySet {
        self.session.families
    }
}

impl Keyed for RangeConfig {
    fn families(&self) -> FamilySet {
        self.template.session.families
    }
}

impl<C> Key<C> {
    /// Returns the value; `None` if the key is absent. It may be a secret.
    pub fn get(&self, config: &C) -> Option<Value> {
        (self.get)(config)
    }

    /// Returns whether two configurations differ in it.
    pub fn differs(&self, old: &C, new: &C) -> bool {
        (self.differs)(old, new)
    }

    /// Returns whether it may be in this place of a file.
    pub fn is_in(&self, place: Place) -> bool {
        self.places.contains(&place)
    }

    /// Returns whether its value is a secret.
    #[must_use]
    pub const fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret(_))
    }

    /// Returns the name of its annotation in the datastore.
    #[must_use]
    pub fn annotation(&self) -> Option<String> {
        let name = self.name.replace('_', "-");
        (self.store == Store::Annotation).then(|| alloc::format!("cambric.io/{name}"))
    }
}

#[expect(
    private_bounds,
    reason = "it is about the two configurations of this crate"
)]
impl<C: Keyed> Key<C> {
    /// Checks a value and sets it; a value with any mistake changes nothing. Families that it names
    /// must be among those of the configuration.
    pub fn set(&self, config: &mut C, given: &At<Value>, faults: &mut Vec<Invalid>) {
        let before = faults.len();
        let read = Reader {
            key: self.name,
            help: self.help,
            families: config.families(),
            faults,
        }
        .read(self.kind, given);
        if let Some(value) = read.filter(|_| faults.len() == before) {
            (self.set)(config, &value);
        }
    }
}

impl PeerKey {
    /// Returns the default value or behavior, in Markdown.
    #[must_use]
    pub fn default_text(&self) -> String {
        let code = |value: Option<Value>| value.map(|value| alloc::format!("`{value}`"));
        match self.default {
            Fallback::Field => code(self.get(&PeerConfig::vacant())).unwrap_or_default(),
            Fallback::Value(value) => code(Some(value())).unwrap_or_default(),
            Fallback::Words(words) => words.into(),
            Fallback::Required => "required".into(),
        }
    }

    /// Returns the value for reports, if they contain it: that of a secret is `set`.
    #[must_use]
    pub fn shown(&self, peer: &PeerConfig) -> Option<String> {
        let value = self.get(peer)?;
        let is_shown = match self.report {
            Report::Always => true,
            Report::IfSet | Report::InNeighbors => {
                Some(&value) != self.get(&PeerConfig::vacant()).as_ref()
            }
            Report::Never => false,
        };
        match self.is_secret() {
            _ if !is_shown => None,
            true => Some("set".into()),
            false => Some(value.plain()),
        }
    }
}

/// Returns the row of a key of a neighbor.
#[must_use]
pub fn peer_key(name: &str) -> Option<&'static PeerKey> {
    PEER_KEYS.iter().find(|key| key.name == name)
}

/// Returns the keys in which two configurations differ.
pub fn changes<'a>(
    old: &'a PeerConfig,
    new: &'a PeerConfig,
) -> impl Iterator<Item = &'static PeerKey> + 'a {
    PEER_KEYS.iter().filter(|key| key.differs(old, new))
}
