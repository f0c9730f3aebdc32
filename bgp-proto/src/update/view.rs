//! Splitting an UPDATE into withdrawn routes, attributes and announced routes.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::attr::{
    AttrCode, FLAG_OPTIONAL, FLAG_TRANSITIVE, MpReach, MpUnreach, RawAttr, RawAttrs, Session,
    Source, mp_octets_allowed,
};
use crate::family::{Family, FamilySet};
use crate::fault::{Fault, FaultKind, Remedy};
use crate::nlri::NlriIter;
use crate::notification::{Notification, update};
use crate::params::SessionParams;
use crate::reader::Reader;
use crate::update::batch::RouteBatch;
use crate::update::block::{AttrBlock, PIECES, Piece, take_out};

/// An UPDATE taken apart, in place.
#[derive(Clone, Debug)]
pub struct UpdateView<'a> {
    withdrawn: Piece<'a>,
    nlri: Piece<'a>,
    /// Path attributes without the multiprotocol ones.
    pieces: [Piece<'a>; PIECES],
    reach: Option<MpReach<'a>>,
    unreach: Option<MpUnreach<'a>>,
    session: Session,
    add_path: FamilySet,
    families: FamilySet,
    attribute_octets: usize,
    /// A fault of the message makes its routes withdrawals.
    withdraw: bool,
}

impl<'a> UpdateView<'a> {
    /// Splits the body of an UPDATE. Checks the framing of attributes and the heads of the
    /// multiprotocol ones, but not the values of the others (that is [`AttrBlock::parse`]) and not
    /// the NLRI (that is [`NlriIter`]).
    ///
    /// The list of faults is empty, and nothing allocated, if there are none. With
    /// [`Remedy::ResetSession`] among them no route of the message should be used. With
    /// [`Remedy::DisableFamily`] the batch of that family is left out.
    ///
    /// # Errors
    ///
    /// The NOTIFICATION that ends the session if the message cannot be split at all, or if it has
    /// malformed attributes and no routes to which they could belong (RFC 7606 §5.2).
    pub fn parse(
        body: &'a [u8],
        params: &SessionParams,
    ) -> Result<(Self, Vec<Fault>), Notification> {
        let (mut view, attributes) = Self::fields(body, params).ok_or_else(|| {
            // RFC 4271 §6.3: the two lengths do not fit the message.
            Notification::update_message(update::MALFORMED_ATTRIBUTE_LIST, Bytes::new())
        })?;
        let mut faults = Vec::new();
        view.split(attributes, params, &mut faults);
        view.withdraw = Fault::worst(&faults)
            .is_some_and(|worst| matches!(worst, Remedy::TreatAsWithdraw | Remedy::ResetSession));
        view.without_routes(body, &faults)?;
        // RFC 4760 §6: routes of a family that was not negotiated are ignored.
        if !view.families.contains(Family::IPV4_UNICAST) && view.drop_body() {
            faults.push(Fault::new(
                FaultKind::FamilyNotNegotiated,
                AttrCode::None,
                0,
            ));
        }
        Ok((view, faults))
    }

    /// Reads the two lengths of the body.
    fn fields(body: &'a [u8], params: &SessionParams) -> Option<(Self, Piece<'a>)> {
        let mut reader = Reader::new(body, 0);
        let mut field = || {
            let len = usize::from(reader.u16()?);
            let at = reader.at();
            reader.take(len).map(|octets| Piece { octets, at })
        };
        let (withdrawn, attributes) = (field()?, field()?);
        let nlri = Piece {
            octets: reader.rest(),
            at: reader.at(),
        };
        let view = Self {
            withdrawn,
            nlri,
            pieces: [Piece::default(); PIECES],
            reach: None,
            unreach: None,
            session: Session::new(params),
            add_path: params.add_path_receive,
            families: params.families,
            attribute_octets: attributes.octets.len(),
            withdraw: false,
        };
        Some((view, attributes))
    }

