//! Socket options that no crate provides: TCP-MD5 (RFC 2385) and GTSM (RFC 5082).
//!
//! The only module that may have `unsafe` code: the macros which call `setsockopt`, and one call of
//! `getsockopt` for values of any length.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{GetSockOpt, SetSockOpt};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

use crate::limits::MD5_KEY_OCTETS_MAX;

sockopt_impl!(
    /// Drops packets from further away (`ip(7)`).
    IpMinTtl,
    Both,
    libc::IPPROTO_IP,
    libc::IP_MINTTL,
    libc::c_int
);

sockopt_impl!(
    /// The same for IPv6.
    Ipv6MinHopCount,
    Both,
    libc::IPPROTO_IPV6,
    libc::IPV6_MINHOPCOUNT,
    libc::c_int
);

sockopt_impl!(
    /// Sets or removes the key of one address (`tcp(7)`).
    TcpMd5Sig,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_MD5SIG,
    Md5Sig
);

sockopt_impl!(
    /// Sets or removes the key of a range of addresses.
    TcpMd5SigExt,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_MD5SIG_EXT,
    Md5Sig
);

sockopt_impl!(
    /// Keeps the SYNs of incoming connections (`linux/tcp.h`).
    TcpSaveSyn,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_SAVE_SYN,
    libc::c_int
);

sockopt_impl!(
    /// Makes the kernel keep the TTL for [`handshake_ttl`] (`ip(7)`).
    IpRecvTtl,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_RECVTTL,
    libc::c_int
);

sockopt_impl!(
    /// The same for IPv6.
    Ipv6RecvHopLimit,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_RECVHOPLIMIT,
    libc::c_int
);

sockopt_impl!(
    /// Keeps the intervals of the first retransmissions equal while few segments are in flight
    /// (`tcp(7)`).
    TcpThinLinearTimeouts,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_THIN_LINEAR_TIMEOUTS,
    libc::c_int
);

sockopt_impl!(
    /// The kernel's figures of a connection (`tcp(7)`).
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    TcpInfoWords
);

/// `struct tcp_info` of `linux/tcp.h` up to `tcpi_data_segs_out` (Linux 4.6), in words. A newer
/// kernel has more fields behind it and returns no more than requested.
type TcpInfoWords = [u32; 40];

/// The fields in use of `struct tcp_info`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpFigures {
    /// Consecutive timeouts without an acknowledgment (`tcpi_retransmits`).
    pub(crate) repeats: u32,
    /// Probes of an idle peer or a closed window since the last acknowledgment (`tcpi_probes`).
    pub(crate) probes: u32,
    /// Segments in flight without an acknowledgment of any kind (`tcpi_unacked`, `tcpi_sacked`).
    pub(crate) in_flight: u32,
    /// Milliseconds since the last acknowledgment or data arrived (`tcpi_last_ack_recv`,
    /// `tcpi_last_data_recv`).
    pub(crate) received_ms_ago: u32,
    /// Received segments of any kind (`tcpi_segs_in`).
    pub(crate) segments_in: u32,
    /// Sent data segments, including retransmissions (`tcpi_data_segs_out`).
    pub(crate) data_out: u32,
}

/// Reads the kernel's figures of a connection.
///
/// # Errors
///
/// The kernel's error.
pub(crate) fn tcp_figures(socket: &impl AsFd) -> io::Result<TcpFigures> {
    let words = TcpInfo.get(socket)?;
    let [_, _, repeats, probes] = words[0].to_ne_bytes();
    Ok(TcpFigures {
        repeats: u32::from(repeats),
        probes: u32::from(probes),
        in_flight: words[6].saturating_sub(words[7]),
        received_ms_ago: words[13].min(words[14]),
        segments_in: words[35],
        data_out: words[39],
    })
}

