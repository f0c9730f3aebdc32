//! Attacks on a reflector, each from one thread in the namespace of the daemon.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bgp_io::bgp_proto::notification::cease;
use bgp_io::bgp_proto::{
    AttrCode, Capability, HEADER_OCTETS, Ipv4Prefix, MESSAGE_OCTETS_MAX, MessageKind, Notification,
};
use bytes::BytesMut;
use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};
use testkit::{Encode, Keepalive, OPTIONAL, OPTIONAL_TRANSITIVE, Update, WELL_KNOWN};

use crate::stage::{DAEMON, DAEMON_AS, client};
use crate::wire::{Offer, Range};

/// A kind of attack.
#[derive(Clone, Copy, Debug)]
pub enum Flood {
    /// Connections per second from addresses that are no neighbors.
    Strangers {
        /// Connections per second.
        rate: u32,
    },
    /// Connections from a range, with octets that are no BGP.
    Garbage {
        /// Connections per second.
        rate: u32,
    },
    /// More connections than a range has places, each with one octet of an OPEN per second.
    SlowOpens,
    /// A client sends malformed UPDATEs.
    Malformed {
        /// UPDATEs per second.
        rate: u32,
    },
    /// A client sends UPDATEs of 4 KB to clients that do not read.
    SlowReaders,
    /// Connections from the address of a quiet client, whose session is established, with its OPEN.
    TakeOvers {
        /// Connections per second.
        rate: u32,
    },
    /// Connections from a range, with an OPEN of the maximum length that has unknown capabilities.
    LongOpens {
        /// Connections per second.
        rate: u32,
    },
}

/// The daemon's port.
pub const BGP_PORT: u16 = 179;

/// The first address of strangers.
const STRANGERS: u32 = u32::from_be_bytes([10, 126, 0, 0]);

/// Connections of [`Flood::SlowOpens`].
const SLOW_OPENS: u32 = 150;
/// Clients that do not read.
const SLOW_READERS: u32 = 20;
/// UPDATEs per second to them, and the octets of communities in each.
const LARGE_UPDATES: u32 = 1000;
const LARGE_OCTETS: u32 = 3900;
/// Connections of [`Flood::Strangers`] without an answer to their SYN: the oldest is closed for a new
/// one.
const OPENING_MAX: usize = 1000;
/// Connections that wait for the answer to their OPEN: the oldest is closed for a new one.
const ANSWERS_MAX: usize = 32;
/// The first code of unknown capabilities, and how many codes there are: those for private use.
const UNKNOWN_CODES: (u8, u8) = (239, 16);

/// Receive buffer of a client that does not read.
const WINDOW: usize = 4096;

/// How long a step of a connection may take.
const WITHIN: Duration = Duration::from_secs(10);
/// Actions come in bursts of this time.
const TICK: Duration = Duration::from_millis(5);
/// How long a burst may take before the end of the flood is checked.
const BURST: Duration = Duration::from_millis(100);

impl Flood {
    /// Returns the number of actions after which the flood has its full effect.
    pub const fn least(self) -> u64 {
        match self {
            Self::SlowOpens => SLOW_OPENS as u64,
            Self::SlowReaders => 2000,
            Self::TakeOvers { .. } | Self::LongOpens { .. } => 50,
            _ => 200,
        }
    }

    /// Returns the actions per second, of those that are counted.
    pub const fn rate(self) -> Option<u32> {
        match self {
            Self::Strangers { rate } | Self::Garbage { rate } | Self::Malformed { rate } => {
                Some(rate)
            }
            _ => None,
        }
    }

    /// Runs until `ends`; counts in `done`. Only a flood without a session can have another port
    /// than that of the daemon.
    pub fn run(self, port: u16, ends: &Receiver<()>, done: &AtomicU64) -> Result<()> {
        match self {
            Self::Strangers { rate } => {
                let mut opening = VecDeque::new();
                paced(rate, ends, done, |nth| {
                    let from = Ipv4Addr::from(STRANGERS + nth % 0xffff);
                    let socket = begin(port, from)?;
                    // Over loopback, an accepted connection is established already.
                    if socket.peer_addr().is_err() {
                        opening.push_back(socket);
                    }
                    if opening.len() > OPENING_MAX {
                        opening.pop_front();
                    }
                    Ok(())
                })
            }
            Self::Garbage { rate } => paced(rate, ends, done, |nth| {
                if let Ok(mut stream) = connect(port, Range::address(nth % 5000), None) {
                    let _ = stream.write_all(&[0x16; 64]);
                }
                Ok(())
            }),
            Self::SlowOpens => slow_opens(ends, done),
            Self::Malformed { rate } => malformed(rate, ends, done),
            Self::SlowReaders => slow_readers(ends, done),
            Self::TakeOvers { rate } => {
                let octets = offer(client(0)).open().octets();
                opens(rate, port, ends, done, MessageKind::Notification, |_| {
                    (client(0), &octets)
                })
            }
            Self::LongOpens { rate } => {
                let octets = long_open();
                opens(rate, port, ends, done, MessageKind::Open, |nth| {
                    (Range::address(nth % 5000), &octets)
                })
            }
        }
    }
}

