//! pcap and pcapng files.

use std::io::{self, Read};

use thiserror::Error;

use crate::cursor::Cursor;
use crate::limits::{BLOCK_OCTETS_MAX, INTERFACES_MAX, PACKET_OCTETS_MAX};

/// Type of a pcapng section header block, the same in either byte order.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The first field of a pcapng section header.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// The first field of a pcap file with times in microseconds, and in nanoseconds.
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Octets of a pcapng block around its body.
const BLOCK_FRAME_OCTETS: usize = 12;

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Octet offset of its record in the file.
    pub at: u64,
    /// Seconds since 1970, and microseconds. Simple pcapng packets have no time.
    pub time: Option<(u32, u32)>,
    /// Link type: the number of the format of its first header.
    pub link: u16,
    /// The captured octets.
    pub octets: Vec<u8>,
}

/// Why no more packets follow.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The first octets are those of no supported format.
    #[error("neither a pcap nor a pcapng file")]
    NoCapture,
    /// The file ends within the record at this octet offset.
    #[error("file truncated within the record at octet {at}")]
    Truncated {
        /// Octet offset of the record.
        at: u64,
    },
    /// The record at this octet offset has an impossible length or field.
    #[error("bad {field} in the record at octet {at}: the file is damaged")]
    Damaged {
        /// Octet offset of the record.
        at: u64,
        /// The field.
        field: &'static str,
    },
    /// Reading or decompressing failed within the record at this octet offset.
    #[error("record at octet {at}: {error}")]
    Io {
        /// Octet offset of the record.
        at: u64,
        /// The error.
        #[source]
        error: io::Error,
    },
}

impl ReadError {
    /// Returns the octet offset of the record that could not be read.
    #[must_use]
    pub const fn at(&self) -> u64 {
        match self {
            Self::NoCapture => 0,
            Self::Truncated { at } | Self::Damaged { at, .. } | Self::Io { at, .. } => *at,
        }
    }
}

/// The format of a file.
#[derive(Clone, Copy, Debug)]
enum Format {
    /// Records of one link type.
    Pcap { big: bool, nano: bool, link: u16 },
    /// Blocks, in the byte order of the current section.
    PcapNg { big: bool },
}

/// An interface of a pcapng section.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u16,
    /// Units of time in a second.
    units: u128,
    /// Seconds to add to its times.
    offset_s: i64,
}

