//! Limits of files, and of what is kept of connections.

/// Longest packet that is read, in octets: the longest that libpcap captures. A greater length means
/// that the file is damaged.
pub const PACKET_OCTETS_MAX: usize = 262_144;

/// Longest pcapng block with a packet or an interface, in octets: a packet with its options.
pub const BLOCK_OCTETS_MAX: usize = PACKET_OCTETS_MAX + 65_536;

/// Interfaces of a pcapng section.
pub const INTERFACES_MAX: usize = 4096;

/// Directions of TCP connections that are followed at once. Another one ends the one that has been
/// without a segment for longest.
pub const DIRECTIONS_MAX: usize = 1024;

/// Segments of a direction that wait for missing ones. With more, the missing ones count as lost.
pub const WAITING_SEGMENTS_MAX: usize = 256;

/// Octets of segments of all directions that wait for missing ones. A direction that exceeds it
/// counts its missing segments as lost.
pub const WAITING_OCTETS_MAX: usize = 32 << 20;
