//! A session compared with a naive one, over any sequence of packets, commands and time.

mod model;

use bfd::{Discriminator, Duration, Instant, Seeded, Session, SessionConfig, Snapshot};
use model::{DOWN, Model, UP, Wire};
use proptest::prelude::*;

const LOCAL: u32 = 11;

#[derive(Clone, Debug)]
enum Op {
    Receive(Wire),
    /// A packet of a remote system that reacts as it must.
    Answer,
    Pass(u64),
    Disable,
    Enable,
    Hold(bool),
    Configure(u32, u32, u8),
    /// Continues the session in another process.
    Upgrade,
}

fn interval_us() -> impl Strategy<Value = u32> {
    prop_oneof![1_000..50_000_u32, 50_000..3_000_000_u32]
}

fn wire() -> impl Strategy<Value = Wire> {
    let your = prop_oneof![8 => Just(LOCAL), 2 => Just(0), 1 => Just(99)];
    let my = prop_oneof![8 => Just(22_u32), 1 => Just(23), 1 => Just(0)];
    let intervals = [0_u32..2_000_000, 0..2_000_000];
    let required = prop_oneof![9 => intervals[1].clone(), 1 => Just(0)];
    let flags = any::<[bool; 3]>();
    let parts = (
        0_u8..4,
        flags,
        0_u8..6,
        my,
        your,
        intervals[0].clone(),
        required,
        0_u8..9,
    );
    parts.prop_map(
        |(state, flags, detect_mult, my, your, desired, required, diag)| Wire {
            diag,
            state,
            poll: flags[0],
            fin: flags[1],
            demand: flags[2] && flags[0],
            detect_mult,
            my,
            your,
            desired: desired.into(),
            required: required.into(),
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => wire().prop_map(Op::Receive),
        10 => Just(Op::Answer),
        6 => (0_u64..400_000).prop_map(Op::Pass),
        2 => (0_u64..8_000_000).prop_map(Op::Pass),
        1 => Just(Op::Disable),
        2 => Just(Op::Enable),
        2 => Just(Op::Upgrade),
        1 => any::<bool>().prop_map(Op::Hold),
        3 => (interval_us(), interval_us(), 1_u8..6)
            .prop_map(|(desired, required, multiplier)| Op::Configure(desired, required, multiplier)),
    ]
}

struct Both {
    session: Session,
    model: Model,
    random: Seeded,
    now_us: u64,
    /// The last packet that was sent.
    last: Option<Wire>,
}

impl Both {
    fn new() -> Self {
        let mut random = Seeded::new(5);
        let id = Discriminator::new(LOCAL).expect("not zero");
        let config = SessionConfig::default();
        let session = Session::new(Instant::ZERO, config, id, &mut random);
        Self {
            session: session.expect("valid"),
            model: Model::new(LOCAL, 300_000, 300_000, 3),
            random,
            now_us: 0,
            last: None,
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + Duration::from_micros(self.now_us)
    }

    fn perform(&mut self, op: Op) {
        let now = self.now();
        match op {
            Op::Receive(packet) => self.receive(&packet),
            Op::Answer => {
                let packet = self.answer();
                self.receive(&packet);
            }
            Op::Pass(time) => self.pass(time),
            Op::Disable => {
                self.session.disable(now);
                self.model.disable();
            }
            Op::Upgrade => {
                let snapshot = self.session.snapshot(now);
                let snapshot = Snapshot::decode(&snapshot.encode()).expect("a valid snapshot");
                let config = self.session.config().clone();
                let session = Session::restore(now, config, &snapshot, &mut self.random);
                self.session = session.expect("a valid snapshot and configuration");
                self.model.urgent = true;
                self.model.hurried = (0, 0);
            }
            Op::Enable => {
                self.session.enable(now);
                self.model.enable(self.now_us);
            }
            Op::Hold(held) => {
                self.session.hold_down(held);
                self.model.held = held;
            }
            Op::Configure(desired, required, multiplier) => {
                let config = SessionConfig::default().with(|config| {
                    config.desired_min_tx_us = desired;
                    config.required_min_rx_us = required;
                    config.detect_multiplier = multiplier.try_into().expect("not zero");
                });
                self.session.configure(now, config).expect("valid");
                self.model
                    .configure(desired.into(), required.into(), multiplier);
            }
        }
        self.work();
    }

    /// The packet of a cooperative remote system.
    fn answer(&self) -> Wire {
        let last = self.last.expect("the first packet is sent at once");
        let state = match last.state {
            DOWN => model::INIT,
            model::ADMIN_DOWN => DOWN,
            _ => UP,
        };
        Wire {
            diag: 0,
            state,
            poll: false,
            fin: last.poll && !self.now_us.is_multiple_of(3),
            demand: false,
            detect_mult: 3,
            my: 22,
            your: LOCAL,
            desired: 400_000,
            required: 200_000,
        }
    }

    fn receive(&mut self, packet: &Wire) {
        let result = self.session.receive(self.now(), &packet.octets());
        let accepted = self.model.receive(self.now_us, packet);
        assert_eq!(result.is_ok(), accepted, "{packet:?}: {result:?}");
    }

    /// Lets time pass from deadline to deadline.
    fn pass(&mut self, time: u64) {
        let end = self.now_us + time;
        for _ in 0..100_000 {
            self.work();
            let next = self.session.poll_timeout();
            let next_us = next.map_or(u64::MAX, |next| next.0.div_ceil(1000));
            assert!(next_us > self.now_us, "a deadline stays due");
            if next_us > end {
                break;
            }
            self.now_us = next_us;
        }
        self.now_us = end;
        self.work();
    }

    /// Does what is due now in both, and compares them.
    fn work(&mut self) {
        self.session.handle_timeout(self.now());
        self.model.timeout(self.now_us);
        self.compare();
        while let Some(octets) = self.session.transmit(self.now(), &mut self.random) {
            let packet = Wire::of(octets.octets());
            if packet.fin {
                assert!(self.model.answer, "nothing to answer");
            } else if !self.model.urgent || self.now_us < self.model.hurries_at() {
                self.assert_due();
            }
            assert_eq!(packet, self.model.packet(self.now_us, packet.fin));
            self.last = Some(packet);
        }
        assert!(
            !self.model.answer && !self.is_hurried(),
            "both are sent at once"
        );
        self.compare();
    }

    /// Asserts that the jitter of the periodic packet is within its bounds.
    fn assert_due(&self) {
        assert!(self.model.is_periodic());
        let since = self.now_us - self.model.last_sent.expect("an earlier packet");
        let repeated = self.model.repeated();
        let repeated = repeated.filter(|(_, until)| self.now_us <= *until);
        let interval =
            repeated.map_or_else(|| self.model.transmit_interval(), |(interval, _)| interval);
        assert!(since >= interval * 75 / 100, "{since} of {interval}");
    }

    fn compare(&self) {
        let (session, model) = (&self.session, &self.model);
        assert_eq!(session.state() as u8, model.session_state);
        assert_eq!(session.diagnostic().code(), model.local_diag);
        assert_eq!(session.remote_state() as u8, model.remote_state);
        let remote = session.remote_discriminator().map_or(0, Discriminator::get);
        assert_eq!(remote, model.remote_discr);
        assert_eq!(session.is_polling(), model.poll);
        let interval = session.transmit_interval();
        let expected = Duration::from_micros(model.transmit_interval());
        assert_eq!(interval, (model.remote_min_rx != 0).then_some(expected));
        let detection = Duration::from_micros(model.detection_time());
        assert_eq!(session.detection_time(), detection);
        let deadline = model
            .last_received
            .map(|last| Instant::ZERO + Duration::from_micros(last) + detection);
        assert_eq!(session.detection_deadline(), deadline);
        self.compare_next();
    }

    /// Returns whether changed contents must be sent now.
    fn is_hurried(&self) -> bool {
        self.model.urgent && self.model.hurries_at() <= self.now_us
    }

    /// Compares the time of the next packet with its bounds.
    fn compare_next(&self) {
        let model = &self.model;
        let Some(next) = self.session.next_transmit() else {
            assert!(!model.answer && !model.urgent && !model.is_periodic());
            return;
        };
        if model.answer || self.is_hurried() {
            assert!(next <= self.now());
            return;
        }
        if model.urgent {
            let hurries_at = Instant::ZERO + Duration::from_micros(model.hurries_at());
            assert!(next <= hurries_at);
            return;
        }
        assert!(model.is_periodic());
        let percent_max = if model.detect_mult == 1 { 90 } else { 100 };
        let micros = Duration::from_micros;
        let last = Instant::ZERO + micros(model.last_sent.expect("an earlier packet"));
        let bounds = |interval_us| {
            let interval = micros(interval_us);
            last + interval * 75 / 100..=last + interval * percent_max / 100
        };
        let is_repeated = model.repeated().is_some_and(|(interval_us, until_us)| {
            next <= Instant::ZERO + micros(until_us) && bounds(interval_us).contains(&next)
        });
        assert!(is_repeated || bounds(model.transmit_interval()).contains(&next));
        if let Some((interval_us, until_us)) = model.repeated() {
            let is_certain = *bounds(interval_us).end() <= Instant::ZERO + micros(until_us);
            assert!(is_repeated || !is_certain, "AdminDown is repeated");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn session_equals_a_naive_one(ops in prop::collection::vec(op(), 1..60)) {
        let mut both = Both::new();
        both.work();
        for op in ops {
            both.perform(op);
        }
    }
}
