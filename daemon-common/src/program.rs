//! The command line that every daemon has.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

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

#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Read the configuration, report every mistake, and exit
    #[arg(long)]
    check: bool,
}

impl About {
    fn command(&self) -> clap::Command {
        Arguments::command()
            .name(self.name)
            .about(self.about)
            .mut_arg("config", |config| {
                config.required(false).default_value(self.config_default)
            })
    }

    fn arguments(&self) -> Result<Arguments, clap::Error> {
        Arguments::from_arg_matches(&self.command().try_get_matches()?)
    }
}

/// Parses the command line and the configuration, and runs the daemon in a runtime of this thread;
/// or only prints a report on the configuration. `notes` are on what is allowed in it but worth
/// knowing.
pub fn start<C, E: Display>(
    about: &About,
    read: impl FnOnce(&Path) -> Result<C, Report>,
    notes: impl FnOnce(&C) -> Vec<String>,
    run: impl AsyncFnOnce(C) -> Result<(), E>,
) -> ExitCode {
    let arguments = about.arguments().unwrap_or_else(|error| error.exit());
    let log = match Logging::begin() {
        Ok(log) => log,
        Err(error) => {
            eprintln!("{}: no thread for the log: {error}", about.name);
            return ExitCode::FAILURE;
        }
    };
    let config = match read(&arguments.config) {
        Ok(config) => config,
        Err(report) => {
            log.write(report);
            return ExitCode::FAILURE;
        }
    };
    if arguments.check {
        notes(&config)
            .iter()
            .for_each(|note| println!("note: {note}"));
        println!("{}: good", arguments.config.display());
        return ExitCode::SUCCESS;
    }
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build();
    let done = match built {
        Ok(runtime) => runtime
            .block_on(run(config))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        let about = About {
            name: "cambric-test",
            about: "Tests.",
            config_default: "/etc/cambric/test.toml",
        };
        about.command().debug_assert();
        let parse = |words: &[&str]| {
            let matches = about.command().try_get_matches_from(words).expect("parses");
            Arguments::from_arg_matches(&matches).expect("fits")
        };
        let plain = parse(&["cambric-test"]);
        assert_eq!(plain.config, Path::new("/etc/cambric/test.toml"));
        assert!(!plain.check);
        let named = parse(&["cambric-test", "--check", "--config", "a.toml"]);
        assert!(named.check && named.config == Path::new("a.toml"));
    }
}
