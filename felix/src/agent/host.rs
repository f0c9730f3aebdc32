//! What an agent does to its host, besides routes: a port, so that a simulated host can stand in.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use fib_sync::Link;

use crate::apply::{Checked, Neighbour};
use crate::render::{Ruleset, Touched};

/// The host. Every call is carried out before it returns; what fails is tried again later.
pub trait Host {
    /// Whether the host has our packet filter, from an earlier run.
    ///
    /// # Errors
    ///
    /// It cannot be told.
    fn rules_present(&mut self) -> Result<bool, Failed>;

    /// Replaces the packet filter, all at once. What was not `touched` is as it was when it was
    /// written last, if it was.
    ///
    /// # Errors
    ///
    /// Nothing was changed.
    fn write_rules(&mut self, wanted: &Ruleset, touched: &Touched) -> Result<(), Failed>;

    /// Prepares a bounded part of a large packet filter, to which no packet comes before it is
    /// written. Returns whether it did, and is to be called again.
    fn prepare_rules(&mut self, wanted: &Ruleset, touched: &Touched) -> bool {
        let _ = (wanted, touched);
        false
    }

    /// Looks whether the packet filter is as it was left, and heals it.
    ///
    /// # Errors
    ///
    /// It could not be read or not be healed.
    fn check_rules(&mut self) -> Result<Checked, Failed>;

    /// Makes the host a router (`ip_forward`).
    ///
    /// # Errors
    ///
    /// A needed setting could not be made.
    fn configure(&mut self, ipv6: bool) -> Result<(), Failed>;

    /// Makes a workload's interface answer for the world: settings, and the IPv6 gateway's
    /// address. Interfaces that are set up already are left as they are.
    ///
    /// # Errors
    ///
    /// A needed setting could not be made.
    fn configure_interface(&mut self, link: &Link, ipv6: bool) -> Result<(), Failed>;

    /// Neighbour entries that an earlier run or this one made.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    fn neighbours(&mut self) -> Result<Vec<Neighbour>, Failed>;

    /// Makes or changes a permanent neighbour entry.
    ///
    /// # Errors
    ///
    /// It was refused.
    fn put_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Failed>;

    /// Removes a neighbour entry.
    ///
    /// # Errors
    ///
    /// It was refused.
    fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Failed>;

    /// Begins to forget the tracked connections of addresses that left, once the turn is over. At
    /// best effort.
    fn forget(&mut self, addresses: &BTreeSet<IpAddr>);

    /// Those of the addresses for which that is done, each once.
    fn take_forgotten(&mut self) -> BTreeSet<IpAddr>;
}

/// Why something could not be done, in a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}
