use std::path::Path;

use clap::Parser;
use daemon_common::control::Control;
use daemon_common::report::{
    AppliedRules, Endpoint, EndpointRules, Endpoints, Fact, Fib, FibHop, FibRoute, Limit, Limits,
    Neighbor, NeighborFamily, NeighborRange, NeighborSettings, Neighbors, Path as BgpPath, Route,
    Routes, Rule, Rules, SentTo, Settings, Status, UnclaimedInterface,
};
use daemon_common::{Command, Reply};

use super::cells::{clean, duration, utc};
use super::{Answers, Args, Destination, What, ask, found, json, tables};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &str) -> Args {
    Line::try_parse_from(["show"].into_iter().chain(line.split_whitespace()))
        .expect(line)
        .args
}

fn shown(line: &str, daemon: &str, reply: Reply) -> String {
    let answers: Answers = [(daemon.to_owned(), reply)].into();
    tables::print(&args(line).what, &answers)
}

/// Answers as `daemon` in `directory` until dropped.
fn serve(directory: &Path, daemon: &str, reply: impl Fn(&Command) -> Reply + 'static) {
    let path = daemon_common::paths::control_below(directory, daemon);
    let mut control = Control::bind(path).expect("bind");
    tokio::task::spawn_local(async move {
        loop {
            let request = control.next().await;
            let reply = reply(&request.command);
            request.reply(reply);
        }
    });
}

fn neighbor() -> Neighbor {
    Neighbor {
        name: "rr1".to_owned(),
        address: "10.0.0.1".parse().ok(),
        asn: 64512,
        role: "internal".to_owned(),
        state: "Established".to_owned(),
        since_s: Some(4000),
        families: vec![NeighborFamily {
            family: "ipv4-unicast".to_owned(),
            received: 12,
            accepted: 12,
            ..NeighborFamily::default()
        }],
        stale_for_s: Some(61),
        import: "deny (no policy, RFC 8212)".to_owned(),
        export: "accept".to_owned(),
        ..Neighbor::default()
    }
}

#[test]
fn report_of_one_neighbor_has_its_sent_limit() {
    let text = |sent, is_suppressing| {
        let mut one = neighbor();
        one.families[0].sent_limit = Some(5);
        one.families[0].sent = Some(sent);
        one.families[0].is_suppressing = is_suppressing;
        super::blocks::neighbor(&one)
    };
    assert!(
        text(4, false).contains("12 accepted, 4 sent, limit 5\n"),
        "{}",
        text(4, false)
    );
    let full = "5 sent, limit 5: further paths are suppressed\n";
    assert!(text(5, true).contains(full), "{}", text(5, true));
}

#[test]
fn report_of_one_neighbor_has_its_keys() {
    let key = Fact {
        name: "ttl_security".to_owned(),
        value: "2\u{1b}".to_owned(),
    };
    let text = super::blocks::neighbor(&Neighbor {
        keys: vec![key],
        ..neighbor()
    });
    let line = text.lines().find(|line| line.contains("ttl_security"));
    assert_eq!(
        line.and_then(|line| line.split_whitespace().nth(1)),
        Some("2\\u{1b}")
    );
}

#[test]
fn durations_have_two_units() {
    for (seconds, text) in [
        (0, "0s"),
        (59, "59s"),
        (61, "1m01s"),
        (3660, "1h01m"),
        (86_400 * 3 + 4 * 3600, "3d04h"),
    ] {
        assert_eq!(duration(seconds), text);
    }
}

#[test]
fn unix_time_is_a_date() {
    for (seconds, text) in [
        (0, "1970-01-01 00:00:00Z"),
        (951_782_399, "2000-02-28 23:59:59Z"),
        (951_782_400, "2000-02-29 00:00:00Z"),
        (951_868_800, "2000-03-01 00:00:00Z"),
        (1_709_251_199, "2024-02-29 23:59:59Z"),
        (4_107_542_400, "2100-03-01 00:00:00Z"),
    ] {
        assert_eq!(utc(seconds), text);
    }
}