/// Performs so many actions per second.
fn paced(
    rate: u32,
    ends: &Receiver<()>,
    done: &AtomicU64,
    mut act: impl FnMut(u32) -> Result<()>,
) -> Result<()> {
    let began = Instant::now();
    let mut nth = 0_u32;
    while ends.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let due = began.elapsed().as_secs_f64() * f64::from(rate);
        let since = Instant::now();
        while f64::from(nth) < due && since.elapsed() < BURST {
            act(nth)?;
            nth += 1;
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn connect(port: u16, from: Ipv4Addr, window: Option<usize>) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    if let Some(window) = window {
        socket.set_recv_buffer_size(window)?;
    }
    socket.bind(&SocketAddrV4::new(from, 0).into())?;
    let to = SocketAddr::from(SocketAddrV4::new(DAEMON, port));
    socket.connect_timeout(&to.into(), Duration::from_millis(200))?;
    Ok(socket.into())
}

/// Begins to open a connection, and does not wait for it.
fn begin(port: u16, from: Ipv4Addr) -> Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddrV4::new(from, 0).into())?;
    socket.set_nonblocking(true)?;
    let to = SocketAddr::from(SocketAddrV4::new(DAEMON, port));
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error.into()),
        _ => Ok(socket),
    }
}

fn offer(from: Ipv4Addr) -> Offer {
    Offer {
        asn: DAEMON_AS,
        id: from,
        hold_time_s: 0,
        ipv6: true,
        add_path: false,
    }
}

/// Opens a session from an address of the range, without a hold time.
fn session(from: Ipv4Addr, window: Option<usize>) -> Result<TcpStream> {
    let mut stream = connect(BGP_PORT, from, window)?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.write_all(&offer(from).open().octets())?;
    stream.write_all(&Keepalive.octets())?;
    for kind in [MessageKind::Open, MessageKind::Keepalive] {
        let mut header = [0; HEADER_OCTETS];
        stream.read_exact(&mut header).context("a header")?;
        if header[18] != kind.0 {
            bail!("a message of type {} from the daemon", header[18]);
        }
        let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
        let mut body = vec![0; length.saturating_sub(HEADER_OCTETS)];
        stream.read_exact(&mut body).context("a message")?;
    }
    Ok(stream)
}

fn slow_opens(ends: &Receiver<()>, done: &AtomicU64) -> Result<()> {
    let mut places: Vec<Option<(TcpStream, usize)>> = (0..SLOW_OPENS).map(|_| None).collect();
    // Each connection has its turn once in a second.
    paced(SLOW_OPENS, ends, done, |nth| {
        let at = nth % SLOW_OPENS;
        let from = Range::address(at);
        let octets = offer(from).open().octets();
        let place = &mut places[at as usize];
        let sent = place.as_mut().map(|(stream, sent)| {
            *sent += 1;
            stream.write_all(&octets[(*sent - 1) % octets.len()..][..1])
        });
        if !matches!(sent, Some(Ok(()))) {
            *place = connect(BGP_PORT, from, None).ok().map(|stream| (stream, 0));
        }
        Ok(())
    })
}

/// Sends OPENs, each over a connection of its own; counts those with an answer of this type.
fn opens<'o>(
    rate: u32,
    port: u16,
    ends: &Receiver<()>,
    done: &AtomicU64,
    answer: MessageKind,
    open: impl Fn(u32) -> (Ipv4Addr, &'o BytesMut),
) -> Result<()> {
    let mut waiting = VecDeque::with_capacity(ANSWERS_MAX);
    paced(rate, ends, &AtomicU64::default(), |nth| {
        if waiting.len() == ANSWERS_MAX
            && let Some(oldest) = waiting.pop_front()
            && answered(oldest) == Some(answer.0)
        {
            done.fetch_add(1, Ordering::Relaxed);
        }
        let (from, octets) = open(nth);
        // A connection that is not accepted in time has no answer.
        if let Ok(mut stream) = connect(port, from, None)
            && stream.write_all(octets).is_ok()
        {
            waiting.push_back(stream);
        }
        Ok(())
    })
}

/// Returns the type of the first message that has arrived.
fn answered(mut stream: TcpStream) -> Option<u8> {
    stream.set_nonblocking(true).ok()?;
    let mut header = [0; HEADER_OCTETS];
    stream.read_exact(&mut header).ok()?;
    Some(header[18])
}

