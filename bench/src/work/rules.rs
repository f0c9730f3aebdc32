//! rules: `cambric check rules` on a host with many policies.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use calico_model::RESOURCES_PREFIX;
use netns_lab::Program;
use netns_lab::fabric::Machine;
use serde_json::{Value, json};

use super::felix::{REMOTE, local_labels, remote_labels};
use crate::fabric::{self, Endpoint, Ground};
use crate::measured::{Used, command};
use crate::stage::{Measures, Options, Policies};

/// The only node; remote endpoints are at another one that does not exist.
const NODE: usize = 0;

/// The arguments of `nft` with which `cambric check rules` lists the rules.
const LISTING: [&str; 5] = ["--json", "--numeric", "--stateless", "list", "ruleset"];

/// Fills etcd with policies and endpoints of both IP versions, and starts Felix. When all rules are in
/// the kernel, they are listed, and the listing is compared with the policies.
pub(super) fn rules(options: &Options) -> Result<Measures> {
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        let measured = measure(&mut ground, options).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, options: &Options) -> Result<Measures> {
    let size = options.policies.or(match options.quick {
        true => Policies::QUICK,
        false => Policies::RULES,
    });
    let local = ground.endpoints(NODE, size.local).await?;
    let remote = size.local..size.local + size.remote;
    let remote: Vec<Endpoint> = remote.map(|at| Endpoint::new(at, REMOTE)).collect();
    let policies = (0..size.policies).map(|number| {
        let policy = policy(number).to_string().into_bytes();
        let key = format!("{RESOURCES_PREFIX}globalnetworkpolicies/p{number}");
        (key, policy)
    });
    let mut puts: Vec<(String, Vec<u8>)> = policies.collect();
    for (number, endpoint) in (0..).zip(&local) {
        let labels = local_labels(number, size.policies);
        puts.push(dual(endpoint.labeled(&labels)?, endpoint)?);
    }
    for (number, endpoint) in (0..).zip(&remote) {
        let labels = remote_labels(number, size);
        puts.push(dual(endpoint.labeled(&labels)?, endpoint)?);
    }
    fabric::fill(&*ground.etcd.store, puts).await?;
    ground
        .fabric
        .start_felix(NODE, &fabric::program("cambric-felix")?)?;
    ground.programmed(NODE, size.local).await?;

    let node = ground.fabric.node(NODE)?;
    let directory = node.host.directory();
    let (listing, report) = (directory.join("listing.json"), directory.join("report"));
    let listed = used(node, command(&listing, Path::new("nft"), &LISTING)?).await?;
    let check = fabric::program("cambric")?;
    let store = format!("http://{}", ground.fabric.plan.store_address());
    let mut arguments = vec!["check", "rules", "--all", "--no-files"];
    arguments.extend(["--node", &node.plan.name]);
    let whole = command(&report, &check, &arguments)?.env("ETCD_ENDPOINTS", &store);
    let whole = used(node, whole).await?;
    is_equal(&report, size)?;
    let file = listing.display().to_string();
    arguments.extend(["--listing", &file]);
    let own = command(&report, &check, &arguments)?.env("ETCD_ENDPOINTS", &store);
    let own = used(node, own).await?;
    is_equal(&report, size)?;
    let octets = std::fs::metadata(&listing)?.len();
    Ok(Measures::from([
        ("rules_check_cpu_s", own.cpu.as_secs_f64()),
        ("rules_check_mb", own.peak_octets as f64 / 1e6),
        ("rules_whole_cpu_s", whole.cpu.as_secs_f64()),
        ("rules_nft_cpu_s", listed.cpu.as_secs_f64()),
        ("rules_nft_mb", listed.peak_octets as f64 / 1e6),
        ("rules_listing_mb", octets as f64 / 1e6),
    ]))
}

/// Runs a measured program on the node.
async fn used(node: &Machine, program: Program) -> Result<Used> {
    let (status, text) = node.host.output(&program).await?;
    let text = String::from_utf8_lossy(&text);
    ensure!(status.success(), "{program:?}: {status}: {text}");
    Used::parse(&text)
}

/// Checks that every endpoint has been compared, with the result equal.
fn is_equal(report: &Path, size: Policies) -> Result<()> {
    let text = std::fs::read_to_string(report)?;
    let endpoints = text.lines().filter(|line| line.starts_with("endpoint "));
    let count = endpoints.filter(|line| line.contains(": equal (")).count();
    ensure!(count == size.local as usize, "not all are equal:\n{text}");
    Ok(())
}

/// Returns a policy with rules of both directions about a selected set of remote endpoints.
fn policy(number: u32) -> Value {
    let members = json!({"selector": format!("has(m{number})")});
    let mut services = members.clone();
    services["ports"] = json!([53, "8000:8010"]);
    json!({"metadata": {"name": format!("p{number}")}, "spec": {
        "order": number, "selector": format!("has(p{number})"), "types": ["Ingress", "Egress"],
        "ingress": [
            {"action": "Deny", "source": {"nets": ["192.0.2.0/24", "2001:db8::/32"]}},
            {"action": "Allow", "protocol": "TCP", "source": members,
                "destination": {"ports": [8080]}}],
        "egress": [{"action": "Allow", "protocol": "UDP", "destination": services}]}})
}

/// Adds the IPv6 address of an endpoint.
fn dual((key, value): (String, Vec<u8>), endpoint: &Endpoint) -> Result<(String, Vec<u8>)> {
    let mut value: Value = serde_json::from_slice(&value)?;
    let networks = value["spec"]["ipNetworks"].as_array_mut();
    let address = endpoint.address().to_ipv6_mapped().segments();
    let [.., high, low] = address;
    let address = format!("fd65::{high:x}:{low:x}/128");
    networks.context("ipNetworks")?.push(address.into());
    Ok((key, value.to_string().into_bytes()))
}
