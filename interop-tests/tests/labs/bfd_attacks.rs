//! Attacks on sessions of BFD of a host, by another user of the host and by a workload behind its address:
//! one valid packet in the state Down ends a session. Host 2 is attacked. Its sessions with host 1 are over
//! a single hop, those with host 3 over several.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU8;
use std::path::Path;

use ::bfd::limits::{INTERVAL_US, PORT_MULTIHOP, PORT_SINGLE_HOP, TTL_SINGLE_HOP};
use ::bfd::{Diagnostic, Discriminator, Packet, State};
use bfd_client::limits::IDLE_MS;
use bfd_client::{Hops, Request, Socket, Wanted, encode};
use daemon_common::report::BfdSession;
use interop_tests::{Bfd, Ground, PATIENCE, Site, in_ground};
use netns_lab::{Error, Host, until};
use nix::unistd::{Uid, setfsuid};
use socket2::{Domain, Protocol, Type};

use crate::host_guard::{
    EXCEPTIONS, STRANGER, cambric_guard, felix, felix_without_exceptions, store_of_workload,
    workload,
};

/// The attacked host, its neighbor on the link, and its neighbor behind routers.
const ATTACKED: u8 = 2;
const NEIGHBORS: [(u8, Hops); 2] = [(1, Hops::Single), (3, Hops::Multi)];
/// How often each packet is sent that must not succeed.
const TIMES: usize = 5;
/// The packets of a neighbor that follow such packets on their way: then these have arrived, too.
const FENCE: u64 = 2;

/// The discriminator of the receiver in a forged packet (RFC 5880 §6.8.6).
#[derive(Clone, Copy, Debug)]
enum Guess {
    /// That of the session.
    Right,
    /// None: the addresses select the session.
    Zero,
    Wrong,
}

/// The guesses that end a session, if the packet arrives.
const EFFECTIVE: [Guess; 2] = [Guess::Right, Guess::Zero];
const ALL: [Guess; 3] = [Guess::Right, Guess::Zero, Guess::Wrong];

/// Returns a valid packet with which the remote system of a session would end it.
fn forged(session: &BfdSession, guess: Guess) -> Packet {
    let right = Discriminator::new(session.local_discriminator).expect("never zero");
    let remote = session.remote_discriminator.and_then(Discriminator::new);
    let wrong = right.get() ^ 1;
    Packet {
        diagnostic: Diagnostic::PATH_DOWN,
        state: State::Down,
        poll: false,
        is_final: false,
        control_plane_independent: true,
        demand: false,
        detect_multiplier: NonZeroU8::MAX,
        my_discriminator: remote.expect("a session that is up"),
        your_discriminator: match guess {
            Guess::Right => Some(right),
            Guess::Zero => None,
            Guess::Wrong => Discriminator::new(wrong).or(Discriminator::new(2)),
        },
        desired_min_tx_us: INTERVAL_US,
        required_min_rx_us: INTERVAL_US,
        required_min_echo_rx_us: 0,
        auth: None,
    }
}

fn is_own(session: &BfdSession) -> bool {
    let own: [IpAddr; 2] = [Site::v4(ATTACKED).into(), Site::v6(ATTACKED).into()];
    session.local.is_some_and(|local| own.contains(&local))
}

fn is_multihop(session: &BfdSession) -> bool {
    session.hops == "multi"
}

/// Sends a forged packet to the local system of a session, as a user of a host. It has the source address
/// that the kernel selects, or `source` even if the host does not have it.
fn send(
    host: &Host,
    user: u32,
    source: Option<IpAddr>,
    session: &BfdSession,
    guess: Guess,
) -> io::Result<usize> {
    let to = session.local.expect("a path");
    let port = match is_multihop(session) {
        true => PORT_MULTIHOP,
        false => PORT_SINGLE_HOP,
    };
    let packet = forged(session, guess).encode();
    let attack = || {
        setfsuid(Uid::from_raw(user));
        let to = SocketAddr::new(to, port);
        let socket =
            socket2::Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
        let any: IpAddr = match to {
            SocketAddr::V4(_) => {
                socket.set_ttl_v4(TTL_SINGLE_HOP.into())?;
                Ipv4Addr::UNSPECIFIED.into()
            }
            SocketAddr::V6(_) => {
                socket.set_unicast_hops_v6(TTL_SINGLE_HOP.into())?;
                socket.set_freebind_v6(source.is_some())?;
                Ipv6Addr::UNSPECIFIED.into()
            }
        };
        socket.bind(&SocketAddr::new(source.unwrap_or(any), 0).into())?;
        socket.send_to(packet.octets(), &to.into())
    };
    host.run(attack).expect("a thread")
}

