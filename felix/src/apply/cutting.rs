//! Lists tracked connections, and cuts some of them: they get a bit in their mark, by which rules drop
//! their packets, and their sockets on this host are destroyed.
//!
//! An entry that is only deleted would not cut a connection: with `nf_conntrack_tcp_loose`, the next
//! segment of the far end makes a new one, in the other direction.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::future::pending;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink::attributes::{self, find, iterate, number_16, number_32, of_netfilter};
use netlink::nftables::{NETLINK_NETFILTER, number};
use netlink::{Refused, Requests};
use netlink_packet_core::{DefaultNla, NLA_F_NESTED};
use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::conntrack::ConntrackMessage;
use nix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::conntrack::{ADDRESSES, ORIGINAL, REPLY, ZONE, message};
use super::sockets::Sockets;
use super::ways::Ways;
use crate::agent::{Connection, Failed, HostCommand, HostEvent, Wanted};
use crate::limits::CUT_CONNECTIONS_MAX;

/// `IPCTNL_MSG_CT_NEW`, which changes an entry that exists.
const CHANGE: u8 = 0;
/// `CTA_TUPLE_PROTO`, and its `CTA_PROTO_NUM`, `CTA_PROTO_SRC_PORT`, `CTA_PROTO_DST_PORT`,
/// `CTA_PROTO_ICMP_TYPE`, `CTA_PROTO_ICMPV6_TYPE`.
const PROTOCOL: u16 = 2;
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
const ICMP_TYPES: [u16; 2] = [5, 8];
/// `CTA_IP_V4_SRC`, `CTA_IP_V6_SRC`; `CTA_IP_V4_DST`, `CTA_IP_V6_DST`.
const SOURCES: [u16; 2] = [1, 3];
const DESTINATIONS: [u16; 2] = [2, 4];
/// `CTA_MARK`, `CTA_TUPLE_MASTER`, `CTA_MARK_MASK`.
const MARK: u16 = 8;
const MASTER: u16 = 14;
const MARK_MASK: u16 = 21;

/// A number of a command, and the command.
type Numbered = (u64, HostCommand);

/// A command in progress.
#[derive(Debug)]
struct Task {
    number: u64,
    is_listing: bool,
    thread: JoinHandle<HostEvent>,
}

/// Carries out the commands about connections one after the other, outside the main loop.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    waiting: VecDeque<Numbered>,
    task: Option<Task>,
}

impl Cutter {
    /// Queues a command. Returns the answer if there is no runtime for another thread.
    pub(super) fn submit(&mut self, command: Numbered) -> Option<(u64, HostEvent)> {
        if Handle::try_current().is_err() {
            let (number, command) = command;
            return Some((number, carry_out(&command)));
        }
        self.waiting.push_back(command);
        self.start();
        None
    }

    /// Waits for the next answer.
    pub(super) async fn next(&mut self) -> (u64, HostEvent) {
        let Some(task) = &mut self.task else {
            return pending().await;
        };
        let (number, is_listing) = (task.number, task.is_listing);
        let event = (&mut task.thread).await;
        self.task = None;
        self.start();
        let lost = |_| {
            let reason = Failed("the thread has ended".to_owned());
            match is_listing {
                true => HostEvent::ConnectionsListed(Err(reason), Duration::ZERO),
                false => HostEvent::ConnectionsCut(0, Err(reason)),
            }
        };
        (number, event.unwrap_or_else(lost))
    }

    fn start(&mut self) {
        if self.task.is_none()
            && let Ok(runtime) = Handle::try_current()
            && let Some((number, command)) = self.waiting.pop_front()
        {
            let is_listing = matches!(command, HostCommand::ListConnections { .. });
            let thread = runtime.spawn_blocking(move || carry_out(&command));
            self.task = Some(Task {
                number,
                is_listing,
                thread,
            });
        }
    }
}

