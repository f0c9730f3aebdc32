//! What a program adds to the daemon that all BGP programs share.

use crate::{Open, Settings};

/// Who forwards by the routes that a program announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Others: whatever happens to the program, it goes on.
    Others,
    /// The kernel beneath the program: it goes on as long as the machine runs.
    Kernel,
}

/// A program: its names, its section of the configuration file, and its drivers.
pub trait Program: Sized {
    /// Its name, which is that of its executable.
    const NAME: &'static str;
    /// One line on what it does.
    const ABOUT: &'static str;
    /// The configuration file unless the command line names another.
    const CONFIG_DEFAULT: &'static str;
    /// Who forwards by its routes, for graceful restart (RFC 4724 §3, the F bits).
    const FORWARDING: Forwarding;
    /// The shutdown communication when it stops (RFC 9003).
    const FAREWELL: &'static str;

    /// Its own section of the configuration.
    type Settings: Settings;

    /// Its drivers beside those of every BGP daemon: a tuple, in the order of their turns.
    type Drivers: Open<Self::Settings>;
}
