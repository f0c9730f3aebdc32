//! A connection that the driver closes, among its other connections.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;

use crate::closing::Closing;
use crate::ready::Signal;

/// A connection that is being closed.
pub(crate) struct Lingering {
    closing: Closing<TcpStream>,
    pub(crate) signal: Arc<Signal>,
    waker: Waker,
    /// Distinguishes it from a later user of its token.
    pub(crate) serial: u64,
}

impl Lingering {
    pub(crate) fn new(
        stream: TcpStream,
        words: impl IntoIterator<Item = Bytes>,
        signal: Arc<Signal>,
        serial: u64,
    ) -> Self {
        let waker = Waker::from(signal.clone());
        signal.wake_by_ref();
        Self {
            closing: Closing::new(stream, words),
            signal,
            waker,
            serial,
        }
    }

    /// Continues; ready when there is nothing left to wait for.
    pub(crate) fn poll(&mut self, scratch: &mut BytesMut) -> Poll<()> {
        self.closing
            .poll(&mut Context::from_waker(&self.waker), scratch)
    }
}
