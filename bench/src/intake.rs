//! Received routes of the sessions: every UPDATE is checked and entered in the ledger.

use std::rc::Rc;

use anyhow::{Result, bail};
use bgp_io::bgp_proto::HEADER_OCTETS;

use crate::ledger::Ledger;
use crate::routes::{NONE, Routes, Tag, WRONG};
use crate::wire::{Prefix, Received, Update, prefixes_v4, prefixes_v6};

/// The checker of received routes.
#[derive(Debug)]
pub struct Intake {
    /// The routes that can be received.
    pub routes: Rc<Routes>,
    /// The received routes.
    pub ledger: Ledger,
    /// Whether the daemon may advertise a client's routes back to it; these are then ignored.
    pub echoes_allowed: bool,
    /// By session, whether prefixes have path identifiers.
    pub path_ids: Vec<bool>,
    /// By session, whether its received routes are checked; other sessions are ignored.
    pub receivers: Vec<bool>,
    /// The last received attributes, and their set.
    last: (Vec<u8>, Tag),
    remark: Option<String>,
    /// Counts, for the report.
    pub counts: Counts,
}

/// Counts of received messages and routes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// UPDATE messages.
    pub updates: u64,
    /// Prefixes announced or withdrawn.
    pub prefixes: u64,
    /// Octets of UPDATE messages.
    pub octets: u64,
    /// UPDATEs with a client's own routes.
    pub echoes: u64,
}

impl Intake {
    /// Makes a checker of `routes`.
    pub fn new(
        routes: Rc<Routes>,
        ledger: Ledger,
        echoes_allowed: bool,
        receivers: Vec<bool>,
    ) -> Self {
        Self {
            routes,
            ledger,
            echoes_allowed,
            path_ids: vec![false; receivers.len()],
            receivers,
            last: (vec![], NONE),
            remark: None,
            counts: Counts::default(),
        }
    }

    /// Returns the first fault.
    pub fn fault(&self) -> &str {
        self.remark.as_deref().unwrap_or("nothing odd was received")
    }

    /// Keeps the first fault.
    pub fn remark(&mut self, text: impl FnOnce() -> String) {
        self.remark.get_or_insert_with(text);
    }

    /// Handles an UPDATE that a session has received.
    pub fn update(&mut self, session: usize, body: &[u8]) -> Result<()> {
        self.counts.updates += 1;
        self.counts.octets += (body.len() + HEADER_OCTETS) as u64;
        if !self.receivers[session] {
            return Ok(());
        }
        let update = Update::parse(body)?;
        self.each_v4(session, update.withdrawn, withdrawn(session))?;
        if update.attributes.is_empty() {
            return Ok(());
        }
        // The same attributes are often received many times in a row, over one session or many.
        if self.last.0 == update.attributes {
            return self.announced_v4(session, update.announced, self.last.1);
        }
        let received = Received::parse(update.attributes)?;
        self.each_v6(session, received.withdrawn_v6, withdrawn(session))?;
        if update.announced.is_empty() && received.announced_v6.is_empty() {
            return Ok(());
        }
        let tag = self
            .routes
            .sets
            .identify(&received)
            .unwrap_or_else(|error| {
                self.remark
                    .get_or_insert_with(|| format!("session {session} was sent {error}"));
                WRONG
            });
        if received.announced_v6.is_empty() {
            self.last.0.clear();
            self.last.0.extend_from_slice(update.attributes);
            self.last.1 = tag;
        }
        self.announced_v6(session, received.announced_v6, tag)?;
        self.announced_v4(session, update.announced, tag)
    }

    /// Returns the tag to enter for a session, if any: a client's own routes are not entered for
    /// it.
    fn unless_echo(&mut self, session: usize, tag: Tag) -> Option<Tag> {
        let own = self
            .routes
            .sets
            .get(tag)
            .is_some_and(|set| set.source == session);
        if !own {
            return Some(tag);
        }
        self.counts.echoes += 1;
        if self.echoes_allowed {
            return None;
        }
        self.remark
            .get_or_insert_with(|| format!("session {session} was sent its own routes"));
        Some(WRONG)
    }

    fn announced_v4(&mut self, session: usize, octets: &[u8], tag: Tag) -> Result<()> {
        match self.unless_echo(session, tag) {
            Some(tag) => self.each_v4(session, octets, |ledger, prefix| {
                ledger.note(session, prefix, tag);
            }),
            None => Ok(()),
        }
    }

    fn announced_v6(&mut self, session: usize, octets: &[u8], tag: Tag) -> Result<()> {
        if octets.is_empty() {
            return Ok(());
        }
        match self.unless_echo(session, tag) {
            Some(tag) => self.each_v6(session, octets, |ledger, prefix| {
                ledger.note(session, prefix, tag);
            }),
            None => Ok(()),
        }
    }

    /// Enters each IPv4 prefix in the ledger.
    fn each_v4(
        &mut self,
        session: usize,
        octets: &[u8],
        enter: impl Fn(&mut Ledger, usize),
    ) -> Result<()> {
        prefixes_v4(octets, self.path_ids[session], |address, length| {
            let Some(number) = self.routes.prefixes.find_v4(address, length) else {
                let prefix = Prefix::V4(address, length);
                bail!("{prefix:x?} is no prefix of this workload");
            };
            self.counts.prefixes += 1;
            enter(&mut self.ledger, number);
            Ok(())
        })
    }

    /// Enters each IPv6 prefix in the ledger.
    fn each_v6(
        &mut self,
        session: usize,
        octets: &[u8],
        enter: impl Fn(&mut Ledger, usize),
    ) -> Result<()> {
        prefixes_v6(octets, self.path_ids[session], |half| {
            let Some(number) = self.routes.prefixes.find_v6(half) else {
                bail!("{:x?} is no prefix of this workload", Prefix::V6(half));
            };
            self.counts.prefixes += 1;
            enter(&mut self.ledger, number);
            Ok(())
        })
    }
}

/// Returns how a withdrawal is entered: a client's own route is not withdrawn from it.
fn withdrawn(session: usize) -> impl Fn(&mut Ledger, usize) {
    move |ledger, prefix| {
        if !ledger.is_own(session, prefix) {
            ledger.note(session, prefix, NONE);
        }
    }
}
