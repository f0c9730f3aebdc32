//! GTSM (RFC 5082) for incoming connections.
//!
//! A listening socket serves neighbors at different distances and neighbors without GTSM, so it
//! cannot have one minimum TTL. Three mechanisms together leave no gap instead:
//!
//! 1. The kernel keeps the SYN (`TCP_SAVE_SYN`): its TTL is checked before the connection reaches
//!    the speaker. A connection that was made by a SYN cookie has no SYN; there the TTL is that of
//!    the segment that completed the handshake.
//! 2. A packet filter on the listening socket, which accepted sockets inherit, drops data segments
//!    with a low TTL from addresses with GTSM. So no data that arrives before the connection is
//!    accepted is read unchecked. SYNs and bare acknowledgments pass: a connection from too far
//!    away is completed, rejected and reported, rather than lost without a trace.
//! 3. The accepted socket gets its own minimum TTL (`IP_MINTTL`); then it no longer needs the
//!    filter.
//!
//! Without the filter, octets that arrived before the minimum TTL was set close the connection.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use bgp_speaker::HandshakeFailure;
use socket2::{SockFilter, SockRef, Socket};
use tokio::net::TcpStream;

use crate::filter::{PASS, Source, coarse, program, shortened, syns_only_from};
use crate::limits::{FILTER_INSTRUCTIONS_MAX, SYN_SOURCES_MAX};
use crate::sockopt::{handshake_ttl, least_ttl, save_syns, saved_syn_ttl, set_ttl_security};

/// The TTL of senders with GTSM (RFC 5082 §3).
const TTL_MAX: u32 = 255;

/// The packet filter of a listening socket, as far as the kernel accepted it.
#[derive(Default)]
pub(crate) struct Guard {
    /// The configured sources.
    wanted: Vec<Source>,
    /// Whether the attached filter drops at least the packets that the configuration excludes.
    whole: bool,
    /// Whether any filter is attached.
    attached: bool,
    /// Whether it drops the SYNs of strangers.
    refuses_strangers: bool,
    /// Whether connections that are older than the filter may wait.
    pub(crate) fresh: bool,
}

impl Guard {
    /// Sets the filter of a listening socket for a configuration; strangers are admitted then.
    pub(crate) fn set(&mut self, socket: &impl AsFd, ipv4: bool, wanted: &[Source]) {
        self.admit_strangers(socket);
        let of_socket = |source: &&Source| source.address.is_ipv4() == ipv4;
        let wanted: Vec<Source> = wanted.iter().filter(of_socket).copied().collect();
        if wanted == self.wanted && (self.whole || wanted.is_empty()) {
            return;
        }
        // Without it only the segment that completes the handshake is checked.
        let _ = save_syns(socket, !wanted.is_empty());
        self.fresh = !wanted.is_empty();
        self.wanted = wanted;
        self.attach(&SockRef::from(socket), None);
    }

    /// Drops SYNs from all addresses that are no neighbor's. Returns whether the kernel does so.
    pub(crate) fn refuse_strangers(
        &mut self,
        socket: &impl AsFd,
        ipv4: bool,
        neighbors: &[Source],
    ) -> bool {
        // The memory that `net.core.optmem_max` leaves may be too small for all prefixes.
        let mut most = SYN_SOURCES_MAX;
        while most > 0 && !self.refuses_strangers {
            let sources = shortened(neighbors, ipv4, most);
            let neighbors = Neighbors {
                sources: &sources,
                ipv4,
            };
            self.refuses_strangers = self.attach(&SockRef::from(socket), Some(neighbors));
            most /= 2;
        }
        self.refuses_strangers
    }

    /// Ends what [`refuse_strangers`](Self::refuse_strangers) began.
    pub(crate) fn admit_strangers(&mut self, socket: &impl AsFd) {
        if std::mem::take(&mut self.refuses_strangers) {
            self.attach(&SockRef::from(socket), None);
        }
    }