/// Requests sessions as a daemon does, for as long as the value lives.
async fn request(bfd: &Bfd, own: u8, remotes: &[(u8, Hops)]) -> Socket {
    let open = |path: &Path| -> io::Result<Socket> {
        let socket = Socket::connect(path)?;
        let send = |request: Request| {
            let octets = encode(&request).map_err(io::Error::other)?;
            socket.send(&octets)
        };
        send(Request::hello("lab"))?;
        for (number, hops) in remotes {
            for (remote, local) in [
                (Site::v4(*number).into(), Site::v4(own).into()),
                (Site::v6(*number).into(), IpAddr::from(Site::v6(own))),
            ] {
                send(Request::Set(Wanted {
                    remote,
                    local: Some(local),
                    hops: *hops,
                    interval_ms: 300,
                    receive_ms: 300,
                    idle_ms: IDLE_MS,
                    // A detection time of 30 s: only the attack ends a session.
                    multiplier: 100,
                    ttl_min: 1,
                    auth: None,
                }))?;
            }
        }
        Ok(socket)
    };
    let opened = until(PATIENCE, "cambric-bfd", async || {
        Ok::<_, Error>(open(bfd.clients()).map_err(|error| error.to_string()))
    });
    opened.await.unwrap_or_else(|error| panic!("{error}")).0
}

/// `cambric-bfd` on the attacked host and on its neighbors, with their clients.
struct Fabric {
    attacked: (Bfd, Socket),
    neighbors: Vec<(Bfd, Socket)>,
}

impl Fabric {
    async fn start(ground: &Ground, site: &Site) -> Self {
        let bfd = Bfd::start(site).expect("started");
        let client = request(&bfd, ATTACKED, &NEIGHBORS).await;
        let attacked = (bfd, client);
        let mut neighbors = vec![];
        for (number, hops) in NEIGHBORS {
            let site = ground.site(number).await.expect("a host");
            let bfd = Bfd::start(&site).expect("started");
            let client = request(&bfd, number, &[(ATTACKED, hops)]).await;
            neighbors.push((bfd, client));
        }
        Self {
            attacked,
            neighbors,
        }
    }

    /// Waits until all sessions are up. Returns those of all hosts.
    async fn sessions(&self) -> Vec<BfdSession> {
        let mut all = self.attacked.0.has_up(2 * NEIGHBORS.len()).await;
        for (bfd, _) in &self.neighbors {
            all.extend(bfd.has_up(2).await);
        }
        all
    }

    /// Returns a session as it is now.
    async fn now(&self, session: &BfdSession) -> Result<BfdSession, String> {
        let all = self.neighbors.iter().map(|(bfd, _)| bfd);
        for bfd in all.chain([&self.attacked.0]) {
            let sessions = bfd.sessions().await?;
            let is_it =
                |one: &BfdSession| (one.local, one.remote) == (session.local, session.remote);
            if let Some(found) = sessions.into_iter().find(is_it) {
                return Ok(found);
            }
        }
        Err(format!("no session: {session:?}"))
    }

