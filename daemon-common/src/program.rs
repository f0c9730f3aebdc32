//! The command line that every daemon has.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::{Arg, Parser};

use crate::config::Report;
use crate::log::Logging;

/// The texts of a daemon's command line.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The name of its executable.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// The configuration file unless the command line names another.
    pub config_default: &'static str,
}

/// The request of a command line.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// Read the file; only `check` it, or run.
    Start { config: PathBuf, check: bool },
}

impl About {
    fn request(&self, words: impl IntoIterator<Item = OsString>) -> Result<Request, lexopt::Error> {
        let (mut config, mut check) = (PathBuf::from(self.config_default), false);
        let mut parser = Parser::from_iter(words);
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Long("config") => config = parser.value()?.into(),
                Arg::Long("check") => check = true,
                Arg::Long("help") | Arg::Short('h') => return Ok(Request::Help),
                Arg::Long("version") | Arg::Short('V') => return Ok(Request::Version),
                other => return Err(other.unexpected()),
            }
        }
        Ok(Request::Start { config, check })
    }
}

impl Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, about, .. } = self;
        write!(
            f,
            "{about}\n\nUsage: {name} [OPTIONS]\n\nOptions:\n      \
             --config <FILE>  The configuration file [default: {}]\n      \
             --check          Read the configuration, report every mistake, and exit\n  \
             -h, --help           Print help\n  \
             -V, --version        Print version",
            self.config_default
        )
    }
}

/// Parses the command line and the configuration, and runs the daemon in a runtime of this thread;
/// or only prints a report on the configuration. `notes` are on what is allowed in it but worth
/// knowing. `confine` restricts this process before it starts any other thread; its result is passed
/// to `run`. Or it does all of this process's work, and returns the exit code.
pub fn start<C, X, E: Display>(
    about: &About,
    read: impl FnOnce(&Path) -> Result<C, Report>,
    notes: impl FnOnce(&C) -> Vec<String>,
    confine: impl FnOnce(C) -> Result<(C, X), ExitCode>,
    run: impl AsyncFnOnce(C, X) -> Result<(), E>,
) -> ExitCode {
    let (path, check) = match about.request(std::env::args_os()) {
        Ok(Request::Start { config, check }) => (config, check),
        Ok(Request::Help) => return answer(about),
        Ok(Request::Version) => {
            return answer(format_args!("{} {}", about.name, env!("CARGO_PKG_VERSION")));
        }
        Err(error) => {
            eprintln!("error: {error}\n\nFor more information, try '--help'.");
            return ExitCode::from(USAGE);
        }
    };
    // No thread runs yet.
    let read = match read(&path) {
        Ok(config) if !check => match confine(config) {
            Ok((config, confined)) => Ok((config, Some(confined))),
            Err(code) => return code,
        },
        Ok(config) => Ok((config, None)),
        Err(report) => Err(report),
    };
    let log = match Logging::begin() {
        Ok(log) => log,
        Err(error) => {
            eprintln!("{}: no thread for the log: {error}", about.name);
            return ExitCode::FAILURE;
        }
    };
    let (config, confined) = match read {
        Ok((config, Some(confined))) => (config, confined),
        Ok((config, None)) => {
            notes(&config)
                .iter()
                .for_each(|note| println!("note: {note}"));
            return answer(format_args!("{}: good", path.display()));
        }
        Err(report) => {
            log.write(report);
            return ExitCode::FAILURE;
        }
    };
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build();
    let done = match built {
        Ok(runtime) => runtime
            .block_on(run(config, confined))
            .map_err(|error| error.to_string()),
        Err(error) => Err(format!("no runtime: {error}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log.write(format_args!("{}: {failure}", about.name));
            ExitCode::FAILURE
        }
    }
}

/// The exit code of a mistake on the command line.
const USAGE: u8 = 2;

fn answer(text: impl Display) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About = About {
        name: "cambric-test",
        about: "Tests.",
        config_default: "/etc/cambric/test.toml",
    };

    fn request(words: &[&str]) -> Result<Request, String> {
        let words = ["cambric-test"].iter().chain(words).map(OsString::from);
        ABOUT.request(words).map_err(|error| error.to_string())
    }

    #[test]
    fn command_line_names_the_file_and_the_request() {
        let start = |config: &str, check| {
            let config = config.into();
            Ok(Request::Start { config, check })
        };
        assert_eq!(request(&[]), start("/etc/cambric/test.toml", false));
        assert_eq!(
            request(&["--check", "--config", "a.toml"]),
            start("a.toml", true)
        );
        assert_eq!(request(&["--config=a.toml"]), start("a.toml", false));
        assert_eq!(request(&["-h"]), Ok(Request::Help));
        assert_eq!(request(&["--version"]), Ok(Request::Version));
        for wrong in [&["--chek"][..], &["a.toml"], &["--config"], &["--check=1"]] {
            assert!(request(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn help_names_every_option() {
        let help = ABOUT.to_string();
        for option in [
            "--config <FILE>",
            "--check",
            "--help",
            "--version",
            "/etc/cambric/test.toml",
        ] {
            assert!(help.contains(option), "{help}");
        }
    }
}
