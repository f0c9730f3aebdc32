//! The flow log, with real packets. Needs root and `CAMBRIC_LAB=1`.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Instant;

use daemon_common::command::FlowQuery;
use daemon_common::report::{FlowRow, Flows, Status};
use daemon_common::{Command, Reply};
use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};

use crate::world::host::{Host, PATIENCE, RESOURCES, key, workload};
use crate::world::process::{Process, served};
use crate::world::{Workload, lab, packet, run, sysctl};

/// `IPPROTO_RAW`: packets contain their IP header.
const RAW: i32 = 255;
const UDP: u8 = 17;

fn flows(host: &Host, query: &FlowQuery) -> Flows {
    match host.ask(&Command::Flows(query.clone())) {
        Reply::Flows(flows) => flows,
        other => panic!("{other:?}"),
    }
}

fn status(host: &Host) -> Status {
    match host.ask(&Command::Status {}) {
        Reply::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

fn enable(host: &Host) {
    host.configure(&json!({"flowLogsLocalReporter": "Enabled"}));
    host.until("the rules report", || {
        run("nft list table inet cambric-felix").contains("group 80")
    });
}

fn policy(host: &Host, name: &str, spec: &Value) {
    let value = json!({"metadata": {"name": name}, "spec": spec});
    host.put(&format!("{RESOURCES}globalnetworkpolicies/{name}"), &value);
}

/// Sends datagrams with one octet, this number of times from each of this number of ports.
fn send(from: &Workload, to: &str, port: u16, ports: usize, times: usize) {
    let to = SocketAddr::new(to.parse().unwrap(), port);
    let own = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    from.namespace.within(|| {
        // All at once: a closed port may be used again.
        let sockets: Vec<_> = (0..ports).map(|_| UdpSocket::bind(own).unwrap()).collect();
        for socket in &sockets {
            for _ in 0..times {
                socket.send_to(b"x", to).unwrap();
            }
        }
    });
}

/// Returns a row in short: ends, port, rules, verdict, cause; flows, counted flows, packets, bytes.
fn short(row: &FlowRow) -> (String, [Option<u64>; 4]) {
    let end = |name: &str| name.trim_start_matches("ns/n1-k8s-").replace("-eth0", "");
    let parts = [row.by.list.as_deref(), row.by.rule.as_deref()];
    let cause: Vec<&str> = parts.into_iter().flatten().collect();
    let cause = match cause.is_empty() {
        true => row.by.words.clone(),
        false => cause.join(" "),
    };
    let text = format!(
        "{} > {} {} {} {} {cause}",
        end(&row.source.name),
        end(&row.destination.name),
        row.port.unwrap_or_default(),
        row.direction,
        if row.allowed { "allow" } else { "deny" },
    );
    let counts = [Some(row.flows), Some(row.counted), row.packets, row.bytes];
    (text, counts)
}

fn wait_for(host: &Host, wanted: &[(&str, [Option<u64>; 4])]) {
    let mut wanted: Vec<_> = wanted
        .iter()
        .map(|(text, counts)| ((*text).to_owned(), *counts))
        .collect();
    wanted.sort();
    let rows = || {
        let flows = flows(host, &FlowQuery::default()).flows;
        let mut rows: Vec<_> = flows.iter().map(short).collect();
        rows.sort();
        rows
    };
    wait_equal(rows, &wanted);
}

/// Waits until a value is the wanted one.
fn wait_equal<T: PartialEq + std::fmt::Debug>(value: impl Fn() -> T, wanted: &T) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = value();
        if found == *wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{found:#?} is not {wanted:#?}");
    }
}

/// Returns the chains and rules of the kernel, in any order.
fn rules() -> Vec<String> {
    let listed = run("nft -s -t list table inet cambric-felix");
    let lines = listed.lines().filter(|line| !line.contains("elements"));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Four workloads: a policy applies to the second, none to the others, and the fourth has no profile.
fn world() -> (Host, Vec<Workload>) {
    sysctl("netfilter/nf_conntrack_acct", "1");
    let host = Host::new();
    let workloads: Vec<Workload> = (1..=4).map(workload).collect();
    let port = |port: u16| json!({"ports": [port]});
    let ingress = json!([
        {"action": "Allow", "protocol": "UDP", "destination": port(8080)},
        {"action": "Deny", "protocol": "UDP", "destination": port(53)}]);
    policy(
        &host,
        "web",
        &json!({"selector": "role == 'web'", "ingress": ingress}),
    );
    for n in 1..=4 {
        let labels = json!({"role": if n == 2 { "web" } else { "other" }});
        let spec = match n {
            4 => json!({"profiles": []}),
            _ => json!({}),
        };
        host.endpoint_with(n, &labels, &spec);
    }
    (1..=4).for_each(|n| host.wait_up(&format!("cali{n}")));
    (host, workloads)
}

// Promise (Felix): The flow log counts each flow with the policy or profile that allows or denies it.
#[test]
fn flow_log_counts_flows_by_verdict_and_cause() {
    lab("flow_log_counts_flows_by_verdict_and_cause", || {
        let (host, workloads) = world();
        let [one, two, three, _] = &*workloads else {
            panic!("four workloads");
        };
        let before = rules();
        enable(&host);
        let _servers: Vec<UdpSocket> = [two, three]
            .into_iter()
            .map(|of| {
                of.namespace
                    .within(|| UdpSocket::bind("[::]:8080").unwrap())
            })
            .collect();
        send(one, "10.65.0.2", 8080, 3, 1);
        send(one, "10.65.0.2", 53, 2, 2);
        send(one, "10.65.0.2", 54, 1, 1);
        send(one, "10.65.0.3", 8080, 1, 2);
        send(one, "10.65.0.4", 8080, 1, 1);
        send(one, "fd65::2", 8080, 1, 1);
        let (open, some) = ([None; 2], |number: u64| Some(number));
        let uncounted = |flows| [some(flows), some(0), open[0], open[1]];
        let denied = |flows, packets| [some(flows), some(flows), some(packets), some(29 * packets)];
        let out = "egress allow Profile projectcalico-default-allow";
        let texts = [
            format!("p1 > p2 8080 {out}"),
            format!("p1 > p2 53 {out}"),
            format!("p1 > p2 54 {out}"),
            format!("p1 > p3 8080 {out}"),
            format!("p1 > p4 8080 {out}"),
        ];
        let [to_2, to_53, to_54, to_3, to_4] = &texts;
        let allowed = "p1 > p2 8080 ingress allow GlobalNetworkPolicy web ingress[0]";
        let rest = [
            (to_53.as_str(), uncounted(2)),
            (to_54.as_str(), uncounted(1)),
            (to_3.as_str(), uncounted(1)),
            (to_4.as_str(), uncounted(1)),
            (
                "p1 > p2 53 ingress deny GlobalNetworkPolicy web ingress[1]",
                denied(2, 4),
            ),
            (
                "p1 > p2 54 ingress deny tier default: no policy decides",
                denied(1, 1),
            ),
            (
                "p1 > p3 8080 ingress allow Profile projectcalico-default-allow",
                uncounted(1),
            ),
            (
                "p1 > p4 8080 ingress deny no profile or policy",
                denied(1, 1),
            ),
        ];
        let mut all = rest.to_vec();
        all.extend([(to_2.as_str(), uncounted(4)), (allowed, uncounted(4))]);
        wait_for(&host, &all);

        // Felix deletes the connections of a deleted endpoint: their packets are counted. One flow was
        // one of IPv6.
        host.delete(&key("p2"));
        let counted = [some(4), some(4), some(4), some(3 * 29 + 49)];
        let mut all = rest.to_vec();
        all.extend([(to_2.as_str(), counted), (allowed, counted)]);
        wait_for(&host, &all);
        let of = |query: FlowQuery| flows(&host, &query).flows.len();
        let policy = |name: &str| FlowQuery {
            policy: Some(name.to_owned()),
            ..FlowQuery::default()
        };
        assert_eq!(of(policy("web")), 2);
        assert_eq!(of(policy("Profile projectcalico-default-allow")), 6);
        let endpoint = Some("ns/p3".to_owned());
        let only = FlowQuery {
            endpoint,
            allowed: Some(true),
            ..FlowQuery::default()
        };
        assert_eq!(of(only), 2);
        let figures = flows(&host, &FlowQuery::default()).figures;
        assert_eq!((figures.lost, figures.foreign), (0, 0));

        host.endpoint_with(2, &json!({"role": "web"}), &json!({}));
        host.wait_up("cali2");
        host.configure(&json!({}));
        wait_equal(rules, &before);
        let off = flows(&host, &FlowQuery::default());
        assert!(!off.enabled && off.flows.is_empty(), "{off:#?}");
    });
}

// Promise (Felix): If the records of the flow log are not read in time, they are lost and counted, and
// packets pass or are dropped as without the flow log.
#[test]
fn flood_of_flows_is_counted_and_stops_no_packet() {
    lab("flood_of_flows_is_counted_and_stops_no_packet", || {
        const FLOOD: u32 = 200_000;
        let (host, store) = served();
        // All packets are reported.
        let felix = Process::start(&host, &store, "flow_log.records_per_second = 0\n");
        let (one, two) = (workload(1), workload(2));
        (1..=2).for_each(|n| host.endpoint_with(n, &json!({"n": n.to_string()}), &json!({})));
        let egress = json!([
            {"action": "Deny", "protocol": "UDP", "destination": {"ports": [53]}},
            {"action": "Allow"}]);
        policy(
            &host,
            "p",
            &json!({"selector": "n == '1'", "egress": egress}),
        );
        host.until("the socket answers", || host.socket().exists());
        (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
        enable(&host);
        let denied = || {
            let query = FlowQuery {
                allowed: Some(false),
                ..FlowQuery::default()
            };
            let found = flows(&host, &query);
            let packets: u64 = found.flows.iter().filter_map(|row| row.packets).sum();
            (packets, found.figures.lost)
        };
        let before = dropped("po-gnp/p");
        run(&format!("kill -STOP {}", felix.id()));
        flood(&one, FLOOD);
        // No program reads the records, and a new connection passes.
        assert!(one.namespace.pings("10.65.0.2") && two.namespace.pings("10.65.0.1"));
        assert_eq!(dropped("po-gnp/p") - before, u64::from(FLOOD));
        run(&format!("kill -CONT {}", felix.id()));
        // An answer reads all records that wait.
        let records = || flows(&host, &FlowQuery::default()).figures.records;
        host.until("all records that fit are read", || {
            let first = records();
            first > 0 && first == records()
        });
        // The gap in the numbers of records is known with the next record.
        flood(&one, 1);
        let all = || {
            let figures = flows(&host, &FlowQuery::default()).figures;
            (
                figures.lost > 0,
                figures.records + figures.lost == reported(),
            )
        };
        wait_equal(all, &(true, true));
        // An answer waits for a limited time until records are entered; the others follow.
        host.until("each denied packet is in a row or lost", || {
            let (packets, lost) = denied();
            packets > 0 && packets + lost > u64::from(FLOOD)
        });
    });
}

// Promise (Felix): Beyond the limit of records of the flow log, the kernel makes no record. The packets are
// counted, and pass or are dropped as without the flow log.
#[test]
fn packets_beyond_the_limit_of_records_are_counted() {
    lab("packets_beyond_the_limit_of_records_are_counted", || {
        const FLOOD: u32 = 5_000;
        let (host, store) = served();
        let felix = Process::start(&host, &store, "flow_log.records_per_second = 1\n");
        let (one, two) = (workload(1), workload(2));
        host.until("the socket answers", || host.socket().exists());
        (1..=2).for_each(|n| host.endpoint_with(n, &json!({"n": n.to_string()}), &json!({})));
        let egress = json!([
            {"action": "Deny", "protocol": "UDP", "destination": {"ports": [53]}},
            {"action": "Allow"}]);
        policy(
            &host,
            "p",
            &json!({"selector": "n == '1'", "egress": egress}),
        );
        (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
        enable(&host);
        flood(&one, FLOOD);
        // An allowed connection of the same interface passes without a record.
        assert!(one.namespace.pings("10.65.0.2") && two.namespace.pings("10.65.0.1"));
        let (reported, unsent) = (dropped("po-gnp/p"), dropped("flow-unsent-drop"));
        assert_eq!(reported + unsent, u64::from(FLOOD));
        assert!(reported > 0 && unsent > 0, "{reported} {unsent}");
        let all = || {
            ["accept", "drop", "reject"]
                .map(|verdict| packets_in(&format!("flow-unsent-{verdict}")))
                .into_iter()
                .sum::<u64>()
        };
        let figures = || flows(&host, &FlowQuery::default()).figures;
        wait_equal(|| figures().unsent == all() && all() >= unsent, &true);
        // A reload changes the limit also of interfaces that have one.
        let reload = |limit: u32| {
            let settings = format!("flow_log.records_per_second = {limit}\n");
            Process::configure(&host, &store, &settings);
            felix.reload();
        };
        reload(1_000_000);
        host.until("the rules have the new limit", || {
            let rules = run("nft list table inet cambric-felix");
            rules.contains("update @flow-rates-1000000 ") && !rules.contains("@flow-rates-1 ")
        });
        let before = dropped("flow-unsent-drop");
        flood(&one, FLOOD);
        assert_eq!(dropped("flow-unsent-drop"), before);
        // Without the limit, the rules are the same without the rates.
        reload(0);
        host.until("no rule has a limit", || {
            let rules = run("nft list table inet cambric-felix");
            rules.contains("group 80") && !rules.contains("update @flow-rates")
        });
    });
}

/// Returns the packets of the rules of a chain.
fn packets_in(chain: &str) -> u64 {
    let listed = run(&format!("nft list chain inet cambric-felix {chain}"));
    let rules = listed.lines().filter(|line| line.contains("packets"));
    rules.map(packets_of).sum()
}

/// Returns the packets of the rule with a drop in a chain, as the kernel has them.
fn dropped(chain: &str) -> u64 {
    let listed = run(&format!("nft list chain inet cambric-felix {chain}"));
    listed
        .lines()
        .filter(|line| line.contains(" drop "))
        .map(packets_of)
        .sum()
}

/// Returns the packets of all rules that report.
fn reported() -> u64 {
    let listed = run("nft list table inet cambric-felix");
    let rules = listed.lines().filter(|line| line.contains(" log prefix "));
    rules.map(packets_of).sum()
}

fn packets_of(rule: &str) -> u64 {
    let words = rule.split_whitespace();
    let mut words = words.skip_while(|word| *word != "packets").skip(1);
    words.next().expect("a counter").parse().expect("a number")
}

/// Sends datagrams to a denied port, each from another port as far as there are ports.
fn flood(from: &Workload, count: u32) {
    let (source, destination) = ([10, 65, 0, 1].into(), [10, 65, 0, 2].into());
    from.namespace.within(|| {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW))).unwrap();
        let to: IpAddr = IpAddr::V4(destination);
        for n in 0..count {
            let port = u16::try_from(1 + n % 65_000).unwrap().to_be_bytes();
            let segment = [port[0], port[1], 0, 53, 0, 8, 0, 0];
            let octets = packet::ipv4(source, destination, UDP, None, &segment);
            socket
                .send_to(&octets, &SocketAddr::new(to, 0).into())
                .unwrap();
        }
    });
}

// Promise (Felix): If another program receives the group of the packet log, the flow log reports this,
// and the packet filter is that without the flow log.
#[test]
fn group_of_another_program_is_reported_and_not_used() {
    lab("group_of_another_program_is_reported_and_not_used", || {
        let mut host = Host::new();
        host.stop();
        host.settings = "[flow_log]\ngroup = 81\n".into();
        let other = other_program(81);
        host.configure(&json!({"flowLogsLocalReporter": "Enabled"}));
        host.start();
        let _one = workload(1);
        host.endpoint_with(1, &json!({}), &json!({}));
        host.wait_up("cali1");
        let noted = || {
            let notes = status(&host).notes;
            notes
                .iter()
                .any(|note| note.contains("in use by another program"))
        };
        host.until("the group is taken", noted);
        assert!(!run("nft list table inet cambric-felix").contains("group"));
        let found = flows(&host, &FlowQuery::default());
        assert!(!found.enabled, "{found:#?}");
        assert!(found.problem.is_some_and(|text| text.contains("group 81")));

        drop(other);
        host.until("the rules report", || {
            run("nft list table inet cambric-felix").contains("group 81")
        });
        assert!(!noted());

        sysctl("netfilter/nf_conntrack_events", "0");
        host.until("missing events are reported", || {
            let notes = status(&host).notes;
            notes
                .iter()
                .any(|note| note.contains("nf_conntrack_events"))
        });
    });
}

/// Receives the records of a group, as another program does.
fn other_program(group: u16) -> netlink::Notifications {
    use netlink_packet_netfilter::nflog::{ConfigCmd, ConfigNla, ULogMessage};
    use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};
    let mut socket = netlink::Notifications::open(12, 65_536).unwrap();
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, group);
    let bind = ULogMessage::Config(vec![ConfigNla::Cmd(ConfigCmd::Bind)]);
    socket.request(NetfilterMessage::new(header, bind)).unwrap();
    socket
}

