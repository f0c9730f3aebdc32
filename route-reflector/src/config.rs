//! The reflector's configuration file: the sections of all BGP daemons, and no other.

use bgp_config::{NextHops, NoKernel, Problems};

/// A parsed and validated file.
pub type Config = bgp_daemon::Config<Settings>;

/// The reflector has no section of its own.
#[derive(Clone, Copy, Debug)]
pub struct Settings;

impl bgp_daemon::Settings for Settings {
    type Section = NoKernel;

    const DAEMON: &'static str = "route-reflector";

    // A reflector does not forward packets and so does not resolve next hops.
    const NEXT_HOPS: NextHops = NextHops::AssumeReachable;

    const REFLECTS: bool = true;

    fn check(_: Option<&NoKernel>, _: &mut Problems<'_>) -> Self {
        Self
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use bgp_config::Source;

    use super::Config;

    const HEAD: &str = "asn = 64512\nrouter_id = \"10.0.0.1\"\n";

    #[test]
    fn the_page_of_the_manual_is_right() {
        let manual = include_str!("../../docs/operate/route-reflector.md");
        let example = manual
            .split("```toml\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let source = Source::new("manual.toml", example.expect("an example"));
        let config = Config::parse(&source).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(
            config.intent().expect("all in the file").speaker.ranges[0].limit,
            200
        );
        assert_eq!(
            config.intent().expect("all in the file").speaker.peers[0].name,
            "rr2"
        );
        assert!(config.notes().is_empty());
    }

    #[test]
    fn the_packaged_file_shows_defaults_and_examples_that_are_right() {
        let packaged = include_str!("../../packaging/etc/route-reflector.toml");
        let read = |text: &str| Config::parse(&Source::new("route-reflector.toml", text));
        let intent = |config: &Config| config.intent().expect("all in the file").clone();
        let plain = read(packaged).unwrap_or_else(|report| panic!("{report}"));
        let stored = read(&daemon_common::config::alternative(packaged));
        let stored = stored.unwrap_or_else(|report| panic!("{report}"));
        assert!(stored.intent().is_none(), "it is in the datastore");
        assert!(stored.file.secrets.is_some() && stored.file.datastore_snapshot.is_some());
        let all = daemon_common::config::uncommented(packaged);
        let all = read(&all).unwrap_or_else(|report| panic!("{report}\n{all}"));
        assert_eq!(all.control(), plain.control());
        assert_eq!(intent(&all).restart_wait, intent(&plain).restart_wait);
        assert_eq!(
            intent(&all).speaker.families,
            intent(&plain).speaker.families
        );
        assert_eq!(intent(&all).speaker.peers.len(), 1);
        assert_eq!(intent(&all).speaker.ranges.len(), 1);
    }

    #[test]
    fn reflectors_key_is_rejected_for_a_reflector() {
        let text = "reflectors = 2\n[datastore]\nendpoints = [\"http://s:2379\"]\n";
        let report = Config::parse(&Source::new("rr.toml", text)).expect_err("refused");
        let report = report.to_string();
        assert!(
            report.contains("rr.toml:1:14") && report.contains("for nodes"),
            "{report}"
        );
    }

    /// I3: without this section a reflector cannot be configured to write kernel routes.
    #[test]
    fn a_kernel_section_is_refused() {
        let source = Source::new("rr.toml", format!("{HEAD}[kernel]\ninstall = true\n"));
        let report = Config::parse(&source).expect_err("refused").to_string();
        assert!(report.contains("never writes a route"), "{report}");
    }
}
