//! CPU time and memory of a program that ends: another process of this program runs it, waits for it,
//! and prints the kernel's account.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netns_lab::Program;
use nix::sys::resource::{UsageWho, getrusage};

/// The resources that a program has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// CPU time of the program and of the programs that it has waited for.
    pub cpu: Duration,
    /// The largest resident set of one of them.
    pub peak_octets: u64,
}

impl Used {
    /// Parses the line that [`run`] prints.
    pub fn parse(text: &str) -> Result<Self> {
        let words = text.split_whitespace().map(str::parse);
        let words: Vec<u64> = words.collect::<Result<_, _>>().context("an account")?;
        let [cpu_us, peak_octets] = *words else {
            anyhow::bail!("not an account: {text}");
        };
        Ok(Self {
            cpu: Duration::from_micros(cpu_us),
            peak_octets,
        })
    }
}

/// Returns the command of this program that runs another one with [`run`].
pub fn command(output: &Path, program: &Path, arguments: &[&str]) -> Result<Program> {
    let own = std::env::current_exe().context("finding this program")?;
    let own = Program::new(own).arg("measured").arg(output);
    Ok(own.arg("--").arg(program).args(arguments.iter().copied()))
}

/// Runs a program with its output in a file, and prints a line: microseconds of CPU and octets.
pub fn run(output: &Path, command: &[OsString]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments).stdout(File::create(output)?);
    let status = command.status().with_context(|| format!("{program:?}"))?;
    ensure!(status.success(), "{program:?}: {status}");
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    let micros = |value: nix::sys::time::TimeVal| value.tv_sec() * 1_000_000 + value.tv_usec();
    let cpu = micros(used.user_time()) + micros(used.system_time());
    println!("{cpu} {}", used.max_rss() * 1024);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_is_parsed_and_other_text_is_an_error() {
        let used = Used::parse("1500000 4096\n").unwrap();
        assert_eq!(used.cpu, Duration::from_millis(1500));
        assert_eq!(used.peak_octets, 4096);
        for text in ["", "1", "1 2 3", "1 -2"] {
            assert!(Used::parse(text).is_err(), "{text}");
        }
    }
}
