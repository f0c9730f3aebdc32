//! `cambric-kube`: writes the Calico resources of Kubernetes objects.

use std::process::ExitCode;

use cambric_kube::{Config, DAEMON, run};
use daemon_common::program::{About, start};

fn main() -> ExitCode {
    let about = About {
        name: DAEMON,
        about: "Writes profiles, policies and labels of Kubernetes objects into the datastore",
        config_default: "/etc/cambric/kube.toml",
    };
    let run = async |config, ()| run(config).await;
    start(
        &about,
        Config::read,
        |_| Vec::new(),
        |config| config.control.clone(),
        |config| Ok((config, ())),
        run,
    )
}
