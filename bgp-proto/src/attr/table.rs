//! The table of path attributes: a row for each type we read.

use alloc::vec::Vec;

use crate::attr::code::{AttrCode, FLAG_OPTIONAL, FLAG_TRANSITIVE};
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::attr::{
    aggregator, as_path, as4, atomic_aggregate, cluster_list, communities, extended_communities,
    large_communities, local_pref, med, next_hop, origin, originator_id,
};
use crate::fault::{FaultKind, Remedy};

/// What the codec knows about one path attribute.
pub(crate) struct Row {
    /// Type code; the table is in the order of the codes.
    pub(crate) code: AttrCode,
    /// The optional and transitive flags it must have.
    pub(crate) flags: u8,
    /// Sessions on which it is taken; elsewhere it is discarded.
    pub(crate) place: Place,
    /// What a bad length or value leads to.
    pub(crate) malformed: Remedy,
    /// How to read and write it; `None` for the two that hold NLRI and are split off before.
    pub(crate) codec: Option<Codec>,
}

/// Sessions on which an attribute has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Every session.
    Any,
    /// Internal sessions.
    Internal,
    /// Sessions with two-octet AS numbers.
    TwoOctet,
}

/// How to read and write an attribute.
pub(crate) struct Codec {
    /// Reads the value into the draft.
    pub(crate) decode: fn(&RawAttr<'_>, &Context, &mut Draft) -> Result<(), FaultKind>,
    /// Appends the attribute if the set has it; the flag tells if AS numbers have four octets.
    pub(crate) encode: fn(&Attributes, bool, &mut Vec<u8>),
}

/// The row of a type code.
pub(crate) fn row(code: AttrCode) -> Option<&'static Row> {
    match *INDEX.get(usize::from(code.0))? {
        0 => None,
        index => TABLE.get(usize::from(index) - 1),
    }
}

const WELL_KNOWN: u8 = FLAG_TRANSITIVE;
const OPTIONAL: u8 = FLAG_OPTIONAL;
const OPTIONAL_TRANSITIVE: u8 = FLAG_OPTIONAL | FLAG_TRANSITIVE;

macro_rules! table {
    ($( $code:ident $flags:ident $place:ident $malformed:ident $codec:tt; )*) => {
        /// Every attribute we read, in the order of the codes, which is also the order in
        /// which they are sent.
        pub(crate) const TABLE: &[Row] = &[
            $( Row {
                code: AttrCode::$code,
                flags: $flags,
                place: Place::$place,
                malformed: Remedy::$malformed,
                codec: codec!($codec),
            }, )*
        ];
    };
}

macro_rules! codec {
    (split) => {
        None
    };
    ($module:ident) => {
        Some(Codec {
            decode: $module::decode,
            encode: $module::encode,
        })
    };
    ({$decode:path, $encode:path}) => {
        Some(Codec {
            decode: $decode,
            encode: $encode,
        })
    };
}

// code             flags               place    malformed (RFC)                  module
table! {
    Origin              WELL_KNOWN          Any      TreatAsWithdraw  /* 7606 §7.1  */ origin;
    AsPath              WELL_KNOWN          Any      TreatAsWithdraw  /* 7606 §7.2  */ as_path;
    NextHop             WELL_KNOWN          Any      TreatAsWithdraw  /* 7606 §7.3  */ next_hop;
    Med                 OPTIONAL            Any      TreatAsWithdraw  /* 7606 §7.4  */ med;
    LocalPref           WELL_KNOWN          Internal TreatAsWithdraw  /* 7606 §7.5  */ local_pref;
    AtomicAggregate     WELL_KNOWN          Any      AttributeDiscard /* 7606 §7.6  */ atomic_aggregate;
    Aggregator          OPTIONAL_TRANSITIVE Any      AttributeDiscard /* 7606 §7.7  */ aggregator;
    Communities         OPTIONAL_TRANSITIVE Any      TreatAsWithdraw  /* 7606 §7.8  */ communities;
    OriginatorId        OPTIONAL            Internal TreatAsWithdraw  /* 7606 §7.9  */ originator_id;
    ClusterList         OPTIONAL            Internal TreatAsWithdraw  /* 7606 §7.10 */ cluster_list;
    MpReachNlri         OPTIONAL            Any      ResetSession     /* 7606 §7.11 */ split;
    MpUnreachNlri       OPTIONAL            Any      ResetSession     /* 7606 §7.12 */ split;
    ExtendedCommunities OPTIONAL_TRANSITIVE Any      TreatAsWithdraw  /* 7606 §7.14 */ extended_communities;
    As4Path             OPTIONAL_TRANSITIVE TwoOctet AttributeDiscard /* 6793 §6    */ {as4::decode_path, as4::encode_path};
    As4Aggregator       OPTIONAL_TRANSITIVE TwoOctet AttributeDiscard /* 6793 §6    */ {as4::decode_aggregator, as4::encode_aggregator};
    LargeCommunities    OPTIONAL_TRANSITIVE Any      TreatAsWithdraw  /* 8092 §6    */ large_communities;
}

/// Position of a code's row plus one; 0 for codes without a row.
const INDEX: [u8; 256] = index();

#[allow(clippy::indexing_slicing)] // evaluated when compiling
const fn index() -> [u8; 256] {
    let mut index = [0; 256];
    let mut position = 0;
    while position < TABLE.len() {
        index[TABLE[position].code.0 as usize] = position as u8 + 1;
        position += 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_codes() {
        assert!(TABLE.is_sorted_by_key(|row| row.code));
        for each in TABLE {
            assert_eq!(row(each.code).map(|row| row.code), Some(each.code));
        }
        assert!(row(AttrCode::None).is_none());
        assert!(row(AttrCode(255)).is_none());
    }
}
