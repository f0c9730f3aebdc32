//! The record of the table for the next run: a digest of the kernel's listing, and, from a run that
//! was stopped, one of the messages that write the table. They are the names of the chains of a second
//! table. Packets reach no chain of it.
//!
//! The kernel removes the record in the transaction that changes the table, and both together when
//! the host or its namespace ends. So a record that differs proves a change by another program.

use std::fmt;

use netlink::attributes::{find, of_netfilter, text};
use netlink::nftables::Step;
use netlink::{Refused, Requests, listing, message};
use netlink_packet_core::{NLM_F_CREATE, NetlinkSerializable};
use netlink_packet_netfilter::nftables::{ChainMessage, NfTablesMessage};
use sha2::{Digest as _, Sha256};

use super::encode::Message;

/// The table of the record.
const RECORD: &str = "cambric-felix-record";
/// The chain's name before the digest. The number grows with every change of the digested parts:
/// records with another number are ignored.
const FORMAT: &str = "listing-3-";
/// The same for the digest of messages. These are those of the kernel, so it needs no number.
const MESSAGES: &str = "messages-";
/// `NFTA_CHAIN_NAME`.
const CHAIN_NAME: u16 = 3;
/// Octets of a digest.
const DIGEST_OCTETS: usize = 16;

/// A digest of a listing, or of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest([u8; DIGEST_OCTETS]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// Computes a digest from its parts.
#[derive(Debug, Default)]
pub(super) struct Digester(Sha256);

impl Digester {
    /// Appends a part.
    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    /// Appends a sum.
    pub(super) fn add_sum(&mut self, sum: Sum) {
        self.add(&sum.parts.to_be_bytes());
        self.add(&sum.digests.map(u128::to_be_bytes).concat());
    }

    /// Appends a message.
    pub(super) fn add_message(&mut self, (message, flags): Message) {
        let mut octets = vec![0; message.buffer_len()];
        message.serialize(&mut octets);
        self.add(&message.message_type().to_be_bytes());
        self.add(&flags.to_be_bytes());
        self.add(&octets);
    }

    /// Returns the digest.
    pub(super) fn finish(self) -> Digest {
        let mut digest = [0; DIGEST_OCTETS];
        digest.copy_from_slice(&self.0.finalize()[..DIGEST_OCTETS]);
        Digest(digest)
    }
}

/// Computes a sum of parts that does not depend on their order: the number of parts, and the sum of their
/// digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    parts: u64,
    digests: [u128; 2],
}

impl Sum {
    /// Adds a part.
    pub(super) fn add(&mut self, part: &[u8]) {
        self.parts += 1;
        let digest = Sha256::digest(part);
        for (sum, octets) in self.digests.iter_mut().zip(digest.chunks_exact(16)) {
            let octets = octets.first_chunk().copied().unwrap_or_default();
            *sum = sum.wrapping_add(u128::from_be_bytes(octets));
        }
    }
}

/// Returns the messages that remove any record.
pub(super) fn removal() -> Vec<Step> {
    let table = || message::table(RECORD);
    vec![
        // A missing table cannot be deleted.
        (NfTablesMessage::NewTable(table()), NLM_F_CREATE),
        (NfTablesMessage::DeleteTable(table()), 0),
    ]
}

/// Returns the messages that replace any record by that of a listing, and of the messages that write
/// the table.
pub(super) fn creation(listing: Digest, messages: Option<Digest>) -> Vec<Step> {
    let names = [
        Some(format!("{FORMAT}{listing}")),
        messages.map(|messages| format!("{MESSAGES}{messages}")),
    ];
    let mut steps = removal();
    steps.push((
        NfTablesMessage::NewTable(message::table(RECORD)),
        NLM_F_CREATE,
    ));
    for name in names.into_iter().flatten() {
        let chain = message::chain(RECORD, &name, None);
        steps.push((NfTablesMessage::NewChain(chain), NLM_F_CREATE));
    }
    steps
}

/// A record, as the kernel has it.
#[derive(Debug)]
pub(super) struct Record {
    /// The names of its chains.
    chains: Vec<String>,
}

impl Record {
    /// Reads the record.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub(super) fn read(requests: &mut Requests) -> Result<Self, Refused> {
        let attributes = Vec::new();
        let message = NfTablesMessage::GetChain(ChainMessage { attributes });
        let rows = listing::objects(requests, RECORD, message)?;
        let names = rows
            .iter()
            .filter_map(|row| find(of_netfilter(row), CHAIN_NAME).map(text));
        Ok(Self {
            chains: names.collect(),
        })
    }

    /// Returns whether it is that of a listing; `None` without a record.
    pub(super) fn is_of(&self, listing: Digest) -> Option<bool> {
        self.compare(FORMAT, listing)
    }

    /// Returns whether the table was complete when it was recorded, and these messages write the same.
    pub(super) fn is_written_by(&self, messages: Digest) -> bool {
        self.compare(MESSAGES, messages) == Some(true)
    }

    fn compare(&self, format: &str, digest: Digest) -> Option<bool> {
        let names = self.chains.iter();
        let found: Vec<&str> = names.filter_map(|name| name.strip_prefix(format)).collect();
        (!found.is_empty()).then(|| found == [digest.to_string()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(parts: &[&[u8]]) -> Digest {
        let mut digester = Digester::default();
        parts.iter().for_each(|part| digester.add(part));
        digester.finish()
    }

    #[test]
    fn digest_depends_on_the_division_into_parts() {
        let one = digest(&[b"ab", b"c"]);
        assert_eq!(one, digest(&[b"ab", b"c"]));
        assert_ne!(one, digest(&[b"a", b"bc"]));
        assert_ne!(one, digest(&[b"abc"]));
        assert_ne!(one, digest(&[b"ab", b"c", b""]));
        // A later version of this program must compute the same, or change the number.
        assert_eq!(one.to_string(), "601d5476e2ccfe2c87a2bba7a3226597");
    }

    #[test]
    fn sum_depends_on_the_parts_and_not_on_their_order() {
        let sum = |parts: &[&[u8]]| {
            let mut sum = Sum::default();
            parts.iter().for_each(|part| sum.add(part));
            let mut digester = Digester::default();
            digester.add_sum(sum);
            digester.finish()
        };
        let one = sum(&[b"a", b"b", b"c"]);
        assert_eq!(one, sum(&[b"c", b"a", b"b"]));
        for other in [&[&b"a"[..], b"b"][..], &[b"ab", b"c"], &[b"a", b"b", b"d"]] {
            assert_ne!(one, sum(other));
        }
    }

    #[test]
    fn record_of_another_format_is_ignored() {
        let one = digest(&[b"a"]);
        let own = format!("{FORMAT}{one}");
        let other = format!("{FORMAT}{}", digest(&[b"b"]));
        let compared = |names: &[&str]| {
            let chains = names.iter().map(|name| (*name).to_owned()).collect();
            Record { chains }.is_of(one)
        };
        assert_eq!(compared(&[]), None);
        assert_eq!(compared(&[&own.replace("-3-", "-2-")]), None);
        assert_eq!(compared(&[&own]), Some(true));
        assert_eq!(compared(&[&other]), Some(false));
        assert_eq!(compared(&[&own, &other]), Some(false), "not Felix's");
        let messages = format!("{MESSAGES}{one}");
        assert_eq!(compared(&[&messages]), None);
        assert_eq!(compared(&[&messages, &own]), Some(true));
        let chains = vec![own, messages];
        let record = Record { chains };
        assert!(record.is_written_by(one) && !record.is_written_by(digest(&[b"b"])));
    }
}
