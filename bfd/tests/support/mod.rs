//! Two sessions with a link between them, in virtual time.

use std::collections::BTreeMap;

use bfd::{
    Change, Discriminator, Duration, Instant, Packet, Random, Seeded, Session, SessionConfig,
    Snapshot, State,
};

/// The two directions of the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// The time that a packet travels.
    pub(crate) delay: Duration,
    /// The lost packets, in percent.
    pub(crate) loss_percent: u64,
    /// Whether the packets of each end are all lost.
    pub(crate) cut: [bool; 2],
}

/// One end.
pub(crate) struct End {
    pub(crate) session: Session,
    random: Seeded,
    /// When the last packet arrived, and the packet.
    arrived: Option<(Instant, Packet)>,
}

pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
    pub(crate) link: Link,
    pub(crate) now: Instant,
    /// Each change with its end.
    pub(crate) changes: Vec<(usize, Change)>,
    /// Packets on the link, in the order of their arrival.
    flying: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    sent: u64,
    random: Seeded,
    /// Whether intervals are constant, so that the detection time can be computed here.
    pub(crate) is_constant: bool,
}

impl Pair {
    pub(crate) fn new(configs: [SessionConfig; 2], delay: Duration, seed: u64) -> Self {
        let mut number = 0;
        let ends = configs.map(|config| {
            number += 1;
            let mut random = Seeded::new(seed ^ (number << 32));
            let id = Discriminator::new(100 + number as u32).expect("not zero");
            let session = Session::new(Instant::ZERO, config, id, &mut random);
            End {
                session: session.expect("a valid configuration"),
                random,
                arrived: None,
            }
        });
        Self {
            ends,
            link: Link {
                delay,
                loss_percent: 0,
                cut: [false; 2],
            },
            now: Instant::ZERO,
            changes: Vec::new(),
            flying: BTreeMap::new(),
            sent: 0,
            random: Seeded::new(seed),
            is_constant: true,
        }
    }

    /// Lets everything happen until `self.now + time`.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let timeouts = self
                .ends
                .iter()
                .filter_map(|end| end.session.poll_timeout());
            let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
            match timeouts.chain(arrival).min() {
                Some(next) if next <= end => self.now = next.max(self.now),
                _ => break,
            }
            self.deliver();
            for index in 0..2 {
                self.expire(index);
                self.transmit(index);
            }
        }
        self.now = end;
    }

    /// Continues an end in another process, by octets.
    pub(crate) fn upgrade(&mut self, index: usize) {
        let now = self.now;
        let End {
            session, random, ..
        } = &mut self.ends[index];
        let octets = session.snapshot(now).encode();
        let snapshot = Snapshot::decode(&octets).expect("a valid snapshot");
        let config = session.config().clone();
        let restored = Session::restore(now, config, &snapshot, random);
        *session = restored.expect("a valid snapshot and configuration");
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let (index, octets) = entry.remove();
            let end = &mut self.ends[index];
            let result = end.session.receive(self.now, &octets);
            if let Ok(change) = result {
                let packet = Packet::decode(&octets).expect("an accepted packet");
                end.arrived = Some((self.now, packet));
                self.changes.extend(change.map(|change| (index, change)));
            }
        }
    }

    /// Handles the timeout, and compares it with the detection time by the definition.
    fn expire(&mut self, index: usize) {
        let End {
            session, arrived, ..
        } = &mut self.ends[index];
        let was_alive = matches!(session.state(), State::Init | State::Up);
        let required_us = session.config().required_min_rx_us;
        let change = session.handle_timeout(self.now);
        if let (true, Some((at, packet))) = (self.is_constant && was_alive, &*arrived) {
            let interval_us = required_us.max(packet.desired_min_tx_us);
            let multiplier = u32::from(packet.detect_multiplier.get());
            let time = Duration::from_micros(interval_us.into()) * multiplier;
            let is_over = self.now >= *at + time;
            let is_down = session.state() == State::Down;
            assert_eq!(is_down, is_over, "end {index} at {}", self.now);
        }
        self.changes.extend(change.map(|change| (index, change)));
    }

    fn transmit(&mut self, index: usize) {
        let End {
            session, random, ..
        } = &mut self.ends[index];
        while let Some(packet) = session.transmit(self.now, random) {
            self.sent += 1;
            let is_lost = self.random.next_u64() % 100 < self.link.loss_percent;
            if !is_lost && !self.link.cut[index] {
                let arrival = (self.now + self.link.delay, self.sent);
                let octets = packet.octets().to_vec();
                self.flying.insert(arrival, (1 - index, octets));
            }
        }
    }

    pub(crate) fn session(&mut self, index: usize) -> &mut Session {
        &mut self.ends[index].session
    }

    pub(crate) fn states(&self) -> [State; 2] {
        self.ends.each_ref().map(|end| end.session.state())
    }

    /// Returns the changes from Up to another state.
    pub(crate) fn failures(&self) -> usize {
        let failed = |change: &Change| change.from == State::Up && change.to != State::Up;
        self.changes
            .iter()
            .filter(|(_, change)| failed(change))
            .count()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.states() == [State::Up; 2]
    }

    /// Asserts that both ends are Up, with the intervals that their configurations result in.
    pub(crate) fn assert_converged(&self) {
        assert_eq!(self.states(), [State::Up; 2]);
        for (end, other) in
            [(0, 1), (1, 0)].map(|(one, other)| (&self.ends[one], &self.ends[other]))
        {
            let (local, remote) = (end.session.config(), other.session.config());
            let micros = |us: u32| Duration::from_micros(us.into());
            let transmit_us = local.desired_min_tx_us.max(remote.required_min_rx_us);
            let receive_us = local.required_min_rx_us.max(remote.desired_min_tx_us);
            let multiplier = u32::from(remote.detect_multiplier.get());
            assert_eq!(end.session.transmit_interval(), Some(micros(transmit_us)));
            assert_eq!(
                end.session.detection_time(),
                micros(receive_us) * multiplier
            );
            assert!(!end.session.is_polling());
        }
    }
}

/// A configuration with these intervals and this multiplier.
pub(crate) fn config(
    desired_min_tx_us: u32,
    required_min_rx_us: u32,
    multiplier: u8,
) -> SessionConfig {
    SessionConfig::default().with(|config| {
        config.desired_min_tx_us = desired_min_tx_us;
        config.required_min_rx_us = required_min_rx_us;
        config.detect_multiplier = multiplier.try_into().expect("not zero");
    })
}
