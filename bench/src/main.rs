//! `bench`: see the library.

use std::process::ExitCode;

use bench::cli::{Arguments, Part, compare};
use bench::traffic::sink;
use bench::{bfd_peer, measured, relay, speed};
use clap::Parser;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.part {
        Some(Part::Measured { output, command }) => measured::run(output, command).map(|()| true),
        Some(Part::Relay { address, asn }) => relay::run(*address, *asn).map(|()| true),
        Some(Part::Sink {
            address,
            first,
            count,
        }) => sink::run(*address, *first, *count).map(|()| true),
        Some(Part::BfdPeer {
            daemon,
            first,
            count,
            interval_ms,
            multiplier,
        }) => bfd_peer::run(*daemon, (*first, *count), (*interval_ms, *multiplier)).map(|()| true),
        Some(Part::Speed) => speed::run(arguments.seed).map(|()| true),
        None => compare(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
