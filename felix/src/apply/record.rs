//! The record of the table for the next run: a digest of the kernel's listing, which is the name of
//! the only chain of a second table. Packets reach no chain of it.
//!
//! The kernel removes the record in the transaction that changes the table, and both together when
//! the host or its namespace ends. So a record that differs proves a change by another program.

use std::fmt;

use netlink::attributes::{find, of_netfilter, text};
use netlink::nftables::Step;
use netlink::{Refused, Requests, listing, message};
use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_netfilter::nftables::{ChainMessage, NfTablesMessage};
use sha2::{Digest as _, Sha256};

/// The table of the record.
const RECORD: &str = "cambric-felix-record";
/// The chain's name before the digest. The number grows with every change of the digested parts:
/// records with another number are ignored.
const FORMAT: &str = "listing-1-";
/// `NFTA_CHAIN_NAME`.
const CHAIN_NAME: u16 = 3;
/// Octets of a digest.
const DIGEST_OCTETS: usize = 16;

/// A digest of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest([u8; DIGEST_OCTETS]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// Computes the digest of a listing from its parts.
#[derive(Default)]
pub(super) struct Digester(Sha256);

impl Digester {
    /// Appends a part.
    pub(super) fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    /// Returns the digest.
    pub(super) fn finish(self) -> Digest {
        let mut digest = [0; DIGEST_OCTETS];
        digest.copy_from_slice(&self.0.finalize()[..DIGEST_OCTETS]);
        Digest(digest)
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

/// Returns the messages that replace any record by that of a listing.
pub(super) fn creation(listing: Digest) -> Vec<Step> {
    let chain = message::chain(RECORD, &format!("{FORMAT}{listing}"), None);
    let mut steps = removal();
    steps.extend([
        (
            NfTablesMessage::NewTable(message::table(RECORD)),
            NLM_F_CREATE,
        ),
        (NfTablesMessage::NewChain(chain), NLM_F_CREATE),
    ]);
    steps
}

/// Returns whether the record is that of a listing; `None` without a record.
///
/// # Errors
///
/// The kernel did not answer.
pub(super) fn is_of(requests: &mut Requests, listing: Digest) -> Result<Option<bool>, Refused> {
    let attributes = Vec::new();
    let message = NfTablesMessage::GetChain(ChainMessage { attributes });
    let chains = listing::objects(requests, RECORD, message)?;
    let names = chains
        .iter()
        .filter_map(|row| find(of_netfilter(row), CHAIN_NAME).map(text));
    Ok(compare(names, listing))
}

/// Compares the names of the record's chains with a listing.
fn compare(names: impl Iterator<Item = String>, listing: Digest) -> Option<bool> {
    let digests = names.filter_map(|name| name.strip_prefix(FORMAT).map(str::to_owned));
    let digests: Vec<String> = digests.collect();
    (!digests.is_empty()).then(|| digests == [listing.to_string()])
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
    fn record_of_another_format_is_ignored() {
        let one = digest(&[b"a"]);
        let own = format!("{FORMAT}{one}");
        let other = format!("{FORMAT}{}", digest(&[b"b"]));
        let compared = |names: &[&str]| compare(names.iter().map(ToString::to_string), one);
        assert_eq!(compared(&[]), None);
        assert_eq!(compared(&[&own.replace("-1-", "-2-")]), None);
        assert_eq!(compared(&[&own]), Some(true));
        assert_eq!(compared(&[&other]), Some(false));
        assert_eq!(compared(&[&own, &other]), Some(false), "not Felix's");
    }
}
