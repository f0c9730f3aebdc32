use std::path::PathBuf;

use bgp_config::Report;

use super::*;

const HEAD: &str = "asn = 64512\nrouter_id = \"10.0.0.11\"\n";

fn parse(text: &str) -> Result<Config, Report> {
    Config::parse(&Source::new("client.toml", format!("{HEAD}{text}")))
}

fn refusal(text: &str) -> String {
    parse(text).expect_err("refused").to_string()
}

#[test]
fn defaults_are_felix_and_the_main_table() {
    let config = parse("").unwrap();
    assert_eq!(config.settings, KernelConfig::default());
    assert_eq!(config.settings.tables(), [254]);
    assert!(config.notes().is_empty());
    assert_eq!(
        config.control(),
        PathBuf::from("/run/cambric-bgp-client/bgp-client.sock")
    );
}

#[test]
fn every_key_of_the_section_counts() {
    let config = parse(
        "[kernel]\ninstall = false\ntable = 1000\nmetric = 200\nformer_metrics = [7, 9]\nprotocol = 12\ngrace = 5\n\
         reconcile = 0\non_exit = \"flush\"\nnexthop_objects = \"auto\"\nmultipath_weights = \"link-bandwidth\"\nfelix = true\n[[kernel.import]]\nprotocols = [80]\ntable = 7\n\
         interfaces = [\"veth*\", \"eth1\"]\n",
    );
    let KernelConfig {
        install,
        table,
        metric,
        former_metrics,
        owner,
        grace,
        reconcile,
        on_exit,
        nexthop_objects,
        multipath_weights,
        felix,
        import,
    } = config.as_ref().unwrap().settings.clone();
    assert_eq!(
        (install, table, metric, owner),
        (false, 1000, 200, Owner(12))
    );
    assert_eq!((grace, reconcile), (Duration::from_secs(5), Duration::ZERO));
    assert_eq!(former_metrics, [7, 9]);
    assert_eq!(multipath_weights, MultipathWeights::LinkBandwidth);
    assert_eq!(
        (on_exit, nexthop_objects),
        (OnExit::Flush, NexthopUse::Auto)
    );
    assert_eq!(felix, Some(true));
    assert_eq!((import.len(), import[0].table), (1, 7));
    assert_eq!(import[0].interfaces[0].to_string(), "veth*");
    let config = config.unwrap();
    assert_eq!(config.settings.tables(), [1000, 7, marker::TABLE]);
    let notes = config.notes().join("\n");
    assert!(
        notes.contains("shadow run") && notes.contains("not above 256"),
        "{notes}"
    );
}

#[test]
fn routes_at_other_metrics_are_foreign() {
    let metrics = |kernel: &str| {
        let metrics = parse(kernel).unwrap().settings.metrics();
        metrics
            .iter()
            .map(|range| *range.start())
            .collect::<Vec<_>>()
    };
    assert_eq!(metrics(""), [1024]);
    assert_eq!(
        metrics("[kernel]\nmetric = 7\nformer_metrics = [9, 7]\n"),
        [7, 9, 1024]
    );
    assert_eq!(metrics("[kernel]\nprotocol = 12\n"), [0, 32, 1024]);
    let report = refusal("[kernel]\nformer_metrics = [9, 256]\n");
    assert!(report.contains("client.toml:4:22"), "{report}");
    assert!(report.contains("that of Felix's routes"), "{report}");
}

#[test]
fn a_shadow_run_compares_with_routes_without_a_metric() {
    let config = parse("[kernel]\ninstall = false\nmetric = 0\n").unwrap();
    assert_eq!(config.settings.metric, 0);
}

#[test]
fn an_empty_import_list_announces_nothing() {
    let config = parse("[kernel]\nimport = []\n").unwrap();
    assert!(config.settings.import.is_empty());
}

#[test]
fn mistakes_are_named_with_their_place() {
    let text = refusal("[kernel]\nmetrik = 5\n");
    assert!(
        text.contains("client.toml:4") && text.contains("metric"),
        "{text}"
    );
    for (key, expected) in [
        ("metric = 0", "metric 0 means another metric"),
        ("protocol = 2", "2 (kernel) is the system's own"),
        ("table = 255", "table 255 is not one for routes"),
        (
            "import = [{ protocols = [119] }]",
            "protocol 119 is kernel.protocol",
        ),
        ("import = [{ protocols = [] }]", "nothing is imported"),
        (
            "import = [{ protocols = [80], interfaces = [\"a*b\"] }]",
            "only at the end",
        ),
        ("on_exit = \"drop\"", "on_exit"),
    ] {
        let text = refusal(&format!("[kernel]\n{key}\n"));
        assert!(
            text.contains(expected) && text.contains("client.toml:4"),
            "{key}: {text}"
        );
    }
}

