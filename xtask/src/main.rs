//! Repository chores: `cargo run -p xtask -- COMMAND`.

use std::process::ExitCode;

use anyhow::Result;
use xtask::commands::{self, USAGE};
use xtask::runner;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((task, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // The runner starts these for a test.
    match task.as_str() {
        "enclose" => return ended(runner::enclose(rest)),
        "settle" => return ended(runner::settle(rest)),
        _ => {}
    }
    match commands::run(task, rest) {
        Ok(Some(true)) => ExitCode::SUCCESS,
        Ok(Some(false)) => ExitCode::FAILURE,
        Ok(None) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("{task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the exit code of an enclosed command.
fn ended(code: Result<u8>) -> ExitCode {
    code.map_or_else(
        |error| {
            eprintln!("namespaces for a test: {error:#}");
            ExitCode::FAILURE
        },
        ExitCode::from,
    )
}
