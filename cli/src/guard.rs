//! `cambric guard`: loads the host guard of the BGP daemons, with the privileges that a daemon does
//! not have; reports the loaded rules; removes them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use bgp_config::{BgpFile, Source};
use host_guard::{Cover, Guard, Holder, Loaded, TABLE, record, user_id};
use serde::de::IgnoredAny;

/// The arguments of `cambric guard`. Without a file: those of the daemons that are configured on
/// this host.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration of cambric-bgp-client
    #[arg(long, value_name = "FILE")]
    bgp_client: Option<PathBuf>,
    /// Configuration of cambric-route-reflector
    #[arg(long, value_name = "FILE")]
    route_reflector: Option<PathBuf>,
    /// The user that the daemons run as, by name or number; repeat for several
    #[arg(long, value_name = "USER")]
    user: Vec<String>,
    /// Change nothing: print what is loaded, and fail if something is missing
    #[arg(long, conflicts_with = "remove")]
    check: bool,
    /// Remove the entries of the daemons whose files are given; without a file, the whole table
    #[arg(long)]
    remove: bool,
}

/// A daemon's part of the guard, from its file.
struct Part {
    holder: Holder,
    enabled: bool,
    cover: Cover,
    record: PathBuf,
}

/// Runs `cambric guard`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.remove {
        return remove(args);
    }
    let files = args.files_or_defaults();
    if files.is_empty() {
        bail!(
            "no BGP daemon is configured in /etc/cambric: name a file, see `cambric guard --help`"
        );
    }
    let parts = files.iter().map(|(holder, file)| part(*holder, file, args));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    if args.check {
        return check(&parts);
    }
    for part in &parts {
        load(part)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn files(&self) -> Vec<(Holder, PathBuf)> {
        let both = [
            (Holder::BgpClient, &self.bgp_client),
            (Holder::RouteReflector, &self.route_reflector),
        ];
        let given = both.into_iter();
        given
            .filter_map(|(holder, file)| Some((holder, file.clone()?)))
            .collect()
    }

    fn files_or_defaults(&self) -> Vec<(Holder, PathBuf)> {
        let given = self.files();
        if !given.is_empty() {
            return given;
        }
        let usual = Holder::ALL.map(|holder| {
            let file = format!("/etc/cambric/{holder}.toml");
            (holder, PathBuf::from(file))
        });
        usual
            .into_iter()
            .filter(|(_, file)| file.exists())
            .collect()
    }
}

/// The keys of a file that concern all BGP daemons.
type Keys = BgpFile<IgnoredAny, IgnoredAny, IgnoredAny>;

/// Reads a file. The daemon reports other mistakes of it.
fn keys(file: &Path) -> Result<Keys> {
    let read = Source::read(file).and_then(|source| {
        let source = source.showing(bgp_config::is_shown);
        source.parse::<Keys>()
    });
    read.map_err(|report| anyhow!("{report}"))
}

/// Returns the ports and users of a file; `users` has further ones.
fn cover(file: &Path, keys: &Keys, users: &[String]) -> Result<Cover> {
    let listed = keys.guard.users.iter().map(|user| &user.get_ref().0);
    let users = users.iter().chain(listed).map(|user| user_id(user));
    let mut users = users
        .collect::<Result<BTreeSet<u32>, _>>()
        .with_context(|| format!("users of {}", file.display()))?;
    users.insert(0);
    Ok(Cover {
        ports: keys.ports(),
        users,
        ..Cover::default()
    })
}

/// Returns whether a file enables the guard, its ports and users, and all neighbors with a port of their
/// own.
pub(crate) fn configured(
    file: &Path,
    users: &[String],
) -> Result<(bool, Cover, BTreeSet<SocketAddr>)> {
    let keys = keys(file)?;
    let mut cover = cover(file, &keys, users)?;
    // Neighbors beyond the limit of the table are not guarded.
    let _ = cover.dial(keys.dialed());
    Ok((keys.guard.enabled, cover, keys.dialed().collect()))
}

/// Returns a file's part of the guard.
fn part(holder: Holder, file: &Path, args: &Args) -> Result<Part> {
    let keys = keys(file)?;
    let mut cover = cover(file, &keys, &args.user)?;
    let more = cover.dial(keys.dialed());
    if more > 0 {
        eprintln!("{holder}: {more} neighbors with a port of their own are too many to guard");
    }
    let control = keys.control.unwrap_or_else(|| usual_control(holder));
    Ok(Part {
        holder,
        enabled: keys.guard.enabled,
        cover,
        record: record::path(&control),
    })
}

fn usual_control(holder: Holder) -> PathBuf {
    daemon_common::paths::control(&holder.to_string())
}

fn load(part: &Part) -> Result<()> {
    let Part { holder, cover, .. } = part;
    // The record of an earlier load is outdated from here on, also if this load fails.
    record::remove(&part.record).with_context(|| format!("removing {}", part.record.display()))?;
    let mut guard = Guard::open()?;
    if !part.enabled {
        guard.withdraw(*holder)?;
        println!("{holder}: host guard off, by its configuration");
        return Ok(());
    }
    guard.load(*holder, cover)?;
    println!("{holder}: host guard in effect: {cover}");
    record::write(&part.record, cover).with_context(|| {
        let file = part.record.display();
        format!("the host guard is in effect, but {holder} cannot report it: writing {file}")
    })
}

fn check(parts: &[Part]) -> Result<ExitCode> {
    let found = Guard::open()?.read()?;
    if let Some(Loaded { dropped, .. }) = &found {
        println!("table inet {TABLE}: {dropped} segments dropped");
    }
    let mut code = ExitCode::SUCCESS;
    for part in parts {
        let holder = part.holder;
        let missing = match &found {
            _ if !part.enabled => {
                println!("{holder}: host guard off, by its configuration");
                continue;
            }
            Some(loaded) => loaded.lacks(holder, &part.cover),
            None => Some(format!("there is no table inet {TABLE}")),
        };
        let held = found
            .iter()
            .filter_map(|loaded| loaded.entries.get(&holder));
        match missing {
            None => held.for_each(|cover| println!("{holder}: host guard in effect: {cover}")),
            Some(why) => {
                println!("{holder}: host guard not in effect: {why}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn remove(args: &Args) -> Result<ExitCode> {
    let mut guard = Guard::open()?;
    let given = args.files();
    let mut removed = false;
    for (holder, file) in &given {
        removed |= guard.withdraw(*holder)?;
        forget(*holder, file, args)?;
    }
    if given.is_empty() {
        removed = guard.remove()?;
        for (holder, file) in args.files_or_defaults() {
            forget(holder, &file, args)?;
        }
    }
    println!("{}", if removed { "removed" } else { "not loaded" });
    Ok(ExitCode::SUCCESS)
}

/// Removes the record of a daemon, beside the control socket of its file.
fn forget(holder: Holder, file: &Path, args: &Args) -> Result<()> {
    let record = match part(holder, file, args) {
        Ok(part) => part.record,
        Err(_) => record::path(&usual_control(holder)),
    };
    record::remove(&record).with_context(|| format!("removing {}", record.display()))
}
