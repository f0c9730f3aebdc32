//! The command line that every daemon has.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::{Arg, Parser};

use crate::client::{self, CallError};
use crate::config::Report;
use crate::log::Logging;
use crate::{Command, Reply};

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
    /// Read the file, and do this with it.
    Start { config: PathBuf, work: Work },
}

/// The work with a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Run,
    /// Only report its mistakes.
    Check,
    /// Let the running daemon apply it.
    Reload,
}

impl About {
    fn request(&self, words: impl IntoIterator<Item = OsString>) -> Result<Request, lexopt::Error> {
        let (mut config, mut work) = (PathBuf::from(self.config_default), Work::Run);
        let mut parser = Parser::from_iter(words);
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Long("config") => config = parser.value()?.into(),
                Arg::Long("check") if work != Work::Reload => work = Work::Check,
                Arg::Long("reload") if work != Work::Check => work = Work::Reload,
                Arg::Long("help") | Arg::Short('h') => return Ok(Request::Help),
                Arg::Long("version") | Arg::Short('V') => return Ok(Request::Version),
                other => return Err(other.unexpected()),
            }
        }
        Ok(Request::Start { config, work })
    }
}

impl Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, about, .. } = self;
        write!(
            f,
            "{about}\n\nUsage: {name} [OPTIONS]\n\nOptions:\n      \
             --config <FILE>  The configuration file [default: {}]\n      \
             --check          Read the configuration, report every mistake, and exit\n      \
             --reload         Let the running daemon apply the configuration; fail if it does not\n  \
             -h, --help           Print help\n  \
             -V, --version        Print version",
            self.config_default
        )
    }
}

/// Parses the command line and the configuration, and runs the daemon in a runtime of this thread;
/// or only prints a report on the configuration. `notes` are on what is allowed in it but worth
/// knowing. `control` is the socket of the running daemon, which applies a file at a reload.
/// `confine` restricts this process before it starts any other thread; its result is passed
/// to `run`. Or it does all of this process's work, and returns the exit code.
pub fn start<C, X, E: Display>(
    about: &About,
    read: impl FnOnce(&Path) -> Result<C, Report>,
    notes: impl FnOnce(&C) -> Vec<String>,
    control: impl FnOnce(&C) -> PathBuf,
    confine: impl FnOnce(C) -> Result<(C, X), ExitCode>,
    run: impl AsyncFnOnce(C, X) -> Result<(), E>,
) -> ExitCode {
    let (path, work) = match about.request(std::env::args_os()) {
        Ok(Request::Start { config, work }) => (config, work),
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
        Ok(config) if work == Work::Run => match confine(config) {
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
            if work == Work::Reload {
                return reload(about.name, &control(&config));
            }
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

/// Lets the daemon at this control socket apply its file. Returns once the file is in effect.
fn reload(name: &str, control: &Path) -> ExitCode {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let error = match built {
        Ok(runtime) => match runtime.block_on(client::call(control, &Command::Reload {})) {
            Ok(Reply::Reload(done)) => return answer(format_args!("{}: in effect", done.config)),
            Ok(_) => "an answer to something else".to_owned(),
            Err(CallError::Absent(at) | CallError::Refused(at)) => format!(
                "{}: no daemon is at this control socket of the file: start it, or restart it if \
                 `control` has changed",
                at.display()
            ),
            Err(error) => error.to_string(),
        },
        Err(error) => format!("no runtime: {error}"),
    };
    eprintln!("{name}: not reloaded: {error}");
    ExitCode::FAILURE
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
        let start = |config: &str, work| {
            let config = config.into();
            Ok(Request::Start { config, work })
        };
        assert_eq!(request(&[]), start("/etc/cambric/test.toml", Work::Run));
        assert_eq!(
            request(&["--check", "--config", "a.toml"]),
            start("a.toml", Work::Check)
        );
        assert_eq!(request(&["--config=a.toml"]), start("a.toml", Work::Run));
        assert_eq!(
            request(&["--reload", "--config", "a.toml"]),
            start("a.toml", Work::Reload)
        );
        assert_eq!(request(&["-h"]), Ok(Request::Help));
        assert_eq!(request(&["--version"]), Ok(Request::Version));
        for wrong in [
            &["--chek"][..],
            &["a.toml"],
            &["--config"],
            &["--check=1"],
            &["--check", "--reload"],
            &["--reload", "--check"],
        ] {
            assert!(request(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn help_names_every_option() {
        let help = ABOUT.to_string();
        for option in [
            "--config <FILE>",
            "--check",
            "--reload",
            "--help",
            "--version",
            "/etc/cambric/test.toml",
        ] {
            assert!(help.contains(option), "{help}");
        }
    }
}
