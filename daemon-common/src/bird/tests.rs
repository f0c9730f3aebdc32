mod reader;

use std::net::IpAddr;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::ask::{Ask, RouteAsk, fits};
use super::lines::Lines;
use super::{View, protocol_name, protocols, routes, status};
use crate::control::Control;
use crate::limits::BIRD_LINE_OCTETS_MAX;
use crate::report::{Fact, Neighbor, NeighborFamily, Neighbors, Path, Route, Routes, Status};
use crate::{Command, Reply};

fn noon() -> Zoned {
    let at: Timestamp = "2026-03-04T12:00:00Z".parse().expect("a time");
    at.to_zoned(TimeZone::UTC)
}

fn state() -> Status {
    Status {
        uptime_s: 3600,
        configured_s: Some(60),
        facts: vec![Fact {
            name: "router id".to_owned(),
            value: "10.20.1.7".to_owned(),
        }],
        ..Status::default()
    }
}

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().expect("an address"))
}

fn neighbors() -> Neighbors {
    let up = Neighbor {
        name: "Mesh_10_20_1_8".to_owned(),
        address: address("10.20.1.8"),
        asn: 64512,
        role: "internal".to_owned(),
        state: "Established".to_owned(),
        since_s: Some(90_000),
        hold_time_s: Some(90),
        import: "accept".to_owned(),
        export: "accept".to_owned(),
        families: vec![NeighborFamily {
            family: "ipv4-unicast".to_owned(),
            received: 5,
            accepted: 4,
            ..NeighborFamily::default()
        }],
        ..Neighbor::default()
    };
    let down = Neighbor {
        name: "10.20.1.254".to_owned(),
        address: address("10.20.1.254"),
        asn: 64700,
        state: "Connect".to_owned(),
        down_for_s: Some(120),
        last_down: Some("the neighbor refused the connection".to_owned()),
        ..Neighbor::default()
    };
    let six = Neighbor {
        name: "tor 2".to_owned(),
        address: address("fd20:1::fe"),
        state: "Active".to_owned(),
        ..Neighbor::default()
    };
    Neighbors {
        local_asn: 64512,
        neighbors: vec![up, down, six],
        ..Neighbors::default()
    }
}

fn path(neighbor: &str, next_hop: &str, interface: Option<&str>) -> Path {
    Path {
        neighbor: neighbor.to_owned(),
        neighbor_address: address("10.20.1.8"),
        next_hop: Some(next_hop.to_owned()),
        interface: interface.map(str::to_owned),
        origin: "igp".to_owned(),
        ..Path::default()
    }
}

fn page() -> Routes {
    let route = |prefix: &str, paths: Vec<Path>| Route {
        family: "ipv4-unicast".to_owned(),
        prefix: prefix.to_owned(),
        paths,
    };
    let own = |interface: Option<&str>| Path {
        best: true,
        neighbor: "local".to_owned(),
        interface: interface.map(str::to_owned),
        ..Path::default()
    };
    let best = Path {
        best: true,
        as_path: "64700 64701".to_owned(),
        communities: vec!["64512:300".to_owned()],
        ..path("Mesh_10_20_1_8", "10.20.1.8", Some("eth0"))
    };
    let behind = path("Mesh_10_20_1_8", "10.20.1.9", Some("eth0"));
    let lost = Path {
        next_hop_state: Some("unreachable".to_owned()),
        lost: Some("not eligible: next hop".to_owned()),
        ..path("Mesh_10_20_1_8", "10.20.1.10", None)
    };
    let refused = Path {
        lost: Some("not eligible: policy".to_owned()),
        ..path("Mesh_10_20_1_8", "10.20.1.11", None)
    };
    Routes {
        routes: vec![
            route("10.65.2.0/26", vec![best, behind, lost, refused]),
            route("10.65.1.3/32", vec![own(Some("cali12ab34cd56e"))]),
            route("10.65.1.0/26", vec![own(None)]),
        ],
        next: None,
    }
}

