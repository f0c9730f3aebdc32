//! `cambric-felix`: the agent of a host.

use std::path::PathBuf;
use std::process::ExitCode;

use cambric_felix::config::Config;
use cambric_felix::daemon;
use clap::Parser;

/// Puts this host's workload endpoints into its kernel: interfaces, routes, packet filter.
#[derive(Debug, Parser)]
#[command(name = "cambric-felix", version)]
struct Options {
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/cambric/felix.toml")]
    config: PathBuf,
    /// Check the configuration file and exit.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let config = match Config::read(options.config) {
        Ok(config) => config,
        Err(report) => {
            eprintln!("{report}");
            return ExitCode::FAILURE;
        }
    };
    if options.check {
        return ExitCode::SUCCESS;
    }
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cambric-felix: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config) -> anyhow::Result<()> {
    admin::daemon::init_logging(&config.log, config.log_format)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()?;
    runtime.block_on(daemon::run(config))?;
    Ok(())
}
