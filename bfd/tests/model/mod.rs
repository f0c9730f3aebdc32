//! A naive session, written from the text of RFC 5880 §6.8 alone. Its variables have the names of
//! §6.8.1, its numbers are microseconds, and it shares no code with the crate.

/// bfd.SessionState and bfd.RemoteSessionState, as on the wire.
pub(crate) const ADMIN_DOWN: u8 = 0;
pub(crate) const DOWN: u8 = 1;
pub(crate) const INIT: u8 = 2;
pub(crate) const UP: u8 = 3;

const SECOND: u64 = 1_000_000;

/// A packet as its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) diag: u8,
    pub(crate) state: u8,
    pub(crate) poll: bool,
    pub(crate) fin: bool,
    pub(crate) demand: bool,
    pub(crate) detect_mult: u8,
    pub(crate) my: u32,
    pub(crate) your: u32,
    pub(crate) desired: u64,
    pub(crate) required: u64,
}

impl Wire {
    pub(crate) fn octets(&self) -> Vec<u8> {
        let mut octets = vec![
            0x20 | self.diag,
            self.state << 6
                | u8::from(self.poll) << 5
                | u8::from(self.fin) << 4
                | u8::from(self.demand) << 1,
            self.detect_mult,
            24,
        ];
        for word in [
            self.my,
            self.your,
            self.desired as u32,
            self.required as u32,
            0,
        ] {
            octets.extend(word.to_be_bytes());
        }
        octets
    }

    pub(crate) fn of(octets: &[u8]) -> Self {
        let word = |at: usize| {
            let octets: [u8; 4] = octets[at..at + 4].try_into().expect("four octets");
            u32::from_be_bytes(octets)
        };
        assert_eq!((octets[0] >> 5, octets[3], octets.len()), (1, 24, 24));
        Self {
            diag: octets[0] & 31,
            state: octets[1] >> 6,
            poll: octets[1] & 0x20 != 0,
            fin: octets[1] & 0x10 != 0,
            demand: octets[1] & 2 != 0,
            detect_mult: octets[2],
            my: word(4),
            your: word(8),
            desired: word(12).into(),
            required: word(16).into(),
        }
    }
}

pub(crate) struct Model {
    pub(crate) session_state: u8,
    pub(crate) local_diag: u8,
    pub(crate) local_discr: u32,
    pub(crate) remote_discr: u32,
    pub(crate) remote_state: u8,
    pub(crate) desired_min_tx: u64,
    pub(crate) required_min_rx: u64,
    pub(crate) remote_min_rx: u64,
    pub(crate) remote_demand: bool,
    pub(crate) detect_mult: u8,
    pub(crate) held: bool,
    /// The last received Detect Mult and Desired Min TX Interval.
    remote_mult: u64,
    remote_desired: u64,
    /// The configured intervals.
    config: (u64, u64),
    /// The intervals before a change that must wait for the Final.
    old_desired: Option<u64>,
    old_required: Option<u64>,
    pub(crate) poll: bool,
    poll_was_sent: bool,
    /// A poll has ended, and no packet without the F bit was received after this time.
    ambiguous: Option<u64>,
    /// When polls were sent since no poll was active or ambiguous.
    polls: Vec<u64>,
    /// The contents of packets have changed, so that one is due.
    pub(crate) urgent: bool,
    /// A packet with the F bit is due.
    pub(crate) answer: bool,
    pub(crate) last_received: Option<u64>,
    pub(crate) last_sent: Option<u64>,
    /// Beside §6.8.7: the wanted transmit interval before AdminDown, and the end of its use after
    /// the first packet.
    repeat: Option<(u64, Option<u64>)>,
    /// Whether the session leaves AdminDown at the end of this use.
    enables: bool,
    /// Beside §6.8.7: the first packet of a second that was sent because its contents have changed, and
    /// the number of them.
    pub(crate) hurried: (u64, u32),
}

