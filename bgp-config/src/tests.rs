use std::net::IpAddr;

use bgp_fsm::PeerAs;
use bgp_proto::{Asn, Family, FamilySet};
use bgp_speaker::{LimitAction, PrefixLimit, no_policy};
use rib::{NextHopMode, NextHops, Policy, Role, SendPaths};
use serde::Deserialize;

use crate::{BgpFile, Intent, NoKernel, Source, is_shown};

mod families;
mod secrets;

const HEAD: &str = "asn = 64512\nrouter_id = \"10.0.0.11\"\n";

fn read(rest: &str) -> Result<(BgpFile<NoKernel>, Intent), String> {
    let source = Source::new("bgp.toml", format!("{HEAD}{rest}")).showing(is_shown);
    BgpFile::read(&source, NextHops::AssumeReachable).map_err(|report| report.to_string())
}

fn good(rest: &str) -> Intent {
    read(rest).unwrap_or_else(|report| panic!("{report}")).1
}

/// Returns the report of an invalid file; the report must point at `place` ("line:column").
fn bad(rest: &str, place: &str) -> String {
    let report = read(rest)
        .err()
        .unwrap_or_else(|| panic!("accepted: {rest}"));
    assert!(
        report.contains(&format!("bgp.toml:{place}")),
        "{place} not in\n{report}"
    );
    report
}

#[test]
fn the_shortest_file_is_enough() {
    let (file, intent) = read("").expect("good");
    assert_eq!(intent.listen.len(), 2);
    assert!(file.control.is_none());
    let speaker = intent.speaker;
    assert_eq!(speaker.local_asn, Asn(64512));
    assert!(speaker.families.contains(Family::IPV4_UNICAST));
    assert!(speaker.families.contains(Family::IPV6_UNICAST));
    assert_eq!(speaker.multipath_max, 1);
    assert!(speaker.peers.is_empty() && intent.notes.is_empty());
}

#[test]
fn every_neighbor_key_reaches_the_speaker() {
    let intent = good(
        r#"
        multipath = 8
        next_hop_ipv6 = "fd00::11"
        cluster_id = "10.0.0.9"
        hostname = "node1"
        restart_wait = 45
        [[neighbor]]
        name = "rr1"
        address = "10.0.0.1"
        port = 1179
        source = "10.0.0.11"
        passive = true
        asn = "64512"
        hold_time = 9
        connect_retry = 3
        handshake_time = 20
        families = ["ipv4-unicast"]
        import = "deny"
        export = "accept"
        next_hop = "self"
        ttl_security = true
        password = "secret"
        route_reflector_client = true
        cluster_id = "10.0.0.8"
        graceful_restart = 60
        add_path = "receive"
        extended_messages = true
        extended_next_hop = true
        "#,
    );
    assert_eq!(intent.speaker.multipath_max, 8);
    assert_eq!(intent.restart_wait.as_secs(), 45);
    assert_eq!(intent.speaker.cluster_ids().len(), 2);
    let peer = &intent.speaker.peers[0];
    assert_eq!((peer.name.as_str(), peer.port), ("rr1", 1179));
    assert_eq!(peer.local, Some(IpAddr::from([10, 0, 0, 11])));
    assert_eq!((peer.role, peer.next_hop), (Role::Client, NextHopMode::Own));
    assert_eq!(
        (&peer.import, &peer.export),
        (&Policy::RejectAll, &Policy::AcceptAll)
    );
    assert_eq!(peer.ttl_security_hops, Some(1));
    assert_eq!(peer.password.as_deref(), Some("secret"));
    let session = &peer.session;
    assert!(session.passive && session.extended_messages && session.extended_next_hop);
    assert_eq!((session.hold_time_s, session.connect_retry_s), (9, 3));
    assert_eq!(session.handshake_s, 20);
    assert_eq!(session.peer_asn, PeerAs::Exactly(Asn(64512)));
    assert!(!session.families.contains(Family::IPV6_UNICAST));
    assert!(session.add_path_receive.contains(Family::IPV4_UNICAST));
    assert_eq!(
        session
            .graceful_restart
            .as_ref()
            .map(|restart| restart.time_s),
        Some(60)
    );
    assert_eq!(session.hostname.as_deref(), Some("node1"));
}

