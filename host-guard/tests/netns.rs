//! The table with real sockets, in network namespaces: dropped and accepted segments, and a table
//! shared by two daemons. Root with `CAMBRIC_LAB=1`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use host_guard::limits::PEERS_MAX;
use host_guard::{Cover, Guard, GuardError, Holder, Loaded};
use netns_lab::{Host, Lab, in_lab};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use nix::unistd::{Uid, setfsuid};

const PORT: u16 = 179;
/// A port of a peer that is not a port of the host.
const DIALED: u16 = 2379;
/// A user that is not allowed, and one that is.
const STRANGER: u32 = 65534;
const ALLOWED: u32 = 4242;
/// How long the test waits for a connection or an octet that must not arrive: a dropped segment is
/// retransmitted several times within it.
const IN_VAIN: Duration = Duration::from_millis(1500);
/// Longer than any expected step takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn cover(ports: &[u16], users: &[u32]) -> Cover {
    Cover {
        ports: ports.iter().copied().collect(),
        users: users.iter().copied().collect(),
        ..Cover::default()
    }
}

/// Runs `f` in a thread of the host as a user: files and sockets opened by `f` belong to that user.
fn as_user<T: Send>(host: &Host, user: u32, f: impl FnOnce() -> T + Send) -> T {
    let run = host.run(|| {
        setfsuid(Uid::from_raw(user));
        f()
    });
    run.expect("a thread of the host")
}

fn guard<T: Send>(host: &Host, f: impl FnOnce(&mut Guard) -> Result<T, GuardError> + Send) -> T {
    let run = host.run(|| Guard::open().and_then(|mut guard| f(&mut guard)));
    let done = run.expect("a thread of the host");
    done.unwrap_or_else(|error| panic!("{error}"))
}

fn loaded(host: &Host) -> Option<Loaded> {
    guard(host, Guard::read)
}

fn dial(host: &Host, user: u32, to: IpAddr, within: Duration) -> io::Result<TcpStream> {
    dial_at(host, user, SocketAddr::new(to, PORT), within)
}

fn dial_at(host: &Host, user: u32, to: SocketAddr, within: Duration) -> io::Result<TcpStream> {
    as_user(host, user, || TcpStream::connect_timeout(&to, within))
}

async fn host(lab: &Lab) -> Host {
    lab.host("guarded").await.expect("a host")
}

const BOTH: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

// Promise: as interop-tests another_user_never_speaks_bgp_as_its_host
#[test]
fn another_user_cannot_dial_a_guarded_port() {
    in_lab("a guarded port is dialed", async |lab: Lab| {
        let host = host(&lab).await;
        for to in BOTH {
            let listener = host.run(|| TcpListener::bind((to, PORT)));
            let _listener = listener.expect("a thread").expect("a listener");
            guard(&host, Guard::remove);
            // The attack works without the table.
            let unguarded = dial(&host, STRANGER, to, PATIENCE);
            let mut older = unguarded.expect("nothing is guarded");

            let allowed = cover(&[PORT], &[0, ALLOWED]);
            guard(&host, |guard| guard.load(Holder::RouteReflector, &allowed));
            let refused = dial(&host, STRANGER, to, IN_VAIN).expect_err("it is guarded");
            assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
            for user in [0, ALLOWED] {
                dial(&host, user, to, PATIENCE).expect("an allowed user");
            }
            // A connection that is older than the table carries no more data.
            let before = loaded(&host).expect("a table").dropped;
            older.write_all(b"OPEN").expect("queued");
            let after = loaded(&host).expect("a table").dropped;
            assert!(after > before, "{before} {after}");
        }
    });
}

