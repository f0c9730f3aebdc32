//! OpenBGPD: its configuration, and its tables read as JSON.
//!
//! It changes its root to `/run/openbgpd`, which is on a tmpfs in the lab; its control socket is in
//! the host's directory.

use std::{fmt::Write as _, fs, net::IpAddr, os::unix::fs::PermissionsExt};

use ipnet::IpNet;
use netns_lab::{Error, Process, Program};
use serde_json::Value;

use crate::{
    Route, Setup, Site, programs,
    setup::{Neighbor, Own},
};

/// Directory of the daemon in Debian: FRR has another program of the same name elsewhere.
const DAEMONS: &str = "/usr/sbin";

/// The home of its user, to which the daemon changes its root.
const CHROOT: &str = "/run/openbgpd";

/// The log line after which its decision engine has applied the configuration. Sessions may be up
/// earlier: a route received before that is advertised as by a speaker that is not a reflector.
pub(crate) const READY: &str = "RDE soft reconfiguration done";

pub(crate) fn installed() -> bool {
    programs::foreign_in(DAEMONS, "bgpd").is_some() && programs::foreign("bgpctl").is_some()
}

pub(crate) fn start(site: &Site, setup: &Setup) -> Result<Process, Error> {
    let path = site.save("bgpd.conf", &config(site, setup));
    // The daemon refuses a file that other users may read.
    let owner_only = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&path, owner_only).expect("a lab's files can be changed");
    let chroot = site.host.run(|| fs::create_dir_all(CHROOT))?;
    chroot.expect("the lab's /run can be written");
    let program = programs::foreign_in(DAEMONS, "bgpd").expect("OpenBGPD is installed");
    let program = Program::new(program).args(["-d", "-v", "-f"]).arg(path);
    site.host.spawn("openbgpd", &program)
}

/// The configuration's names of families, and OpenBGPD's.
const FAMILIES: &[(&str, &str)] = &[
    ("ipv4-unicast", "IPv4 unicast"),
    ("ipv6-unicast", "IPv6 unicast"),
    ("ipv4-vpn", "IPv4 vpn"),
    ("ipv6-vpn", "IPv6 vpn"),
];

fn config(site: &Site, setup: &Setup) -> String {
    let (v4, v6) = (Site::v4(site.number), Site::v6(site.number));
    // Without a routing daemon on the host, next hops resolve by the default route only.
    let mut text = format!(
        "AS {}\nrouter-id {v4}\nfib-update no\nsocket \"{}\"\nlisten on {v4}\nlisten on {v6}\n\
         nexthop qualify via default\nconnect-retry 1\nallow from any\nallow to any\n",
        setup.asn,
        socket(site)
    );
    for own in &setup.own {
        let _ = match attributes(own, "med").as_str() {
            "" => writeln!(text, "network {}", own.net),
            attributes => writeln!(text, "network {} set {{ {attributes} }}", own.net),
        };
    }
    for neighbor in &setup.neighbors {
        text.push_str(&peer(site, setup, neighbor));
    }
    text
}

fn socket(site: &Site) -> String {
    let path = site.host.directory().join("openbgpd.sock");
    path.display().to_string()
}

fn peer(site: &Site, setup: &Setup, neighbor: &Neighbor) -> String {
    let mut text = format!(
        "neighbor {} {{\n remote-as {}\n",
        neighbor.address, neighbor.asn
    );
    if neighbor.client {
        let cluster = setup.cluster_id.unwrap_or_else(|| Site::v4(site.number));
        let _ = writeln!(text, " route-reflector {cluster}");
    }
    if let Some(password) = neighbor.password {
        let _ = writeln!(text, " tcp md5sig password {password}");
    }
    if neighbor.ttl_security {
        text.push_str(" ttl-security yes\n");
    }
    // With GTSM only Cambric dials: after a connection collision that it lost, OpenBGPD would wait 30 s.
    if neighbor.passive || neighbor.ttl_security {
        text.push_str(" passive\n");
    }
    if neighbor.add_path {
        text.push_str(" announce add-path recv yes\n announce add-path send all\n");
    }
    // Once one family is configured, OpenBGPD offers only the configured ones.
    let carried = neighbor.family_names();
    for v4 in [true, false] {
        let name = if v4 { "IPv4" } else { "IPv6" };
        let of_ip = FAMILIES.iter().filter(|(_, words)| words.starts_with(name));
        let mut offered = of_ip
            .filter(|(family, _)| carried.contains(family))
            .peekable();
        if offered.peek().is_none() {
            let _ = writeln!(text, " announce {name} none");
        }
        for (_, words) in offered {
            let _ = writeln!(text, " announce {words}");
        }
    }
    text + "}\n"
}

