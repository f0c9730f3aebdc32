//! Cambric's reflector.

use std::fmt::Write as _;
use std::path::Path;

use super::{Config, Scene};
use crate::wire::Range;

pub(super) fn config(scene: &Scene) -> Config {
    let Scene { asn, address, .. } = scene;
    let families = if scene.ipv6 || scene.range {
        r#"["ipv4-unicast", "ipv6-unicast"]"#
    } else {
        r#"["ipv4-unicast"]"#
    };
    let mut text = format!(
        "asn = {asn}\nrouter_id = \"{address}\"\nlisten = [\"{address}:179\"]\nlog = \"warn\"\n\
         families = {families}\n"
    );
    for (neighbor, remote) in &scene.neighbors {
        let _ = write!(
            text,
            "\n[[neighbor]]\nname = \"{neighbor}\"\naddress = \"{neighbor}\"\nasn = {remote}\n\
             passive = true\n"
        );
        if scene.add_path {
            text.push_str("add_path = \"both\"\nadd_path_send = \"all\"\n");
        }
        if let Some(password) = scene.password {
            let _ = writeln!(text, "password = \"{password}\"");
        }
        text.push_str(if remote == asn {
            "route_reflector_client = true\n"
        } else {
            "import = \"accept\"\nexport = \"accept\"\n"
        });
    }
    if scene.range {
        let (prefix, limit) = (Range::PREFIX, Range::LIMIT);
        let _ = write!(
            text,
            "\n[[neighbor_range]]\nprefix = \"{prefix}\"\nlimit = {limit}\nasn = {asn}\n\
             route_reflector_client = true\n"
        );
    }
    ("route-reflector.toml", text)
}

pub(super) fn arguments(config: &Path) -> Vec<String> {
    vec!["--config".to_owned(), config.display().to_string()]
}
