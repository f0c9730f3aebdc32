//! The file, with its defaults and mistakes.

use calico_model::FelixConfigurationSpec;

use super::*;
use crate::calc::Settings;
use crate::render::{Budgets, Family};

fn read(text: &str) -> Result<Config, String> {
    Config::of(&Source::new("felix.toml", text)).map_err(|report| report.to_string())
}

const STORE: &str = "[datastore]\nendpoints = [\"http://10.0.0.254:2379\"]\n";

#[test]
fn minimal_file_has_defaults() {
    let config = read(STORE).unwrap();
    assert_eq!(
        config.control,
        PathBuf::from("/run/cambric-felix/felix.sock")
    );
    let agent = &config.agent;
    assert_eq!((agent.route_protocol, agent.table), (80, 254));
    assert_eq!(agent.settings, FelixConfigurationSpec::default());
    assert_eq!(agent.budgets, Budgets::default());
    let settings = Settings::new(&agent.settings);
    assert_eq!(settings.routing.metric(Family::V4), 256);
    assert_eq!(settings.routing.refresh, Duration::from_secs(90));
    assert_eq!(settings.endpoint_files, Some("/var/run/calico".into()));
    assert_eq!((config.log, settings.log_level), (None, None));
    assert!(!agent.hostname.is_empty());
}

#[test]
fn the_packaged_file_shows_defaults_and_examples_that_are_right() {
    let packaged = include_str!("../../../packaging/etc/felix.toml");
    let plain = read(packaged).unwrap();
    let all = daemon_common::config::uncommented(packaged);
    // A password file would have to exist.
    let (all, _) = all.split_once("username =").expect("the last example");
    let all = read(all).unwrap();
    assert_eq!(all.control, plain.control);
    assert_eq!(all.agent.hostname, "node1");
    let defaults = |config: &Config| {
        let agent = &config.agent;
        (
            agent.route_protocol,
            agent.table,
            agent.interface_patience,
            agent.budgets,
        )
    };
    assert_eq!(defaults(&all), defaults(&plain));
    assert_eq!(all.datastore.require_leader, plain.datastore.require_leader);
    // The examples show built-in values.
    let settings = |config: &Config| Settings::new(&config.agent.settings);
    let (all, plain) = (settings(&all), settings(&plain));
    assert_eq!(
        (all.routing, all.endpoint_files),
        (plain.routing, plain.endpoint_files)
    );
}

#[test]
fn every_key_of_the_file_is_read() {
    let config = read(&format!(
        "hostname = \"node1\"\ncontrol = \"/tmp/f.sock\"\nlog = \"debug\"\nlog_format = \"json\"\n\
         interface_prefix = [\"tap\", \"cali\"]\nroute_protocol = 81\nendpoint_metric = 100\n\
         police_host_traffic = true\nbudgets.connections = 0\n\
         budgets.fragments_per_second = 1\nbudgets.next_hops_per_minute = 2\n\
         budgets.link_local_per_minute = 3\n\
         control_port_exceptions = [\"10.65.0.7\", \"fd65::1/64\"]\n\
         route_table = 10\nroute_refresh_s = 30\nendpoint_status_path_prefix = \"\"\n\
         interface_patience_s = 300\n{STORE}"
    ))
    .unwrap();
    let agent = &config.agent;
    assert_eq!(agent.hostname, "node1");
    assert_eq!(agent.settings.interface_prefix, "cali,tap");
    assert_eq!((agent.route_protocol, agent.table), (81, 10));
    let settings = Settings::new(&agent.settings);
    assert_eq!(settings.routing.metric(Family::V6), 100);
    assert_eq!(settings.routing.refresh, Duration::from_secs(30));
    assert_eq!(settings.endpoint_files, None);
    assert_eq!(config.log.as_deref(), Some("debug"));
    assert_eq!(agent.interface_patience, Duration::from_secs(300));
    let exceptions = ["10.65.0.7/32", "fd65::/64"].map(|net| net.parse().unwrap());
    assert_eq!(agent.control_port_exceptions, exceptions);
    assert!(agent.police_host_traffic);
    let budgets = Budgets {
        connections: 0,
        fragments_per_second: 1,
        next_hops_per_minute: 2,
        link_local_per_minute: 3,
    };
    assert_eq!(agent.budgets, budgets);
}

#[test]
fn a_snapshot_is_a_file_and_an_age() {
    let snapshot = |more: &str| {
        let text = format!("{STORE}\n[datastore_snapshot]\nfile = \"/var/lib/f\"\n{more}");
        read(&text).unwrap().datastore_snapshot.unwrap()
    };
    assert_eq!(snapshot(""), SnapshotOptions::new("/var/lib/f"));
    assert_eq!(snapshot("max_age_s = 60").max_age_s, 60);
    assert_eq!(read(STORE).unwrap().datastore_snapshot, None);
}

