//! A scripted peer: it sends packets of BFD at a fixed interval, and notes all that it receives.

use std::net::{IpAddr, UdpSocket};
use std::num::NonZeroU8;
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use bfd::{Diagnostic, Discriminator, Packet, State};

/// The interval of its packets.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) state: State,
    pub(crate) discriminator: Discriminator,
    pub(crate) port: u16,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Vec<Seen>,
    /// The intervals that have passed.
    intervals: usize,
    is_silent: bool,
    ends: bool,
}

/// The peer, with its thread.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.lock().expect("no panic").ends = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Peer {
    pub(crate) fn start(address: [u8; 4], remote: IpAddr, multiplier: u8) -> Self {
        let address = IpAddr::from(address);
        let socket = UdpSocket::bind((address, 3784)).expect("bound");
        socket.set_ttl(255).expect("set");
        socket
            .set_read_timeout(Some(INTERVAL / 4))
            .expect("a timeout");
        let shared = Arc::new(Mutex::new(Shared::default()));
        let own = shared.clone();
        Self {
            address,
            shared,
            thread: Some(spawn(move || talk(&socket, remote, multiplier, &own))),
        }
    }

    /// Returns the received packets.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.lock().expect("no panic").seen.clone()
    }

    /// Ends its packets, or begins them again.
    pub(crate) fn silence(&self, is_silent: bool) {
        self.shared.lock().expect("no panic").is_silent = is_silent;
    }

    /// Waits until so many of its intervals have passed.
    pub(crate) async fn pass(&self, intervals: usize) {
        let passed = || self.shared.lock().expect("no panic").intervals;
        let until = passed() + intervals;
        let wait = async {
            while passed() < until {
                tokio::time::sleep(INTERVAL / 2).await;
            }
        };
        tokio::time::timeout(crate::WAIT, wait)
            .await
            .expect("the peer runs");
    }

    /// Waits for a received packet that `wanted` accepts, after the first `skipped` ones.
    pub(crate) async fn receives(&self, skipped: usize, wanted: impl Fn(&Seen) -> bool) {
        let wait = async {
            while !self.seen().iter().skip(skipped).any(&wanted) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(crate::WAIT, wait)
            .await
            .expect("the packet");
    }
}

fn talk(socket: &UdpSocket, remote: IpAddr, multiplier: u8, shared: &Mutex<Shared>) {
    let mut packet = Packet {
        diagnostic: Diagnostic::NONE,
        state: State::Down,
        poll: false,
        is_final: false,
        control_plane_independent: false,
        demand: false,
        detect_multiplier: NonZeroU8::new(multiplier).expect("not zero"),
        my_discriminator: Discriminator::MIN,
        your_discriminator: None,
        desired_min_tx_us: INTERVAL.as_micros() as u32,
        required_min_rx_us: INTERVAL.as_micros() as u32,
        required_min_echo_rx_us: 0,
        auth: None,
    };
    let mut next = Instant::now();
    loop {
        let mut octets = [0; 64];
        let mut answers = false;
        if let Ok((length, from)) = socket.recv_from(&mut octets) {
            let received = Packet::decode(&octets[..length]).expect("a packet of BFD");
            packet.your_discriminator = Some(received.my_discriminator);
            packet.state = match (packet.state, received.state) {
                (State::Down, State::Down) => State::Init,
                (State::Down | State::Init, State::Init) => State::Up,
                (State::Init, State::Up) => State::Up,
                // It has failed, or is new.
                (State::Up, State::Down) => State::Down,
                (state, _) => state,
            };
            answers = received.poll;
            let seen = Seen {
                at: Instant::now(),
                state: received.state,
                discriminator: received.my_discriminator,
                port: from.port(),
            };
            shared.lock().expect("no panic").seen.push(seen);
        }
        let (is_silent, ends) = {
            let shared = shared.lock().expect("no panic");
            (shared.is_silent, shared.ends)
        };
        if ends {
            return;
        }
        let is_due = Instant::now() >= next;
        shared.lock().expect("no panic").intervals += usize::from(is_due);
        if (is_due || answers) && !is_silent {
            packet.is_final = answers;
            // The daemon may not run.
            let _ = socket.send_to(packet.encode().octets(), (remote, 3784));
        }
        if is_due {
            next = Instant::now() + INTERVAL;
        }
    }
}
