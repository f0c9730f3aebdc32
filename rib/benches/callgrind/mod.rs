//! Steps that valgrind's callgrind counts, each in a process of its own, compared with a reference.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The simulated cache: 1 MiB, 16 ways, lines of 64 octets.
const CACHE: &str = "--LL=1048576,16,64";
/// A step is worse above this ratio to the reference: compilers differ by a few percent.
const WORSE: f64 = 1.05;

/// A step: it prepares its inputs, then runs the measured work in [`counted`].
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) run: fn(),
}

/// Runs the measured work: callgrind counts during this call.
#[inline(never)]
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// The cost of one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    instructions: f64,
    misses: f64,
}

/// Steps, each of which performs an operation on a number of units.
pub(crate) struct Bench {
    pub(crate) package: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) units: usize,
    pub(crate) steps: &'static [Step],
    /// The file of the reference.
    pub(crate) reference: &'static str,
}

impl Bench {
    /// Runs a step under valgrind, in a process of its own.
    fn measure(&self, step: &Step) -> Result<Cost, String> {
        let out =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind.{}", step.name));
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let status = Command::new("valgrind")
            .args([
                "--tool=callgrind",
                "--toggle-collect=*counted*",
                "--cache-sim=yes",
                CACHE,
            ])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(own)
            .args(["--step", step.name])
            .stderr(Stdio::null())
            .status();
        match status {
            Ok(status) if status.success() => self.cost(&out),
            Ok(status) => Err(format!("{}: {status} under valgrind", step.name)),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(
                "valgrind is not installed, and it is what counts: apt-get install valgrind"
                    .to_owned(),
            ),
            Err(error) => Err(format!("valgrind: {error}")),
        }
    }

    /// Reads the sums of a callgrind file.
    fn cost(&self, file: &Path) -> Result<Cost, String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let words = |key: &str| {
            let line = text.lines().rev().find_map(|line| line.strip_prefix(key));
            line.map(|line| line.split_whitespace().map(str::to_owned))
        };
        let (Some(names), Some(counts)) = (words("events:"), words("totals:")) else {
            return Err(format!("{}: no totals", file.display()));
        };
        let counts: BTreeMap<String, f64> = names
            .zip(counts.map(|count| count.parse().unwrap_or(0.0)))
            .collect();
        let sum = |names: &[&str]| {
            let counts = names.iter().filter_map(|name| counts.get(*name));
            counts.sum::<f64>() / self.units as f64
        };
        Ok(Cost {
            instructions: sum(&["Ir"]),
            misses: sum(&["DLmr", "DLmw"]),
        })
    }

    /// Reads the reference: one line per step.
    fn reference(&self) -> BTreeMap<String, Cost> {
        let text = fs::read_to_string(self.reference).unwrap_or_default();
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?.to_owned();
            let mut number = || words.next()?.parse().ok();
            let (instructions, misses) = (number()?, number()?);
            let cost = Cost {
                instructions,
                misses,
            };
            Some((name, cost))
        });
        lines.collect()
    }

    fn compare(&self, write: bool) -> Result<(), String> {
        let reference = self.reference();
        println!(
            "For {}, of {}; a miss is one of a cache of 1 MiB.\n",
            self.unit, self.units
        );
        println!(
            "{:<17} {:>12} {:>6} {:>7} {:>6}",
            "step", "instructions", "ratio", "misses", "ratio"
        );
        let (mut text, mut worse) = (String::new(), Vec::new());
        for step in self.steps {
            let cost = self.measure(step)?;
            let before = reference.get(step.name);
            let ratio = |now: f64, before: Option<f64>| match before {
                Some(before) if before > 0.0 => format!("{:.3}", now / before),
                _ => "-".to_owned(),
            };
            println!(
                "{:<17} {:>12.1} {:>6} {:>7.2} {:>6}   {}",
                step.name,
                cost.instructions,
                ratio(cost.instructions, before.map(|cost| cost.instructions)),
                cost.misses,
                ratio(cost.misses, before.map(|cost| cost.misses)),
                step.what,
            );
            if before.is_some_and(|before| cost.instructions > WORSE * before.instructions) {
                worse.push(step.name);
            }
            let Cost {
                instructions,
                misses,
            } = cost;
            text += &format!("{:<17} {instructions:>8.1} {misses:>6.2}\n", step.name);
        }
        if write {
            return fs::write(self.reference, text)
                .map_err(|error| format!("{}: {error}", self.reference));
        }
        if !worse.is_empty() {
            return Err(format!(
                "more instructions than the reference: {}",
                worse.join(", ")
            ));
        }
        Ok(())
    }

    /// Runs a bench as its `main`.
    pub(crate) fn main(&self) -> ExitCode {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if let [flag, name] = arguments.as_slice()
            && flag == "--step"
        {
            let step = self.steps.iter().find(|step| step.name == name);
            return step.map_or(ExitCode::FAILURE, |step| {
                (step.run)();
                ExitCode::SUCCESS
            });
        }
        let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
        if !given("--bench") {
            println!("this counts instructions: cargo bench -p {}", self.package);
            return ExitCode::SUCCESS;
        }
        match self.compare(given("--write")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}
