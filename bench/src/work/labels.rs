//! labels: a label of a profile changes for 50,000 endpoints: how long Felix answers nothing.

use std::time::Instant;

use anyhow::{Result, ensure};
use calico_model::RESOURCES_PREFIX;
use daemon_common::report::EndpointFigures;
use netns_lab::Host;
use netns_lab::until;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::fabric::{self, Endpoint, Ground};
use crate::limits::{SETTLED, STARTED_WITHIN};
use crate::stage::{Measures, Options};
use crate::traffic::{Probes, probes};

const NODE: usize = 0;
const REMOTE: &str = "other";
const PROFILE: &str = "kns.bench";

/// Endpoints of other nodes with the profile.
const ENDPOINTS: u32 = 50_000;
const ENDPOINTS_QUICK: u32 = 500;
/// Changes of the label: it is added and removed in turn.
const CHANGES: usize = 4;

/// Changes the label, and probes all the time.
pub(super) fn labels(options: &Options) -> Result<Measures> {
    let count = if options.quick {
        ENDPOINTS_QUICK
    } else {
        ENDPOINTS
    };
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        let measured = measure(&mut ground, count).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, count: u32) -> Result<Measures> {
    let local = ground.endpoints(NODE, 1).await?;
    let mut puts = vec![
        resource(
            "felixconfigurations/default",
            &json!({"healthEnabled": true}),
        ),
        resource(
            "globalnetworkpolicies/team",
            &json!({"selector": "has(local)", "types": ["Ingress"], "ingress": [{
                "action": "Allow", "source": {"selector": "has(team)"}}]}),
        ),
        profile(false),
    ];
    for endpoint in &local {
        puts.push(endpoint.labeled(&json!({"local": ""}))?);
    }
    for number in 1..=count {
        let endpoint = Endpoint::new(number, REMOTE);
        puts.push(endpoint.changed(|value| value["spec"]["profiles"] = json!([PROFILE]))?);
    }
    fabric::fill(&*ground.etcd.store, puts).await?;
    ground.start_felix(NODE)?;
    ground.programmed(NODE, 1).await?;
    let host = &ground.fabric.node(NODE)?.host;
    until(STARTED_WITHIN, "Felix answers probes", async || {
        let answers = probes::answers(host)?;
        anyhow::Ok(answers.then_some(()).ok_or(String::new()))
    })
    .await?;
    sleep(SETTLED).await;

    let idle = Probes::start(host);
    sleep(SETTLED).await;
    let idle = longest(idle)?;
    let (mut blocked, mut slowest) = (0_f64, 0_f64);
    let before = ground.cpu("felix");
    for change in 0..CHANGES {
        let is_added = change % 2 == 0;
        let (key, value) = profile(is_added);
        let written = ground.figures(NODE).await?.rules_transactions;
        let probes = Probes::start(host);
        fabric::put(&*ground.etcd.store, key, value).await?;
        let acknowledged = Instant::now();
        // No listener for nftables: for each one, the kernel builds the notifications of all elements.
        let is_written =
            |now: &EndpointFigures| now.rules_transactions > written && now.rules_in_sync;
        ground
            .until(NODE, "the members of the set", is_written)
            .await?;
        slowest = slowest.max(acknowledged.elapsed().as_secs_f64());
        // The work that follows the change.
        sleep(SETTLED).await;
        blocked = blocked.max(longest(probes)?);
        let wanted = if is_added { count as usize } else { 0 };
        let found = members(host)?;
        ensure!(found == wanted, "{found} members, not {wanted}");
    }
    let used = ground.cpu("felix").saturating_sub(before);
    ground.fabric.check()?;
    Ok(Measures::from([
        ("labels_blocked_ms", blocked),
        ("labels_idle_ms", idle),
        ("labels_s", slowest),
        ("labels_cpu_s", used.as_secs_f64() / CHANGES as f64),
    ]))
}

fn longest(probes: Probes) -> Result<f64> {
    let times = probes.stop()?;
    ensure!(!times.is_empty(), "no probe");
    Ok(times.into_iter().fold(0.0, f64::max))
}

/// Returns the number of addresses in the sets of selectors.
fn members(host: &Host) -> Result<usize> {
    let list = ["list", "table", "inet", "cambric-felix"];
    let listed = host.run(|| std::process::Command::new("nft").args(list).output())??;
    ensure!(listed.status.success(), "nft list");
    let text = String::from_utf8_lossy(&listed.stdout);
    let sets = text.split("set cali40s-").skip(1);
    let ends = sets.filter_map(|set| set.split_once('}').map(|(set, _)| set));
    Ok(ends.map(|set| set.matches("10.65.").count()).sum())
}

fn profile(is_labeled: bool) -> (String, Vec<u8>) {
    let labels = match is_labeled {
        true => json!({"team": "a"}),
        false => json!({}),
    };
    let allow = json!([{"action": "Allow"}]);
    resource(
        &format!("profiles/{PROFILE}"),
        &json!({"labelsToApply": labels, "ingress": allow, "egress": allow}),
    )
}

fn resource(path: &str, spec: &Value) -> (String, Vec<u8>) {
    let name = path.split('/').next_back();
    let value = json!({"metadata": {"name": name}, "spec": spec});
    (
        format!("{RESOURCES_PREFIX}{path}"),
        value.to_string().into_bytes(),
    )
}
