use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::unsupported::in_rule;
use super::*;

/// Returns kind, path and type of every field of Calico's schema.
fn calico() -> impl Iterator<Item = (Kind, &'static str, &'static str)> {
    let lines = include_str!("calico.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, path, holds] = *words else {
            panic!("three words: {line}");
        };
        let kind = Kind::from_name(kind).unwrap_or_else(|| panic!("a kind: {line}"));
        (kind, path, holds)
    })
}

/// Returns the declaration of a field: its own, that of one of its parts, or that of its parent.
fn standing(kind: Kind, path: &str) -> Option<Standing> {
    let all = declared(kind);
    let is_part = |whole: &str, part: &str| {
        let rest = part.strip_prefix(whole);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('['))
    };
    let found = all
        .iter()
        .find(|one| is_part(&one.path, path) || is_part(path, &one.path));
    found.map(|one| one.standing)
}

/// The field of which true requests nothing.
const TRUE_BY_DEFAULT: &str = "spec.useInternalDataplaneDriver";

/// Returns a value of the type that requests something.
fn sample(path: &str, holds: &str) -> Value {
    match holds {
        "bool" if path == TRUE_BY_DEFAULT => json!(false),
        "bool" => json!(true),
        "number" => json!(7),
        "duration" => json!("7s"),
        "map" | "object" => json!({"name": "b"}),
        _ => json!("named"),
    }
}

/// Returns a resource with only this field set.
fn resource(path: &str, value: Value) -> Value {
    let mut value = value;
    for part in path.split('.').rev() {
        let (name, is_list) = match part.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (part, false),
        };
        value = if is_list { json!([value]) } else { value };
        value = json!({ name: value });
    }
    value
}

#[test]
fn every_field_of_calico_is_declared() {
    let mut count = BTreeMap::new();
    for (kind, path, _) in calico() {
        assert!(standing(kind, path).is_some(), "{kind} {path} is missing");
        *count.entry(kind).or_insert(0) += 1;
    }
    // No kind is missing on either side.
    for kind in Kind::ALL {
        assert!(count.contains_key(kind), "{kind}");
    }
}

#[test]
fn every_unsupported_field_of_calico_is_reported() {
    let mut reported = 0;
    for (kind, path, holds) in calico() {
        let value = resource(path, sample(path, holds));
        let found = unsupported_fields(kind, &value);
        let plain: Vec<String> = found
            .iter()
            .map(|one| one.field.replace("[0]", "[]"))
            .collect();
        match standing(kind, path) {
            Some(Standing::Unsupported { due, reason }) => {
                let is_named = plain.iter().any(|field| path.starts_with(field.as_str()));
                assert!(is_named, "{kind} {path}: {found:?}");
                assert!(found.iter().all(|one| one.due == due), "{kind} {path}");
                assert!(found.iter().all(|one| one.reason.starts_with(reason)));
                reported += 1;
            }
            _ => assert_eq!(found, [], "{kind} {path} has an effect"),
        }
    }
    assert!(reported > 300, "{reported}");
}

/// Every field that no program reports in its status has a reason, and is reported with it where it
/// is written and shown. Other fields have a program: a new row here needs a reason why not.
#[test]
fn fields_without_a_reporting_program_are_listed() {
    let mut listed = Vec::new();
    for kind in Kind::ALL {
        let all = declared(*kind);
        let before = listed.len();
        for one in &all {
            let Standing::Unsupported { due, reason } = one.standing else {
                continue;
            };
            let words = reason.split_whitespace().count();
            assert!(words >= 4, "{kind} {}: {reason:?} is no reason", one.path);
            if due.is_none() {
                listed.push(format!("{kind} {}", one.path));
            }
        }
        if listed.len() - before == all.len() {
            listed.truncate(before);
            listed.push(format!("{kind}, as a whole"));
        }
    }
    assert_eq!(
        listed,
        [
            "BlockAffinity, as a whole",
            "KubeControllersConfiguration spec.logSeverityScreen",
            "KubeControllersConfiguration spec.healthChecks",
            "KubeControllersConfiguration spec.etcdV3CompactionPeriod",
            "KubeControllersConfiguration spec.prometheusMetricsPort",
            "KubeControllersConfiguration spec.debugProfilePort",
            "CalicoNodeStatus, as a whole",
        ]
    );
}

