//! `cambric check`: compares the state of this host with the datastore, evaluates its rules, or lists the
//! criteria of readiness.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use calico_store::{KeyRange, Store};
use rule_audit::evaluator::{REFLECTORS, SERVICES};
use rule_audit::{Fabric, Finding, Listing, Report, Results, audit};

use crate::resources::Connection;
use crate::show::clean;

mod files;
mod monitor;
mod packet;
mod ready;

/// The prefix of the keys of resources.
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";

/// The arguments of `nft` for a listing of all rules.
const LISTING: [&str; 5] = ["--json", "--numeric", "--stateless", "list", "ruleset"];

/// Number of reads of datastore and kernel: a change between them is no difference.
const ATTEMPTS: usize = 3;

/// The time between two reads, in which Felix applies a change.
const PAUSE: Duration = Duration::from_secs(1);

/// The arguments of `cambric check`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Compare the packet filter of this host with the policies of the datastore, over all packets
    Rules(Rules),
    /// Evaluate the rules of this host for the first packet of a connection, and print the rule that
    /// decides
    Packet(packet::Args),
    /// List the criteria by which this host is ready to forward packets, and those that are not met
    Ready(ready::Args),
}

/// The arguments of `cambric check rules`.
#[derive(Clone, Debug, clap::Args)]
struct Rules {
    /// The node, as in `spec.node` of its endpoints [default: the name of this host, in lower case]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// A listing of the rules: the output of `nft --json --numeric list ruleset` [default: run it]
    #[arg(long, value_name = "FILE")]
    listing: Option<PathBuf>,
    /// Policies apply to packets of the host to its workloads: `police_host_traffic` of Felix's file
    #[arg(long)]
    police_host_traffic: bool,
    /// Prefixes of workload interfaces, if Felix's file sets them; separate them by commas
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    interface_prefix: Vec<String>,
    /// Felix cuts connections: `cutting.enabled` of Felix's file
    #[arg(long)]
    cutting: bool,
    /// Felix's file, whose settings and control ports apply, and those of the BGP daemons' files that
    /// it names [default: /etc/cambric/felix.toml, if it exists and the listing is that of this host]
    #[arg(long, value_name = "FILE")]
    felix_file: Option<PathBuf>,
    /// No daemon of the host has a file with settings or control ports, except those of the options
    #[arg(long, conflicts_with = "felix_file")]
    no_files: bool,
    /// A user that the BGP daemons run as, by name or number, if it is not that of a package; repeat for
    /// several
    #[arg(long, value_name = "USER")]
    guard_user: Vec<String>,
    /// More sources that may reach control ports: addresses or networks
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    control_port_exceptions: Vec<String>,
    /// More TCP ports of BGP, if files of the BGP daemons have some; separate them by commas
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    control_ports: Vec<u16>,
    /// More services of the fabric, such as the endpoints of the datastore
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',')]
    control_services: Vec<SocketAddr>,
    /// A table of another program that may decide about packets, such as 'ip nat'; repeat for several
    #[arg(long, value_name = "FAMILY NAME", value_parser = known_table)]
    known_table: Vec<(String, String)>,
    /// Continue, and compare the changed part after each commit of nftables
    #[arg(short, long, conflicts_with = "listing")]
    monitor: bool,
    /// Print every endpoint, not only those with a difference
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Exit status of `check rules` if the rules are different.
const DIFFERENT: u8 = 1;

/// Exit status of `check rules` if it is not known whether the rules are equal. 2 is that of invalid
/// arguments.
const UNKNOWN: u8 = 3;

/// Runs `cambric check`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Rules(args) => Ok(rules(args).await.unwrap_or_else(|error| {
            crate::report(&error);
            ExitCode::from(UNKNOWN)
        })),
        What::Packet(args) => packet::run(args).await,
        What::Ready(args) => ready::run(args).await,
    }
}

async fn rules(args: Rules) -> Result<ExitCode> {
    let store = args.connection.store().await?;
    let node = match &args.node {
        Some(node) => node.clone(),
        None => own_name()?,
    };
    if args.monitor {
        return monitor::run(&args, &store, &node).await;
    }
    let mut report = compare(&args, &store, &node).await?;
    for _ in 1..ATTEMPTS {
        // A result that is not known would be the same again, and so would a listing from a file.
        if !report.is_different() || args.listing.is_some() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        report = compare(&args, &store, &node).await?;
    }
    print!("{}", text(&report, &node, args.all));
    Ok(status(&report))
}

