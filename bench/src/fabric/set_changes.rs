//! Changes of the packet filter of a node, with their times.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netns_lab::Host;
use nix::sys::socket::SockProtocol;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use crate::bare::Listener;
use crate::limits::NEWS_MAX;

// linux/netfilter/nfnetlink.h and nf_tables.h
const GROUP_NFTABLES: u32 = 1 << 6;
const SUBSYSTEM_NFTABLES: u16 = 10 << 8;
const NEW_RULE: u16 = SUBSYSTEM_NFTABLES | 6;
const NEW_ELEMENT: u16 = SUBSYSTEM_NFTABLES | 12;
const DELETED_ELEMENT: u16 = SUBSYSTEM_NFTABLES | 14;

/// A thread that only reads the notifications of nftables.
#[derive(Debug)]
pub struct SetChanges {
    changes: Receiver<Instant>,
    _listener: Listener,
}

impl SetChanges {
    /// Starts to listen: every later notification about an element of a set is read.
    pub fn listen(host: &Host) -> Result<Self> {
        Self::of_kinds(host, &[NEW_ELEMENT, DELETED_ELEMENT])
    }

    /// Starts to listen: every later notification about a new rule or an element of a set is read.
    pub fn listen_to_rules(host: &Host) -> Result<Self> {
        Self::of_kinds(host, &[NEW_RULE, NEW_ELEMENT, DELETED_ELEMENT])
    }

    fn of_kinds(host: &Host, kinds: &'static [u16]) -> Result<Self> {
        let (sender, changes) = channel(NEWS_MAX);
        let listener = host.run(|| {
            let protocol = SockProtocol::NetlinkNetFilter;
            Listener::start(protocol, GROUP_NFTABLES, move |octets, at| {
                if has_kind(octets, kinds) {
                    // The receiver is dropped only when no more notifications are wanted.
                    let _ = sender.blocking_send(at);
                }
            })
        })??;
        Ok(Self {
            changes,
            _listener: listener,
        })
    }

    /// Discards earlier changes.
    pub fn forget(&mut self) {
        while self.changes.try_recv().is_ok() {}
    }

    /// Returns when the next change was read.
    pub async fn next(&mut self, limit: Duration) -> Result<Instant> {
        let change = timeout(limit, self.changes.recv()).await;
        change
            .with_context(|| format!("nothing was changed within {limit:?}"))?
            .context("the listener has ended")
    }
}

/// Returns whether a message of a datagram is of one of these kinds.
fn has_kind(mut octets: &[u8], kinds: &[u16]) -> bool {
    while let Some((length, kind)) = header(octets) {
        if kinds.contains(&kind) {
            return true;
        }
        let next = octets.get(length.max(1).next_multiple_of(4)..);
        octets = next.unwrap_or_default();
    }
    false
}

fn header(octets: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(*octets.first_chunk()?);
    let kind = u16::from_ne_bytes(*octets.get(4..)?.first_chunk()?);
    Some((usize::try_from(length).ok()?, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_of_an_element_is_found_behind_others() {
        let message = |kind: u16| {
            let mut octets = 20_u32.to_ne_bytes().to_vec();
            octets.extend(kind.to_ne_bytes());
            octets.extend([0; 14]);
            octets
        };
        let rule = message(NEW_RULE);
        let kinds = [NEW_ELEMENT, DELETED_ELEMENT];
        assert!(!has_kind(&rule, &kinds));
        assert!(has_kind(&rule, &[NEW_RULE]));
        for kind in kinds {
            assert!(has_kind(&[rule.clone(), message(kind)].concat(), &kinds));
        }
        assert!(!has_kind(&[0; 7], &kinds));
    }
}
