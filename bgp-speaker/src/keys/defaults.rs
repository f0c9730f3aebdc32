//! The properties that rows share.

use super::{
    Effect, Fallback, Key, PeerKey, Place, Report, Store,
    kind::{Kind, from_one},
    value::Value,
};

/// The defaults of a row for neighbors and neighbors of ranges.
pub(super) const BOTH: PeerKey = Key {
    name: "",
    meaning: "",
    kind: Kind::Flag,
    default: Fallback::Field,
    effect: Effect::Live,
    note: "",
    places: &[Place::Neighbor, Place::Range],
    store: Store::Nowhere,
    report: Report::IfSet,
    help: "",
    example: || Value::Flag(true),
    fields: &[],
    get: |_| None,
    set: |_, _| (),
    copy: |_, _| (),
    differs: |_, _| false,
};

/// The defaults of a row for neighbors with an address.
pub(super) const NEIGHBOR: PeerKey = Key {
    places: &[Place::Neighbor],
    ..BOTH
};

/// The defaults of a row that is set in code, or derived.
pub(super) const IN_CODE: PeerKey = Key {
    kind: Kind::InCode,
    places: &[],
    effect: Effect::NextSession,
    ..BOTH
};

/// The defaults of a row that is set in the datastore only: a file with neighbors has no datastore.
pub(super) const STORED: PeerKey = Key {
    places: &[],
    store: Store::Annotation,
    report: Report::InNeighbors,
    ..BOTH
};

/// A duration in seconds, at least 1.
pub(super) const SECONDS: Kind = from_one(65_535, "seconds");

/// The defaults of a policy row, for one direction.
pub(super) const POLICY: PeerKey = Key {
    kind: Kind::Word(&["accept", "deny"]),
    default: Fallback::Words("`\"accept\"`; `\"deny\"` for an external neighbor"),
    store: Store::Fields(&["spec.filters"]),
    report: Report::Never,
    example: || "deny".into(),
    ..BOTH
};