#[test]
fn paths_to_send_are_chosen_for_all_families_or_for_each() {
    let peer = |keys: &str| {
        let text = format!("[[neighbor]]\naddress = \"10.0.0.1\"\nasn = 64512\n{keys}");
        good(&text).speaker.peers.remove(0)
    };
    let both = |send| [Family::IPV4_UNICAST, Family::IPV6_UNICAST].map(|family| (family, send));
    for (keys, receive, send) in [
        ("", false, vec![]),
        ("add_path = \"off\"", false, vec![]),
        ("add_path = \"receive\"", true, vec![]),
        ("add_path = \"send\"", false, both(SendPaths::All).to_vec()),
        (
            "add_path = \"both\"\nadd_path_send = \"equal-cost\"",
            true,
            both(SendPaths::EqualCost).to_vec(),
        ),
        (
            "add_path = \"send\"\nadd_path_send = 4",
            false,
            both(SendPaths::Best(4)).to_vec(),
        ),
        (
            "add_path = \"send\"\nadd_path_send = { ipv6-unicast = \"all\" }",
            false,
            vec![(Family::IPV6_UNICAST, SendPaths::All)],
        ),
        (
            "families = [\"ipv4-unicast\"]\nadd_path = \"send\"",
            false,
            vec![(Family::IPV4_UNICAST, SendPaths::All)],
        ),
    ] {
        let peer = peer(keys);
        let session = &peer.session;
        let offered = if receive {
            session.families
        } else {
            FamilySet::default()
        };
        assert_eq!(session.add_path_receive, offered, "{keys}");
        assert_eq!(peer.send_paths, send.iter().copied().collect(), "{keys}");
        let families = send.iter().map(|&(family, _)| family).collect();
        assert_eq!(session.add_path_send, families, "{keys}");
    }
}

#[test]
fn prefix_limits_are_by_family() {
    let intent = good(
        r#"
        [[neighbor]]
        address = "10.0.0.1"
        asn = 64512
        [[neighbor.prefix_limit]]
        families = ["ipv4-unicast"]
        max = 1000
        warn = 90
        action = "restart"
        restart_after = 30
        [[neighbor.prefix_limit]]
        families = ["ipv6-unicast"]
        max = 50
        [[neighbor_range]]
        prefix = "10.0.1.0/24"
        limit = 5
        asn = 64512
        prefix_limit = [{ max = 64, action = "warn" }]
        "#,
    );
    let limits = intent.speaker.peers[0].prefix_limits.by_family();
    let v4 = PrefixLimit::new(1000)
        .with_warning(90)
        .with_action(LimitAction::Restart { after_s: 30 });
    let v6 = PrefixLimit::new(50).with_warning(75);
    assert_eq!(limits[&Family::IPV4_UNICAST], v4);
    assert_eq!(limits[&Family::IPV6_UNICAST], v6);
    let limits = intent.speaker.ranges[0].template.prefix_limits.by_family();
    assert_eq!(limits.len(), 2, "every family");
    assert!(
        limits
            .values()
            .all(|limit| limit.action == LimitAction::Warn)
    );
}

#[test]
fn prefix_limit_has_a_default_and_0_is_no_limit() {
    let limit = |keys: &str| {
        let intent = good(&format!(
            "[[neighbor]]\naddress = \"10.0.0.1\"\nasn = 64512\n{keys}"
        ));
        let limits = &intent.speaker.peers[0].prefix_limits;
        let max = |family| limits.get(family).map(|limit| (limit.max, limit.action));
        let both = [Family::IPV4_UNICAST, Family::IPV6_UNICAST].map(max);
        (both, intent.notes)
    };
    let drop = |max| Some((max, LimitAction::Drop));
    assert_eq!(limit(""), ([drop(2_000_000); 2], vec![]));
    assert_eq!(limit("prefix_limit = 500"), ([drop(500); 2], vec![]));
    let of_one = "prefix_limit = [{ max = 7, families = [\"ipv4-unicast\"] }]";
    assert_eq!(limit(of_one), ([drop(7), drop(2_000_000)], vec![]));
    let note = "neighbor 10.0.0.1: prefix_limit = 0: the number of its routes is not limited";
    assert_eq!(
        limit("prefix_limit = 0"),
        ([None; 2], vec![note.to_owned()])
    );
}

