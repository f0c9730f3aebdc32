//! `cambric-bgp-client`: starts the daemon that the library describes.

use std::process::ExitCode;

fn main() -> ExitCode {
    bgp_daemon::main::<cambric_bgp_client::Client>()
}
