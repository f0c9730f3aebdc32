//! FRR's bgpd, without zebra.

use std::fmt::Write as _;
use std::path::Path;

use super::{Config, Scene};

/// `coalesce_ms` is how long bgpd gathers members of an update group before it writes.
pub(super) fn config(scene: &Scene, coalesce_ms: Option<u32>) -> Config {
    let Scene { asn, address, .. } = scene;
    let mut text = format!(
        "log stdout errors\nrouter bgp {asn}\n bgp router-id {address}\n bgp cluster-id {address}\n \
         no bgp ebgp-requires-policy\n no bgp network import-check\n no bgp default ipv4-unicast\n"
    );
    if let Some(time) = coalesce_ms {
        let _ = writeln!(text, " coalesce-time {time}");
    }
    for (neighbor, remote) in &scene.neighbors {
        let _ = write!(
            text,
            " neighbor {neighbor} remote-as {remote}\n neighbor {neighbor} passive\n \
             neighbor {neighbor} timers 30 90\n neighbor {neighbor} update-source {address}\n"
        );
        if let Some(password) = scene.password {
            let _ = writeln!(text, " neighbor {neighbor} password {password}");
        }
        if remote != asn {
            let _ = writeln!(text, " neighbor {neighbor} ebgp-multihop 2");
        }
    }
    let families: &[_] = if scene.ipv6 {
        &["ipv4", "ipv6"]
    } else {
        &["ipv4"]
    };
    for family in families {
        let _ = writeln!(text, " address-family {family} unicast");
        for (neighbor, remote) in &scene.neighbors {
            let _ = writeln!(text, "  neighbor {neighbor} activate");
            if remote == asn {
                let _ = writeln!(text, "  neighbor {neighbor} route-reflector-client");
            }
            if scene.add_path {
                let _ = writeln!(text, "  neighbor {neighbor} addpath-tx-all-paths");
            }
        }
        text.push_str(" exit-address-family\n");
    }
    ("bgpd.conf", text)
}

pub(super) fn arguments(scene: &Scene, config: &Path) -> Vec<String> {
    let directory = config.parent().unwrap_or(config).display().to_string();
    let (config, pid) = (config.display().to_string(), config.with_extension("pid"));
    let (address, pid) = (scene.address.to_string(), pid.display().to_string());
    let words = [
        "-f",
        &config,
        "-i",
        &pid,
        "--vty_socket",
        &directory,
        "-l",
        &address,
        "-p",
        "179",
        "-P",
        "0",
        "-n",
        "-Z",
        "-S",
    ];
    words.map(str::to_owned).to_vec()
}