#[test]
fn sent_limits_are_by_family_and_have_no_default() {
    let limit = |keys: &str| {
        let intent = good(&format!(
            "[[neighbor]]\naddress = \"10.0.0.1\"\nasn = 64512\n{keys}"
        ));
        let limits = &intent.speaker.peers[0].prefix_limits_out;
        let max = |family| {
            limits
                .get(family)
                .map(|limit| (limit.max, limit.warn_percent))
        };
        [Family::IPV4_UNICAST, Family::IPV6_UNICAST].map(max)
    };
    assert_eq!(limit(""), [None; 2]);
    assert_eq!(limit("prefix_limit_out = 0"), [None; 2]);
    assert_eq!(limit("prefix_limit_out = 500"), [Some((500, 75)); 2]);
    let of_one = "[[neighbor.prefix_limit_out]]\nmax = 7\nwarn = 50\nfamilies = [\"ipv6\"]";
    assert_eq!(limit(of_one), [None, Some((7, 50))]);
}

#[test]
fn no_log_shows_a_password() {
    let (file, _) =
        read("[[neighbor]]\naddress = \"::1\"\nasn = 7\npassword = \"hush-hush\"\n").expect("good");
    assert!(!format!("{file:?}").contains("hush"));
}

// Promise (BGP): An external neighbor without a policy neither sends nor receives routes (RFC
// 8212).
#[test]
fn external_without_policy_is_denied_and_flagged() {
    let neighbor = "[[neighbor]]\nname = \"tor\"\naddress = \"10.0.0.1\"\nasn = 65001\n";
    let intent = good(neighbor);
    let peer = &intent.speaker.peers[0];
    assert_eq!(peer.role, Role::External);
    assert_eq!((&peer.import, &peer.export), (&no_policy(), &no_policy()));
    assert_eq!(intent.notes.len(), 1);
    let note = &intent.notes[0];
    assert!(
        note.contains("neighbor tor") && note.contains("RFC 8212"),
        "{note}"
    );

    let intent = good(&format!("{neighbor}import = \"accept\"\n"));
    assert_eq!(intent.speaker.peers[0].import, Policy::AcceptAll);
    assert_eq!(intent.speaker.peers[0].export, no_policy());
    assert!(
        intent.notes[0].contains("export policy"),
        "{:?}",
        intent.notes
    );

    let intent = good(&format!(
        "{neighbor}import = \"accept\"\nexport = \"deny\"\n"
    ));
    assert!(intent.notes.is_empty());
}

#[test]
fn internal_needs_no_policy() {
    let intent = good("[[neighbor]]\naddress = \"10.0.0.1\"\nasn = \"internal\"\n");
    let peer = &intent.speaker.peers[0];
    assert_eq!(
        (peer.role, &peer.import),
        (Role::Internal, &Policy::AcceptAll)
    );
    assert_eq!((peer.name.as_str(), peer.port), ("10.0.0.1", 179));
    assert!(intent.notes.is_empty());
}

#[test]
fn ranges_are_passive_and_most_specific_first() {
    let intent = good(
        r#"
        [[neighbor_range]]
        prefix = "10.0.0.0/8"
        asn = "external"
        import = "accept"
        export = "accept"
        limit = 5
        [[neighbor_range]]
        prefix = "10.0.0.0/24"
        asn = 64512
        limit = 1000
        route_reflector_client = true
        "#,
    );
    let ranges = &intent.speaker.ranges;
    assert_eq!(
        (ranges[0].name.as_str(), ranges[0].limit),
        ("10.0.0.0/24", 1000)
    );
    assert_eq!(ranges[0].template.role, Role::Client);
    assert!(ranges.iter().all(|range| range.template.session.passive));
    assert_eq!(ranges[1].template.session.peer_asn, PeerAs::External);
    assert!(ranges[0].covers(IpAddr::from([10, 0, 0, 7])));
}

