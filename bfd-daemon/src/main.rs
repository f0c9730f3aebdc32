//! `cambric-bfd`: BFD for the daemons of a host.

use std::process::ExitCode;

use cambric_bfd::{Config, DAEMON, run};
use daemon_common::program::{About, start};

fn main() -> ExitCode {
    let about = About {
        name: DAEMON,
        about: "Monitors the paths to BGP neighbors for the daemons of this host (BFD, RFC 5880)",
        config_default: "/etc/cambric/bfd.toml",
    };
    let run = async |config, ()| run(config).await;
    start(
        &about,
        Config::read,
        Config::notes,
        |config| config.control.clone(),
        |config| Ok((config, ())),
        run,
    )
}
