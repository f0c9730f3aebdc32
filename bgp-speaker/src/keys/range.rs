//! The rows of the keys that only a range has.

use super::{
    Effect, Fallback, Key, Place, RangeKey, Report, Store, field::Field, kind::Kind, value::Value,
};
use crate::config::RangeConfig;

/// The defaults of a row of ranges.
const RANGE: RangeKey = Key {
    name: "",
    meaning: "",
    kind: Kind::Prefix,
    default: Fallback::Required,
    effect: Effect::Live,
    note: "",
    places: &[Place::Range],
    store: Store::Nowhere,
    report: Report::Always,
    help: "",
    example: || "10.0.0.0/16".into(),
    fields: &[],
    get: |_| None,
    set: |_, _| (),
    copy: |_, _| (),
    differs: |_, _| false,
};

/// The keys of a range that a neighbor does not have.
pub const RANGE_KEYS: &[RangeKey] = rows! { RangeConfig:
    "prefix": [prefix],
        "the addresses from which connections are accepted",
        Key { note: "its neighbors move to the range that now contains them, or are closed", ..RANGE };

    "limit": [limit],
        "the maximum number of neighbors at one time. In a full range a new connection replaces \
         the \
         oldest one without a session; see [Connections that \
         fail](route-reflector.md#connections-that-fail)",
        Key {
            kind: Kind::Number { or_zero: false, least: 1, most: 65_535, unit: "" },
            note: "applied at once; existing neighbors stay",
            help: "remove the range, or set the maximum number of its neighbors",
            example: || 100.into(),
            ..RANGE
        };
};