// Promise: as interop-tests another_user_never_speaks_bgp_as_its_host
/// Checks that a peer with another port is guarded as a destination; another destination with that
/// port, or that port as source, is not.
#[test]
fn another_user_cannot_dial_a_peer_at_its_port() {
    in_lab("a peer at another port is dialed", async |lab: Lab| {
        let host = host(&lab).await;
        let others = [
            (Ipv4Addr::new(127, 0, 0, 2).into(), DIALED),
            (BOTH[1], DIALED + 1),
        ];
        for (peer, other) in BOTH.into_iter().zip(others) {
            let (peer, other) = (SocketAddr::new(peer, DIALED), SocketAddr::from(other));
            let listen = |at: SocketAddr| {
                let listener = host.run(|| TcpListener::bind(at));
                listener.expect("a thread").expect("a listener")
            };
            let _listeners = [peer, other].map(listen);
            guard(&host, Guard::remove);
            dial_at(&host, STRANGER, peer, PATIENCE).expect("nothing is guarded");
            let mut wanted = cover(&[PORT], &[0, ALLOWED]);
            wanted.dial([peer]);
            guard(&host, |guard| guard.load(Holder::RouteReflector, &wanted));
            let refused = dial_at(&host, STRANGER, peer, IN_VAIN).expect_err("it is guarded");
            assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
            for user in [0, ALLOWED] {
                dial_at(&host, user, peer, PATIENCE).expect("an allowed user");
            }
            dial_at(&host, STRANGER, other, PATIENCE).expect("another service");
        }
        // The maximum of the table.
        let mut most = cover(&[PORT], &[0]);
        let all = (0..PEERS_MAX).map(|number| {
            let address = Ipv6Addr::from(u128::try_from(number).expect("fits") + (0xfd << 120));
            SocketAddr::new(address.into(), DIALED)
        });
        assert_eq!(most.dial(all), 0);
        guard(&host, |guard| guard.load(Holder::BgpClient, &most));
        assert_eq!(
            loaded(&host).expect("a table").entries[&Holder::BgpClient],
            most
        );
    });
}

/// Accepts one connection as a user, writes at once and closes: the data that the kernel still has
/// to send belongs to no socket of that user. Returns whether one arrived.
fn answer_once(listener: &TcpListener, user: u32) -> bool {
    setfsuid(Uid::from_raw(user));
    let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
    setsockopt(listener, sockopt::ReceiveTimeout, &patience).expect("a socket");
    let Ok((mut stream, _)) = listener.accept() else {
        return false;
    };
    stream.write_all(b"OPEN, UPDATE").expect("queued");
    true
}

/// Returns the data that root, as the connecting user, reads from a listener of a user.
fn read_from(host: &Host, user: u32, to: IpAddr) -> io::Result<Vec<u8>> {
    let (bound, is_bound) = mpsc::sync_channel(1);
    thread::scope(|scope| {
        let accepts = scope.spawn(move || {
            as_user(host, user, || {
                let listener = TcpListener::bind((to, PORT)).expect("a listener");
                bound.send(()).expect("awaited");
                answer_once(&listener, user)
            })
        });
        is_bound.recv().expect("it listens");
        let mut stream = dial(host, 0, to, PATIENCE)?;
        assert!(accepts.join().expect("a thread"), "accepted");
        stream.set_read_timeout(Some(IN_VAIN))?;
        let mut octets = vec![0; 64];
        let read = stream.read(&mut octets)?;
        octets.truncate(read);
        Ok(octets)
    })
}

// Promise: as interop-tests another_user_never_speaks_bgp_as_its_host
#[test]
fn listener_of_another_user_sends_no_data_by_syn_cookies() {
    in_lab("listening with SYN cookies", async |lab: Lab| {
        let host = host(&lab).await;
        host.sysctl("net/ipv4/tcp_syncookies", "2").expect("set");
        for to in BOTH {
            guard(&host, Guard::remove);
            let unguarded = read_from(&host, STRANGER, to).expect("nothing is guarded");
            assert_eq!(unguarded, b"OPEN, UPDATE");
            let allowed = cover(&[PORT], &[0]);
            guard(&host, |guard| guard.load(Holder::BgpClient, &allowed));
            let nothing = read_from(&host, STRANGER, to).expect_err("data is dropped");
            assert_eq!(nothing.kind(), ErrorKind::WouldBlock, "{nothing}");
            // The daemon itself still works with SYN cookies, and its remaining data is sent after
            // it closes.
            let own = read_from(&host, 0, to).expect("an allowed user");
            assert_eq!(own, b"OPEN, UPDATE");
        }
    });
}

#[test]
fn listener_of_another_user_gets_no_connection() {
    in_lab("listening without SYN cookies", async |lab: Lab| {
        let host = host(&lab).await;
        host.sysctl("net/ipv4/tcp_syncookies", "0").expect("set");
        let allowed = cover(&[PORT], &[0]);
        guard(&host, |guard| guard.load(Holder::BgpClient, &allowed));
        for to in BOTH {
            let listen = || TcpListener::bind((to, PORT)).expect("a listener");
            let _listener = as_user(&host, STRANGER, listen);
            let refused = dial(&host, 0, to, IN_VAIN).expect_err("its SYN-ACK is dropped");
            assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
        }
    });
}

/// Returns the result of sending a datagram to a port as a user.
fn send_as(host: &Host, user: u32, to: IpAddr, port: u16) -> io::Result<usize> {
    as_user(host, user, || {
        let any: IpAddr = match to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        UdpSocket::bind((any, 0))?.send_to(&[user as u8], (to, port))
    })
}

