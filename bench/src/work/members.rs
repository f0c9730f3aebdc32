//! members: the change of one member of a set, in a large set and among many sets.

use std::time::Instant;

use anyhow::{Context, Result};
use calico_model::RESOURCES_PREFIX;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fabric::{self, Endpoint, Ground, SetChanges};
use crate::limits::{FABRIC_WITHIN, PAUSE, SETTLED};
use crate::stage::{Measures, Options, quantiles};

const NODE: usize = 0;
const REMOTE: &str = "other";

/// Sizes of a run.
struct Size {
    /// Members of the large set.
    members: u32,
    /// Policies with a set of their own.
    policies: u32,
    /// Changes of each kind.
    changes: u32,
}

const FULL: Size = Size {
    members: 10_000,
    policies: 2_000,
    changes: 200,
};
const QUICK: Size = Size {
    members: 200,
    policies: 40,
    changes: 10,
};

/// Members of each of the many sets.
const MEMBERS: u32 = 10;

/// The names of the measures of one kind of sets.
struct Names {
    cpu: &'static str,
    p50: &'static str,
    p99: &'static str,
}

/// Changes a label of one endpoint of another node at a time: first with one large set, then with many
/// sets in addition.
pub(super) fn members(options: &Options) -> Result<Measures> {
    let size = if options.quick { QUICK } else { FULL };
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        let measured = measure(&mut ground, &size).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, size: &Size) -> Result<Measures> {
    let local = ground.endpoints(NODE, 1).await?;
    let remote: Vec<_> = (1..=size.members)
        .map(|number| Endpoint::new(number, REMOTE))
        .collect();
    let mut puts = vec![policy("large", "has(large)")];
    for endpoint in &local {
        puts.push(endpoint.labeled(&json!({"local": ""}))?);
    }
    for endpoint in &remote {
        puts.push(endpoint.labeled(&json!({"large": ""}))?);
    }
    fabric::fill(&*ground.etcd.store, puts).await?;
    ground.start_felix(NODE)?;
    ground.programmed(NODE, 1).await?;

    let mut measures = Measures::new();
    let large = Names {
        cpu: "member_large_cpu_ms",
        p50: "member_large_p50_ms",
        p99: "member_large_p99_ms",
    };
    let changed = remote.first().context("an endpoint")?;
    let labels = [json!({}), json!({"large": ""})];
    changes(ground, size, changed, labels, large, &mut measures).await?;

    let mut puts = vec![];
    for number in 0..size.policies {
        puts.push(policy(&format!("p{number}"), &format!("has(m{number})")));
    }
    for (number, endpoint) in (0..).zip(&remote).skip(1) {
        puts.push(endpoint.labeled(&labels_of(number, size))?);
    }
    fabric::fill(&*ground.etcd.store, puts).await?;
    let policies = u64::from(size.policies);
    let node = ground.fabric.node(NODE)?;
    netns_lab::until(FABRIC_WITHIN, "all sets are written", async || {
        let count = sets(node)?;
        anyhow::Ok(
            (count >= policies)
                .then_some(())
                .ok_or_else(|| format!("{count}")),
        )
    })
    .await?;
    ground
        .until(NODE, "all rules are written", |now| now.rules_in_sync)
        .await?;
    let many = Names {
        cpu: "member_many_cpu_ms",
        p50: "member_many_p50_ms",
        p99: "member_many_p99_ms",
    };
    let changed = remote.get(1).context("two endpoints")?;
    let with = labels_of(1, size);
    let mut without = with.clone();
    let labels = without.as_object_mut().context("labels")?;
    let one = labels.keys().find(|label| label.starts_with('m')).cloned();
    labels.remove(&one.context("a label of a set")?);
    changes(ground, size, changed, [without, with], many, &mut measures).await?;
    ground.fabric.check()?;
    Ok(measures)
}

/// Returns the number of sets of selectors in the kernel.
fn sets(node: &netns_lab::fabric::Machine) -> Result<u64> {
    let list = ["list", "sets", "inet"];
    let listed = node
        .host
        .run(|| std::process::Command::new("nft").args(list).output())??;
    let text = String::from_utf8_lossy(&listed.stdout);
    Ok(text.matches("set cali40s-").count() as u64)
}

/// Gives an endpoint these labels in turn.
async fn changes(
    ground: &Ground,
    size: &Size,
    endpoint: &Endpoint,
    labels: [Value; 2],
    names: Names,
    measures: &mut Measures,
) -> Result<()> {
    // Later work, such as a listing of the table, is not part of the measurement.
    sleep(SETTLED).await;
    let mut kernel = SetChanges::listen(&ground.fabric.node(NODE)?.host)?;
    let (mut times, mut written) = (vec![], vec![]);
    let before = ground.cpu("felix");
    for labels in labels.iter().cycle().take(size.changes as usize) {
        sleep(PAUSE).await;
        let (key, value) = endpoint.labeled(labels)?;
        kernel.forget();
        let began = Instant::now();
        fabric::put(&*ground.etcd.store, key, value).await?;
        let acknowledged = Instant::now();
        let changed = kernel.next(FABRIC_WITHIN).await?;
        written.push((acknowledged - began).as_secs_f64() * 1e3);
        times.push(
            changed
                .saturating_duration_since(acknowledged)
                .as_secs_f64()
                * 1e3,
        );
    }
    sleep(SETTLED).await;
    let used = ground.cpu("felix").saturating_sub(before);
    let [p50, p99] = quantiles(times, [0.5, 0.99])?;
    let [put] = quantiles(written, [0.5])?;
    measures.insert(
        names.cpu,
        used.as_secs_f64() * 1e3 / f64::from(size.changes),
    );
    measures.insert(names.p50, p50);
    measures.insert(names.p99, p99);
    measures.insert("member_put_p50_ms", put);
    Ok(())
}

/// Returns a policy of the local endpoint with one set.
fn policy(name: &str, selector: &str) -> (String, Vec<u8>) {
    let policy = json!({"metadata": {"name": name}, "spec": {
        "selector": "has(local)", "types": ["Ingress"],
        "ingress": [{"action": "Allow", "protocol": "TCP",
            "source": {"selector": selector}, "destination": {"ports": [8080]}}]}});
    let key = format!("{RESOURCES_PREFIX}globalnetworkpolicies/{name}");
    (key, policy.to_string().into_bytes())
}

/// Returns the labels of an endpoint, so that each of the many sets has its members.
fn labels_of(number: u32, size: &Size) -> Value {
    let of_endpoint = (size.policies * MEMBERS).div_ceil(size.members);
    let of = (0..of_endpoint)
        .map(|at| (number * of_endpoint + at) % size.policies)
        .map(|policy| (format!("m{policy}"), json!("")));
    let large = std::iter::once(("large".to_owned(), json!("")));
    Value::Object(of.chain(large).collect())
}