impl Model {
    pub(crate) fn new(local_discr: u32, desired: u64, required: u64, detect_mult: u8) -> Self {
        Self {
            session_state: DOWN,
            local_diag: 0,
            local_discr,
            remote_discr: 0,
            remote_state: DOWN,
            desired_min_tx: desired.max(SECOND),
            required_min_rx: required,
            remote_min_rx: 1,
            remote_demand: false,
            detect_mult,
            held: false,
            remote_mult: 0,
            remote_desired: 0,
            config: (desired, required),
            old_desired: None,
            old_required: None,
            poll: false,
            poll_was_sent: false,
            ambiguous: None,
            polls: Vec::new(),
            urgent: true,
            answer: false,
            last_received: None,
            last_sent: None,
            repeat: None,
            enables: false,
            hurried: (0, 0),
        }
    }

    /// §6.8.2.
    pub(crate) fn transmit_interval(&self) -> u64 {
        let desired = self.old_desired.unwrap_or(self.desired_min_tx);
        desired.max(self.remote_min_rx)
    }

    /// §6.8.4.
    pub(crate) fn detection_time(&self) -> u64 {
        let required = self.old_required.unwrap_or(self.required_min_rx);
        self.remote_mult * required.max(self.remote_desired)
    }

    /// §6.8.7: whether periodic packets are sent.
    pub(crate) fn is_periodic(&self) -> bool {
        let demand = self.remote_demand && self.session_state == UP && self.remote_state == UP;
        self.remote_min_rx != 0 && (!demand || self.poll)
    }

    /// §6.8.3: uses the intervals of the configuration and of the state.
    fn choose_intervals(&mut self) {
        let (mut desired, required) = self.config;
        let up = self.session_state == UP;
        if !up {
            desired = desired.max(SECOND);
            // Nothing waits for a Final in another state.
            self.old_desired = None;
            self.old_required = None;
        }
        if (desired, required) == (self.desired_min_tx, self.required_min_rx) {
            return;
        }
        if up && (self.poll || self.ambiguous.is_some()) {
            return;
        }
        if up && desired > self.desired_min_tx {
            self.old_desired = Some(self.desired_min_tx);
        }
        if up && required < self.required_min_rx {
            self.old_required = Some(self.required_min_rx);
        }
        self.desired_min_tx = desired;
        self.required_min_rx = required;
        self.poll = self.remote_discr != 0;
        self.poll_was_sent = false;
        self.ambiguous = None;
        self.urgent = true;
    }

    fn enter(&mut self, state: u8, diag: Option<u8>) {
        self.session_state = state;
        self.local_diag = diag.unwrap_or(self.local_diag);
        self.urgent = true;
        self.choose_intervals();
    }

    /// §6.8.6, for a valid packet without authentication. Returns whether it is accepted.
    pub(crate) fn receive(&mut self, now: u64, packet: &Wire) -> bool {
        if packet.detect_mult == 0 || packet.my == 0 {
            return false;
        }
        if packet.your != 0 && packet.your != self.local_discr {
            return false;
        }
        if packet.your == 0 && packet.state != DOWN && packet.state != ADMIN_DOWN {
            return false;
        }
        self.remote_discr = packet.my;
        self.remote_state = packet.state;
        if packet.state != UP {
            self.repeat = None;
        }
        self.remote_demand = packet.demand;
        self.remote_min_rx = packet.required;
        self.remote_desired = packet.desired;
        self.remote_mult = packet.detect_mult.into();
        if self.poll && self.poll_was_sent && packet.fin {
            self.poll = false;
            // A round trip has taken at most the time since the first poll, and an answer to the
            // last poll may take as long, but at most two seconds.
            let (first, last) = (self.polls[0], self.polls[self.polls.len() - 1]);
            self.ambiguous = Some(last + (now - first).min(2 * SECOND));
            self.old_desired = None;
            self.old_required = None;
        } else if self.ambiguous.is_some_and(|until| now >= until) && !packet.fin {
            self.ambiguous = None;
            self.polls.clear();
            self.choose_intervals();
        }
        self.last_received = Some(now);
        if self.session_state == ADMIN_DOWN {
            self.leave_admin_down(now);
            return true;
        }
        if packet.state == ADMIN_DOWN {
            if self.session_state != DOWN {
                self.enter(DOWN, Some(3));
            }
        } else if self.session_state == DOWN {
            if packet.state == DOWN && !self.held {
                self.enter(INIT, None);
            } else if packet.state == INIT && !self.held {
                self.enter(UP, None);
            }
        } else if self.session_state == INIT {
            if packet.state == INIT || packet.state == UP {
                self.enter(UP, None);
            }
        } else if packet.state == DOWN {
            self.enter(DOWN, Some(3));
        }
        self.answer |= packet.poll;
        true
    }

