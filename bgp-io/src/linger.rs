//! A connection that we close: its last words are written, then we wait a little for the peer to
//! have read them. To close at once would let the kernel reset the connection and throw them away.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Buf, Bytes, BytesMut};
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::link::{poll_read, poll_write};
use crate::ready::Signal;

/// A connection on its way out.
pub(crate) struct Lingering {
    stream: TcpStream,
    /// What is still to be written.
    words: VecDeque<Bytes>,
    /// Whether we have said that no more will come.
    shut: bool,
    pub(crate) signal: Arc<Signal>,
    waker: Waker,
    /// Tells this one from a later user of its token.
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

    /// Goes on; ready when nothing is left to wait for.
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
                // More of what nobody wants any longer: look again when it is our turn.
                self.signal.wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Takes `octets` off the front.
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
