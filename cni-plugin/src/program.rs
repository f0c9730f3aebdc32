//! The program: reads a request and writes a result.

use std::process::ExitCode;

use serde_json::Value;

use crate::failure::{Code, Failure};
use crate::request::{Command, Request};
use crate::{attach, check, collect, detach, ipam, status, version};

/// Performs the request of a runtime, and returns the text for standard output.
///
/// # Errors
///
/// The request failed.
pub async fn run(request: &Request) -> Result<Option<Value>, Failure> {
    match request.command {
        Command::Add => attach::add(request).await.map(Some),
        Command::Del => detach::del(request).await.map(|()| None),
        Command::Version => Ok(Some(version::answer(request.version()))),
        Command::Check => check::check(request).await.map(|()| None),
        Command::Gc => collect::collect(request).await.map(|()| None),
        Command::Status => status::status(request).await.map(|()| None),
    }
}

/// Performs the request of another plugin for address management.
///
/// # Errors
///
/// The request failed.
pub async fn run_ipam(request: &Request) -> Result<Option<Value>, Failure> {
    match request.command {
        Command::Version => Ok(Some(version::answer(request.version()))),
        Command::Add => ipam::add(request).await.map(Some),
        Command::Del => ipam::del(request).await.map(|()| None),
        Command::Check => ipam::check(request).await.map(|()| None),
        Command::Gc => collect::collect_addresses(request).await.map(|()| None),
        Command::Status => status::status_of_addresses(request).await.map(|()| None),
    }
}

/// Runs one of the two as a process: the result or failure goes to standard output.
pub fn start(run: impl AsyncFnOnce(&Request) -> Result<Option<Value>, Failure>) -> ExitCode {
    let (version, done) = match Request::read() {
        Ok(request) => (request.version().to_owned(), in_runtime(run, &request)),
        Err(failure) => (String::new(), Err(failure)),
    };
    match done {
        Ok(answer) => {
            if let Some(answer) = answer {
                println!("{answer}");
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let version = if version.is_empty() {
                "1.1.0"
            } else {
                &version
            };
            println!("{}", failure.json(version));
            ExitCode::FAILURE
        }
    }
}

fn in_runtime(
    run: impl AsyncFnOnce(&Request) -> Result<Option<Value>, Failure>,
    request: &Request,
) -> Result<Option<Value>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::Io, format!("starting: {error}")))?;
    let done = runtime.block_on(run(request));
    // Threads that wait for a lock end with the process.
    runtime.shutdown_background();
    done
}
