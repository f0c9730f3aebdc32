//! A connection that this side closes: the last octets are written, then it waits for the peer to have
//! read them. A close at once would make the kernel reset the connection and drop them.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};

use crate::limits::READ_OCTETS_MAX;
use crate::transport::Transport;

/// A connection that is being closed. Its user limits the time: [`crate::limits::LINGER`].
#[derive(Debug)]
pub(crate) struct Closing<T> {
    transport: T,
    /// The octets that are not written yet.
    last: VecDeque<Bytes>,
    is_shut: bool,
}

impl<T: Transport> Closing<T> {
    pub(crate) fn new(transport: T, last: impl IntoIterator<Item = Bytes>) -> Self {
        Self {
            transport,
            last: last.into_iter().collect(),
            is_shut: false,
        }
    }

    /// Goes on; ready when nothing is left to wait for. `scratch` is for octets that are dropped.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, scratch: &mut BytesMut) -> Poll<()> {
        while !self.last.is_empty() {
            let written = self.transport.poll_write(cx, self.last.make_contiguous());
            match ready!(written) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(octets) => advance(&mut self.last, octets),
            }
        }
        if !self.is_shut {
            if ready!(self.transport.poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            self.is_shut = true;
        }
        scratch.clear();
        scratch.reserve(READ_OCTETS_MAX);
        match ready!(self.transport.poll_read(cx, scratch)) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(_) => {
                // More octets that nothing reads: the next turn continues.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// Takes `octets` off the front.
fn advance(last: &mut VecDeque<Bytes>, mut octets: usize) {
    while let Some(first) = last.front_mut() {
        let taken = octets.min(first.len());
        first.advance(taken);
        octets -= taken;
        if !first.is_empty() {
            return;
        }
        last.pop_front();
    }
}
