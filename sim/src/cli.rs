//! The command line of `cambric-sim`, and its commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use netns_lab::fabric::Shape;
use sim::{Options, Plants, demo, run};

/// Simulates whole fabrics in one process
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a fabric, move a workload, remove another one, kill a reflector
    Demo {
        /// Number of nodes
        #[arg(long, default_value_t = demo::SHAPE.nodes, value_name = "N")]
        nodes: u16,
        /// Number of route reflectors
        #[arg(long, default_value_t = demo::SHAPE.reflectors, value_name = "R")]
        reflectors: u16,
        /// Number of workloads on each node
        #[arg(long, default_value_t = demo::SHAPE.workloads_per_node, value_name = "W")]
        workloads: u16,
        /// Seed of the run
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run random failures, then a calm time, with a check of all invariants; once for each seed
    Run {
        /// The first seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of seeds
        #[arg(long, default_value_t = 1)]
        count: u64,
        /// Number of nodes
        #[arg(long, default_value_t = 8)]
        nodes: u16,
    },
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Demo {
                nodes,
                reflectors,
                workloads,
                seed,
            } => {
                let shape = Shape {
                    nodes,
                    reflectors,
                    workloads_per_node: workloads,
                    mesh: false,
                };
                run_story(shape, seed)
            }
            Command::Run { seed, count, nodes } => {
                (seed..seed.saturating_add(count)).all(|seed| chaos(seed, nodes))
            }
        };
        match done {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

fn run_story(shape: Shape, seed: u64) -> bool {
    let outcome = demo::run_with(shape, seed, &mut std::io::stdout().lock());
    if let Err(error) = &outcome {
        eprintln!("{error}");
    }
    outcome.is_ok()
}

fn chaos(seed: u64, nodes: u16) -> bool {
    match run(seed, Options::draw(seed, nodes), Plants::default()) {
        Ok(outcome) => println!(
            "seed {seed}: {} events, converged in {:.3} s of {:.0} s, hash {:016x}",
            outcome.events,
            outcome.converged.as_secs_f64(),
            outcome.took.as_secs_f64(),
            outcome.hash,
        ),
        Err(failure) => {
            eprintln!("{failure}");
            return false;
        }
    }
    true
}
