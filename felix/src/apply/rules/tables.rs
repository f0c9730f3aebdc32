//! The tables themselves: their owner, and those of the boot.

use netlink::nftables::{self, ERESTART, inet};
use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_netfilter::nftables::{NfTablesMessage, TableAttribute, TableMessage};

use super::{Known, Rules, RulesError};
use crate::apply::encode::{Encoding, Message, arp, boot_removal, messages, owned};
use crate::apply::follow::after;
use crate::apply::listing::boot_tables;
use crate::apply::record::{Digest, Digester};
use crate::limits::TRANSACTION_ATTEMPTS;
use crate::render::{Change, TABLE};

/// The name of a table that is made and removed in one transaction.
const PROBE: &str = "cambric-felix-probe";

impl Rules {
    /// Makes the socket the owner of the tables that it writes from now on: no other program changes
    /// them, and they outlive the socket.
    ///
    /// # Errors
    ///
    /// The kernel does not support this.
    pub fn own_tables(&mut self) -> Result<(), RulesError> {
        let probe = || TableMessage {
            attributes: vec![TableAttribute::Name(PROBE.into())],
        };
        let steps = vec![
            (inet(NfTablesMessage::NewTable(owned(PROBE))), NLM_F_CREATE),
            (inet(NfTablesMessage::DeleteTable(probe())), 0),
        ];
        self.apart(&steps)?;
        self.is_owner = true;
        Ok(())
    }

    /// Takes the tables of an earlier run over, if they are to be owned.
    pub(super) fn claim(&mut self) -> Result<(), RulesError> {
        if !self.is_owner {
            return Ok(());
        }
        let steps = [inet, arp].map(|within| {
            let table = NfTablesMessage::NewTable(owned(TABLE));
            (within(table), NLM_F_CREATE)
        });
        self.apart(&steps)
    }

    /// Removes the tables of the boot, if they exist, in a transaction of their own.
    pub(super) fn remove_boot(&mut self) -> Result<(), RulesError> {
        match boot_tables(&mut self.requests)? {
            true => self.apart(&boot_removal()),
            false => Ok(()),
        }
    }

    /// Carries out a transaction that changes no rule of the tables.
    fn apart(&mut self, steps: &[Message]) -> Result<(), RulesError> {
        let mut attempts = TRANSACTION_ATTEMPTS;
        loop {
            self.look();
            let generation = match self.known {
                Known::Unwritten => self.generation()?,
                Known::Followed | Known::Changed => self.follower.generation(),
            };
            attempts = attempts.saturating_sub(1);
            match nftables::transact_families(&mut self.requests, generation, [steps.to_vec()]) {
                Ok(()) => {
                    self.follower.advance(after(generation));
                    return Ok(());
                }
                // Another program's transaction came in between.
                Err((_, cause)) if cause.errno == ERESTART && attempts > 0 => {
                    self.pass(generation);
                }
                Err((_, cause)) => return Err(cause.into()),
            }
        }
    }

    /// Returns the digest of the messages that write the tables.
    pub(super) fn digest(&self, steps: &[Change]) -> Digest {
        let mut encoding = Encoding::new(self.is_owner);
        let mut digester = Digester::default();
        for step in steps.iter().filter(|step| **step != Change::RemoveBoot) {
            let messages = messages(step, &mut encoding).into_iter();
            messages.for_each(|message| digester.add_message(message));
        }
        digester.finish()
    }
}
