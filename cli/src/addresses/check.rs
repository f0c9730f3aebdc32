//! `cambric ipam check`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Result;
use calico_ipam::{Finding, Holder, Inventory, Ipam, Misfit, Pool, Use, misfits};

use super::report::{Report, holders};
use crate::resources::Connection;
use crate::show::clean;

/// Number of nodes in the list of those with the most addresses.
const TOP_NODES: usize = 20;

/// The arguments of `cambric ipam check`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Check {
    /// Print all addresses, not only their number
    #[arg(long)]
    show_all_ips: bool,
    /// Print the addresses that are leaked, or used without an allocation
    #[arg(long)]
    show_problem_ips: bool,
    /// Write a JSON report to this file, for `release --from-report`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

/// Runs `cambric ipam check`.
pub(super) async fn run(args: Check) -> Result<()> {
    let store = args.connection.store().await?;
    println!("Checking IPAM for inconsistencies...\n");
    let inventory = Ipam::new(&store).inventory().await?;
    let checked = Checked::of(&inventory);
    print!("{}", checked.text(&args));
    if let Some(path) = &args.output {
        Report::of(&inventory, &checked.problems()).write(path)?;
        println!("Report written to {}.", path.display());
    }
    Ok(())
}

/// The result of a check.
struct Checked<'a> {
    inventory: &'a Inventory,
    holders: Vec<(Holder, Use)>,
    pools: Vec<Pool>,
    /// Used addresses in no active pool.
    outside: Vec<IpAddr>,
    /// Used addresses in a pool that are not allocated.
    not_given: Vec<IpAddr>,
    /// Addresses with several users.
    shared: Vec<IpAddr>,
    findings: BTreeSet<Finding>,
    /// Endpoints that do not fit their node.
    misfits: Vec<Misfit>,
}

impl<'a> Checked<'a> {
    fn of(inventory: &'a Inventory) -> Self {
        let holders = holders(inventory);
        let pools = inventory.pools.enabled();
        let given: BTreeSet<IpAddr> = holders.iter().map(|(at, _)| at.given.address).collect();
        let is_in_pool = |address: &IpAddr| pools.iter().any(|pool| pool.cidr.contains(address));
        let not_given = inventory.users.keys().filter(|at| !given.contains(at));
        let (not_given, outside) = not_given.copied().partition(is_in_pool);
        let shared = inventory.users.iter().filter(|(_, users)| users.len() > 1);
        let shared = shared.map(|(address, _)| *address).collect();
        Self {
            inventory,
            pools,
            outside,
            not_given,
            shared,
            findings: calico_ipam::findings(inventory),
            misfits: misfits(inventory),
            holders,
        }
    }

    fn leaks(&self) -> impl Iterator<Item = &Holder> {
        let leaked = self
            .holders
            .iter()
            .filter(|(_, used)| matches!(used, Use::NoEndpoint | Use::NodeGone));
        leaked.map(|(holder, _)| holder)
    }