fn shown(page: &Routes, line: &str) -> String {
    let Ask::Route(ask) = Ask::parse(line) else {
        panic!("{line}");
    };
    let (mut out, mut count) = (Lines::default(), routes::Count::default());
    routes::write(&mut out, page, &ask, &mut count);
    routes::end(&mut out, &ask, &count);
    out.take()
}

fn listed(view: View, name: Option<&str>, all: bool) -> String {
    let mut out = Lines::default();
    let which = protocols::Which { view, name, all };
    protocols::write(&mut out, &neighbors(), &state(), which, &noon());
    out.take()
}

#[test]
fn status_has_the_lines_of_bird() {
    let mut out = Lines::default();
    status::write(&mut out, &state(), &noon());
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        out.take(),
        format!(
            "1000-BIRD v{version}+cambric\n1011-Router ID is 10.20.1.7\n \
             Current server time is 2026-03-04 12:00:00\n Last reboot on 2026-03-04 11:00:00\n \
             Last reconfiguration on 2026-03-04 11:59:00\n0013 Daemon is up and running\n"
        )
    );
    let restarting = Status {
        restarting: true,
        ..state()
    };
    status::write(&mut out, &restarting, &noon());
    let (shown_version, router_id, restarting) = reader::status(&out.take());
    assert_eq!(shown_version, format!("{version}+cambric"));
    assert_eq!((router_id.as_str(), restarting), ("10.20.1.7", true));
}

#[test]
fn neighbors_have_the_columns_of_bird() {
    assert_eq!(
        listed(View::Both, None, false),
        "2002-name     proto    table    state  since       info\n\
         1002-Mesh_10_20_1_8 BGP      master   up     2026-03-03  Established   \n \
         Node_10_20_1_254 BGP      master   start  11:58:00    Connect       \
         the neighbor refused the connection\n \
         tor_2    BGP      master   start  11:00:00    Active        \n0000 \n"
    );
}

#[test]
fn each_half_shows_its_neighbors_and_readers_find_them() {
    let read = reader::peers(&listed(View::Ipv4, None, false), ".");
    let of = |peer: &reader::Peer| (peer.kind.clone(), peer.address.clone(), peer.state.clone());
    let seen: Vec<_> = read.iter().map(of).collect();
    let peer = |kind: &str, address: &str, state: &str| {
        (kind.to_owned(), address.to_owned(), state.to_owned())
    };
    let expected = [
        peer("Mesh", "10.20.1.8", "up"),
        peer("Node", "10.20.1.254", "start"),
    ];
    assert_eq!(seen, expected);
    assert_eq!(read[0].bgp_state, "Established");
    assert_eq!(read[1].info, "the neighbor refused the connection");
    assert!(reader::peers(&listed(View::Ipv6, None, false), ":").is_empty());
    assert!(listed(View::Ipv6, None, false).contains("tor_2"));
}

#[test]
fn details_name_the_state_and_the_address() {
    let text = listed(View::Both, Some("Mesh_10_20_1_8"), true);
    assert_eq!(reader::detail(&text, "BGP state:"), "Established");
    assert_eq!(reader::detail(&text, "Neighbor address:"), "10.20.1.8");
    assert!(
        text.contains("\n1006-  Preference:     100\n   Input filter:   accept\n")
            && text.contains("   Routes:         4 imported, 1 filtered, ipv4-unicast\n")
            && text.ends_with("\n \n0000 \n")
    );
    assert_eq!(
        listed(View::Both, Some("Mesh_10_20_1_9"), false),
        "8003 No protocols match\n"
    );
    assert_eq!(
        listed(View::Both, Some("*_10_20_1_?"), false)
            .lines()
            .count(),
        3
    );
}