#[test]
fn a_configuration_reads_like_a_file() {
    let key = |name: &str, value: &str| Fact {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let report = Settings {
        from: "/etc/cambric/bgp-client.toml and the store (in sync)".to_owned(),
        keys: vec![key("asn", "64512")],
        neighbors: vec![NeighborSettings {
            name: "Node_10_0_0_2".to_owned(),
            from: "BGPPeer tor".to_owned(),
            keys: vec![key("address", "10.0.0.2"), key("password", "set")],
            import: vec!["accept".to_owned()],
            export: vec!["pools: accept".to_owned(), "all else: deny".to_owned()],
        }],
        ranges: vec![],
        notes: vec!["bgppeers/x: spec.bfd: is not known here\u{1b}".to_owned()],
    };
    let expected = "\
# from /etc/cambric/bgp-client.toml and the store (in sync)
# note: bgppeers/x: spec.bfd: is not known here\\u{1b}
asn = 64512

[[neighbor]]  # from BGPPeer tor
name = Node_10_0_0_2
address = 10.0.0.2
password = set
import = accept
export =
    pools: accept
    all else: deny
";
    let text = shown("config", "bgp-client", Reply::Config(report));
    assert_eq!(text, expected);
}

#[test]
fn limits_table() {
    let limit = Limit {
        of: Some("10.0.0.0/24".to_owned()),
        met: Some(7),
        ..Limit::new("neighbors of a range", 200, "connections are refused")
            .level(150, 180)
            .key("neighbor_range.limit")
    };
    let plain = Limit::new("bytes waiting for one neighbor", 262_144, "it waits");
    let report = Limits {
        limits: vec![limit, plain],
    };
    let text = shown("limits", "route-reflector", Reply::Limits(report));
    let words = |line: usize| -> Vec<&str> {
        let line = text.lines().nth(line).expect("a line");
        line.split("  ")
            .map(str::trim)
            .filter(|w| !w.is_empty())
            .collect()
    };
    assert_eq!(
        words(1),
        [
            "neighbors of a range",
            "10.0.0.0/24",
            "200",
            "150",
            "180",
            "7",
            "neighbor_range.limit",
            "connections are refused"
        ]
    );
    assert_eq!(
        words(2),
        [
            "bytes waiting for one neighbor",
            "-",
            "262144",
            "-",
            "-",
            "-",
            "-",
            "it waits"
        ]
    );
}

#[test]
fn a_terminal_is_not_steered_from_afar() {
    assert_eq!(clean("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
}

#[test]
fn neighbors_table() {
    let ranges = vec![NeighborRange {
        prefix: "10.0.0.0/24".parse().ok(),
        used: 4,
        limit: 5,
        refused: 2,
        failed: [("garbage".to_owned(), 7), ("range full".to_owned(), 2)].into(),
    }];
    let report = Neighbors {
        neighbors: vec![neighbor()],
        ranges,
        ..Neighbors::default()
    };
    let text = shown("neighbors", "bgp-client", Reply::Neighbors(report.clone()));
    assert!(text.contains("ipv4 12 (stale, 1m01s left)"), "{text}");
    let mut resting = neighbor();
    (resting.stale_for_s, resting.barred_for_s) = (None, Some(300));
    let rests = shown(
        "neighbors",
        "bgp-client",
        Reply::Neighbors(Neighbors {
            neighbors: vec![resting],
            ..Neighbors::default()
        }),
    );
    assert!(
        rests.contains("ipv4 12 (prefix limit exceeded, idle hold 5m00s)"),
        "{rests}"
    );
    assert!(text.contains("1h06m"), "{text}");
    assert!(
        text.contains("rr1: import deny (no policy, RFC 8212)"),
        "{text}"
    );
    assert!(
        text.contains("range 10.0.0.0/24: 4 of 5 neighbors, 2 connections rejected"),
        "{text}"
    );
    assert!(
        text.contains("; failed handshakes: 7 garbage, 2 range full\n"),
        "{text}"
    );
    let block = shown("neighbors 10.0.0.1", "bgp-client", Reply::Neighbors(report));
    assert!(
        block.starts_with("rr1 (10.0.0.1), AS 64512, internal\n"),
        "{block}"
    );
}

#[test]
fn routes_table_has_the_reason_of_lost_paths() {
    let best = BgpPath {
        best: true,
        neighbor: "rr1".to_owned(),
        next_hop: Some("10.0.0.12".to_owned()),
        local_pref: Some(100),
        origin: "igp".to_owned(),
        ..BgpPath::default()
    };
    let lost = BgpPath {
        best: false,
        lost: Some("cluster-list-length".to_owned()),
        ..best.clone()
    };
    let route = Route {
        family: "ipv4-unicast".to_owned(),
        prefix: "10.65.0.2/32".to_owned(),
        paths: vec![best, lost],
    };
    let report = Routes {
        routes: vec![route],
        next: Some("x".to_owned()),
    };
    let text = shown("routes --why", "bgp-client", Reply::Routes(report.clone()));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with(">"), "{text}");
    assert!(lines[2].ends_with("cluster-list-length"), "{text}");
    assert!(text.contains("the first 1 routes"), "{text}");
    let answers: Answers = [("bgp-client".to_owned(), Reply::Routes(Routes::default()))].into();
    assert!(!found(&args("routes 10.9.9.9/32").what, &answers));
    let none = tables::print(&args("routes 10.9.9.9/32").what, &answers);
    assert_eq!(none, "no route to 10.9.9.9/32\n");
}

#[test]
fn shown_route_lists_receivers_of_its_paths() {
    let sent = |host: u8, path_id| SentTo {
        neighbor: format!("node{host}"),
        path_id,
    };
    let path = BgpPath {
        neighbor: "node1".to_owned(),
        path_id: Some(7),
        sent_to: (2..14)
            .map(|host| sent(host, None))
            .chain([sent(14, Some(65_537))])
            .collect(),
        ..BgpPath::default()
    };
    let route = Route {
        prefix: "10.65.0.2/32".to_owned(),
        paths: vec![path],
        ..Route::default()
    };
    let report = Routes {
        routes: vec![route],
        next: None,
    };
    let asked = "routes 10.65.0.2/32 --why";
    let text = shown(asked, "route-reflector", Reply::Routes(report));
    let lines: Vec<&str> = text.lines().rev().take(2).collect();
    assert_eq!(
        lines,
        [
            "path from node1 id 7 is sent with id 65537 to: node14",
            "path from node1 id 7 is sent to: node2, node3, node4, node5, node6, node7, node8, \
             node9 and 4 more",
        ]
    );
}

#[test]
fn unconfirmed_path_is_shown_with_its_reason_if_asked_why() {
    let path = BgpPath {
        neighbor: "node3".to_owned(),
        unconfirmed: Some("a record of node n2".to_owned()),
        ..BgpPath::default()
    };
    let route = Route {
        prefix: "10.65.2.9/32".to_owned(),
        paths: vec![path],
        ..Route::default()
    };
    let report = Routes {
        routes: vec![route],
        next: None,
    };
    let line = "10.65.2.9/32 from node3 is unconfirmed by the datastore: a record of node n2\n";
    let text = shown(
        "routes --why",
        "route-reflector",
        Reply::Routes(report.clone()),
    );
    assert!(text.ends_with(line), "{text}");
    let text = shown("routes", "route-reflector", Reply::Routes(report));
    assert!(!text.contains("unconfirmed"), "{text}");
}

#[test]
fn kernel_routes_show_next_hops_blackholes_and_shadow_run() {
    let hop = FibHop {
        gateway: "10.0.0.12".parse().ok(),
        interface: Some("eth0".into()),
        weight: 1,
    };
    let route = FibRoute {
        prefix: "10.65.0.2/32".parse().ok(),
        protocol: 119,
        state: "refused".to_owned(),
        error: Some("Network is unreachable".to_owned()),
        next_hops: vec![hop],
        ..FibRoute::default()
    };
    let block = FibRoute {
        prefix: "10.65.0.0/26".parse().ok(),
        kind: "blackhole".to_owned(),
        ..FibRoute::default()
    };
    let text = shown(
        "fib",
        "bgp-client",
        Reply::Fib(Fib {
            routes: vec![route, block],
            ..Fib::default()
        }),
    );
    assert!(text.contains("10.0.0.12 on eth0"), "{text}");
    let line = text.lines().find(|line| line.contains("10.65.0.0/26"));
    let via = line.and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(via, Some("blackhole"), "{text}");
    assert!(text.contains("not in sync; shadow run"), "{text}");
}

#[test]
fn endpoints_show_unclaimed_interfaces() {
    let endpoint = Endpoint {
        name: "prod/vm1".to_owned(),
        ..Endpoint::default()
    };
    let report = Endpoints {
        endpoints: vec![endpoint],
        in_sync: true,
        unclaimed: vec![UnclaimedInterface {
            interface: "cali9".into(),
            for_s: 12,
        }],
        ..Endpoints::default()
    };
    let text = shown("endpoints", "felix", Reply::Endpoints(report));
    assert!(text.contains("prod/vm1"), "{text}");
    assert!(
        text.contains("\ncali9: unclaimed for 12s: all its traffic is dropped"),
        "{text}"
    );
}

#[test]
fn one_endpoint_is_shown_by_any_of_its_names() {
    let endpoint = |n: u8| Endpoint {
        name: format!("prod/n1-k8s-web--{n}-eth0"),
        interface: format!("cali{n}"),
        ..Endpoint::default()
    };
    let report = Endpoints {
        endpoints: vec![endpoint(1), endpoint(2)],
        ..Endpoints::default()
    };
    let reply = || Reply::Endpoints(report.clone());
    for name in ["prod/n1-k8s-web--1-eth0", "prod/web-1", "cali1"] {
        let line = format!("endpoints {name}");
        let text = shown(&line, "felix", reply());
        assert!(text.contains("cali1") && !text.contains("cali2"), "{text}");
        let answers: Answers = [("felix".to_owned(), reply())].into();
        assert!(found(&args(&line).what, &answers));
        assert!(!found(&args("endpoints prod/x").what, &answers));
    }
    let text = shown("endpoints prod/x", "felix", reply());
    assert_eq!(text, "no endpoint prod/x\n");
}

#[test]
fn endpoint_is_shown_with_its_rules_in_order() {
    let command = args("endpoints prod/web --why").what.command();
    let endpoint = "prod/web".to_owned();
    assert_eq!(command, Command::EndpointRules { endpoint });
    assert!(Line::try_parse_from(["show", "endpoints", "--why"]).is_err());
    let policy = AppliedRules {
        tier: Some("default".to_owned()),
        name: "NetworkPolicy prod/db".to_owned(),
        selector: Some("role == \"db\"".to_owned()),
        rules: vec!["counter drop".to_owned()],
        end: "the next policy".to_owned(),
    };
    let tier = AppliedRules {
        tier: Some("default".to_owned()),
        name: "default action of the tier".to_owned(),
        end: "deny".to_owned(),
        ..AppliedRules::default()
    };
    let rules = EndpointRules {
        endpoint: Endpoint {
            name: "prod/web".to_owned(),
            state: "up".to_owned(),
            ..Endpoint::default()
        },
        egress: Vec::new(),
        ingress: vec![policy, tier],
    };
    let text = shown(
        "endpoints prod/web --why",
        "felix",
        Reply::EndpointRules(vec![rules]),
    );
    let (_, ingress) = text
        .split_once("  ingress, in order:\n")
        .expect("the direction");
    let wanted = "    tier default, NetworkPolicy prod/db (selector role == \"db\")\n      \
                  counter drop\n      else the next policy\n    tier default, default action of \
                  the tier: deny\n";
    assert_eq!(ingress, wanted);
}

#[test]
fn rules_show_their_chain_and_packets() {
    let rule = Rule {
        chain: "from-cali1".into(),
        text: "drop".into(),
        packets: Some(7),
    };
    let report = Rules {
        rules: vec![rule],
        in_sync: true,
        ..Rules::default()
    };
    let text = shown("rules", "felix", Reply::Rules(report));
    assert!(
        text.contains("chain from-cali1\n    drop  [7 packets]\nin sync"),
        "{text}"
    );
}

#[test]
fn status_shows_what_is_waited_for_and_a_bad_file() {
    let status = Status {
        daemon: "cambric-felix".to_owned(),
        configured_s: Some(182),
        waiting_for: vec!["store".to_owned(), "12 kernel routes".to_owned()],
        config_error: Some("error: unknown key".to_owned()),
        ..Status::default()
    };
    let text = shown("status", "felix", Reply::Status(status));
    assert!(
        text.contains("not ready: store; 12 kernel routes\n")
            && text.contains("error: unknown key"),
        "{text}"
    );
    assert!(text.contains("last change    3m02s ago\n"), "{text}");
}

#[tokio::test]
async fn pages_are_put_together() {
    let directory = tempfile::tempdir().expect("directory");
    let local = tokio::task::LocalSet::new();
    let pages = |command: &Command| {
        let Command::Routes { after, .. } = command else {
            return Reply::error("no");
        };
        let page: u32 = after
            .as_deref()
            .map_or(0, |after| after.parse().expect("a number"));
        let route = Route {
            prefix: format!("10.65.0.{}/32", 100 - page),
            ..Route::default()
        };
        Reply::Routes(Routes {
            routes: vec![route],
            next: (page < 4).then(|| (page + 1).to_string()),
        })
    };
    local
        .run_until(async {
            serve(directory.path(), "bgp-client", pages);
            let answers = ask(&args("routes --json"), directory.path())
                .await
                .expect("answers");
            let text = json(&answers).expect("json");
            let value: serde_json::Value = serde_json::from_str(&text).expect("json");
            assert_eq!(
                value["bgp-client"]["routes"].as_array().map(Vec::len),
                Some(5),
                "{text}"
            );
            // They came in falling order.
            assert_eq!(value["bgp-client"]["routes"][0]["prefix"], "10.65.0.96/32");
        })
        .await;
}

#[tokio::test]
async fn limit_cuts_tables_and_json() {
    let directory = tempfile::tempdir().expect("directory");
    let local = tokio::task::LocalSet::new();
    // Two pages of three routes.
    let pages = |command: &Command| {
        let Command::Routes { after, .. } = command else {
            return Reply::error("no");
        };
        let from = if after.is_some() { 3 } else { 0 };
        let route = |i| Route {
            prefix: format!("10.65.0.{i}/32"),
            paths: vec![BgpPath::default()],
            ..Route::default()
        };
        Reply::Routes(Routes {
            routes: (from..from + 3).map(route).collect(),
            next: (from == 0).then(|| "second".to_owned()),
        })
    };
    local
        .run_until(async {
            serve(directory.path(), "bgp-client", pages);
            for (line, wanted, cut) in [
                ("routes --limit 1", 1, true),
                ("routes --limit 3", 3, true),
                ("routes --limit 5", 5, true),
                ("routes --limit 6", 6, false),
                ("routes --limit 0", 6, false),
                ("routes", 6, false),
                ("routes --json --limit 4", 4, true),
                ("routes --json", 6, false),
            ] {
                let args = args(line);
                let answers = ask(&args, directory.path()).await.expect("answers");
                let Some(Reply::Routes(report)) = answers.get("bgp-client") else {
                    panic!("{answers:?}")
                };
                assert_eq!(report.routes.len(), wanted, "{line}");
                assert_eq!(report.next.is_some(), cut, "{line}");
                let text = tables::print(&args.what, &answers);
                let rows = text
                    .lines()
                    .filter(|line| line.contains("10.65.0."))
                    .count();
                assert_eq!(rows, wanted, "{line}: {text}");
                let note = format!("the first {wanted} routes; --limit 0 shows all");
                assert_eq!(text.contains(&note), cut, "{line}: {text}");
            }
        })
        .await;
}

#[test]
fn help_has_the_number_of_routes_shown() {
    let help = <Line as clap::CommandFactory>::command()
        .find_subcommand_mut("routes")
        .expect("routes")
        .render_help()
        .to_string();
    let number = format!("[default: {}, in JSON all]", super::ROUTES_SHOWN);
    assert!(help.contains(&number), "{help}");
}

#[tokio::test]
async fn unanswered_command_is_reported_with_remedy() {
    let directory = tempfile::tempdir().expect("directory");
    let error = ask(&args("endpoints"), directory.path())
        .await
        .expect_err("nobody")
        .to_string();
    assert!(
        error.contains("/cambric-felix/felix.sock") && error.contains("--socket"),
        "{error}"
    );
    let socket = daemon_common::paths::control_below(directory.path(), "felix");
    std::fs::create_dir(socket.parent().expect("a directory")).expect("made");
    drop(std::os::unix::net::UnixListener::bind(socket).expect("a socket"));
    let error = ask(&args("fib"), directory.path())
        .await
        .expect_err("dead")
        .to_string();
    assert!(
        error.contains("no answer; the daemon has stopped"),
        "{error}"
    );
    let error = ask(&args("fib --socket /no/such.sock"), directory.path())
        .await
        .expect_err("absent");
    assert!(
        error.to_string().contains("/no/such.sock: no such socket"),
        "{error}"
    );
}

#[test]
fn address_of_show_routes_is_a_lookup_and_a_prefix_is_not() {
    let command = |destination: &str| {
        let what = What::Routes {
            prefix: Some(destination.parse().expect("a destination")),
            why: true,
            limit: None,
        };
        what.command()
    };
    for address in ["10.65.0.2", "fd00::1"] {
        let expected = Command::Lookup {
            address: address.parse().expect("an address"),
            why: true,
        };
        assert_eq!(command(address), expected);
    }
    let exact = command("10.65.0.0/26");
    assert!(
        matches!(
            exact,
            Command::Routes {
                prefix: Some(_),
                ..
            }
        ),
        "{exact:?}"
    );
    for wrong in ["10.65.0", "10.65.0.0/33", "rr1", ""] {
        assert!(wrong.parse::<Destination>().is_err(), "{wrong}");
    }
}
