//! Tests that the oracles find faults: these are planted between the components, never in the code
//! under test.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bgp_proto::{Attributes, Family, Net};
use bgp_speaker::bgp_fsm::Instant;
use bgp_speaker::rib::{Budget, OriginCheck, ReceivedPath};
use bgp_speaker::{Event as SpeakerEvent, Input, Speaker};
use fib_sync::memory::MemoryFib;
use fib_sync::{Command, Event, Fib, PutMode};
use sim::{Failure, Options, Plants, WireTap, run};

/// Every planted fault is found within so many seeds.
const SEEDS: u64 = 3;

/// Returns the first oracle that finds the fault.
fn found(options: &Options, plants: impl Fn() -> Plants) -> Option<(u64, &'static str, String)> {
    (1..=SEEDS).find_map(|seed| match run(seed, options.clone(), plants()) {
        Err(Failure::Violation(violation)) => Some((seed, violation.oracle, violation.what)),
        Err(failure) => panic!("{failure}"),
        Ok(_) => None,
    })
}

fn calm(reflectors: u16, reflector_clients: bool) -> Options {
    Options {
        nodes: 4,
        reflectors,
        reflector_clients,
        workloads: 8,
        ..Options::default()
    }
}

const UPDATE: u8 = 2;
const ORIGINATOR_ID: u8 = 9;
const CLUSTER_LIST: u8 = 10;
const MP_UNREACH: u8 = 15;

/// Returns the parts of an UPDATE's body: withdrawn routes, path attributes, NLRI (RFC 4271 §4.3).
fn parts(message: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let body = message.get(19..).filter(|_| message[18] == UPDATE)?;
    let (withdrawn, rest) = counted(body)?;
    let (attributes, nlri) = counted(rest)?;
    Some((withdrawn, attributes, nlri))
}

fn counted(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(u16::from_be_bytes([*octets.first()?, *octets.get(1)?]));
    octets.get(2..)?.split_at_checked(length)
}

/// Returns each attribute: its type and all its octets.
fn attributes(mut octets: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let [flags, code, rest @ ..] = octets {
        let length = match (flags & 0x10 != 0, rest) {
            (true, [high, low, ..]) => 4 + usize::from(u16::from_be_bytes([*high, *low])),
            (_, [length, ..]) => 3 + usize::from(*length),
            _ => break,
        };
        let (attribute, after) = octets.split_at(length.min(octets.len()));
        found.push((*code, attribute));
        octets = after;
    }
    found
}

/// Removes CLUSTER_LIST and ORIGINATOR_ID between reflectors, so that loops cannot be detected.
struct Forgetful;

impl WireTap for Forgetful {
    fn message(&mut self, from: &str, to: &str, message: &mut Vec<u8>) -> bool {
        if !(from.starts_with("rr") && to.starts_with("rr")) {
            return true;
        }
        let Some((withdrawn, path, nlri)) = parts(message) else {
            return true;
        };
        let kept: Vec<u8> = attributes(path)
            .into_iter()
            .filter(|(code, _)| ![ORIGINATOR_ID, CLUSTER_LIST].contains(code))
            .flat_map(|(_, octets)| octets.to_vec())
            .collect();
        let two = |length: usize| u16::try_from(length).expect("short").to_be_bytes();
        let mut rewritten = message[..16].to_vec();
        rewritten.extend(two(23 + withdrawn.len() + kept.len() + nlri.len()));
        rewritten.push(UPDATE);
        rewritten.extend(two(withdrawn.len()));
        rewritten.extend(withdrawn);
        rewritten.extend(two(kept.len()));
        rewritten.extend(&kept);
        rewritten.extend(nlri);
        *message = rewritten;
        true
    }
}

#[test]
fn a_cluster_list_that_is_not_looked_at() {
    // Three reflectors that are clients of each other: a ring in which a route can loop.
    let options = calm(3, true);
    assert_eq!(found(&options, Plants::default), None);
    let plants = || Plants {
        wire: Some(Box::new(Forgetful)),
        // That oracle finds every change on a wire; this test is about the consequences.
        blind: &["sent"],
        ..Plants::default()
    };
    let (seed, oracle, what) = found(&options, plants).expect("found");
    println!("seed {seed}: {oracle}: {what}");
    assert_eq!(oracle, "withdrawn");
}

/// Drops one UPDATE with withdrawals from a reflector to a node.
struct Lossy {
    lost: bool,
}

impl WireTap for Lossy {
    fn message(&mut self, from: &str, to: &str, message: &mut Vec<u8>) -> bool {
        if self.lost || !(from.starts_with("rr") && to.starts_with("node")) {
            return true;
        }
        let Some((withdrawn, path, _)) = parts(message) else {
            return true;
        };
        let unreach = |(code, octets): (u8, &[u8])| code == MP_UNREACH && octets.len() > 8;
        self.lost = !withdrawn.is_empty() || attributes(path).into_iter().any(unreach);
        !self.lost
    }
}

