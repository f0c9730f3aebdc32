//! The node between an in-memory kernel and a speaker with one neighbor.

mod departures;
mod metric;
mod ready;
mod route_events;
mod services;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bgp_config::Source;
use bgp_daemon::RouteEvents;
use bgp_io::bgp_fsm::{self, Conn};
use bgp_io::bgp_proto::{Attributes, next_frame};
use bgp_io::bgp_speaker::{Output, Restart};
use bgp_io::rib::{Budget, PeerId, Progress};
use bgp_io::{Input, Speaker};
use bytes::BytesMut;
use fib_sync::memory::{Kernel, MemoryFib};
use fib_sync::{Fib, Owner, Route, RouteKey, TABLE_MAIN};
use ipnet::IpNet;

use super::Node;
use super::glue::net_of;
use crate::Config;

const NOW: bgp_fsm::Instant = bgp_fsm::Instant::from_secs(1);
const WORKLOAD: &str = "10.65.0.1/32";

fn config(text: &str) -> Config {
    let source = Source::new("client.toml", format!("asn = 64512\n{text}"));
    Config::parse(&source).unwrap_or_else(|report| panic!("{report}"))
}

/// A host with one connected neighbor.
struct Host {
    kernel: Rc<RefCell<Kernel>>,
    fib: MemoryFib,
    node: Node,
    route_events: RouteEvents,
    /// The host's speaker and the neighbor's; each identifies the other by an id.
    speakers: [Speaker; 2],
    peers: [Option<PeerId>; 2],
}

impl Host {
    /// Returns a host whose daemon has just restarted and waits for two neighbors, of which one is
    /// connected.
    fn restarted() -> Self {
        Self::with(
            "[[neighbor]]\naddress = \"10.0.0.2\"\nasn = 64512\npassive = true\n",
            Duration::from_secs(90),
        )
    }

    /// Returns a host with a daemon that waits for no neighbor.
    fn begun() -> Self {
        Self::with("", Duration::ZERO)
    }

    fn with(neighbors: &str, wait: Duration) -> Self {
        let host = config(&format!(
            "router_id = \"10.0.0.11\"\n[[neighbor]]\naddress = \"10.0.0.1\"\nasn = 64512\n\
             {neighbors}",
        ));
        let neighbor = config(
            "router_id = \"10.0.0.1\"\n[[neighbor]]\naddress = \"10.0.0.11\"\nasn = 64512\n\
             passive = true\n",
        );
        let mut kernel = Kernel::new(1);
        let underlay = kernel.add_link("eth0");
        kernel.add_address(underlay, "10.0.0.11/24".parse().unwrap());
        let kernel = Rc::new(RefCell::new(kernel));
        let mut speaker = Speaker::new(host.intent().expect("all in the file").speaker.clone(), 1);
        if !wait.is_zero() {
            speaker.restarted(Restart::new(wait));
        }
        let mut host = Self {
            fib: MemoryFib::new(&kernel),
            node: Node::new(fib_sync::Instant(0), host.settings, &mut speaker),
            route_events: RouteEvents::new(),
            kernel,
            speakers: [
                speaker,
                Speaker::new(
                    neighbor.intent().expect("all in the file").speaker.clone(),
                    2,
                ),
            ],
            peers: [None; 2],
        };
        host.speakers.iter_mut().for_each(|s| s.start(NOW));
        host.settle();
        host
    }

