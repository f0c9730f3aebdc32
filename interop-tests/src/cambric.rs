//! Cambric's own daemons: their configuration, and their tables over the control socket.

use std::{collections::BTreeSet, fmt::Write as _, net::SocketAddr, path::PathBuf};

use daemon_common::{
    Command, Reply,
    client::{CallError, call},
    report,
};
use ipnet::IpNet;
use netns_lab::{Error, Process, Program};

use crate::setup::BFD_SECRET;
use crate::{
    Kind, Route, Setup, Site, bfd, programs,
    setup::{Families, Neighbor},
};

fn daemon(kind: Kind) -> &'static str {
    match kind {
        Kind::Reflector => "route-reflector",
        _ => "bgp-client",
    }
}

/// Returns the name of its configuration file.
pub(crate) fn file(kind: Kind) -> String {
    format!("{}.toml", daemon(kind))
}

/// Returns the path of the daemon's snapshot of the datastore.
pub(crate) fn snapshot(kind: Kind, site: &Site) -> PathBuf {
    site.host
        .directory()
        .join(format!("{}.snapshot", daemon(kind)))
}

/// Returns the line of the configuration file that has a daemon start from its snapshot, unless the
/// snapshot is older than this.
pub(crate) fn keeping(kind: Kind, site: &Site, max_age_s: u32) -> String {
    let file = snapshot(kind, site);
    let file = file.display();
    format!("datastore_snapshot = {{ file = \"{file}\", max_age_s = {max_age_s} }}\n")
}

fn socket(kind: Kind, site: &Site) -> PathBuf {
    site.host.directory().join(format!("{}.sock", daemon(kind)))
}

pub(crate) async fn start(kind: Kind, site: &Site, setup: &Setup) -> Result<Process, Error> {
    site.save(&file(kind), &config(kind, site, setup));
    for own in &setup.own {
        announce(site, own.net).await?;
    }
    run(kind, site)
}

/// Starts a daemon whose whole configuration is in the datastore, as the node with its host's name;
/// `keys` are further lines of its file.
pub(crate) fn start_stored(
    kind: Kind,
    site: &Site,
    stores: &[SocketAddr],
    keys: &str,
) -> Result<Process, Error> {
    let mut text = format!(
        "{keys}hostname = \"h{}\"\ncontrol = \"{}\"\nlog = \"debug,h2=info,tower=info,hyper=info\"\n\n\
         [secrets]\ndir = \"{}\"\n",
        site.number,
        socket(kind, site).display(),
        site.host.directory().display(),
    );
    if kind == Kind::Client {
        text.push_str(IMPORT);
    }
    let stores = stores.iter().map(|store| format!("http://{store}"));
    let stores: Vec<String> = stores.collect();
    let _ = write!(text, "\n[datastore]\nendpoints = {stores:?}\n");
    site.save(&file(kind), &text);
    run(kind, site)
}

/// Starts a daemon with the configuration file that is already written.
pub(crate) fn run(kind: Kind, site: &Site) -> Result<Process, Error> {
    let daemon = daemon(kind);
    let program = Program::new(programs::own(&format!("cambric-{daemon}")))
        .arg("--config")
        .arg(site.host.directory().join(file(kind)));
    site.host.spawn(daemon, &program)
}

/// The routes that tests originate have the protocol `static`, and those of Felix 80.
const IMPORT: &str =
    "\n[kernel]\n[[kernel.import]]\nprotocols = [4, 80]\ninterfaces = [\"cali*\"]\n";

