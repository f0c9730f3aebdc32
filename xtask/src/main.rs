//! Repository chores: `cargo run -p xtask -- tidy`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    match task.as_deref() {
        Some("tidy") => tidy(),
        _ => {
            eprintln!("usage: cargo run -p xtask -- tidy");
            ExitCode::from(2)
        }
    }
}

fn tidy() -> ExitCode {
    match xtask::tidy::run(&xtask::root()) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("tidy: {} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
