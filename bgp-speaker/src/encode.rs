//! Encoding of exported routes as UPDATE messages: a run of prefixes with the same attributes from
//! the same peer takes as few messages as possible, and consecutive messages with the same audience
//! form one piece.

use alloc::vec::Vec;
use core::iter::Peekable;

use bgp_proto::{
    Attributes, EncodeParams, Family, Ipv4Prefix, Ipv6Prefix, Net, NextHop, Nlri, UpdateWriter,
};
use bytes::{Bytes, BytesMut};
use rib::{ExportSink, PeerId, Room, Run};

use crate::limits::PIECE_OCTETS;
use crate::octets::Encoded;
use crate::segment::Audience;

/// Octets of an UPDATE beside its routes and attributes, at most: header, lengths, next hop.
const MESSAGE_OCTETS: usize = 320;

/// Octets of a prefix with a path identifier, at most; those of opaque ones come in addition.
const NET_OCTETS: usize = 21;

/// A prefix to be encoded, with its path identifier.
#[derive(Clone, Copy, Debug)]
struct Note {
    path_id: u32,
    net: NetNote,
}

/// The prefix alone; opaque ones are in a buffer of their own.
#[derive(Clone, Copy, Debug)]
enum NetNote {
    V4(Ipv4Prefix),
    V6(Ipv6Prefix),
    Opaque { at: usize, octets: usize },
}

/// The kind of message for the collected prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    /// Announcement with the attributes of this run.
    Reach(u64),
    /// Withdrawal.
    Unreach,
}

/// Collects a run of prefixes, then writes its messages.
#[derive(Debug)]
pub(crate) struct Encoder {
    family: Family,
    params: EncodeParams,
    /// Octets that a step may encode.
    octets_max: usize,
    verb: Verb,
    audience: Audience,
    /// The attributes of the run, encoded once for all its messages.
    block: Vec<u8>,
    next_hop: Option<NextHop>,
    nets: Vec<Note>,
    opaque: Vec<u8>,
    out: BytesMut,
    done: Vec<(Audience, Bytes)>,
}

impl Encoder {
    /// Makes an encoder that writes into the remaining capacity of `out`, at most about `octets_max`
    /// octets.
    pub(crate) fn new(
        family: Family,
        params: EncodeParams,
        octets_max: usize,
        out: BytesMut,
    ) -> Self {
        Self {
            family,
            params,
            octets_max,
            verb: Verb::Unreach,
            audience: Audience::All,
            block: Vec::new(),
            next_hop: None,
            nets: Vec::new(),
            opaque: Vec::new(),
            out,
            done: Vec::new(),
        }
    }

    fn announce(&mut self, nlri: &Nlri<'_>, run: &Run<'_>, audience: Audience) {
        if self.verb != Verb::Reach(run.id) {
            self.turn(Verb::Reach(run.id), audience);
            self.begin(run.attributes);
        }
        self.note(nlri);
    }

    fn withdraw(&mut self, nlri: &Nlri<'_>, audience: Audience) {
        if (self.verb, self.audience) != (Verb::Unreach, audience) {
            self.turn(Verb::Unreach, audience);
        }
        self.note(nlri);
    }

    /// Writes the collected prefixes, and continues with another kind of message.
    fn turn(&mut self, verb: Verb, audience: Audience) {
        self.flush();
        if audience != self.audience || self.out.len() >= PIECE_OCTETS {
            self.seal();
        }
        (self.verb, self.audience) = (verb, audience);
    }

    /// Ends the piece.
    fn seal(&mut self) {
        if !self.out.is_empty() {
            self.done.push((self.audience, self.out.split().freeze()));
        }
    }

    fn begin(&mut self, attributes: &Attributes) {
        self.block.clear();
        attributes.encode(self.params.as4, &mut self.block);
        self.next_hop.clone_from(&attributes.next_hop);
    }

    fn note(&mut self, nlri: &Nlri<'_>) {
        let net = match nlri.net {
            Net::V4(prefix) => NetNote::V4(prefix),
            Net::V6(prefix) => NetNote::V6(prefix),
            Net::Opaque(octets) => {
                let at = self.opaque.len();
                self.opaque.extend_from_slice(octets);
                NetNote::Opaque {
                    at,
                    octets: octets.len(),
                }
            }
        };
        let path_id = nlri.path_id;
        self.nets.push(Note { path_id, net });
    }

