//! Writes by a process that may write, for one that may not; also if an attacker controls that one.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use fib_sync::netlink::RouteWriter;
use fib_sync::writer::{Bounds, Outcomes, Writes};
use fib_sync::{Command, Hop, Owner, PutMode, Route, RouteKey, RouteKind};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};

use crate::host::{Host, US, in_namespace, ip, key, via};

/// A writer in a thread of its own, as in a process of its own.
pub(crate) struct Served {
    /// Requests for further connections.
    connect: SyncSender<SyncSender<[OwnedFd; 2]>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start() -> Self {
        let bounds = Bounds::new(US, 254, vec![1024..=1024]);
        let (connect, requests) = sync_channel::<SyncSender<[OwnedFd; 2]>>(1);
        let thread = std::thread::spawn(move || {
            let mut writer = RouteWriter::open(Some(bounds)).unwrap();
            for request in requests {
                request.send(writer.connect().unwrap().0).unwrap();
                while writer.is_connected() {
                    let descriptors = writer.descriptors().into_iter();
                    let mut all: Vec<PollFd<'_>> = descriptors
                        .map(|one| PollFd::new(one, PollFlags::POLLIN))
                        .collect();
                    poll(&mut all, PollTimeout::NONE).unwrap();
                    writer.serve();
                }
            }
        });
        Self {
            connect,
            thread: Some(thread),
        }
    }

