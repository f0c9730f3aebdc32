//! BIRD 2.

use std::fmt::Write as _;
use std::path::Path;

use super::{Config, Scene};

pub(super) fn config(scene: &Scene) -> Config {
    let Scene { asn, address, .. } = scene;
    let mut text = format!(
        "log stderr {{ warning, error, fatal, bug }};\nrouter id {address};\n\
         protocol device {{}}\n"
    );
    for (at, (neighbor, remote)) in scene.neighbors.iter().enumerate() {
        let internal = remote == asn;
        let role = if internal {
            format!(" rr client; rr cluster id {address}; multihop;\n")
        } else {
            " direct;\n".to_owned()
        };
        let next_hop = if internal { "next hop keep ibgp;" } else { "" };
        let _ = write!(
            text,
            "protocol bgp n{at} {{\n local {address} as {asn};\n neighbor {neighbor} as {remote};\n \
             passive yes;\n{role}"
        );
        if let Some(password) = scene.password {
            let _ = writeln!(text, " password \"{password}\";");
        }
        let families: &[_] = if scene.ipv6 {
            &["ipv4", "ipv6"]
        } else {
            &["ipv4"]
        };
        let add_paths = if scene.add_path { "add paths yes;" } else { "" };
        for family in families {
            let _ = writeln!(
                text,
                " {family} {{ import all; export all; {next_hop} {add_paths} }};"
            );
        }
        text.push_str("}\n");
    }
    ("bird.conf", text)
}

pub(super) fn arguments(config: &Path) -> Vec<String> {
    let control = config.with_extension("ctl");
    let words = [
        "-f",
        "-c",
        &config.display().to_string(),
        "-s",
        &control.display().to_string(),
    ];
    words.map(str::to_owned).to_vec()
}
