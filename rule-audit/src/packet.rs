//! Packets as the values of the fields that rules can match.

use std::fmt::{self, Display, Formatter};

pub use crate::family::Family;
use crate::ranges::address;

/// A field of a packet, or a value that the kernel has for it. The order is that of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The state of its connection: [`STATES`].
    State,
    /// Its direction in the connection: 0 original, 1 reply.
    Direction,
    /// Whether the source is an address of the host.
    SourceLocal,
    /// Whether a policy accepted it at an earlier hook: the bit [`ACCEPTED`] of its mark.
    Marked,
    /// Whether its destination was translated.
    Translated,
    /// Whether its connection was cut: the bit [`CUT`] of the mark of the connection.
    Cut,
    /// The user of the socket that sends it, or [`NO_USER`].
    User,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The source address of the first packet of its connection.
    OriginalSource,
    /// The source address of the first reply of its connection.
    ReplySource,
    /// The transport protocol.
    Protocol,
    /// The source port.
    SourcePort,
    /// The destination port.
    DestinationPort,
    /// The type of an ICMP or ICMPv6 message.
    IcmpType,
    /// Its code.
    IcmpCode,
}

impl Field {
    /// All fields, in the order of a comparison.
    pub const ALL: [Self; 16] = [
        Self::State,
        Self::Direction,
        Self::SourceLocal,
        Self::Marked,
        Self::Translated,
        Self::Cut,
        Self::User,
        Self::Source,
        Self::Destination,
        Self::OriginalSource,
        Self::ReplySource,
        Self::Protocol,
        Self::SourcePort,
        Self::DestinationPort,
        Self::IcmpType,
        Self::IcmpCode,
    ];

    /// Returns the bit of the field in a mask.
    pub(crate) const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Returns whether the values are addresses.
    pub const fn is_address(self) -> bool {
        matches!(
            self,
            Self::Source | Self::Destination | Self::OriginalSource | Self::ReplySource
        )
    }

    /// Returns the largest value.
    pub const fn last(self, family: Family) -> u128 {
        match self {
            Self::State => STATES.len() as u128 - 1,
            Self::Direction | Self::SourceLocal | Self::Marked | Self::Translated | Self::Cut => 1,
            Self::Source | Self::Destination | Self::OriginalSource | Self::ReplySource => {
                family.last()
            }
            Self::User => NO_USER,
            Self::Protocol | Self::IcmpType | Self::IcmpCode => u8::MAX as u128,
            Self::SourcePort | Self::DestinationPort => u16::MAX as u128,
        }
    }
}

/// The bit of the mark of a packet that a policy accepted at an earlier hook.
pub const ACCEPTED: u64 = 0x1_0000;

/// The bit of the mark of a connection that was cut.
pub const CUT: u64 = 0x4000_0000;

/// The user of a packet without a socket, or of a socket without an owner. A match of the user never
/// applies to it, whatever it compares. No user has this id.
pub const NO_USER: u128 = u32::MAX as u128;

/// The states of a connection, with the kernel's bit. A packet has one of them.
pub const STATES: [(&str, u64); 5] = [
    ("new", 8),
    ("established", 2),
    ("related", 4),
    ("invalid", 1),
    ("untracked", 64),
];

/// The places of states in [`STATES`].
pub mod state {
    /// The first packet of a connection.
    pub const NEW: u128 = 0;
    /// A packet of a connection with packets in both directions.
    pub const ESTABLISHED: u128 = 1;
    /// A packet about a connection, such as an ICMP error.
    pub const RELATED: u128 = 2;
    /// A packet of no connection.
    pub const INVALID: u128 = 3;
    /// A packet without connection tracking.
    pub const UNTRACKED: u128 = 4;
}

/// The numbers of protocols.
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u128 = 1;
    /// TCP.
    pub const TCP: u128 = 6;
    /// UDP.
    pub const UDP: u128 = 17;
    /// ICMPv6.
    pub const ICMPV6: u128 = 58;
    /// SCTP.
    pub const SCTP: u128 = 132;
    /// The protocols that have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
    pub const WITH_PORTS: [u128; 5] = [TCP, UDP, 33, SCTP, 136];
}

/// A packet: one value for each field. Fields without a meaning for its protocol are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// The version of IP.
    pub family: Family,
    values: [u128; Field::ALL.len()],
}

impl Packet {
    /// Returns a packet of a new connection with zero in every other field.
    pub const fn new(family: Family) -> Self {
        Self {
            family,
            values: [0; Field::ALL.len()],
        }
    }

    /// Returns the same packet with another value of a field.
    #[must_use]
    pub fn with(mut self, field: Field, value: u128) -> Self {
        if let Some(place) = self.values.get_mut(field as usize) {
            *place = value;
        }
        self
    }

    /// Returns the value of a field.
    pub fn get(&self, field: Field) -> u128 {
        self.values.get(field as usize).copied().unwrap_or_default()
    }
}

impl Display for Packet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let at = |field| address(self.family, self.get(field));
        let (source, destination) = (at(Field::Source), at(Field::Destination));
        let number = self.get(Field::Protocol);
        let state = usize::try_from(self.get(Field::State)).unwrap_or_default();
        let state = STATES.get(state).map_or("new", |(name, _)| name);
        match number {
            protocol::ICMP | protocol::ICMPV6 => {
                let name = if number == protocol::ICMP {
                    "ICMP"
                } else {
                    "ICMPv6"
                };
                let (kind, code) = (self.get(Field::IcmpType), self.get(Field::IcmpCode));
                write!(f, "{name} type {kind} code {code} {source} > {destination}")?;
            }
            _ if protocol::WITH_PORTS.contains(&number) => {
                let name = match number {
                    protocol::TCP => "TCP".to_owned(),
                    protocol::UDP => "UDP".to_owned(),
                    protocol::SCTP => "SCTP".to_owned(),
                    other => format!("protocol {other}"),
                };
                let ports = (
                    self.get(Field::SourcePort),
                    self.get(Field::DestinationPort),
                );
                write!(
                    f,
                    "{name} {source} port {} > {destination} port {}",
                    ports.0, ports.1
                )?;
            }
            _ => write!(f, "protocol {number} {source} > {destination}")?,
        }
        write!(f, ", {state}")?;
        if self.get(Field::Direction) == 1 {
            f.write_str(", reply direction")?;
        }
        for (field, text) in [
            (Field::SourceLocal, ", source is the host"),
            (Field::Marked, ", accepted before"),
            (Field::Translated, ", translated destination"),
            (Field::Cut, ", cut connection"),
        ] {
            if self.get(field) == 1 {
                f.write_str(text)?;
            }
        }
        match self.get(Field::User) {
            0 => {}
            NO_USER => f.write_str(", without a user")?,
            user => write!(f, ", user {user}")?,
        }
        Ok(())
    }
}
