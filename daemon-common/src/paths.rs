//! Where the programs of one host meet: the control sockets of its daemons.
//!
//! Each daemon has a user, a group and directories with one name: that of its unit. So no daemon
//! reaches the socket or the files of another one.

use std::path::{Path, PathBuf};

/// The directory of all directories of control sockets.
pub const RUN: &str = "/run";

/// Prefix of the names of units, users, groups and directories.
const PREFIX: &str = "cambric-";

/// Returns the path of the control socket of a daemon, `felix` for example, unless its configuration
/// sets another one. The directory has a few more of its files, which are valid until the machine stops.
pub fn control(daemon: &str) -> PathBuf {
    control_below(Path::new(RUN), daemon)
}

/// Returns the same path with another directory in place of [`RUN`].
pub fn control_below(run: &Path, daemon: &str) -> PathBuf {
    run.join(format!("{PREFIX}{daemon}/{daemon}.sock"))
}

/// Returns the path of the socket on which cambric-bfd serves other daemons, unless configurations set
/// another one. Every user may connect; cambric-bfd checks the user.
pub fn bfd_clients() -> PathBuf {
    Path::new(RUN).join(format!("{PREFIX}bfd/clients.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_make_the_directory_of_each_control_socket() {
        for daemon in ["bgp-client", "route-reflector", "felix", "bfd", "kube"] {
            let packaging = format!("{}/../packaging", env!("CARGO_MANIFEST_DIR"));
            let unit = format!("{packaging}/systemd/cambric-{daemon}.service");
            let unit = std::fs::read_to_string(unit).expect("a unit");
            let mut directories = unit
                .lines()
                .filter_map(|line| line.strip_prefix("RuntimeDirectory="))
                .flat_map(str::split_whitespace);
            let control = control(daemon);
            let own = control.parent().expect("a directory");
            assert!(
                directories.any(|name| Path::new(RUN).join(name) == own),
                "{daemon}: {own:?}"
            );
            let file = format!("{packaging}/etc/{daemon}.toml");
            let file = std::fs::read_to_string(file).expect("a file");
            let shown = format!("#control = \"{}\"\n", control.display());
            assert!(file.contains(&shown), "{daemon}: {shown}");
        }
    }
}