fn carry_out(command: &HostCommand) -> HostEvent {
    match command {
        HostCommand::CutConnections {
            connections,
            of_host,
            mark,
        } => {
            let (count, outcome) = cut(connections, of_host, *mark);
            HostEvent::ConnectionsCut(count, outcome)
        }
        HostCommand::ListConnections { wanted, mark } => {
            let (begun, used) = (Instant::now(), cpu_time());
            let listed = list(wanted, *mark).map_err(|cause| failed(&cause));
            // On a busy host, most of the elapsed time is that of other programs.
            let cpu = used.and_then(|used| cpu_time()?.checked_sub(used));
            HostEvent::ConnectionsListed(listed, cpu.unwrap_or_else(|| begun.elapsed()))
        }
        _ => {
            let reason = Failed("not a command about connections".to_owned());
            HostEvent::ConnectionsCut(0, Err(reason))
        }
    }
}

/// Returns the CPU time of this thread, if the kernel counts it.
fn cpu_time() -> Option<Duration> {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    Some(used.into())
}

fn failed(cause: &Refused) -> Failed {
    Failed(format!("connections: {cause}"))
}

/// Returns the wanted connections without the bit.
fn list(wanted: &Wanted, mark: u32) -> Result<Vec<Connection>, Refused> {
    let mut requests = Requests::open(NETLINK_NETFILTER)?;
    let mut connections = Vec::new();
    for (family, is_v4) in [
        (NetfilterProtoFamily::IPv4, true),
        (NetfilterProtoFamily::IPv6, false),
    ] {
        if !wanted.has_version(is_v4) {
            continue;
        }
        let mut dump = requests.begin_dump(message(family, ConntrackMessage::Get(Vec::new())))?;
        let mut is_last = false;
        while !is_last {
            is_last = requests.dump_part(&mut dump, |row| {
                let found = connection(of_netfilter(&row), mark);
                connections.extend(found.filter(|one| wanted.has(one)));
            })?;
            if connections.len() > CUT_CONNECTIONS_MAX {
                let mut refused = Refused::of(libc::E2BIG);
                refused.text = Some(format!("there are more than {CUT_CONNECTIONS_MAX}"));
                return Err(refused);
            }
        }
    }
    if wanted.needs_interfaces() {
        find_interfaces(&mut connections, &wanted.addresses)?;
    }
    Ok(in_turns(connections, &wanted.addresses))
}

/// Looks up the interfaces of the routes to ends that are no addresses of workloads.
fn find_interfaces(
    connections: &mut [Connection],
    workloads: &BTreeSet<IpAddr>,
) -> Result<(), Refused> {
    let mut ways = Ways::open()?;
    for connection in connections {
        let ends = [connection.source, connection.destination];
        for (end, interface) in ends.into_iter().zip(&mut connection.interfaces) {
            // A link-local address may be at any interface.
            let is_of_link = matches!(end, IpAddr::V6(v6) if v6.is_unicast_link_local());
            if !is_of_link && !workloads.contains(&end) {
                *interface = ways.interface(end)?;
            }
        }
    }
    Ok(())
}

/// Orders connections so that workloads take turns: the evaluation begins at the end, and the connections
/// of one workload, however many, do not delay the first ones of another. The source counts as the
/// workload of a connection, or else the destination. Connections of one class have one turn.
fn in_turns(mut connections: Vec<Connection>, addresses: &BTreeSet<IpAddr>) -> Vec<Connection> {
    let workload = |one: &Connection| match addresses.contains(&one.source) {
        true => one.source,
        false => one.destination,
    };
    connections.sort_by_key(|one| (workload(one), one.class()));
    let (mut turn, mut before) = (0, None);
    let mut numbered: Vec<(usize, Connection)> = Vec::with_capacity(connections.len());
    for connection in connections {
        let of = (workload(&connection), connection.class());
        turn = match &before {
            Some((workload, _)) if *workload != of.0 => 0,
            Some((_, class)) if *class != of.1 => turn + 1,
            _ => turn,
        };
        before = Some(of);
        numbered.push((turn, connection));
    }
    numbered.sort_by_key(|(turn, _)| Reverse(*turn));
    numbered.into_iter().map(|(_, one)| one).collect()
}

