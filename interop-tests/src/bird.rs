//! BIRD 2: its configuration, and its tables read from `show route all`.

use std::{collections::BTreeSet, fmt::Write as _, net::IpAddr};

use ipnet::IpNet;
use netns_lab::{Error, Process, Program};

use crate::setup::BFD_SECRET;
use crate::{Neighbor, Route, Setup, Site, programs, setup::Own};

pub(crate) fn installed() -> bool {
    programs::foreign("bird").is_some() && programs::foreign("birdc").is_some()
}

/// The configuration's name of a family, BIRD's name, its table unless BIRD has a default one, and
/// whether next hops are IPv4 or IPv6 addresses, or absent.
type Channel = (&'static str, &'static str, &'static str, Option<bool>);

const CHANNELS: &[Channel] = &[
    ("ipv4-unicast", "ipv4", "", Some(true)),
    ("ipv6-unicast", "ipv6", "", Some(false)),
    ("ipv4-vpn", "vpn4 mpls", "vpn4 table own4;", Some(true)),
    ("ipv6-vpn", "vpn6 mpls", "vpn6 table own6;", Some(false)),
    ("ipv4-flowspec", "flow4", "flow4 table flows4;", None),
    ("ipv6-flowspec", "flow6", "flow6 table flows6;", None),
];

fn channel(name: &str) -> &'static Channel {
    let mut channels = CHANNELS.iter();
    let found = channels.find(|(ours, ..)| *ours == name);
    found.expect("a family that BIRD has")
}

pub(crate) fn start(site: &Site, setup: &Setup) -> Result<Process, Error> {
    write(site, setup, &setup.own);
    let program = Program::new(programs::foreign("bird").expect("BIRD is installed"))
        .args(setup.restarted.then_some("-R"))
        .args(["-f", "-c"])
        .arg(site.host.directory().join("bird.conf"))
        .arg("-s")
        .arg(site.host.directory().join("bird.ctl"));
    site.host.spawn("bird", &program)
}

fn write(site: &Site, setup: &Setup, own: &[Own]) {
    let number = site.number;
    let mut text = format!(
        "log stderr all;\nrouter id {};\nprotocol device {{ scan time 1; }}\n\
         include \"own.conf\";\n",
        Site::v4(number)
    );
    let names = setup.neighbors.iter().flat_map(Neighbor::family_names);
    let tables: BTreeSet<_> = names.map(|name| channel(name).2).collect();
    for table in tables {
        let _ = writeln!(text, "{table}");
    }
    if let Some(bfd) = setup.bfd {
        let (interval, multiplier) = crate::bfd::timers(bfd);
        let auth = setup.bfd_auth.map(|auth| {
            let auth = auth.replace('-', " ");
            format!("authentication {auth}; password \"{BFD_SECRET}\" {{ id 7; }};")
        });
        let auth = auth.unwrap_or_default();
        let each = format!("{{ interval {interval} ms; multiplier {multiplier}; {auth} }}");
        let _ = writeln!(
            text,
            "protocol bfd {{ interface \"*\" {each}; multihop {each}; }}"
        );
    }
    for (at, neighbor) in setup.neighbors.iter().enumerate() {
        let internal = neighbor.asn == setup.asn;
        let local: IpAddr = match neighbor.address {
            IpAddr::V4(_) => Site::v4(number).into(),
            IpAddr::V6(_) => Site::v6(number).into(),
        };
        let _ = writeln!(
            text,
            "protocol bgp peer{at} {{\n local {local} as {};\n neighbor {} as {};\n \
             connect delay time 1; connect retry time 1; error wait time 1, 2;",
            setup.asn, neighbor.address, neighbor.asn
        );
        // Inside an AS, BIRD resolves next hops: it keeps routes whose next hop it cannot resolve
        // as unreachable.
        text.push_str(if internal && !neighbor.ttl_security {
            " multihop;\n"
        } else {
            " direct;\n"
        });
        if setup.bfd.is_some() {
            text.push_str(" bfd on;\n");
        }
        if neighbor.client {
            text.push_str(" rr client;\n");
        }
        // BIRD looks for its cluster ID in the routes received on this session, whether or not the
        // neighbor is a client.
        if let Some(cluster) = neighbor
            .cluster_id
            .or(setup.cluster_id)
            .filter(|_| internal)
        {
            let _ = writeln!(text, " rr cluster id {cluster};");
        }
        if let Some(seconds) = setup.restart_time_s {
            let _ = writeln!(
                text,
                " graceful restart on; graceful restart time {seconds};"
            );
        }
        if let Some(seconds) = setup.long_lived_s {
            let _ = writeln!(
                text,
                " long lived graceful restart on; long lived stale time {seconds};"
            );
        }
        if let Some(password) = neighbor.password {
            let _ = writeln!(text, " password \"{password}\";");
        }
        if neighbor.ttl_security {
            text.push_str(" ttl security on;\n");
        }
        if neighbor.passive {
            text.push_str(" passive on;\n");
        }
        // A reflector keeps the next hop of the routes that it reflects.
        let next_hop = if internal && setup.cluster_id.is_some() {
            "keep"
        } else {
            "self"
        };
        for name in neighbor.family_names() {
            let (_, words, table, v4) = channel(name);
            let address = v4.map(|v4| match v4 {
                true => IpAddr::from(Site::v4(number)),
                false => Site::v6(number).into(),
            });
            let next_hop = match address {
                None => String::new(),
                Some(_) if next_hop == "keep" => "next hop keep ibgp;".to_owned(),
                Some(address) => format!("next hop self; next hop address {address};"),
            };
            let table = table.split_once("table").map_or("", |(_, name)| name);
            let table = format!("table{table}");
            let table = if table == "table" { "" } else { &table };
            let add_paths = if neighbor.add_path { " add paths;" } else { "" };
            let _ = writeln!(
                text,
                " {words} {{ {table} import all; export all; {next_hop}{add_paths} }};"
            );
        }
        text.push_str("}\n");
    }
    site.save("bird.conf", &(text + &setup.extra));
    site.save("own.conf", &own_routes(own));
}

