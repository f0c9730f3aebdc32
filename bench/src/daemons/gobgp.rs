//! GoBGP.

use std::fmt::Write as _;
use std::path::Path;

use super::{Config, Scene};

pub(super) fn config(scene: &Scene) -> Config {
    let Scene { asn, address, .. } = scene;
    let mut text = format!(
        "[global.config]\nas = {asn}\nrouter-id = \"{address}\"\nlocal-address-list = [\"{address}\"]\n"
    );
    let families: &[_] = if scene.ipv6 {
        &["ipv4", "ipv6"]
    } else {
        &["ipv4"]
    };
    for (neighbor, remote) in &scene.neighbors {
        let _ = write!(
            text,
            "\n[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{neighbor}\"\n\
             peer-as = {remote}\n"
        );
        if let Some(password) = scene.password {
            let _ = writeln!(text, "auth-password = \"{password}\"");
        }
        text.push_str("[neighbors.transport.config]\npassive-mode = true\n");
        if remote == asn {
            let _ = write!(
                text,
                "[neighbors.route-reflector.config]\nroute-reflector-client = true\n\
                 route-reflector-cluster-id = \"{address}\"\n"
            );
        }
        for family in families {
            let _ = write!(
                text,
                "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\n\
                 afi-safi-name = \"{family}-unicast\"\n"
            );
            if scene.add_path {
                text.push_str(
                    "[neighbors.afi-safis.add-paths.config]\nreceive = true\nsend-max = 8\n",
                );
            }
        }
    }
    ("gobgpd.toml", text)
}

pub(super) fn arguments(config: &Path) -> Vec<String> {
    let config = config.display().to_string();
    let words = [
        "-f",
        &config,
        "--api-hosts",
        "127.0.0.1:50051",
        "--pprof-disable",
        "-l",
        "warn",
    ];
    words.map(str::to_owned).to_vec()
}
