use daemon_common::config::{alternative, uncommented};

use super::*;

const STORE: &str = "[datastore]\nendpoints = [\"http://10.0.0.1:2379\"]\n";

fn parse(text: &str) -> Result<Config, Report> {
    Config::parse(&Source::new("kube.toml", text))
}

/// Returns a variable of the environment of a pod.
fn of_pod(name: &str) -> Option<String> {
    let text = match name {
        "KUBERNETES_SERVICE_HOST" => "10.96.0.1",
        "KUBERNETES_SERVICE_PORT" => "443",
        _ => return None,
    };
    Some(text.to_owned())
}

#[test]
fn packaged_file_is_valid_and_shows_every_key() {
    const PACKAGED: &str = include_str!("../../../packaging/etc/kube.toml");
    let shown = parse(&uncommented(PACKAGED)).expect("valid");
    assert_eq!(shown.control, control());
    assert!(shown.metrics.is_some(), "an example");
    for key in ["server", "ca_file", "token_file", "cert_file", "key_file"] {
        assert!(PACKAGED.contains(&format!("{key} = ")), "{key}");
    }
    let other = format!("{STORE}{}", alternative(PACKAGED));
    let report = parse(&other).expect_err("no such file").to_string();
    assert!(report.contains("/etc/cambric/kubeconfig: "), "{report}");
}

#[test]
fn server_of_a_pod_is_in_its_environment() {
    let source = Source::new("kube.toml", STORE);
    let config = Config::check(&source, of_pod, false).expect("valid");
    assert_eq!(config.access.authority(), "10.96.0.1:443");
    let lease = config.lease.expect("pods have a lease");
    assert_eq!(lease.to_string(), "kube-system/cambric-kube");
    assert!(parse(STORE).is_err(), "no server");
}

#[test]
fn datastore_is_that_of_the_environment_without_its_table() {
    let check = |text: &str, variables: &[(&str, &str)]| {
        let variable = |name: &str| {
            let mut all = variables.iter();
            let found = all.find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let text = format!("{text}[kubernetes]\nserver = \"http://a\"\n");
        Config::check(&Source::new("kube.toml", text), variable, false)
    };
    let calico = [
        (
            "ETCD_ENDPOINTS",
            "https://10.0.0.9:2379, https://10.0.0.8:2379",
        ),
        ("ETCD_CA_CERT_FILE", "/ca"),
        ("ETCD_CERT_FILE", ""),
        ("ETCD_KEY_FILE", ""),
    ];
    let found = check("", &calico).expect("valid").datastore;
    assert_eq!(found.endpoints.len(), 2);
    let tls = found.tls.expect("files");
    assert_eq!((tls.ca_file, tls.cert_file), ("/ca".into(), None));
    let found = check(STORE, &calico).expect("valid").datastore;
    assert_eq!(
        found.endpoints,
        ["http://10.0.0.1:2379"],
        "the file precedes"
    );
    for (variables, words) in [
        (&[][..], "`datastore` is missing: "),
        (&[("ETCD_ENDPOINTS", "10.0.0.9")], "variables ETCD_…: "),
        (
            &[("ETCD_ENDPOINTS", "http://a:1"), ("ETCD_CERT_FILE", "/c")],
            "ETCD_CA_CERT_FILE",
        ),
        (
            &[("ETCD_ENDPOINTS", "http://a:1"), ("ETCD_PASSWORD", "QXZ")],
            "a user and a password go together",
        ),
        (
            &[("ETCD_ENDPOINTS", "http://a:1"), ("ETCD_KEY", "QXZ")],
            "ETCD_KEY, ETCD_CERT",
        ),
    ] {
        let report = check("", variables).expect_err(words).to_string();
        assert!(
            report.contains(words) && !report.contains("QXZ"),
            "{report}"
        );
    }
}

#[test]
fn mistakes_are_reported_with_their_place() {
    for (server, place) in [
        ("server = \"10.0.0.1\"", "kube.toml:4"),
        ("server = \"https://10.0.0.1\"", "ca_file"),
        (
            "server = \"http://10.0.0.1\"\ntoken_file = \"/t\"",
            "kube.toml:5",
        ),
        ("sever = \"http://10.0.0.1\"", "kube.toml:4"),
    ] {
        let text = format!("{STORE}[kubernetes]\n{server}\n");
        let report = parse(&text).expect_err(server).to_string();
        assert!(report.contains(place), "{report}");
    }
    let report = parse("[datastore]\nendpoints = []\n[kubernetes]\nserver = \"http://a\"\n");
    let report = report.expect_err("no endpoint").to_string();
    assert!(report.contains("kube.toml:2"), "{report}");
}

/// Writes a kubeconfig whose user has this content, and returns the configuration with it.
fn with_kubeconfig(user: &str, more: &str, by_variable: bool) -> Result<Config, Report> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kubeconfig");
    std::fs::write(directory.path().join("token"), "QXZ").expect("written");
    let text = format!(
        "{{clusters: [{{name: c, cluster: {{server: 'https://10.0.0.9:6443', \
         certificate-authority: ca.pem}}}}], users: [{{name: u, user: {user}}}], \
         contexts: [{{name: k, context: {{cluster: c, user: u}}}}], current-context: k}}"
    );
    std::fs::write(&path, text).expect("written");
    let path = path.display().to_string();
    let key = match by_variable {
        true => String::new(),
        false => format!("kubeconfig = {path:?}\n"),
    };
    let source = Source::new("kube.toml", format!("{STORE}[kubernetes]\n{key}{more}"));
    let variable = |name: &str| match name {
        KUBECONFIG => by_variable.then(|| path.clone()),
        // A kubeconfig precedes the server of a pod.
        name => of_pod(name),
    };
    Config::check(&source, variable, false)
}