fn own_routes(own: &[Own]) -> String {
    let mut text = String::new();
    for (family, v4) in [("ipv4", true), ("ipv6", false)] {
        let _ = writeln!(text, "protocol static own_{family} {{\n {family};");
        for own in own
            .iter()
            .filter(|own| matches!(own.net, IpNet::V4(_)) == v4)
        {
            let _ = write!(
                text,
                " route {} blackhole {{ bgp_origin = ORIGIN_IGP;",
                own.net
            );
            if let Some(med) = own.med {
                let _ = write!(text, " bgp_med = {med};");
            }
            for (asn, value) in &own.communities {
                let _ = write!(text, " bgp_community.add(({asn},{value}));");
            }
            for (asn, one, two) in &own.large_communities {
                let _ = write!(text, " bgp_large_community.add(({asn},{one},{two}));");
            }
            text.push_str(" };\n");
        }
        text.push_str("}\n");
    }
    text
}

pub(crate) async fn ask(site: &Site, words: &[&str]) -> Result<String, Error> {
    let program = Program::new(programs::foreign("birdc").expect("BIRD is installed"))
        .arg("-s")
        .arg(site.host.directory().join("bird.ctl"))
        .args(words);
    let (_, text) = site.host.output(&program).await?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub(crate) async fn announce(site: &Site, own: &Own) -> Result<(), Error> {
    let text = site.load("own.conf");
    // Each call adds protocols with names of their own.
    let name = format!("more{}_", text.matches("protocol static").count());
    let more = own_routes(std::slice::from_ref(own)).replace("own_", &name);
    site.save("own.conf", &(text + &more));
    ask(site, &["configure"]).await.map(drop)
}

pub(crate) async fn withdraw(site: &Site, net: IpNet) -> Result<(), Error> {
    let text = site.load("own.conf");
    let kept = text
        .lines()
        .filter(|line| !line.contains(&format!(" route {net} ")));
    site.save(
        "own.conf",
        &kept.map(|line| format!("{line}\n")).collect::<String>(),
    );
    ask(site, &["configure"]).await.map(drop)
}

/// Returns its best routes, or all its paths, without the routes that it originates.
pub(crate) async fn learned_paths(site: &Site, all: bool) -> Result<Vec<(IpNet, Route)>, String> {
    let words: &[&str] = match all {
        true => &["show", "route", "all"],
        false => &["show", "route", "primary", "all"],
    };
    let text = ask(site, words).await.map_err(|error| error.to_string())?;
    if !text.contains("ready") {
        return Err("it does not answer yet".to_owned());
    }
    Ok(parse(&text))
}

/// Parses the output of `show route all`: a line that begins with a prefix, or with spaces for one
/// more path to the same prefix, then one attribute a line after a tab.
fn parse(text: &str) -> Vec<(IpNet, Route)> {
    let mut table = Vec::new();
    let mut current: Option<(IpNet, Route)> = None;
    for line in text.lines() {
        if !line.starts_with('\t') {
            let before = current.as_ref().map(|(net, _)| *net);
            table.extend(current.take().filter(|(_, route)| route.next_hop.is_some()));
            let net = match line.starts_with(' ') {
                true => before,
                false => line
                    .split_whitespace()
                    .next()
                    .and_then(|word| word.parse().ok()),
            };
            current = net.map(|net| (net, Route::default()));
        } else if let Some((_, route)) = &mut current
            && let Some((name, value)) = line.trim().split_once(": ")
        {
            attribute(route, name, value.trim());
        }
    }
    table.extend(current.take().filter(|(_, route)| route.next_hop.is_some()));
    table
}

fn attribute(route: &mut Route, name: &str, value: &str) {
    let tuples = || {
        let tuples = value.split(')').filter_map(|tuple| tuple.split_once('('));
        tuples.map(|(_, tuple)| {
            tuple
                .split(',')
                .map(str::trim)
                .collect::<Vec<_>>()
                .join(":")
        })
    };
    match name {
        // An IPv6 next hop may be followed by a link-local one.
        "BGP.next_hop" => {
            route.next_hop = value
                .split_whitespace()
                .next()
                .and_then(|word| word.parse().ok());
        }
        "BGP.as_path" => route.as_path = value.to_owned(),
        "BGP.origin" => route.origin = value.to_lowercase(),
        "BGP.local_pref" => route.local_pref = value.parse().ok(),
        "BGP.med" => route.med = value.parse().ok(),
        "BGP.community" => route.communities = tuples().collect(),
        "BGP.large_community" => route.large_communities = tuples().collect(),
        "BGP.originator_id" => route.originator_id = value.parse().ok(),
        "BGP.cluster_list" => {
            route.cluster_list = value
                .split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_with_all_attributes_and_without_own_routes() {
        let text = "BIRD 2.0.12 ready.\nTable master4:\n\
            10.70.1.0/24         unicast [peer0 12:00:00.000] * (100) [AS64513i]\n\
            \tvia 10.0.0.2 on eth0\n\tType: BGP univ\n\tBGP.origin: IGP\n\tBGP.as_path: 64513\n\
            \tBGP.next_hop: 10.0.0.2\n\tBGP.med: 7\n\tBGP.local_pref: 100\n\
            \tBGP.community: (64999,1) (64999,20)\n\tBGP.large_community: (64999, 4, 9)\n\
            10.70.2.0/24         blackhole [own_ipv4 12:00:00.000] * (200)\n\tType: static univ\n";
        let expected = Route::via(Site::v4(2))
            .path("64513")
            .local_pref(100)
            .adorned();
        assert_eq!(
            parse(text),
            [("10.70.1.0/24".parse().expect("a net"), expected)]
        );
    }

    #[test]
    fn one_more_path_belongs_to_the_prefix_above() {
        let text = "10.65.0.1/32         unreachable [peer0 12:00:00.000 from 10.0.0.1] * (100) [i]\n\
            \tType: BGP univ\n\tBGP.next_hop: 10.0.0.2\n\
            \x20                    unreachable [peer0 12:00:00.000 from 10.0.0.1] (100) [i]\n\
            \tType: BGP univ\n\tBGP.next_hop: 10.0.0.3\n";
        let paths = [2, 3].map(|number| {
            let net: IpNet = "10.65.0.1/32".parse().expect("a net");
            (net, Route::via(Site::v4(number)))
        });
        assert_eq!(parse(text), paths);
    }
}
