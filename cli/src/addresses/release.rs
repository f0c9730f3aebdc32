//! `cambric ipam release`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Result, bail};
use calico_ipam::{Finding, Inventory, Ipam, IpamError};

use super::report::{Allocation, Report};
use crate::resources::Connection;

/// The arguments of `cambric ipam release`.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Release {
    /// The address
    #[arg(
        long,
        value_name = "ADDRESS",
        required_unless_present = "from_report",
        conflicts_with = "from_report"
    )]
    ip: Option<IpAddr>,
    /// The leaked addresses of a report of `check`; with several reports, those in all of them
    #[arg(long, value_name = "FILE")]
    from_report: Vec<PathBuf>,
    /// Release the address even if an endpoint or a node uses it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Runs `cambric ipam release`.
pub(super) async fn run(args: Release) -> Result<()> {
    let store = args.connection.store().await?;
    let ipam = Ipam::new(&store);
    match args.ip {
        Some(address) => one(&ipam, address, args.force).await,
        None => reported(&ipam, &args).await,
    }
}

async fn one(ipam: &Ipam<'_>, address: IpAddr, force: bool) -> Result<()> {
    // The holder is read before the users: an address that is allocated again after this read is
    // kept.
    let holders = ipam.holders(&[address]).await?;
    let Some(holder) = holders.first() else {
        println!("IP address {address} is not assigned");
        return Ok(());
    };
    if !force {
        let inventory = ipam.inventory().await?;
        if let Some(users) = users(&inventory, address) {
            bail!("{address} is used by {users}; --force releases it anyway");
        }
        if !inventory.unreadable.is_empty() {
            let (key, why) = &inventory.unreadable[0];
            bail!(
                "it is unknown whether {address} is used, because {key} is unreadable: {why}; \
                 --force releases it anyway"
            );
        }
    }
    ipam.release(&[holder.release()]).await?;
    println!("Successfully released IP address {address}");
    Ok(())
}

/// Returns the users of an address as text; `None` without any.
fn users(inventory: &Inventory, address: IpAddr) -> Option<String> {
    let users: Vec<String> = inventory.users.get(&address)?.iter().cloned().collect();
    Some(users.join(", "))
}

async fn reported(ipam: &Ipam<'_>, args: &Release) -> Result<()> {
    let mut reports = Vec::new();
    for path in &args.from_report {
        reports.push(Report::read(path)?);
    }
    let Some((first, others)) = reports.split_first() else {
        return Ok(());
    };
    let leaked = |report: &Report, address: &IpAddr, found: &Allocation| {
        let mut same = report.allocations.get(address).into_iter().flatten();
        same.any(|same| {
            let (was, is) = (same.sequence_number, found.sequence_number);
            !same.in_use && was == is && same.handle == found.handle
        })
    };
    let inventory = ipam.inventory().await?;
    for (report, path) in reports.iter().zip(&args.from_report) {
        if report.cluster_guid != inventory.cluster_guid() {
            let path = path.display();
            bail!(
                "{path} is from a datastore with a different clusterGUID: \"{}\"",
                report.cluster_guid
            );
        }
    }
    let (mut released, mut passed) = (0, 0);
    let allocations = first.allocations.iter();
    let allocations =
        allocations.flat_map(|(at, found)| found.iter().map(move |found| (at, found)));
    for (address, found) in allocations {
        let everywhere = others.iter().all(|report| leaked(report, address, found));
        if found.in_use || !everywhere {
            continue;
        }
        let used = users(&inventory, *address).filter(|_| !args.force);
        if let Some(users) = used {
            println!("{address} is now used by {users}");
            passed += 1;
            continue;
        }
        let release = calico_ipam::Release {
            address: *address,
            handle: Some(found.handle.clone()).filter(|handle| !handle.is_empty()),
            sequence: Some(found.sequence_number),
        };
        match ipam.release(&[release]).await {
            Ok(not_taken) if not_taken.is_empty() => released += 1,
            Ok(_) | Err(IpamError::Changed(_)) => passed += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let leaked = first.leaked_handles.iter();
    let handles: BTreeSet<&String> = leaked.map(|handle| &handle.id).collect();
    let mut mended = 0;
    for finding in calico_ipam::findings(&ipam.inventory().await?) {
        if let Finding::Miscount { handle, .. } | Finding::Idle { handle, .. } = &finding
            && handles.contains(handle)
            && ipam.mend(&finding).await?
        {
            mended += 1;
        }
    }
    println!(
        "Successfully released {released} IPs; {passed} have changed since the report; {mended} \
         counts of handles corrected"
    );
    Ok(())
}
