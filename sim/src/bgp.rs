//! A BGP daemon: the speaker with its streams and, on a node, the connection to the kernel. The
//! order of operations is that of the daemons' own loops.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use bgp_daemon::ready::EndOfRibs;
use bgp_daemon::{Criterion, report};
use bgp_proto::{Notification, next_frame};
use bgp_speaker::bgp_fsm::limits::PROBE_UNANSWERED_MIN;
use bgp_speaker::bgp_fsm::{self, Conn, Instant, Probed, State};
use bgp_speaker::rib::{Budget, PeerId, Progress};
use bgp_speaker::{Event as SpeakerEvent, Input, Output, Speaker};
use bytes::{Bytes, BytesMut};
use cambric_bgp_client::Node;
use fib_sync::Fib;
use fib_sync::memory::Attachment;
use kernel_events::route_event;

use crate::agenda::{At, Daemon, Event};
use crate::bfd::Monitor;
use crate::limits::TURN_ROUNDS;
use crate::machine::poll_kernel;
use crate::origins::Origins;
use crate::paths::Paths;
use crate::plants::{EventPlant, RouteEventPlant};
use crate::reported::Reported;
use crate::reported_routes::ReportedRoutes;
use crate::world::Cx;

/// The port that speakers listen on.
const PORT: u16 = 179;

/// Prefixes of one step of a speaker's background work.
const STEP: u32 = 512;

/// Octets requested from a speaker at once.
const FILL_OCTETS: usize = 16 << 10;

/// The running daemon.
pub(crate) struct Bgp {
    pub(crate) at: At,
    pub(crate) speaker: Speaker,
    /// The kernel side; `None` for a reflector.
    pub(crate) kernel: Option<Glue>,
    /// The validation of origins; `None` without the mode `enforce`.
    pub(crate) origins: Option<Origins>,
    /// The paths to its neighbors; `None` without BFD.
    pub(crate) paths: Option<Paths>,
    /// Incomplete messages.
    pub(crate) partials: BTreeMap<(PeerId, Conn), BytesMut>,
    /// Connections without room for writes.
    pub(crate) blocked: BTreeSet<(PeerId, Conn)>,
    /// Until then it does not read.
    pub(crate) deaf_until: u64,
    /// Connections with unread octets that were reported to their sessions.
    pub(crate) paused: BTreeSet<(PeerId, Conn)>,
    /// When it was started.
    pub(crate) since: u64,
    /// Whether its neighbors have sent all their routes.
    pub(crate) end_of_ribs: EndOfRibs,
    /// The state of its sessions according to its events.
    pub(crate) reported: Reported,
    /// Loses events of the speaker before they are reported.
    pub(crate) event_plant: Option<EventPlant>,
    /// Loses events of kernel routes.
    pub(crate) route_event_plant: Option<RouteEventPlant>,
}

/// The connection between a node's speaker and its kernel.
pub(crate) struct Glue {
    pub(crate) node: Node,
    pub(crate) fib: Box<dyn Fib>,
    pub(crate) attachment: Attachment,
    /// The kernel's routes according to its events.
    pub(crate) reported: ReportedRoutes,
}

impl Bgp {
    /// Performs the pending work, as the daemon does after each wakeup.
    pub(crate) fn turn(&mut self, cx: &mut Cx<'_>, monitor: &mut Monitor) {
        self.read_kernel(cx);
        let mut worked = self.monitor(cx, monitor);
        worked |= self.drain(cx);
        if let Some(origins) = &mut self.origins
            && origins.turn(cx, &mut self.speaker)
        {
            cx.wake(self.at, Daemon::Bgp);
        }
        worked |= self.read(cx);
        for _ in 0..TURN_ROUNDS {
            worked |= self.write(cx);
            if self.speaker.poll_timeout().is_some_and(|at| at.0 <= cx.now) {
                self.handle(cx, Input::Timeout);
                worked = true;
            }
            worked |= self.carry(cx);
            let progress = self.speaker.run(Instant(cx.now), Budget(STEP));
            worked |= self.drain(cx);
            worked |= progress != Progress::Done;
            worked |= self.write(cx);
            if !std::mem::take(&mut worked) {
                return;
            }
        }
        cx.wake(self.at, Daemon::Bgp);
    }