#[test]
fn severity_puts_unenforced_resources_first() {
    let field = |kind, spec: Value| {
        let found = unsupported_fields(kind, &json!({ "spec": spec }));
        let [one] = found.as_slice() else {
            panic!("{found:?}");
        };
        Severity::of(kind, &one.reason)
    };
    let rule =
        |action: &str| json!({"ingress": [{"action": action, "http": {"methods": ["GET"]}}]});
    let host = field(Kind::HostEndpoint, json!({"interfaceNames": "eth0"}));
    let hints = json!({"performanceHints": ["AssumeNeededOnEveryNode"]});
    let policy = field(Kind::GlobalNetworkPolicy, hints);
    let deny = field(Kind::NetworkPolicy, rule("Deny"));
    let allow = field(Kind::Profile, rule("Allow"));
    let log = json!({"logSeverityScreen": "Debug"});
    let log = field(Kind::BgpConfiguration, log);
    assert_eq!([host, policy], [Severity::Unenforced; 2]);
    assert_eq!(
        [deny, allow, log],
        [Severity::DropsMore, Severity::AllowsLess, Severity::Other]
    );
    assert!(host < deny && deny < allow && allow < log);
}

#[test]
fn unset_fields_are_not_reported() {
    for (kind, path, holds) in calico() {
        let whole = unsupported_fields(kind, &json!({"spec": {}}));
        let is_condition = path.contains(".http");
        if !whole.is_empty() || is_condition {
            continue; // No field of the kind is supported; an empty condition may still match.
        }
        let unset = match holds {
            "bool" if path == TRUE_BY_DEFAULT => json!(true),
            "bool" => json!(false),
            "number" | "port" if kind != Kind::FelixConfiguration => json!(0),
            _ => Value::Null,
        };
        let found = unsupported_fields(kind, &resource(path, unset));
        assert_eq!(found, [], "{kind} {path}");
    }
}

#[test]
fn unknown_fields_are_reported_at_any_depth() {
    for (kind, field, place) in [
        (Kind::NetworkPolicy, "spec.new", "spec.new"),
        (
            Kind::NetworkPolicy,
            "spec.ingress[].new",
            "spec.ingress[0].new",
        ),
        (
            Kind::Profile,
            "spec.egress[].destination.serviceAccounts.new",
            "spec.egress[0].destination.serviceAccounts.new",
        ),
        (
            Kind::GlobalNetworkPolicy,
            "spec.ingress[].icmp.new",
            "spec.ingress[0].icmp.new",
        ),
        (Kind::Tier, "spec.new", "spec.new"),
        (Kind::NetworkSet, "spec.new", "spec.new"),
        (Kind::FelixConfiguration, "spec.new", "spec.new"),
        (Kind::BgpPeer, "spec.password.new", "spec.password.new"),
        (Kind::IpPool, "spec.new", "spec.new"),
    ] {
        let found = unsupported_fields(kind, &resource(field, json!("x")));
        let fields: Vec<&str> = found.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(fields, [place], "{kind}");
    }
}

#[test]
fn rule_with_unsupported_condition_names_its_closed_side() {
    for (action, instead) in [
        ("Allow", "the rule is left out"),
        ("Log", "the rule is left out"),
        ("Deny", "all packets that reach this rule are dropped"),
        ("Pass", "all packets that reach this rule are dropped"),
    ] {
        let rule = json!({"action": action, "http": {"methods": ["GET"]}});
        let policy = json!({"spec": {"ingress": [rule]}});
        let found = unsupported_fields(Kind::NetworkPolicy, &policy);
        let reasons: Vec<&str> = found.iter().map(|one| one.reason.as_str()).collect();
        assert_eq!(
            reasons,
            [format!("matching on HTTP is not supported; {instead}")]
        );
    }
}

#[test]
fn rule_that_cannot_be_checked_is_unsupported() {
    let readable = |value| in_rule(Ok::<_, fmt::Error>(value));
    assert_eq!(readable(json!({"action": "Allow"})), None);
    assert!(readable(json!("Allow")).is_some());
    let found = in_rule(Err(fmt::Error)).expect("an unsupported field");
    assert!(found.reason.starts_with("the rule cannot be checked"));
}

#[test]
fn settings_that_state_the_behavior_are_not_reported() {
    let found = |field: &str, value: Value| {
        let resource = json!({"spec": {(field): value}});
        unsupported_fields(Kind::FelixConfiguration, &resource).len()
    };
    for (field, same, other) in [
        ("nftablesMode", json!("Auto"), json!("Disabled")),
        ("nftablesMode", json!("enabled"), json!(7)),
        ("removeExternalRoutes", json!(false), json!(true)),
        ("usageReportingEnabled", json!(null), json!(true)),
    ] {
        assert_eq!(found(field, same), 0, "{field}");
        assert_eq!(found(field, other), 1, "{field}");
    }
}

#[test]
fn felix_configuration_of_another_name_is_reported() {
    for (name, count) in [("default", 0), ("node.n1", 0), ("racks", 1)] {
        let value = json!({"metadata": {"name": name}, "spec": {"ipv6Support": false}});
        let found = unsupported_fields(Kind::FelixConfiguration, &value);
        assert_eq!(found.len(), count, "{name}");
    }
}

