//! The transport of a session: a TCP connection, or a value of the caller.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::limits::WRITE_SLICES_MAX;

/// An open connection that carries the octets of one session, in order and in both directions.
///
/// [`TcpStream`] is one, [`Memory`](crate::Memory) another. No method blocks: if nothing can be done, it
/// returns `Pending` and wakes the task once it can.
pub trait Transport: Unpin {
    /// Returns the local and the remote address.
    ///
    /// # Errors
    ///
    /// The connection is closed already.
    fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)>;

    /// Appends received octets to `buffer`, which has free capacity, and returns their number: 0 at
    /// the end of the stream.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut)
    -> Poll<io::Result<usize>>;

    /// Sends octets of the slices, in their order, and returns how many it has taken. A session that is
    /// dropped calls it once more, perhaps outside the runtime.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[Bytes]) -> Poll<io::Result<usize>>;

    /// Ends the direction to the peer, after the octets that were written. It can still be read.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Transport for TcpStream {
    fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.local_addr()?, self.peer_addr()?))
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_read_ready(cx))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return Poll::Ready(other),
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[Bytes]) -> Poll<io::Result<usize>> {
        with_vector(slices, |vector| {
            loop {
                match self.try_write_vectored(vector) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready!(self.poll_write_ready(cx))?;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => return Poll::Ready(other),
                }
            }
        })
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self).shutdown(Shutdown::Write))
    }
}

/// Calls `write` with the first slices as the system call has them, at most [`WRITE_SLICES_MAX`].
pub(crate) fn with_vector<T>(slices: &[Bytes], write: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
    let mut vector = [IoSlice::new(&[]); WRITE_SLICES_MAX];
    let count = slices.len().min(WRITE_SLICES_MAX);
    for (place, slice) in vector.iter_mut().zip(slices) {
        *place = IoSlice::new(slice);
    }
    write(vector.get(..count).unwrap_or_default())
}
