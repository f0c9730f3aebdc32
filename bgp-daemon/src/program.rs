//! The interface of a program to the common part of the BGP daemons.

use crate::parent::Duty;
use crate::{Open, Settings};

/// The part of the machine that forwards packets by the routes that a program announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Other machines: forwarding does not depend on the program.
    Others,
    /// The kernel beneath the program: it forwards as long as the machine runs.
    Kernel,
}

/// A program: its names, its section of the configuration file, and its drivers.
pub trait Program: Sized {
    /// Name, which is that of its executable.
    const NAME: &'static str;
    /// One line on what it does.
    const ABOUT: &'static str;
    /// The configuration file unless the command line names another.
    const CONFIG_DEFAULT: &'static str;
    /// The forwarding plane that uses its routes, for graceful restart (RFC 4724 §3, the F bits).
    const FORWARDING: Forwarding;
    /// The shutdown communication when it stops (RFC 9003).
    const FAREWELL: &'static str;

    /// Its own section of the configuration.
    type Settings: Settings;

    /// Its drivers beside those of every BGP daemon: a tuple, in the order of their turns.
    type Drivers: Open<Self::Settings>;

    /// The operations of its parent process beyond those of every BGP daemon.
    type Duty: Duty<Self::Settings>;
}