    /// Attaches the filter; returns whether it is attached. It replaces the one before it at once, unless
    /// the kernel has no memory for both.
    fn attach(&mut self, socket: &Socket, neighbors: Option<Neighbors<'_>>) -> bool {
        let ipv4 = self.wanted.first().is_none_or(|one| one.address.is_ipv4());
        let attach = |mut rest: Vec<SockFilter>| {
            let syns = neighbors.map(|known| syns_only_from(known.sources, known.ipv4));
            let mut program = syns.unwrap_or_default();
            program.append(&mut rest);
            program.len() <= FILTER_INSTRUCTIONS_MAX && socket.attach_filter(&program).is_ok()
        };
        let whole = || match (self.wanted.is_empty(), neighbors) {
            (true, None) => false,
            (true, Some(_)) => attach(vec![PASS]),
            (false, _) => attach(program(&self.wanted, ipv4)),
        };
        let mut attached = whole();
        if !attached && self.attached {
            // An error means that there was no filter.
            let _ = socket.detach_filter();
            // Segments that arrive before the next one is attached are not filtered.
            self.fresh |= !self.wanted.is_empty();
            attached = whole();
        }
        if !attached && !self.wanted.is_empty() {
            attached = attach(program(&coarse(&self.wanted), ipv4));
        }
        self.whole = attached && !self.wanted.is_empty();
        self.attached = attached;
        if !attached && neighbors.is_some() {
            self.attach(socket, None);
        }
        attached
    }

    /// Returns whether all octets that wait on a connection have passed a filter.
    fn vouches(&self) -> bool {
        self.whole && !self.fresh
    }

    /// Checks a connection of an address with GTSM, and secures it from here on.
    pub(crate) fn admit(
        &self,
        stream: &TcpStream,
        remote: SocketAddr,
        hops: u8,
    ) -> Result<(), Distance> {
        let ipv4 = remote.is_ipv4();
        let least = least_ttl(hops);
        // The SYN is read in any case, which frees it in the kernel.
        let syn = saved_syn_ttl(stream, ipv4).ok().flatten();
        let acknowledged = handshake_ttl(stream, ipv4).ok().flatten();
        match syn.into_iter().chain(acknowledged).min() {
            None => return Err(Distance::Unknown),
            Some(ttl) if ttl < least => return Err(Distance::TooFar { ttl, least }),
            Some(_) => {}
        }
        secure_ttl(stream, ipv4, hops).map_err(|_| Distance::Unknown)?;
        if !self.vouches() && has_octets(stream) {
            return Err(Distance::Early);
        }
        Ok(())
    }
}

/// The prefixes that may send SYNs to a socket of a family.
#[derive(Clone, Copy)]
struct Neighbors<'n> {
    sources: &'n [Source],
    ipv4: bool,
}

/// Removes the inherited filter from an accepted connection, which has its own minimum TTL now. The
/// connection may be older than a change of the configuration, and so have a filter although the
/// listening socket has none.
pub(crate) fn release(stream: &TcpStream) {
    // An error means that there was no filter.
    let _ = SockRef::from(stream).detach_filter();
}

/// Returns whether octets wait to be read.
fn has_octets(stream: &TcpStream) -> bool {
    let peeked = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
    peeked.map_or_else(
        |error| error.kind() != io::ErrorKind::WouldBlock,
        |octets| octets > 0,
    )
}

/// Why a connection fails GTSM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distance {
    /// Its TTL is too low.
    TooFar {
        /// The TTL, or hop limit, of the SYN or of the segment that completed the handshake.
        ttl: u8,
        /// The minimum TTL by `ttl_security`.
        least: u8,
    },
    /// The kernel has no TTL of the connection.
    Unknown,
    /// Octets had arrived before their TTL was checked.
    Early,
}

impl Distance {
    /// Returns the same for the speaker's counters.
    pub(crate) const fn failure(self) -> HandshakeFailure {
        match self {
            Self::TooFar { ttl, least } => HandshakeFailure::TtlSecurity {
                ttl: Some(ttl),
                least,
            },
            Self::Unknown | Self::Early => HandshakeFailure::TtlSecurity {
                ttl: None,
                least: 0,
            },
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFar { ttl, least } => {
                write!(f, "TTL {ttl}, ttl_security admits {least} and more")
            }
            Self::Unknown => f.write_str("the kernel did not record its TTL"),
            Self::Early => f.write_str("data arrived before its TTL could be checked"),
        }
    }
}

/// Enables GTSM on a socket: it sends with the greatest TTL and accepts packets from at most `hops`
/// away. RFC 5082 §3
pub(crate) fn secure_ttl(socket: &impl AsFd, ipv4: bool, hops: u8) -> io::Result<()> {
    set_ttl_max(&SockRef::from(socket), ipv4)?;
    set_ttl_security(socket, ipv4, hops)
}

pub(crate) fn set_ttl_max(socket: &Socket, ipv4: bool) -> io::Result<()> {
    if ipv4 {
        socket.set_ttl_v4(TTL_MAX)
    } else {
        socket.set_unicast_hops_v6(TTL_MAX)
    }
}