/// Makes the kernel retransmit lost segments of a connection at even intervals at first: a peer
/// whose host was unreachable for a second is then noticed by a missing acknowledgment, not after
/// a long retransmission timeout. The kernel does so only if the congestion control has a finite
/// slow start, so BBR is replaced. On a kernel without these options the hold timer detects such a
/// peer.
pub(crate) fn set_prompt_repeats(socket: &impl AsFd) {
    if TcpThinLinearTimeouts.set(socket, &1).is_err() {
        return;
    }
    let control = TcpCongestion.get(socket).unwrap_or_default();
    if control.as_encoded_bytes().starts_with(b"bbr") {
        // Reno is in every kernel and needs no privilege.
        let _ = TcpCongestion
            .set(socket, &OsString::from("cubic"))
            .or_else(|_| TcpCongestion.set(socket, &OsString::from("reno")));
    }
}

/// `TCP_MD5SIG_FLAG_PREFIX` of `linux/tcp.h`.
const FLAG_PREFIX: u8 = 1;

/// `struct tcp_md5sig` of `linux/tcp.h`.
#[derive(Clone)]
#[repr(C)]
#[allow(unreachable_pub)] // The macros make public types of it.
pub struct Md5Sig {
    address: Address,
    flags: u8,
    prefix_len: u8,
    key_len: u16,
    interface: libc::c_int,
    key: [u8; MD5_KEY_OCTETS_MAX],
}

/// `struct __kernel_sockaddr_storage`.
#[derive(Clone)]
#[repr(C, align(8))]
struct Address([u8; 128]);

const _: () = assert!(size_of::<Md5Sig>() == 216);

impl Address {
    fn new(address: IpAddr) -> Self {
        let mut octets = [0; 128];
        let family = match address {
            IpAddr::V4(address) => {
                octets[4..8].copy_from_slice(&address.octets()); // sin_addr
                libc::AF_INET
            }
            IpAddr::V6(address) => {
                octets[8..24].copy_from_slice(&address.octets()); // sin6_addr
                libc::AF_INET6
            }
        };
        let family = u16::try_from(family).unwrap_or_default();
        octets[..2].copy_from_slice(&family.to_ne_bytes());
        Self(octets)
    }
}

/// Sets the TCP-MD5 key for the peers in `address`/`prefix_len` on a socket, before it connects or
/// on the listening one; an empty key removes it.
///
/// # Errors
///
/// `EINVAL` for a key that is too long, otherwise the kernel's error.
pub fn set_md5_key(
    socket: &impl AsFd,
    address: IpAddr,
    prefix_len: u8,
    key: &[u8],
) -> io::Result<()> {
    let mut octets = [0; MD5_KEY_OCTETS_MAX];
    let place = octets
        .get_mut(..key.len())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    place.copy_from_slice(key);
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let signature = Md5Sig {
        address: Address::new(address),
        flags: if prefix_len == whole { 0 } else { FLAG_PREFIX },
        prefix_len,
        key_len: u16::try_from(key.len()).unwrap_or_default(),
        interface: 0,
        key: octets,
    };
    let set = if prefix_len == whole {
        TcpMd5Sig.set(socket, &signature)
    } else {
        TcpMd5SigExt.set(socket, &signature)
    };
    match set {
        // Removing a missing key is not an error.
        Err(nix::errno::Errno::ENOENT) if key.is_empty() => Ok(()),
        other => other.map_err(io::Error::from),
    }
}

/// Drops packets of peers that are more than `hops` away. RFC 5082 §3
pub(crate) fn set_ttl_security(socket: &impl AsFd, ipv4: bool, hops: u8) -> io::Result<()> {
    set_least_ttl(socket, ipv4, least_ttl(hops).into())
}

/// Accepts packets from any distance.
pub(crate) fn clear_ttl_security(socket: &impl AsFd, ipv4: bool) -> io::Result<()> {
    set_least_ttl(socket, ipv4, 0)
}

fn set_least_ttl(socket: &impl AsFd, ipv4: bool, least: libc::c_int) -> io::Result<()> {
    if ipv4 {
        IpMinTtl.set(socket, &least)?;
        debug_assert_eq!(IpMinTtl.get(socket), Ok(least));
    } else {
        Ipv6MinHopCount.set(socket, &least)?;
        debug_assert_eq!(Ipv6MinHopCount.get(socket), Ok(least));
    }
    Ok(())
}

