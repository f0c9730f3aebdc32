//! Measures the tables: octets per path, and how fast routes come in, are decided and go out.
//!
//! `cargo run --release -p rib --example measure`
//!
//! The workloads are a full table from one external peer (S1), the same routes from twenty of them
//! (S2), and a reflector with two hundred clients (S3). Messages are encoded beforehand; what is
//! timed is what a speaker does between a received UPDATE and the octets it sends: cutting the
//! message, interning, deciding, exporting, encoding.
#![allow(unsafe_code)] // the counting allocator
#![allow(clippy::disallowed_types)] // measuring takes a clock

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bgp_proto::{
    AsPath, Asn, Attributes, ClusterId, Community, EncodeParams, Family, FamilySet, Ipv4Prefix,
    Net, NextHop, Nlri, PeerKind, RouterId, SessionParams, UpdateView, UpdateWriter,
};
use bytes::BytesMut;
use rib::{
    Budget, DownMode, ExportSink, GroupRules, NextHopMode, PeerId, PeerInfo, Policy, Progress, Rib,
    RibConfig, Role, Run,
};

/// Counts what is allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator.
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

/// What malloc takes for a request: eight octets more, in steps of sixteen.
const fn rounded(octets: usize) -> usize {
    (octets + 8).next_multiple_of(16)
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ASN: Asn = Asn(64_512);
const FAMILY: Family = Family::IPV4_UNICAST;

/// A small generator of numbers (PCG).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) * below) >> 31
    }
}

/// Distinct prefixes with masks like the Internet's: 60 % are /24.
fn prefixes(count: usize, dice: &mut Dice) -> Vec<Ipv4Prefix> {
    let mut seen = std::collections::BTreeSet::new();
    let mut prefixes = Vec::with_capacity(count);
    while prefixes.len() < count {
        let len = match dice.roll(100) {
            0..60 => 24,
            60..72 => 22,
            72..80 => 23,
            80..90 => 20 + dice.roll(2) as u8,
            _ => 16 + dice.roll(4) as u8,
        };
        let addr = 0x0100_0000 + dice.roll(0xdf00_0000 - 0x0100_0000) as u32;
        let prefix = Ipv4Prefix::new(Ipv4Addr::from(addr), len).expect("length");
        if seen.insert(prefix) {
            prefixes.push(prefix);
        }
    }
    prefixes
}

/// Cuts prefixes into bundles of very different sizes, eight on average.
fn bundles<'p>(prefixes: &'p [Ipv4Prefix], dice: &mut Dice) -> Vec<&'p [Ipv4Prefix]> {
    let mut bundles = Vec::new();
    let mut left = prefixes;
    while !left.is_empty() {
        let size = match dice.roll(100) {
            0..50 => 1,
            50..80 => 2 + dice.roll(4),
            80..95 => 5 + dice.roll(20),
            _ => 25 + dice.roll(140),
        };
        let (bundle, rest) = left.split_at(left.len().min(size as usize));
        bundles.push(bundle);
        left = rest;
    }
    bundles
}

/// Encodes UPDATEs for a bundle.
fn encode(attributes: &Attributes, prefixes: &[Ipv4Prefix], out: &mut Vec<BytesMut>) {
    let params = EncodeParams {
        as4: true,
        add_path: false,
        octets_max: 4096,
    };
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    let next_hop = attributes.next_hop.clone().expect("next hop");
    let mut left = prefixes;
    while !left.is_empty() {
        let mut message = BytesMut::new();
        let mut writer = UpdateWriter::reach(&mut message, FAMILY, &block, &next_hop, &params);
        let mut taken = 0;
        for &prefix in left {
            if writer.push(&Nlri::new(Net::V4(prefix))).is_err() {
                break;
            }
            taken += 1;
        }
        writer.finish();
        out.push(message);
        left = &left[taken..];
    }
}

fn withdrawals(prefixes: &[Ipv4Prefix]) -> Vec<BytesMut> {
    let params = EncodeParams {
        as4: true,
        add_path: false,
        octets_max: 4096,
    };
    let mut out = Vec::new();
    for chunk in prefixes.chunks(800) {
        let mut message = BytesMut::new();
        let mut writer = UpdateWriter::unreach(&mut message, FAMILY, &params);
        for &prefix in chunk {
            writer.push(&Nlri::new(Net::V4(prefix))).expect("room");
        }
        writer.finish();
        out.push(message);
    }
    out
}

/// Writes UPDATEs as a speaker would: attributes once a run, messages filled.
#[derive(Default)]
struct Writer {
    run: u64,
    block: Vec<u8>,
    next_hop: Option<NextHop>,
    nets: Vec<Ipv4Prefix>,
    withdrawn: Vec<Ipv4Prefix>,
    out: BytesMut,
    messages: usize,
    octets: usize,
    reach: usize,
    unreach: usize,
}

impl Writer {
    const PARAMS: EncodeParams = EncodeParams {
        as4: true,
        add_path: false,
        octets_max: 4096,
    };

