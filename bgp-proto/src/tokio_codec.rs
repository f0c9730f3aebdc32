//! `tokio_util` codec for programs that embed this crate: frames in, encoded messages out.

use bytes::{Bytes, BytesMut};
use std::io;
use tokio_util::codec::{Decoder, Encoder};

use crate::frame::{Frame, next_frame};
use crate::header::MESSAGE_OCTETS_MAX;
use crate::notification::Notification;

/// Cuts messages out of a stream, and passes encoded messages on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageCodec {
    /// Longest message to accept, in octets; grows when a session negotiates RFC 8654.
    pub octets_max: usize,
}

impl MessageCodec {
    /// Returns a codec that accepts messages of at most this many octets.
    #[must_use]
    pub const fn new(octets_max: usize) -> Self {
        Self { octets_max }
    }
}

impl Default for MessageCodec {
    fn default() -> Self {
        Self {
            octets_max: MESSAGE_OCTETS_MAX,
        }
    }
}

/// Why no more messages come.
#[derive(Debug)]
#[non_exhaustive]
pub enum CodecError {
    /// The stream failed.
    Io(io::Error),
    /// The peer sent a malformed header; this is the answer to send.
    Message(Notification),
}

impl core::fmt::Display for CodecError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Message(notification) => notification.fmt(f),
        }
    }
}

impl core::error::Error for CodecError {}

impl From<io::Error> for CodecError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Decoder for MessageCodec {
    type Item = Frame;
    type Error = CodecError;

    fn decode(&mut self, source: &mut BytesMut) -> Result<Option<Frame>, CodecError> {
        next_frame(source, self.octets_max).map_err(CodecError::Message)
    }
}

impl Encoder<Bytes> for MessageCodec {
    type Error = CodecError;

    fn encode(&mut self, message: Bytes, out: &mut BytesMut) -> Result<(), CodecError> {
        out.extend_from_slice(&message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MessageKind, UpdateWriter};

    #[test]
    fn codec_reads_back_what_was_encoded() {
        let mut message = BytesMut::new();
        UpdateWriter::keepalive(&mut message);
        let mut codec = MessageCodec::default();
        let mut wire = BytesMut::new();
        codec.encode(message.freeze(), &mut wire).unwrap();
        wire.extend_from_slice(&[0xff; 16]);
        let frame = codec.decode(&mut wire).unwrap().unwrap();
        assert_eq!(frame.kind, MessageKind::Keepalive);
        assert!(codec.decode(&mut wire).unwrap().is_none());
        wire.extend_from_slice(&[0, 18, 4]);
        assert!(matches!(
            codec.decode(&mut wire),
            Err(CodecError::Message(_))
        ));
    }
}