/// Reads packets from a stream. After an error no more packets follow.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    /// Offset of the current record, and of the next octet.
    record: u64,
    at: u64,
    format: Option<Format>,
    interfaces: Vec<Interface>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Creates a reader of `source`, which must return plain octets and should be buffered.
    pub const fn new(source: R) -> Self {
        Self {
            source,
            record: 0,
            at: 0,
            format: None,
            interfaces: Vec::new(),
            ended: false,
        }
    }

    fn packet(&mut self) -> Result<Option<Packet>, ReadError> {
        loop {
            self.record = self.at;
            let found = match self.format {
                None => match self.file_header()? {
                    true => None,
                    false => return Ok(None),
                },
                Some(Format::Pcap { big, nano, link }) => {
                    return self.pcap_record(big, nano, link);
                }
                Some(Format::PcapNg { big }) => match self.block(big)? {
                    Some(found) => found,
                    None => return Ok(None),
                },
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Reads the header of a pcap file, or the first section header of a pcapng file. `false` if the
    /// file is empty.
    fn file_header(&mut self) -> Result<bool, ReadError> {
        let magic = self.octets(4)?;
        if magic.is_empty() {
            return Ok(false);
        }
        let first = magic.first_chunk::<4>().ok_or(ReadError::NoCapture)?;
        if *first == SECTION {
            self.section()?;
            return Ok(true);
        }
        let known = [MICROSECONDS, NANOSECONDS];
        let (big, little) = (u32::from_be_bytes(*first), u32::from_le_bytes(*first));
        let (big, magic) = match (known.contains(&big), known.contains(&little)) {
            (true, _) => (true, big),
            (_, true) => (false, little),
            _ => return Err(ReadError::NoCapture),
        };
        // Version, time zone, accuracy, longest packet: of no use. The upper bits of the link type
        // are about frame check sequences.
        let rest = self.whole(20)?;
        let link = Cursor::new(rest.get(16..).unwrap_or_default(), big).u32();
        let link = link.unwrap_or_default() as u16;
        let nano = magic == NANOSECONDS;
        self.format = Some(Format::Pcap { big, nano, link });
        Ok(true)
    }

    fn pcap_record(
        &mut self,
        big: bool,
        nano: bool,
        link: u16,
    ) -> Result<Option<Packet>, ReadError> {
        let header = self.octets(16)?;
        if header.is_empty() {
            return Ok(None);
        }
        let mut fields = Cursor::new(&header, big);
        let (Some(seconds), Some(fraction), Some(len), Some(_)) =
            (fields.u32(), fields.u32(), fields.u32(), fields.u32())
        else {
            return Err(self.cut());
        };
        let len = len as usize;
        if len > PACKET_OCTETS_MAX {
            return Err(self.damaged("length"));
        }
        let microseconds = if nano { fraction / 1000 } else { fraction };
        let octets = self.whole(len)?;
        Ok(Some(Packet {
            at: self.record,
            time: Some((seconds, microseconds)),
            link,
            octets,
        }))
    }

    /// Reads a block: `None` at the end of the file, `Some(None)` if it has no packet.
    fn block(&mut self, big: bool) -> Result<Option<Option<Packet>>, ReadError> {
        let kind = self.octets(4)?;
        if kind.is_empty() {
            return Ok(None);
        }
        if kind == SECTION {
            self.section()?;
            return Ok(Some(None));
        }
        let kind = Cursor::new(&kind, big).u32().ok_or_else(|| self.cut())?;
        let len = self.whole(4)?;
        let len = self.body_len(&len, big)?;
        // Interface Description, Packet (obsolete), Simple Packet, Enhanced Packet.
        if !matches!(kind, 1 | 2 | 3 | 6) {
            self.skip(len as u64 + 4)?;
            return Ok(Some(None));
        }
        if len > BLOCK_OCTETS_MAX {
            return Err(self.damaged("length"));
        }
        let body = self.whole(len)?;
        let _length_again = self.whole(4)?;
        let body = Cursor::new(&body, big);
        if kind == 1 {
            let interface = interface(body).ok_or_else(|| self.damaged("interface"))?;
            if self.interfaces.len() == INTERFACES_MAX {
                return Err(self.damaged("number of interfaces"));
            }
            self.interfaces.push(interface);
            return Ok(Some(None));
        }
        let packet = self.block_packet(kind, body);
        packet
            .map(|packet| Some(Some(packet)))
            .ok_or_else(|| self.damaged("packet"))
    }

    /// Reads the rest of a section header. Its first field decides the byte order.
    fn section(&mut self) -> Result<(), ReadError> {
        let head = self.whole(8)?;
        let (len, order) = head.split_at_checked(4).unwrap_or_default();
        let big = Cursor::new(order, true).u32() == Some(BYTE_ORDER);
        if !big && Cursor::new(order, false).u32() != Some(BYTE_ORDER) {
            return Err(self.damaged("byte order"));
        }
        let len = self.body_len(len, big)?;
        let rest = (len as u64).checked_sub(4);
        self.skip(rest.ok_or_else(|| self.damaged("length"))? + 4)?;
        self.interfaces.clear();
        self.format = Some(Format::PcapNg { big });
        Ok(())
    }

    /// Returns the octets of a block's body by its length field.
    fn body_len(&self, len: &[u8], big: bool) -> Result<usize, ReadError> {
        let len = Cursor::new(len, big).u32().unwrap_or_default() as usize;
        let body = len.checked_sub(BLOCK_FRAME_OCTETS);
        let body = body.filter(|_| len.is_multiple_of(4));
        body.ok_or_else(|| self.damaged("length"))
    }

    fn block_packet(&self, kind: u32, mut body: Cursor<'_>) -> Option<Packet> {
        let number = match kind {
            2 => usize::from(body.u16()?),
            3 => 0,
            _ => body.u32()? as usize,
        };
        let interface = *self.interfaces.get(number)?;
        let (time, len) = if kind == 3 {
            let len = (body.u32()? as usize).min(body.rest.len());
            (None, len)
        } else {
            if kind == 2 {
                let _drops = body.u16()?;
            }
            let (high, low) = (u64::from(body.u32()?), u64::from(body.u32()?));
            let (len, _on_the_wire) = (body.u32()? as usize, body.u32()?);
            (Some(interface.time(high << 32 | low)), len)
        };
        Some(Packet {
            at: self.record,
            time,
            link: interface.link,
            octets: body.take(len)?.to_vec(),
        })
    }

    const fn cut(&self) -> ReadError {
        ReadError::Truncated { at: self.record }
    }

    const fn damaged(&self, field: &'static str) -> ReadError {
        ReadError::Damaged {
            at: self.record,
            field,
        }
    }

    /// Reads so many octets, fewer only at the end of the file.
    fn octets(&mut self, len: usize) -> Result<Vec<u8>, ReadError> {
        let mut octets = Vec::new();
        let mut limited = Read::by_ref(&mut self.source).take(len as u64);
        let at = self.record;
        let read = limited.read_to_end(&mut octets);
        read.map_err(|error| ReadError::Io { at, error })?;
        self.at += octets.len() as u64;
        Ok(octets)
    }

    /// Reads exactly so many octets.
    fn whole(&mut self, len: usize) -> Result<Vec<u8>, ReadError> {
        let octets = self.octets(len)?;
        match octets.len() == len {
            true => Ok(octets),
            false => Err(self.cut()),
        }
    }

    /// Skips octets without keeping them.
    fn skip(&mut self, len: u64) -> Result<(), ReadError> {
        let mut limited = Read::by_ref(&mut self.source).take(len);
        let at = self.record;
        let skipped = io::copy(&mut limited, &mut io::sink());
        let skipped = skipped.map_err(|error| ReadError::Io { at, error })?;
        self.at += skipped;
        match skipped == len {
            true => Ok(()),
            false => Err(self.cut()),
        }
    }
}

impl Interface {
    /// Returns seconds and microseconds.
    fn time(&self, units: u64) -> (u32, u32) {
        let units = u128::from(units);
        let seconds = i128::try_from(units / self.units).unwrap_or_default();
        let seconds = seconds + i128::from(self.offset_s);
        let microseconds = units % self.units * 1_000_000 / self.units;
        let seconds = u32::try_from(seconds).unwrap_or_default();
        (seconds, u32::try_from(microseconds).unwrap_or_default())
    }
}

/// Parses an Interface Description Block with the options if_tsresol (9) and if_tsoffset (14).
fn interface(mut body: Cursor<'_>) -> Option<Interface> {
    let (link, _reserved, _snap_len) = (body.u16()?, body.u16()?, body.u32()?);
    let mut interface = Interface {
        link,
        units: 1_000_000,
        offset_s: 0,
    };
    while let (Some(code @ 1..), Some(len)) = (body.u16(), body.u16()) {
        let len = usize::from(len);
        let mut value = body;
        body.take(len.next_multiple_of(4))?;
        match (code, len) {
            (9, 1) => interface.units = units(value.u8()?)?,
            (14, 8) => interface.offset_s = value.i64()?,
            _ => {}
        }
    }
    Some(interface)
}

/// Returns the units in a second: a power of 10, or of 2 if the highest bit is set.
fn units(resolution: u8) -> Option<u128> {
    let exponent = u32::from(resolution & 0x7f);
    let base = if resolution & 0x80 == 0 { 10_u128 } else { 2 };
    base.checked_pow(exponent)
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Packet, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let packet = self.packet().transpose();
        self.ended = !matches!(packet, Some(Ok(_)));
        packet
    }
}
