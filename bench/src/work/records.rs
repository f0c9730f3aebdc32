//! records: a reflector that enforces origin validation reads the records of a large fabric.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use bgp_io::bgp_proto::Family;
use calico_store::{Op, Put, Store, Txn};
use netns_lab::Host;
use netns_lab::fabric::{Fabric, Machine};
use testkit::{Encode, EndOfRib, Keepalive, Octets, TcpPeer};
use tokio::time::sleep;

use super::scheduling::{process_on_first_processor, schedule, thread_on_first_processor};
use crate::fabric::{self, Endpoint, Etcd, Origins, figures};
use crate::limits::{FABRIC_WITHIN, RECORDS_OF_TXN, REDIAL_AFTER, SETTLED, STARTED_WITHIN};
use crate::socket_queue::SocketQueues;
use crate::stage::{Measures, Options};
use crate::wire::{self, Attributes, Offer, Prefix};

/// Endpoints, and the nodes that they are on in turn. Only the first one exists.
const ENDPOINTS: u32 = 250_000;
const ENDPOINTS_QUICK: u32 = 2_000;
const NODES: u32 = 500;

/// The numbers of two endpoints: one of the node that announces both, and one of another node.
const OWN: u32 = 0;
const OTHER: u32 = 1;

/// Pause between two KEEPALIVEs of the node.
const GAP: Duration = Duration::from_millis(1);

/// Pause between two looks at the reflector's socket: the precision of the measured time.
const LOOK: Duration = Duration::from_micros(200);

/// Starts a reflector while etcd is down, then etcd: measures until the reflector has the records of
/// all endpoints. A node has a session, and sends KEEPALIVEs in this time.
pub(super) fn records(options: &Options) -> Result<Measures> {
    let count = match options.quick {
        true => ENDPOINTS_QUICK,
        false => ENDPOINTS,
    };
    fabric::beside_records(Origins::Enforce, async |fabric, etcd| {
        let measured = measure(fabric, etcd, count).await;
        measured.with_context(|| {
            let daemons = fabric.reflectors.iter().flat_map(|one| &one.daemons);
            let logs = daemons.map(|daemon| daemon.process.log_tail());
            logs.collect::<String>()
        })
    })
}

async fn measure(fabric: &mut Fabric, etcd: &Etcd, count: u32) -> Result<Measures> {
    let name = fabric.node(0)?.plan.name.clone();
    fill(&*etcd.store, count, &name).await?;
    let mut store = fabric.store.take().context("there is no store")?;
    store.process.kill().await?;
    fabric.start_reflector(0, &fabric::programs()?)?;
    let [reflector] = &fabric.reflectors[..] else {
        return Err(anyhow!("a fabric with one reflector"));
    };
    let socket = reflector.control("route-reflector");
    let there = async || anyhow::Ok(socket.exists().then_some(()).ok_or(String::new()));
    netns_lab::until(STARTED_WITHIN, "the reflector has started", there).await?;
    let before = resident(reflector)?;

    etcd.serve(fabric)?;
    etcd.answers(fabric).await?;
    let store = fabric.store.as_ref().context("there is no store")?;
    // The other processors are the reflector's.
    process_on_first_processor(store.process.pid())?;
    let up = Instant::now();
    let node = fabric.node(0)?;
    let (asn, from) = (fabric.plan.asn, node.plan.v4);
    let [reflector] = &fabric.reflectors[..] else {
        return Err(anyhow!("a fabric with one reflector"));
    };
    let to = SocketAddrV4::new(reflector.plan.v4, 179);
    let mut peer = dial(&node.host, asn, from, to).await?;
    peer.send(Octets(&announcement(from))).await?;
    let probe = Probe::start(&reflector.host, peer)?;
    Origins::Enforce.in_sync(reflector).await?;
    let took = up.elapsed();
    let probed = probe.stop().await?;
    ensure!(
        probed.sent > 0,
        "no KEEPALIVE was sent while records were read"
    );

    // One of the two routes has a record.
    netns_lab::until(FABRIC_WITHIN, "one route is not used", async || {
        let excluded: u64 = figures(reflector).await?.excluded.values().sum();
        anyhow::Ok(
            (excluded == 1)
                .then_some(())
                .ok_or_else(|| excluded.to_string()),
        )
    })
    .await?;
    sleep(SETTLED).await;
    let grown = resident(reflector)?.saturating_sub(before) as f64;
    Ok(Measures::from([
        ("records_s", took.as_secs_f64()),
        ("records_unread_ms", probed.longest.as_secs_f64() * 1e3),
        ("records_probes", f64::from(probed.sent)),
        ("records_resident_octets", grown / f64::from(count)),
    ]))
}

