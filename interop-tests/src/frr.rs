//! FRR's bgpd: its configuration, and its tables read as JSON through its vty socket.
//!
//! Without BFD it runs without zebra and takes every next hop as reachable. Its files and its socket are in
//! the host's directory; `/etc/frr` and `/var/run/frr` are neither read nor written.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use netns_lab::{Error, Host, Process, Program};
use serde_json::Value;

use crate::{
    Route, Setup, Site,
    bfd::timers,
    programs,
    setup::{Neighbor, Own},
};

/// Where Debian puts FRR's daemons.
pub(crate) const DAEMONS: &str = "/usr/lib/frr";

pub(crate) fn installed() -> bool {
    has("bgpd")
}

/// Returns whether a daemon of FRR and its shell are installed.
pub(crate) fn has(daemon: &str) -> bool {
    programs::foreign_in(DAEMONS, daemon).is_some() && programs::foreign("vtysh").is_some()
}

pub(crate) fn start(site: &Site, setup: &Setup) -> Result<Process, Error> {
    let path = site.save("frr.conf", &config(site, setup));
    // The shell of FRR looks for this file in the same directory.
    site.save("vtysh.conf", "");
    let directory = site.host.directory();
    let program = programs::foreign_in(DAEMONS, "bgpd").expect("FRR is installed");
    let zebra = match setup.bfd {
        Some(_) => format!("--socket={}/zserv.api", directory.display()),
        None => "--no_zebra".to_owned(),
    };
    let program = Program::new(program)
        .arg(zebra)
        .args(["--skip_runas", "--log", "stdout"])
        .args(["--vty_port", "0", "--config_file"])
        .arg(path)
        .arg("--pid_file")
        .arg(directory.join("frr.pid"))
        .arg("--vty_socket")
        .arg(directory);
    site.host.spawn("frr", &program)
}

/// The configuration's names of families, and FRR's.
const FAMILIES: &[(&str, &str)] = &[
    ("ipv4-unicast", "ipv4 unicast"),
    ("ipv6-unicast", "ipv6 unicast"),
    ("ipv4-labeled-unicast", "ipv4 labeled-unicast"),
    ("ipv6-labeled-unicast", "ipv6 labeled-unicast"),
    ("ipv4-vpn", "ipv4 vpn"),
    ("ipv6-vpn", "ipv6 vpn"),
    ("l2vpn-evpn", "l2vpn evpn"),
    ("ipv4-flowspec", "ipv4 flowspec"),
    ("ipv6-flowspec", "ipv6 flowspec"),
];

fn config(site: &Site, setup: &Setup) -> String {
    let mut text = String::new();
    // The lists precede the neighbors that refer to them: FRR applies a later change only after
    // five seconds.
    for own in &setup.own {
        text.push_str(&route_map(own, setup.link_bandwidth));
    }
    // By default FRR delays routes for one second to put more of them into a message.
    let _ = write!(
        text,
        "log stdout\ndebug bgp neighbor-events\ndebug bgp updates\n\
         router bgp {}\n bgp router-id {}\n\
         \x20coalesce-time 10\n bgp log-neighbor-changes\n no bgp ebgp-requires-policy\n\
         \x20no bgp network import-check\n no bgp default ipv4-unicast\n",
        setup.asn,
        Site::v4(site.number)
    );
    if let Some(seconds) = setup.restart_time_s {
        let _ = write!(
            text,
            " bgp graceful-restart\n bgp graceful-restart restart-time {seconds}\n\
             \x20bgp graceful-restart preserve-fw-state\n"
        );
    }
    if let Some(seconds) = setup.long_lived_s {
        let _ = writeln!(
            text,
            " bgp long-lived-graceful-restart stale-time {seconds}"
        );
    }
    if let Some(cluster) = setup.cluster_id {
        let _ = writeln!(text, " bgp cluster-id {cluster}");
    }
    for neighbor in &setup.neighbors {
        text.push_str(&peer(neighbor));
        if let Some(bfd) = setup.bfd {
            let address = neighbor.address;
            let (interval, multiplier) = timers(bfd);
            let _ = writeln!(
                text,
                " neighbor {address} bfd {multiplier} {interval} {interval}"
            );
            if setup.bfd_c_bit {
                let _ = writeln!(text, " neighbor {address} bfd check-control-plane-failure");
            }
        }
    }
    for (name, words) in FAMILIES {
        text.push_str(&family(setup, name, words));
    }
    text + "exit\n"
}

