//! `cambric-route-reflector`: starts the daemon that the library describes.

use std::process::ExitCode;

fn main() -> ExitCode {
    bgp_daemon::main::<cambric_route_reflector::Reflector>()
}
