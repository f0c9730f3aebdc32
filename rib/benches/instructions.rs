//! What each step costs a route, in instructions and in accesses that miss a cache, as valgrind's
//! callgrind counts them: the same on every run, whatever else the machine does.
//!
//! `cargo bench -p rib` prints them beside the reference in `instructions.txt`;
//! `cargo bench -p rib -- --write` makes them the reference. See `docs/design/bench.md`.

#[path = "../examples/measure/load.rs"]
mod load;
#[path = "../examples/measure/speaker.rs"]
mod speaker;

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use bgp_proto::{Attributes, Ipv4Prefix, Net, Nlri, UpdateView};
use bytes::BytesMut;
use rib::{Budget, ExportSink, PeerId, Progress, Role, Run};

use crate::load::{Dice, FAMILY, bundles, encode, external, prefixes, withdrawals};
use crate::speaker::{Bench, Writer};

/// As many that the tables are much larger than the cache that is counted.
const ROUTES: usize = 50_000;
/// The cache whose misses are told: 1 MiB, 16 ways, lines of 64 octets.
const CACHE: &str = "--LL=1048576,16,64";
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
/// Above this ratio to the reference a step has become worse: compilers differ by some per cent.
const WORSE: f64 = 1.05;

/// A step: it prepares what it needs, then does what is measured in [`counted`].
struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(),
}

const STEPS: [Step; 10] = [
    Step {
        name: "decode",
        what: "cut UPDATEs, find their attributes, walk their routes",
        run: decode,
    },
    Step {
        name: "ingest-new",
        what: "decode, intern attributes, insert, decide: new prefixes",
        run: ingest_new,
    },
    Step {
        name: "ingest-known",
        what: "the same UPDATEs once more",
        run: ingest_known,
    },
    Step {
        name: "ingest-worse",
        what: "routes of a fourth peer, which lose",
        run: ingest_worse,
    },
    Step {
        name: "ingest-withdrawn",
        what: "withdrawals of all",
        run: ingest_withdrawn,
    },
    Step {
        name: "decide",
        what: "the best of four paths has gone",
        run: decide,
    },
    Step {
        name: "export",
        what: "tell a group of new routes",
        run: export,
    },
    Step {
        name: "encode",
        what: "write these as UPDATEs",
        run: encode_runs,
    },
    Step {
        name: "export-withdrawn",
        what: "tell a group of withdrawals",
        run: export_withdrawn,
    },
    Step {
        name: "trim",
        what: "give back withdrawn prefixes",
        run: trim,
    },
];

/// What is measured: callgrind counts while this runs.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

// --- the steps -----------------------------------------------------------------------------------

struct Routes {
    prefixes: Vec<Ipv4Prefix>,
    dice: Dice,
}

impl Routes {
    fn new() -> Self {
        let mut dice = Dice(1);
        let prefixes = prefixes(ROUTES, &mut dice);
        Self { prefixes, dice }
    }

    /// UPDATEs of a sender, with AS_PATHs of so many ASes.
    fn updates(&mut self, sender: u16, hops: usize) -> Vec<BytesMut> {
        let mut messages = Vec::new();
        for (number, bundle) in bundles(&self.prefixes, &mut self.dice)
            .into_iter()
            .enumerate()
        {
            let attributes = external(hops, number as u64, sender, &mut self.dice);
            encode(&attributes, bundle, &mut messages);
        }
        messages
    }

    /// Tables with the routes of as many senders, of whom the first one's are the best.
    fn told(&mut self, senders: u16) -> Bench {
        let mut bench = Bench::new(Role::External, 6);
        for sender in 1..=senders {
            bench.ingest(sender, &self.updates(sender, 3 + usize::from(sender > 1)));
        }
        bench
    }
}

/// Keeps what is exported.
#[derive(Default)]
struct Runs(Vec<(u64, Attributes, Vec<Ipv4Prefix>)>);