// Promise (Felix): The preview of a staged policy has its endpoints and the flows with another verdict, and
// changes no rule of the kernel.
#[test]
fn staged_policy_is_previewed_and_not_loaded() {
    lab("staged_policy_is_previewed_and_not_loaded", || {
        let (host, workloads) = world();
        let [one, two, ..] = &*workloads else {
            panic!("four workloads");
        };
        enable(&host);
        let _server = two
            .namespace
            .within(|| UdpSocket::bind("[::]:8080").unwrap());
        send(one, "10.65.0.2", 8080, 3, 1);
        send(one, "10.65.0.2", 53, 2, 1);
        let flows_until_now = || {
            let flows = flows(&host, &FlowQuery::default()).flows;
            flows.iter().map(|row| row.flows).sum::<u64>()
        };
        wait_equal(flows_until_now, &10);
        let before = rules();
        let denied = json!([{"action": "Deny", "source": {"nets": ["10.65.0.1/32"]}}]);
        let spec = json!({"order": 1, "selector": "role == 'web'", "ingress": denied});
        let value = json!({"metadata": {"name": "no"}, "spec": spec});
        host.put(
            &format!("{RESOURCES}stagedglobalnetworkpolicies/no"),
            &value,
        );
        let ask = || {
            let policy = "no".to_owned();
            host.ask_any(&Command::Preview { policy }).ok()
        };
        let previewed = || match ask() {
            Some(Reply::Preview(preview)) => Some(preview),
            _ => None,
        };
        host.until("the staged policy is read", || previewed().is_some());
        let preview = previewed().expect("a preview");
        assert_eq!(preview.endpoints, ["ns/n1-k8s-p2-eth0"]);
        assert_eq!((preview.flows, preview.newly_denied), (10, 3));
        assert_eq!((preview.newly_allowed, preview.unknown), (0, 0));
        let [row] = &*preview.rows else {
            panic!("{preview:#?}");
        };
        assert_eq!(row.then_by.list.as_deref(), Some("GlobalNetworkPolicy no"));
        assert_eq!(rules(), before);
        // A packet still passes.
        let counted = || host.counted("pi-gnp/web", "ingress[0]");
        let passed = counted();
        send(one, "10.65.0.2", 8080, 1, 1);
        wait_equal(counted, &(passed + 1));
    });
}