#[test]
fn the_packaged_file_shows_defaults_and_examples_that_are_right() {
    let packaged = include_str!("../../../packaging/etc/bgp-client.toml");
    let read = |text: &str| Config::parse(&Source::new("bgp-client.toml", text));
    let intent = |config: &Config| config.intent().expect("all in the file").clone();
    let plain = read(packaged).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(plain.settings, KernelConfig::default());
    let stored = read(&daemon_common::config::alternative(packaged));
    let stored = stored.unwrap_or_else(|report| panic!("{report}"));
    assert!(stored.intent().is_none(), "it is in the datastore");
    assert!(stored.file.secrets.is_some() && stored.file.datastore_snapshot.is_some());
    let all = daemon_common::config::uncommented(packaged);
    let all = read(&all).unwrap_or_else(|report| panic!("{report}\n{all}"));
    assert_eq!(all.settings, plain.settings);
    assert_eq!(all.control(), plain.control());
    assert_eq!(intent(&all).restart_wait, intent(&plain).restart_wait);
    assert_eq!(
        intent(&all).speaker.families,
        intent(&plain).speaker.families
    );
    assert_eq!(intent(&all).speaker.peers.len(), 2);
}

#[test]
fn the_page_on_moving_from_calico_is_right() {
    let manual = include_str!("../../../docs/operate/migrate.md");
    let mut examples = manual.split("```toml\n").skip(1);
    let mut next = || {
        let example = examples.next().and_then(|rest| rest.split("```").next());
        let source = Source::new("manual.toml", example.expect("an example"));
        Config::parse(&source).unwrap_or_else(|report| panic!("{report}"))
    };
    let (stored, config) = (next(), next());
    assert!(stored.intent().is_none());
    assert_eq!(stored.settings, config.settings);
    assert_eq!(config.settings.owner, Owner(12));
    let intent = config.intent().expect("all in the file");
    assert_eq!(intent.speaker.peers[0].name, "Mesh_10_0_0_2");
}

#[test]
fn the_page_about_the_store_is_right() {
    let page = include_str!("../../../docs/operate/bgp-resources.md");
    let examples = page.split("```toml\n").skip(1);
    let examples = examples.filter_map(|rest| rest.split("```").next());
    let read = |text: &str| Config::parse(&Source::new("page.toml", text));
    for text in examples {
        let config = read(text).unwrap_or_else(|report| panic!("{report}"));
        assert!(config.intent().is_none(), "it is in the datastore");
    }
    let stored = |key: &str| {
        format!("hostname = \"a\"\n{key}\n[datastore]\nendpoints = [\"http://s:2379\"]\n")
    };
    assert!(read(&stored("absence_wait = 5")).is_ok());
    for (key, expected) in [
        ("absence_wait = 4000", "at most 3600 seconds"),
        ("registration_ttl = 15", "registers nowhere"),
    ] {
        let report = read(&stored(key)).expect_err("refused").to_string();
        assert!(
            report.contains("page.toml:2") && report.contains(expected),
            "{report}"
        );
    }
    // Keys that the datastore determines are rejected in the file.
    let twice = "hostname = \"a\"\nasn = 1\n[datastore]\nendpoints = [\"http://s:2379\"]\n";
    let report = read(twice).expect_err("refused").to_string();
    assert!(
        report.contains("page.toml:2") && report.contains("comes from the store"),
        "{report}"
    );
}

#[test]
fn reflectors_key_requires_a_datastore() {
    let read = |head: &str, count: u16, rest: &str| {
        let text = format!("{head}reflectors = {count}\n{rest}");
        Config::parse(&Source::new("client.toml", text))
    };
    let store = "[datastore]\nendpoints = [\"http://s:2379\"]\n";
    let good = read("", 3, store).unwrap_or_else(|report| panic!("{report}"));
    let Some(host) = good.host else {
        panic!("it is in the datastore");
    };
    assert_eq!((host.reflectors, host.reflects), (Some(3), false));
    for (head, count, rest, expected) in [
        ("", 0, store, "reflectors is from 1 to 8"),
        ("", 9, store, "reflectors is from 1 to 8"),
        (HEAD, 2, "", "no [datastore] is given"),
    ] {
        let report = read(head, count, rest).expect_err("refused").to_string();
        let line = head.lines().count() + 1;
        let place = format!("client.toml:{line}:14");
        assert!(
            report.contains(expected) && report.contains(&place),
            "{report}"
        );
    }
}

#[test]
fn the_page_of_the_manual_is_right() {
    let manual = include_str!("../../../docs/operate/bgp-client.md");
    let examples = manual.split("```toml\n").skip(1);
    let mut examples = examples.filter_map(|rest| rest.split("```").next());
    let mut next = || {
        let source = Source::new("manual.toml", examples.next().expect("an example"));
        Config::parse(&source).unwrap_or_else(|report| panic!("{report}"))
    };
    let (config, classic) = (next(), next());
    assert_eq!(config.settings, KernelConfig::default());
    let peer = |config: &Config| config.intent().expect("all in the file").speaker.peers[0].clone();
    assert_eq!(peer(&config).name, "rr1");
    assert!(config.notes().is_empty(), "{:?}", config.notes());
    assert_eq!(peer(&classic).next_hop, bgp_io::rib::NextHopMode::Own);
    assert_eq!(classic.settings.import[0].interfaces.len(), 3);
}
