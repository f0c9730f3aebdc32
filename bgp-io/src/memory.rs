//! A transport without a network: two ends in one process.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, DuplexStream};

use crate::limits::MEMORY_OCTETS_MAX;
use crate::transport::{Transport, with_vector};

/// One end of a connection within the process, for tests without a network. The other end reads the
/// end of the stream when this one is dropped.
///
/// With Tokio's paused clock (`tokio::time::pause`) a test of timers takes no time.
#[derive(Debug)]
pub struct Memory {
    stream: DuplexStream,
    local: SocketAddr,
    remote: SocketAddr,
}

impl Memory {
    /// Returns the two ends of a connection between these addresses. Each direction holds at most
    /// [`MEMORY_OCTETS_MAX`] octets that are not read yet.
    #[must_use]
    pub fn pair([one, other]: [SocketAddr; 2]) -> [Self; 2] {
        let (a, b) = tokio::io::duplex(MEMORY_OCTETS_MAX);
        [(a, one, other), (b, other, one)].map(|(stream, local, remote)| Self {
            stream,
            local,
            remote,
        })
    }
}

impl Transport for Memory {
    fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.local, self.remote))
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        // A read that is dropped while it is pending takes nothing.
        pin!(self.stream.read_buf(buffer)).poll(cx)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[Bytes]) -> Poll<io::Result<usize>> {
        with_vector(slices, |vector| {
            Pin::new(&mut self.stream).poll_write_vectored(cx, vector)
        })
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
