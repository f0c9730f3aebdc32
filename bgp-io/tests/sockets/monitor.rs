//! The records of a monitor as events of the driver.

use std::io::Write;
use std::net::TcpStream;

use crate::support::{
    self, PATIENCE, RawPeer, announce, beside, host, neighbor, port, prefix, speaker,
};
use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_proto::{Family, MessageKind};
use bgp_io::bgp_speaker::{Monitor, Record};
use bgp_io::rib::Stage;
use bgp_io::{Event, Io, IoConfig, Speaker};

const STAGE: Stage = Stage::AdjRibInPrePolicy;

/// Returns a driver with a monitor and its passive peers at 127.0.0.`first` and after.
fn monitored(us: u8, first: u8, count: u8, monitor: Monitor) -> Io {
    let peers = (0..count).map(|n| neighbor(us, host(first + n).into(), None));
    let mut all = Speaker::new(speaker(us).with_peers(peers), 1);
    all.start_monitor(Instant::ZERO, monitor);
    Io::new(all, IoConfig::new([(host(us), 0).into()])).expect("it can listen")
}

/// Takes events until `done` returns true for a record; returns the records.
async fn until(us: &mut Io, mut done: impl FnMut(&Record) -> bool) -> Vec<Record> {
    let mut records = vec![];
    let all = async {
        loop {
            for event in us.next().await {
                if let Event::Monitor(record) = event {
                    let is_done = done(&record);
                    records.push(record);
                    if is_done {
                        return;
                    }
                }
            }
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, all).await;
    assert!(in_time.is_ok(), "the record has not come");
    records
}

#[tokio::test]
async fn records_come_in_order_with_the_events_of_a_turn() {
    const ROUTES: u32 = 2000;
    let mut us = monitored(180, 181, 1, Monitor::new([STAGE]));
    let peer = neighbor(181, host(180).into(), Some(port(&us)));
    let mut them = support::io(181, speaker(181).with_peer(peer));
    for number in 0..ROUTES {
        announce(&mut them, number);
    }
    let is_end = |record: &Record| matches!(record, Record::EndOfRib { family, .. } if *family == Family::IPV4_UNICAST);
    let records = tokio::select! {
        records = until(&mut us, is_end) => records,
        () = async { loop { them.next().await; } } => unreachable!(),
    };
    let [
        Record::Up { neighbor, .. },
        routes @ ..,
        Record::EndOfRib { .. },
    ] = &records[..]
    else {
        panic!("{records:?}");
    };
    assert_eq!(neighbor.address, host(181));
    let mut numbers = vec![];
    for record in routes {
        let Record::Routes { routes, .. } = record else {
            continue; // The End-of-RIB of the other family.
        };
        let med = routes.attributes.as_ref().and_then(|set| set.med);
        let nets = routes.nlri().map(|nlri| nlri.net.to_string());
        numbers.extend(nets.map(|net| (med.expect("a MED"), net)));
    }
    numbers.sort();
    let expected = (0..ROUTES).map(|number| (number, prefix(number).to_string()));
    assert_eq!(numbers, expected.collect::<Vec<_>>());
}

/// Returns an UPDATE that withdraws a prefix, or announces it.
fn update(number: u16, is_announced: bool) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let nlri = [24, 10, high, low];
    let attributes = [
        &[0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4, 192, 0, 2, 1][..],
        &[0x40, 5, 4, 0, 0, 0, 100],
    ]
    .concat();
    let body = match is_announced {
        true => [&[0, 0, 0, 21], &attributes[..], &nlri].concat(),
        false => [&[0, 4][..], &nlri, &[0, 0]].concat(),
    };
    let length = u16::try_from(19 + body.len()).expect("a message");
    let mut message = vec![0xff; 16];
    message.extend(length.to_be_bytes());
    message.push(MessageKind::Update.0);
    message.extend(body);
    message
}

/// Establishes the session of a peer.
async fn greet(us: &mut Io, last: u8) -> TcpStream {
    let address = us.listening().next().expect("it listens");
    let greeting = async {
        let mut peer = RawPeer::dial(last, address, None).await;
        peer.open(last).await;
        peer.send(MessageKind::Keepalive.0, &[]).await;
        while peer.recv().await.expect("a message").kind != MessageKind::Keepalive {}
        peer.stream.into_std().expect("a socket")
    };
    beside(us, greeting, drop).await
}

/// The queue has room for what a few peers send at once, and many have sent something.
#[tokio::test]
async fn turn_reads_no_more_than_the_monitor_has_room_for() {
    const PEERS: u8 = 12;
    const EACH: u16 = 400;
    let mut monitor = Monitor::new([STAGE]);
    monitor.entries_max = 3 * usize::from(EACH);
    let mut us = monitored(182, 183, PEERS, monitor);
    let mut peers = vec![];
    for n in 0..PEERS {
        peers.push(greet(&mut us, 183 + n).await);
    }
    for peer in &mut peers {
        for number in 0..EACH {
            // It is in the kernel's buffer when the call returns.
            peer.write_all(&update(number, true)).expect("it listens");
        }
    }
    let mut left = usize::from(PEERS) * usize::from(EACH);
    until(&mut us, |record| {
        assert!(!matches!(record, Record::Lost { .. }), "{record:?}");
        if let Record::Routes { routes, .. } = record {
            left -= routes.len();
        }
        left == 0
    })
    .await;
    for peer in &mut peers {
        peer.write_all(&update(0, false)).expect("it listens");
    }
    let mut withdrawn = 0;
    until(&mut us, |record| {
        withdrawn += u8::from(matches!(record, Record::Routes { .. }));
        withdrawn == PEERS
    })
    .await;
}