    /// §6.8.4, and §6.8.1 for bfd.RemoteDiscr.
    pub(crate) fn timeout(&mut self, now: u64) {
        self.expire(now);
        self.leave_admin_down(now);
    }

    fn expire(&mut self, now: u64) {
        let Some(last) = self.last_received else {
            return;
        };
        if now < last + self.detection_time() {
            return;
        }
        self.last_received = None;
        self.answer = false;
        self.repeat = None;
        self.remote_discr = 0;
        self.remote_state = DOWN;
        self.remote_demand = false;
        self.remote_min_rx = 1;
        self.remote_mult = 0;
        self.remote_desired = 0;
        self.poll = false;
        self.ambiguous = None;
        self.polls.clear();
        if self.session_state == INIT || self.session_state == UP {
            self.enter(DOWN, Some(1));
        }
    }

    /// §6.8.7: the packet that must be sent now, as a periodic one or with the F bit.
    pub(crate) fn packet(&mut self, now: u64, fin: bool) -> Wire {
        let poll = self.poll && !fin;
        self.poll_was_sent |= poll;
        self.polls.extend(poll.then_some(now));
        if fin && self.urgent && !self.poll {
            // The answer has the same contents.
            self.last_sent = self.last_sent.or(Some(now));
            self.limit_repeat(now);
            self.urgent = false;
        }
        if fin {
            self.answer = false;
        } else {
            if self.urgent {
                let (since, count) = self.hurried;
                self.hurried = match count > 0 && now < since + SECOND {
                    true => (since, count + 1),
                    false => (now, 1),
                };
            }
            self.urgent = false;
            self.last_sent = Some(now);
            self.limit_repeat(now);
        }
        Wire {
            diag: self.local_diag,
            state: self.session_state,
            poll,
            fin,
            demand: false,
            detect_mult: self.detect_mult,
            my: self.local_discr,
            your: self.remote_discr,
            desired: self.desired_min_tx,
            required: self.required_min_rx,
        }
    }

    /// The interval in which AdminDown is repeated, and its last instant.
    pub(crate) fn repeated(&self) -> Option<(u64, u64)> {
        let (desired, until) = self.repeat?;
        let is_repeated = self.session_state == ADMIN_DOWN && self.remote_min_rx != 0;
        is_repeated.then_some((desired.max(self.remote_min_rx), until?))
    }

    fn limit_repeat(&mut self, now: u64) {
        if let Some((desired, until @ None)) = &mut self.repeat {
            *until = Some(now + u64::from(self.detect_mult) * (*desired).max(self.remote_min_rx));
        }
    }

    /// Beside §6.8.7: the first instant at which changed contents may be sent, five times a second in
    /// Down and Init.
    pub(crate) fn hurries_at(&self) -> u64 {
        let (since, count) = self.hurried;
        let is_limited = matches!(self.session_state, DOWN | INIT) && count >= 5;
        if is_limited { since + SECOND } else { 0 }
    }

    /// §6.8.16.
    pub(crate) fn disable(&mut self) {
        self.enables = false;
        if self.session_state == UP {
            self.repeat = Some((self.old_desired.unwrap_or(self.desired_min_tx), None));
        }
        if self.session_state != ADMIN_DOWN {
            self.enter(ADMIN_DOWN, Some(7));
        }
    }

    /// §6.8.16.
    pub(crate) fn enable(&mut self, now: u64) {
        self.enables = self.session_state == ADMIN_DOWN;
        self.leave_admin_down(now);
    }

    fn leave_admin_down(&mut self, now: u64) {
        let must_wait = self
            .repeat
            .is_some_and(|(_, until)| until.is_none_or(|until| now < until));
        if self.enables && !must_wait {
            self.enables = false;
            self.repeat = None;
            self.enter(DOWN, None);
        }
    }

    pub(crate) fn configure(&mut self, desired: u64, required: u64, detect_mult: u8) {
        self.urgent |= detect_mult != self.detect_mult;
        self.detect_mult = detect_mult;
        self.config = (desired, required);
        self.choose_intervals();
    }
}
