//! A speaker with nothing on its other side.

use std::convert::Infallible;
use std::future::pending;

use bgp_daemon::{Forwarding, Program};
use bgp_io::bgp_fsm::Instant;
use bgp_io::rib::Progress;
use bgp_io::{Event, Io, Speaker};
use calico_bgp::Duties;
use daemon_common::report::{Limit, Status};
use daemon_common::{Command, Reply};

use crate::Settings;

/// What the reflector adds to a BGP daemon: nothing but its answers.
#[derive(Clone, Copy, Debug)]
pub struct Reflector;

impl Program for Reflector {
    const NAME: &'static str = "cambric-route-reflector";
    const ABOUT: &'static str =
        "Reflects BGP routes between the hosts of a fabric; never writes one into a kernel";
    const CONFIG_DEFAULT: &'static str = "/etc/cambric/route-reflector.toml";
    const FORWARDING: Forwarding = Forwarding::Others;
    const FAREWELL: &'static str = "route reflector stops";

    type Settings = Settings;
    type Event = Infallible;
    type Error = Infallible;

    fn open(_: &Settings, _: &mut Speaker) -> Result<Self, Infallible> {
        Ok(Self)
    }

    async fn next(&mut self) -> Infallible {
        pending().await
    }

    fn handle(&mut self, _: Instant, event: Infallible) -> Result<(), Infallible> {
        match event {}
    }

    fn hear(&mut self, _: &Event) {}

    fn carry(&mut self, _: &mut Io) -> Progress {
        Progress::Done
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn reload(&mut self, _: &Settings) -> Vec<&'static str> {
        Vec::new()
    }

    /// A reflector has no routes of its own, and no kernel.
    fn take_duties(&mut self, _: &Duties) {}

    fn answer(&self, command: &Command) -> Option<Reply> {
        match command {
            Command::Fib {} => Some(Reply::error(
                "a route reflector never writes a route: it has no fib",
            )),
            _ => None,
        }
    }

    fn limits(&self) -> Vec<Limit> {
        Vec::new()
    }

    fn report(&self, _: &mut Status) {}

    fn leaves_routes(&self) -> bool {
        true
    }

    async fn leave(&mut self, _: impl Fn() -> Instant) {}
}