    /// Runs until there are no more events.
    fn settle(&mut self) {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            moved |= self.kernel_events();
            while let Some(input) = self.node.poll_input() {
                self.speakers[0].handle(NOW, input);
                moved = true;
            }
            moved |= self.outputs();
            for speaker in &mut self.speakers {
                while speaker.run(NOW, Budget(100)) == Progress::More {}
            }
            moved |= self.carry(0, 1) | self.carry(1, 0);
            moved |= self.outputs();
            let now = fib_sync::Instant(NOW.0);
            moved |= self.route_events.look(&mut self.speakers[0]).has_more;
            moved |= self.node.read(now, &mut self.speakers[0]) != Progress::Done;
            while let Some(command) = self.node.poll_command(now) {
                self.fib.submit(command);
                moved = true;
            }
        }
    }

    fn kernel_events(&mut self) -> bool {
        let mut any = false;
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(event) = self.fib.poll_event(&mut cx) {
            kernel_events::answered(self.node.reconciler(), &event);
            self.node.kernel(fib_sync::Instant(NOW.0), &event);
            any = true;
        }
        any
    }

    fn outputs(&mut self) -> bool {
        let mut any = false;
        for at in [0, 1] {
            while let Some(output) = self.speakers[at].poll_output() {
                any = true;
                match output {
                    Output::Dial { peer, remote, .. } if at == 0 => self.connect(peer, remote),
                    Output::Track(track) if at == 0 => self.node.track(track),
                    Output::Event(event) if at == 0 => {
                        self.node
                            .session(fib_sync::Instant(NOW.0), &self.speakers[0], &event)
                    }
                    _ => {}
                }
            }
        }
        any
    }

    fn connect(&mut self, peer: PeerId, remote: SocketAddr) {
        let local: SocketAddr = "10.0.0.11:40000".parse().unwrap();
        let (accepted, _) = self.speakers[1].accept(NOW, remote, local).expect("known");
        let opened = |conn, local, remote| bgp_fsm::Input::Opened {
            conn,
            local,
            remote,
        };
        let inbound = opened(Conn::Inbound, remote, local);
        self.speakers[1].handle(NOW, Input::Session(accepted, inbound));
        let outbound = opened(Conn::Outbound, local, remote);
        self.speakers[0].handle(NOW, Input::Session(peer, outbound));
        self.peers = [Some(peer), Some(accepted)];
    }

    fn carry(&mut self, from: usize, to: usize) -> bool {
        let (Some(sender), Some(receiver)) = (self.peers[from], self.peers[to]) else {
            return false;
        };
        let conns = [Conn::Outbound, Conn::Inbound];
        let mut slices = Vec::new();
        self.speakers[from].fill(sender, conns[from], &mut slices, 1 << 16);
        let mut octets = BytesMut::from(&slices.concat()[..]);
        let moved = !octets.is_empty();
        self.speakers[from].sent(sender, conns[from], octets.len());
        while let Ok(Some(frame)) = next_frame(&mut octets, 4096) {
            let conn = conns[to];
            let received = bgp_fsm::Input::Received { conn, frame };
            self.speakers[to].handle(NOW, Input::Session(receiver, received));
        }
        moved
    }

    /// Has the neighbor announce or withdraw the workload's address.
    fn neighbor_has(&mut self, has: bool) {
        self.announce(WORKLOAD, has);
    }

    /// Has the neighbor announce or withdraw a prefix.
    fn announce(&mut self, prefix: &str, has: bool) {
        let (family, net) = net_of(prefix.parse().unwrap());
        let attributes = has.then(Attributes::default);
        let local = Input::Local {
            family,
            net,
            attributes,
            interface: None,
        };
        self.speakers[1].handle(NOW, local);
        self.settle();
    }

    /// Has Felix add or remove the route to the workload on this host.
    fn workload_here(&mut self, here: bool) {
        let prefix: IpNet = WORKLOAD.parse().unwrap();
        let key = RouteKey::new(TABLE_MAIN, prefix, 256, 0);
        let mut kernel = self.kernel.borrow_mut();
        if here {
            let link = kernel.add_link("cali1");
            let route = Route::device(Owner(80), link);
            kernel.add_route(key, route).unwrap();
        } else {
            assert!(kernel.delete_route(&key));
        }
        drop(kernel);
        self.settle();
    }

    /// Returns whether the kernel has the route learned from the neighbor.
    fn has_learned(&self) -> bool {
        let key = RouteKey::new(TABLE_MAIN, WORKLOAD.parse().unwrap(), 1024, 0);
        self.kernel.borrow().route(&key).is_some()
    }
}

/// The speaker's log never reported a learned route to an originated prefix if all routes disappear
/// while route selection is deferred.
#[test]
fn unlogged_route_behind_a_local_one_is_removed() {
    let mut host = Host::restarted();
    assert!(!host.speakers[0].awaited().is_empty(), "it waits");
    host.workload_here(true);
    host.neighbor_has(true);
    assert!(host.has_learned(), "kept behind our own");
    host.workload_here(false);
    assert!(host.has_learned(), "the neighbor still has it");
    host.neighbor_has(false);
    assert!(!host.has_learned());
}

#[test]
fn route_behind_a_local_one_follows_the_neighbor() {
    let mut host = Host::restarted();
    host.workload_here(true);
    host.neighbor_has(true);
    host.neighbor_has(false);
    assert!(!host.has_learned());
    host.neighbor_has(true);
    host.workload_here(false);
    host.workload_here(true);
    assert!(host.has_learned());
    host.neighbor_has(false);
    assert!(!host.has_learned());
}
