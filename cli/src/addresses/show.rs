//! `cambric ipam show`.

use std::net::IpAddr;

use anyhow::Result;
use calico_ipam::{Block, Ipam, NODE, NamedPool, Pool, TYPE};
use calico_manifests::to_yaml;
use calico_model::{AffinityOwner, AllocationAttribute};
use calico_store::Store;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::resources::Connection;
use crate::show::clean;
use crate::table::boxed;

/// The arguments of `cambric ipam show`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Show {
    /// Show the owner of this address
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["show_blocks", "show_borrowed", "show_configuration"])]
    ip: Option<IpAddr>,
    /// Also the blocks of each pool
    #[arg(long, conflicts_with_all = ["show_borrowed", "show_configuration"])]
    show_blocks: bool,
    /// Addresses that nodes have borrowed from other nodes' blocks
    #[arg(long, conflicts_with = "show_configuration")]
    show_borrowed: bool,
    /// The settings
    #[arg(long)]
    show_configuration: bool,
    /// In which form
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    connection: Connection,
}

/// A form to print in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// A table.
    #[default]
    Ps,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The output in both forms.
struct Sheet {
    text: String,
    value: Value,
}

/// Runs `cambric ipam show`.
pub(super) async fn run(args: Show) -> Result<()> {
    let store = args.connection.store().await?;
    let sheet = match args.ip {
        Some(address) => one(&store, address).await?,
        None if args.show_borrowed => borrowed(&Ipam::new(&store).blocks().await?),
        None if args.show_configuration => configuration(&store).await?,
        None => usage(&store, args.show_blocks).await?,
    };
    match args.output {
        Form::Ps => print!("{}", sheet.text),
        Form::Json => println!("{}", serde_json::to_string_pretty(&sheet.value)?),
        Form::Yaml => print!("{}", to_yaml(&sheet.value)?),
    }
    Ok(())
}

async fn one(store: &dyn Store, address: IpAddr) -> Result<Sheet> {
    let holders = Ipam::new(store).holders(&[address]).await?;
    let Some(holder) = holders.first() else {
        return Ok(Sheet {
            text: format!("{address} is not assigned\n"),
            value: json!({"ip": address, "assigned": false}),
        });
    };
    let mut text = format!("IP {address} is in use\n");
    if let Some(handle) = &holder.handle {
        text.push_str(&format!("Handle: {}\n", clean(handle)));
    }
    text.push_str("Attributes:\n");
    for (name, value) in &holder.attributes {
        text.push_str(&format!("  {}: {}\n", clean(name), clean(value)));
    }
    let value = json!({"ip": address, "assigned": true, "handle": holder.handle,
        "attributes": holder.attributes, "sequenceNumber": holder.given.sequence});
    Ok(Sheet { text, value })
}

async fn usage(store: &dyn Store, with_blocks: bool) -> Result<Sheet> {
    let ipam = Ipam::new(store);
    let (pools, blocks) = (ipam.pools().await?, ipam.blocks().await?);
    let mut pools: Vec<(&NamedPool, Pool)> = pools
        .all
        .iter()
        .filter_map(|pool| Some((pool, Pool::of(&pool.spec)?)))
        .collect();
    pools.sort_by_key(|(_, pool)| pool.cidr);
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    let mut row = |grouping: &str, cidr: IpNet, used: usize, mut value: Value| {
        let (total, used) = (addresses(cidr), u128::try_from(used).unwrap_or_default());
        let free = total.saturating_sub(used);
        rows.push(vec![
            grouping.to_owned(),
            cidr.to_string(),
            number(total),
            share(used, total),
            share(free, total),
        ]);
        value["cidr"] = json!(cidr);
        value["total"] = big(total);
        value["inUse"] = big(used);
        value["free"] = big(free);
        value
    };
    let used = |block: &Option<Block>| block.as_ref().map_or(0, taken);
    for (named, pool) in pools {
        let its = || blocks.iter().filter(|(cidr, _)| pool.cidr.contains(cidr));
        let all = its().map(|(_, block)| used(block)).sum();
        let mut value = row("IP Pool", pool.cidr, all, json!({"pool": named.name}));
        if with_blocks {
            let blocks = its().map(|(cidr, block)| {
                let owner = block.as_ref().and_then(Block::owner);
                let owner = owner.map(|owner| owner.to_string());
                row("Block", *cidr, used(block), json!({"affinity": owner}))
            });
            value["blocks"] = blocks.collect();
        }
        values.push(value);
    }
    let headings = ["GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS FREE"];
    Ok(Sheet {
        text: boxed(&headings, &rows),
        value: values.into(),
    })
}

/// Returns the number of addresses that are not free.
fn taken(block: &Block) -> usize {
    block.value().allocations.iter().flatten().count()
}

