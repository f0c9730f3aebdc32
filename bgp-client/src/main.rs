//! `cambric-bgp-client`: starts the daemon that the library describes.

use std::path::PathBuf;
use std::process::ExitCode;

use cambric_bgp_client::{Config, Failure, run};
use clap::Parser;

/// Announces this host's workloads over BGP and installs what it learns.
#[derive(Debug, Parser)]
#[command(name = "cambric-bgp-client", version)]
struct Arguments {
    /// The configuration file
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/cambric/bgp-client.toml"
    )]
    config: PathBuf,
    /// Read the configuration, report every mistake, and leave
    #[arg(long)]
    check: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match Config::read(&arguments.config) {
        Ok(config) if arguments.check => {
            config
                .intent
                .notes
                .iter()
                .for_each(|note| println!("note: {note}"));
            println!("{}: good", arguments.config.display());
            Ok(())
        }
        Ok(config) => run(config).await,
        Err(report) => Err(Failure::Config(report)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Config(report)) => {
            eprintln!("{report}");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("cambric-bgp-client: {failure}");
            ExitCode::FAILURE
        }
    }
}
