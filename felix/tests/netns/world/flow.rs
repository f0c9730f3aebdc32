//! A flow of echo requests that counts what it sent, and names what stayed unanswered.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::{Namespace, sysctl};

/// Time between two requests.
const PERIOD: Duration = Duration::from_millis(1);
/// Maximum number of unanswered requests: their answers fit into the buffer of the socket.
const UNANSWERED_MAX: usize = 100;
/// Maximum time for pending answers. The kernel answers a request when it is sent, so this is only
/// needed where packets wait for a CPU.
const LINGER: Duration = Duration::from_secs(10);
/// Octets of an echo message without a payload.
const ECHO_OCTETS: usize = 8;

/// Echo requests to one destination, which its kernel answers, until the flow is ended.
pub(crate) struct Flow {
    ends: Arc<AtomicBool>,
    sent: Arc<AtomicU16>,
    thread: JoinHandle<BTreeSet<u16>>,
}

impl Flow {
    /// Starts a flow from a namespace.
    pub(crate) fn start(from: &Namespace, to: &str) -> Self {
        let to: IpAddr = to.parse().unwrap();
        let socket = from.within(|| open(to));
        let (ends, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU16>::default());
        let (end, count) = (Arc::clone(&ends), Arc::clone(&sent));
        let thread = std::thread::spawn(move || run(&socket, to, &end, &count));
        Self { ends, sent, thread }
    }

    /// Returns the number of requests sent until now.
    pub(crate) fn sent(&self) -> u16 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Stops sending, waits for the pending answers, and returns the unanswered sequence numbers.
    pub(crate) fn end(self) -> BTreeSet<u16> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Opens a socket for echo messages. The kernel chooses its identifier, so it receives no answer of
/// another one.
fn open(to: IpAddr) -> Socket {
    sysctl("ipv4/ping_group_range", "0 0");
    let (domain, protocol) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol)).unwrap();
    socket.connect(&SocketAddr::new(to, 0).into()).unwrap();
    socket.set_read_timeout(Some(PERIOD)).unwrap();
    socket
}

fn run(socket: &Socket, to: IpAddr, ends: &AtomicBool, sent: &AtomicU16) -> BTreeSet<u16> {
    let mut unanswered = BTreeSet::new();
    let mut next = Instant::now();
    let mut last = None;
    loop {
        let now = Instant::now();
        if ends.load(Ordering::Relaxed) {
            let until = *last.get_or_insert(now + LINGER);
            if unanswered.is_empty() || now >= until {
                return unanswered;
            }
        } else if now >= next && unanswered.len() < UNANSWERED_MAX {
            let number = sent.load(Ordering::Relaxed);
            let [high, low] = number.to_be_bytes();
            let kind = if to.is_ipv4() { 8 } else { 128 };
            socket.send(&[kind, 0, 0, 0, 0, 0, high, low]).unwrap();
            unanswered.insert(number);
            sent.store(number + 1, Ordering::Relaxed);
            next = now + PERIOD;
        }
        receive(socket, &mut unanswered);
    }
}

/// Waits for an answer, at most one period.
fn receive(mut socket: &Socket, unanswered: &mut BTreeSet<u16>) {
    let mut answer = [0; ECHO_OCTETS];
    match socket.read(&mut answer) {
        Ok(_) => {
            let [.., high, low] = answer;
            unanswered.remove(&u16::from_be_bytes([high, low]));
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => panic!("{error}"),
    }
}