/// Returns an OPEN of the maximum length, filled with as many capabilities as possible.
fn long_open() -> BytesMut {
    let mut open = offer(Range::address(0)).open();
    let (first, count) = UNKNOWN_CODES;
    let codes = (0..count).map(|nth| first.saturating_add(nth)).cycle();
    // An empty capability has two octets; the last one may have one more.
    for code in codes.take(MESSAGE_OCTETS_MAX) {
        let left = MESSAGE_OCTETS_MAX.saturating_sub(open.octets().len());
        let data = vec![0; usize::from(left == 3)];
        if left < 2 {
            break;
        }
        open.capabilities.push(Capability::Unknown { code, data });
    }
    open.octets()
}

fn malformed(rate: u32, ends: &Receiver<()>, done: &AtomicU64) -> Result<()> {
    let mut stream = session(Range::address(1), None)?;
    stream.set_write_timeout(Some(WITHIN))?;
    let prefix = Ipv4Prefix::new(Ipv4Addr::new(10, 65, 0, 1), 32).context("a prefix")?;
    let update = Update::via(Ipv4Addr::new(10, 65, 0, 2));
    // RFC 7606 §7.1: treat-as-withdraw.
    let update = update.replacing(WELL_KNOWN, AttrCode::Origin, &[9]);
    let octets = update.announcing(prefix).octets();
    // It receives the few routes of the quiet clients, which fit into the socket.
    paced(rate, ends, done, |_| {
        stream.write_all(&octets).context("an UPDATE")
    })
}

/// The routes are IPv6 routes, which the quiet clients do not carry.
fn slow_readers(ends: &Receiver<()>, done: &AtomicU64) -> Result<()> {
    let readers = (0..SLOW_READERS).map(|nth| session(Range::address(10 + nth), Some(WINDOW)));
    let _readers: Vec<TcpStream> = readers.collect::<Result<_>>()?;
    let mut sender = session(Range::address(1), None)?;
    sender.set_write_timeout(Some(WITHIN))?;
    paced(LARGE_UPDATES, ends, done, |nth| {
        let communities = (0..LARGE_OCTETS / 4).flat_map(|at| (nth << 12 | at).to_be_bytes());
        let communities: Vec<u8> = communities.collect();
        let update = Update::default()
            .with(WELL_KNOWN, AttrCode::Origin, &[0])
            .with(WELL_KNOWN, AttrCode::AsPath, &[])
            .with(WELL_KNOWN, AttrCode::LocalPref, &100_u32.to_be_bytes())
            .with(OPTIONAL_TRANSITIVE, AttrCode::Communities, &communities)
            .with(OPTIONAL, AttrCode::MpReachNlri, &reach(nth % 1000));
        sender.write_all(&update.octets()).context("an UPDATE")
    })
}

/// Returns MP_REACH_NLRI of one IPv6 route (RFC 4760 §3).
fn reach(number: u32) -> Vec<u8> {
    let mut value = vec![0, 2, 1, 16];
    value.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    value.extend([0, 128, 0xfd, 1]);
    value.extend([0; 10]);
    value.extend(number.to_be_bytes());
    value
}

/// A listener beside the daemon that accepts, reads once, answers and closes: what an attack costs
/// the machine, also without the daemon.
pub struct Bystander {
    /// Its port.
    pub port: u16,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Bystander {
    /// Listens in the namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// As of the sockets.
    pub fn start(flood: Flood) -> Result<Self> {
        let listener = TcpListener::bind(SocketAddrV4::new(DAEMON, 0))?;
        let port = listener.local_addr()?.port();
        let answer = match flood {
            Flood::TakeOvers { .. } => {
                Some(Notification::cease(cease::CONNECTION_COLLISION_RESOLUTION).octets())
            }
            Flood::LongOpens { .. } => Some(offer(DAEMON).open().octets()),
            _ => None,
        };
        let ends = Arc::<AtomicBool>::default();
        let ended = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                if matches!(flood, Flood::Strangers { .. }) {
                    continue;
                }
                let _ = stream.set_read_timeout(Some(BURST));
                let _ = stream.read(&mut [0; MESSAGE_OCTETS_MAX]);
                let _ = answer.as_ref().map(|answer| stream.write_all(answer));
            }
        });
        Ok(Self { port, ends, thread })
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// As of the connection that wakes it.
    pub fn stop(self) -> Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        match TcpStream::connect(SocketAddrV4::new(DAEMON, self.port)) {
            // A connection of the flood has woken it before.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
                ) => {}
            other => drop(other?),
        }
        self.thread
            .join()
            .map_err(|_| anyhow!("the listener panicked"))
    }
}

#[cfg(test)]
mod tests {
    use bgp_io::bgp_proto::Open;

    use super::*;

    #[test]
    fn long_open_is_valid_and_has_the_maximum_length() {
        let octets = long_open();
        assert_eq!(octets.len(), MESSAGE_OCTETS_MAX);
        let open = Open::parse(&octets[HEADER_OCTETS..]).expect("valid");
        assert!(open.capabilities.len() > 1_900);
    }
}
