//! Measures how fast the UPDATEs of a dump are decoded: split, attributes hashed and looked up,
//! each distinct set parsed once, every route read.
//!
//! `cargo run --release -p cambric-mrt --example decode_rate -- FILE [ROUNDS]`
#![allow(clippy::unwrap_used)] // a tool for developers

use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::time::{Duration, Instant};

use bgp_proto::{
    AttrBlock, Attributes, FamilySet, MESSAGE_OCTETS_MAX_EXTENDED, MessageKind, Net, Nlri,
    PeerKind, SessionParams, UpdateView, next_frame,
};
use bytes::{Bytes, BytesMut};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use mrt::Entry;

/// The sets seen so far: a receiver stores them so that it parses each only once.
#[derive(Default)]
struct Sets {
    table: HashTable<(u64, Box<[u8]>, Attributes)>,
    key: Vec<u8>,
}

impl Sets {
    fn find(&mut self, state: &FixedState, block: &AttrBlock<'_>) -> &Attributes {
        let mut hasher = state.build_hasher();
        block.hash(&mut hasher);
        let hash = hasher.finish();
        let known = |(_, key, _): &(u64, Box<[u8]>, Attributes)| block.eq_key(key);
        let entry = self.table.entry(hash, known, |(hash, ..)| *hash);
        let (.., set) = entry
            .or_insert_with(|| {
                self.key.clear();
                block.write_key(&mut self.key);
                (hash, self.key.as_slice().into(), block.parse().0)
            })
            .into_mut();
        set
    }
}

#[derive(Default)]
struct Count {
    reach: u64,
    unreach: u64,
    faults: u64,
    /// Keeps the routes from being optimized away.
    mixed: u64,
}

impl Count {
    fn route(&mut self, nlri: &Nlri<'_>) {
        self.mixed ^= match nlri.net {
            Net::V4(prefix) => u64::from(u32::from(prefix.addr())) << 8 | u64::from(prefix.len()),
            Net::V6(prefix) => u128::from(prefix.addr()) as u64,
            Net::Opaque(octets) => octets.len() as u64,
        };
    }
}

/// Decodes all messages; without `sets` attributes are only hashed.
fn round(bodies: &[Bytes], params: &SessionParams, mut sets: Option<&mut Sets>) -> Count {
    let state = FixedState::with_seed(7);
    let mut count = Count::default();
    for body in bodies {
        let Ok((view, faults)) = UpdateView::parse(body, params) else {
            count.faults += 1;
            continue;
        };
        count.faults += faults.len() as u64;
        for batch in view.batches() {
            match (&batch.attrs, &mut sets) {
                (Some(attrs), Some(sets)) => {
                    black_box(sets.find(&state, attrs));
                }
                (Some(attrs), None) => {
                    let mut hasher = state.build_hasher();
                    attrs.hash(&mut hasher);
                    count.mixed ^= hasher.finish();
                }
                (None, _) => {}
            }
            for nlri in batch.unreach.flatten() {
                count.unreach += 1;
                count.route(&nlri);
            }
            for nlri in batch.reach.flatten() {
                count.reach += 1;
                count.route(&nlri);
            }
        }
    }
    black_box(count.mixed);
    count
}

fn updates(path: &str) -> (Vec<Bytes>, bool) {
    let (mut bodies, mut as4) = (Vec::new(), true);
    for record in mrt::open(path.as_ref()).unwrap().map_while(Result::ok) {
        if let Ok(Entry::Message(message)) = record.entry() {
            let mut octets = BytesMut::from(&message.octets[..]);
            if let Ok(Some(frame)) = next_frame(&mut octets, MESSAGE_OCTETS_MAX_EXTENDED)
                && frame.kind == MessageKind::Update
            {
                as4 = message.as4;
                bodies.push(frame.body);
            }
        }
    }
    (bodies, as4)
}

fn report(name: &str, took: Duration, bodies: usize, octets: usize, count: &Count) {
    let seconds = took.as_secs_f64();
    let routes = (count.reach + count.unreach) as f64;
    println!(
        "{name}: {:.1} ms, {:.2} M routes/s, {:.2} M messages/s, {:.0} MB/s",
        seconds * 1e3,
        routes / seconds / 1e6,
        bodies as f64 / seconds / 1e6,
        octets as f64 / seconds / 1e6,
    );
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("give a file");
    let rounds: u32 = args.next().map_or(15, |rounds| rounds.parse().unwrap());
    let (bodies, as4) = updates(&path);
    let octets = bodies.iter().map(|body| body.len() + 19).sum();
    let params = SessionParams {
        kind: PeerKind::Internal,
        as4,
        families: FamilySet::all(),
        ..SessionParams::default()
    };
    let (mut split, mut cold, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    let (mut count, mut sets) = (Count::default(), Sets::default());
    let timed = |times: &mut Vec<Duration>, sets: Option<&mut Sets>| {
        let start = Instant::now();
        let count = round(&bodies, &params, sets);
        times.push(start.elapsed());
        count
    };
    for _ in 0..rounds {
        timed(&mut split, None);
        sets = Sets::default();
        count = timed(&mut cold, Some(&mut sets));
        timed(&mut warm, Some(&mut sets));
    }
    println!(
        "{} UPDATEs, {} octets, {} announced, {} withdrawn, {} faults, {} distinct sets",
        bodies.len(),
        octets,
        count.reach,
        count.unreach,
        count.faults,
        sets.table.len(),
    );
    for (name, times) in [
        ("split and hash", split),
        ("every set new", cold),
        ("every set known", warm),
    ] {
        // The best round: other load on the machine disturbed the others.
        let best = times.into_iter().min().unwrap_or_default();
        report(name, best, bodies.len(), octets, &count);
    }
}
