//! `cambric-felix`: the agent of a host.

use std::process::ExitCode;

use cambric_felix::config::Config;
use cambric_felix::daemon::run;
use cambric_felix::report::DAEMON;
use daemon_common::program::{About, start};

fn main() -> ExitCode {
    let about = About {
        name: DAEMON,
        about: "Configures the kernel for this host's workload endpoints: interfaces, routes, packet filter",
        config_default: "/etc/cambric/felix.toml",
    };
    let run = async |config, ()| run(config).await;
    start(
        &about,
        |path| Config::read(path),
        |_| Vec::new(),
        |config| config.control.clone(),
        |config| Ok((config, ())),
        run,
    )
}