/// Writes the endpoints, many in each transaction.
async fn fill(store: &dyn Store, count: u32, first: &str) -> Result<()> {
    let numbers: Vec<u32> = (0..count).collect();
    for numbers in numbers.chunks(RECORDS_OF_TXN) {
        let mut txn = Txn::default();
        for &number in numbers {
            let node = match number % NODES {
                OWN => first.to_owned(),
                other => format!("other{other}"),
            };
            let endpoint = Endpoint::new(number, &node);
            let (key, value) = endpoint.encode(endpoint.address())?;
            txn.then.push(Op::Put(Put::new(key, value)));
        }
        store.txn(txn).await?;
    }
    Ok(())
}

/// Returns the UPDATEs of the node: both endpoints' addresses, with its own next hop.
fn announcement(from: Ipv4Addr) -> Vec<u8> {
    let attributes = Attributes {
        next_hop: from.octets(),
        local_pref: Some(100),
        ..Attributes::default()
    };
    let prefixes = [OWN, OTHER].map(|number| Prefix::V4(fabric::address(number).to_bits(), 32));
    let mut octets = wire::announce(&attributes, &prefixes, None);
    octets.extend(EndOfRib(Family::IPV4_UNICAST).octets());
    octets
}

/// Establishes a session of the node, once the reflector has its configuration and listens.
async fn dial(host: &Host, asn: u32, from: Ipv4Addr, to: SocketAddrV4) -> Result<TcpPeer> {
    let offer = Offer {
        asn,
        id: from,
        hold_time_s: 0,
        ipv6: false,
        add_path: false,
    };
    let deadline = Instant::now() + FABRIC_WITHIN;
    loop {
        let tried = match host.run(|| TcpStream::connect(to))? {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let mut peer = TcpPeer::from_std(stream)?;
                peer.establish(&offer.open()).await.map(|_| peer)
            }
            Err(error) => Err(error),
        };
        match tried {
            Ok(peer) => return Ok(peer),
            Err(error) if Instant::now() > deadline => {
                return Err(error).context("a session with the reflector");
            }
            Err(_) => sleep(REDIAL_AFTER).await,
        }
    }
}

/// The result of a [`Probe`].
struct Probed {
    /// The longest time that a KEEPALIVE stayed unread.
    longest: Duration,
    /// The number of KEEPALIVEs.
    sent: u32,
    /// Dropped to end the session.
    _session: TcpStream,
}

/// Sends KEEPALIVEs in a thread, and measures how long each stays unread in the reflector's socket.
struct Probe {
    /// Dropped to end it.
    ends: SyncSender<()>,
    thread: JoinHandle<Result<Probed>>,
}

impl Probe {
    fn start(reflector: &Host, peer: TcpPeer) -> Result<Self> {
        let stream = peer.into_stream().into_std()?;
        stream.set_nonblocking(false)?;
        let (ends, ended) = sync_channel(1);
        let host = reflector.clone();
        let thread = thread::spawn(move || host.run(move || probe(stream, &ended))?);
        Ok(Self { ends, thread })
    }

    async fn stop(self) -> Result<Probed> {
        let Self { ends, thread } = self;
        drop(ends);
        let thread = tokio::task::spawn_blocking(|| thread.join());
        thread.await?.map_err(|_| anyhow!("the probe panicked"))?
    }
}

/// Sends KEEPALIVEs until the end; the next one when the reflector has read the one before.
fn probe(mut stream: TcpStream, ended: &Receiver<()>) -> Result<Probed> {
    thread_on_first_processor()?;
    if !schedule("--fifo", "1")? {
        eprintln!("records: without SCHED_FIFO, the node waits for etcd's time slices");
    }
    let (mut longest, mut sent) = (Duration::ZERO, 0);
    let octets = Keepalive.octets();
    let mut queues = SocketQueues::open()?;
    let (SocketAddr::V4(here), SocketAddr::V4(there)) = (stream.local_addr()?, stream.peer_addr()?)
    else {
        return Err(anyhow!("a session over IPv6"));
    };
    while ended.recv_timeout(GAP) == Err(RecvTimeoutError::Timeout) {
        let began = Instant::now();
        stream.write_all(&octets)?;
        while queues.unread(there, here)? > 0 {
            if ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            ensure!(began.elapsed() < FABRIC_WITHIN, "a KEEPALIVE stays unread");
        }
        longest = longest.max(began.elapsed());
        sent += 1;
    }
    Ok(Probed {
        longest,
        sent,
        _session: stream,
    })
}

/// Returns the resident octets of the reflector's processes.
fn resident(reflector: &Machine) -> Result<u64> {
    let daemon = reflector.daemons.first().context("a reflector")?;
    let used = daemon.process.usage().context("the reflector has ended")?;
    Ok(used.resident_octets)
}
