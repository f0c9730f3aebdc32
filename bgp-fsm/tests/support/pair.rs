//! Two sessions and the network between them, in virtual time. Each direction of each transport is
//! a queue; the test decides which queue delivers next.

use std::collections::VecDeque;

use bgp_fsm::{Conn, Duration, Input, Instant, Output, Session, SessionConfig, State};
use bgp_proto::{Notification, next_frame};
use bytes::{Bytes, BytesMut};

use super::end;

/// An item in flight in a transport.
#[derive(Clone, Debug)]
enum Item {
    Syn,
    SynAck,
    Refused,
    Octets(Bytes),
    Fin,
}

/// A transport: the side that dialed it, and the items in flight to the dialing and to the other
/// side.
#[derive(Clone, Debug)]
struct Link {
    dialer: usize,
    queues: [VecDeque<Item>; 2],
    buffers: [BytesMut; 2],
}

/// One of the two speakers with its driver's state.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) session: Session,
    /// The links in the places of the outbound, the inbound and the held connection.
    slots: [Option<usize>; 3],
    pub(crate) outputs: Vec<Output>,
    /// Whether it accepts connections at all.
    pub(crate) listens: bool,
    /// Whether its sockets accept octets.
    pub(crate) writes: bool,
    up: bool,
}

impl Side {
    /// Returns the place of a link that the other side dialed.
    fn taker(&self, at: usize) -> Conn {
        match self.slots[2] == Some(at) {
            true => Conn::Held,
            false => Conn::Inbound,
        }
    }
}

/// Both speakers.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) sides: [Side; 2],
    links: Vec<Link>,
    /// Pending responses to probes.
    answers: Vec<(usize, Input)>,
    /// Promoted links that may have more to read.
    reread: Vec<(usize, usize)>,
}

impl Pair {
    /// Makes two idle speakers.
    pub(crate) fn new(configs: [SessionConfig; 2]) -> Self {
        let mut seed = 0;
        let sides = configs.map(|config| {
            seed += 1;
            Side {
                session: Session::new(config, seed),
                slots: [None; 3],
                outputs: Vec::new(),
                listens: true,
                writes: true,
                up: false,
            }
        });
        Self {
            now: Instant::ZERO,
            sides,
            links: Vec::new(),
            answers: Vec::new(),
            reread: Vec::new(),
        }
    }

    /// Passes one input to a side and performs its outputs.
    pub(crate) fn handle(&mut self, side: usize, input: Input) {
        self.sides[side].session.handle(self.now, input);
        self.pump(side);
    }

    /// Returns the non-empty queues, as (link, towards the dialing side or not).
    pub(crate) fn deliverable(&self) -> Vec<(usize, usize)> {
        let links = self.links.iter().enumerate();
        links
            .flat_map(|(at, link)| {
                (0..2)
                    .filter(|way| !link.queues[*way].is_empty())
                    .map(move |way| (at, way))
            })
            .collect()
    }

    /// Delivers the first item of a queue: way 0 leads to the dialing side.
    pub(crate) fn deliver(&mut self, (at, way): (usize, usize)) {
        let link = &mut self.links[at];
        let Some(item) = link.queues[way].pop_front() else {
            return;
        };
        let (side, conn) = match way {
            0 => (link.dialer, Conn::Outbound),
            _ => (1 - link.dialer, self.sides[1 - link.dialer].taker(at)),
        };
        let present = self.sides[side].slots[conn as usize] == Some(at);
        match item {
            Item::Syn => self.accept(side, at),
            Item::SynAck if present => {
                self.handle(
                    side,
                    Input::Opened {
                        conn,
                        local: end(1),
                        remote: end(2),
                    },
                );
            }
            Item::Refused if present => {
                self.sides[side].slots[conn as usize] = None;
                self.handle(side, Input::Failed(conn));
            }
            Item::Fin if present => {
                self.sides[side].slots[conn as usize] = None;
                self.handle(side, Input::Closed(conn));
            }
            Item::Octets(octets) if present => {
                self.links[at].buffers[way].extend_from_slice(&octets);
                self.read(side, conn, at, way);
            }
            _ => {}
        }
    }

    /// Delivers everything, oldest link first, until no item is in flight.
    pub(crate) fn settle(&mut self) {
        while let Some(first) = self.deliverable().first() {
            self.deliver(*first);
        }
    }

