//! OpenBGPD.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use netns_lab::Host;

use super::{Config, Scene};

/// The home of its user, to which the daemon changes its root.
const CHROOT: &str = "/run/openbgpd";

pub(super) fn config(scene: &Scene, host: &Host) -> Config {
    let Scene { asn, address, .. } = scene;
    let socket = host.directory().join("openbgpd.sock");
    let mut text = format!(
        "AS {asn}\nrouter-id {address}\nfib-update no\nsocket \"{}\"\nlisten on {address}\n\
         nexthop qualify via default\nallow from any\nallow to any\n",
        socket.display()
    );
    for (neighbor, remote) in &scene.neighbors {
        let _ = write!(
            text,
            "neighbor {neighbor} {{\n remote-as {remote}\n passive\n announce IPv4 unicast\n"
        );
        if remote == asn {
            let _ = writeln!(text, " route-reflector {address}");
        }
        text.push_str(if scene.ipv6 {
            " announce IPv6 unicast\n"
        } else {
            " announce IPv6 none\n"
        });
        if scene.add_path {
            text.push_str(" announce add-path recv yes\n announce add-path send all\n");
        }
        if let Some(password) = scene.password {
            let _ = writeln!(text, " tcp md5sig password {password}");
        }
        text.push_str("}\n");
    }
    ("openbgpd.conf", text)
}

/// Prepares its prerequisites: a configuration file that other users cannot read, and the directory
/// of its root.
pub(super) fn prepare(host: &Host, config: &Path) -> Result<()> {
    fs::set_permissions(config, fs::Permissions::from_mode(0o600))?;
    host.run(|| fs::create_dir_all(CHROOT))?.context(CHROOT)
}

pub(super) fn arguments(config: &Path) -> Vec<String> {
    vec![
        "-d".to_owned(),
        "-f".to_owned(),
        config.display().to_string(),
    ]
}
