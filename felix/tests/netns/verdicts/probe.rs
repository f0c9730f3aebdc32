//! Packets with a number, and the state that connection tracking gives them.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

use rule_audit::packet::{protocol, state};

use crate::world::packet;

/// The octets before the number of a packet, at its end.
const MAGIC: [u8; 4] = *b"\xcaMBR";
/// The initiate tag of all SCTP packets.
const TAG: [u8; 4] = [1, 2, 3, 4];
/// Flags of TCP.
pub(super) const SYN: u8 = 2;
pub(super) const RESET: u8 = 4;
pub(super) const ACK: u8 = 16;
/// Chunks of SCTP.
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const COOKIE_ECHO: u8 = 10;
/// A chunk that opens no connection.
pub(super) const DATA: u8 = 0;
/// Datagram Congestion Control Protocol. The kernel tracks it by addresses alone, or by ports too.
pub(super) const DCCP: u8 = 33;
/// UDP-Lite.
pub(super) const UDP_LITE: u8 = 136;
/// Generic routing encapsulation.
pub(super) const GRE: u8 = 47;
/// A protocol for experiments (RFC 3692).
pub(super) const EXPERIMENT: u8 = 253;

/// The payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Udp,
    /// TCP with these flags.
    Tcp(u8),
    /// SCTP with this chunk.
    Sctp(u8),
    /// ICMP, or ICMPv6 in IPv6: type and code. The source port is the identifier.
    Icmp(u8, u8),
    /// DCCP or UDP-Lite: other protocols with ports.
    Ports(u8),
    /// Another protocol, without ports.
    Other(u8),
}

impl Kind {
    pub(super) const OPENING: [Self; 4] = [
        Self::Udp,
        Self::Tcp(SYN),
        Self::Sctp(INIT),
        Self::Other(EXPERIMENT),
    ];
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) kind: Kind,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
}

/// The ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tuple {
    protocol: u8,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
}

impl Tuple {
    /// Returns the tuple or its reverse: the one that is less.
    pub(super) fn canonical(self, reverse: Option<Self>) -> Self {
        reverse.map_or(self, |reverse| self.min(reverse))
    }
}

impl Probe {
    pub(super) fn protocol(&self) -> u8 {
        let number = match self.kind {
            Kind::Udp => protocol::UDP,
            Kind::Tcp(_) => protocol::TCP,
            Kind::Sctp(_) => protocol::SCTP,
            Kind::Icmp(..) if self.from.is_ipv4() => protocol::ICMP,
            Kind::Icmp(..) => protocol::ICMPV6,
            Kind::Other(number) | Kind::Ports(number) => number.into(),
        };
        u8::try_from(number).unwrap()
    }

    pub(super) fn has_ports(&self) -> bool {
        matches!(
            self.kind,
            Kind::Udp | Kind::Tcp(_) | Kind::Sctp(_) | Kind::Ports(_)
        )
    }

    pub(super) fn tuple(&self) -> Tuple {
        let ports = match self.kind {
            Kind::Icmp(kind, code) => (self.source_port, u16::from_be_bytes([kind, code])),
            Kind::Other(_) => (0, 0),
            _ => (self.source_port, self.destination_port),
        };
        Tuple {
            protocol: self.protocol(),
            from: (self.from, ports.0),
            to: (self.to, ports.1),
        }
    }

    /// Returns the answer to a packet that opens a connection.
    pub(super) fn answer(&self) -> Option<Self> {
        let kind = match self.kind {
            Kind::Udp | Kind::Other(_) | Kind::Ports(_) => self.kind,
            Kind::Tcp(SYN) => Kind::Tcp(SYN | ACK),
            Kind::Sctp(INIT) => Kind::Sctp(INIT_ACK),
            Kind::Icmp(kind, code) => Kind::Icmp(answering(kind)?, code),
            Kind::Tcp(_) | Kind::Sctp(_) => return None,
        };
        let is_icmp = matches!(kind, Kind::Icmp(..));
        let ports = match is_icmp {
            true => (self.source_port, self.destination_port),
            false => (self.destination_port, self.source_port),
        };
        Some(Self {
            from: self.to,
            to: self.from,
            kind,
            source_port: ports.0,
            destination_port: ports.1,
        })
    }

    /// Returns the packet that follows the answer.
    pub(super) fn later(&self) -> Self {
        let kind = match self.kind {
            Kind::Tcp(_) => Kind::Tcp(ACK),
            Kind::Sctp(_) => Kind::Sctp(COOKIE_ECHO),
            kind => kind,
        };
        Self { kind, ..*self }
    }

