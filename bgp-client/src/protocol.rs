//! The `rtm_protocol` of this daemon's routes: a number that no other program of the host uses.

use std::path::PathBuf;

use bgp_config::{Problem, Problems, Source};
use daemon_common::config::integer_in;
use fib_sync::{Owner, claim};
use toml::Spanned;

use crate::limits::PROGRAM;

/// The highest `rtm_protocol` reserved for the kernel, `ip route` and boot scripts.
const PROTOCOL_SYSTEM_MAX: u8 = 4;

/// The default protocol of Felix's routes.
const FELIX_PROTOCOL: i64 = 80;

/// The protocol of BIRD's routes, which a node adopts when it migrates from Calico.
pub(crate) const BIRD: Owner = Owner(12);

/// The metrics at which BIRD writes routes, by its default and by Calico's templates.
pub(crate) const BIRD_METRICS: [u32; 2] = [0, 32];

const PROTOCOL_HELP: &str = "119, the default, or another number from 5 on that no other program of this host uses: this \
     daemon deletes routes of its protocol that no neighbor announces";

/// Reports a protocol that Felix's file configures, or that a running program has claimed.
pub(crate) fn check_machine(own: Owner, source: &Source, problems: &mut Problems<'_>) {
    let place = || source.place_of(&["kernel", "protocol"], None);
    if let Some((path, protocol)) = felix_protocol(source)
        && protocol == i64::from(own.0)
    {
        let message = format!(
            "protocol {} is Felix's: route_protocol of {}",
            own,
            path.display()
        );
        problems.push(Problem::at(place(), message).help(PROTOCOL_HELP));
    } else if let Some(holder) = claim::holder(own, PROGRAM) {
        let message = format!("protocol {} is in use by {holder}", own);
        problems.push(Problem::at(place(), message).help(PROTOCOL_HELP));
    }
}

/// Returns the protocol, which must be 5 or more and not used by another program.
pub(crate) fn owner(
    protocol: Option<&Spanned<u8>>,
    default: Owner,
    problems: &mut Problems<'_>,
) -> Owner {
    let Some(protocol) = protocol else {
        return default;
    };
    let owner = Owner(*protocol.get_ref());
    let message = if owner.0 <= PROTOCOL_SYSTEM_MAX {
        format!("protocol {owner} is the system's own")
    } else if owner != BIRD && owner.name().is_some() {
        format!("protocol {owner} is another program's")
    } else {
        return owner;
    };
    problems.push(Problem::at(protocol.span(), message).help(PROTOCOL_HELP));
    owner
}

/// Returns whether this host has a file of Felix.
pub(crate) fn has_felix(source: &Source) -> bool {
    felix_protocol(source).is_some()
}

