//! felix: policies on a host, from etcd to the kernel's packet filter.

use std::process;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use calico_model::RESOURCES_PREFIX;
use daemon_common::report::EndpointFigures;
use netns_lab::fabric::Machine;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::ruleset_copy;
use crate::fabric::{self, Endpoint, Ground, milliseconds};
use crate::limits::{FABRIC_WITHIN, SETTLED};
use crate::stage::{Measures, Options, Policies, quantiles};

/// The only node with a Felix; remote endpoints are at another one that does not exist.
const NODE: usize = 0;
pub(super) const REMOTE: &str = "other";

/// Policies of each endpoint, and members of each selector of a policy.
const POLICIES_OF_ENDPOINT: u32 = 30;
const MEMBERS: u32 = 100;

/// Single changes, each after a pause.
const CHANGES: u32 = 100;
const CHANGES_QUICK: u32 = 10;

/// Pause before each endpoint: Felix has done all that follows a change, such as checks of the table.
const GAP: Duration = Duration::from_millis(300);

/// How long the idle daemon is observed.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_QUICK: Duration = Duration::from_secs(2);

/// Fills etcd with policies and endpoints, then starts Felix: measures until all local endpoints are up
/// and the packet filter is complete. Then it adds one endpoint after the other, changes the labels of
/// remote ones, and nothing.
pub(super) fn felix(options: &Options) -> Result<Measures> {
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        let measured = measure(&mut ground, options).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, options: &Options) -> Result<Measures> {
    let size = options.policies.or(match options.quick {
        true => Policies::QUICK,
        false => Policies::FULL,
    });
    let changes = match options.quick {
        true => CHANGES_QUICK,
        false => CHANGES,
    };
    ensure!(
        size.policies > 0 && size.remote > 0 && size.local > 0,
        "policies and endpoints"
    );
    let local = ground.endpoints(NODE, size.local).await?;
    let more = ground.endpoints(NODE, changes).await?;
    let remote = size.local + changes..size.local + changes + size.remote;
    let remote: Vec<Endpoint> = remote.map(|at| Endpoint::new(at, REMOTE)).collect();
    let mut puts = vec![];
    for number in 0..size.policies {
        puts.push(policy(number));
    }
    for (number, endpoint) in (0..).zip(&local) {
        puts.push(endpoint.labeled(&local_labels(number, size.policies))?);
    }
    for (number, endpoint) in (0..).zip(&remote) {
        puts.push(endpoint.labeled(&remote_labels(number, size))?);
    }
    fabric::fill(&*ground.etcd.store, puts).await?;

    let mut measures = Measures::new();
    let began = Instant::now();
    ground
        .fabric
        .start_felix(NODE, &fabric::program("cambric-felix")?)?;
    ground.programmed(NODE, size.local).await?;
    measures.insert("felix_programmed_s", began.elapsed().as_secs_f64());
    measures.insert("felix_programmed_cpu_s", ground.cpu("felix").as_secs_f64());
    let resident = ground.resident(NODE, "felix")?;
    measures.insert("felix_resident_mb", resident as f64 / 1e6);
    let copy = ruleset_copy::measure(listed(ground.fabric.node(NODE)?)?)?;
    measures.insert("felix_nft_s", copy.load.as_secs_f64());
    measures.insert("felix_kernel_jump_ms", copy.jump_ms);
    // The first record is written.
    sleep(SETTLED).await;

    let before = ground.cpu("felix");
    let idle = match options.quick {
        true => IDLE_QUICK,
        false => IDLE,
    };
    sleep(idle).await;
    let used = ground.cpu("felix").saturating_sub(before);
    let share = used.as_secs_f64() / idle.as_secs_f64();
    measures.insert("felix_idle_percent", share * 100.0);

    endpoints(ground, &more, size, &mut measures).await?;
    members(ground, &remote, changes, size, &mut measures).await?;
    ground.fabric.check()?;
    let edits = ground.figures(NODE).await?.rules_foreign_edits;
    ensure!(
        edits == 0,
        "own changes were taken for {edits} foreign ones"
    );
    Ok(measures)
}

