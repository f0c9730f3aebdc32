//! cutting: from a policy in etcd until no packet of the established flows that it forbids passes.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Result;
use calico_model::RESOURCES_PREFIX;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fabric::{self, Ground, Workload};
use crate::limits::{CUT_QUIET, FABRIC_WITHIN};
use crate::stage::{Measures, Options};
use crate::traffic::{Capture, Flows, Opener, Protocol, Seen, sink};

const NODE: usize = 0;
const POLICY: &str = "globalnetworkpolicies/cut";
/// The first port of established flows, and the most ports of one measurement: a port is evaluated once.
const PORT: u16 = 8000;
const PORTS_MAX: u16 = 100;
/// New flows that count as one round.
const NEW_OF_ROUND: u64 = 100;
/// How often every flow has sent in vain when the last packet has passed.
const ROUNDS_IN_VAIN: u64 = 3;

/// Flows that are measured together.
struct Size {
    flows: usize,
    /// Packets of all of them in a second.
    rate: u32,
    /// Measurements, of which the longest counts.
    rounds: u16,
    /// The names of the measures: TCP and UDP.
    names: [&'static str; 2],
}

const SIZES: [Size; 3] = [
    Size {
        flows: 1,
        rate: 5_000,
        rounds: 5,
        names: ["cut_tcp_1_ms", "cut_udp_1_ms"],
    },
    Size {
        flows: 100,
        rate: 20_000,
        rounds: 5,
        names: ["cut_tcp_100_ms", "cut_udp_100_ms"],
    },
    Size {
        flows: 10_000,
        rate: 50_000,
        rounds: 3,
        names: ["cut_tcp_10000_ms", "cut_udp_10000_ms"],
    },
];

/// Flows of the largest size in a quick run.
const FLOWS_QUICK: usize = 500;

/// Opens flows between two workloads of one node, forbids them, and reads the packets that arrive.
pub(super) fn cutting(options: &Options) -> Result<Measures> {
    let quick = options.quick;
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        // The entries of cut connections remain, so those of all measurements count as open.
        ground.fabric.plan.felix_keys =
            "cutting.enabled = true\nbudgets.connections = 0\n".to_owned();
        let measured = measure(&mut ground, quick).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, quick: bool) -> Result<Measures> {
    let workloads = ground.workloads(NODE, 2).await?;
    let [from, to] = workloads.as_slice() else {
        anyhow::bail!("two workloads");
    };
    for (workload, label) in [(from, "from"), (to, "to")] {
        let (key, value) = workload.endpoint.labeled(&json!({ label: "" }))?;
        fabric::put(&*ground.etcd.store, key, value).await?;
    }
    write(ground, &policy(false)).await?;
    ground.start_felix(NODE)?;
    ground.programmed(NODE, 2).await?;
    let mut measures = Measures::new();
    let mut port = PORT;
    let mut longest = |name, value: f64| {
        let known = measures.entry(name).or_insert(value);
        *known = known.max(value);
    };
    for size in SIZES {
        let (flows, rounds) = match quick {
            true => (size.flows.min(FLOWS_QUICK), 1),
            false => (size.flows, size.rounds),
        };
        for (protocol, name) in [Protocol::Tcp, Protocol::Udp].into_iter().zip(size.names) {
            for _ in 0..rounds {
                let ports = PORTS_MAX.min(u16::try_from(flows).unwrap_or(PORTS_MAX));
                let mut far = sink::start(to, port..port + ports).await?;
                let sender =
                    Flows::open(protocol, [from, to], flows, port..port + ports)?.send(size.rate);
                // Entries of cut connections remain, so each measurement has ports of its own.
                port += ports;
                let round = Round {
                    ground,
                    pair: [from, to],
                    protocol,
                    cut: flows as u64,
                };
                longest(name, round.run(|| sender.rounds()).await?);
                sender.stop()?;
                far.kill().await?;
            }
        }
    }
    // Last, because their many entries would be listed with the others.
    let opener = Opener::start([from, to], port)?;
    let round = Round {
        ground,
        pair: [from, to],
        protocol: Protocol::Udp,
        cut: 0,
    };
    longest(
        "cut_new_ms",
        round.run(|| opener.sent() / NEW_OF_ROUND).await?,
    );
    opener.stop()?;
    ground.fabric.check()?;
    Ok(measures)
}

/// One measurement.
struct Round<'a> {
    ground: &'a Ground,
    pair: [&'a Workload; 2],
    protocol: Protocol,
    /// Connections that Felix must cut.
    cut: u64,
}

impl Round<'_> {
    /// Forbids the flows, and returns the milliseconds from the answer of etcd until the last packet of
    /// them. Allows them again. `rounds` returns how often all have sent.
    async fn run(self, rounds: impl Fn() -> u64) -> Result<f64> {
        let seen = Arc::<Seen>::default();
        let capture = self.capture(&seen)?;
        let (before, count) = (rounds(), seen.count());
        wait("packets pass", || {
            rounds() > before + 1 && seen.count() > count
        })
        .await?;
        // The listing after an earlier change delays the next one.
        sleep(CUT_QUIET).await;
        let cut = self.ground.figures(NODE).await?.connections_cut;
        write(self.ground, &policy(true)).await?;
        let acknowledged = SystemTime::now();
        self.ground
            .until(NODE, "all flows are cut", |now| {
                now.connections_cut >= cut + self.cut
            })
            .await?;
        let mut last = (seen.count(), rounds());
        wait("no packet passes", || {
            let now = (seen.count(), rounds());
            if now.0 != last.0 {
                last = now;
            }
            now.1 > last.1 + ROUNDS_IN_VAIN
        })
        .await?;
        capture.stop()?;
        let before = self.ground.figures(NODE).await?.rules_transactions;
        write(self.ground, &policy(false)).await?;
        self.ground
            .until(NODE, "flows are allowed again", |now| {
                now.rules_transactions > before && now.rules_in_sync
            })
            .await?;
        Ok(seen.last_after(acknowledged))
    }

    /// Counts the packets from the sender.
    fn capture(&self, seen: &Arc<Seen>) -> Result<Capture> {
        let seen = Arc::clone(seen);
        let [from, to] = self.pair;
        let (source, protocol) = (from.address().octets(), self.protocol.number());
        Capture::start(&to.host, move |packet| {
            let is_counted = packet.get(12..16)? == source && *packet.get(9)? == protocol;
            is_counted.then(|| Arc::clone(&seen))
        })
    }
}

async fn wait(what: &str, mut is: impl FnMut() -> bool) -> Result<()> {
    netns_lab::until(FABRIC_WITHIN, what, async || {
        anyhow::Ok(is().then_some(()).ok_or(String::new()))
    })
    .await?;
    Ok(())
}

async fn write(ground: &Ground, policy: &Value) -> Result<()> {
    let key = format!("{RESOURCES_PREFIX}{POLICY}");
    fabric::put(&*ground.etcd.store, key, policy.to_string().into_bytes()).await
}

/// Returns the policy of the receiver.
fn policy(forbids: bool) -> Value {
    let action = if forbids { "Deny" } else { "Allow" };
    let rules = ["TCP", "UDP"].map(|protocol| {
        json!({"action": action, "protocol": protocol,
            "source": {"selector": "has(from)"}, "destination": {"ports": ["8000:65535"]}})
    });
    json!({"metadata": {"name": "cut"}, "spec": {
        "selector": "has(to)", "types": ["Ingress"], "ingress": rules}})
}
