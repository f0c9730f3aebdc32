//! The table of path attributes: a row for each supported type, and what follows from the rows: the
//! fields of [`Attributes`], and how they are read, written, packed, shown and made for tests.

use alloc::vec::Vec;

#[cfg(feature = "strategy")]
use proptest::prelude::*;

use crate::asn::Asn;
use crate::attr::aggregator::Aggregator;
use crate::attr::aigp::Aigp;
use crate::attr::as_path::AsPath;
use crate::attr::as4;
use crate::attr::code::{AttrCode, FLAG_OPTIONAL, FLAG_TRANSITIVE};
use crate::attr::codes::AttrCodes;
use crate::attr::decode::{Context, Draft};
use crate::attr::field::{Field, RareField};
use crate::attr::ipv6_extended_communities::Ipv6ExtendedCommunity;
use crate::attr::next_hop::NextHop;
use crate::attr::origin::Origin;
use crate::attr::pmsi_tunnel::PmsiTunnel;
use crate::attr::prefix_sid::PrefixSid;
use crate::attr::rare::Rare;
use crate::attr::raw::RawAttr;
use crate::attr::tunnel_encapsulation::TunnelEncapsulation;
use crate::attr::unknown::RawAttribute;
use crate::community::{Community, ExtendedCommunity, LargeCommunity};
use crate::fault::{FaultKind, Remedy};
use crate::id::{ClusterId, RouterId};

/// The codec's description of one path attribute.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// Type code; the table is in the order of the codes.
    pub(crate) code: AttrCode,
    /// The optional and transitive flags it must have.
    pub(crate) flags: u8,
    /// Sessions on which it is taken; elsewhere it is discarded.
    pub(crate) place: Place,
    /// The remedy for a malformed length or value.
    pub(crate) malformed: Remedy,
    /// The remedy for other flags than [`flags`](Self::flags).
    pub(crate) bad_flags: Remedy,
    /// How to read and write it; `None` for the two that hold NLRI and are split off before.
    pub(crate) codec: Option<Codec>,
}

impl Row {
    /// Returns whether the attribute of a set can have the Partial flag (RFC 4271 §4.3). AS4_PATH
    /// and AS4_AGGREGATOR are no attributes of a set.
    pub(crate) const fn can_be_partial(&self) -> bool {
        self.flags == OPTIONAL_TRANSITIVE && !matches!(self.place, Place::TwoOctet)
    }
}

/// Sessions on which an attribute has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Every session.
    Any,
    /// Internal sessions.
    Internal,
    /// Sessions within one administrative domain: internal ones, and the external ones that are
    /// configured for it. The receiver of routes removes it ([`Attributes::enter_as`]).
    Domain,
    /// Sessions with two-octet AS numbers.
    TwoOctet,
}

/// How to read and write an attribute.
#[derive(Clone, Copy)]
pub(crate) struct Codec {
    /// Reads the value into the draft.
    pub(crate) decode: fn(&RawAttr<'_>, &Context, &mut Draft) -> Result<(), FaultKind>,
    /// Appends the attribute if the set has it; the flag is true if AS numbers have four octets.
    pub(crate) encode: fn(&Attributes, bool, &mut Vec<u8>),
}

/// The row of a type code.
pub(crate) fn row(code: AttrCode) -> Option<&'static Row> {
    TABLE.get(usize::from(position(code)?))
}

/// The position of a type code's row in [`TABLE`].
pub(crate) const fn position(code: AttrCode) -> Option<u8> {
    #[allow(clippy::indexing_slicing)] // 256 codes
    INDEX[code.0 as usize].checked_sub(1)
}

/// Looks at fields of a set, one after the other.
pub(crate) trait Visitor {
    /// Looks at one field.
    fn field<F: Field>(&mut self, code: AttrCode, place: Place, field: &F);
}

/// Changes fields of a set, one after the other.
pub(crate) trait VisitorMut {
    /// Changes one field.
    fn field<F: Field>(&mut self, code: AttrCode, place: Place, field: &mut F);
}

/// Gives fields of a set, one after the other.
pub(crate) trait Builder {
    /// Gives the next field.
    fn field<F: Field>(&mut self) -> Option<F>;
}

