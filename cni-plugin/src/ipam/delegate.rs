//! Other plugins, run as the specification has it.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command as Process;
use tokio::time::timeout;

use crate::failure::{Code, Failure};
use crate::limits::{ANSWER_OCTETS_MAX, DELEGATE_TIMEOUT};
use crate::request::{Command, Request};

/// Runs the plugin of this name with a request, and returns its answer.
pub(crate) async fn run(plugin: &str, request: &Request) -> Result<Value, Failure> {
    let program = find(plugin, request)?;
    let fail = |error: &dyn std::fmt::Display| {
        Failure::new(
            Code::Delegate,
            format!("plugin {}: {error}", program.display()),
        )
    };
    let mut child = Process::new(&program)
        .env("CNI_COMMAND", command(request.command))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| fail(&error))?;
    let input = request.config.to_string();
    let talk = async {
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read its input says why on its output.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = match timeout(DELEGATE_TIMEOUT, talk).await {
        Ok(output) => output.map_err(|error| fail(&error))?,
        Err(_) => return Err(fail(&format!("no answer within {DELEGATE_TIMEOUT:?}"))),
    };
    if output.stdout.len() > ANSWER_OCTETS_MAX {
        return Err(fail(&format!(
            "its answer has more than {ANSWER_OCTETS_MAX} octets"
        )));
    }
    let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    if output.status.success() {
        return Ok(answer.unwrap_or_default());
    }
    let said = answer.unwrap_or_default();
    let message = said["msg"]
        .as_str()
        .map_or_else(|| output.status.to_string(), str::to_owned);
    let mut failure = fail(&message).details(said["details"].as_str().unwrap_or_default());
    // Its own number tells the runtime more than that it was a plugin of ours that failed.
    if let Some(code) = said["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| *code != 0)
    {
        failure.code = code;
    }
    Err(failure)
}

const fn command(command: Command) -> &'static str {
    match command {
        Command::Add => "ADD",
        Command::Del => "DEL",
        Command::Check => "CHECK",
        Command::Gc => "GC",
        Command::Status => "STATUS",
        Command::Version => "VERSION",
    }
}

fn find(plugin: &str, request: &Request) -> Result<PathBuf, Failure> {
    let places = request.path.iter().map(|directory| directory.join(plugin));
    let mut there = places.filter(|path| path.is_file());
    there.next().ok_or_else(|| {
        let path: Vec<String> = request
            .path
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let message = format!(
            "ipam.type: plugin \"{plugin}\" is not in CNI_PATH ({})",
            path.join(":")
        );
        Failure::new(Code::Config, message)
    })
}