#[test]
fn a_withdrawal_that_is_lost() {
    let options = calm(2, false);
    assert_eq!(found(&options, Plants::default), None);
    let plants = || Plants {
        wire: Some(Box::new(Lossy { lost: false })),
        // That oracle may be the first to find a held path that is no longer sent.
        blind: &["sent"],
        ..Plants::default()
    };
    let (seed, oracle, what) = found(&options, plants).expect("found");
    println!("seed {seed}: {oracle}: {what}");
    assert_eq!(oracle, "withdrawn");
}

/// A kernel that reports a route as deleted, and keeps it.
struct Keeping {
    fib: MemoryFib,
    lies: VecDeque<Event>,
    left: Rc<Cell<usize>>,
}

impl Fib for Keeping {
    fn submit(&mut self, command: Command) {
        match command {
            Command::Delete(key, _) if self.left.get() > 0 => {
                self.left.set(self.left.get() - 1);
                self.lies.push_back(Event::Applied(key, Ok(())));
            }
            command => self.fib.submit(command),
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        match self.lies.pop_front() {
            Some(lie) => Poll::Ready(lie),
            None => self.fib.poll_event(cx),
        }
    }
}

/// Makes the kernel of one node keep so many deleted routes; also returns whether it had occasion
/// to.
fn keeping(deletes: usize) -> (impl Fn() -> Plants, Rc<Cell<usize>>) {
    let left = Rc::new(Cell::new(deletes));
    let counted = Rc::clone(&left);
    let plants = move || {
        left.set(deletes);
        let left = Rc::clone(&left);
        Plants {
            fib: Some(Box::new(move |machine, daemon, fib| {
                let lies = VecDeque::new();
                match (machine, daemon) {
                    ("node2", "bgp-client") => Box::new(Keeping {
                        fib,
                        lies,
                        left: Rc::clone(&left),
                    }),
                    _ => Box::new(fib),
                }
            })),
            ..Plants::default()
        }
    };
    (plants, counted)
}

#[test]
fn a_stale_route_that_the_kernel_keeps() {
    let (plants, _) = keeping(usize::MAX);
    // If the first change of a run does not concern node2, another oracle is the first. If the kept
    // routes are announced again in time, there is nothing to find.
    let (seed, what) = (1..=SEEDS)
        .find_map(|seed| match run(seed, calm(2, false), plants()) {
            Err(Failure::Violation(found)) if found.oracle == "withdrawn" => {
                Some((seed, found.what))
            }
            Err(Failure::Violation(_)) => None,
            Ok(_) => None,
            other => panic!("{other:?}"),
        })
        .expect("found");
    println!("seed {seed}: {what}");
    assert!(what.contains("node2"), "{what}");
}

/// The reconciler reads its kernel again: a deletion that was lost once is repeated.
#[test]
fn a_route_that_the_kernel_keeps_once_is_deleted_again() {
    let (plants, left) = keeping(2);
    let options = Options {
        chaos: Duration::from_secs(60),
        // Only added and removed workloads.
        crashes: [0; 5],
        cuts: [0; 3],
        stalls: [0; 4],
        ..calm(2, false)
    };
    assert_eq!(found(&options, plants), None);
    assert_eq!(left.get(), 0, "nothing was kept");
}

/// Overwrites any holder of the key of one prefix, as a route with `NLM_F_REPLACE` would.
struct Ruthless(MemoryFib);

impl Fib for Ruthless {
    fn submit(&mut self, command: Command) {
        self.0.submit(match command {
            Command::Put(key, route, _) if key.to_string().starts_with("10.65.0.2/32") => {
                Command::Put(key, route, PutMode::Replace)
            }
            command => command,
        });
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        self.0.poll_event(cx)
    }
}

#[test]
fn a_foreign_route_that_is_written_over() {
    let options = Options {
        conflicts: true,
        ..calm(2, false)
    };
    assert_eq!(found(&options, Plants::default), None);
    let plants = || Plants {
        fib: Some(Box::new(|_, daemon, fib| match daemon {
            "bgp-client" => Box::new(Ruthless(fib)),
            _ => Box::new(fib),
        })),
        ..Plants::default()
    };
    let (seed, oracle, what) = found(&options, plants).expect("found");
    println!("seed {seed}: {oracle}: {what}");
    assert_eq!(oracle, "foreign");
}

/// From the first reflector to the first node, UPDATEs that announce one prefix are dropped, or
/// their ORIGIN is changed: the routes of the other reflector replace them, so that no packet is
/// lost.
#[derive(Clone, Copy)]
enum Partial {
    Loses,
    Rewrites,
}

const ORIGIN: u8 = 1;

impl WireTap for Partial {
    fn message(&mut self, from: &str, to: &str, message: &mut Vec<u8>) -> bool {
        if (from, to) != ("rr1", "node1") {
            return true;
        }
        let Some((_, _, nlri)) = parts(message) else {
            return true;
        };
        match self {
            Self::Loses => !nlri.windows(5).any(|octets| octets == [32, 10, 65, 0, 2]),
            Self::Rewrites => {
                let origin = [0x40, ORIGIN, 1, 0];
                let at = message.windows(4).position(|octets| octets == origin);
                if let Some(at) = at {
                    message[at + 3] = 1;
                }
                true
            }
        }
    }
}

// Promise: as sim chaos_then_calm
#[test]
fn a_route_that_is_not_held_as_it_was_sent() {
    let options = calm(2, false);
    assert_eq!(found(&options, Plants::default), None);
    for (plant, expected) in [
        (Partial::Loses, "is not held"),
        (Partial::Rewrites, "is held as"),
    ] {
        let plants = || Plants {
            wire: Some(Box::new(plant)),
            ..Plants::default()
        };
        let (seed, oracle, what) = found(&options, plants).expect("found");
        println!("seed {seed}: {oracle}: {what}");
        assert_eq!(oracle, "sent");
        assert!(
            what.contains("node1 from rr1") && what.contains(expected),
            "{what}"
        );
    }
}

/// Confirms every route.
#[derive(Debug)]
struct Credulous;

impl OriginCheck for Credulous {
    fn confirms(&self, _: &ReceivedPath<'_>) -> bool {
        true
    }
}

// Promise: as bgp-daemon route_of_another_node_is_not_used_and_reported
#[test]
fn a_lie_that_is_believed() {
    let options = Options {
        chaos: Duration::from_secs(120),
        churn: [0, 0, 1, 0],
        crashes: [0, 0, 1, 0, 1],
        cuts: [0; 3],
        stalls: [0, 0, 1, 0],
        lies: 12,
        ..calm(2, false)
    };
    assert_eq!(found(&options, Plants::default), None);
    let plants = || Plants {
        speaker: Some(Box::new(|name, speaker| {
            if name.starts_with("rr") {
                speaker.check_origins(Arc::new(Credulous));
            }
        })),
        ..Plants::default()
    };
    let (seed, oracle, what) = found(&options, plants).expect("found");
    println!("seed {seed}: {oracle}: {what}");
    assert_eq!(oracle, "lies");
}

#[test]
fn lost_event_of_a_session_is_found() {
    let options = calm(2, false);
    let plants = || Plants {
        event: Some(|event| !matches!(event, SpeakerEvent::Up { .. })),
        ..Plants::default()
    };
    let (_, oracle, what) = found(&options, plants).expect("found");
    assert_eq!(oracle, "events");
    assert!(what.contains("last reported: closed, or nothing"), "{what}");
}

// Promise: as sim chaos_then_calm
#[test]
fn lost_event_of_a_kernel_route_is_found() {
    let options = calm(2, false);
    let installed: sim::RouteEventPlant = |event| event.kind().name != "route.installed";
    let deleted: sim::RouteEventPlant = |event| event.kind().name != "route.deleted";
    for (plant, expected) in [
        (installed, "reported None, listed Some"),
        (deleted, ", listed None"),
    ] {
        let plants = || Plants {
            route_event: Some(plant),
            ..Plants::default()
        };
        let (_, oracle, what) = found(&options, plants).expect("found");
        assert_eq!(oracle, "events");
        assert!(what.contains(expected), "{what}");
    }
}

#[test]
fn a_speaker_that_forgets_nothing() {
    let options = calm(2, false);
    let sleeper: fn(&str, &mut Speaker) = |_, speaker| {
        // A reader with a position in the log that never advances.
        let reader = speaker.add_reader();
        let _ = speaker.read(reader, Family::IPV4_UNICAST, Budget(1), &mut |_| {});
    };
    let ghost: fn(&str, &mut Speaker) = |_, speaker| {
        // A route of a family that no session has, and that is never withdrawn.
        let net = Net::V4("192.0.2.0/24".parse().expect("a prefix"));
        speaker.handle(
            Instant(0),
            Input::Local {
                family: Family::IPV4_MULTICAST,
                net,
                attributes: Some(Attributes {
                    med: Some(7),
                    ..Attributes::default()
                }),
                interface: None,
            },
        );
    };
    for (plant, expected) in [
        (sleeper, "withdrawn prefixes kept"),
        (ghost, "attribute sets"),
    ] {
        let plants = || Plants {
            speaker: Some(Box::new(plant)),
            ..Plants::default()
        };
        let (seed, oracle, what) = found(&options, plants).expect("found");
        println!("seed {seed}: {oracle}: {what}");
        assert_eq!(oracle, "empty");
        assert!(what.contains(expected), "{what}");
    }
}