    /// Connects a process, once the former one has disconnected.
    pub(crate) fn connect(&self) -> [OwnedFd; 2] {
        let (sender, receiver) = sync_channel(1);
        self.connect.send(sender).unwrap();
        receiver.recv().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.connect = sync_channel(1).0;
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// Sends writes as any process could that holds the socket, and returns the error of each.
fn write(socket: &OwnedFd, commands: &[Command]) -> Vec<Option<i32>> {
    let mut writes = Writes::default();
    commands.iter().for_each(|one| assert!(writes.push(one)));
    send(socket.as_raw_fd(), &writes.into_octets(), MsgFlags::empty()).unwrap();
    let mut buffer = vec![0; 1 << 17];
    let mut readable = [PollFd::new(
        std::os::fd::AsFd::as_fd(socket),
        PollFlags::POLLIN,
    )];
    poll(&mut readable, PollTimeout::NONE).unwrap();
    let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).unwrap();
    let outcomes = Outcomes::parse(&buffer[..length]).unwrap();
    let error = |position| {
        let mut errors = outcomes.errors.iter();
        errors.find_map(|(at, error)| (*at == position).then_some(error.errno))
    };
    (0..outcomes.count).map(error).collect()
}

fn put(key: RouteKey, route: Route, mode: PutMode) -> Command {
    Command::Put(key, route, mode)
}

#[test]
fn routes_of_another_process_are_written_and_its_own() {
    in_namespace(async || {
        let writer = Served::start();
        let mut host = Host::delegated(writer.connect());
        let (a, b) = (key("10.65.0.0/26"), key("fd65::/64"));
        host.reconciler.want(a, via(&["10.0.0.12"]));
        host.reconciler.want(b, via(&["fd00::12", "fd01::12"]));
        host.until_in_sync().await;
        host.reconciler.want(a, via(&["10.1.0.12"]));
        host.until_in_sync().await;
        assert!(ip("route show proto 119").contains("10.65.0.0/26 via 10.1.0.12"));
        // A route of another program is refused by the kernel, as without a writer.
        ip("route add 10.66.0.0/26 via 10.0.0.12 metric 1024 proto 80");
        let foreign = key("10.66.0.0/26");
        host.reconciler.want(foreign, via(&["10.0.0.12"]));
        host.until("a conflict", |host| host.reconciler.summary().conflicts > 0)
            .await;
        host.reconciler.unwant(&foreign);
        host.reconciler.unwant(&b);
        host.until_in_sync().await;
        assert_eq!(ip("-6 route show proto 119"), "");
        assert_eq!(host.seen.others, 1, "the own writes are not notified");

        // The process ends, and its routes stay. The next one finds them, and writes nothing.
        drop(host);
        let mut next = Host::delegated(writer.connect());
        next.reconciler.want(a, via(&["10.1.0.12"]));
        next.until_in_sync().await;
        assert_eq!(next.reconciler.summary().puts, 0);
        // A replace by the next process, of a route that the former one has written.
        next.reconciler.want(a, via(&["10.0.0.12"]));
        next.until_in_sync().await;
        assert!(ip("route show proto 119").contains("via 10.0.0.12"));
    });
}

// Promise: as fib-sync sender_of_any_writes_alters_no_foreign_route
#[test]
fn compromised_process_alters_no_foreign_route() {
    in_namespace(async || {
        for (route, protocol) in [("10.70.0.0/24", 80), ("fd70::/64", 80)] {
            let via = if route.contains(':') {
                "fd00::12"
            } else {
                "10.0.0.12"
            };
            ip(&format!(
                "route add {route} via {via} metric 1024 proto {protocol}"
            ));
        }
        ip("route add 10.71.0.0/24 via 10.0.0.12 metric 256 proto 119");
        ip("route add 10.72.0.0/24 via 10.0.0.12 metric 1024 table 7 proto 119");
        let before = [ip("route show table all"), ip("-6 route show table all")];
        let writer = Served::start();
        let [socket, _monitor] = writer.connect();
        let felix = Owner(80);
        let ours = via(&["10.1.0.12"]);
        let of_felix = Route::unicast(felix, vec![Hop::via("10.1.0.12".parse().unwrap())]);
        let mut local = Route::blackhole(US);
        local.kind = RouteKind::Local;
        let at = |table, metric| RouteKey::new(table, "10.73.0.0/24".parse().unwrap(), metric, 0);
        let attacks = [
            (
                "replace of a foreign route",
                put(key("10.70.0.0/24"), ours.clone(), PutMode::Replace),
            ),
            (
                "replace of one of IPv6",
                put(key("fd70::/64"), via(&["fd01::12"]), PutMode::Replace),
            ),
            (
                "a foreign protocol",
                put(key("10.73.0.0/24"), of_felix.clone(), PutMode::Create),
            ),
            (
                "its replace",
                put(key("10.70.0.0/24"), of_felix, PutMode::Replace),
            ),
            (
                "a foreign delete",
                Command::Delete(key("10.70.0.0/24"), felix),
            ),
            (
                "another table",
                put(at(7, 1024), ours.clone(), PutMode::Create),
            ),
            ("a delete in another table", {
                let key = RouteKey::new(7, "10.72.0.0/24".parse().unwrap(), 1024, 0);
                Command::Delete(key, US)
            }),
            (
                "another metric",
                put(at(254, 1), ours.clone(), PutMode::Create),
            ),
            ("a delete of another metric", {
                let key = RouteKey::new(254, "10.71.0.0/24".parse().unwrap(), 256, 0);
                Command::Delete(key, US)
            }),
            (
                "a local address",
                put(key("10.73.0.0/24"), local, PutMode::Create),
            ),
        ];
        for (what, attack) in &attacks {
            let refused = write(&socket, std::slice::from_ref(attack));
            assert_eq!(refused, [Some(libc::EPERM)], "{what}");
        }
        // All at once, with a delete that frees nothing.
        let all: Vec<_> = attacks.into_iter().map(|(_, attack)| attack).collect();
        assert!(write(&socket, &all).iter().all(Option::is_some));
        let gone = write(
            &socket,
            &[
                Command::Delete(key("10.70.0.0/24"), US),
                put(key("10.70.0.0/24"), ours.clone(), PutMode::Create),
                put(key("10.70.0.0/24"), ours.clone(), PutMode::Replace),
            ],
        );
        assert_eq!(
            gone,
            [Some(libc::ESRCH), Some(libc::EEXIST), Some(libc::EPERM)]
        );
        let after = [ip("route show table all"), ip("-6 route show table all")];
        assert_eq!(after, before);

        // The same commands for its own routes succeed.
        let own = key("10.74.0.0/24");
        let done = write(&socket, &[put(own, via(&["10.0.0.12"]), PutMode::Create)]);
        assert_eq!(done, [None]);
        let done = write(&socket, &[put(own, ours.clone(), PutMode::Replace)]);
        assert_eq!(done, [None]);
        assert!(ip("route show proto 119").contains("10.74.0.0/24 via 10.1.0.12"));
        // Another program takes the key over: from then on it is not its own.
        ip("route del 10.74.0.0/24 metric 1024 proto 119");
        ip("route add 10.74.0.0/24 via 10.0.0.12 metric 1024 proto 80");
        let refused = write(&socket, &[put(own, ours, PutMode::Replace)]);
        assert_eq!(refused, [Some(libc::EPERM)]);
        assert!(ip("route show proto 80").contains("10.74.0.0/24 via 10.0.0.12"));
        drop(socket);
    });
}

#[test]
fn process_that_sends_something_else_is_disconnected() {
    in_namespace(async || {
        let writer = Served::start();
        let [socket, _monitor] = writer.connect();
        send(socket.as_raw_fd(), &[0, 1, 9], MsgFlags::empty()).unwrap();
        let mut readable = [PollFd::new(
            std::os::fd::AsFd::as_fd(&socket),
            PollFlags::POLLIN,
        )];
        poll(&mut readable, PollTimeout::NONE).unwrap();
        assert_eq!(recv(socket.as_raw_fd(), &mut [0], MsgFlags::empty()), Ok(0));
        // The next one is served.
        let [socket, _monitor] = writer.connect();
        let route = Route::blackhole(US);
        let done = write(&socket, &[put(key("10.75.0.0/24"), route, PutMode::Create)]);
        assert_eq!(done, [None]);
    });
}
