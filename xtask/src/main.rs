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
    let done = match task.as_str() {
        "tidy" => commands::tidy(),
        "test" => commands::test(rest),
        "list" => commands::list(),
        "programs" => xtask::programs::check(&xtask::root()),
        "ci" => xtask::ci::run(&xtask::root()),
        "api" => xtask::tidy::api::write(&xtask::root()),
        "promises" => xtask::tidy::promises::write(&xtask::root()),
        "docs" => xtask::site::build(&xtask::root()),
        "package" => xtask::library::run(&xtask::root()),
        "soak" => commands::soak(rest),
        // The runner starts this for a test.
        "enclose" => return ended(runner::enclose(rest)),
        "settle" => return ended(runner::settle(rest)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
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
