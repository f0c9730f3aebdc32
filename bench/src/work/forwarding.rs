//! forwarding: the cost of policies and of the flow log for packets that pass.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::process;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use calico_model::RESOURCES_PREFIX;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::fabric::{self, Ground, Workload};
use crate::stage::{Measures, Options, quantiles};
use crate::traffic::rates;

/// The node of most pairs, that with the flow log, and that without Felix.
const NODE: usize = 0;
const LOGGED: usize = 1;
const PLAIN: usize = 2;

/// Policies, and those that apply where few do: the last ones.
const POLICIES: u16 = 1_000;
const FEW: u16 = 10;
/// The port of the first policy. The last one allows the measured flows.
const PORT: u16 = 8_000;

/// Rounds, in each of which every pair of workloads is measured.
const ROUNDS: usize = 5;

/// Sizes of one block.
struct Block {
    rounds: usize,
    stream: Duration,
    round_trips: usize,
    flows: u32,
}

const FULL: Block = Block {
    rounds: ROUNDS,
    stream: Duration::from_secs(1),
    round_trips: 5_000,
    flows: 6_000,
};
const QUICK: Block = Block {
    rounds: 1,
    stream: Duration::from_millis(100),
    round_trips: 200,
    flows: 200,
};

/// A sender and a receiver, by the policies of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pair {
    /// None applies.
    Without,
    /// Ten apply.
    Few,
    /// All apply.
    All,
    /// Ten apply, with the flow log.
    FewLogged,
    /// The rules of all, as plain rules.
    Plain,
}

impl Pair {
    const ALL: [Self; 5] = [
        Self::Without,
        Self::Few,
        Self::All,
        Self::FewLogged,
        Self::Plain,
    ];

    const fn node(self) -> usize {
        match self {
            Self::Without | Self::Few | Self::All => NODE,
            Self::FewLogged => LOGGED,
            Self::Plain => PLAIN,
        }
    }

    /// Returns the labels of the receiver.
    fn labels(self) -> Value {
        match self {
            Self::Without | Self::Plain => json!({}),
            Self::Few | Self::FewLogged => json!({"few": ""}),
            Self::All => json!({"all": ""}),
        }
    }
}

/// Values by pair, one for each round.
type Values = BTreeMap<Pair, Vec<f64>>;

/// Measures pairs of workloads with different policies in turn.
pub(super) fn forwarding(options: &Options) -> Result<Measures> {
    let block = if options.quick { QUICK } else { FULL };
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 3).await?;
        let measured = measure(&mut ground, &block).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, block: &Block) -> Result<Measures> {
    use Pair::{All, Few, FewLogged, Plain, Without};

    let mut pairs = BTreeMap::new();
    let mut puts = vec![];
    for pair in Pair::ALL {
        let workloads = ground.workloads(pair.node(), 2).await?;
        let both: [Workload; 2] = workloads.try_into().ok().context("two workloads")?;
        let [from, to] = &both;
        match pair {
            Plain => plain(ground, [from, to]).await?,
            _ => {
                puts.push(from.endpoint.labeled(&sender_labels())?);
                puts.push(to.endpoint.labeled(&pair.labels())?);
            }
        }
        pairs.insert(pair, both);
    }
    for number in 0..POLICIES {
        let key = format!("{RESOURCES_PREFIX}globalnetworkpolicies/p{number}");
        puts.push((key, policy(number).to_string().into_bytes()));
    }
    let logged = &ground.fabric.node(LOGGED)?.plan.name;
    let key = format!("{RESOURCES_PREFIX}felixconfigurations/node.{logged}");
    let settings = json!({"metadata": {"name": format!("node.{logged}")},
        "spec": {"flowLogsLocalReporter": "Enabled"}});
    puts.push((key, settings.to_string().into_bytes()));
    fabric::fill(&*ground.etcd.store, puts).await?;
    for (node, count) in [(NODE, 6), (LOGGED, 2)] {
        ground.start_felix(node)?;
        ground.programmed(node, count).await?;
    }
    for node in [NODE, LOGGED, PLAIN] {
        let host = &ground.fabric.node(node)?.host;
        host.sysctl("net/netfilter/nf_conntrack_tcp_timeout_close", "1")?;
    }
    let recorded = ground.flow_records(LOGGED).await?;

    let (mut streams, mut p99s, mut flows) = (Values::new(), Values::new(), Values::new());
    let port = PORT + POLICIES - 1;
    for round in 0..block.rounds {
        // Another pair is the first one of each round.
        let mut order = Pair::ALL;
        order.rotate_left(round % Pair::ALL.len());
        for pair in order {
            let [from, to] = pairs.get(&pair).context("a pair")?;
            let both = [from, to];
            let enter = |values: &mut Values, value| values.entry(pair).or_default().push(value);
            enter(&mut streams, rates::stream(both, port, block.stream)?);
            let [p99] = quantiles(
                rates::round_trips(both, port, block.round_trips, None)?,
                [0.99],
            )?;
            enter(&mut p99s, p99);
            enter(&mut flows, rates::opened(both, port, block.flows)?);
        }
    }
    let more = ground.flow_records(LOGGED).await? > recorded;
    ensure!(more, "the flow log has no record");
    ground.fabric.check()?;
    Ok(Measures::from([
        ("forward_stream_ratio", ratio(&streams, Without, All)?),
        ("forward_p99_ratio", ratio(&p99s, All, Without)?),
        ("forward_new_few_ratio", ratio(&flows, Without, Few)?),
        ("forward_new_all_ratio", ratio(&flows, Plain, All)?),
        ("forward_log_stream_ratio", ratio(&streams, Few, FewLogged)?),
        ("forward_log_new_ratio", ratio(&flows, Few, FewLogged)?),
        ("forward_stream_gb", middle(&streams, Without)? / 1e9),
        ("forward_p99_ms", middle(&p99s, Without)?),
        ("forward_new", middle(&flows, Without)?),
        ("forward_new_all", middle(&flows, All)?),
        ("forward_new_plain", middle(&flows, Plain)?),
    ]))
}

