//! Messages with descriptors, over a pair of sockets that keeps their borders.

#![allow(unsafe_code)] // A received descriptor is a number, and becomes an owned one.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recv,
    recvmsg, sendmsg, setsockopt, socketpair, sockopt,
};

use crate::limits::PARENT_MESSAGE_OCTETS_MAX;

/// Descriptors of one message.
const DESCRIPTORS_MAX: usize = 4;

/// Returns two connected sockets.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
    let (one, other) = socketpair(family, kind, None, SockFlag::SOCK_CLOEXEC)?;
    for socket in [&one, &other] {
        // The kernel takes what it allows, and doubles it.
        let _ = setsockopt(socket, sockopt::SndBuf, &PARENT_MESSAGE_OCTETS_MAX);
    }
    Ok((one, other))
}

/// Sends a message with descriptors.
pub(super) fn send(
    socket: &impl AsFd,
    octets: &[u8],
    descriptors: &[OwnedFd],
    flags: MsgFlags,
) -> io::Result<()> {
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let attached = [ControlMessage::ScmRights(&raw)];
    let attached = attached.get(..usize::from(!raw.is_empty()));
    let attached = attached.unwrap_or_default();
    let flags = flags | MsgFlags::MSG_NOSIGNAL;
    let to = socket.as_fd().as_raw_fd();
    loop {
        match sendmsg::<()>(to, &[IoSlice::new(octets)], attached, flags, None) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) if !flags.contains(MsgFlags::MSG_DONTWAIT) => {
                wait(socket.as_fd(), PollFlags::POLLOUT)?;
            }
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// Waits for a message with descriptors; `None` if the other side is closed.
pub(super) fn receive(socket: &impl AsFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; PARENT_MESSAGE_OCTETS_MAX];
    let mut space = cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let from = socket.as_fd().as_raw_fd();
    let (length, descriptors) = loop {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<()>(from, &mut slices, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait(socket.as_fd(), PollFlags::POLLIN)?,
            Err(error) => return Err(error.into()),
            Ok(message) => {
                let mut descriptors = Vec::new();
                for attached in message.cmsgs()? {
                    if let ControlMessageOwned::ScmRights(numbers) = attached {
                        // SAFETY: the kernel has just made these descriptors for this process, and
                        // nothing else refers to them.
                        let owned = numbers
                            .into_iter()
                            .map(|number| unsafe { OwnedFd::from_raw_fd(number) });
                        descriptors.extend(owned);
                    }
                }
                break (message.bytes, descriptors);
            }
        }
    };
    buffer.truncate(length);
    Ok((length > 0).then_some((buffer, descriptors)))
}

/// Reads a message that has arrived, without its descriptors, into `buffer`. `None` if the other side
/// is closed.
///
/// # Errors
///
/// `WouldBlock` if none has arrived.
pub(super) fn receive_now<'b>(
    socket: &impl AsFd,
    buffer: &'b mut Vec<u8>,
) -> io::Result<Option<&'b [u8]>> {
    buffer.resize(PARENT_MESSAGE_OCTETS_MAX, 0);
    let length = loop {
        match recv(socket.as_fd().as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EINTR) => {}
            received => break received?,
        }
    };
    Ok(buffer.get(..length).filter(|octets| !octets.is_empty()))
}

/// Returns once it is found that the other side is closed.
///
/// # Errors
///
/// `WouldBlock` if it is not.
pub(super) fn found_closed(socket: &impl AsFd) -> io::Result<()> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    match recv(socket.as_fd().as_raw_fd(), &mut [0], flags) {
        Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR) => Err(io::ErrorKind::WouldBlock.into()),
        Ok(0) | Err(_) => Ok(()),
    }
}

/// Waits until a socket is ready: it may be one that does not block.
fn wait(socket: BorrowedFd<'_>, what: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(socket, what)], PollTimeout::NONE) {
        Err(Errno::EINTR) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