    /// Takes the multiprotocol attributes out and keeps the others.
    fn split(&mut self, attributes: Piece<'a>, params: &SessionParams, faults: &mut Vec<Fault>) {
        let (pieces, overrun) = take_out(attributes, |attr| {
            if let Err(kind) = self.multiprotocol(attr, params) {
                faults.push(Fault::new(kind, attr.code, attr.at));
            }
        });
        // RFC 7606 §4: attributes that were read before are kept.
        faults.extend(overrun.map(|(code, at)| Fault::new(FaultKind::Overrun, code, at)));
        self.pieces = pieces;
    }

    /// Reads the head of MP_REACH_NLRI or MP_UNREACH_NLRI.
    fn multiprotocol(
        &mut self,
        attr: &RawAttr<'a>,
        params: &SessionParams,
    ) -> Result<(), FaultKind> {
        let twice = match attr.code {
            AttrCode::MpReach => self.reach.is_some(),
            _ => self.unreach.is_some(),
        };
        // RFC 7606 §3 g
        if twice {
            return Err(FaultKind::MpDuplicate);
        }
        let mut result = Ok(());
        // RFC 7606 §3 c: the routes are still processed, as withdrawn ones.
        if attr.flags & (FLAG_OPTIONAL | FLAG_TRANSITIVE) != FLAG_OPTIONAL {
            result = Err(FaultKind::Flags);
        }
        if attr.code == AttrCode::MpUnreach {
            let unreach = MpUnreach::read(attr)?;
            if !self.families.contains(unreach.family) {
                return Err(FaultKind::FamilyNotNegotiated);
            }
            self.unreach = Some(unreach);
            return result;
        }
        let reach = MpReach::read(attr)?;
        if !self.families.contains(reach.family) {
            return Err(FaultKind::FamilyNotNegotiated);
        }
        let octets = reach.next_hop.len();
        if !mp_octets_allowed(reach.family, octets, params.extended_next_hop) {
            // RFC 7606 §7.11
            let typed = reach.family.row().is_some_and(crate::FamilyRow::is_typed);
            return Err(if typed {
                FaultKind::MpNextHopLength
            } else {
                FaultKind::OpaqueNextHopLength
            });
        }
        self.reach = Some(reach);
        result
    }

    /// RFC 7606 §5.2: if no route is announced, a malformed attribute may be the rest of one;
    /// withdrawing unknown routes does not help, so the session ends.
    fn without_routes(&self, body: &[u8], faults: &[Fault]) -> Result<(), Notification> {
        if !self.nlri.octets.is_empty() || self.reach.is_some() {
            return Ok(());
        }
        let refused = |fault: &&Fault| fault.remedy() == Remedy::TreatAsWithdraw;
        if let Some(fault) = faults.iter().find(refused) {
            return Err(fault.notification(body));
        }
        let [first, ..] = self.pieces;
        // Only MP_REACH_NLRI and MP_UNREACH_NLRI, or routes that were rejected above.
        if first.octets.is_empty() || !faults.is_empty() {
            return Ok(());
        }
        let (_, faults) = self.block(Source::Nothing, Family::IPV4_UNICAST).parse();
        match faults.iter().find(refused) {
            Some(fault) => Err(fault.notification(body)),
            None => Ok(()),
        }
    }

    /// Discards the IPv4 unicast routes of the body; returns whether there were any.
    fn drop_body(&mut self) -> bool {
        let any = !self.withdrawn.octets.is_empty() || !self.nlri.octets.is_empty();
        self.withdrawn = Piece::default();
        self.nlri = Piece::default();
        any
    }