    /// Exchanges requests and states with the process of BFD. Returns whether the state of a path has changed.
    fn monitor(&mut self, cx: &mut Cx<'_>, monitor: &mut Monitor) -> bool {
        let Some(paths) = &mut self.paths else {
            return false;
        };
        let passed = paths.turn(cx, &self.speaker, monitor);
        if paths.has_requested() {
            cx.wake(self.at, Daemon::Bfd);
        }
        let has_changed = !passed.is_empty();
        for (remote, path) in passed {
            self.handle(cx, Input::Path(remote, path));
        }
        has_changed
    }

    /// Returns when the next turn is due without an event.
    pub(crate) fn timeout(&self, now: u64) -> Option<u64> {
        let origins = self.origins.as_ref();
        let origins = origins.and_then(|origins| origins.timeout(now));
        let glue = self.kernel.as_ref();
        let kernel = glue.and_then(|glue| glue.node.poll_timeout());
        let speaker = self.speaker.poll_timeout();
        let listens = (!self.paused.is_empty()).then_some(self.deaf_until);
        let all = [
            speaker.map(|at| at.0),
            kernel.map(|at| at.0),
            listens,
            origins,
            self.paths.as_ref().and_then(Paths::timeout),
        ];
        all.into_iter().flatten().min()
    }

    /// Returns the number of established sessions.
    pub(crate) fn established(&self) -> usize {
        let peers = self.speaker.peers();
        peers
            .filter(|peer| peer.session.state() == State::Established)
            .count()
    }

    /// Returns whether the node forwards: all criteria of its daemon are met, as far as the simulated one has
    /// them.
    pub(crate) fn is_ready(&self, now: u64) -> bool {
        let end_of_ribs = self.end_of_ribs.criterion(self.age(now), &self.speaker);
        let is_met = |one: &Criterion| one.missing.is_none();
        let kernel = self.kernel.as_ref();
        is_met(&end_of_ribs)
            && kernel.is_some_and(|glue| glue.node.criteria(&self.speaker).iter().all(is_met))
    }

    const fn age(&self, now: u64) -> Instant {
        Instant(now - self.since)
    }

    /// Describes the other sessions with their states.
    pub(crate) fn not_established(&self) -> String {
        let peers = self
            .speaker
            .peers()
            .filter(|peer| peer.session.state() != State::Established);
        let states = peers.map(|peer| {
            let name = self.speaker.peer_name(peer.id);
            format!(
                "{name} {:?} {:?}",
                peer.session.state(),
                peer.session.stats()
            )
        });
        states.collect::<Vec<_>>().join(", ")
    }

    /// Accepts a connection.
    pub(crate) fn accept(
        &mut self,
        cx: &mut Cx<'_>,
        from: At,
        ends: (SocketAddr, SocketAddr),
    ) -> u32 {
        let (local, remote) = ends;
        let verdict = self.speaker.accept(Instant(cx.now), local, remote);
        self.drain(cx);
        match verdict {
            Ok((peer, conn)) => {
                let stream = cx.net.open(from, self.at, Some((peer, conn)));
                self.session(
                    cx,
                    peer,
                    bgp_fsm::Input::Opened {
                        conn,
                        local,
                        remote,
                    },
                );
                stream
            }
            Err(refusal) => {
                let stream = cx.net.open(from, self.at, None);
                let mut words = BytesMut::new();
                refusal.notification().encode(&mut words);
                let (net, mut sky) = cx.sky();
                net.put(&mut sky, stream, 0, &words);
                net.finish(&mut sky, stream, 1);
                stream
            }
        }
    }

