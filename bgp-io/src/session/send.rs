//! Messages that the owner of a session sends.

use bgp_speaker::bgp_proto::{
    Attributes, EncodeParams, Family, MessageKind, NextHop, Nlri, Notification, RouteRefresh,
    SessionParams, UpdateWriter, message_header,
};
use bytes::{Bytes, BytesMut};
use thiserror::Error;

use super::SessionStream;
use crate::Transport;
use crate::limits::{SESSION_QUEUE_OCTETS_MAX, SESSION_QUEUE_PIECES_MAX};

/// The reason why a message was not queued. Nothing of it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The session is not established.
    #[error("the session is not established")]
    NotEstablished,
    /// The queue has no room: wait for [`SessionEvent::AllSent`](crate::SessionEvent::AllSent), then
    /// send it again.
    #[error("the queue of the session is full: wait for AllSent, then send it again")]
    Full,
    /// The messages are longer than the whole queue: send them in parts.
    #[error("more than {SESSION_QUEUE_OCTETS_MAX} octets at once: send them in parts")]
    TooMuch,
    /// The path attributes are too long for any message of the session.
    #[error("the path attributes are too long for a message")]
    AttributesTooLong,
    /// The family was not negotiated.
    #[error("the family {0} was not negotiated")]
    Family(Family),
    /// The peer has not announced support for ROUTE-REFRESH (RFC 2918).
    #[error("the peer does not support ROUTE-REFRESH")]
    RefreshUnsupported,
    /// The octets are no whole messages that the peer could read: it would answer with this.
    #[error("octets that are no whole messages: {0}")]
    Header(Notification),
    /// The last message is cut off.
    #[error("the last message is cut off")]
    Incomplete,
    /// A message of this type is sent by the session itself.
    #[error("the session sends each {0} itself")]
    Kind(MessageKind),
}

impl<T: Transport> SessionStream<T> {
    /// Queues one or more whole messages, encoded: UPDATEs and ROUTE-REFRESHes. Their bodies are sent as
    /// they are. [`next`](Self::next) writes them.
    ///
    /// # Errors
    ///
    /// All messages are rejected, for the reason that the error names.
    pub fn send(&mut self, messages: impl Into<Bytes>) -> Result<(), SendError> {
        let messages = messages.into();
        let params = self.params().ok_or(SendError::NotEstablished)?;
        check(&messages, params)?;
        if messages.len() > SESSION_QUEUE_OCTETS_MAX {
            return Err(SendError::TooMuch);
        }
        if self.session.queued_octets() + messages.len() > SESSION_QUEUE_OCTETS_MAX
            || self.session.queued_pieces() >= SESSION_QUEUE_PIECES_MAX
        {
            return Err(SendError::Full);
        }
        if !messages.is_empty() {
            self.session.queue(messages);
            self.owes_all_sent = true;
        }
        Ok(())
    }

    /// Announces routes of a family in as few UPDATEs as they need. The attributes are sent as they are:
    /// the caller has set AS_PATH, the next hop and, for an internal peer, LOCAL_PREF.
    ///
    /// # Errors
    ///
    /// No route is announced, for the reason that the error names.
    pub fn announce<'n>(
        &mut self,
        family: Family,
        attributes: &Attributes,
        routes: impl IntoIterator<Item = Nlri<'n>>,
    ) -> Result<(), SendError> {
        let params = self.encode_params(family)?;
        let mut block = Vec::new();
        attributes.encode(params.as4, &mut block);
        let verb = Verb::Reach(&block, attributes.next_hop.as_ref());
        self.send(encode(family, &params, verb, routes)?)
    }

    /// Withdraws routes of a family in as few UPDATEs as they need.
    ///
    /// # Errors
    ///
    /// No route is withdrawn, for the reason that the error names.
    pub fn withdraw<'n>(
        &mut self,
        family: Family,
        routes: impl IntoIterator<Item = Nlri<'n>>,
    ) -> Result<(), SendError> {
        let params = self.encode_params(family)?;
        self.send(encode(family, &params, Verb::Unreach, routes)?)
    }

    /// Sends the End-of-RIB marker of a family (RFC 4724 §2).
    ///
    /// # Errors
    ///
    /// It is not sent, for the reason that the error names.
    pub fn end_of_rib(&mut self, family: Family) -> Result<(), SendError> {
        self.encode_params(family)?;
        let mut out = BytesMut::new();
        UpdateWriter::end_of_rib(&mut out, family);
        self.send(out)
    }

    /// Asks the peer for all its routes of a family (RFC 2918).
    ///
    /// # Errors
    ///
    /// It is not sent, for the reason that the error names.
    pub fn request_refresh(&mut self, family: Family) -> Result<(), SendError> {
        self.encode_params(family)?;
        if !self.params().is_some_and(|params| params.route_refresh) {
            return Err(SendError::RefreshUnsupported);
        }
        let mut out = BytesMut::new();
        RouteRefresh::request(family).encode(&mut out);
        self.send(out)
    }

    fn encode_params(&self, family: Family) -> Result<EncodeParams, SendError> {
        let params = self.params().ok_or(SendError::NotEstablished)?;
        if !params.families.contains(family) {
            return Err(SendError::Family(family));
        }
        Ok(EncodeParams::new(params, family))
    }
}

/// Checks that octets are whole messages which the owner may send to the peer.
fn check(mut messages: &[u8], params: &SessionParams) -> Result<(), SendError> {
    while !messages.is_empty() {
        let header = message_header(messages, params.send_octets_max());
        let (kind, octets) = header
            .map_err(SendError::Header)?
            .ok_or(SendError::Incomplete)?;
        if !matches!(kind, MessageKind::Update | MessageKind::RouteRefresh) {
            return Err(SendError::Kind(kind));
        }
        messages = messages.get(octets..).ok_or(SendError::Incomplete)?;
    }
    Ok(())
}

/// The operation on routes.
#[derive(Clone, Copy)]
enum Verb<'v> {
    /// They are announced with these encoded attributes and this next hop.
    Reach(&'v [u8], Option<&'v NextHop>),
    /// They are withdrawn.
    Unreach,
}

/// Encodes routes in as few messages as they need.
fn encode<'n>(
    family: Family,
    params: &EncodeParams,
    verb: Verb<'_>,
    routes: impl IntoIterator<Item = Nlri<'n>>,
) -> Result<BytesMut, SendError> {
    let mut out = BytesMut::new();
    let mut routes = routes.into_iter().peekable();
    while routes.peek().is_some() {
        let mut message = match verb {
            Verb::Reach(block, next_hop) => {
                UpdateWriter::reach(&mut out, family, block, next_hop, params)
            }
            Verb::Unreach => UpdateWriter::unreach(&mut out, family, params),
        };
        while let Some(route) = routes.peek() {
            if message.push(route).is_err() {
                break;
            }
            routes.next();
        }
        if message.is_empty() {
            return Err(SendError::AttributesTooLong);
        }
        message.finish();
        if out.len() > SESSION_QUEUE_OCTETS_MAX {
            return Err(SendError::TooMuch);
        }
    }
    Ok(out)
}