#[test]
fn each_path_is_shown_on_one_line() {
    assert_eq!(
        shown(&page(), "show route"),
        "1007-10.65.2.0/26       via 10.20.1.8 on eth0 [Mesh_10_20_1_8 --:--:--] * (100/?) [AS64701i]\n \
         \x20                  via 10.20.1.9 on eth0 [Mesh_10_20_1_8 --:--:-- from 10.20.1.8] (100/?) [i]\n \
         \x20                  unreachable [Mesh_10_20_1_8 --:--:-- from 10.20.1.8] (100/-) [i]\n \
         10.65.1.3/32       dev cali12ab34cd56e [kernel1 --:--:--] * (10)\n \
         10.65.1.0/26       blackhole [static1 --:--:--] * (200)\n0000 \n"
    );
    let read = reader::routes(&shown(&page(), "show route"));
    assert_eq!(read.len(), 5);
    assert_eq!(
        read[1],
        reader::Route {
            to: "10.65.2.0/26".to_owned(),
            gateway: "10.20.1.9".to_owned(),
            interface: "eth0".to_owned(),
            from: "Mesh_10_20_1_8".to_owned(),
            primary: false,
        }
    );
    assert!(read[0].primary && read[3].interface == "cali12ab34cd56e");
}

#[test]
fn routes_can_be_chosen_and_counted() {
    assert_eq!(
        reader::routes(&shown(&page(), "show route primary")).len(),
        3
    );
    let of_kernel = shown(&page(), "show route protocol \"kernel*\"");
    assert_eq!(reader::routes(&of_kernel).len(), 1);
    assert_eq!(
        shown(&page(), "show route count"),
        "0014 5 of 5 routes for 3 networks\n"
    );
    let none = Routes::default();
    assert_eq!(
        shown(&none, "show route 10.99.0.0/16"),
        "8001 Network not in table\n"
    );
    assert_eq!(shown(&none, "show route"), "0000 \n");
    let all = shown(&page(), "show route all primary protocol Mesh_10_20_1_8");
    assert!(
        all.contains(
            "\n1008-\tType: BGP unicast univ\n1012-\tBGP.origin: IGP\n \
             \tBGP.as_path: 64700 64701\n \tBGP.next_hop: 10.20.1.8\n \
             \tBGP.community: (64512,300)\n0000 \n"
        ),
        "{all}"
    );
}

#[test]
fn lines_are_read_as_bird_reads_them() {
    let status = [" show \t status ", "show status\r"];
    assert!(status.iter().all(|line| Ask::parse(line) == Ask::Status));
    let named = Ask::Protocols {
        all: true,
        name: Some("Mesh_*".to_owned()),
    };
    assert_eq!(Ask::parse("show protocols all \"Mesh_*\""), named);
    let route = RouteAsk {
        prefix: "10.65.0.0/26".parse().ok(),
        all: true,
        ..RouteAsk::default()
    };
    assert_eq!(Ask::parse("show route 10.65.0.0/26 all"), Ask::Route(route));
    for changing in ["configure", "disable Mesh_10_0_0_2", "down"] {
        assert_eq!(Ask::parse(changing), Ask::Denied);
    }
    for other in [
        "",
        "show",
        "SHOW STATUS",
        "show route protocol",
        "show protocols a b",
    ] {
        assert_eq!(Ask::parse(other), Ask::Unknown, "{other}");
    }
}

#[test]
fn patterns_fit_as_in_a_shell() {
    for (pattern, name, expected) in [
        ("Mesh_*", "Mesh_10_0_0_2", true),
        ("*_2", "Mesh_10_0_2_2", true),
        ("*_3", "Mesh_10_0_2_2", false),
        ("Mesh", "Mesh_10_0_0_2", false),
        ("M*h_*2", "Mesh_10_0_0_2", true),
        ("", "", true),
        ("*", "", true),
        ("?", "", false),
        ("****a", "bbba", true),
    ] {
        assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
    }
}