/// Returns the median over the rounds of the quotient of two pairs.
fn ratio(values: &Values, upper: Pair, lower: Pair) -> Result<f64> {
    let of = |pair| values.get(&pair).into_iter().flatten();
    let quotients = of(upper).zip(of(lower)).map(|(upper, lower)| upper / lower);
    let [median] = quantiles(quotients.collect(), [0.5])?;
    Ok(median)
}

fn middle(values: &Values, pair: Pair) -> Result<f64> {
    let [median] = quantiles(values.get(&pair).cloned().unwrap_or_default(), [0.5])?;
    Ok(median)
}

/// Connects two workloads of a node without Felix, with the rules of all policies.
async fn plain(ground: &Ground, both: [&Workload; 2]) -> Result<()> {
    let node = ground.fabric.node(PLAIN)?;
    for workload in both {
        let name = workload.endpoint.interface();
        workload.resolve_gateway().await?;
        let address = IpNet::from(IpAddr::V4(workload.address()));
        node.links.add_route(address, None, &name).await?;
    }
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(rules(both).as_bytes())?;
    let load = || {
        process::Command::new("nft")
            .arg("--file")
            .arg(file.path())
            .output()
    };
    let loaded = node.host.run(load)??;
    let error = String::from_utf8_lossy(&loaded.stderr);
    ensure!(loaded.status.success(), "nft --file: {error}");
    Ok(())
}

/// Returns one chain with one rule for each policy, and one set for each selector.
fn rules([from, to]: [&Workload; 2]) -> String {
    let mut sets = String::new();
    let mut rules = String::new();
    for number in 0..POLICIES {
        let _ = writeln!(
            sets,
            "set m{number} {{ type ipv4_addr ; elements = {{ {} }} ; }}",
            from.address()
        );
        let port = PORT + number;
        let _ = writeln!(rules, "ip saddr @m{number} tcp dport {port} counter accept");
    }
    format!(
        "table inet plain {{\n{sets}\
         chain to {{\n{rules}counter drop\n}}\n\
         chain forward {{\ntype filter hook forward priority filter ; policy accept ;\n\
         ct state established,related accept\noifname \"{}\" goto to\n}}\n}}\n",
        to.endpoint.interface()
    )
}

/// Returns a policy for all receivers with its label, which allows connections of the sender to one port.
fn policy(number: u16) -> Value {
    let selector = match number + FEW < POLICIES {
        true => "has(all)",
        false => "has(all) || has(few)",
    };
    json!({"metadata": {"name": format!("p{number}")}, "spec": {
        "order": number, "selector": selector, "types": ["Ingress"],
        "ingress": [{"action": "Allow", "protocol": "TCP",
            "source": {"selector": format!("has(m{number})")},
            "destination": {"ports": [PORT + number]}}]}})
}

/// Returns the labels of a sender, which is a member of every selector.
fn sender_labels() -> Value {
    let labels = (0..POLICIES).map(|number| (format!("m{number}"), json!("")));
    Value::Object(labels.collect())
}