    fn flush(&mut self) {
        let Some(next_hop) = self.next_hop.take() else {
            return;
        };
        let mut left = self.nets.as_slice();
        while !left.is_empty() {
            self.out.clear();
            let mut writer =
                UpdateWriter::reach(&mut self.out, FAMILY, &self.block, &next_hop, &Self::PARAMS);
            let fits = left
                .iter()
                .position(|&net| writer.push(&Nlri::new(Net::V4(net))).is_err());
            writer.finish();
            left = &left[fits.unwrap_or(left.len())..];
            self.messages += 1;
            self.octets += self.out.len();
        }
        self.nets.clear();
    }

    fn flush_withdrawn(&mut self) {
        let mut left = self.withdrawn.as_slice();
        while !left.is_empty() {
            self.out.clear();
            let mut writer = UpdateWriter::unreach(&mut self.out, FAMILY, &Self::PARAMS);
            let fits = left
                .iter()
                .position(|&net| writer.push(&Nlri::new(Net::V4(net))).is_err());
            writer.finish();
            left = &left[fits.unwrap_or(left.len())..];
            self.messages += 1;
            self.octets += self.out.len();
        }
        self.withdrawn.clear();
    }
}

impl ExportSink for Writer {
    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        if run.id != self.run {
            self.flush();
            self.run = run.id;
            self.block.clear();
            run.attributes.encode(true, &mut self.block);
            self.next_hop.clone_from(&run.attributes.next_hop);
        }
        if let Net::V4(prefix) = nlri.net {
            self.nets.push(prefix);
        }
        self.reach += 1;
    }

    fn unreach(&mut self, nlri: &Nlri<'_>, _: Option<PeerId>) {
        if let Net::V4(prefix) = nlri.net {
            self.withdrawn.push(prefix);
        }
        self.unreach += 1;
    }

    fn unreach_only(&mut self, _: Net<'_>, _: PeerId) {
        self.unreach += 1;
    }
}

/// Time on the processor, where the system tells it, so that others on the machine do not count.
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

struct Bench {
    rib: Rib,
    group: rib::GroupId,
    params: SessionParams,
    writer: Writer,
}

impl Bench {
    fn new(role: Role, peers: u16) -> Self {
        let mut rib = Rib::new(
            RibConfig {
                local_asn: ASN,
                router_id: RouterId(Ipv4Addr::new(1, 1, 1, 1)),
                cluster_ids: [ClusterId(Ipv4Addr::new(1, 1, 1, 1))].into(),
                multipath_max: 1,
                ..RibConfig::default()
            },
            7,
        );
        let peer_asn = if role == Role::External {
            Asn(65_000)
        } else {
            ASN
        };
        for peer in 1..=peers {
            let [high, low] = peer.to_be_bytes();
            let address = Ipv4Addr::new(10, 1, high, low);
            rib.peer_up(
                PeerId(peer),
                PeerInfo {
                    role,
                    asn: peer_asn,
                    id: RouterId(address),
                    address: IpAddr::V4(address),
                    local: None,
                    import: Policy::AcceptAll,
                    cluster_id: ClusterId(Ipv4Addr::new(1, 1, 1, 1)),
                },
            );
        }
        let own = Ipv4Addr::new(10, 0, 0, 1);
        let group = rib.add_group(GroupRules {
            role,
            local_asn: ASN,
            peer_asn,
            next_hop: NextHopMode::Auto,
            own_next_hop_v4: Some(own),
            own_next_hop_v6: None,
            extended_next_hop: false,
            cluster_id: ClusterId(own),
            export: Policy::AcceptAll,
            add_path: Default::default(),
        });
        rib.group_cursor(group, FAMILY);
        let kind = if role == Role::External {
            PeerKind::External
        } else {
            PeerKind::Internal
        };
        let params = SessionParams {
            local_asn: ASN,
            peer_asn,
            kind,
            as4: true,
            families: FamilySet::EMPTY.with(FAMILY),
            ..SessionParams::default()
        };
        Self {
            rib,
            group,
            params,
            writer: Writer::default(),
        }
    }

    fn ingest(&mut self, peer: u16, messages: &[BytesMut]) -> usize {
        let mut routes = 0;
        for message in messages {
            let (view, faults) = UpdateView::parse(&message[19..], &self.params).expect("parses");
            assert!(faults.is_empty());
            for batch in view.batches() {
                let done = self.rib.ingest(PeerId(peer), &batch);
                assert!(done.faults.is_empty());
                routes += (done.reach + done.unreach) as usize;
            }
        }
        routes
    }

    fn decide(&mut self) {
        while self.rib.decide(Budget(8192)) != Progress::Done {}
    }

    fn export(&mut self) {
        let Self {
            rib, group, writer, ..
        } = self;
        while rib.export(*group, FAMILY, Budget(8192), writer) != Progress::Done {}
        writer.flush();
        writer.flush_withdrawn();
        rib.trim(FAMILY, &[]);
    }

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
             {rate:.2} M routes/s; {} routes told in {} UPDATEs",
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

fn external(hops: usize, number: u64, sender: u16, dice: &mut Dice) -> Attributes {
    let mut path = vec![Asn(65_000)];
    path.resize_with(hops, || Asn(1 + dice.roll(400_000) as u32));
    Attributes {
        as_path: AsPath::sequence(&path),
        next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 1, 0, sender as u8))),
        communities: (0..number % 3)
            .map(|at| Community::new(65_000, at as u16))
            .collect(),
        ..Attributes::default()
    }
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
