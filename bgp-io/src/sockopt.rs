//! Socket options that no crate has: TCP-MD5 (RFC 2385) and GTSM (RFC 5082).
//!
//! The only module that may hold `unsafe` code: that of the macros which call `setsockopt`.
#![allow(unsafe_code)]

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::sys::socket::{GetSockOpt, SetSockOpt};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

use crate::limits::MD5_KEY_OCTETS_MAX;

sockopt_impl!(
    /// Drops packets that have travelled further (`ip(7)`).
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
        let (family, at) = match address {
            IpAddr::V4(_) => (libc::AF_INET, 4),  // sin_addr
            IpAddr::V6(_) => (libc::AF_INET6, 8), // sin6_addr
        };
        let family = u16::try_from(family).unwrap_or_default();
        octets[..2].copy_from_slice(&family.to_ne_bytes());
        match address {
            IpAddr::V4(address) => octets[at..at + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => octets[at..at + 16].copy_from_slice(&address.octets()),
        }
        Self(octets)
    }
}

/// Sets the TCP-MD5 key for the peers in `address`/`prefix_len` on a socket, before it connects or on
/// the listening one; an empty key removes it.
///
/// # Errors
///
/// `EINVAL` for a key that is too long, else what the kernel says.
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
        // To remove what is not there is no error.
        Err(nix::errno::Errno::ENOENT) if key.is_empty() => Ok(()),
        other => other.map_err(io::Error::from),
    }
}

/// Drops packets of peers that are more than `hops` away. RFC 5082 §3
pub(crate) fn set_ttl_security(socket: &impl AsFd, ipv4: bool, hops: u8) -> io::Result<()> {
    set_least_ttl(socket, ipv4, 256 - libc::c_int::from(hops.max(1)))
}

/// Takes packets from any distance.
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
