//! `cambric-bfd`: BFD for the daemons of a host.

use std::process::ExitCode;

use cambric_bfd::{Config, DAEMON, SUPERVISE, notes, run, supervise};
use daemon_common::program::{About, start};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == SUPERVISE) {
        return supervise(arguments.collect());
    }
    let about = About {
        name: DAEMON,
        about: "Monitors the paths to BGP neighbors for the daemons of this host (BFD, RFC 5880)\n\n\
                With --supervise as first argument, a parent process starts the daemon again if it ends, \
                and its sessions continue. systemd does the same, and needs no such parent.",
        config_default: "/etc/cambric/bfd.toml",
    };
    let run = async |config, ()| run(config).await;
    start(
        &about,
        Config::read,
        notes,
        |config| config.control.clone(),
        |config| Ok((config, ())),
        run,
    )
}
