//! The reflector's configuration file.

use std::path::{Path, PathBuf};

use intent::{BgpFile, Intent, NextHops, NoKernel, Report, Source};

/// Where the control socket is unless the file says otherwise.
pub const CONTROL_DEFAULT: &str = "/run/cambric/route-reflector.sock";

/// A file, read and found good.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it was read.
    pub path: PathBuf,
    /// Its keys.
    pub file: BgpFile<NoKernel>,
    /// What they mean.
    pub intent: Intent,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn read(path: &Path) -> Result<Self, Report> {
        Self::parse(&Source::read(path)?)
    }

    /// Checks text at hand. A reflector forwards nothing and so looks no next hop up.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn parse(source: &Source) -> Result<Self, Report> {
        let (file, intent) = BgpFile::read(source, NextHops::AssumeReachable)?;
        Ok(Self {
            path: source.path().to_owned(),
            file,
            intent,
        })
    }

    /// Where the control socket is.
    pub fn control(&self) -> PathBuf {
        self.file
            .control
            .clone()
            .unwrap_or_else(|| CONTROL_DEFAULT.into())
    }
}

#[cfg(test)]
mod tests {
    use intent::Source;

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
        assert_eq!(config.intent.speaker.ranges[0].limit, 200);
        assert_eq!(config.intent.speaker.peers[0].name, "rr2");
        assert!(config.intent.notes.is_empty());
    }

    /// I3 begins here: there is no section to configure a kernel in.
    #[test]
    fn a_kernel_section_is_refused() {
        let source = Source::new("rr.toml", format!("{HEAD}[kernel]\ninstall = true\n"));
        let report = Config::parse(&source).expect_err("refused").to_string();
        assert!(report.contains("never writes a route"), "{report}");
    }
}
