//! One message of an answer.

/// One message of an answer: its type and its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// Netlink message type.
    pub kind: u16,
    /// The octets after the netlink header.
    pub payload: Vec<u8>,
}
