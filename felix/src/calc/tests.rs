mod automatic;
mod denial;
mod fabric;
mod history;
mod hosts;
mod located;
mod logs;
mod network_sets;
mod pools;
mod qos;
mod schema;
mod services;
mod settings;
mod unsupported;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};

use super::*;
use crate::render::{Action, ToHostAction, Verdict, rule_text};

const HOST: &str = "r1-c07";

fn key(kind: &str, rest: &str) -> String {
    format!("/calico/resources/v3/projectcalico.org/{kind}/{rest}")
}

fn endpoint_key(pod: &str) -> String {
    key("workloadendpoints", &format!("prod/r1--c07-k8s-{pod}-eth0"))
}

fn endpoint(node: &str, pod: &str, interface: &str, networks: &[&str], profiles: &[&str]) -> Value {
    json!({
        "kind": "WorkloadEndpoint",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": format!("r1--c07-k8s-{pod}-eth0"), "namespace": "prod"},
        "spec": {
            "orchestrator": "k8s", "node": node, "pod": pod, "endpoint": "eth0",
            "interfaceName": interface, "mac": "aa:bb:cc:00:11:22",
            "ipNetworks": networks, "profiles": profiles, "allowedIps": "not ours to know",
        },
    })
}

fn open(pod: &str, interface: &str, networks: &[&str]) -> Value {
    endpoint(
        HOST,
        pod,
        interface,
        networks,
        &["projectcalico-default-allow"],
    )
}

/// Returns a calculator with these values, and its result for the last.
fn calculator_of(values: &[(String, Value)]) -> Calculator {
    let mut calculator = Calculator::new(HOST, None);
    for (key, value) in values {
        change(&mut calculator, key, Some(value));
    }
    calculator
}

fn change(calculator: &mut Calculator, key: &str, value: Option<&Value>) -> Option<Problem> {
    let octets = value.map(ToString::to_string);
    calculator
        .change(key, octets.as_ref().map(String::as_bytes))
        .cloned()
}

/// Returns the desired state after settling all changes.
pub(super) trait Recomputed {
    fn recomputed(&mut self) -> Desired;
}

impl Recomputed for Calculator {
    fn recomputed(&mut self) -> Desired {
        self.recompute();
        self.desired().clone()
    }
}

