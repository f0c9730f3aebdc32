//! Common parts of the comparisons.

mod bgpdump;
mod known;
mod page;
mod pcap;
mod tshark;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// A file or directory of the data beside the workspace, if it is there.
fn data(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data")
        .join(name);
    if !path.exists() {
        println!("skipped: no {name} beside the workspace");
    }
    path.exists().then_some(path)
}

/// Whether a program can be run; prints a note if not.
fn installed(program: &str) -> bool {
    let run = Command::new(program)
        .arg("-h")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if run.is_err() {
        println!("skipped: {program} is not installed");
    }
    run.is_ok()
}

/// Standard output of a program.
fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Standard output of a program, line by line. It need not be read to its end: the program is
/// killed with the value.
struct Lines {
    child: Child,
    output: std::io::Lines<BufReader<ChildStdout>>,
}

fn lines(command: &mut Command) -> Lines {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap()).lines();
    Lines { child, output }
}

impl Iterator for Lines {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let line = self.output.next().map(Result::unwrap);
        if line.is_none() {
            assert!(self.child.wait().unwrap().success());
        }
        line
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of `cambric decode`.
fn decode(option: &str, path: &Path) -> impl Iterator<Item = Value> + use<> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cambric"));
    lines(command.args(["decode", option]).arg(path))
        .map(|line| serde_json::from_str(&line).unwrap())
}

/// The text of a JSON string; empty for anything else.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a JSON array; empty for any other value.
fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
