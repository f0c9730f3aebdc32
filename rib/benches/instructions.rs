//! Measures the cost of each step per route, in instructions and in cache misses, as valgrind's
//! callgrind counts them: equal on every run, independent of other load.
//!
//! `cargo bench -p cambric-rib` prints them beside the reference in `instructions.txt`; `cargo
//! bench -p cambric-rib -- --write` makes them the reference. See `docs/design/bench.md`.

mod callgrind;
#[path = "../examples/measure/load.rs"]
mod load;
#[path = "../examples/measure/speaker.rs"]
mod speaker;

use std::process::ExitCode;

use bgp_proto::{Attributes, Ipv4Prefix, Net, Nlri, UpdateView};
use bytes::BytesMut;
use rib::{Budget, ExportSink, PeerId, Progress, Role, Run};

use crate::callgrind::{Bench as Counted, Step, counted};
use crate::load::{Dice, FAMILY, bundles, encode, external, prefixes, withdrawals};
use crate::speaker::{Bench, Writer};

/// So many that the tables are much larger than the simulated cache.
const ROUTES: usize = 50_000;

const STEPS: [Step; 10] = [
    Step {
        name: "decode",
        what: "cut UPDATEs, find their attributes, iterate over their routes",
        run: decode,
    },
    Step {
        name: "ingest-new",
        what: "decode, intern attributes, insert, decide: new prefixes",
        run: ingest_new,
    },
    Step {
        name: "ingest-known",
        what: "the same UPDATEs again",
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

    /// Returns UPDATEs of a sender, with AS_PATHs of so many ASes.
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

    /// Makes tables with the routes of so many senders; those of the first one are the best.
    fn tables_of(&mut self, senders: u16) -> Bench {
        let mut bench = Bench::new(Role::External, 6);
        for sender in 1..=senders {
            bench.ingest(sender, &self.updates(sender, 3 + usize::from(sender > 1)));
        }
        bench
    }
}

/// Stores exported routes.
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

/// Only counts exported routes.
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

fn export_to(bench: &mut Bench, sink: &mut dyn ExportSink) {
    while bench.rib.export(bench.group, FAMILY, Budget(8192), sink) != Progress::Done {}
}

fn export_all(bench: &mut Bench) {
    let mut deaf = Deaf::default();
    counted(|| export_to(bench, &mut deaf));
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
    let mut bench = routes.tables_of(3);
    let messages = routes.updates(4, 4);
    counted(|| bench.ingest(4, &messages));
    assert_eq!(bench.rib.stats().paths, 4 * ROUTES);
}

fn ingest_withdrawn() {
    let mut routes = Routes::new();
    let mut bench = routes.tables_of(1);
    bench.export();
    let messages = withdrawals(&routes.prefixes);
    counted(|| bench.ingest(1, &messages));
    assert_eq!(bench.rib.stats().paths, 0);
}

fn decide() {
    let mut routes = Routes::new();
    let mut bench = routes.tables_of(4);
    bench.export();
    bench.ingest(1, &withdrawals(&routes.prefixes));
    assert_eq!(bench.rib.stats().pending, ROUTES);
    counted(|| bench.decide());
}

fn export() {
    export_all(&mut Routes::new().tables_of(1));
}

fn encode_runs() {
    let mut bench = Routes::new().tables_of(1);
    let mut runs = Runs::default();
    export_to(&mut bench, &mut runs);
    let mut writer = Writer::default();
    counted(|| {
        for (id, attributes, prefixes) in &runs.0 {
            let run = Run::new(*id, attributes, PeerId(1));
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
    let mut bench = routes.tables_of(1);
    bench.export();
    bench.ingest(1, &withdrawals(&routes.prefixes));
    export_all(&mut bench);
}

fn trim() {
    let mut routes = Routes::new();
    let mut bench = routes.tables_of(1);
    bench.export();
    bench.ingest(1, &withdrawals(&routes.prefixes));
    export_to(&mut bench, &mut Deaf::default());
    assert_eq!(bench.rib.stats().tombstones, ROUTES);
    counted(|| bench.rib.trim(FAMILY, &[]));
    assert_eq!(bench.rib.stats().tombstones, 0);
}

fn main() -> ExitCode {
    let bench = Counted {
        package: env!("CARGO_PKG_NAME"),
        unit: "a route",
        units: ROUTES,
        steps: &STEPS,
        reference: concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt"),
    };
    bench.main()
}
