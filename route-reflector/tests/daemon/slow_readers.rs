//! Clients that stop reading, with real sockets: the process takes no more memory for them than
//! `cambric show limits` states, however long UPDATEs are.

use bgp_io::bgp_proto::{Asn, RouterId};
use bgp_io::bgp_proto::{AttrCode, Capability, MessageKind, Open};
use netns_lab::usage;
use testkit::{OPTIONAL_TRANSITIVE, TcpPeer, Update};
use tokio::net::TcpSocket;

use super::*;

const MANY: &str = r#"
asn = 64512
router_id = "127.0.0.1"
listen = ["127.0.0.1:0"]
guard = { enabled = false } # This is no namespace of the test's own.

[[neighbor_range]]
prefix = "127.0.0.0/24"
asn = 64512
limit = 100
route_reflector_client = true
extended_messages = true
"#;

/// Clients that do not read.
const SLOW: u8 = 50;
/// The client that sends, and the one that reads everything.
const SENDER: u8 = 2;
const READER: u8 = 3;
/// Receive buffer of a client that does not read.
const WINDOW: u32 = 4096;
/// Octets that each of them still reads, one after the other, when a third of the load is sent: by
/// then all lag, and what each waits for is encoded for it alone.
const SLOW_OCTETS: usize = 700_000;
/// The route that is sent last.
const MARK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// Octets of memory beside the limits: the sessions themselves, and what the allocator keeps.
const BESIDE: u64 = 4 << 20;

/// UPDATEs of one length, each with other attributes.
#[derive(Clone, Copy, Debug)]
struct Load {
    messages: u32,
    octets: usize,
    prefixes: u32,
}

/// 40 MB each: more than the limits of all clients, and more than sockets take.
const LOADS: [Load; 2] = [
    Load {
        messages: 10_000,
        octets: 4000,
        prefixes: 2000,
    },
    Load {
        messages: 640,
        octets: 64_000,
        prefixes: 320,
    },
];

impl Load {
    fn update(self, number: u32) -> Update {
        let prefix = Ipv4Addr::from(0x0a80_0000 + number % self.prefixes);
        let communities: Vec<u8> = (0..self.octets as u32 / 4)
            .flat_map(|nth| (number << 14 | nth).to_be_bytes())
            .collect();
        Update::via(Ipv4Addr::new(10, 0, 0, 2))
            .with(OPTIONAL_TRANSITIVE, AttrCode::Communities, &communities)
            .announcing(host(prefix))
    }
}

fn host(address: Ipv4Addr) -> Ipv4Prefix {
    Ipv4Prefix::new(address, 32).expect("a prefix")
}

/// Opens a session without a hold time, so that a client that is silent stays.
async fn session(number: u8, to: SocketAddr, window: Option<u32>) -> TcpPeer {
    let socket = TcpSocket::new_v4().expect("a socket");
    if let Some(octets) = window {
        socket.set_recv_buffer_size(octets).expect("a buffer");
    }
    let from = Ipv4Addr::new(127, 0, 0, number);
    socket.bind((from, 0).into()).expect("bound");
    let stream = socket.connect(to).await.expect("connected");
    stream.set_nodelay(true).expect("an option");
    let mut peer = TcpPeer::new(stream);
    let open = Open {
        asn: Asn(64_512),
        hold_time: 0,
        id: RouterId(from),
        capabilities: vec![
            Capability::MultiProtocol(Family::IPV4_UNICAST),
            Capability::FourOctetAsn(Asn(64_512)),
            Capability::ExtendedMessage,
        ],
    };
    peer.establish(&open).await.expect("established");
    peer
}

/// Reads until the last route arrives.
async fn reads_all(reader: &mut TcpPeer) {
    let mut mark = vec![32];
    mark.extend(MARK.octets());
    loop {
        let frame = reader.frame().await.expect("a message");
        let frame = frame.expect("the session stays");
        if frame.kind == MessageKind::Update && frame.body.ends_with(&mark) {
            return;
        }
    }
}

