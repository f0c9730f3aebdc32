//! Floods of one workload.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};
use socket2::{Domain, Protocol, Socket, Type};

use crate::fabric::Workload;
use crate::limits::SENDER_TURN;

/// The kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Packets of one flow, which need no entry of any table.
    Ordinary,
    /// Packets to one address after the other of this network of 65,536, on a link of the node.
    Neighbors(Ipv4Addr),
    /// Packets of one flow after the other.
    Connections,
    /// First fragments of packets that never become complete.
    Fragments,
}

/// The port of packets that belong to one flow, and the first one of those that do not.
const PORT: u16 = 9;
const FIRST_PORT: u16 = 1_024;
/// Octets of an IPv4 header, and the number of UDP in it.
const HEADER: u8 = 20;
const UDP: u8 = 17;

impl Attack {
    /// Starts it, with so many packets in each turn of a sender.
    pub fn start(self, [from, to]: [&Workload; 2], burst: u32) -> Flooding {
        let (ends, ended) = sync_channel::<()>(1);
        let done = Arc::<AtomicU64>::default();
        let (from, to, count) = (from.clone(), to.address(), Arc::clone(&done));
        let thread = thread::spawn(move || {
            let host = from.host.clone();
            host.run(move || {
                let sockets = Sockets::open(from.address())?;
                let mut number = 0_u32;
                while ended.recv_timeout(SENDER_TURN) == Err(RecvTimeoutError::Timeout) {
                    for _ in 0..burst {
                        // A full queue on the way loses a packet.
                        let _ = self.send(&sockets, [from.address(), to], number);
                        number = number.wrapping_add(1);
                    }
                    count.fetch_add(u64::from(burst), Ordering::Relaxed);
                }
                Ok(())
            })?
        });
        Flooding { ends, done, thread }
    }

    fn send(self, sockets: &Sockets, ends: [Ipv4Addr; 2], number: u32) -> io::Result<usize> {
        let [_, _, high, low] = number.to_be_bytes();
        let cycle = u16::from_be_bytes([high, low]);
        let to = ends[1];
        match self {
            Self::Ordinary => sockets.udp.send_to(&[0], (to, PORT)),
            Self::Neighbors(network) => {
                let [a, b, ..] = network.octets();
                let to = Ipv4Addr::new(a, b, high, low);
                sockets.udp.send_to(&[0], (to, PORT))
            }
            Self::Connections => sockets.udp.send_to(&[0], (to, cycle.max(FIRST_PORT))),
            Self::Fragments => {
                let to = SocketAddrV4::new(to, 0).into();
                sockets.raw.send_to(&fragment(ends, cycle), &to)
            }
        }
    }
}

/// Returns the first fragment of a datagram with an identification.
fn fragment([from, to]: [Ipv4Addr; 2], identification: u16) -> Vec<u8> {
    const PAYLOAD: u8 = 64;
    let mut packet = vec![0x45, 0, 0, HEADER + PAYLOAD];
    packet.extend(identification.to_be_bytes());
    // More fragments follow. The kernel fills in the checksum.
    packet.extend([0x20, 0, 64, UDP, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(FIRST_PORT.to_be_bytes());
    packet.extend(PORT.to_be_bytes());
    packet.extend([0, 255, 0, 0]);
    packet.resize(usize::from(HEADER + PAYLOAD), 0);
    packet
}

struct Sockets {
    udp: UdpSocket,
    raw: Socket,
}

impl Sockets {
    fn open(own: Ipv4Addr) -> Result<Self> {
        let udp = UdpSocket::bind((own, 0))?;
        udp.set_nonblocking(true)?;
        // IPPROTO_RAW: the header is that of the caller.
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255)))?;
        raw.set_nonblocking(true)?;
        Ok(Self { udp, raw })
    }
}

/// A thread that floods until this is stopped.
#[derive(Debug)]
pub struct Flooding {
    /// Dropped to end it.
    ends: SyncSender<()>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
}

impl Flooding {
    /// Returns how many packets it has sent.
    pub fn sent(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns whether it has failed.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it.
    pub fn stop(self) -> Result<()> {
        drop(self.ends);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the flood panicked"))?
    }
}