fn config(kind: Kind, site: &Site, setup: &Setup) -> String {
    let (v4, v6) = (Site::v4(site.number), Site::v6(site.number));
    let mut text = format!(
        "asn = {}\nrouter_id = \"{v4}\"\nlisten = [\"{v4}:179\", \"[{v6}]:179\"]\n\
         control = \"{}\"\nlog = \"debug\"\nnext_hop_ipv4 = \"{v4}\"\nnext_hop_ipv6 = \"{v6}\"\n",
        setup.asn,
        socket(kind, site).display(),
    );
    if let (Kind::Reflector, Some(cluster)) = (kind, setup.cluster_id) {
        let _ = writeln!(text, "cluster_id = \"{cluster}\"");
    }
    if let Some(multipath) = setup.multipath {
        let _ = writeln!(text, "multipath = {multipath}");
    }
    if setup.bfd.is_some() {
        let _ = writeln!(text, "bfd_socket = \"{}\"", bfd::socket(site).display());
    }
    let mut families: Vec<_> = ["ipv4-unicast", "ipv6-unicast"].into();
    for name in setup.neighbors.iter().flat_map(Neighbor::family_names) {
        if !families.contains(&name) {
            families.push(name);
        }
    }
    let _ = writeln!(text, "families = {families:?}");
    if kind == Kind::Client {
        text.push_str(&kernel(setup));
    }
    for neighbor in &setup.neighbors {
        let _ = write!(text, "{}", section(setup, neighbor));
    }
    for range in &setup.ranges {
        let _ = write!(
            text,
            "\n[[neighbor_range]]\nprefix = \"{}\"\nlimit = {}\nasn = \"internal\"\n\
             route_reflector_client = true\n",
            range.prefix, range.limit
        );
        if let Some(seconds) = setup.restart_time_s {
            let _ = writeln!(text, "graceful_restart = {seconds}");
        }
        if let Some(seconds) = setup.long_lived_s {
            text.push_str(&long_lived(&families, seconds));
        }
        if let Some(bfd) = setup.bfd {
            let _ = writeln!(text, "bfd = {bfd}");
        }
        if let Some(password) = range.password {
            let _ = writeln!(text, "password = \"{password}\"");
        }
    }
    text
}

/// Returns the section of the kernel's routes.
fn kernel(setup: &Setup) -> String {
    let mut keys = String::from("[kernel]\n");
    if setup.link_bandwidth.is_some() {
        keys.push_str("multipath_weights = \"link-bandwidth\"\n");
    }
    if setup.nexthop_objects {
        keys.push_str("nexthop_objects = \"auto\"\n");
    }
    IMPORT.replace("[kernel]\n", &keys)
}

/// Returns the line with the long-lived stale time of these families.
fn long_lived(families: &[&str], seconds: u32) -> String {
    let each = families
        .iter()
        .map(|family| format!("{family} = {seconds}"));
    let each: Vec<String> = each.collect();
    format!("long_lived_stale_time = {{ {} }}\n", each.join(", "))
}

fn section(setup: &Setup, neighbor: &Neighbor) -> String {
    let Neighbor {
        address,
        asn,
        client,
        ..
    } = neighbor;
    let name = address.to_string().replace([':', '.'], "-");
    let mut text =
        format!("\n[[neighbor]]\nname = \"n{name}\"\naddress = \"{address}\"\nasn = {asn}\n");
    if *asn != setup.asn {
        text.push_str("import = \"accept\"\nexport = \"accept\"\n");
    }
    if let Some(seconds) = setup.restart_time_s {
        let _ = writeln!(text, "graceful_restart = {seconds}");
    }
    if let Some(seconds) = setup.long_lived_s {
        text.push_str(&long_lived(&neighbor.family_names(), seconds));
    }
    if !setup.graceful_restart {
        text.push_str("graceful_restart = false\n");
    }
    if let Some(bfd) = setup.bfd {
        let _ = writeln!(text, "bfd = {bfd}");
    }
    if let Some(megabits) = setup.link_bandwidth {
        let _ = writeln!(text, "link_bandwidth = {megabits}");
    }
    if let Some(auth) = setup.bfd_auth {
        let _ = writeln!(text, "bfd_auth = \"{auth}\"\nbfd_keys = \"7 {BFD_SECRET}\"");
    }
    if *client {
        text.push_str("route_reflector_client = true\n");
    }
    if let Some(cluster) = neighbor.cluster_id {
        let _ = writeln!(text, "cluster_id = \"{cluster}\"");
    }
    if neighbor.families != Families::Both {
        let _ = writeln!(text, "families = {:?}", neighbor.family_names());
    }
    if let Some(password) = neighbor.password {
        let _ = writeln!(text, "password = \"{password}\"");
    }
    if neighbor.passive {
        text.push_str("passive = true\n");
    }
    if neighbor.ttl_security {
        text.push_str("ttl_security = true\n");
    }
    if neighbor.as_sets {
        text.push_str("allow_as_sets = true\n");
    }
    if neighbor.add_path {
        text.push_str("add_path = \"both\"\n");
    }
    text
}