// Promise (BGP): Another user of a host cannot send BFD from its addresses.
#[test]
fn another_user_cannot_send_bfd() {
    in_lab("BFD of another user", async |lab: Lab| {
        let host = host(&lab).await;
        let allowed = cover(&[PORT], &[0, ALLOWED]);
        for (to, port) in [
            (BOTH[0], 3784),
            (BOTH[1], 3784),
            (BOTH[0], 4784),
            (BOTH[1], 4784),
        ] {
            let receiver = host.run(|| UdpSocket::bind((to, port)));
            let receiver = receiver.expect("a thread").expect("bound");
            receiver.set_read_timeout(Some(PATIENCE)).expect("set");
            guard(&host, Guard::remove);
            // The attack works without the table.
            send_as(&host, STRANGER, to, port).expect("nothing is guarded");
            receiver.recv(&mut [0]).expect("it arrives");

            guard(&host, |guard| guard.load(Holder::BgpClient, &allowed));
            let refused = send_as(&host, STRANGER, to, port).expect_err("it is guarded");
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
            assert_eq!(loaded(&host).expect("a table").dropped, 1);
            send_as(&host, STRANGER, to, DIALED).expect("another port");
            for user in [0, ALLOWED] {
                send_as(&host, user, to, port).expect("an allowed user");
                let mut octet = [0];
                receiver.recv(&mut octet).expect("it arrives");
                assert_eq!(octet, [user as u8], "no packet of another user");
            }
        }
    });
}

#[test]
fn table_without_the_rules_of_bfd_is_not_in_effect() {
    in_lab("a table without users of BFD", async |lab: Lab| {
        let host = host(&lab).await;
        let wanted = cover(&[PORT], &[0]);
        guard(&host, |guard| guard.load(Holder::BgpClient, &wanted));
        assert_eq!(loaded(&host).expect("a table").broken, None);
        for (set, words) in [
            ("bfd-users", "user id 0 to send BFD"),
            ("bfd-ports", "of BFD"),
        ] {
            let flush = ["flush", "set", "inet", "cambric-guard", set];
            let run = host.run(|| Command::new("nft").args(flush).status());
            assert!(run.expect("a thread").expect("nft").success());
            let found = loaded(&host).expect("a table");
            let lacks = found.lacks(Holder::BgpClient, &wanted);
            assert!(lacks.is_some_and(|lacks| lacks.contains(words)));
            // As a daemon does that finds it.
            guard(&host, |guard| guard.load(Holder::BgpClient, &wanted));
        }
        assert_eq!(loaded(&host).expect("a table").broken, None);
    });
}

#[test]
fn two_daemons_share_the_table_and_leave_nothing() {
    in_lab("two daemons of one host", async |lab: Lab| {
        let host = host(&lab).await;
        assert_eq!(loaded(&host), None);
        let (mut client, reflector) = (cover(&[179, 1790], &[0]), cover(&[179], &[0, 998]));
        for address in ["10.0.0.9:2379", "[fd00::9]:443"] {
            client
                .peers
                .insert(address.parse().expect("address and port"));
        }
        // The second load of each changes nothing.
        for _ in 0..2 {
            guard(&host, |guard| guard.load(Holder::BgpClient, &client));
            guard(&host, |guard| {
                guard.load(Holder::RouteReflector, &reflector)
            });
        }
        let found = loaded(&host).expect("a table");
        assert_eq!(found.broken, None);
        assert_eq!(found.entries[&Holder::BgpClient], client);
        assert_eq!(found.entries[&Holder::RouteReflector], reflector);
        // A port that is no longer configured is removed with the next load.
        let fewer = cover(&[179], &[0]);
        guard(&host, |guard| guard.load(Holder::BgpClient, &fewer));
        let found = loaded(&host).expect("a table");
        assert_eq!(found.entries[&Holder::BgpClient], fewer);
        assert_eq!(found.entries[&Holder::RouteReflector], reflector);

        assert!(guard(&host, |guard| guard.withdraw(Holder::BgpClient)));
        let found = loaded(&host).expect("a table");
        assert_eq!(found.entries[&Holder::RouteReflector], reflector);
        assert!(found.lacks(Holder::BgpClient, &fewer).is_some());
        assert!(guard(&host, |guard| guard.withdraw(Holder::RouteReflector)));
        assert_eq!(loaded(&host), None);
        assert!(!guard(&host, Guard::remove));
    });
}
