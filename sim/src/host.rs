//! What Felix does to its host besides routes, remembered: it outlives Felix.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cambric_felix::agent::{Failed, Host};
use cambric_felix::apply::{Checked, Neighbour};
use cambric_felix::render::{Ruleset, Touched};
use fib_sync::Link;

use crate::chance::Chance;

/// A host that does as it is told, or fails at this chance.
#[derive(Debug)]
pub(crate) struct SimHost {
    rules: Option<Ruleset>,
    neighbours: BTreeMap<(u32, IpAddr), Neighbour>,
    /// Addresses whose connections are forgotten once the turn is over.
    forgetting: BTreeSet<IpAddr>,
    /// So many of a thousand calls fail.
    pub(crate) fails: u64,
    chance: Chance,
}

impl SimHost {
    pub(crate) fn new(chance: Chance) -> Self {
        Self {
            rules: None,
            neighbours: BTreeMap::new(),
            forgetting: BTreeSet::new(),
            fails: 0,
            chance,
        }
    }

    /// As after a reboot.
    pub(crate) fn wipe(&mut self) {
        self.rules = None;
        self.neighbours.clear();
    }

    /// Whether Felix is still to hear of addresses.
    pub(crate) fn has_forgotten(&self) -> bool {
        !self.forgetting.is_empty()
    }

    fn luck(&mut self) -> Result<(), Failed> {
        match self.chance.strikes(self.fails) {
            true => Err(Failed("the host refuses".to_owned())),
            false => Ok(()),
        }
    }
}

impl Host for SimHost {
    fn rules_present(&mut self) -> Result<bool, Failed> {
        Ok(self.rules.is_some())
    }

    fn write_rules(&mut self, wanted: &Ruleset, _: &Touched) -> Result<(), Failed> {
        self.luck()?;
        self.rules = Some(wanted.clone());
        Ok(())
    }

    fn check_rules(&mut self) -> Result<Checked, Failed> {
        self.luck()?;
        Ok(match self.rules {
            Some(_) => Checked::Intact,
            None => Checked::Nothing,
        })
    }

    fn configure(&mut self, _: bool) -> Result<(), Failed> {
        self.luck()
    }

    fn configure_interface(&mut self, _: &Link, _: bool) -> Result<(), Failed> {
        self.luck()
    }

    fn neighbours(&mut self) -> Result<Vec<Neighbour>, Failed> {
        self.luck()?;
        Ok(self.neighbours.values().copied().collect())
    }

    fn put_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Failed> {
        self.luck()?;
        self.neighbours
            .insert((neighbour.interface, neighbour.address), *neighbour);
        Ok(())
    }

    fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Failed> {
        self.luck()?;
        self.neighbours
            .remove(&(neighbour.interface, neighbour.address));
        Ok(())
    }

    fn forget(&mut self, addresses: &BTreeSet<IpAddr>) {
        self.forgetting.extend(addresses);
    }

    fn take_forgotten(&mut self) -> BTreeSet<IpAddr> {
        std::mem::take(&mut self.forgetting)
    }
}
