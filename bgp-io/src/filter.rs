//! The packet filter of a listening socket, in classic BPF: the minimum TTL of data segments for
//! GTSM, and, during a flood of connections, the addresses whose SYNs pass.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bgp_speaker::bgp_proto::Prefix;
use bgp_speaker::{PeerConfig, SpeakerConfig};
use socket2::SockFilter;

use crate::PeerScope;
use crate::sockopt::least_ttl;

/// Addresses, and the minimum TTL of data segments from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) address: IpAddr,
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
    let (neighbors, ranges) = neighbors_and_ranges(config);
    sources_of(neighbors, ranges)
}

/// Returns all sources that are neighbors of a speaker or belong to a range.
pub(crate) fn all_sources(config: &SpeakerConfig) -> Vec<Source> {
    let (mut all, ranges) = neighbors_and_ranges(config);
    all.extend(ranges);
    all
}

fn neighbors_and_ranges(config: &SpeakerConfig) -> (Vec<Source>, Vec<Source>) {
    let source = |scope, peer: &PeerConfig| Source::new(scope, peer.ttl_security_hops);
    let neighbors = config.peers.iter();
    let neighbors = neighbors.map(|peer| source(PeerScope::neighbor(peer.remote), peer));
    let ranges = config.ranges.iter();
    let ranges = ranges.map(|range| source(PeerScope::range(range.prefix), &range.template));
    (neighbors.collect(), ranges.collect())
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
pub(crate) fn coarse(wanted: &[Source]) -> Vec<Source> {
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
    pub(super) const JUMP: u16 = 0x05;
    pub(super) const RETURN: u16 = 0x06;
    pub(super) const IP_HEADER: u32 = 0xfff0_0000;
}

pub(crate) const PASS: SockFilter = SockFilter::new(code::RETURN, 0, 0, u32::MAX);
const DROP: SockFilter = SockFilter::new(code::RETURN, 0, 0, 0);

/// Returns the filter: the first source that covers the sender decides.
pub(crate) fn program(sources: &[Source], ipv4: bool) -> Vec<SockFilter> {
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

/// Returns instructions that drop SYNs except from these prefixes; other segments continue behind
/// them.
pub(crate) fn syns_only_from(sources: &[Source], ipv4: bool) -> Vec<SockFilter> {
    const FLAGS: u32 = 13;
    const SYN: u32 = 0b10;
    const SYN_OR_ACK: u32 = 0b1_0010;
    let mut behind: Vec<SockFilter> = sources
        .iter()
        .flat_map(|source| block(source, ipv4))
        .collect();
    behind.push(DROP);
    let over = u32::try_from(behind.len()).unwrap_or(u32::MAX);
    let mut program = vec![
        SockFilter::new(code::LOAD_OCTET, 0, 0, FLAGS),
        SockFilter::new(code::AND, 0, 0, SYN_OR_ACK),
        SockFilter::new(code::JUMP_EQUAL, 1, 0, SYN),
        SockFilter::new(code::JUMP, 0, 0, over),
    ];
    program.append(&mut behind);
    program
}

/// Returns at most so many prefixes without a minimum TTL that cover the sources of a family. With
/// more sources, shorter prefixes cover other addresses too.
pub(crate) fn shortened(sources: &[Source], ipv4: bool, most: usize) -> Vec<Source> {
    let mut least = if ipv4 { 32 } else { 128 };
    loop {
        let of_family = sources.iter().filter(|one| one.address.is_ipv4() == ipv4);
        let prefixes = of_family
            .filter_map(|source| Prefix::new(source.address, source.prefix_len.min(least)));
        let prefixes: BTreeSet<Prefix> = prefixes.collect();
        if prefixes.len() <= most.max(1) {
            let scopes = prefixes.into_iter().map(PeerScope::range);
            return scopes.map(|scope| Source::new(scope, None)).collect();
        }
        least -= 1;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SYN_SOURCES_MAX;

    fn hosts(first: IpAddr, count: u32) -> Vec<Source> {
        let hosts = (0..count).map(|number| match first {
            IpAddr::V4(first) => IpAddr::V4((first.to_bits() + number).into()),
            IpAddr::V6(first) => IpAddr::V6((first.to_bits() + u128::from(number)).into()),
        });
        hosts
            .map(|host| Source::new(PeerScope::neighbor(host), None))
            .collect()
    }

    #[test]
    fn many_neighbors_are_covered_by_few_prefixes() {
        for (first, ipv4) in [("10.0.0.1", true), ("fd00::1", false)] {
            let all = hosts(first.parse().unwrap(), 1000);
            let prefixes = shortened(&all, ipv4, SYN_SOURCES_MAX);
            assert!(prefixes.len() <= SYN_SOURCES_MAX, "{}", prefixes.len());
            for source in &all {
                let covers = |prefix: &&Source| {
                    let scope = PeerScope {
                        address: prefix.address,
                        prefix_len: prefix.prefix_len,
                    };
                    scope.covers(source.address)
                };
                assert!(prefixes.iter().any(|prefix| covers(&prefix)), "{source:?}");
            }
            // The next addresses in use by others are not.
            let shortest = prefixes.iter().map(|prefix| prefix.prefix_len).min();
            let bits = if ipv4 { 32 } else { 128 };
            assert_eq!(shortest, Some(bits - 2));
        }
    }

    #[test]
    fn filter_with_all_parts_fits_into_the_kernels_limit() {
        let neighbors = hosts("fd00::1".parse().unwrap(), 256);
        let far = PeerScope {
            address: "fd00::".parse().unwrap(),
            prefix_len: 64,
        };
        let secured = [Source::new(far, Some(1))];
        let octets = syns_only_from(&neighbors, false).len() + program(&secured, false).len();
        assert!(octets <= crate::limits::FILTER_INSTRUCTIONS_MAX, "{octets}");
    }

    #[test]
    fn neighbors_of_another_family_do_not_count() {
        let ipv4 = hosts("10.0.0.1".parse().unwrap(), 3);
        assert_eq!(shortened(&ipv4, false, 9), []);
        assert_eq!(shortened(&ipv4, true, 9), ipv4);
    }
}
