//! `cambric-sim`: runs seeds of the simulator.

use std::process::ExitCode;

use clap::Parser;
use sim::{Options, Plants, run};

/// Runs whole fabrics in one process, a seed each
#[derive(Debug, Parser)]
struct Args {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// How many nodes
    #[arg(long, default_value_t = 8)]
    nodes: u16,
}

fn main() -> ExitCode {
    let args = Args::parse();
    for seed in args.seed..args.seed.saturating_add(args.count) {
        match run(seed, Options::draw(seed, args.nodes), Plants::default()) {
            Ok(outcome) => println!(
                "seed {seed}: {} events, converged in {:.3} s of {:.0} s, hash {:016x}",
                outcome.events,
                outcome.converged.as_secs_f64(),
                outcome.took.as_secs_f64(),
                outcome.hash,
            ),
            Err(failure) => {
                eprintln!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
