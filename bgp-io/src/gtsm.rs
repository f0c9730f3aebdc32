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
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use bgp_speaker::{HandshakeFailure, PeerConfig, SpeakerConfig};
use socket2::{SockFilter, SockRef, Socket};
use tokio::net::TcpStream;

use crate::PeerScope;
use crate::limits::FILTER_INSTRUCTIONS_MAX;
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
    /// Whether connections that are older than the filter may wait.
    pub(crate) fresh: bool,
}

impl Guard {
    /// Sets the filter of a listening socket for a configuration.
    pub(crate) fn set(&mut self, socket: &impl AsFd, ipv4: bool, wanted: &[Source]) {
        let of_socket = |source: &&Source| source.address.is_ipv4() == ipv4;
        let wanted: Vec<Source> = wanted.iter().filter(of_socket).copied().collect();
        if wanted == self.wanted && (self.whole || wanted.is_empty()) {
            return;
        }
        // Without it only the segment that completes the handshake is checked.
        let _ = save_syns(socket, !wanted.is_empty());
        let socket = SockRef::from(socket);
        if self.attached || wanted.is_empty() {
            // An error means that there was no filter.
            let _ = socket.detach_filter();
        }
        let attach = |program: Vec<SockFilter>| {
            program.len() <= FILTER_INSTRUCTIONS_MAX && socket.attach_filter(&program).is_ok()
        };
        self.whole = !wanted.is_empty()
            && (attach(program(&wanted, ipv4)) || attach(program(&coarse(&wanted), ipv4)));
        self.attached = self.whole;
        self.fresh = !wanted.is_empty();
        self.wanted = wanted;
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

/// Addresses, and the minimum TTL of data segments from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    address: IpAddr,
    prefix_len: u8,
    /// 0 without GTSM.
    least: u8,
}

impl Source {
    pub(crate) fn new(scope: PeerScope, ttl_security_hops: Option<u8>) -> Self {
        Self {
            address: scope.address,
            prefix_len: scope.prefix_len,
            least: ttl_security_hops.map_or(0, least_ttl),
        }
    }
}

/// Returns the sources to filter on the listening sockets of a speaker.
pub(crate) fn sources(config: &SpeakerConfig) -> Vec<Source> {
    let source = |scope, peer: &PeerConfig| Source::new(scope, peer.ttl_security_hops);
    let neighbors = config.peers.iter();
    let neighbors = neighbors.map(|peer| source(PeerScope::neighbor(peer.remote), peer));
    let ranges = config.ranges.iter();
    let ranges = ranges.map(|range| source(PeerScope::range(range.prefix), &range.template));
    sources_of(neighbors.collect(), ranges.collect())
}

/// Returns the sources to filter on listening sockets, the most specific first.
pub(crate) fn sources_of(neighbors: Vec<Source>, mut ranges: Vec<Source>) -> Vec<Source> {
    ranges.sort_by_key(|range| std::cmp::Reverse(range.prefix_len));
    let mut all = neighbors;
    all.extend(ranges);
    // A source outside all ranges with GTSM needs no exception.
    let last = |source: &Source| source.least > 0 && !is_host(source);
    let ends = all.iter().rposition(last).map_or(0, |at| at + 1);
    let mut at = 0;
    all.retain(|source| {
        at += 1;
        at <= ends || source.least > 0
    });
    all
}

fn is_host(source: &Source) -> bool {
    source.prefix_len == if source.address.is_ipv4() { 32 } else { 128 }
}

/// Returns one source for all, with the strictest TTL: data segments of neighbors without GTSM are
/// dropped, too, until their connection is accepted, and are sent again.
fn coarse(wanted: &[Source]) -> Vec<Source> {
    let strictest = wanted.iter().max_by_key(|source| source.least).copied();
    let all = strictest.map(|source| Source {
        prefix_len: 0,
        ..source
    });
    all.into_iter().collect()
}

/// Instructions of classic BPF (`linux/bpf_common.h`), and where the IP header is
/// (`SKF_NET_OFF`). A TCP socket's filter sees the segment from its TCP header on.
mod code {
    pub(super) const LOAD_WORD: u16 = 0x20;
    pub(super) const LOAD_OCTET: u16 = 0x30;
    pub(super) const LOAD_LENGTH: u16 = 0x80;
    pub(super) const AND: u16 = 0x54;
    pub(super) const SHIFT_RIGHT: u16 = 0x74;
    pub(super) const COPY_TO_X: u16 = 0x07;
    pub(super) const JUMP_EQUAL: u16 = 0x15;
    pub(super) const JUMP_GREATER_X: u16 = 0x2d;
    pub(super) const JUMP_NOT_LESS: u16 = 0x35;
    pub(super) const JUMP_ANY_BIT: u16 = 0x45;
    pub(super) const RETURN: u16 = 0x06;
    pub(super) const IP_HEADER: u32 = 0xfff0_0000;
}

const PASS: SockFilter = SockFilter::new(code::RETURN, 0, 0, u32::MAX);
const DROP: SockFilter = SockFilter::new(code::RETURN, 0, 0, 0);

/// Returns the filter: the first source that covers the sender decides.
fn program(sources: &[Source], ipv4: bool) -> Vec<SockFilter> {
    let mut program = bare_segments_pass();
    for source in sources {
        program.extend(block(source, ipv4));
    }
    program.push(PASS);
    program
}

/// SYNs and acknowledgments without data, FIN and RST pass.
fn bare_segments_pass() -> Vec<SockFilter> {
    const FLAGS: u32 = 13;
    const FIN_OR_RST: u32 = 0b101;
    const HEADER_WORDS: u32 = 12;
    let step = |code, k| SockFilter::new(code, 0, 0, k);
    vec![
        step(code::LOAD_OCTET, FLAGS),
        SockFilter::new(code::JUMP_ANY_BIT, 7, 0, FIN_OR_RST),
        step(code::LOAD_OCTET, HEADER_WORDS),
        step(code::AND, 0xf0),
        step(code::SHIFT_RIGHT, 2),
        step(code::COPY_TO_X, 0),
        step(code::LOAD_LENGTH, 0),
        SockFilter::new(code::JUMP_GREATER_X, 1, 0, 0),
        PASS,
    ]
}

/// Returns the instructions for segments of one source; other segments continue behind the block.
fn block(source: &Source, ipv4: bool) -> Vec<SockFilter> {
    let (ttl_at, address_at) = if ipv4 { (8, 12) } else { (7, 8) };
    let verdict = match source.least {
        0 => vec![PASS],
        least => vec![
            SockFilter::new(code::LOAD_OCTET, 0, 0, code::IP_HEADER + ttl_at),
            SockFilter::new(code::JUMP_NOT_LESS, 0, 1, least.into()),
            PASS,
            DROP,
        ],
    };
    let octets = match source.address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let words = octets.chunks_exact(4).zip((0..).step_by(4));
    let compared: Vec<(u32, u32, u32)> = words
        .filter_map(|(word, at)| {
            let bits = u32::from(source.prefix_len).saturating_sub(8 * at).min(32);
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            let word = word
                .iter()
                .fold(0, |word, &octet| word << 8 | u32::from(octet));
            (bits > 0).then_some((address_at + at, mask, word & mask))
        })
        .collect();
    let mut behind = verdict;
    // From the end: each comparison jumps over the instructions behind it.
    for (at, mask, word) in compared.into_iter().rev() {
        let over = u8::try_from(behind.len()).unwrap_or(u8::MAX);
        let mut steps = vec![
            SockFilter::new(code::LOAD_WORD, 0, 0, code::IP_HEADER + at),
            SockFilter::new(code::AND, 0, 0, mask),
            SockFilter::new(code::JUMP_EQUAL, 0, over, word),
        ];
        steps.append(&mut behind);
        behind = steps;
    }
    behind
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