    /// Writes the messages of the collected run.
    fn flush(&mut self) {
        if self.nets.is_empty() {
            return;
        }
        let Self {
            family,
            params,
            nets,
            opaque,
            out,
            done,
            audience,
            ..
        } = self;
        let mut nets = nets
            .iter()
            .map(|&Note { path_id, net }| Nlri {
                path_id,
                net: denote(net, opaque),
            })
            .peekable();
        while nets.peek().is_some() {
            // A short message must not begin an allocation for the longest one.
            let all = MESSAGE_OCTETS + self.block.len() + nets.len() * NET_OCTETS + opaque.len();
            let octets_max = params.octets_max.min(all);
            if out.capacity() - out.len() < octets_max {
                // Sealed first, so that its octets need not be moved.
                if !out.is_empty() {
                    done.push((*audience, out.split().freeze()));
                }
                out.reserve(octets_max.max(PIECE_OCTETS));
            }
            let writer = match self.verb {
                Verb::Unreach => UpdateWriter::unreach(out, *family, params),
                // The tables export no route without a next hop, except in families that need none.
                Verb::Reach(_) => {
                    let next_hop = self.next_hop.as_ref();
                    UpdateWriter::reach(out, *family, &self.block, next_hop, params)
                }
            };
            if !write_one(writer, &mut nets)
                && let Some(net) = nets.next()
            {
                // The attributes do not fit into any message of the session: the prefix is
                // withdrawn, so that the peer does not keep the former route (RFC 8654 §4).
                let writer = UpdateWriter::unreach(out, *family, params);
                write_one(writer, &mut [net].into_iter().peekable());
            }
        }
        self.nets.clear();
        self.opaque.clear();
    }

    /// Returns the pieces of a step that is kept: each in an allocation of its own if they are
    /// short, so that they do not keep a long one.
    pub(crate) fn finish_exact(mut self, account: &Encoded) -> Vec<(Audience, Bytes)> {
        self.flush();
        self.seal();
        let octets: usize = self.done.iter().map(|(_, octets)| octets.len()).sum();
        if octets < PIECE_OCTETS / 2 {
            for (_, octets) in &mut self.done {
                *octets = Bytes::copy_from_slice(octets);
            }
        }
        self.finish(account).0
    }

    /// Returns the pieces with their audiences, in order, and the remaining capacity. The pieces
    /// are in the account.
    pub(crate) fn finish(mut self, account: &Encoded) -> (Vec<(Audience, Bytes)>, BytesMut) {
        self.flush();
        self.seal();
        for (_, octets) in &mut self.done {
            *octets = account.count(core::mem::take(octets));
        }
        (self.done, self.out)
    }
}

fn denote(note: NetNote, opaque: &[u8]) -> Net<'_> {
    match note {
        NetNote::V4(prefix) => Net::V4(prefix),
        NetNote::V6(prefix) => Net::V6(prefix),
        NetNote::Opaque { at, octets } => {
            Net::Opaque(opaque.get(at..at + octets).unwrap_or_default())
        }
    }
}

/// Fills one message; returns whether it contains at least one prefix.
fn write_one<'a>(
    mut writer: UpdateWriter<'_>,
    nets: &mut Peekable<impl Iterator<Item = Nlri<'a>>>,
) -> bool {
    while nets.next_if(|nlri| writer.push(nlri).is_ok()).is_some() {}
    let any = !writer.is_empty();
    writer.finish();
    any
}

impl ExportSink for Encoder {
    /// The last prefix may take one more message. Without four-octet AS numbers, AS_PATH is followed
    /// by AS4_PATH, so that it takes half as many octets more than in the tables.
    fn room(&self) -> Room {
        let octets = self.octets_max.saturating_sub(self.params.octets_max);
        let octets = if self.params.as4 {
            octets
        } else {
            octets / 3 * 2
        };
        Room::new(octets, self.params.octets_max)
    }

    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        self.announce(nlri, run, Audience::Except(run.source));
    }

    fn unreach(&mut self, nlri: &Nlri<'_>, except: Option<PeerId>) {
        self.withdraw(nlri, except.map_or(Audience::All, Audience::Except));
    }

    fn unreach_only(&mut self, net: Net<'_>, to: PeerId) {
        self.withdraw(&Nlri::new(net), Audience::Only(to));
    }
}