const WELL_KNOWN: u8 = FLAG_TRANSITIVE;
const OPTIONAL: u8 = FLAG_OPTIONAL;
const OPTIONAL_TRANSITIVE: u8 = FLAG_OPTIONAL | FLAG_TRANSITIVE;

macro_rules! remedy {
    (withdraw) => {
        Remedy::TreatAsWithdraw
    };
    (discard) => {
        Remedy::AttributeDiscard
    };
    (reset) => {
        Remedy::ResetSession
    };
}

/// The row of an attribute with a field: `$in` is where the field is in a set.
macro_rules! field_row {
    ($code:ident $flags:ident $place:ident $malformed:ident $bad_flags:ident
     ($($in:ident).*): $type:ty) => {
        Row {
            code: AttrCode::$code,
            flags: $flags,
            place: Place::$place,
            malformed: remedy!($malformed),
            bad_flags: remedy!($bad_flags),
            codec: Some(Codec {
                decode: |attr, context, draft| {
                    draft.attributes.$($in).* = <$type as Field>::decode(attr.value, context)?;
                    Ok(())
                },
                encode: |set, as4, out| {
                    if set.$($in).*.is_sent() {
                        set.put(AttrCode::$code, $flags, out, |out| set.$($in).*.encode(as4, out));
                    }
                },
            }),
        }
    };
}