    /// Handles the result of a dial.
    pub(crate) fn dialed(&mut self, cx: &mut Cx<'_>, peer: PeerId, stream: Option<u32>) {
        let conn = Conn::Outbound;
        let Some(stream) = stream else {
            return self.session(cx, peer, bgp_fsm::Input::Failed(conn));
        };
        cx.net.opened(stream, self.at, peer);
        let remote = self.speaker.peer_config(peer).map(|config| config.remote);
        let remote = SocketAddr::new(remote.unwrap_or_else(|| IpAddr::from([0; 4])), PORT);
        let local = SocketAddr::new(cx.address(self.at), ephemeral(stream));
        self.session(
            cx,
            peer,
            bgp_fsm::Input::Opened {
                conn,
                local,
                remote,
            },
        );
    }

    /// Shuts down with a NOTIFICATION to the neighbors, for good or to restart.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>, to_come_back: bool) {
        let why = Notification::administrative_shutdown("the daemon stops");
        match to_come_back {
            true => self.speaker.stop_all_for_restart(Instant(cx.now), &why),
            false => self.speaker.stop_all(Instant(cx.now), &why),
        }
        self.drain(cx);
    }

    pub(crate) fn session(&mut self, cx: &mut Cx<'_>, peer: PeerId, input: bgp_fsm::Input) {
        self.handle(cx, Input::Session(peer, input));
    }

    fn handle(&mut self, cx: &mut Cx<'_>, input: Input<'_>) {
        self.speaker.handle(Instant(cx.now), input);
        self.drain(cx);
    }

    fn read_kernel(&mut self, cx: &mut Cx<'_>) {
        let Some(glue) = &mut self.kernel else { return };
        for event in poll_kernel(&mut *glue.fib, cx.chance) {
            cx.saw_kernel(&event);
            let emitted = route_event(glue.node.reconciler(), &event);
            let is_reported = |event: &_| self.route_event_plant.is_none_or(|keeps| keeps(event));
            if let Some(emitted) = emitted.filter(is_reported) {
                glue.reported.read(&emitted);
            }
            glue.node.kernel(Instant(cx.now), &event);
        }
    }

    /// Exchanges routes and events between speaker and kernel, as the client's daemon does.
    fn carry(&mut self, cx: &mut Cx<'_>) -> bool {
        let now = Instant(cx.now);
        let mut inputs = Vec::new();
        let Some(glue) = &mut self.kernel else {
            return false;
        };
        while let Some(input) = glue.node.poll_input() {
            inputs.push(input);
        }
        let mut worked = !inputs.is_empty();
        for input in inputs {
            self.handle(cx, input);
        }
        let Some(glue) = &mut self.kernel else {
            return worked;
        };
        if glue.node.has_announced_own() && self.speaker.awaited().contains(&None) {
            self.speaker.own_routes_complete();
        }
        worked |= glue.node.read(now, &mut self.speaker) != Progress::Done;
        while let Some(command) = glue.node.poll_command(now) {
            glue.fib.submit(command);
        }
        worked
    }

    /// Takes and performs all outputs of the speaker.
    fn drain(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut worked = false;
        while let Some(output) = self.speaker.poll_output() {
            worked = true;
            match output {
                Output::Dial { peer, remote, .. } => self.dial(cx, peer, remote),
                Output::Close { peer, conn } => self.close(cx, peer, conn),
                Output::Track(track) => {
                    if let Some(glue) = &mut self.kernel {
                        glue.node.track(track);
                    }
                }
                Output::Event(event) => self.observe(cx, &event),
                Output::Promote(peer) => self.promote(cx, peer),
                Output::Probe { begins: true, .. } => {}
                Output::Probe { peer, conn, .. } => self.probe(cx, peer, conn),
                // Simulated connections have neither TCP-MD5 keys nor TTLs.
                Output::PeerRemoved(_) | Output::Secure { .. } => {}
            }
        }
        worked
    }

    /// Promotes the held connection of a peer, with the octets read from it.
    fn promote(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        cx.net.promote(self.at, peer);
        self.session(cx, peer, bgp_fsm::Input::Promoted);
        if let Some(mut partial) = self.partials.remove(&(peer, Conn::Held)) {
            self.cut(cx, peer, Conn::Inbound, &mut partial);
            if cx.net.stream_of(self.at, peer, Conn::Inbound).is_some() {
                self.partials.insert((peer, Conn::Inbound), partial);
            }
        }
    }

    /// Answers a probe as a machine's kernel would.
    fn probe(&mut self, cx: &mut Cx<'_>, peer: PeerId, conn: Conn) {
        let probed = match cx.net.answers(self.at, peer, conn) {
            true => Probed::Answered,
            false => Probed::Silent {
                unanswered: PROBE_UNANSWERED_MIN,
                sent: 1,
            },
        };
        // The calling loop takes the outputs that follow.
        let input = Input::Session(peer, bgp_fsm::Input::Probed(probed));
        self.speaker.handle(Instant(cx.now), input);
    }

    fn observe(&mut self, cx: &mut Cx<'_>, event: &SpeakerEvent) {
        let line = match event {
            SpeakerEvent::Up { name, .. } => Some(format!("session with {name} is up")),
            SpeakerEvent::Down { name, reason, .. } => {
                Some(format!("session with {name} is down: {reason:?}"))
            }
            SpeakerEvent::Malformed { name, fault, .. } => {
                Some(format!("malformed from {name}: {fault:?}"))
            }
            SpeakerEvent::PathFailed {
                name, consequence, ..
            } => Some(format!("path to {name} has failed: {consequence}")),
            _ => None,
        };
        if let Some(line) = line {
            cx.trace(self.at, &line);
        }
        let age = self.age(cx.now);
        self.end_of_ribs.observe(age, &self.speaker, event);
        if let (Some(paths), SpeakerEvent::Up { .. } | SpeakerEvent::Down { .. }) =
            (&mut self.paths, event)
        {
            paths.hasten(cx.now);
        }
        let is_reported = self.event_plant.is_none_or(|keeps| keeps(event));
        if let (true, Some(emitted)) = (is_reported, report::event(&self.speaker, event)) {
            self.reported.read(&emitted);
        }
        if let Some(glue) = &mut self.kernel {
            glue.node.session(Instant(cx.now), &self.speaker, event);
        }
    }

    fn dial(&mut self, cx: &mut Cx<'_>, peer: PeerId, remote: SocketAddr) {
        let token = cx.net.dial(self.at, peer);
        let delay = cx.now + cx.net.delay(cx.chance);
        let event = match cx.machine_of(remote.ip()) {
            Some(to) => Event::Dial {
                from: self.at,
                to,
                peer,
                token,
            },
            None => Event::Dialed {
                from: self.at,
                peer,
                token,
                stream: None,
            },
        };
        cx.agenda.push(delay, event);
    }

    /// Writes the session's remaining octets, then closes the connection.
    fn close(&mut self, cx: &mut Cx<'_>, peer: PeerId, conn: Conn) {
        let mut slices = Vec::new();
        self.speaker.fill(peer, conn, &mut slices, usize::MAX);
        let words = slices.concat();
        self.speaker.sent(peer, conn, words.len());
        self.forget(peer, conn);
        if conn == Conn::Outbound {
            cx.net.stop_dialing(self.at, peer);
        }
        let (net, mut sky) = cx.sky();
        net.close(&mut sky, (self.at, peer, conn), &words);
    }

    fn forget(&mut self, peer: PeerId, conn: Conn) {
        self.partials.remove(&(peer, conn));
        self.blocked.remove(&(peer, conn));
        self.paused.remove(&(peer, conn));
    }

    /// Reports to sessions whether octets are unread, as the driver does when it has no time to
    /// read.
    fn pause(&mut self, cx: &mut Cx<'_>) {
        let unread: BTreeSet<_> = cx.net.unread_of(self.at).into_iter().collect();
        for (peer, conn) in unread.difference(&self.paused.clone()).copied() {
            self.paused.insert((peer, conn));
            self.session(cx, peer, bgp_fsm::Input::ReadPaused { unread: true });
        }
    }

    /// Reports to sessions that their unread octets have been read.
    fn resume(&mut self, cx: &mut Cx<'_>) {
        while let Some((peer, _)) = self.paused.pop_first() {
            self.session(cx, peer, bgp_fsm::Input::ReadPaused { unread: false });
        }
    }

    /// Reads every connection with received octets, and passes on the messages.
    fn read(&mut self, cx: &mut Cx<'_>) -> bool {
        if cx.now < self.deaf_until {
            self.pause(cx);
            return false;
        }
        let mut worked = false;
        for (peer, conn) in cx.net.ends_of(self.at) {
            let Some((octets, over, waits)) = cx.net.read(self.at, peer, conn) else {
                continue;
            };
            worked = true;
            if let Some(writer) = waits {
                cx.wake(writer, Daemon::Bgp);
            }
            cx.log.note(cx.now, (self.at, peer.0, &octets[..]));
            let stream = cx.net.stream_of(self.at, peer, conn);
            let mut buffer = self.partials.remove(&(peer, conn)).unwrap_or_default();
            buffer.extend_from_slice(&octets);
            self.cut(cx, peer, conn, &mut buffer);
            if cx.net.stream_of(self.at, peer, conn) != stream {
                continue;
            }
            if over {
                let (net, mut sky) = cx.sky();
                net.close(&mut sky, (self.at, peer, conn), &[]);
                self.forget(peer, conn);
                self.session(cx, peer, bgp_fsm::Input::Closed(conn));
            } else {
                self.partials.insert((peer, conn), buffer);
            }
        }
        self.resume(cx);
        worked
    }

    /// Splits received octets into messages, as long as the connection is open.
    fn cut(&mut self, cx: &mut Cx<'_>, peer: PeerId, conn: Conn, buffer: &mut BytesMut) {
        let stream = cx.net.stream_of(self.at, peer, conn);
        while cx.net.stream_of(self.at, peer, conn) == stream && self.speaker.reads(peer, conn) {
            let input = match next_frame(buffer, self.speaker.octets_max(peer, conn)) {
                Ok(None) => return,
                Ok(Some(frame)) => bgp_fsm::Input::Received { conn, frame },
                Err(notification) => {
                    buffer.clear();
                    bgp_fsm::Input::FrameError { conn, notification }
                }
            };
            self.session(cx, peer, input);
        }
    }

    /// Writes for the peers that the speaker names, and for those that had no room before.
    fn write(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut worked = false;
        for (peer, conn) in std::mem::take(&mut self.blocked) {
            worked |= self.write_to(cx, peer, conn);
        }
        while let Some(peer) = self.speaker.poll_writable() {
            for conn in Conn::ALL {
                worked |= self.write_to(cx, peer, conn);
            }
        }
        worked
    }

    fn write_to(&mut self, cx: &mut Cx<'_>, peer: PeerId, conn: Conn) -> bool {
        let mut worked = false;
        while cx.net.stream_of(self.at, peer, conn).is_some() {
            let room = cx.net.room(self.at, peer, conn);
            if room == 0 {
                self.blocked.insert((peer, conn));
                break;
            }
            let mut slices: Vec<Bytes> = Vec::new();
            self.speaker
                .fill(peer, conn, &mut slices, room.min(FILL_OCTETS));
            let mut octets = slices.concat();
            octets.truncate(room);
            if octets.is_empty() {
                break;
            }
            worked = true;
            let (net, mut sky) = cx.sky();
            net.write(&mut sky, (self.at, peer, conn), &octets);
            self.speaker.sent(peer, conn, octets.len());
            self.drain(cx);
        }
        worked
    }
}

/// Returns the local port of a dialed stream.
pub(crate) fn ephemeral(stream: u32) -> u16 {
    32_768 + u16::try_from(stream % 28_000).unwrap_or(0)
}