/// Mistakes with their places and messages. A semicolon stands for the end of a line, a word in
/// capitals for a valid section.
const MISTAKES: &str = r#"
NEIGHBOR hold_time = 2                                            | 6:13 | 0 or at least 3
NEIGHBOR keepalive = 90                                           | 6:13 | not below the hold time of 90
NEIGHBOR hold_time = 0; keepalive = 5                             | 7:13 | no KEEPALIVE is sent
log = "verbose"; NEIGHBOR                                         | 3:7  | not a level
NEIGHBOR add_path = "sned"                                        | 6:12 | did you mean `send`?
NEIGHBOR add_path_send = 2                                        | 6:17 | set add_path to
NEIGHBOR add_path = "send"; add_path_send = 65                    | 7:17 | 1 to 64 can be sent
NEIGHBOR add_path = "send"; add_path_send = "ecmp"                | 7:17 | "equal-cost", or how many
NEIGHBOR add_path = "send"; add_path_send = { ipv4-unicast = 0 }  | 7:34 | 1 to 64 can be sent
NEIGHBOR add_path = "send"; add_path_send = { l2vpn-evpn = 2 }    | 7:19 | no table for l2vpn-evpn
restart_wait = 9999; NEIGHBOR                                     | 3:16 | at most 3600
registration_ttl = 15; NEIGHBOR                                   | 3:20 | no [datastore]
absence_wait = 60; NEIGHBOR                                       | 3:16 | no [datastore]
origin_validation = "warn"; NEIGHBOR                              | 3:21 | no [datastore]
origin_validation = "enforce"; NEIGHBOR                           | 3:21 | no [datastore]
privileges = "dropp"; NEIGHBOR                                    | 3:14 | one of "drop" and "keep"
origin_validation = "wran"; NEIGHBOR                              | 3:21 | one of "off", "warn" and "enforce"
NEIGHBOR prefix_limit = "many"                                    | 6:16 | 0 for no limit, or a list of tables
NEIGHBOR prefix_limit = [{ max = 0 }]                             | 6:25 | at least 1
NEIGHBOR prefix_limit = [{ max = 9, warn = 101 }]                 | 6:35 | 1 to 100
NEIGHBOR prefix_limit = [{ max = 9, restart_after = 5 }]          | 6:44 | action = "restart"
NEIGHBOR prefix_limit = [{ max = 9 }, { max = 8 }]                | 6:30 | a second limit for ipv4-unicast
NEIGHBOR prefix_limit_out = -1                                    | 6:20 | 0 for no limit, or a list of tables
NEIGHBOR prefix_limit_out = [{ max = 9, action = "drop" }]        | 6:32 | unknown key `action`
NEIGHBOR cluster_id = "10.0.0.8"                                  | 6:14 | only a route reflector client
NEIGHBOR hold_tiem = 9                                            | 6:1  | did you mean `hold_time`?
NEIGHBOR families = ["ipv4-unicats"]                              | 6:13 | unknown family
NEIGHBOR import = "acept"                                         | 6:10 | did you mean `accept`?
NEIGHBOR ttl_security = 255                                       | 6:16 | 1 to 254
NEIGHBOR graceful_restart = 4096                                  | 6:20 | at most 4095
NEIGHBOR source = "fd00::1"                                       | 6:10 | different IP versions
NEIGHBOR source = "10.0.0.1"                                      | 6:10 | no neighbor of itself
NEIGHBOR password = ""                                            | 6:12 | 1 to 80
NEIGHBOR port = 0                                                 | 6:8  | from 1 to 65535
NEIGHBOR connect_retry = 0                                        | 6:17 | at least 1 second
NEIGHBOR handshake_time = 0                                       | 6:18 | from 1 to 240 seconds
RANGE limit = 5; prefix = "10.0.0.0/24"; handshake_time = 241     | 7:18 | from 1 to 240 seconds
EXTERNAL route_reflector_client = true                            | 6:26 | local AS
NEIGHBOR EXTERNAL                                                 | 7:11 | neighbor 10.0.0.1 is given twice
families = ["ipv4-unicast"]; NEIGHBOR families = ["ipv6-unicast"] | 7:13 | no table
RANGE limit = 5; prefix = "10.0.0.7/24"                           | 6:10 | did you mean 10.0.0.0/24?
RANGE limit = 0; prefix = "10.0.0.0/24"                           | 5:9  | from 1 to 65535
RANGE prefix = "10.0.0.0/24"                                      | 3:1  | missing key `limit`
[[neighbor]]; address = "224.0.0.1"; asn = 1                      | 4:11 | not a unicast
[[neighbor]]; address = "fe80::1"; asn = 1                        | 4:11 | link-local
[[neighbor]]; address = "10.0.0.1"; asn = 0                       | 5:7  | AS number
[[neighbor]]; address = "10.0.0.1"; asn = 23456                   | 5:7  | AS number
multipath = 0                                                     | 3:13 | 1 to 256
memory_max = 1048575                                              | 3:14 | at least 1048576
memory_max = "1GB"                                                | 3:14 | as 1073741824
memory_max = "99999999T"                                          | 3:14 | number of bytes
families = []; multipath = 0                                      | 4:13 | 1 to 256
cluster_id = "0.0.0.0"                                            | 3:14 | not a cluster
next_hop_ipv4 = "0.0.0.0"                                         | 3:17 | not a unicast
listen = ["0.0.0.0:179", "0.0.0.0:179"]                           | 3:26 | twice
[kernel]; install = true                                          | 3:1  | never writes a route
"#;