/// Answers any query, routes in three pages, until the client has finished.
async fn answer(mut control: Control) {
    loop {
        let request = control.next().await;
        let reply = match &request.command {
            Command::Status {} => Reply::Status(state()),
            Command::Neighbors {} => Reply::Neighbors(neighbors()),
            Command::Routes { family, after, .. } if family.as_deref() == Some("ipv4-unicast") => {
                let next = match after.as_deref() {
                    None => Some("one".to_owned()),
                    Some("one") => Some("two".to_owned()),
                    Some(_) => None,
                };
                Reply::Routes(Routes { next, ..page() })
            }
            Command::Routes { .. } => Reply::Routes(Routes::default()),
            other => Reply::not_here("test", other),
        };
        request.reply(reply);
    }
}

/// Reads up to the end of a reply.
async fn reply(stream: &mut BufReader<UnixStream>) -> String {
    let mut text = String::new();
    loop {
        let from = text.len();
        if stream.read_line(&mut text).await.expect("text") == 0 {
            return text;
        }
        let line = &text.as_bytes()[from..];
        if line[0].is_ascii_digit() && line[4] == b' ' {
            return text;
        }
    }
}

#[tokio::test]
async fn a_client_is_greeted_and_answered_page_by_page() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("bird.ctl");
    let mut control = Control::bind(directory.path().join("test.sock")).expect("bind");
    control.bind_bird(&path, View::Both).expect("bind");
    let daemon = tokio::spawn(answer(control));
    let mut stream = BufReader::new(UnixStream::connect(&path).await.expect("connect"));
    let version = env!("CARGO_PKG_VERSION");
    let greeting = format!("0001 BIRD v{version}+cambric ready.\n");
    assert_eq!(reply(&mut stream).await, greeting);
    // Two questions in one segment are answered one after the other.
    let both = b"show status\nshow protocols\n";
    stream.write_all(both).await.expect("write");
    assert!(
        reply(&mut stream)
            .await
            .ends_with("0013 Daemon is up and running\n")
    );
    assert_eq!(reader::peers(&reply(&mut stream).await, ".").len(), 2);
    stream.write_all(b"show route\n").await.expect("write");
    assert_eq!(reader::routes(&reply(&mut stream).await).len(), 15);
    for (line, begins) in [
        ("restrict\n", "0016 "),
        ("configure\n", "8007 "),
        ("nonsense\n", "9001 syntax error"),
        ("\n", "9001 syntax error"),
    ] {
        stream.write_all(line.as_bytes()).await.expect("write");
        assert!(reply(&mut stream).await.starts_with(begins), "{line}");
    }
    let long = "x".repeat(BIRD_LINE_OCTETS_MAX + 1);
    stream.write_all(long.as_bytes()).await.expect("write");
    assert_eq!(reply(&mut stream).await, "9000 Command too long\n");
    assert_eq!(stream.read(&mut [0]).await.expect("an end"), 0);
    daemon.abort();
    assert!(daemon.await.is_err_and(|end| end.is_cancelled()));
    assert!(!path.exists(), "the socket goes with the daemon");
}

#[tokio::test]
async fn unanswered_command_is_an_error_of_bird() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("bird.ctl");
    let mut control = Control::bind(directory.path().join("test.sock")).expect("bind");
    control.bind_bird(&path, View::Ipv4).expect("bind");
    let mut stream = BufReader::new(UnixStream::connect(&path).await.expect("connect"));
    reply(&mut stream).await;
    stream.write_all(b"show route\n").await.expect("write");
    drop(control.next().await);
    assert_eq!(reply(&mut stream).await, "8004 the daemon gave no answer\n");
}

#[test]
fn reflector_of_the_fabric_is_a_peer_with_a_name_of_calico() {
    let address = "10.20.1.8".parse().expect("an address");
    let name = protocol_name("Reflector_10_20_1_8", address, false);
    assert_eq!(name, "Global_10_20_1_8");
}
