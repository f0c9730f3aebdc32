//! Measures the tables: octets per path, and the rate of import, route selection and export.
//!
//! `cargo run --release -p cambric-rib --example measure`
//!
//! The workloads are a full table from one external peer (S1), the same routes from twenty of them
//! (S2), and a reflector with two hundred clients (S3). Messages are encoded beforehand; the
//! measured time is that between a received UPDATE and the octets sent: parsing, interning,
//! deciding, exporting, encoding.
#![allow(unsafe_code)] // the counting allocator
#![allow(clippy::disallowed_types)] // the measurement needs a clock

mod load;
mod speaker;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bgp_proto::{Attributes, Ipv4Prefix, NextHop};
use rib::{DownMode, PeerId, Role};

use crate::load::{Dice, bundles, encode, external, prefixes, withdrawals};
use crate::speaker::Bench;

/// Counts allocated octets.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes every call to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(rounded(layout.size()), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(rounded(layout.size()), Ordering::Relaxed);
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(rounded(size), Ordering::Relaxed);
        LIVE.fetch_sub(rounded(layout.size()), Ordering::Relaxed);
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// Returns the octets that malloc uses for a request: eight more, in steps of sixteen.
const fn rounded(octets: usize) -> usize {
    (octets + 8).next_multiple_of(16)
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// CPU time, if the system reports it, so that other load does not count.
struct Clock(Duration, Instant);

impl Clock {
    fn start() -> Self {
        Self(on_cpu().unwrap_or_default(), Instant::now())
    }

    fn elapsed(&self) -> Duration {
        on_cpu().map_or_else(|| self.1.elapsed(), |now| now - self.0)
    }
}

fn on_cpu() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ')
        .next()?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

impl Bench {
    /// Times the three steps and prints a row.
    fn row(&mut self, what: &str, routes: impl FnOnce(&mut Self) -> usize) {
        let writer = &self.writer;
        let before = (writer.messages, writer.reach + writer.unreach);
        let start = Clock::start();
        let routes = routes(self);
        let ingested = start.elapsed();
        self.decide();
        let decided = start.elapsed();
        self.export();
        let all = start.elapsed();
        let rate = routes as f64 / all.as_secs_f64() / 1e6;
        println!(
            "  {what:<28} {routes:>8} routes: ingest {:>6.0} ms, decide {:>5.0} ms, export {:>5.0} ms; \
             {rate:.2} M routes/s; {} routes sent in {} UPDATEs",
            ingested.as_secs_f64() * 1e3,
            (decided - ingested).as_secs_f64() * 1e3,
            (all - decided).as_secs_f64() * 1e3,
            self.writer.reach + self.writer.unreach - before.1,
            self.writer.messages - before.0,
        );
    }
}

fn memory(what: &str, before: usize, bench: &Bench) {
    let octets = LIVE.load(Ordering::Relaxed) - before;
    let stats = bench.rib.stats();
    println!(
        "  {what:<28} {:.1} MB for {} paths of {} prefixes with {} attribute sets: {:.1} octets a path, \
         resident {:.0} MB",
        octets as f64 / 1e6,
        stats.paths,
        stats.prefixes,
        stats.attribute_sets,
        octets as f64 / stats.paths.max(1) as f64,
        resident_mb(),
    );
}

fn resident_mb() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0 / 1e6
}