/// Sets whether a listening socket keeps the SYNs of incoming connections.
pub(crate) fn save_syns(socket: &impl AsFd, save: bool) -> io::Result<()> {
    Ok(TcpSaveSyn.set(socket, &libc::c_int::from(save))?)
}

/// Returns the TTL, or hop limit, of the SYN of an accepted connection. It can be read once. A
/// connection that was made by a SYN cookie has none.
pub(crate) fn saved_syn_ttl(socket: &impl AsFd, ipv4: bool) -> io::Result<Option<u8>> {
    /// Octets of the longest relevant IP and TCP headers: the kernel rejects a shorter buffer.
    const HEADERS_OCTETS_MAX: usize = 512;
    let mut headers = [0; HEADERS_OCTETS_MAX];
    let octets = option(socket, libc::IPPROTO_TCP, libc::TCP_SAVED_SYN, &mut headers)?;
    let at = if ipv4 { 8 } else { 7 };
    Ok(headers.get(..octets).and_then(|syn| syn.get(at)).copied())
}

/// Returns the TTL, or hop limit, of the segment that completed the handshake of an accepted
/// connection. The kernel records it when it makes the socket, also with SYN cookies.
pub(crate) fn handshake_ttl(socket: &impl AsFd, ipv4: bool) -> io::Result<Option<u8>> {
    /// `IP_PKTOPTIONS` of `linux/in.h`, `IPV6_2292PKTOPTIONS` of `linux/in6.h`.
    const PACKET_OPTIONS: (libc::c_int, libc::c_int) = (9, 6);
    let mut messages = [0; 256];
    let octets = if ipv4 {
        IpRecvTtl.set(socket, &1)?;
        let octets = option(socket, libc::IPPROTO_IP, PACKET_OPTIONS.0, &mut messages)?;
        IpRecvTtl.set(socket, &0)?;
        octets
    } else {
        Ipv6RecvHopLimit.set(socket, &1)?;
        let octets = option(socket, libc::IPPROTO_IPV6, PACKET_OPTIONS.1, &mut messages)?;
        Ipv6RecvHopLimit.set(socket, &0)?;
        octets
    };
    let kind = if ipv4 {
        (libc::IPPROTO_IP, libc::IP_TTL)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT)
    };
    let messages = messages.get(..octets).unwrap_or_default();
    Ok(control_message(messages, kind).and_then(|ttl| u8::try_from(ttl).ok()))
}

/// Returns the number in the first control message if it is of this kind: `struct cmsghdr`, then
/// the number.
fn control_message(messages: &[u8], kind: (libc::c_int, libc::c_int)) -> Option<libc::c_int> {
    let number = |at: usize| {
        let octets = messages.get(at..at + 4)?.try_into().ok()?;
        Some(libc::c_int::from_ne_bytes(octets))
    };
    let header = size_of::<libc::cmsghdr>();
    let found = (number(header - 8)?, number(header - 4)?);
    if found == kind { number(header) } else { None }
}

/// Returns how many segments the kernel has dropped at a socket (`SO_MEMINFO`): modulo 2^32.
pub(crate) fn dropped_segments(socket: &impl AsFd) -> io::Result<u32> {
    /// `SK_MEMINFO_DROPS` of linux/sock_diag.h.
    const DROPS: usize = 8;
    let mut value = [0; 4 * (DROPS + 1)];
    let octets = option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut value)?;
    let drops = value.get(..octets).and_then(|value| value.last_chunk());
    Ok(drops.map_or(0, |drops| u32::from_ne_bytes(*drops)))
}

/// Reads a socket option of any length; returns its number of octets.
fn option(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut octets = libc::socklen_t::try_from(value.len()).unwrap_or_default();
    // SAFETY: the kernel writes at most `octets` octets to `value`, which has as many, and their
    // number to `octets`; the descriptor is open while it is borrowed.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut octets,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(octets).unwrap_or(0).min(value.len()))
}

/// Returns the minimum TTL of packets from at most `hops` away. RFC 5082 §3
pub(crate) const fn least_ttl(hops: u8) -> u8 {
    match hops {
        0 => u8::MAX,
        hops => u8::MAX - (hops - 1),
    }
}
