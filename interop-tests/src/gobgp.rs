//! GoBGP: its configuration, and its tables read as JSON.

use std::{fmt::Write as _, net::IpAddr};

use ipnet::IpNet;
use netns_lab::{Error, Process, Program, until};
use serde_json::Value;

use crate::{PATIENCE, Route, Setup, Site, programs, setup::Own};

pub(crate) fn installed() -> bool {
    programs::foreign("gobgpd").is_some() && programs::foreign("gobgp").is_some()
}

/// The configuration's names of families, and GoBGP's.
const FAMILIES: &[(&str, &str)] = &[
    ("ipv4-unicast", "ipv4-unicast"),
    ("ipv6-unicast", "ipv6-unicast"),
    ("ipv4-labeled-unicast", "ipv4-labelled-unicast"),
    ("ipv6-labeled-unicast", "ipv6-labelled-unicast"),
    ("ipv4-vpn", "l3vpn-ipv4-unicast"),
    ("ipv6-vpn", "l3vpn-ipv6-unicast"),
    ("l2vpn-evpn", "l2vpn-evpn"),
    ("route-target", "rtc"),
    ("ipv4-flowspec", "ipv4-flowspec"),
    ("ipv6-flowspec", "ipv6-flowspec"),
];

pub(crate) async fn start(site: &Site, setup: &Setup) -> Result<Process, Error> {
    let mut text = format!(
        "[global.config]\nas = {}\nrouter-id = \"{}\"\n",
        setup.asn,
        Site::v4(site.number)
    );
    for neighbor in &setup.neighbors {
        let password = neighbor
            .password
            .map(|password| format!("auth-password = \"{password}\"\n"))
            .unwrap_or_default();
        let _ = write!(
            text,
            "\n[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{}\"\npeer-as = {}\n{password}\
             [neighbors.timers.config]\nconnect-retry = 2\nidle-hold-time-after-reset = 2\n",
            neighbor.address, neighbor.asn
        );
        if neighbor.client {
            let cluster = setup.cluster_id.unwrap_or_else(|| Site::v4(site.number));
            let _ = write!(
                text,
                "[neighbors.route-reflector.config]\nroute-reflector-client = true\n\
                 route-reflector-cluster-id = \"{cluster}\"\n"
            );
        }
        if neighbor.add_path {
            text.push_str("[neighbors.add-paths.config]\nreceive = true\nsend-max = 16\n");
        }
        if let Some(seconds) = setup.restart_time_s {
            let _ = write!(
                text,
                "[neighbors.graceful-restart.config]\nenabled = true\nrestart-time = {seconds}\n\
                 long-lived-enabled = {}\n",
                setup.long_lived_s.is_some()
            );
        }
        if neighbor.ttl_security {
            text.push_str("[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n");
        }
        for name in neighbor.family_names() {
            let (_, name) = FAMILIES
                .iter()
                .find(|(ours, _)| *ours == name)
                .expect("a family that GoBGP has");
            let _ = write!(
                text,
                "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\n\
                 afi-safi-name = \"{name}\"\n"
            );
            if setup.restart_time_s.is_some() {
                text.push_str("[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n");
            }
            if let Some(seconds) = setup.long_lived_s {
                let _ = write!(
                    text,
                    "[neighbors.afi-safis.long-lived-graceful-restart.config]\nenabled = true\n\
                     restart-time = {seconds}\n"
                );
            }
        }
    }
    let path = site.save("gobgpd.toml", &text);
    let program = Program::new(programs::foreign("gobgpd").expect("GoBGP is installed"))
        .args(setup.restarted.then_some("-r"))
        .arg("-f")
        .arg(path)
        .args([
            "--api-hosts",
            "127.0.0.1:50051",
            "--pprof-disable",
            "-l",
            "debug",
        ]);
    let process = site.host.spawn("gobgpd", &program)?;
    ask(site, "global").await?;
    for own in &setup.own {
        announce(site, own).await?;
    }
    Ok(process)
}

fn gobgp(words: &[&str]) -> Program {
    Program::new(programs::foreign("gobgp").expect("GoBGP is installed")).args(words)
}

fn family(net: IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "ipv4",
        IpNet::V6(_) => "ipv6",
    }
}

pub(crate) async fn announce(site: &Site, own: &Own) -> Result<(), Error> {
    let next_hop: IpAddr = match own.net {
        IpNet::V4(_) => Site::v4(site.number).into(),
        IpNet::V6(_) => Site::v6(site.number).into(),
    };
    let mut words = ["global", "rib", "add"].map(str::to_owned).to_vec();
    words.extend([own.net.to_string(), "origin".into(), "igp".into()]);
    words.extend(["nexthop".into(), next_hop.to_string()]);
    words.extend(
        own.med
            .into_iter()
            .flat_map(|med| ["med".into(), med.to_string()]),
    );
    let joined = |list: Vec<String>| list.join(",");
    if !own.communities.is_empty() {
        let list = own
            .communities
            .iter()
            .map(|(asn, value)| format!("{asn}:{value}"))
            .collect();
        words.extend(["community".into(), joined(list)]);
    }
    if !own.large_communities.is_empty() {
        let list = own
            .large_communities
            .iter()
            .map(|(a, b, c)| format!("{a}:{b}:{c}"))
            .collect();
        words.extend(["large-community".into(), joined(list)]);
    }
    words.extend(["-a".into(), family(own.net).to_owned()]);
    run(site, &words).await
}