impl ExportSink for Runs {
    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        if self.0.last().is_none_or(|(id, ..)| *id != run.id) {
            self.0.push((run.id, run.attributes.clone(), Vec::new()));
        }
        if let (Net::V4(prefix), Some((.., prefixes))) = (nlri.net, self.0.last_mut()) {
            prefixes.push(prefix);
        }
    }

    fn unreach(&mut self, _: &Nlri<'_>, _: Option<PeerId>) {}
    fn unreach_only(&mut self, _: Net<'_>, _: PeerId) {}
}

/// Only counts.
#[derive(Default)]
struct Deaf(usize);

impl ExportSink for Deaf {
    fn reach(&mut self, _: &Nlri<'_>, _: &Run<'_>) {
        self.0 += 1;
    }

    fn unreach(&mut self, _: &Nlri<'_>, _: Option<PeerId>) {
        self.0 += 1;
    }

    fn unreach_only(&mut self, _: Net<'_>, _: PeerId) {}
}

fn tell(bench: &mut Bench, sink: &mut dyn ExportSink) {
    while bench.rib.export(bench.group, FAMILY, Budget(8192), sink) != Progress::Done {}
}

fn tell_all(bench: &mut Bench) {
    let mut deaf = Deaf::default();
    counted(|| tell(bench, &mut deaf));
    assert_eq!(deaf.0, ROUTES);
}

fn decode() {
    let messages = Routes::new().updates(1, 3);
    let params = Bench::new(Role::External, 1).params;
    let routes: usize = counted(|| {
        let views = messages.iter().map(|message| {
            UpdateView::parse(&message[19..], &params)
                .expect("parses")
                .0
        });
        let batches = views.flat_map(|view| view.batches().collect::<Vec<_>>());
        let routes = |batch: &bgp_proto::RouteBatch<'_>| batch.reach.clone().flatten().count();
        batches.map(|batch| routes(&batch)).sum()
    });
    assert_eq!(routes, ROUTES);
}

fn ingest_new() {
    let messages = Routes::new().updates(1, 3);
    let mut bench = Bench::new(Role::External, 6);
    counted(|| bench.ingest(1, &messages));
    assert_eq!(bench.rib.stats().prefixes, ROUTES);
}

fn ingest_known() {
    let messages = Routes::new().updates(1, 3);
    let mut bench = Bench::new(Role::External, 6);
    bench.ingest(1, &messages);
    counted(|| bench.ingest(1, &messages));
}

fn ingest_worse() {
    let mut routes = Routes::new();
    let mut bench = routes.told(3);
    let messages = routes.updates(4, 4);
    counted(|| bench.ingest(4, &messages));
    assert_eq!(bench.rib.stats().paths, 4 * ROUTES);
}

fn ingest_withdrawn() {
    let mut routes = Routes::new();
    let mut bench = routes.told(1);
    bench.export();
    let messages = withdrawals(&routes.prefixes);
    counted(|| bench.ingest(1, &messages));
    assert_eq!(bench.rib.stats().paths, 0);
}

fn decide() {
    let mut routes = Routes::new();
    let mut bench = routes.told(4);
    bench.export();
    bench.ingest(1, &withdrawals(&routes.prefixes));
    assert_eq!(bench.rib.stats().pending, ROUTES);
    counted(|| bench.decide());
}

fn export() {
    tell_all(&mut Routes::new().told(1));
}

fn encode_runs() {
    let mut bench = Routes::new().told(1);
    let mut runs = Runs::default();
    tell(&mut bench, &mut runs);
    let mut writer = Writer::default();
    counted(|| {
        for (id, attributes, prefixes) in &runs.0 {
            let run = Run {
                id: *id,
                attributes,
                source: PeerId(1),
            };
            for &prefix in prefixes {
                writer.reach(&Nlri::new(Net::V4(prefix)), &run);
            }
        }
        writer.flush();
    });
    assert_eq!(writer.reach, ROUTES);
}

fn export_withdrawn() {
    let mut routes = Routes::new();
    let mut bench = routes.told(1);
    bench.export();
    bench.ingest(1, &withdrawals(&routes.prefixes));
    tell_all(&mut bench);
}

fn trim() {
    let mut routes = Routes::new();
    let mut bench = routes.told(1);
    bench.export();
    bench.ingest(1, &withdrawals(&routes.prefixes));
    tell(&mut bench, &mut Deaf::default());
    assert_eq!(bench.rib.stats().tombstones, ROUTES);
    counted(|| bench.rib.trim(FAMILY, &[]));
    assert_eq!(bench.rib.stats().tombstones, 0);
}

// --- counting ------------------------------------------------------------------------------------

/// For a route.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    instructions: f64,
    misses: f64,
}

/// Runs a step under valgrind, in a process of its own.
fn measure(step: &Step) -> Result<Cost, String> {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind.{}", step.name));
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
        Ok(status) if status.success() => cost(&out),
        Ok(status) => Err(format!("{}: {status} under valgrind", step.name)),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(
            "valgrind is not installed, and it is what counts: apt-get install valgrind".to_owned(),
        ),
        Err(error) => Err(format!("valgrind: {error}")),
    }
}

/// The sums of a callgrind file.
fn cost(file: &Path) -> Result<Cost, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
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
        counts.sum::<f64>() / ROUTES as f64
    };
    Ok(Cost {
        instructions: sum(&["Ir"]),
        misses: sum(&["DLmr", "DLmw"]),
    })
}

/// The reference: a line a step.
fn reference() -> BTreeMap<String, Cost> {
    let text = fs::read_to_string(REFERENCE).unwrap_or_default();
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

fn compare(write: bool) -> Result<(), String> {
    let reference = reference();
    println!("For a route, of {ROUTES}; a miss is one of a cache of 1 MiB.\n");
    println!(
        "{:<17} {:>12} {:>6} {:>7} {:>6}",
        "step", "instructions", "ratio", "misses", "ratio"
    );
    let (mut text, mut worse) = (String::new(), Vec::new());
    for step in &STEPS {
        let cost = measure(step)?;
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
        return fs::write(REFERENCE, text).map_err(|error| format!("{REFERENCE}: {error}"));
    }
    if !worse.is_empty() {
        return Err(format!(
            "more instructions than the reference: {}",
            worse.join(", ")
        ));
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = arguments.as_slice()
        && flag == "--step"
    {
        let step = STEPS.iter().find(|step| step.name == name);
        return step.map_or(ExitCode::FAILURE, |step| {
            (step.run)();
            ExitCode::SUCCESS
        });
    }
    let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if !given("--bench") {
        println!("this counts instructions: cargo bench -p rib");
        return ExitCode::SUCCESS;
    }
    match compare(given("--write")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
