//! Delegated plugins, run as specified by CNI.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command as Process};
use tokio::time::timeout;

use crate::failure::{Code, Failure};
use crate::limits::{ANSWER_OCTETS_MAX, DELEGATE_TIMEOUT};
use crate::pod_networks;
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
    let talk = converse(
        &mut child,
        pod_networks::neutral(&request.config).to_string(),
    );
    let (status, output) = match timeout(DELEGATE_TIMEOUT, talk).await {
        Ok(output) => output.map_err(|error| fail(&error))?,
        Err(_) => return Err(fail(&format!("no answer within {DELEGATE_TIMEOUT:?}"))),
    };
    let answer: Option<Value> = serde_json::from_slice(&output).ok();
    if status.success() {
        return Ok(answer.unwrap_or_default());
    }
    let error = answer.unwrap_or_default();
    let message = error["msg"]
        .as_str()
        .map_or_else(|| status.to_string(), str::to_owned);
    let mut failure = fail(&message).details(error["details"].as_str().unwrap_or_default());
    // The plugin's own code is more useful to the runtime than the code for a failed plugin.
    if let Some(code) = error["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| *code != 0)
    {
        failure.code = code;
    }
    Err(failure)
}

/// Writes a plugin's input, and reads its output until it ends. Both happen at the same time: the
/// plugin may write more than a pipe holds before it reads.
async fn converse(child: &mut Child, input: String) -> io::Result<(ExitStatus, Vec<u8>)> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A plugin that does not read its input reports the reason on its output.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        io::Result::Ok(())
    };
    let read = async {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            let mut stdout = stdout.take(ANSWER_OCTETS_MAX + 1);
            stdout.read_to_end(&mut output).await?;
        }
        if output.len() as u64 > ANSWER_OCTETS_MAX {
            let message = format!("its answer has more than {ANSWER_OCTETS_MAX} octets");
            return Err(io::Error::other(message));
        }
        Ok(output)
    };
    // The write stops if the output exceeds the limit.
    let (output, ()) = tokio::try_join!(read, write)?;
    Ok((child.wait().await?, output))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::{collections::BTreeMap, fs};

    use super::*;

    /// Runs this script as a plugin, with a request of many octets.
    fn asked(script: &str) -> Result<Value, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("plugin");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let request = Request {
            command: Command::Add,
            container_id: "a".into(),
            netns: None,
            ifname: "eth0".into(),
            args: BTreeMap::new(),
            path: vec![directory.path().to_owned()],
            config: Value::from("x".repeat(500_000)),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(run("plugin", &request))
    }

    #[test]
    fn delegate_with_endless_output_is_rejected() {
        let failure = asked("yes").unwrap_err();
        assert_eq!(failure.code, Code::Delegate as u16);
        let message = failure.message;
        assert!(
            message.ends_with("has more than 1048576 octets"),
            "{message}"
        );
    }

    #[test]
    fn delegate_may_write_before_reading_or_not_read() {
        let long = "printf '\"%0500000d\"' 7";
        let answer = asked(&format!("{long}; cat >/dev/null")).unwrap();
        assert_eq!(answer.as_str().unwrap().len(), 500_000);
        assert_eq!(
            asked("echo '{\"ips\": []}'").unwrap()["ips"],
            Value::Array(vec![])
        );
        let failed = asked("echo '{\"code\": 117, \"msg\": \"no\"}'; exit 1").unwrap_err();
        assert_eq!(failed.code, 117);
    }
}