pub(crate) async fn withdraw(site: &Site, net: IpNet) -> Result<(), Error> {
    let words = ["global", "rib", "del", &net.to_string(), "-a", family(net)].map(str::to_owned);
    run(site, &words).await
}

pub(crate) async fn ask(site: &Site, words: &str) -> Result<String, Error> {
    run_until_accepted(site, &words.split_whitespace().collect::<Vec<_>>()).await
}

async fn run(site: &Site, words: &[String]) -> Result<(), Error> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run_until_accepted(site, &words).await.map(drop)
}

/// Repeats a command until the daemon has accepted it: the program fails when it has no connection
/// within a second, which a busy machine may not give it.
async fn run_until_accepted(site: &Site, words: &[&str]) -> Result<String, Error> {
    let what = format!("gobgp {words:?}");
    let output = until(PATIENCE, &what, async || run_once(site, words).await);
    output.await.map(|(text, _)| text)
}

/// Runs a command once: its output, or its error message.
async fn run_once(site: &Site, words: &[&str]) -> Result<Result<String, String>, Error> {
    let (status, text) = site.host.output(&gobgp(words)).await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(if status.success() {
        Ok(text)
    } else {
        Err(format!("{status}: {text}"))
    })
}

/// Returns its best routes, or all its paths, without the routes that it originates.
pub(crate) async fn learned_paths(site: &Site, all: bool) -> Result<Vec<(IpNet, Route)>, String> {
    let mut learned_paths = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let output = run_once(site, &["global", "rib", "-a", family, "-j"]).await;
        let text = output.map_err(|error| error.to_string())??;
        // Without routes the output is empty.
        let json: Value = match text.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?,
        };
        for (net, paths) in json.as_object().into_iter().flatten() {
            let Ok(net) = net.parse() else { continue };
            let paths = paths.as_array().into_iter().flatten();
            let paths = paths.filter(|path| all || path["best"] == true);
            let learned =
                |path: &&Value| path.get("neighbor-ip").is_some_and(|from| from != "<nil>");
            learned_paths.extend(paths.filter(learned).map(|path| (net, route(path))));
        }
    }
    Ok(learned_paths)
}

fn route(path: &Value) -> Route {
    let mut route = Route::default();
    for attribute in path["attrs"].as_array().into_iter().flatten() {
        let value = &attribute["value"];
        let number = |value: &Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
        match attribute["type"].as_u64() {
            Some(1) => {
                let names = ["igp", "egp", "incomplete"];
                let name = value
                    .as_u64()
                    .and_then(|at| names.get(usize::try_from(at).ok()?));
                route.origin = name.copied().unwrap_or("?").to_owned();
            }
            Some(2) => route.as_path = as_path(&attribute["as_paths"]),
            Some(3 | 14) => {
                route.next_hop = attribute["nexthop"]
                    .as_str()
                    .and_then(|text| text.parse().ok());
            }
            Some(4) => route.med = number(&attribute["metric"]),
            Some(5) => route.local_pref = number(value),
            Some(8) => {
                let list = attribute["communities"].as_array().into_iter().flatten();
                let list = list.filter_map(number);
                route.communities = list
                    .map(|value| format!("{}:{}", value >> 16, value & 0xffff))
                    .collect();
            }
            Some(9) => route.originator_id = value.as_str().and_then(|text| text.parse().ok()),
            Some(10) => {
                let list = value.as_array().into_iter().flatten();
                route.cluster_list = list.filter_map(|id| id.as_str()?.parse().ok()).collect();
            }
            Some(32) => {
                let part = |entry: &Value, name| entry[name].as_u64().unwrap_or_default();
                let list = value.as_array().into_iter().flatten();
                let text = |entry: &Value| {
                    let parts = ["ASN", "LocalData1", "LocalData2"].map(|name| part(entry, name));
                    parts.map(|part| part.to_string()).join(":")
                };
                route.large_communities = list.map(text).collect();
            }
            _ => {}
        }
    }
    route
}

fn as_path(segments: &Value) -> String {
    let segments = segments.as_array().into_iter().flatten();
    let asns = segments.flat_map(|segment| segment["asns"].as_array().into_iter().flatten());
    asns.map(Value::to_string).collect::<Vec<_>>().join(" ")
}