/// Returns the rules of Felix's table, as nft prints them.
pub(super) fn listed(node: &Machine) -> Result<Vec<u8>> {
    let list = ["--stateless", "list", "table", "inet", "cambric-felix"];
    let listed = node
        .host
        .run(|| process::Command::new("nft").args(list).output())??;
    ensure!(listed.status.success(), "nft list");
    Ok(listed.stdout)
}

/// Adds endpoints one at a time: from the write to the route, which follows the packet filter.
async fn endpoints(
    ground: &Ground,
    more: &[Endpoint],
    size: Policies,
    measures: &mut Measures,
) -> Result<()> {
    let mut notifications = ground.listen(NODE)?;
    let before = ground.cpu("felix");
    let mut samples = vec![];
    for (number, endpoint) in (0..).zip(more) {
        sleep(GAP).await;
        let labels = local_labels(number, size.policies);
        let (key, value) = endpoint.labeled(&labels)?;
        let began = Instant::now();
        fabric::put(&*ground.etcd.store, key, value).await?;
        let news = notifications
            .until(endpoint.address(), FABRIC_WITHIN)
            .await?;
        samples.push(milliseconds(began, &news));
    }
    // The work that follows the last change.
    sleep(SETTLED).await;
    let used = ground.cpu("felix").saturating_sub(before);
    let [p50, p99] = quantiles(samples, [0.5, 0.99])?;
    measures.extend([
        ("felix_endpoint_p50_ms", p50),
        ("felix_endpoint_p99_ms", p99),
        (
            "felix_endpoint_cpu_ms",
            used.as_secs_f64() * 1e3 / more.len() as f64,
        ),
    ]);
    Ok(())
}

/// Removes remote endpoints from the sets that they are members of, one at a time.
async fn members(
    ground: &Ground,
    remote: &[Endpoint],
    changes: u32,
    size: Policies,
    measures: &mut Measures,
) -> Result<()> {
    let before = ground.cpu("felix");
    for number in 0..changes {
        let written = ground.figures(NODE).await?.rules_transactions;
        let at = number % size.remote;
        let endpoint = remote.get(at as usize).context("a remote endpoint")?;
        let is_removed = (number / size.remote).is_multiple_of(2);
        let labels = match is_removed {
            true => json!({}),
            false => remote_labels(at, size),
        };
        let (key, value) = endpoint.labeled(&labels)?;
        fabric::put(&*ground.etcd.store, key, value).await?;
        let is_written =
            |now: &EndpointFigures| now.rules_transactions > written && now.rules_in_sync;
        ground.until(NODE, "a change of a set", is_written).await?;
    }
    sleep(SETTLED).await;
    let used = ground.cpu("felix").saturating_sub(before);
    measures.insert(
        "felix_member_cpu_ms",
        used.as_secs_f64() * 1e3 / f64::from(changes),
    );
    Ok(())
}

/// Returns a policy for the endpoints with its label, which allows a selected set of remote ones.
pub(super) fn policy(number: u32) -> (String, Vec<u8>) {
    let policy = json!({"metadata": {"name": format!("p{number}")}, "spec": {
        "order": number, "selector": format!("has(p{number})"), "types": ["Ingress"],
        "ingress": [{"action": "Allow", "protocol": "TCP",
            "source": {"selector": format!("has(m{number})")},
            "destination": {"ports": [8080]}}]}});
    let key = format!("{RESOURCES_PREFIX}globalnetworkpolicies/p{number}");
    (key, policy.to_string().into_bytes())
}

/// Returns the labels of a local endpoint: so many policies apply to it.
pub(super) fn local_labels(number: u32, policies: u32) -> Value {
    let of = (0..POLICIES_OF_ENDPOINT.min(policies))
        .map(|at| (number * POLICIES_OF_ENDPOINT + at) % policies)
        .map(|policy| (format!("p{policy}"), json!("")));
    Value::Object(of.collect())
}

/// Returns the labels of a remote endpoint, so that each selector has so many members.
pub(super) fn remote_labels(number: u32, size: Policies) -> Value {
    let members = MEMBERS.min(size.remote);
    let of_endpoint = (size.policies * members).div_ceil(size.remote).max(1);
    let of = (0..of_endpoint.min(size.policies))
        .map(|at| (number * of_endpoint + at) % size.policies)
        .map(|policy| (format!("m{policy}"), json!("")));
    Value::Object(of.collect())
}
