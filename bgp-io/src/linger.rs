//! A connection that this side closes: its last octets are written, then it waits for a limited
//! time until the peer has read them. An immediate close would let the kernel reset the connection
//! and discard them.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Buf, Bytes, BytesMut};
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::link::{poll_read, poll_write};
use crate::ready::Signal;

/// A connection that is being closed.
pub(crate) struct Lingering {
    stream: TcpStream,
    /// What is still to be written.
    words: VecDeque<Bytes>,
    /// Whether the write side is shut down.
    shut: bool,
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
        let (words, waker) = (words.into_iter().collect(), Waker::from(signal.clone()));
        signal.wake_by_ref();
        Self {
            stream,
            words,
            shut: false,
            signal,
            waker,
            serial,
        }
    }

    /// Continues; ready when there is nothing left to wait for.
    pub(crate) fn poll(&mut self, scratch: &mut BytesMut) -> Poll<()> {
        let mut cx = Context::from_waker(&self.waker);
        while !self.words.is_empty() {
            match poll_write(&self.stream, &mut cx, self.words.make_contiguous()) {
                Poll::Ready(Ok(octets)) => advance(&mut self.words, octets),
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        if !std::mem::replace(&mut self.shut, true)
            && SockRef::from(&self.stream)
                .shutdown(Shutdown::Write)
                .is_err()
        {
            return Poll::Ready(());
        }
        scratch.clear();
        scratch.reserve(crate::limits::READ_OCTETS_MAX);
        match poll_read(&self.stream, &mut cx, scratch) {
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(_)) => {
                // More octets to discard: poll again in the next turn.
                self.signal.wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Removes `octets` from the front.
fn advance(words: &mut VecDeque<Bytes>, mut octets: usize) {
    while let Some(first) = words.front_mut() {
        let taken = octets.min(first.len());
        first.advance(taken);
        octets -= taken;
        if !first.is_empty() {
            return;
        }
        words.pop_front();
    }
}
