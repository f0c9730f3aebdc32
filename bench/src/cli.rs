//! The command line: workloads, daemons and rounds.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use netns_lab::Lab;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::daemons::Kind;
use crate::fabric::Origins;
use crate::limits::{CHURN, CHURN_QUICK, PATIENCE, PATIENCE_QUICK};
use crate::report::Report;
use crate::stage::{BfdSizes, Options, Sizes};
use crate::work::Work;

/// Compares the route reflector with other daemons: time, CPU and memory, with every route checked
#[derive(Debug, Parser)]
#[command(name = "bench")]
pub struct Arguments {
    /// Workloads, in this order [default: all]
    #[arg(long, value_delimiter = ',')]
    work: Vec<Work>,
    /// Daemons of each round, in this order [default: those of the workload's bars]
    #[arg(long, value_delimiter = ',')]
    daemons: Vec<Kind>,
    /// Number of rounds: each runs every other daemon once, and Cambric right before each of them. The
    /// table has medians. Long workloads have fewer rounds
    #[arg(long, default_value_t = 7)]
    pairs: usize,
    /// Write all values to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Small sizes and one round: checks all workloads in a minute
    #[arg(long)]
    quick: bool,
    /// Start the daemon with this command, such as "perf record -g -o FILE --"
    #[arg(long, value_name = "COMMAND", default_value = "")]
    wrap: String,
    /// Seconds of churn [default: 120, with --quick 6]
    #[arg(long, value_name = "SECONDS")]
    churn: Option<u64>,
    #[command(flatten)]
    bfd: BfdSizes,
    /// Origin validation at the reflectors of path: each round has a run with `off`, then one with this
    /// mode
    #[arg(long, value_name = "MODE")]
    origins: Option<Origins>,
    /// Policies of felix and rules [default: 2000 and 1000, with --quick 40]
    #[arg(long, value_name = "NUMBER")]
    policies: Option<u32>,
    /// Endpoints of other nodes of felix and rules [default: 2000 and 10000, with --quick 40]
    #[arg(long, value_name = "NUMBER")]
    remote: Option<u32>,
    /// Endpoints of the measured node of felix and rules [default: 200, with --quick 4]
    #[arg(long, value_name = "NUMBER")]
    local: Option<u32>,
    /// Seed of the random routes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(subcommand)]
    /// Another task of this program.
    pub part: Option<Part>,
}

/// Other tasks of the program.
#[derive(Debug, Subcommand)]
pub enum Part {
    /// Measure the load generator itself, without sockets
    Speed,
    /// Run a program, and print its CPU time and memory (started by the benchmark itself)
    #[command(hide = true)]
    Measured {
        /// The file for its output
        output: PathBuf,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Run the relay without tables (started by the benchmark itself)
    #[command(hide = true)]
    Relay {
        /// The listening address
        address: Ipv4Addr,
        /// The AS number
        asn: u32,
    },
    /// Answer BFD at so many addresses (started by the benchmark itself)
    #[command(hide = true)]
    BfdPeer {
        /// The address of the daemon
        daemon: Ipv4Addr,
        /// The first own address
        first: Ipv4Addr,
        /// The number of own addresses
        count: u32,
        /// The interval in milliseconds
        interval_ms: u32,
        /// The multiplier
        multiplier: u8,
    },
    /// Accept and read connections (started by the benchmark itself)
    #[command(hide = true)]
    Sink {
        /// The listening address
        address: Ipv4Addr,
        /// The first port
        first: u16,
        /// The number of ports
        count: u16,
    },
}

/// Runs all rounds, prints the table, and returns whether every run was correct.
pub fn compare(arguments: &Arguments) -> Result<bool> {
    // Raises the limit of open files to its maximum: daemons inherit it.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let report = runtime.block_on(rounds(arguments))?;
    println!("\n{}", report.table());
    for failure in report.failures() {
        println!("FAILED {failure}");
    }
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", report.json());
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(report.failures().is_empty())
}

/// Returns the runs of one round, in order: Cambric right before each of the others.
fn order(daemons: &[Kind]) -> Vec<Kind> {
    let others = daemons.iter().filter(|kind| **kind != Kind::Cambric);
    let pairs: Vec<_> = others.flat_map(|&other| [Kind::Cambric, other]).collect();
    if pairs.is_empty() || !daemons.contains(&Kind::Cambric) {
        return daemons.to_vec();
    }
    pairs
}

async fn rounds(arguments: &Arguments) -> Result<Report> {
    let options = Options {
        seed: arguments.seed,
        quick: arguments.quick,
        wrap: arguments
            .wrap
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        churn: match arguments.churn {
            Some(seconds) => Duration::from_secs(seconds),
            None if arguments.quick => CHURN_QUICK,
            None => CHURN,
        },
        bfd: arguments.bfd,
        origins: arguments.origins,
        policies: Sizes {
            policies: arguments.policies,
            remote: arguments.remote,
            local: arguments.local,
        },
        patience: if arguments.quick {
            PATIENCE_QUICK
        } else {
            PATIENCE
        },
    };
    let works = if arguments.work.is_empty() {
        Work::value_variants()
    } else {
        &arguments.work
    };
    let lab = Lab::new().await?;
    let mut report = Report::default();
    for &work in works {
        let daemons = if arguments.daemons.is_empty() {
            work.daemons()
        } else {
            &arguments.daemons
        };
        for kind in daemons {
            let name = kind.name();
            ensure!(
                kind.program().is_some(),
                "{name} is not there: `make bench` builds and installs all"
            );
        }
        let pairs = if arguments.quick {
            1
        } else {
            arguments.pairs.min(work.rounds_max())
        };
        for round in 1..=pairs {
            for kind in order(daemons) {
                let began = Instant::now();
                let run = work.run(&lab, kind, &options).await;
                let run = run.map_err(|error| format!("{error:#}"));
                let (work_name, name) = (work.name(), kind.name());
                match &run {
                    Ok(measures) => {
                        let values = measures
                            .iter()
                            .map(|(name, value)| format!("{name} {value:.3}"));
                        let values: Vec<_> = values.collect();
                        println!("{work_name} {round}/{pairs} {name}: {}", values.join(", "));
                    }
                    Err(error) => println!("{work_name} {round}/{pairs} {name} FAILED: {error}"),
                }
                println!("  ({:.1} s in all)", began.elapsed().as_secs_f64());
                report.enter(work, kind, run);
            }
        }
    }
    Ok(report)
}