    /// Lets time pass: items in flight arrive at once, timers fire when they are due.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        loop {
            self.settle();
            let timeouts = self
                .sides
                .iter()
                .filter_map(|side| side.session.poll_timeout());
            let Some(at) = timeouts.min().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(at);
            for side in 0..2 {
                if self.sides[side]
                    .session
                    .poll_timeout()
                    .is_some_and(|at| at <= self.now)
                {
                    self.handle(side, Input::Timeout);
                }
            }
        }
        self.now = until;
    }

    /// Returns whether both are Established, and over the same link.
    pub(crate) fn is_up(&self) -> bool {
        let link = |side: &Side| side.slots[side.session.established()? as usize];
        let [a, b] = &self.sides;
        link(a).is_some() && link(a) == link(b)
    }

    /// Asserts the invariants.
    pub(crate) fn check(&self) {
        for side in &self.sides {
            let states = Conn::ALL.map(|conn| side.session.state_of(conn));
            let established = states
                .iter()
                .filter(|state| **state == State::Established)
                .count();
            assert!(established <= 1, "{states:?}");
            assert_eq!(
                established == 1,
                side.up,
                "Established and Down are reported"
            );
        }
    }

    fn accept(&mut self, side: usize, at: usize) {
        if !self.sides[side].listens {
            return self.links[at].queues[0].push_back(Item::Refused);
        }
        let verdict = self.sides[side].session.admit(self.now);
        self.pump(side);
        self.links[at].queues[0].push_back(Item::SynAck);
        match verdict {
            Ok(conn) => {
                let slot = &mut self.sides[side].slots[conn as usize];
                assert_eq!(*slot, None, "admission makes room");
                *slot = Some(at);
                self.handle(
                    side,
                    Input::Opened {
                        conn,
                        local: end(1),
                        remote: end(2),
                    },
                );
            }
            Err(notification) => self.refuse(at, &notification),
        }
    }

    /// Moves the held link to its new place, and reads its waiting items.
    fn promote(&mut self, side: usize) {
        let slots = &mut self.sides[side].slots;
        assert_eq!(slots[1], None, "the place is free");
        slots[1] = slots[2].take();
        if let Some(at) = slots[1] {
            self.reread.push((side, at));
        }
    }

    fn refuse(&mut self, at: usize, notification: &Notification) {
        let mut out = BytesMut::new();
        notification.encode(&mut out);
        self.links[at].queues[0].push_back(Item::Octets(out.freeze()));
        self.links[at].queues[0].push_back(Item::Fin);
    }

    fn read(&mut self, side: usize, conn: Conn, at: usize, way: usize) {
        while self.sides[side].slots[conn as usize] == Some(at)
            && self.sides[side].session.reads(conn)
        {
            let octets_max = self.sides[side].session.octets_max(conn);
            match next_frame(&mut self.links[at].buffers[way], octets_max) {
                Ok(Some(frame)) => self.handle(side, Input::Received { conn, frame }),
                Ok(None) => return,
                Err(notification) => self.handle(side, Input::FrameError { conn, notification }),
            }
        }
    }

    /// Performs the outputs of a side, then takes its octets to write.
    fn pump(&mut self, side: usize) {
        while let Some(output) = self.sides[side].session.poll_output() {
            match &output {
                Output::Dial => {
                    let queues = [VecDeque::new(), VecDeque::from([Item::Syn])];
                    self.links.push(Link {
                        dialer: side,
                        queues,
                        buffers: Default::default(),
                    });
                    self.sides[side].slots[0] = Some(self.links.len() - 1);
                }
                Output::Close(conn) => {
                    self.write(side, *conn);
                    if let Some(at) = self.sides[side].slots[*conn as usize].take() {
                        self.queue_from(side, at).push_back(Item::Fin);
                    }
                }
                Output::Promote => self.promote(side),
                // No transport of this network dies silently.
                Output::Probe { .. } => {
                    let answered = Input::Probed(bgp_fsm::Probed::Answered);
                    self.answers.push((side, answered));
                }
                Output::Established(_) => {
                    assert!(!self.sides[side].up, "Established twice");
                    self.sides[side].up = true;
                }
                Output::Down(_) => {
                    assert!(self.sides[side].up, "Down without Established");
                    self.sides[side].up = false;
                }
                _ => {}
            }
            self.sides[side].outputs.push(output);
        }
        while let Some((side, answer)) = self.answers.pop() {
            self.handle(side, answer);
        }
        while let Some((side, at)) = self.reread.pop() {
            self.handle(side, Input::Promoted);
            self.read(side, Conn::Inbound, at, 1);
        }
        if self.sides[side].writes {
            Conn::ALL
                .into_iter()
                .for_each(|conn| self.write(side, conn));
        }
        self.check();
    }

    fn write(&mut self, side: usize, conn: Conn) {
        let mut slices = Vec::new();
        let session = &mut self.sides[side].session;
        session.fill(conn, &mut slices, usize::MAX);
        let octets = Bytes::from(slices.concat());
        session.sent(conn, octets.len());
        if let (false, Some(at)) = (octets.is_empty(), self.sides[side].slots[conn as usize]) {
            self.queue_from(side, at).push_back(Item::Octets(octets));
        }
    }

    /// Returns the queue into which `side` writes.
    fn queue_from(&mut self, side: usize, at: usize) -> &mut VecDeque<Item> {
        let link = &mut self.links[at];
        let way = usize::from(link.dialer == side);
        &mut link.queues[way]
    }
}