#[test]
fn environment_precedes_file_and_file_the_store() {
    let text = format!(
        "hostname = \"node1\"\nroute_refresh_s = 30\ninterface_prefix = [\"cali\"]\n\
         endpoint_status_path_prefix = \"/a\"\n{STORE}\n[felix_configuration]\n\
         reportingInterval = \"10s\"\nendpointReportingEnabled = true\n"
    );
    let source = Source::new("felix.toml", text);
    let variables = [
        ("FELIX_FELIXHOSTNAME", "node2"),
        ("FELIX_ROUTEREFRESHINTERVAL", "5"),
        ("FELIX_ENDPOINTSTATUSPATHPREFIX", "/b"),
        ("FELIX_INTERFACEPREFIX", "tap"),
        ("FELIX_REPORTINGINTERVALSECS", "20"),
        ("FELIX_BPFENABLED", "false"),
    ];
    let variables = variables.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let config = Config::within(&source, Environment::of(variables)).unwrap();
    let agent = config.agent;
    assert_eq!(agent.hostname, "node2");
    let settings = r#"{"interfacePrefix":"tap","reportingInterval":"20s",
        "endpointReportingEnabled":true,"routeRefreshInterval":"5s",
        "endpointStatusPathPrefix":"/b"}"#;
    assert_eq!(agent.settings, serde_json::from_str(settings).unwrap());
    assert_eq!(config.ignored_variables, ["FELIX_BPFENABLED"]);

    let wrong = Environment::of([("FELIX_IPV6SUPPORT".to_owned(), "maybe".to_owned())]);
    let report = Config::within(&source, wrong).unwrap_err().to_string();
    assert!(report.contains("FELIX_IPV6SUPPORT: 'maybe'"), "{report}");
}

#[test]
fn settings_in_the_file_are_named_with_their_place_when_wrong() {
    for (line, place, words) in [
        (
            "reportingIntervall = \"1s\"",
            "felix.toml:4:1",
            "no field of FelixConfiguration",
        ),
        (
            "reportingInterval = \"1x\"",
            "felix.toml:4:21",
            "a duration such as",
        ),
        (
            "openstackRegion = \"a/b\"",
            "felix.toml:4:19",
            "`openstackRegion`: ",
        ),
        (
            "interfacePrefix = \"cali\"",
            "felix.toml:4:1",
            "interface_prefix = [",
        ),
    ] {
        let error = read(&format!("{STORE}[felix_configuration]\n{line}\n")).unwrap_err();
        assert!(
            error.contains(place) && error.contains(words),
            "{line}: {error}"
        );
    }
}

#[test]
fn protocol_of_the_bgp_client_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("felix.toml");
    let check_file = |text: &str| {
        std::fs::write(&path, format!("{text}\n{STORE}")).unwrap();
        Config::read(&path)
            .map(drop)
            .map_err(|report| report.to_string())
    };
    let other = directory.path().join("bgp-client.toml");
    std::fs::write(&other, "[kernel]\n").unwrap();
    let report = check_file("route_protocol = 119").unwrap_err();
    assert!(report.contains("119 is cambric-bgp-client's"), "{report}");
    assert!(report.contains("felix.toml:1:18"), "{report}");
    std::fs::write(&other, "[kernel]\nprotocol = 141\n").unwrap();
    check_file("route_protocol = 142").unwrap();
    assert!(check_file("route_protocol = 141").is_err());
    let _running = claim::Claim::take(Owner(143), "other").unwrap();
    let report = check_file("route_protocol = 143").unwrap_err();
    assert!(report.contains("143 is in use by"), "{report}");
}

#[test]
fn store_files_that_do_not_exist_are_refused_with_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("felix.toml");
    let text = "route_protocol = 144\n[datastore]\nendpoints = [\n  \"https://10.0.0.254:2379\",\n  \
                \"10.0.0.253:2379\",\n]\n[datastore.tls]\nca_file = \"/nonexistent/ca.pem\"\n";
    std::fs::write(&path, text).unwrap();
    let report = Config::read(&path).unwrap_err().to_string();
    for words in [
        "felix.toml:5:3",
        "the endpoint has no scheme",
        "felix.toml:8:11",
        "/nonexistent/ca.pem: no such file",
    ] {
        assert!(report.contains(words), "{words} not in:\n{report}");
    }
    // A text alone is checked without the machine.
    assert!(read(&text.replace("  \"10.0.0.253:2379\",\n", "")).is_ok());
}

#[test]
fn mistake_is_named_with_its_place() {
    let cases = [
        (
            "hostname = \"a/b\"",
            "felix.toml:1:12",
            "`a/b` cannot be the name",
        ),
        ("interface_prefix = []", "felix.toml:1:20", "is empty"),
        (
            "interface_prefix = [\"cali\", \"t/p\"]",
            "felix.toml:1:29",
            "'t/p' cannot be",
        ),
        (
            "control_port_exceptions = [\"10.65.0.7\", \"10.65.0.7:179\"]",
            "felix.toml:1:41",
            "neither an address nor a range",
        ),
        (
            "budgets.connections = 10000001",
            "felix.toml:1:23",
            "above 10000000",
        ),
        ("cutting.mark = 3", "felix.toml:1:16", "not one bit"),
        ("cutting.mark = 0", "felix.toml:1:16", "not one bit"),
        ("route_protocol = 3", "felix.toml:1:18", "below 5"),
        (
            "route_protocol = 12",
            "felix.toml:1:18",
            "12 (bird) is another program's",
        ),
        (
            "log = \"verbose\"",
            "felix.toml:1:7",
            "`verbose` is not a level",
        ),
        ("endpoint_metric = 0", "felix.toml:1:19", "is 0"),
        ("route_table = 255", "felix.toml:1:15", "kernel's own"),
        ("log = \"felix=loud\"", "felix.toml:1:7", "felix=loud"),
        ("hostnam = \"x\"", "felix.toml:1:1", "hostname"),
    ];
    for (line, place, words) in cases {
        let error = read(&format!("{line}\n{STORE}")).unwrap_err();
        assert!(
            error.contains(place) && error.contains(words),
            "{line}: {error}"
        );
    }
    assert!(read("").unwrap_err().contains("datastore"));
}