fn peer(neighbor: &Neighbor) -> String {
    let address = neighbor.address;
    let mut text = format!(
        " neighbor {address} remote-as {}\n neighbor {address} timers connect 1\n",
        neighbor.asn
    );
    if let Some(password) = neighbor.password {
        let _ = writeln!(text, " neighbor {address} password {password}");
    }
    if neighbor.passive {
        let _ = writeln!(text, " neighbor {address} passive");
    }
    if neighbor.ttl_security {
        let _ = writeln!(text, " neighbor {address} ttl-security hops 1");
    }
    text
}

fn family(setup: &Setup, name: &str, words: &str) -> String {
    let mut text = format!(" address-family {words}\n");
    let carried = |neighbor: &&Neighbor| neighbor.family_names().contains(&name);
    for neighbor in setup.neighbors.iter().filter(carried) {
        let _ = writeln!(text, "  neighbor {} activate", neighbor.address);
        if neighbor.client {
            let _ = writeln!(
                text,
                "  neighbor {} route-reflector-client",
                neighbor.address
            );
        }
        if neighbor.add_path {
            let _ = writeln!(text, "  neighbor {} addpath-tx-all-paths", neighbor.address);
        }
    }
    for own in setup.own.iter().filter(|own| own.family() == name) {
        let _ = writeln!(
            text,
            "  network {} route-map {}",
            own.net,
            map_name(own.net)
        );
    }
    text + " exit-address-family\n"
}

fn map_name(net: IpNet) -> String {
    net.to_string().replace([':', '.', '/'], "-")
}

fn route_map(own: &Own, link_bandwidth: Option<u32>) -> String {
    let mut text = format!("route-map {} permit 10\n", map_name(own.net));
    if let Some(megabits) = link_bandwidth {
        let _ = writeln!(text, " set extcommunity bandwidth {megabits}");
    }
    if let Some(med) = own.med {
        let _ = writeln!(text, " set metric {med}");
    }
    let joined = |words: Vec<String>| words.join(" ");
    if !own.communities.is_empty() {
        let words = own.communities.iter().map(|(a, b)| format!("{a}:{b}"));
        let _ = writeln!(text, " set community {}", joined(words.collect()));
    }
    if !own.large_communities.is_empty() {
        let words = own.large_communities.iter();
        let words = words.map(|(a, b, c)| format!("{a}:{b}:{c}"));
        let _ = writeln!(text, " set large-community {}", joined(words.collect()));
    }
    text + "exit\n"
}

pub(crate) async fn ask(site: &Site, commands: &[String]) -> Result<String, Error> {
    ask_daemon(&site.host, "bgpd", commands).await
}