/// Returns the attributes of a route for the configuration and for `network add`, which differ only
/// in the name of MED.
fn attributes(own: &Own, med_word: &str) -> String {
    let mut text = String::new();
    if let Some(med) = own.med {
        let _ = write!(text, "{med_word} {med} ");
    }
    for (asn, value) in &own.communities {
        let _ = write!(text, "community {asn}:{value} ");
    }
    for (asn, one, two) in &own.large_communities {
        let _ = write!(text, "large-community {asn}:{one}:{two} ");
    }
    text
}

pub(crate) async fn ask(site: &Site, words: &str) -> Result<String, Error> {
    let program = programs::foreign("bgpctl").expect("OpenBGPD is installed");
    let program = Program::new(program)
        .arg("-s")
        .arg(socket(site))
        .args(words.split_whitespace());
    let (_, text) = site.host.output(&program).await?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub(crate) async fn announce(site: &Site, own: &Own) -> Result<(), Error> {
    let words = format!("network add {} {}", own.net, attributes(own, "metric"));
    ask(site, &words).await.map(drop)
}

pub(crate) async fn withdraw(site: &Site, net: IpNet) -> Result<(), Error> {
    ask(site, &format!("network delete {net}")).await.map(drop)
}

/// Returns its best routes, or all its paths, without the routes that it originates.
pub(crate) async fn learned_paths(site: &Site, all: bool) -> Result<Vec<(IpNet, Route)>, String> {
    let text = ask(site, "-j show rib detail").await;
    let text = text.map_err(|error| error.to_string())?;
    let json: Value =
        serde_json::from_str(&text).map_err(|_| "it does not answer yet".to_owned())?;
    let paths = json["rib"].as_array().into_iter().flatten();
    let paths = paths.filter(|path| all || path["best"] == true);
    Ok(paths
        .filter_map(|path| {
            // Routes that it originates have no peer address.
            path["neighbor"]["remote_addr"]
                .as_str()?
                .parse::<IpAddr>()
                .ok()?;
            Some((path["prefix"].as_str()?.parse().ok()?, route(path)))
        })
        .collect())
}

fn route(path: &Value) -> Route {
    let number = |name: &str| {
        path[name]
            .as_u64()
            .and_then(|value| u32::try_from(value).ok())
    };
    let list = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|word| word.as_str().map(str::to_owned))
            .collect()
    };
    let attributes = || path["attributes"].as_array().into_iter().flatten();
    let originator = attributes().find_map(|attribute| attribute["originator"].as_str());
    let clusters = attributes().map(|attribute| &attribute["cluster_list"]);
    Route {
        next_hop: path["exit_nexthop"]
            .as_str()
            .and_then(|hop| hop.parse().ok()),
        as_path: path["aspath"].as_str().unwrap_or_default().to_owned(),
        origin: path["origin"].as_str().unwrap_or("?").to_lowercase(),
        local_pref: number("localpref"),
        // OpenBGPD shows 0 where the route has no MED.
        med: number("metric").filter(|&med| med != 0),
        communities: list(&path["communities"]).into_iter().collect(),
        large_communities: list(&path["large_communities"]).into_iter().collect(),
        originator_id: originator.and_then(|id| id.parse().ok()),
        cluster_list: clusters
            .flat_map(list)
            .filter_map(|id| id.parse().ok())
            .collect(),
    }
}
