//! A BGP daemon that adds nothing to its speaker but the role of a reflector.

use bgp_daemon::{Driver, DriverError, Forwarding, Open, Parent, Program, Round};
use bgp_io::Speaker;
use daemon_common::{Command, Reply};

use crate::Settings;

/// The reflector daemon.
#[derive(Clone, Copy, Debug)]
pub struct Reflector;

impl Program for Reflector {
    const NAME: &'static str = "cambric-route-reflector";
    const ABOUT: &'static str =
        "Reflects BGP routes between the hosts of a fabric; never writes kernel routes";
    const CONFIG_DEFAULT: &'static str = "/etc/cambric/route-reflector.toml";
    const FORWARDING: Forwarding = Forwarding::Others;
    const FAREWELL: &'static str = "route reflector stops";

    type Settings = Settings;
    type Drivers = (NoKernel,);
    type Duty = ();
}

/// The driver of the kernel's routes that a reflector does not have.
#[derive(Clone, Copy, Debug)]
pub struct NoKernel;

impl Open<Settings> for NoKernel {
    fn open(_: &Settings, _: &mut Speaker, _: Option<&Parent>) -> Result<Self, DriverError> {
        Ok(Self)
    }
}

impl Driver<Settings> for NoKernel {
    fn turn(&mut self, _: &mut Round<'_>) -> Result<(), DriverError> {
        Ok(())
    }

    fn answer(&self, command: &Command) -> Option<Reply> {
        match command {
            Command::Fib {} => Some(Reply::error(
                "a route reflector never writes a route: it has no fib",
            )),
            _ => None,
        }
    }
}