// Promise (Daemons): A mistake in a configuration is reported with its place, and the running
// daemon keeps the last valid one.
#[test]
fn mistakes_are_reported_with_their_place() {
    for row in MISTAKES.trim().lines() {
        let cells: Vec<&str> = row.split(" | ").map(str::trim).collect();
        let [mistake, place, expected] = cells[..] else {
            panic!("not three cells: {row}");
        };
        let text = mistake
            .replace(
                "NEIGHBOR",
                "[[neighbor]]; address = \"10.0.0.1\"; asn = 64512;",
            )
            .replace(
                "EXTERNAL",
                "[[neighbor]]; address = \"10.0.0.1\"; asn = 65001;",
            )
            .replace("RANGE", "[[neighbor_range]]; asn = 64512;")
            .replace("; ", "\n");
        let text = text.trim_end_matches(';');
        let report = bad(&format!("{text}\n"), place);
        assert!(report.contains(expected), "{expected:?} not in\n{report}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let report = bad(
        "multipath = 999\n[[neighbor]]\naddress = \"10.0.0.1\"\nasn = 64512\nhold_time = 1\n",
        "3:13",
    );
    assert!(report.contains("bgp.toml:7:13"), "{report}");
}

#[test]
fn names_are_unique_even_against_addresses() {
    let report = bad(
        "[[neighbor]]\naddress = \"10.0.0.1\"\nasn = 64512\n\
         [[neighbor]]\nname = \"10.0.0.1\"\naddress = \"10.0.0.2\"\nasn = 64512\n",
        "7:8",
    );
    assert!(
        report.contains("the name 10.0.0.1 is given twice"),
        "{report}"
    );
}

#[test]
fn a_daemon_brings_its_own_kernel_section() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Kernel {
        install: bool,
    }
    let source = Source::new("bgp.toml", format!("{HEAD}[kernel]\ninstall = true\n"));
    let (file, _) = BgpFile::<Kernel>::read(&source, NextHops::Track).expect("good");
    assert!(file.kernel.expect("given").install);
    let source = Source::new("bgp.toml", format!("{HEAD}[kernel]\ninstal = true\n"));
    let report = BgpFile::<Kernel>::read(&source, NextHops::Track)
        .expect_err("typo")
        .to_string();
    assert!(report.contains("did you mean `install`?"), "{report}");
}

/// The first file on the operator's page of the reflector.
#[test]
fn the_file_of_the_reflectors_page_is_good() {
    const PAGE: &str = "docs/operate/route-reflector.md";
    let page = include_str!("../../docs/operate/route-reflector.md");
    let files = page
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let files: Vec<&str> = files.filter(|file| file.contains("router_id")).collect();
    assert!(!files.is_empty());
    for file in files {
        let source = Source::new(PAGE, file);
        let read = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable);
        let (_, intent) = read.unwrap_or_else(|report| panic!("{report}"));
        assert!(intent.notes.is_empty());
    }
}