fn borrowed(blocks: &[(IpNet, Option<Block>)]) -> Sheet {
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for (cidr, block) in blocks {
        let Some(block) = block else { continue };
        let owner = match block.owner() {
            Some(AffinityOwner::Host(host)) => Some(host),
            _ => None,
        };
        for (address, known) in block.value().taken() {
            let Some(known) = known.filter(|known| known.released_at.is_none()) else {
                continue;
            };
            let node = known.active_owner.get(NODE);
            if node.is_none() || node == owner.as_ref() {
                continue;
            }
            let (node, kind, allocated_to) = (
                node.cloned().unwrap_or_default(),
                kind(known),
                allocated_to(known),
            );
            let owned = owner.clone().unwrap_or_default();
            let cells =
                [&node, &cidr.to_string(), &owned, &kind, &allocated_to].map(|cell| clean(cell));
            let row = std::iter::once(address.to_string()).chain(cells);
            rows.push(row.collect());
            values.push(json!({"ip": address, "borrowingNode": node, "block": cidr,
                "blockOwner": owner, "type": kind, "allocatedTo": allocated_to}));
        }
    }
    let headings = [
        "IP",
        "BORROWING-NODE",
        "BLOCK",
        "BLOCK OWNER",
        "TYPE",
        "ALLOCATED-TO",
    ];
    Sheet {
        text: boxed(&headings, &rows),
        value: values.into(),
    }
}

fn kind(known: &AllocationAttribute) -> String {
    let kind = known.active_owner.get(TYPE);
    kind.cloned().unwrap_or_else(|| "workload".to_owned())
}

/// Returns the holder of an address: the pod, or the handle.
fn allocated_to(known: &AllocationAttribute) -> String {
    let attribute = |name: &str| known.active_owner.get(name);
    match (attribute("namespace"), attribute("pod")) {
        (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
        (None, Some(pod)) => pod.clone(),
        _ => known.handle_id.clone().unwrap_or_default(),
    }
}

async fn configuration(store: &dyn Store) -> Result<Sheet> {
    let config = Ipam::new(store).config().await?;
    let settings = [
        ("StrictAffinity", json!(config.strict_affinity)),
        ("AutoAllocateBlocks", json!(config.auto_allocate_blocks)),
        ("MaxBlocksPerHost", json!(config.max_blocks_per_host)),
        ("IPCooldownSeconds", json!(config.ip_cooldown_seconds)),
    ];
    let rows = settings
        .iter()
        .map(|(name, value)| vec![(*name).to_owned(), value.to_string()]);
    let rows: Vec<Vec<String>> = rows.collect();
    let value = settings.map(|(name, value)| (name.to_owned(), value));
    Ok(Sheet {
        text: boxed(&["PROPERTY", "VALUE"], &rows),
        value: Value::Object(value.into_iter().collect()),
    })
}

/// Returns the number of addresses of a range; for all of IPv6 one less, which fits into the type.
fn addresses(cidr: IpNet) -> u128 {
    let bits = u32::from(cidr.max_prefix_len() - cidr.prefix_len());
    1_u128.checked_shl(bits).unwrap_or(u128::MAX)
}

/// Returns a number as text; a large one with five digits.
fn number(number: u128) -> String {
    const EXACT_MAX: u128 = 1 << 32;
    if number <= EXACT_MAX {
        return number.to_string();
    }
    let digits = number.ilog10();
    let five = (number / 10_u128.pow(digits - 4)).to_string();
    let (first, others) = five.split_at(1);
    format!("{first}.{others}e+{digits}")
}

fn share(part: u128, whole: u128) -> String {
    // Computed in thousandths, so that it cannot overflow; a small total in single units.
    let step = (whole / 1000).max(1);
    let (part_steps, steps) = (part / step, (whole / step).max(1));
    let percent = (part_steps * 100 + steps / 2) / steps;
    format!("{} ({percent}%)", number(part))
}

/// Returns a number if JSON's readers can represent it, otherwise its text.
fn big(number: u128) -> Value {
    u64::try_from(number).map_or_else(|_| number.to_string().into(), Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_into_their_columns() {
        assert_eq!(number(65536), "65536");
        assert_eq!(
            number(addresses("fd65::/64".parse().unwrap())),
            "1.8446e+19"
        );
        assert_eq!(addresses("::/0".parse().unwrap()), u128::MAX);
        for (part, whole, text) in [
            (0, 64, "0 (0%)"),
            (5, 64, "5 (8%)"),
            (59, 64, "59 (92%)"),
            (64, 64, "64 (100%)"),
            (1, 1 << 20, "1 (0%)"),
            (u128::MAX, u128::MAX, "3.4028e+38 (100%)"),
        ] {
            assert_eq!(share(part, whole), text);
        }
    }
}