    /// Returns the packet with a number.
    pub(super) fn octets(&self, number: u32) -> Vec<u8> {
        let end = [MAGIC, number.to_be_bytes()].concat();
        let ports = [self.source_port, self.destination_port].map(u16::to_be_bytes);
        let ports = ports.concat();
        let payload = match self.kind {
            Kind::Udp => {
                let header = [&ports, &[0, 16, 0, 0][..], &end].concat();
                self.with_sum(header, 6)
            }
            Kind::Tcp(flags) => {
                let (sequence, answered) = numbers(flags);
                let header = [
                    &ports[..],
                    &sequence.to_be_bytes(),
                    &answered.to_be_bytes(),
                    &[5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0],
                    &end,
                ];
                self.with_sum(header.concat(), 16)
            }
            Kind::Sctp(chunk) => {
                let tag = if chunk == INIT { [0; 4] } else { TAG };
                // A parameter that receivers skip.
                let body = match chunk {
                    COOKIE_ECHO => [&[0; 4][..], &end].concat(),
                    _ => [
                        &TAG[..],
                        &[0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1],
                        &[0xc0, 1, 0, 12],
                        &end,
                    ]
                    .concat(),
                };
                let length = u16::try_from(4 + body.len()).unwrap().to_be_bytes();
                let mut made = [&ports, &tag[..], &[0; 4], &[chunk, 0], &length, &body].concat();
                let sum = crc32c(&made).to_le_bytes();
                made[8..12].copy_from_slice(&sum);
                made
            }
            Kind::Icmp(kind, code) => {
                let [high, low] = self.source_port.to_be_bytes();
                let header = [&[kind, code, 0, 0, high, low, 0, 1][..], &end].concat();
                self.with_sum(header, 2)
            }
            Kind::Ports(UDP_LITE) => {
                // The checksum covers all of it.
                let header = [&ports, &[0; 4][..], &end].concat();
                self.with_sum(header, 6)
            }
            // A request of DCCP with a long sequence number, of service 0.
            Kind::Ports(_) => {
                let header = [
                    &ports,
                    &[5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0][..],
                    &end,
                ];
                self.with_sum(header.concat(), 6)
            }
            // A header of version 0: the kernel translates no other one.
            Kind::Other(GRE) => [&[0, 0, 8, 0][..], &end].concat(),
            Kind::Other(_) => end,
        };
        packet::packet(self.from, self.to, self.protocol(), &payload)
    }

    fn with_sum(&self, mut octets: Vec<u8>, at: usize) -> Vec<u8> {
        let sum = match self.protocol() {
            1 => packet::checksum(&octets),
            number => packet::transport_checksum(self.from, self.to, number, &octets),
        };
        octets[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        octets
    }
}

impl Display for Probe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            from,
            to,
            kind,
            source_port,
            destination_port,
        } = self;
        write!(f, "{kind:?} {from} {source_port} > {to} {destination_port}")
    }
}

/// Returns sequence number and acknowledgment of a TCP segment: the first two packets of a connection
/// have eight octets of data each.
const fn numbers(flags: u8) -> (u32, u32) {
    match flags {
        SYN => (1, 0),
        ACK => (10, 109),
        _ => (100, 10),
    }
}

/// Returns the number of a received packet.
pub(super) fn number(octets: &[u8]) -> Option<u32> {
    let (rest, number) = octets.split_last_chunk::<4>()?;
    let (_, magic) = rest.split_last_chunk::<4>()?;
    (*magic == MAGIC).then(|| u32::from_be_bytes(*number))
}

/// Returns the type of the answer to an ICMP request, or of the request of an answer.
pub(super) const fn answering(kind: u8) -> Option<u8> {
    match kind {
        0 => Some(8),
        8 => Some(0),
        13 => Some(14),
        14 => Some(13),
        15 => Some(16),
        16 => Some(15),
        17 => Some(18),
        18 => Some(17),
        128 => Some(129),
        129 => Some(128),
        139 => Some(140),
        140 => Some(139),
        _ => None,
    }
}

/// Computes the checksum of SCTP (RFC 9260 appendix A).
fn crc32c(octets: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut sum = u32::MAX;
    for octet in octets {
        sum ^= u32::from(*octet);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (POLYNOMIAL * (sum & 1));
        }
    }
    !sum
}

/// The connections that the host tracks.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    /// Whether there was an answer.
    connections: BTreeMap<Tuple, bool>,
}

impl Tracked {
    /// Returns the state of a packet, and whether it is an answer.
    pub(super) fn state(&self, probe: &Probe) -> (u128, bool) {
        let own = self.connections.get(&probe.tuple());
        if let Some(is_answered) = own {
            let state = if *is_answered {
                state::ESTABLISHED
            } else {
                state::NEW
            };
            return (state, false);
        }
        if self.opened(probe).is_some() {
            return (state::ESTABLISHED, true);
        }
        let opens = match probe.kind {
            Kind::Udp | Kind::Other(_) | Kind::Ports(_) => true,
            // The kernel also tracks a connection from a later segment on.
            Kind::Tcp(flags) => matches!(flags, SYN | ACK),
            Kind::Sctp(chunk) => chunk == INIT,
            Kind::Icmp(kind, _) => match probe.from.is_ipv4() {
                true => matches!(kind, 8 | 13 | 15 | 17),
                false => matches!(kind, 128 | 139),
            },
        };
        (if opens { state::NEW } else { state::INVALID }, false)
    }

    /// Returns the connection that this packet answers.
    fn opened(&self, probe: &Probe) -> Option<Tuple> {
        let tuple = reverse(probe)?;
        self.connections.contains_key(&tuple).then_some(tuple)
    }

    /// Adds a packet that passes.
    pub(super) fn add(&mut self, probe: &Probe) {
        match (self.state(probe), self.opened(probe)) {
            ((state::NEW, false), _) => {
                self.connections.entry(probe.tuple()).or_default();
            }
            ((_, true), Some(tuple)) => {
                self.connections.insert(tuple, true);
            }
            _ => {}
        }
    }
}

/// Returns the tuple of packets in the other direction.
pub(super) fn reverse(probe: &Probe) -> Option<Tuple> {
    let own = probe.tuple();
    let (from, to) = match probe.kind {
        Kind::Icmp(kind, code) => {
            let answer = u16::from_be_bytes([answering(kind)?, code]);
            ((own.to.0, own.from.1), (own.from.0, answer))
        }
        _ => (own.to, own.from),
    };
    Some(Tuple { from, to, ..own })
}

#[test]
fn checksum_of_sctp_is_that_of_its_standard() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}