    const fn block(&self, source: Source<'a>, family: Family) -> AttrBlock<'a> {
        AttrBlock {
            pieces: self.pieces,
            source,
            family,
            session: self.session,
        }
    }

    /// Returns a batch for each family of the message. A family occurs twice only if its routes are
    /// in both the body and MP_REACH_NLRI, which no speaker should send.
    pub fn batches(&self) -> impl Iterator<Item = RouteBatch<'a>> + use<'a> {
        let withdraw = self.withdraw;
        self.batches_as_sent().map(move |batch| {
            if withdraw {
                batch.treated_as_withdraw()
            } else {
                batch
            }
        })
    }

    /// Returns the same without the remedy for faults of the message: to show its content, not to
    /// apply it.
    pub fn batches_as_sent(&self) -> impl Iterator<Item = RouteBatch<'a>> + use<'a> {
        let reach = self.reach.as_ref().map(|reach| self.reach_batch(reach));
        let unreach = match (&self.unreach, &self.reach) {
            (Some(unreach), Some(reach)) if unreach.family == reach.family => None,
            (Some(unreach), _) => Some(self.unreach_batch(unreach)),
            (None, _) => None,
        };
        [self.body_batch(), unreach, reach].into_iter().flatten()
    }

    fn body_batch(&self) -> Option<RouteBatch<'a>> {
        let family = Family::IPV4_UNICAST;
        let routes = |piece: &Piece<'a>| self.routes(family, piece.octets, piece.at);
        let (unreach, reach) = (routes(&self.withdrawn), routes(&self.nlri));
        if unreach.is_empty() && reach.is_empty() {
            return None;
        }
        Some(self.finish(family, Source::Body, reach, unreach))
    }

    fn reach_batch(&self, mp: &MpReach<'a>) -> RouteBatch<'a> {
        let reach = self
            .routes(mp.family, mp.nlri, mp.nlri_at)
            .within(AttrCode::MpReach);
        let unreach = match &self.unreach {
            Some(unreach) if unreach.family == mp.family => self.unreach_routes(unreach),
            _ => NlriIter::empty(),
        };
        let source = Source::Mp {
            family: mp.family,
            next_hop: mp.next_hop,
            at: mp.at,
        };
        self.finish(mp.family, source, reach, unreach)
    }

    fn unreach_batch(&self, mp: &MpUnreach<'a>) -> RouteBatch<'a> {
        let unreach = self.unreach_routes(mp);
        RouteBatch {
            family: mp.family,
            attrs: None,
            reach: NlriIter::empty(),
            unreach,
        }
    }

    fn unreach_routes(&self, mp: &MpUnreach<'a>) -> NlriIter<'a> {
        self.routes(mp.family, mp.nlri, mp.nlri_at)
            .within(AttrCode::MpUnreach)
    }

    fn routes(&self, family: Family, octets: &'a [u8], at: usize) -> NlriIter<'a> {
        NlriIter::new(family, self.add_path.contains(family), octets, at)
    }

    fn finish(
        &self,
        family: Family,
        source: Source<'a>,
        reach: NlriIter<'a>,
        unreach: NlriIter<'a>,
    ) -> RouteBatch<'a> {
        let attrs = (!reach.is_empty()).then(|| self.block(source, family));
        RouteBatch {
            family,
            attrs,
            reach,
            unreach,
        }
    }

    /// Returns the family of an End-of-RIB, if the message is one (RFC 4724 §2).
    pub fn end_of_rib(&self) -> Option<Family> {
        let [first, ..] = self.pieces;
        let routes = !self.withdrawn.octets.is_empty() || !self.nlri.octets.is_empty();
        if routes || self.reach.is_some() || !first.octets.is_empty() {
            return None;
        }
        match &self.unreach {
            Some(unreach) => unreach.nlri.is_empty().then_some(unreach.family),
            None => (self.attribute_octets == 0).then_some(Family::IPV4_UNICAST),
        }
    }

    /// Returns all path attributes but the multiprotocol ones, undecoded.
    pub fn raw_attributes(&self) -> impl Iterator<Item = RawAttr<'a>> + use<'a> {
        let runs = self.pieces.into_iter();
        runs.flat_map(|piece| RawAttrs::new(piece.octets, piece.at))
            .filter_map(Result::ok)
    }
}
