//! Replays the corpora, and a few thousand random inputs, so that the targets also run as tests.

use std::{fs, path::Path};

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut replayed = 0;
    for entry in fs::read_dir(&corpus).expect("the corpus is in the repository") {
        let path = entry.expect("a readable corpus").path();
        run(&fs::read(&path).expect("a readable input"));
        replayed += 1;
    }
    assert!(replayed > 0, "{} is empty", corpus.display());
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..2000_usize {
        let input: Vec<u8> = (0..round % 300)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 24) as u8
            })
            .collect();
        run(&input);
    }
}

#[test]
fn message() {
    replay("message", fuzz::message);
}

#[test]
fn attributes() {
    replay("attributes", fuzz::attributes);
}

#[test]
fn session() {
    replay("session", fuzz::session);
}

#[test]
fn speaker() {
    replay("speaker", fuzz::speaker);
}

#[test]
fn stored() {
    replay("stored", fuzz::stored);
}

#[test]
fn kubernetes() {
    replay("kubernetes", fuzz::kubernetes);
}

#[test]
fn recorded() {
    replay("recorded", fuzz::recorded);
}

#[test]
fn bfd_packet() {
    replay("bfd-packet", fuzz::bfd_packet);
}

#[test]
fn bfd_session() {
    replay("bfd-session", fuzz::bfd_session);
}

#[test]
fn bfd_sessions() {
    replay("bfd-sessions", fuzz::bfd_sessions);
}

#[test]
fn nexthop() {
    replay("nexthop", fuzz::nexthop);
}

#[test]
fn parent() {
    replay("parent", fuzz::parent);
}
