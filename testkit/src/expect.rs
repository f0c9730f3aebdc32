//! Expectations of a scripted peer, and the failure text for another message.

use std::fmt;

use bgp_proto::MessageKind;

use crate::received::{Inbox, Received};

/// The next message that a scripted peer expects. KEEPALIVEs in front of it are skipped unless it
/// is one.
#[non_exhaustive]
pub enum Expected {
    /// Any message of a type; an UPDATE counts part by part.
    Kind(MessageKind),
    /// A NOTIFICATION of this code and subcode, with any data.
    Notification(u8, u8),
    /// Exactly this.
    Exactly(Received),
    /// Any message that the function accepts; the text describes it.
    Matching(&'static str, Box<dyn Fn(&Received) -> bool>),
}

/// Returns the expectation of a NOTIFICATION of this code and subcode, with any data.
#[must_use]
pub const fn notification(code: u8, subcode: u8) -> Expected {
    Expected::Notification(code, subcode)
}

/// Returns the expectation of any message that the function accepts; `what` names it in failures.
pub fn matching(what: &'static str, is: impl Fn(&Received) -> bool + 'static) -> Expected {
    Expected::Matching(what, Box::new(is))
}

impl From<MessageKind> for Expected {
    fn from(kind: MessageKind) -> Self {
        Self::Kind(kind)
    }
}

impl From<Received> for Expected {
    fn from(received: Received) -> Self {
        Self::Exactly(received)
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "{kind}"),
            Self::Notification(code, subcode) => write!(f, "NOTIFICATION {code}/{subcode}"),
            Self::Exactly(received) => write!(f, "{received}"),
            Self::Matching(what, _) => f.write_str(what),
        }
    }
}

impl Expected {
    fn is(&self, received: &Received) -> bool {
        match (self, received) {
            (Self::Kind(kind), received) => received.kind() == Some(*kind),
            (Self::Notification(code, subcode), Received::Notification(came)) => {
                (came.code, came.subcode) == (*code, *subcode)
            }
            (Self::Notification(..), _) => false,
            (Self::Exactly(exactly), received) => exactly == received,
            (Self::Matching(_, is), received) => is(received),
        }
    }

    /// Checks the received message: `None` until there is one. The error is the failure text.
    pub(crate) fn check(&self, inbox: &mut Inbox) -> Option<Result<Received, String>> {
        loop {
            let before = inbox.history();
            let (received, octets) = inbox.next()?;
            if self.is(&received) {
                return Some(Ok(received));
            }
            if received != Received::Keepalive {
                let came = match octets.is_empty() {
                    true => received.to_string(),
                    false => format!("{received}\n  octets: {octets}"),
                };
                return Some(Err(format!(
                    "expected {self}\n  came: {came}\n  before: {before}"
                )));
            }
        }
    }

    /// Returns the text for a missing message.
    pub(crate) fn missing(&self, within: &str, inbox: &Inbox) -> String {
        let before = inbox.history();
        format!("expected {self}\n  came: nothing within {within}\n  before: {before}")
    }
}