/// Returns the operators' page: for each kind the support of its fields.
fn page() -> String {
    use std::fmt::Write as _;
    let mut page = String::from(
        "# Fields of resources\n\n\
         This page lists the program that supports each field of Calico's schema. It is generated\n\
         from the table in `calico-model/src/schema`.\n\n\
         * `cambric apply` warns about a field without effect, and rejects an unknown field.\n\
         * `cambric get` prints a note about it.\n\
         * `cambric show status` of the program in the table lists it, if it is set in a resource that\n  \
           applies to its host.\n\
         * Felix lists a field of a rule only if an endpoint of its host uses the rule. It lists the\n  \
           100 most serious problems, those of host endpoints first, and the number of the others.\n\
         * No status lists a field without a program in the table.\n\
         * Another client may have stored an unknown field. `cambric get` reports it, and so does the\n  \
           status of the daemon that reads the kind, except for a Node. A rule with such a field\n  \
           fails closed.\n\n\
         Braces stand for several fields: `{ingress,egress}[].http` is `ingress[].http` and\n\
         `egress[].http`.\n",
    );
    for kind in Kind::ALL {
        let head = "| field | program | effect |\n|---|---|---|";
        let _ = writeln!(page, "\n## {kind}\n\n{head}");
        let rows: Vec<Row> = declared(*kind).into_iter().map(Row::of).collect();
        let is_one = rows.iter().all(|row| row.has_effect_of(&rows[0]));
        let rows = merged(merged(rows, "ingress", "egress"), "source", "destination");
        for Row {
            path,
            program,
            effect,
        } in &rows[..if is_one { 1 } else { rows.len() }]
        {
            let field = if is_one {
                "all fields".to_owned()
            } else {
                format!("`{path}`")
            };
            let gap = if program.is_empty() { "" } else { " " };
            let _ = writeln!(page, "| {field} |{gap}{program} | {effect} |");
        }
    }
    page
}

/// A row of the page.
#[derive(Clone, PartialEq, Eq)]
struct Row {
    path: String,
    program: &'static str,
    effect: String,
}

impl Row {
    fn of(one: Declared) -> Self {
        let (program, effect) = match one.standing {
            Standing::Supported(program) => (program.name(), "supported".to_owned()),
            Standing::Record => ("", "informational; no program reads it".to_owned()),
            Standing::Unsupported { due, reason } => {
                let due = due.map_or("", |due| due.name());
                (due, format!("**no effect**: {reason}"))
            }
        };
        let path = one.path.trim_start_matches("spec.").to_owned();
        Self {
            path,
            program,
            effect,
        }
    }

    fn has_effect_of(&self, other: &Self) -> bool {
        (self.program, &self.effect) == (other.program, &other.effect)
    }
}

/// Returns the rows with one row for two fields that differ only in `one` and `other`, if their
/// effects are equal.
fn merged(mut rows: Vec<Row>, one: &str, other: &str) -> Vec<Row> {
    for row in rows.clone().iter().filter(|row| row.path.contains(one)) {
        let twin = Row {
            path: row.path.replacen(one, other, 1),
            ..row.clone()
        };
        if let Some(at) = rows.iter().position(|known| *known == twin) {
            rows.remove(at);
            let known = rows.iter_mut().find(|known| *known == row);
            let both = format!("{{{one},{other}}}");
            known.expect("the row").path = row.path.replacen(one, &both, 1);
        }
    }
    rows
}

#[test]
fn operators_page_matches_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/fields.md");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, page()).expect("docs/operate can be written");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == page(),
        "run the test with UPDATE_EXPECT=1 and commit the page"
    );
}

#[test]
fn known_fields_are_those_of_the_object() {
    assert_eq!(
        known_fields(Kind::BgpPeer, "spec.password.secretKeyRef"),
        ["name", "key", "optional"]
    );
    let rule = known_fields(Kind::NetworkPolicy, "spec.ingress[7]");
    assert!(rule.contains(&"action"), "{rule:?}");
    assert_eq!(
        known_fields(Kind::Node, "metadata.labels"),
        Vec::<&str>::new()
    );
    assert!(known_fields(Kind::Node, "").contains(&"spec"));
}

#[test]
fn fields_of_secrets_are_not_public() {
    for name in [
        "kind",
        "metadata",
        "peerIP",
        "nets",
        "etcdV3CompactionPeriod",
    ] {
        assert!(is_public_field(name), "{name}");
    }
    for name in [
        "password",
        "nodeMeshPassword",
        "secretKeyRef",
        "key",
        "pasword",
        "data",
    ] {
        assert!(!is_public_field(name), "{name}");
    }
}
