//! A received UPDATE, with the error handling of RFC 7606.

use std::sync::Arc;

use bgp_speaker::bgp_proto::{
    Attributes, Family, Fault, Nlri, NlriIter, Notification, Remedy, RouteBatch, SessionParams,
    UpdateView,
};
use bytes::Bytes;

/// An UPDATE of the peer, decoded. Routes with a fault that RFC 7606 treats as a withdrawal are among
/// the withdrawn ones.
#[derive(Clone, Debug)]
pub struct ReceivedUpdate {
    body: Bytes,
    params: Arc<SessionParams>,
    /// The attributes of each batch in the body, if its announced routes can be used.
    attributes: Vec<Option<Attributes>>,
    faults: Vec<Fault>,
}

/// The routes of one family in an UPDATE.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Routes<'u> {
    /// The family.
    pub family: Family,
    /// The path attributes of the announced routes; absent if there are none.
    pub attributes: Option<&'u Attributes>,
    reach: NlriIter<'u>,
    unreach: NlriIter<'u>,
}

impl<'u> Routes<'u> {
    /// Returns the announced routes.
    pub fn announced(&self) -> impl Iterator<Item = Nlri<'u>> + use<'u> {
        self.reach.clone().filter_map(Result::ok)
    }

    /// Returns the withdrawn routes. They come first: a route that is also announced is reachable
    /// (RFC 4271 §4.3).
    pub fn withdrawn(&self) -> impl Iterator<Item = Nlri<'u>> + use<'u> {
        self.unreach.clone().filter_map(Result::ok)
    }
}

impl ReceivedUpdate {
    /// Returns the content, one item for each family.
    pub fn routes(&self) -> impl Iterator<Item = Routes<'_>> {
        // It was parsed before: this is no error.
        let view = UpdateView::parse(&self.body, &self.params).ok();
        let batches = view.into_iter().flat_map(|(view, _)| view.batches());
        batches.zip(&self.attributes).map(|(batch, attributes)| {
            let batch = match attributes {
                Some(_) => batch,
                None => batch.treated_as_withdraw(),
            };
            Routes {
                family: batch.family,
                attributes: attributes.as_ref(),
                reach: batch.reach,
                unreach: batch.unreach,
            }
        })
    }

    /// Returns the faults of the message, each with its remedy. There are none with a stronger remedy
    /// than treat-as-withdraw: these have ended the session.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns the message as it was received, without its header. It is a part of the receive buffer:
    /// copy it to keep it for long.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the parameters of the session, with which the message is read.
    #[must_use]
    pub fn params(&self) -> &SessionParams {
        &self.params
    }
}

/// The content of an UPDATE.
pub(super) enum Content {
    /// Routes.
    Routes(ReceivedUpdate),
    /// The End-of-RIB marker of a negotiated family.
    EndOfRib(Family),
}

/// Decodes an UPDATE; `None` for the End-of-RIB marker of a family that was not negotiated.
///
/// # Errors
///
/// The NOTIFICATION that ends the session (RFC 7606 §3).
pub(super) fn decode(
    body: Bytes,
    params: &Arc<SessionParams>,
) -> Result<Option<Content>, Notification> {
    let (view, mut faults) = UpdateView::parse(&body, params)?;
    if let Some(family) = view.end_of_rib() {
        let is_negotiated = params.families.contains(family);
        return Ok(is_negotiated.then_some(Content::EndOfRib(family)));
    }
    let batches = view.batches();
    let attributes = batches.map(|batch| usable(&batch, &mut faults)).collect();
    if let Some(worst) = faults.iter().max_by_key(|fault| fault.remedy())
        && worst.remedy() >= Remedy::DisableFamily
    {
        return Err(worst.notification(&body));
    }
    Ok(Some(Content::Routes(ReceivedUpdate {
        params: params.clone(),
        attributes,
        faults,
        body,
    })))
}

/// Returns the attributes of a batch, unless its announced routes count as withdrawn.
fn usable(batch: &RouteBatch<'_>, faults: &mut Vec<Fault>) -> Option<Attributes> {
    let routes = batch.unreach.clone().chain(batch.reach.clone());
    faults.extend(routes.filter_map(Result::err));
    let (attributes, found) = batch.attrs.as_ref()?.parse();
    let is_usable = Fault::worst(&found) < Some(Remedy::TreatAsWithdraw);
    faults.extend(found);
    is_usable.then_some(attributes)
}