/// Reads a table: the family and the name, as `nft list tables` prints them.
fn known_table(text: &str) -> Result<(String, String), String> {
    match *text.split_ascii_whitespace().collect::<Vec<_>>() {
        [family, name] if audit::is_foreign(family, name) => {
            Ok((family.to_owned(), name.to_owned()))
        }
        [_, _] => Err("a table of Cambric is always compared".to_owned()),
        _ => Err("the value is a family and a name, such as 'ip nat'".to_owned()),
    }
}

/// Returns the exit status for a report.
fn status(report: &Report) -> ExitCode {
    match (report.is_equal(), report.is_different()) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(DIFFERENT),
        (false, false) => ExitCode::from(UNKNOWN),
    }
}

async fn compare(args: &Rules, store: &impl Store, node: &str) -> Result<Report> {
    let (fabric, listing) = read(args, store, node).await?;
    Ok(audit(&fabric, &listing))
}

/// Reads the policies and the rules.
async fn read(args: &Rules, store: &impl Store, node: &str) -> Result<(Fabric, Listing)> {
    let stored = stored(store).await?;
    let listing = Listing::parse(&listing(args)?)?;
    let files = files::Files::read(args, store).await;
    let fabric = Fabric::read(&stored, node, |settings| files.apply(args, settings));
    Ok((fabric, listing))
}

/// Reads all resources, the running route reflectors, and the endpoints of services.
async fn stored(store: &impl Store) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut stored = BTreeMap::new();
    for prefix in [RESOURCES, REFLECTORS, SERVICES] {
        let listed = store.list(KeyRange::prefix(prefix)).await?;
        stored.extend(listed.items.into_iter().filter_map(|item| {
            let key = std::str::from_utf8(&item.key).ok()?;
            Some((key.to_owned(), item.value.to_vec()))
        }));
    }
    Ok(stored)
}

/// Returns the listing of the kernel's rules.
fn listing(args: &Rules) -> Result<String> {
    if let Some(file) = &args.listing {
        let read = std::fs::read_to_string(file);
        return read.with_context(|| format!("{} cannot be read", file.display()));
    }
    let output = Command::new("nft").args(LISTING).output();
    let output = output.context("nft cannot be run: install the package nftables")?;
    if !output.status.success() {
        bail!("nft: {}", clean(&String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).context("the listing is not UTF-8")
}

fn own_name() -> Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    Ok(name.context("the name of this host")?.trim().to_lowercase())
}

/// Returns the report as text.
fn text(report: &Report, node: &str, all: bool) -> String {
    let mut text = format!("Rules of node {}\n", clean(node));
    for note in &report.notes {
        text.push_str(&format!("  note: {}\n", clean(note)));
    }
    text.push_str(&findings(report, all));
    let (equal, different, unknown) = counts(report);
    text.push_str(&format!(
        "{equal} equal, {different} different, {unknown} unknown\n"
    ));
    text
}

/// Returns the differences and the unknown parts, by subject; with `all` also the equal subjects.
fn findings(report: &Report, all: bool) -> String {
    let mut text = String::new();
    for (subject, results) in &report.subjects {
        let Results {
            equal,
            different,
            unknown,
        } = results;
        let word = match (different.is_empty(), unknown.is_empty()) {
            (false, _) => "different",
            (true, false) => "unknown",
            (true, true) => "equal",
        };
        if word != "equal" || all {
            let subject = clean(&subject.to_string());
            text.push_str(&format!("{subject}: {word} ({equal} comparisons equal)\n"));
        }
        different
            .iter()
            .for_each(|one| add(&mut text, "different", one));
        unknown
            .iter()
            .for_each(|one| add(&mut text, "unknown", one));
    }
    text
}

/// Returns the number of equal, different and unknown subjects.
fn counts(report: &Report) -> (usize, usize, usize) {
    let count = |test: &dyn Fn(&Results) -> bool| {
        report
            .subjects
            .values()
            .filter(|results| test(results))
            .count()
    };
    let different = count(&|results| !results.different.is_empty());
    let unknown = count(&|results| results.different.is_empty() && !results.unknown.is_empty());
    let equal = report.subjects.len() - different - unknown;
    (equal, different, unknown)
}

fn add(text: &mut String, word: &str, finding: &Finding) {
    let Finding {
        chain,
        packet,
        wanted,
        found,
    } = finding;
    let packet = packet.as_deref().unwrap_or("-");
    text.push_str(&format!(
        "  {word}: chain {}: {}\n",
        clean(chain),
        clean(packet)
    ));
    text.push_str(&format!("    datastore: {}\n", clean(wanted)));
    if !found.is_empty() {
        text.push_str(&format!("    kernel:    {}\n", clean(found)));
    }
}