#[test]
fn server_is_that_of_a_kubeconfig() {
    for by_variable in [false, true] {
        let config = with_kubeconfig("{tokenFile: token}", "", by_variable).expect("valid");
        assert_eq!(config.access.authority(), "10.0.0.9:6443");
        assert!(format!("{config:?}").contains("/token\""), "{config:?}");
    }
    // The server of the file precedes the variable.
    let server = "server = \"http://10.0.0.8\"\n";
    let config = with_kubeconfig("{}", server, true).expect("valid");
    assert_eq!(config.access.authority(), "10.0.0.8:80");
    let text = format!("{STORE}[kubernetes]\nkubeconfig = \"/nonexistent\"\n");
    let report = parse(&text).expect_err("no file").to_string();
    assert!(
        report.contains("kube.toml:4") && report.contains("/nonexistent: "),
        "{report}"
    );
}

#[test]
fn mistakes_of_a_kubeconfig_are_named_without_secrets() {
    for (user, more, words) in [
        (
            "{exec: {command: QXZ}}",
            "",
            "entry \"u\": exec is not supported",
        ),
        (
            "{auth-provider: {name: QXZ}}",
            "",
            "entry \"u\": auth-provider is not supported",
        ),
        (
            "{username: QXZ, password: QXZ}",
            "",
            "username is not supported",
        ),
        ("{client-certificate: c.pem}", "", "client-certificate: "),
        (
            "{token: QXZ}",
            "ca_file = \"/ca\"\n",
            "`ca_file`: the kubeconfig ",
        ),
    ] {
        for by_variable in [false, true] {
            let report = with_kubeconfig(user, more, by_variable).expect_err(words);
            let report = report.to_string();
            assert!(report.contains(words), "{report}");
            assert!(!report.contains("QXZ"), "{report}");
        }
    }
}

#[test]
fn lease_is_that_of_the_table() {
    let server = "[kubernetes]\nserver = \"http://a\"\n";
    let text = |lease: &str| format!("{STORE}{server}{lease}");
    assert_eq!(parse(&text("")).expect("valid").lease, None);
    let with = parse(&text("[lease]\nnamespace = \"net\"\n")).expect("valid");
    let again = parse(&text("[lease]\nnamespace = \"net\"\n")).expect("valid");
    assert!(with.changed_keys(&again).is_empty(), "another identity");
    let lease = with.lease.clone().expect("a lease");
    assert_eq!(lease.to_string(), "net/cambric-kube");
    assert_ne!(
        Some(lease.identity),
        again.lease.map(|lease| lease.identity)
    );
    let other = parse(&text("[lease]\nname = \"b\"\n")).expect("valid");
    assert_eq!(with.changed_keys(&other), ["lease"]);
    let report = parse(&text("[lease]\nname = \"A/b\"\n")).expect_err("invalid");
    assert!(report.to_string().contains("kube.toml:6"), "{report}");
    let source = Source::new("kube.toml", format!("{STORE}[lease]\nenabled = false\n"));
    let config = Config::check(&source, of_pod, false).expect("valid");
    assert_eq!(config.lease, None);
}

#[test]
fn files_of_credentials_are_read() {
    let keys = ["ca_file", "token_file", "cert_file", "key_file"];
    let lines = keys.map(|key| format!("{key} = \"/nonexistent/{key}\"\n"));
    let text = format!(
        "{STORE}[kubernetes]\nserver = \"https://a\"\n{}",
        lines.concat()
    );
    let source = Source::new("kube.toml", &text);
    assert!(Config::check(&source, |_| None, false).is_ok());
    let report = Config::check(&source, |_| None, true).expect_err("no files");
    let report = report.to_string();
    for key in keys {
        assert!(report.contains(&format!("/nonexistent/{key}")), "{report}");
    }
}

#[test]
fn changed_keys_are_named() {
    let text = |server: &str| format!("{STORE}[kubernetes]\nserver = \"http://{server}\"\n");
    let before = parse(&text("a")).expect("valid");
    assert!(before.changed_keys(&before).is_empty());
    let after = parse(&text("b")).expect("valid");
    assert_eq!(before.changed_keys(&after), ["kubernetes"]);
}