    /// Asserts that packets with each effective guess end these sessions, of which no two are the ends of one
    /// path.
    async fn fail(
        &self,
        these: impl Fn(&BfdSession) -> bool,
        attack: impl Fn(&BfdSession, Guess) -> io::Result<usize>,
    ) {
        for guess in EFFECTIVE {
            let all = self.sessions().await;
            let attacked: Vec<_> = all.iter().filter(|session| these(session)).collect();
            assert!(!attacked.is_empty());
            for session in attacked {
                let what = format!("{guess:?} ends {:?} at {:?}", session.remote, session.local);
                let failed = until(PATIENCE, &what, async || {
                    if let Err(error) = attack(session, guess) {
                        return Ok::<_, Error>(Err(error.to_string()));
                    }
                    Ok(match self.now(session).await {
                        Ok(now) if now.downs > session.downs => Ok(()),
                        other => Err(format!("{other:?}")),
                    })
                });
                failed.await.unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }

    /// Asserts that packets with any of these guesses to these sessions end no session.
    async fn stand(
        &self,
        these: impl Fn(&BfdSession) -> bool,
        guesses: &[Guess],
        attack: impl Fn(&BfdSession, Guess),
    ) {
        let before = self.sessions().await;
        let attacked: Vec<_> = before.iter().filter(|session| these(session)).collect();
        assert!(!attacked.is_empty());
        for guess in guesses {
            for session in &attacked {
                (0..TIMES).for_each(|_| attack(session, *guess));
            }
        }
        for session in self.sessions().await {
            let follows = until(PATIENCE, "packets of the neighbor", async || {
                Ok::<_, Error>(match self.now(&session).await {
                    Ok(now) if now.received >= session.received + FENCE => Ok(()),
                    other => Err(format!("{other:?}")),
                })
            });
            follows.await.unwrap_or_else(|error| panic!("{error}"));
        }
        let downs = |all: &[BfdSession]| {
            let downs = all.iter().map(|one| (one.local, one.remote, one.downs));
            downs.collect::<Vec<_>>()
        };
        assert_eq!(downs(&self.sessions().await), downs(&before));
    }
}

// Promise (Daemons): Another user of a host cannot end its sessions of BFD by forged packets.
/// A user may give a socket of IPv6 any source address. So a session of the own host over several hops can be
/// attacked, too: the link on which a packet arrives does not count there.
#[test]
fn another_user_ends_no_session_of_bfd() {
    in_ground(&[], "forged packets of BFD", async |ground| {
        let site = ground.site(ATTACKED).await.expect("a host");
        let fabric = Fabric::start(&ground, &site).await;
        let by = |user: u32, session: &BfdSession, guess| {
            let source = session.remote.filter(|_| is_own(session));
            send(&site.host, user, source, session, guess)
        };
        let is_local = |session: &BfdSession| {
            let is_ipv6 = session.local.is_some_and(|local| local.is_ipv6());
            is_own(session) && is_ipv6 && is_multihop(session)
        };
        let is_remote = |session: &BfdSession| !is_own(session);
        let is_reached = |session: &BfdSession| is_remote(session) || is_local(session);
        // Without the table, packets with the wrong discriminator are discarded, and the others are not.
        let wrong = fabric.stand(is_reached, &[Guess::Wrong], |session, guess| {
            by(STRANGER, session, guess).expect("it is sent");
        });
        wrong.await;
        let attack = |session: &BfdSession, guess| by(STRANGER, session, guess);
        fabric.fail(is_remote, attack).await;
        fabric.fail(is_local, attack).await;

        let file = site.save(
            "guard.toml",
            "asn = 64512\nrouter_id = \"10.0.0.2\"\nlisten = [\"10.0.0.2:179\"]\n",
        );
        let file = file.to_str().expect("text");
        let (done, text) = cambric_guard(&site, &["--bgp-client", file]).await;
        assert!(done, "{text}");
        let guarded = fabric.stand(is_reached, &ALL, |session, guess| {
            let refused = by(STRANGER, session, guess).expect_err("it is guarded");
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
        });
        guarded.await;
        // A user that may send BFD still ends the sessions: the table has protected them.
        let attack = |session: &BfdSession, guess| by(0, session, guess);
        fabric.fail(is_remote, attack).await;
        fabric.fail(is_local, attack).await;
    });
}

// Promise (Daemons): A workload cannot end a session of BFD of any node by forged packets.
/// NAT gives its packets the address of its host. With an exception for it, they end the sessions over several
/// hops. Packets to a neighbor on the link have passed its host, so that their time to live is too small.
#[test]
fn workload_ends_no_session_of_bfd() {
    in_ground(&[], "a workload forges BFD", async |ground| {
        let _store = store_of_workload(&ground).await;
        let site = ground.site(ATTACKED).await.expect("a host");
        let pod = workload(&ground, &site).await;
        let fabric = Fabric::start(&ground, &site).await;
        let forge = |session: &BfdSession, guess| send(&pod, 0, None, session, guess);
        let mut agent = felix(&site, EXCEPTIONS);
        let is_reached = |session: &BfdSession| !is_own(session) && is_multihop(session);
        fabric.fail(is_reached, forge).await;
        let forge_all = |session: &BfdSession, guess| {
            forge(session, guess).expect("it is sent");
        };
        fabric
            .stand(|session| !is_reached(session), &ALL, forge_all)
            .await;

        agent.kill().await.expect("killed");
        let _agent = felix_without_exceptions(&site).await;
        fabric.stand(|_| true, &ALL, forge_all).await;
    });
}