/// Returns the answers of a daemon of FRR to these commands.
pub(crate) async fn ask_daemon(
    host: &Host,
    daemon: &str,
    commands: &[String],
) -> Result<String, Error> {
    let program = programs::foreign("vtysh").expect("FRR is installed");
    let mut program = Program::new(program)
        .arg("--vty_socket")
        .arg(host.directory())
        .arg("--config_dir")
        .arg(host.directory())
        .args(["-d", daemon]);
    for command in commands {
        program = program.arg("-c").arg(command);
    }
    let (_, text) = host.output(&program).await?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

async fn configure(site: &Site, lines: &str) -> Result<(), Error> {
    let lines = std::iter::once("configure terminal").chain(lines.lines());
    let lines: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    let output = ask(site, &lines).await?;
    assert!(output.trim().is_empty(), "FRR on {lines:?}: {output}");
    Ok(())
}

/// Returns the `router bgp` line of this process's configuration.
fn router(site: &Site) -> String {
    let text = site.load("frr.conf");
    let line = text.lines().find(|line| line.starts_with("router bgp "));
    line.expect("a line with the autonomous system").to_owned()
}

pub(crate) async fn announce(site: &Site, own: &Own) -> Result<(), Error> {
    let (map, words) = (route_map(own, None), words_of(own.net));
    let name = map_name(own.net);
    let network = format!(
        "address-family {words}\nnetwork {} route-map {name}\n",
        own.net
    );
    configure(site, &format!("{map}{}\n{network}", router(site))).await
}

pub(crate) async fn withdraw(site: &Site, net: IpNet) -> Result<(), Error> {
    let router = router(site);
    let network = format!("address-family {}\nno network {net}\n", words_of(net));
    configure(site, &format!("{router}\n{network}")).await
}

const fn words_of(net: IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "ipv4 unicast",
        IpNet::V6(_) => "ipv6 unicast",
    }
}

/// Returns its best routes, or all its paths, without the routes that it originates.
pub(crate) async fn learned_paths(site: &Site, all: bool) -> Result<Vec<(IpNet, Route)>, String> {
    let mut learned_paths = Vec::new();
    for words in ["ipv4 unicast", "ipv6 unicast"] {
        let json = shows(site, &format!("show bgp {words} json")).await?;
        for net in json["routes"].as_object().into_iter().flatten() {
            let json = shows(site, &format!("show bgp {words} {} json", net.0)).await?;
            let Ok(net) = net.0.parse() else { continue };
            let paths = json["paths"].as_array().into_iter().flatten();
            let paths = paths.filter(|path| all || path["bestpath"]["overall"] == true);
            learned_paths.extend(paths.filter_map(route).map(|route| (net, route)));
        }
    }
    Ok(learned_paths)
}

async fn shows(site: &Site, question: &str) -> Result<Value, String> {
    let text = ask(site, &[question.to_owned()]).await;
    let text = text.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("not an answer: {error}: {text}"))
}

/// Returns a learned path; `None` for one that the speaker originates.
fn route(path: &Value) -> Option<Route> {
    path["peer"]["peerId"]
        .as_str()?
        .parse::<IpAddr>()
        .ok()
        .filter(|peer| {
            ![
                IpAddr::from(Ipv4Addr::UNSPECIFIED),
                Ipv6Addr::UNSPECIFIED.into(),
            ]
            .contains(peer)
        })?;
    let number = |name: &str| {
        path[name]
            .as_u64()
            .and_then(|value| u32::try_from(value).ok())
    };
    let list = |value: &Value| -> Vec<String> {
        let list = value["list"].as_array().into_iter().flatten();
        list.filter_map(|word| word.as_str().map(str::to_owned))
            .collect()
    };
    let hops = path["nexthops"].as_array().into_iter().flatten();
    // An IPv6 next hop may come with a link-local one.
    let mut hops = hops.filter(|hop| hop["scope"] != "link-local");
    let as_path = path["aspath"]["string"].as_str().unwrap_or_default();
    Some(Route {
        next_hop: hops.next().and_then(|hop| hop["ip"].as_str()?.parse().ok()),
        as_path: if as_path == "Local" {
            String::new()
        } else {
            as_path.to_owned()
        },
        origin: path["origin"].as_str().unwrap_or("?").to_lowercase(),
        local_pref: number("locPrf"),
        med: number("metric"),
        communities: list(&path["community"]).into_iter().collect(),
        large_communities: list(&path["largeCommunity"]).into_iter().collect(),
        originator_id: path["originatorId"].as_str().and_then(|id| id.parse().ok()),
        cluster_list: list(&path["clusterList"])
            .iter()
            .filter_map(|id| id.parse().ok())
            .collect(),
    })
}
