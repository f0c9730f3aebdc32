//! `cambric`: the operator's command line.

use std::process::ExitCode;

use clap::Parser;
use daemon_common::log::Logging;

mod act;
mod addresses;
mod ask;
mod check;
mod cli;
mod decode;
mod duration;
mod etcd_roles;
mod events;
mod flows;
mod guard;
mod key;
mod kube;
#[cfg_attr(not(feature = "lab"), path = "lab/missing.rs")]
mod lab;
mod log;
mod migrate;
mod node;
#[cfg(test)]
mod pages;
mod policy;
mod reflector;
mod resources;
mod show;
mod store;
mod table;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints the error of a command. A store ends also if its standard error is not read.
fn report(error: &anyhow::Error) {
    match Logging::begin() {
        Ok(log) => log.write(format_args!("cambric: {error:#}")),
        Err(_) => eprintln!("cambric: {error:#}"),
    }
}