/// Returns the protocol that Felix's file on this host configures, if there is one.
fn felix_protocol(source: &Source) -> Option<(PathBuf, i64)> {
    let path = source.beside("felix.toml")?;
    let protocol = integer_in(&path, &["route_protocol"]);
    Some((path, protocol.unwrap_or(FELIX_PROTOCOL)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use fib_sync::claim::Claim;

    use super::*;
    use crate::config::Config;

    const HEAD: &str = "asn = 64512\nrouter_id = \"10.0.0.11\"\nlisten = []\n[kernel]\n";

    /// Returns the report about a file in this directory.
    fn check_file(directory: &Path, kernel: &str) -> Result<(), String> {
        let path = directory.join("bgp-client.toml");
        fs::write(&path, format!("{HEAD}{kernel}\n")).unwrap();
        let read = Config::read(&path);
        read.map(drop).map_err(|report| report.to_string())
    }

    #[test]
    fn protocol_of_another_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (number, name) in [(80, "felix"), (186, "bgp"), (11, "zebra"), (16, "dhcp")] {
            let report = check_file(directory.path(), &format!("protocol = {number}")).unwrap_err();
            let words = format!("protocol {number} ({name}) is another program's");
            assert!(report.contains(&words), "{report}");
            assert!(report.contains("bgp-client.toml:5:12"), "{report}");
            assert!(report.contains("no other program of this host"), "{report}");
        }
        check_file(directory.path(), "protocol = 12").unwrap();
    }

    // Promise: as fib-sync second_program_with_a_protocol_is_refused
    #[test]
    fn protocol_in_felix_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let felix = directory.path().join("felix.toml");
        fs::write(&felix, "route_protocol = 131\n").unwrap();
        let report = check_file(directory.path(), "protocol = 131").unwrap_err();
        assert!(report.contains("protocol 131 is Felix's"), "{report}");
        assert!(report.contains("bgp-client.toml:5:12"), "{report}");
        // A shadow run does not write routes.
        check_file(directory.path(), "protocol = 131\ninstall = false").unwrap();
        check_file(directory.path(), "protocol = 132").unwrap();
        // The default protocol conflicts with Felix's file.
        fs::write(&felix, "route_protocol = 119\n").unwrap();
        assert!(
            check_file(directory.path(), "")
                .unwrap_err()
                .contains("119 is Felix's")
        );
    }

    #[test]
    fn felix_is_awaited_if_its_file_exists_or_the_key_is_true() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bgp-client.toml");
        let awaits = |keys: &str| {
            fs::write(&path, format!("{HEAD}install = false\n{keys}\n")).unwrap();
            let config = Config::read(&path);
            config.map(|config| config.settings.awaits_felix()).unwrap()
        };
        assert!(!awaits("") && awaits("felix = true"));
        fs::write(directory.path().join("felix.toml"), "").unwrap();
        assert!(awaits("") && !awaits("felix = false"));
    }

    #[test]
    fn protocol_of_a_running_program_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _other = Claim::take(Owner(133), "other").unwrap();
        let report = check_file(directory.path(), "protocol = 133").unwrap_err();
        assert!(report.contains("protocol 133 is in use by"), "{report}");
        // A running daemon is not compared with its own claim at a reload.
        let _own = Claim::take(Owner(134), PROGRAM).unwrap();
        check_file(directory.path(), "protocol = 134").unwrap();
    }

    #[test]
    fn packaged_router_id_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bgp-client.toml");
        let packaged = include_str!("../../packaging/etc/bgp-client.toml");
        fs::write(&path, packaged).unwrap();
        let report = Config::read(&path).unwrap_err().to_string();
        let words = "router_id 192.0.2.1 is the example of the packaged file";
        assert!(report.contains(words), "{report}");
        assert!(report.contains("bgp-client.toml:7:13"), "{report}");
        let set = packaged.replace("192.0.2.1\"", "10.0.0.11\"");
        let set = set.replace("#protocol = 119", "protocol = 135");
        fs::write(&path, set).unwrap();
        Config::read(&path).unwrap();
    }

    #[test]
    fn own_address_as_neighbor_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bgp-client.toml");
        let check = |listen: &str, neighbor: &str| {
            let text = format!(
                "asn = 64512\nrouter_id = \"10.0.0.11\"\n{listen}\n[[neighbor]]\n{neighbor}\nasn = 64512\n[kernel]\ninstall = false\n"
            );
            fs::write(&path, text).unwrap();
            Config::read(&path)
                .map(drop)
                .map_err(|report| report.to_string())
        };
        for (listen, neighbor) in [
            ("", "address = \"127.0.0.1\""),
            ("", "address = \"10.0.0.11\""),
            (
                "listen = [\"127.0.0.5:1790\"]",
                "address = \"127.0.0.5\"\nport = 1790",
            ),
            ("listen = [\"[::]:179\"]", "address = \"::1\""),
        ] {
            let report = check(listen, neighbor).unwrap_err();
            assert!(
                report.contains("is this daemon itself"),
                "{listen} {neighbor}: {report}"
            );
            assert!(report.contains("bgp-client.toml:5:11"), "{report}");
        }
        for (listen, neighbor) in [
            ("listen = []", "address = \"127.0.0.1\""),
            ("listen = [\"127.0.0.5:179\"]", "address = \"127.0.0.6\""),
            (
                "listen = [\"0.0.0.0:179\"]",
                "address = \"127.0.0.5\"\nport = 1790",
            ),
            ("", "address = \"192.0.2.77\""),
        ] {
            check(listen, neighbor).unwrap();
        }
    }
}
