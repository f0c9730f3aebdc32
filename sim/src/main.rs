//! `cambric-sim`: the demo without a lab, and runs of seeds.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cli::Args::parse().run()
}