/// Parses the attributes of an entry; `None` if it has the bit, or is no connection between addresses.
fn connection(attributes: &[u8], mark: u32) -> Option<Connection> {
    let marked = find(attributes, MARK)
        .and_then(number_32)
        .unwrap_or_default();
    if marked & mark != 0 {
        return None;
    }
    let original = find(attributes, ORIGINAL)?;
    let reply = find(attributes, REPLY)?;
    let zone = find(attributes, ZONE).map(<[u8]>::to_vec);
    // A connection that another one has announced is allowed with that one.
    let master = find(attributes, MASTER);
    let first = master.unwrap_or(original);
    let protocol = find(first, PROTOCOL)?;
    let port = |tuple: &[u8], kind| number_16(find(find(tuple, PROTOCOL)?, kind)?);
    let requested = master.unwrap_or(original);
    let requested = (
        address(requested, DESTINATIONS)?,
        port(requested, DESTINATION_PORT),
    );
    let (destination, last_port) = match master {
        Some(master) => (
            address(master, DESTINATIONS)?,
            port(master, DESTINATION_PORT),
        ),
        None => (address(reply, SOURCES)?, port(reply, SOURCE_PORT)),
    };
    Some(Connection {
        source: address(first, SOURCES)?,
        destination,
        protocol: *find(protocol, PROTOCOL_NUMBER)?.first()?,
        ports: port(first, SOURCE_PORT).zip(last_port),
        icmp: ICMP_TYPES
            .into_iter()
            .find_map(|kind| find(protocol, kind)?.first().copied()),
        is_translated: address(original, DESTINATIONS) != address(reply, SOURCES),
        requested,
        interfaces: [None, None],
        tuple: original.into(),
        zone,
    })
}

fn address(tuple: &[u8], kinds: [u16; 2]) -> Option<IpAddr> {
    let addresses = find(tuple, ADDRESSES)?;
    let mut all = iterate(addresses);
    let (_, octets) = all.find(|(kind, _)| kinds.contains(kind))?;
    attributes::address(octets)
}

/// Sets the bit in the marks of connections, and destroys the sockets of those with an end at this host.
/// Returns their number, and the first failure; some may have ended. The others are cut after a failure.
fn cut(connections: &[Connection], of_host: &[Connection], mark: u32) -> (u64, Result<(), Failed>) {
    let mut requests = match Requests::open(NETLINK_NETFILTER) {
        Ok(requests) => requests,
        Err(error) => return (0, Err(failed(&error.into()))),
    };
    let mut sockets = None;
    let mut outcome = Ok(());
    if !of_host.is_empty() {
        match Sockets::open() {
            Ok(opened) => sockets = Some(opened),
            Err(error) => outcome = Err(not_destroyed(&error.into())),
        }
    }
    let mut count = 0;
    let through = connections.iter().map(|one| (one, false));
    for (connection, is_of_host) in through.chain(of_host.iter().map(|one| (one, true))) {
        match put_mark(&mut requests, connection, mark) {
            Ok(()) => count += 1,
            Err(cause) if cause.errno == libc::ENOENT => {}
            // No answer: each further one would take as long.
            Err(cause) if cause.errno == libc::EAGAIN => return (count, Err(failed(&cause))),
            Err(cause) => outcome = outcome.and_then(|()| Err(failed(&cause))),
        }
        if let Some(sockets) = sockets.as_mut().filter(|_| is_of_host)
            && let Err(cause) = sockets.destroy(connection)
        {
            outcome = outcome.and_then(|()| Err(not_destroyed(&cause)));
        }
    }
    (count, outcome)
}

fn not_destroyed(cause: &Refused) -> Failed {
    Failed(format!("sockets of cut connections: {cause}"))
}