pub(crate) async fn announce(site: &Site, net: IpNet) -> Result<(), Error> {
    site.host.links()?.add_route(net, None, "cali0").await
}

pub(crate) async fn withdraw(site: &Site, net: IpNet) -> Result<(), Error> {
    site.host.links()?.delete_route(net, None, "cali0").await
}

/// Returns its best routes, or all its paths, without the routes that it originates.
pub(crate) async fn learned_paths(
    kind: Kind,
    site: &Site,
    all: bool,
) -> Result<Vec<(IpNet, Route)>, String> {
    let mut learned_paths = Vec::new();
    let mut after = None;
    loop {
        let ask = Command::Routes {
            prefix: None,
            why: all,
            family: None,
            after,
        };
        let page = match call(socket(kind, site), &ask).await {
            Ok(Reply::Routes(page)) => page,
            Ok(other) => return Err(format!("not routes: {other:?}")),
            Err(error) => return Err(error.to_string()),
        };
        for entry in &page.routes {
            let Ok(net) = entry.prefix.parse() else {
                continue;
            };
            let paths = entry.paths.iter().filter(|path| path.neighbor != "local");
            let paths = paths.filter(|path| all || path.best);
            learned_paths.extend(paths.map(|path| (net, route(path))));
        }
        after = page.next;
        if after.is_none() {
            return Ok(learned_paths);
        }
    }
}

pub(crate) async fn neighbors(kind: Kind, site: &Site) -> Result<report::Neighbors, String> {
    match call(socket(kind, site), &Command::Neighbors {}).await {
        Ok(Reply::Neighbors(neighbors)) => Ok(neighbors),
        other => Err(format!("not neighbors: {other:?}")),
    }
}

pub(crate) async fn status(kind: Kind, site: &Site) -> Result<report::Status, String> {
    match call(socket(kind, site), &Command::Status {}).await {
        Ok(Reply::Status(status)) => Ok(status),
        other => Err(format!("not a status: {other:?}")),
    }
}

pub(crate) async fn malformed(kind: Kind, site: &Site) -> report::Malformed {
    match call(socket(kind, site), &Command::Malformed {}).await {
        Ok(Reply::Malformed(malformed)) => malformed,
        other => panic!("not messages: {other:?}"),
    }
}

/// Returns the paths to a prefix, or the first ones of a family. A daemon that has not read the
/// datastore yet has none.
pub(crate) async fn paths(
    kind: Kind,
    site: &Site,
    prefix: Option<IpNet>,
    family: Option<String>,
) -> Vec<report::Path> {
    let ask = Command::Routes {
        prefix,
        why: true,
        family,
        after: None,
    };
    match call(socket(kind, site), &ask).await {
        Ok(Reply::Routes(page)) => page
            .routes
            .into_iter()
            .flat_map(|route| route.paths)
            .collect(),
        Err(CallError::Daemon { message, .. }) if message.starts_with("waiting for") => Vec::new(),
        other => panic!("not routes: {other:?}"),
    }
}

fn route(path: &report::Path) -> Route {
    let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
    Route {
        // An IPv6 next hop may be followed by a link-local one.
        next_hop: path
            .next_hop
            .as_ref()
            .and_then(|text| text.split_whitespace().next()?.parse().ok()),
        as_path: path.as_path.clone(),
        origin: path.origin.clone(),
        local_pref: path.local_pref,
        med: path.med,
        communities: set(&path.communities),
        large_communities: set(&path.large_communities),
        originator_id: path
            .originator_id
            .as_ref()
            .and_then(|text| text.parse().ok()),
        cluster_list: path
            .cluster_list
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect(),
    }
}

pub(crate) async fn refresh(kind: Kind, site: &Site, neighbor: &str) {
    let ask = Command::Refresh {
        neighbor: neighbor.to_owned(),
        family: None,
    };
    match call(socket(kind, site), &ask).await {
        Ok(Reply::Refresh(_)) => {}
        other => panic!("not asked: {other:?}"),
    }
}