fn problems(desired: &Desired) -> Vec<String> {
    desired.problems.iter().map(ToString::to_string).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn last_rule(desired: &Desired, chain: &str) -> String {
    rule_text(desired.rules().chains[chain].rules.last().unwrap())
}

#[test]
fn an_endpoint_of_this_host_gets_all_it_needs() {
    let networks = ["fd65::3:70/128", "10.65.3.70/32"];
    let desired =
        calculator_of(&[(endpoint_key("web"), open("web", "cali1", &networks))]).recomputed();
    assert_eq!(desired.interfaces.keys().collect::<Vec<_>>(), ["cali1"]);
    assert_eq!(
        desired.interfaces["cali1"].resource,
        "prod/r1--c07-k8s-web-eth0"
    );
    let routes: BTreeMap<IpAddr, String> = [
        (ip("10.65.3.70"), "cali1".into()),
        (ip("fd65::3:70"), "cali1".into()),
    ]
    .into();
    assert_eq!(desired.routes, routes);
    let mac = desired.interfaces["cali1"].mac.unwrap();
    assert_eq!(mac.to_string(), "aa:bb:cc:00:11:22");
    let id = desired.endpoints.keys().next().unwrap();
    assert_eq!(id.to_string(), "k8s/prod/web/eth0");
    assert_eq!(desired.endpoints[id].denied, None);
    assert_eq!(
        last_rule(&desired, "from-cali1"),
        "counter accept comment \"profile projectcalico-default-allow\""
    );
    assert!(desired.problems.is_empty(), "{:?}", desired.problems);
}

#[test]
fn remote_and_addressless_endpoints_are_ignored() {
    let other = endpoint("r1-c08", "a", "cali1", &["10.65.0.1/32"], &[]);
    let bare = open("b", "cali2", &[]);
    let mut calculator = calculator_of(&[(endpoint_key("a"), other), (endpoint_key("b"), bare)]);
    let mut none = Calculator::new(HOST, None);
    assert_eq!(calculator.recomputed(), none.recomputed());
}

#[test]
fn endpoint_without_addresses_or_moved_away_is_removed() {
    for gone in [
        Some(open("a", "cali1", &[])),
        Some(endpoint("r1-c08", "a", "cali1", &["10.65.0.1/32"], &[])),
        None,
    ] {
        let mut calculator =
            calculator_of(&[(endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"]))]);
        assert_eq!(calculator.recomputed().routes.len(), 1);
        change(&mut calculator, &endpoint_key("a"), gone.as_ref());
        assert_eq!(
            calculator.recomputed(),
            Calculator::new(HOST, None).recomputed()
        );
    }
}

/// A role of etcd for one node writes every value, but only names of that node.
#[test]
fn endpoint_with_the_name_of_another_node_is_rejected() {
    let value = open("a", "cali1", &["10.65.0.1/32"]);
    let mut calculator = calculator_of(&[]);
    for name in [
        "h2-k8s-a-eth0",
        "h2-broken",
        "r1-c07-k8s-a-eth0",
        "r1--c070-k8s-a-eth0",
    ] {
        let key = key("workloadendpoints", &format!("prod/{name}"));
        let problem = change(&mut calculator, &key, Some(&value)).expect(name);
        assert_eq!(problem.field, "spec.node", "{problem}");
        let desired = calculator.recomputed();
        assert_eq!((desired.endpoints.len(), desired.routes.len()), (0, 0));
    }
    change(&mut calculator, &endpoint_key("a"), Some(&value));
    assert_eq!(calculator.recomputed().endpoints.len(), 1);
}

#[test]
fn lower_id_gets_the_interface_and_the_other_waits() {
    let (a, b) = (endpoint_key("a"), endpoint_key("b"));
    let mut calculator = calculator_of(&[
        (b.clone(), open("b", "cali1", &["10.65.0.2/32"])),
        (a.clone(), open("a", "cali1", &["10.65.0.1/32"])),
    ]);
    let desired = calculator.recomputed();
    assert_eq!(
        desired.routes.keys().collect::<Vec<_>>(),
        [&ip("10.65.0.1")]
    );
    let denied: Vec<bool> = desired
        .endpoints
        .values()
        .map(|p| p.denied.is_some())
        .collect();
    assert_eq!(denied, [false, true]);
    assert_eq!(
        problems(&desired),
        [format!(
            "{b}: spec.interfaceName: cali1 is the interface of endpoint k8s/prod/a/eth0"
        )]
    );
    change(&mut calculator, &a, None);
    let desired = calculator.recomputed();
    assert_eq!(
        desired.routes.keys().collect::<Vec<_>>(),
        [&ip("10.65.0.2")]
    );
    assert!(desired.problems.is_empty());
}

#[test]
fn an_address_belongs_to_one_endpoint() {
    let desired = calculator_of(&[
        (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"])),
        (
            endpoint_key("b"),
            open("b", "cali2", &["10.65.0.1/32", "10.65.0.2/32"]),
        ),
    ])
    .recomputed();
    assert_eq!(desired.routes[&ip("10.65.0.1")], "cali1");
    assert_eq!(desired.interfaces["cali2"].addresses, [ip("10.65.0.2")]);
    assert_eq!(desired.rules().sets["sources-ipv4"].elements.len(), 2);
    assert_eq!(desired.problems.len(), 1);
}

#[test]
fn invalid_value_keeps_the_last_valid_and_is_named() {
    let a = endpoint_key("a");
    let good = open("a", "cali1", &["10.65.0.1/32"]);
    let with = |field: &str, value: Value| {
        let mut bad = good.clone();
        bad["spec"][field] = value;
        bad
    };
    let cases = [
        (
            with("ipNetworks", json!(["10.65.0.0/24"])),
            "spec.ipNetworks[0]",
            "10.65.0.0/24 is not a single",
        ),
        (
            with("ipNetworks", json!(["10.65.0.2/32", "ff02::1/128"])),
            "spec.ipNetworks[1]",
            "cannot be the address",
        ),
        (
            with("ipNetworks", json!(["10.65.0.2", "nonsense"])),
            "spec.ipNetworks[1]",
            "nonsense",
        ),
        (with("ipNetworks", json!(7)), "spec.ipNetworks", "7"),
        (with("mac", json!("aa:bb")), "spec.mac", "aa:bb"),
        (
            with("interfaceName", json!("cali/1")),
            "spec.interfaceName",
            "'cali/1' is not the name",
        ),
        (
            with("interfaceName", json!("")),
            "spec.interfaceName",
            "'' is not the name",
        ),
    ];
    let mut calculator = calculator_of(&[(a.clone(), good.clone())]);
    let before = calculator.recomputed();
    for (bad, field, words) in cases {
        let problem = change(&mut calculator, &a, Some(&bad)).expect(field);
        assert_eq!(
            (problem.key.as_str(), problem.field.as_str()),
            (a.as_str(), field)
        );
        assert!(problem.reason.contains(words), "{problem}");
        let desired = calculator.recomputed();
        assert_eq!(desired.routes, before.routes);
        assert_eq!(desired.rules(), before.rules());
        assert_eq!(desired.problems, [problem].into());
    }
    assert_eq!(
        calculator.change(&a, Some(b"{")).map(|p| p.field.clone()),
        Some(String::new())
    );
    assert_eq!(change(&mut calculator, &a, Some(&good)), None);
    assert_eq!(calculator.recomputed(), before);
}

#[test]
fn invalid_remote_value_rejects_no_local_endpoint() {
    let mut calculator = Calculator::new("r1-c08", None);
    assert!(calculator.change(&endpoint_key("a"), Some(b"{")).is_some());
    assert_eq!(calculator.recomputed().endpoints.len(), 0);
    assert_eq!(
        calculator.change(&key("blockaffinities", "x"), Some(b"{")),
        None
    );
    assert_eq!(calculator.change("/registry/else", Some(b"{")), None);
}

#[test]
fn foreign_prefix_is_rejected_until_configured() {
    let mut calculator =
        calculator_of(&[(endpoint_key("a"), open("a", "veth1", &["10.65.0.1/32"]))]);
    let desired = calculator.recomputed();
    assert!(desired.routes.is_empty());
    assert!(
        problems(&desired)[0]
            .ends_with("veth1 does not begin with an interface prefix (cali, tap)")
    );
    let config = json!({"spec": {"interfacePrefix": "veth, tap"}});
    change(
        &mut calculator,
        &key("felixconfigurations", "default"),
        Some(&config),
    );
    assert_eq!(calculator.recomputed().routes.len(), 1);
}

/// Returns the rules of the chains of both directions, with those of the profile's chains inserted.
fn rules_of(profile: &Value) -> ([Vec<String>; 2], Vec<String>) {
    let desired = calculator_of(&[
        (
            key("profiles", "p"),
            json!({"metadata": {"name": "p"}, "spec": profile}),
        ),
        (
            endpoint_key("a"),
            endpoint(HOST, "a", "cali1", &["10.65.0.1/32"], &["p"]),
        ),
    ])
    .recomputed();
    let texts = |chain: &str| -> Vec<String> {
        let rules = desired.rules().chains[chain].rules.iter();
        let inner = rules.flat_map(|rule| match &rule.action {
            Action::Verdict(Verdict::Jump(name)) => desired.rules().chains[name].rules.clone(),
            _ => vec![rule.clone()],
        });
        let texts = inner.map(|rule| rule_text(&rule).replace("counter ", ""));
        texts.filter(|text| !text.starts_with("ct ")).collect()
    };
    (["to-cali1", "from-cali1"].map(texts), problems(&desired))
}

#[test]
fn rules_of_profiles_decide() {
    let (allow, deny) = (json!([{"action": "Allow"}]), json!([{"action": "Deny"}]));
    let both = |ingress: &Value, egress: &Value| json!({"ingress": ingress, "egress": egress});
    let open = "accept comment \"profile p\"";
    let closed = "drop comment \"profile p\"";
    let no_profile = "drop comment \"no profile allows it\"";
    for (profile, to, from) in [
        (both(&allow, &allow), open, open),
        (both(&deny, &allow), closed, open),
        (
            both(&json!([]), &json!([{"action": "Pass"}])),
            no_profile,
            no_profile,
        ),
    ] {
        let expected = [vec![to.to_owned()], vec![from.to_owned()]];
        assert_eq!(rules_of(&profile), (expected, Vec::new()));
    }
    let some =
        json!([{"action": "Deny", "protocol": "TCP"}, {"action": "Log"}, {"action": "Allow"}]);
    let ([to, from], problems) = rules_of(&both(&some, &allow));
    assert_eq!(
        to,
        [
            "meta l4proto tcp drop comment \"ingress[0]\"",
            "log prefix \"calico-packet: \" level info comment \"ingress[1]\"",
            "accept comment \"ingress[2]\"",
            "drop comment \"no policy or profile allows it\"",
        ]
    );
    assert_eq!((from, problems), (vec![open.to_owned()], vec![]));
}

#[test]
fn a_rule_that_cannot_be_followed_errs_on_the_closed_side() {
    for (action, rules) in [
        ("Allow", vec!["accept comment \"ingress[1]\""]),
        (
            "Deny",
            vec!["drop comment \"spec.ingress[0].http: matching on HTTP is not supported\""],
        ),
    ] {
        let rule = json!({"action": action, "protocol": "TCP", "http": {"methods": ["GET"]}});
        let profile = json!({"ingress": [rule, {"action": "Allow"}]});
        let ([to, _], problems) = rules_of(&profile);
        assert_eq!(to[..to.len() - 1], rules, "{action}");
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].contains("profiles/p: spec.ingress[0].http: "),
            "{problems:?}"
        );
    }
}

#[test]
fn missing_profile_drops_all_traffic() {
    let reasons = |profiles: &[&str]| {
        let value = endpoint(HOST, "a", "cali1", &["10.65.0.1/32"], profiles);
        let desired = calculator_of(&[(endpoint_key("a"), value)]).recomputed();
        (last_rule(&desired, "from-cali1"), desired.problems.len())
    };
    assert_eq!(
        reasons(&[]),
        ("counter drop comment \"no profile or policy\"".into(), 0)
    );
    let missing = "counter drop comment \"profile gone does not exist\"".to_owned();
    assert_eq!(
        reasons(&["gone", "projectcalico-default-allow"]),
        (missing, 1)
    );
}

#[test]
fn default_allow_cannot_be_overwritten() {
    let deny = json!({"spec": {"ingress": [{"action": "Deny"}], "egress": [{"action": "Deny"}]}});
    let desired = calculator_of(&[
        (key("profiles", "projectcalico-default-allow"), deny),
        (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"])),
    ])
    .recomputed();
    assert!(last_rule(&desired, "from-cali1").starts_with("counter accept"));
}

#[test]
fn settings_of_this_host_go_before_those_of_all() {
    let mut calculator = calculator_of(&[
        (
            key("felixconfigurations", "default"),
            json!({"spec": {"defaultEndpointToHostAction": "Accept", "reportingInterval": "5s",
                            "endpointReportingEnabled": true, "openstackRegion": "east"}}),
        ),
        (
            key("felixconfigurations", "node.r1-c07"),
            json!({"spec": {"defaultEndpointToHostAction": "Return"}}),
        ),
        (
            key("felixconfigurations", "node.r1-c08"),
            json!({"spec": {"defaultEndpointToHostAction": "Drop", "reportingInterval": "7s"}}),
        ),
    ]);
    let settings = calculator.settings();
    assert_eq!(settings.to_host, ToHostAction::Return);
    assert_eq!(settings.reporting_interval.as_secs(), 5);
    assert!(settings.endpoint_reporting);
    assert_eq!(settings.region.to_string(), "region-east");
    let bad = json!({"spec": {"interfacePrefix": "cali,,tap"}});
    let name = key("felixconfigurations", "default");
    let problem = change(&mut calculator, &name, Some(&bad)).unwrap();
    assert_eq!(problem.field, "spec.interfacePrefix");
    assert_eq!(calculator.settings(), settings);
    change(&mut calculator, &name, None);
    assert_eq!(calculator.settings().reporting_interval.as_secs(), 30);
}

#[test]
fn local_setting_precedes_the_stored_one() {
    let local = json!({"interfacePrefix": "tap", "openstackRegion": ""});
    let local = serde_json::from_value(local).unwrap();
    let mut calculator = Calculator::new(HOST, Some(local));
    let config = json!({"spec": {
        "interfacePrefix": "cali", "openstackRegion": "east", "reportingInterval": "7s",
    }});
    change(
        &mut calculator,
        &key("felixconfigurations", "default"),
        Some(&config),
    );
    let settings = calculator.settings();
    assert_eq!(settings.interface_prefixes, ["tap"]);
    assert_eq!(settings.region.to_string(), "no-region");
    assert_eq!(settings.reporting_interval.as_secs(), 7);
}

#[test]
fn ipv6_addresses_are_left_out_if_ipv6_support_is_off() {
    let desired = calculator_of(&[
        (
            key("felixconfigurations", "default"),
            json!({"spec": {"ipv6Support": false}}),
        ),
        (
            endpoint_key("a"),
            open("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]),
        ),
    ])
    .recomputed();
    assert_eq!(
        desired.routes.keys().collect::<Vec<_>>(),
        [&ip("10.65.0.1")]
    );
    assert!(desired.rules().sets["sources-ipv6"].elements.is_empty());
}

#[test]
fn only_what_concerns_this_host_is_a_change() {
    let mut calculator = Calculator::new("h1", None);
    calculator.recompute();
    let endpoint = |node: &str, name: &str| {
        let resource = format!("{node}-k8s-{name}-eth0");
        let value = json!({
            "apiVersion": "projectcalico.org/v3",
            "kind": "WorkloadEndpoint",
            "metadata": { "namespace": "default", "name": resource },
            "spec": {
                "orchestrator": "k8s", "node": node, "pod": name, "endpoint": "eth0",
                "interfaceName": format!("cali{name}"), "ipNetworks": ["10.65.0.1/32"],
            },
        });
        (
            key("workloadendpoints/default", &resource),
            value.to_string(),
        )
    };
    let mut changes = |(key, value): (String, String), there: bool| {
        let problem = calculator.change(&key, there.then_some(value.as_bytes()));
        let problem = problem.is_some();
        let news = calculator.has_news();
        calculator.recompute();
        (problem, news)
    };
    assert_eq!(changes(endpoint("h2", "a"), true), (false, false));
    assert_eq!(changes(endpoint("h1", "a"), true), (false, true));
    assert_eq!(
        changes(endpoint("h1", "a"), true),
        (false, false),
        "the same again"
    );
    assert_eq!(changes(endpoint("h2", "a"), false), (false, false));
    let (own, _) = endpoint("h1", "a");
    assert_eq!(changes((own.clone(), "{".into()), true), (true, true));
    assert_eq!(
        changes(endpoint("h1", "a"), true),
        (false, true),
        "no longer refused"
    );
    assert_eq!(changes((own, String::new()), false), (false, true));
    let profile = key("profiles", "open");
    assert_eq!(
        changes((profile, r#"{"spec":{}}"#.into()), true),
        (false, false),
        "no policy names it"
    );
}
