//! `cambric`: the operator's command line.

use std::process::ExitCode;

use clap::Parser;

mod act;
mod addresses;
mod ask;
mod cli;
mod decode;
mod lab;
mod migrate;
mod node;
mod reflector;
mod resources;
mod show;
mod store;
mod table;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cambric: {error:#}");
            ExitCode::FAILURE
        }
    }
}