    /// Returns the findings, except for leaked objects that the collector removes.
    fn faults(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|found| {
            !matches!(
                found,
                Finding::Leak { .. } | Finding::Surplus { .. } | Finding::Cooled { .. }
            )
        })
    }

    /// Returns all problems, in words.
    fn problems(&self) -> Vec<String> {
        let leaks = self.findings.iter();
        let leaks = leaks.filter(|found| matches!(found, Finding::Leak { .. }));
        let mut problems: Vec<String> =
            leaks.chain(self.faults()).map(Finding::to_string).collect();
        let users = |address: &IpAddr| {
            let users = self.inventory.users.get(address);
            users.map_or_else(String::new, |users| {
                users.iter().cloned().collect::<Vec<_>>().join(", ")
            })
        };
        for (addresses, what) in [
            (&self.outside, "is in no active pool"),
            (&self.not_given, "was not allocated"),
            (&self.shared, "must not be used by several"),
        ] {
            let listed = addresses
                .iter()
                .map(|address| format!("{address}, used by {}, {what}", users(address)));
            problems.extend(listed);
        }
        problems.extend(self.misfits.iter().map(Misfit::to_string));
        for (key, why) in &self.inventory.unreadable {
            problems.push(format!("{key}: {why}"));
        }
        problems
    }

    fn text(&self, args: &Check) -> String {
        let mut text = self.loaded(args);
        text.push_str(&self.top_nodes());
        let leaks = self.leaks().count();
        text.push_str("Scanning for IPs that are allocated but not actually in use...\n");
        if args.show_problem_ips || args.show_all_ips {
            for holder in self.leaks() {
                let handle = holder.handle.as_deref().unwrap_or("-");
                let address = holder.given.address;
                text.push_str(&format!("  {address} leaked; handle {}\n", clean(handle)));
            }
        }
        text.push_str(&format!(
            "Found {leaks} IPs that are allocated in IPAM but not actually in use.\n\n"
        ));
        text.push_str(
            "Scanning for IPs that are in use by a workload or node but not allocated in IPAM...\n",
        );
        if args.show_problem_ips || args.show_all_ips {
            for address in self.outside.iter().chain(&self.not_given) {
                text.push_str(&format!("  {address} in use, and not allocated\n"));
            }
        }
        let (outside, not_given) = (self.outside.len(), self.not_given.len());
        text.push_str(&format!(
            "Found {outside} in-use IPs that are not in active IP pools.\n\
             Found {not_given} in-use IPs that are in active IP pools but have no corresponding \
             IPAM allocation.\n\n"
        ));
        let shared = self.shared.len();
        text.push_str(&format!(
            "Found {shared} IPs that several workloads or nodes use.\n\n"
        ));
        text.push_str("Scanning for inconsistent handles, affinities and blocks...\n");
        let faults: Vec<&Finding> = self.faults().collect();
        for fault in &faults {
            text.push_str(&format!("  {}\n", clean(&fault.to_string())));
        }
        for (key, why) in &self.inventory.unreadable {
            text.push_str(&format!("  {}: {}\n", clean(key), clean(why)));
        }
        let faults = faults.len() + self.inventory.unreadable.len();
        text.push_str(&format!("Found {faults} inconsistencies.\n\n"));
        text.push_str("Scanning for endpoints that do not fit their node...\n");
        for misfit in &self.misfits {
            text.push_str(&format!("  {}\n", clean(&misfit.to_string())));
        }
        let misfits = self.misfits.len();
        text.push_str(&format!(
            "Found {misfits} mismatches of endpoints and nodes.\n\n"
        ));
        let problems = self.problems().len();
        text.push_str(&format!("Check complete; found {problems} problems.\n"));
        text
    }

    /// Returns the number of objects that were read, in words.
    fn loaded(&self, args: &Check) -> String {
        let inventory = self.inventory;
        let mut text = format!("Found {} IPAM blocks.\n", inventory.blocks.len());
        for (cidr, block) in &inventory.blocks {
            let owner = block.owner().map(|owner| owner.to_string());
            let owner = owner.map_or_else(|| "none".to_owned(), |owner| clean(&owner));
            text.push_str(&format!(" IPAM block {cidr} affinity={owner}\n"));
        }
        let all = self.holders.len();
        text.push_str(&format!("IPAM blocks record {all} allocations.\n\n"));
        for pool in &self.pools {
            text.push_str(&format!("  {}\n", pool.cidr));
        }
        text.push_str(&format!("Found {} active IP pools.\n\n", self.pools.len()));
        let is_node =
            |users: &&BTreeSet<String>| users.iter().any(|user| user.starts_with("Node("));
        let tunnels = inventory.users.values().filter(is_node).count();
        let workloads = inventory.users.len() - tunnels;
        text.push_str(&format!("Found {tunnels} node tunnel IPs.\n"));
        text.push_str(&format!("Found {workloads} workload IPs.\n"));
        if args.show_all_ips {
            for (address, users) in &inventory.users {
                let users: Vec<String> = users.iter().map(|user| clean(user)).collect();
                text.push_str(&format!("  {address} belongs to {}\n", users.join(", ")));
            }
        }
        let used = inventory.users.len();
        text.push_str(&format!("Workloads and nodes are using {used} IPs.\n\n"));
        let kept = self.holders.iter();
        let kept: Vec<&Holder> = kept
            .filter(|(_, used)| *used == Use::Kept)
            .map(|(holder, _)| holder)
            .collect();
        if args.show_all_ips {
            for holder in &kept {
                let handle = clean(holder.handle.as_deref().unwrap_or("-"));
                let address = holder.given.address;
                text.push_str(&format!("  {address} is kept for {handle}\n"));
            }
        }
        let kept = kept.len();
        text.push_str(&format!(
            "Found {kept} IPs that are kept for other things.\n\n"
        ));
        text
    }

    fn top_nodes(&self) -> String {
        let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
        for (holder, _) in &self.holders {
            if let Some(node) = holder.attributes.get(calico_ipam::NODE) {
                *by_node.entry(node).or_default() += 1;
            }
        }
        let mut by_node: Vec<(&str, usize)> = by_node.into_iter().collect();
        by_node.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut text = format!("Nodes with the most allocations (up to {TOP_NODES}):\n");
        for (node, count) in by_node.iter().take(TOP_NODES) {
            text.push_str(&format!("  {} has {count} allocations\n", clean(node)));
        }
        text.push('\n');
        text
    }
}