/// Sets the bit in the mark of a connection.
fn put_mark(requests: &mut Requests, connection: &Connection, mark: u32) -> Result<(), Refused> {
    let family = match connection.source {
        IpAddr::V4(_) => NetfilterProtoFamily::IPv4,
        IpAddr::V6(_) => NetfilterProtoFamily::IPv6,
    };
    let zone = connection.zone.iter().cloned();
    let zone = zone.map(|zone| DefaultNla::new(ZONE, zone));
    let mut attributes = vec![DefaultNla::new(
        ORIGINAL | NLA_F_NESTED,
        connection.tuple.clone(),
    )];
    attributes.extend(zone);
    attributes.extend([number(MARK, mark), number(MARK_MASK, mark)]);
    let change = ConntrackMessage::Other {
        message_type: CHANGE,
        attributes,
    };
    requests.execute(message(family, change), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_thread_excludes_waiting() {
        let before = cpu_time().unwrap();
        let begun = Instant::now();
        while cpu_time().unwrap() == before {
            assert!(begun.elapsed() < Duration::from_secs(60), "no CPU time");
        }
        let (before, begun) = (cpu_time().unwrap(), Instant::now());
        let (_sender, nothing) = std::sync::mpsc::sync_channel::<()>(1);
        let _ = nothing.recv_timeout(Duration::from_millis(300));
        let used = cpu_time().unwrap() - before;
        assert!(used < begun.elapsed() / 2, "{used:?}");
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        let header = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        [&header, value, &padding].concat()
    }

    fn tuple(kind: u16, from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
        let addresses = [attribute(1, &from.0), attribute(2, &to.0)].concat();
        let protocol = [
            attribute(PROTOCOL_NUMBER, &[6]),
            attribute(SOURCE_PORT, &from.1.to_be_bytes()),
            attribute(DESTINATION_PORT, &to.1.to_be_bytes()),
        ];
        let both = [
            attribute(ADDRESSES, &addresses),
            attribute(PROTOCOL, &protocol.concat()),
        ];
        attribute(kind, &both.concat())
    }

    #[test]
    fn entry_is_the_connection_that_policies_see() {
        let (one, service, two) = ([10, 65, 0, 1], [10, 96, 0, 1], [10, 65, 0, 2]);
        let both = [
            tuple(ORIGINAL, (one, 4000), (service, 80)),
            tuple(REPLY, (two, 8080), (one, 4000)),
        ];
        let marked = |mark: u32| [both.concat(), attribute(MARK, &mark.to_be_bytes())].concat();
        let found = connection(&marked(1), 4).expect("a connection");
        assert_eq!(found.source, IpAddr::from(one));
        assert_eq!(
            found.destination,
            IpAddr::from(two),
            "after its translation"
        );
        assert_eq!(found.ports, Some((4000, 8080)));
        assert_eq!(found.requested, (service.into(), Some(80)));
        assert!(found.is_translated && found.zone.is_none());
        assert_eq!(connection(&marked(5), 4), None, "it is cut");
        // One that another connection has announced.
        let master = tuple(MASTER, (two, 5000), (one, 21));
        let all = [both.concat(), master].concat();
        let found = connection(&all, 4).expect("a connection");
        assert_eq!((found.source, found.ports), (two.into(), Some((5000, 21))));
        for end in 0..both[0].len() {
            assert_eq!(connection(&all[..end], 4), None);
        }
    }

    #[test]
    fn connections_of_many_classes_do_not_delay_other_workloads() {
        let address = |n: u8| IpAddr::from([10, 65, 0, n]);
        let of = |from: u8, ports| Connection {
            source: address(from),
            destination: address(9),
            protocol: 6,
            ports: Some(ports),
            icmp: None,
            is_translated: false,
            requested: (address(9), Some(ports.1)),
            interfaces: [None, None],
            tuple: Vec::new(),
            zone: None,
        };
        let flood = (1..1000).map(|port| of(1, (4000, port)));
        let others = (1..100).map(|port| of(2, (port, 80)));
        let outside = [of(77, (4000, 80)), of(78, (4000, 80))];
        let all: Vec<_> = flood.chain(others).chain(outside).collect();
        let addresses = [1, 2, 9].map(address).into();
        let ordered = in_turns(all.clone(), &addresses);
        assert_eq!(ordered.len(), all.len());
        let flood = |all: &[Connection]| all.iter().filter(|one| one.source == address(1)).count();
        let last = &ordered[ordered.len() - 103..];
        assert!(flood(last) <= 2, "{}", flood(last));
        assert_eq!(flood(&ordered), 999);
    }
}