fn s1(count: usize) {
    println!("S1: {count} prefixes from one external peer");
    let mut dice = Dice(1);
    let prefixes = prefixes(count, &mut dice);
    let mut messages = Vec::new();
    for (number, bundle) in bundles(&prefixes, &mut dice).into_iter().enumerate() {
        let hops = 3 + number % 3;
        encode(
            &external(hops, number as u64, 1, &mut dice),
            bundle,
            &mut messages,
        );
    }
    let withdrawals = withdrawals(&prefixes);
    println!("  {} UPDATEs", messages.len());
    let before = LIVE.load(Ordering::Relaxed);
    let mut bench = Bench::new(Role::External, 2);
    bench.row("announce", |bench| bench.ingest(1, &messages));
    memory("held", before, &bench);
    bench.row("the same again", |bench| bench.ingest(1, &messages));
    bench.row("withdraw half", |bench| {
        bench.ingest(1, &withdrawals[..withdrawals.len() / 2])
    });
    bench.row("announce all", |bench| bench.ingest(1, &messages));
    bench.row("withdraw all", |bench| bench.ingest(1, &withdrawals));
    bench.row("announce all", |bench| bench.ingest(1, &messages));
    bench.row("session lost", |bench| {
        bench.rib.peer_down(PeerId(1), DownMode::Flush);
        count
    });
    let left = LIVE.load(Ordering::Relaxed) - before;
    println!("  left when all have gone: {:.2} MB", left as f64 / 1e6);
}

fn s2(senders: u16, count: usize) {
    println!("S2: the same {count} prefixes from {senders} external peers");
    let mut dice = Dice(2);
    let prefixes = prefixes(count, &mut dice);
    let mut all = Vec::new();
    for sender in 1..=senders {
        let mut messages = Vec::new();
        for (number, bundle) in bundles(&prefixes, &mut dice).into_iter().enumerate() {
            let hops = match (sender as usize + number) % senders as usize {
                0 => 3,
                1 => 4,
                _ => 5,
            };
            encode(
                &external(hops, number as u64, sender, &mut dice),
                bundle,
                &mut messages,
            );
        }
        all.push((sender, messages));
    }
    let withdrawals = withdrawals(&prefixes);
    let before = LIVE.load(Ordering::Relaxed);
    let mut bench = Bench::new(Role::External, senders + 2);
    bench.row("announce", |bench| {
        all.iter().map(|(sender, m)| bench.ingest(*sender, m)).sum()
    });
    memory("held", before, &bench);
    bench.row("one withdraws all", |bench| bench.ingest(1, &withdrawals));
    bench.row("and announces all", |bench| bench.ingest(1, &all[0].1));
    bench.row("all withdraw all", |bench| {
        (1..=senders)
            .map(|sender| bench.ingest(sender, &withdrawals))
            .sum()
    });
    bench.row("announce", |bench| {
        all.iter().map(|(sender, m)| bench.ingest(*sender, m)).sum()
    });
    bench.row("one session lost", |bench| {
        bench.rib.peer_down(PeerId(1), DownMode::Flush);
        count
    });
}

fn s3(clients: u16, each: usize) {
    println!("S3: a reflector with {clients} clients of {each} prefixes");
    let all: Vec<_> = (1..=clients)
        .map(|client| {
            let prefixes: Vec<_> = (0..each)
                .map(|at| {
                    let number = u32::from(client) * 1024 + at as u32;
                    Ipv4Prefix::host(Ipv4Addr::from(0x0a41_0000 + number))
                })
                .collect();
            let [high, low] = client.to_be_bytes();
            let attributes = Attributes {
                next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 1, high, low))),
                local_pref: Some(100),
                ..Attributes::default()
            };
            let mut messages = Vec::new();
            encode(&attributes, &prefixes, &mut messages);
            (client, messages, withdrawals(&prefixes))
        })
        .collect();
    let before = LIVE.load(Ordering::Relaxed);
    let mut bench = Bench::new(Role::Client, clients);
    bench.row("announce", |bench| {
        all.iter()
            .map(|(client, m, _)| bench.ingest(*client, m))
            .sum()
    });
    memory("held", before, &bench);
    bench.row("withdraw all", |bench| {
        all.iter()
            .map(|(client, _, w)| bench.ingest(*client, w))
            .sum()
    });
    bench.row("announce", |bench| {
        all.iter()
            .map(|(client, m, _)| bench.ingest(*client, m))
            .sum()
    });
    bench.row("one session lost", |bench| {
        bench.rib.peer_down(PeerId(1), DownMode::Flush);
        each
    });
}

fn main() {
    let count = std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(1_000_000);
    s1(count);
    s2(20, count / 10);
    s3(200, 250);
}