/// Reads so many octets, whatever they are.
async fn reads(peer: &TcpPeer, octets: usize) {
    let (mut left, mut scratch) = (octets, vec![0; 1 << 16]);
    while left > 0 {
        let most = left.min(scratch.len());
        peer.stream().readable().await.expect("a connection");
        match peer.stream().try_read(&mut scratch[..most]) {
            Ok(0) => panic!("the session ended"),
            Ok(read) => left -= read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The memory of a reflector after a load.
struct Taken {
    peak: u64,
    /// The limits of the memory for clients that do not read: shared, and of each.
    shared: u64,
    each: u64,
}

async fn taken(load: Load, slow: u8) -> Taken {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, control) = (
        directory.path().join("rr.toml"),
        directory.path().join("rr.sock"),
    );
    std::fs::write(&config, format!("control = {control:?}\n{MANY}")).expect("write");
    let process = start(&config, &[]).expect("the program starts");
    let reflector = Reflector { process, directory };
    let address = reflector.address().await;
    let mut sender = session(SENDER, address, None).await;
    let mut reader = session(READER, address, None).await;
    let mut idle = Vec::new();
    for nth in 0..slow {
        idle.push(session(READER + 1 + nth, address, Some(WINDOW)).await);
    }
    let sent = async {
        let (third, mut slow) = (load.messages / 3, idle.iter().peekable());
        for number in 0..load.messages {
            sender.send(load.update(number)).await.expect("sent");
            let is_turn = number > third && number % (third / u32::from(SLOW)) == 0;
            if let Some(peer) = slow.next_if(|_| is_turn) {
                reads(peer, SLOW_OCTETS).await;
            }
        }
        let mark = Update::via(Ipv4Addr::new(10, 0, 0, 2)).announcing(host(MARK));
        sender.send(mark).await.expect("sent");
    };
    let whole = async { tokio::join!(sent, reads_all(&mut reader)) };
    timeout(3 * DEADLINE, whole).await.expect("all others read");

    let limits = match reflector.call(Command::Limits {}).await {
        Ok(Reply::Limits(limits)) => limits.limits,
        other => panic!("{other:?}"),
    };
    let stated = |name: &str| {
        let limit = limits.iter().find(|limit| limit.name == name);
        let limit = limit.unwrap_or_else(|| panic!("{name}"));
        assert!(limit.peak <= Some(limit.limit), "{limit:?}");
        limit.limit
    };
    let ring = stated("bytes waiting for slow members of a group");
    let feed = stated("bytes of a table transfer kept for new members of a group");
    let each = stated("bytes waiting for one neighbor");
    let neighbors = reflector.neighbors().await.neighbors;
    let up = neighbors.iter().filter(|one| one.state == "Established");
    assert_eq!(up.count(), usize::from(slow) + 2, "no session ended");
    let waits = |one: &&daemon_common::report::Neighbor| one.octets_queued > 0;
    assert_eq!(neighbors.iter().filter(waits).count(), usize::from(slow));
    let peak = usage(reflector.process.id()).expect("it runs").peak_octets;
    Taken {
        peak,
        shared: ring + feed,
        each,
    }
}

// Promise: as bgp-speaker slow_readers_of_long_updates_take_what_limits_state
#[tokio::test]
async fn slow_readers_take_the_memory_that_limits_state() {
    for load in LOADS {
        let alone = taken(load, 0).await;
        let slow = taken(load, SLOW).await;
        let more = slow.peak.saturating_sub(alone.peak);
        let most = slow.shared + u64::from(SLOW) * slow.each + BESIDE;
        println!(
            "{load:?}: {} octets alone, {more} more, at most {most}",
            alone.peak
        );
        assert!(more <= most, "{load:?}: {more} octets more, at most {most}");
    }
}