macro_rules! table {
    (
        fields {
            $( $(#[$doc:meta])*
            $code:ident $flags:ident $place:ident $malformed:ident $bad_flags:ident
            $field:ident: $type:ty; )*
        }
        rare {
            $( $(#[$rare_doc:meta])*
            $rare_code:ident $rare_flags:ident $rare_place:ident $rare_malformed:ident $rare_bad_flags:ident
            $rare_field:ident: $rare_type:ty; )*
        }
        others {
            $( $other_code:ident $other_flags:ident $other_place:ident $other_malformed:ident $other_bad_flags:ident
            $codec:expr; )*
        }
    ) => {
        /// The path attributes of a route, typed and in canonical form.
        ///
        /// Decoding gives canonical sets: the three kinds of communities sorted and without
        /// duplicates, unknown attributes in the order of their codes. Code that builds or edits a
        /// set calls [`Attributes::canonicalize`] at the end, so that equal sets are equal values.
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct Attributes {
            $( $(#[$doc])* pub $field: $type, )*
            /// Attributes that few routes have. Without any of them they take one word.
            pub rare: Rare,
            /// Attributes without a row in the table.
            pub unknown: Vec<RawAttribute>,
        }

        /// The attributes that few routes have; part of [`Attributes`] as its field `rare`.
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub struct RareAttributes {
            $( $(#[$rare_doc])* pub $rare_field: $rare_type, )*
            /// Which typed attributes of the set, rare or not, came with the Partial flag; it must
            /// stay set when they are passed on (RFC 4271 §5).
            pub partial: AttrCodes,
        }

        const FIELDS: &[Row] = &[ $(
            field_row!($code $flags $place $malformed $bad_flags ($field): $type),
        )* ];

        const RARE: &[Row] = &[ $(
            field_row!($rare_code $rare_flags $rare_place $rare_malformed $rare_bad_flags
                (rare.$rare_field): $rare_type),
        )* ];

        const OTHERS: &[Row] = &[ $(
            Row {
                code: AttrCode::$other_code,
                flags: $other_flags,
                place: Place::$other_place,
                malformed: remedy!($other_malformed),
                bad_flags: remedy!($other_bad_flags),
                codec: $codec,
            },
        )* ];

        impl Attributes {
            /// Visits every field but the rare ones, in the order in which they are packed.
            #[inline]
            pub(crate) fn visit(&self, visitor: &mut impl Visitor) {
                $( visitor.field(AttrCode::$code, Place::$place, &self.$field); )*
            }

            /// Changes every field but the rare ones.
            #[inline]
            pub(crate) fn visit_mut(&mut self, visitor: &mut impl VisitorMut) {
                $( visitor.field(AttrCode::$code, Place::$place, &mut self.$field); )*
            }

            /// Makes a set from its fields, in the order of [`visit`](Self::visit), without rare
            /// ones.
            #[inline]
            pub(crate) fn build(builder: &mut impl Builder) -> Option<Self> {
                Some(Self {
                    $( $field: builder.field()?, )*
                    rare: Rare::NONE,
                    unknown: Vec::new(),
                })
            }

            /// Returns a strategy for sets; AS paths have confederation segments only on request.
            #[cfg(feature = "strategy")]
            pub(crate) fn strategy(confederations: bool) -> BoxedStrategy<Self> {
                let sets = Just(Self::default()).boxed();
                $( let sets = (sets, <$type as Field>::strategy(confederations))
                    .prop_map(|(mut set, field)| { set.$field = field; set })
                    .boxed(); )*
                $( let sets = (sets, proptest::option::weighted(0.1, <$rare_type as Field>::strategy(confederations)))
                    .prop_map(|(mut set, field)| {
                        if let Some(field) = field { set.rare.$rare_field = field; }
                        set
                    })
                    .boxed(); )*
                sets
            }
        }

        impl RareAttributes {
            /// No attribute.
            pub(crate) const NONE: Self = Self {
                $( $rare_field: <$rare_type as RareField>::ABSENT, )*
                partial: AttrCodes::NONE,
            };

            /// Looks at every field, in the order in which they are packed.
            pub(crate) fn visit(&self, visitor: &mut impl Visitor) {
                let _ = &visitor; // there may be no rows
                $( visitor.field(AttrCode::$rare_code, Place::$rare_place, &self.$rare_field); )*
            }

            /// Changes every field.
            pub(crate) fn visit_mut(&mut self, visitor: &mut impl VisitorMut) {
                let _ = &visitor;
                $( visitor.field(AttrCode::$rare_code, Place::$rare_place, &mut self.$rare_field); )*
            }

            /// Makes a set of its fields, in the order of [`visit`](Self::visit).
            pub(crate) fn build(builder: &mut impl Builder) -> Option<Self> {
                let _ = &builder;
                Some(Self {
                    $( $rare_field: builder.field()?, )*
                    partial: AttrCodes::NONE,
                })
            }
        }
    };
}

// Columns: code; flags; place; the remedy for a malformed length or value, with its RFC; the remedy
// for wrong flags (RFC 7606 §3 c, unless the attribute's RFC has another rule); field.
// `fields` are packed in this order. CLUSTER_LIST is the first, because it is read in packed sets.
table! {
    fields {
        /// CLUSTER_LIST, the latest reflector first.
        ClusterList         OPTIONAL            Internal withdraw /* 7606 §7.10 */ withdraw cluster_list: Vec<ClusterId>;
        /// ORIGIN.
        Origin              WELL_KNOWN          Any      withdraw /* 7606 §7.1  */ withdraw origin: Origin;
        /// AS_PATH, with AS4_PATH merged in (RFC 6793 §4.2.3).
        AsPath              WELL_KNOWN          Any      withdraw /* 7606 §7.2  */ withdraw as_path: AsPath;
        /// NEXT_HOP, or the next hop of MP_REACH_NLRI.
        NextHop             WELL_KNOWN          Any      withdraw /* 7606 §7.3  */ withdraw next_hop: Option<NextHop>;
        /// MULTI_EXIT_DISC.
        Med                 OPTIONAL            Any      withdraw /* 7606 §7.4  */ withdraw med: Option<u32>;
        /// LOCAL_PREF.
        LocalPref           WELL_KNOWN          Internal withdraw /* 7606 §7.5  */ withdraw local_pref: Option<u32>;
        /// ORIGINATOR_ID.
        OriginatorId        OPTIONAL            Internal withdraw /* 7606 §7.9  */ withdraw originator_id: Option<RouterId>;
        /// ATOMIC_AGGREGATE.
        AtomicAggregate     WELL_KNOWN          Any      discard  /* 7606 §7.6  */ withdraw atomic_aggregate: bool;
        /// AGGREGATOR, with AS4_AGGREGATOR merged in (RFC 6793 §4.2.3).
        Aggregator          OPTIONAL_TRANSITIVE Any      discard  /* 7606 §7.7  */ withdraw aggregator: Option<Aggregator>;
        /// COMMUNITIES.
        Communities         OPTIONAL_TRANSITIVE Any      withdraw /* 7606 §7.8  */ withdraw communities: Vec<Community>;
        /// EXTENDED_COMMUNITIES.
        ExtendedCommunities OPTIONAL_TRANSITIVE Any      withdraw /* 7606 §7.14 */ withdraw extended_communities: Vec<ExtendedCommunity>;
        /// LARGE_COMMUNITIES.
        LargeCommunities    OPTIONAL_TRANSITIVE Any      withdraw /* 8092 §6    */ withdraw large_communities: Vec<LargeCommunity>;
    }
    rare {
        /// ONLY_TO_CUSTOMER: the AS that marked the route against leaks.
        OnlyToCustomer      OPTIONAL_TRANSITIVE Any      withdraw /* 9234 §5    */ withdraw otc: Option<Asn>;
        /// IPV6_EXTENDED_COMMUNITIES.
        Ipv6ExtendedCommunities OPTIONAL_TRANSITIVE Any  withdraw /* 7606 §7.15 */ withdraw ipv6_extended_communities: Vec<Ipv6ExtendedCommunity>;
        /// PMSI_TUNNEL: the tunnel of a VPN's multicast traffic.
        PmsiTunnel          OPTIONAL_TRANSITIVE Any      withdraw /* 6514 §5    */ withdraw pmsi_tunnel: Option<PmsiTunnel>;
        /// TUNNEL_ENCAPSULATION: tunnels that lead to the next hop.
        TunnelEncapsulation OPTIONAL_TRANSITIVE Domain   withdraw /* 9012 §13   */ withdraw tunnel_encapsulation: Option<TunnelEncapsulation>;
        /// PREFIX_SID: the segment of the prefix.
        PrefixSid           OPTIONAL_TRANSITIVE Domain   discard  /* 8669 §6    */ withdraw prefix_sid: Option<PrefixSid>;
        /// AIGP: the accumulated interior cost.
        Aigp                OPTIONAL            Domain   discard  /* 7311 §3.2  */ discard  aigp: Option<Aigp>;
    }
    others {
        MpReachNlri         OPTIONAL            Any      reset    /* 7606 §7.11 */ withdraw None;
        MpUnreachNlri       OPTIONAL            Any      reset    /* 7606 §7.12 */ withdraw None;
        As4Path             OPTIONAL_TRANSITIVE TwoOctet discard  /* 6793 §6    */ withdraw Some(as4::PATH);
        As4Aggregator       OPTIONAL_TRANSITIVE TwoOctet discard  /* 6793 §6    */ withdraw Some(as4::AGGREGATOR);
    }
}

const ROWS: usize = FIELDS.len() + OTHERS.len() + RARE.len();

/// Every attribute that is read, in the order of the codes, which is also the order in which they
/// are sent.
pub(crate) static TABLE: [Row; ROWS] = TABLE_ROWS;
const TABLE_ROWS: [Row; ROWS] = sorted([FIELDS, OTHERS, RARE]);

// A set of attributes is a mask of 64 bits.
const _: () = assert!(ROWS <= 64);

/// Position of a code's row plus one; 0 for codes without a row.
const INDEX: [u8; 256] = index();

#[allow(clippy::indexing_slicing)] // evaluated when compiling
const fn index() -> [u8; 256] {
    let mut index = [0; 256];
    let mut position = 0;
    while position < ROWS {
        index[TABLE_ROWS[position].code.0 as usize] = position as u8 + 1;
        position += 1;
    }
    index
}

/// Puts the rows of several lists into the order of their codes.
#[allow(clippy::indexing_slicing)] // evaluated when compiling
const fn sorted<const N: usize>(lists: [&[Row]; 3]) -> [Row; N] {
    let mut rows = [FIELDS[0]; N];
    let (mut count, mut list) = (0, 0);
    while list < lists.len() {
        let mut from = 0;
        while from < lists[list].len() {
            let mut at = count;
            while at > 0 && rows[at - 1].code.0 > lists[list][from].code.0 {
                rows[at] = rows[at - 1];
                at -= 1;
            }
            rows[at] = lists[list][from];
            count += 1;
            from += 1;
        }
        list += 1;
    }
    assert!(count == N);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_codes() {
        assert!(TABLE.is_sorted_by(|one, two| one.code < two.code));
        for each in &TABLE {
            assert_eq!(row(each.code).map(|row| row.code), Some(each.code));
            assert!(each.code.is_known(), "reports need a name");
        }
        assert!(row(AttrCode::None).is_none());
        assert!(row(AttrCode(255)).is_none());
    }
}
