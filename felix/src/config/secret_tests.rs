//! No report about the file quotes a secret, for any mistake at any place.

use testkit::damaged;

use super::*;

/// The secret. Any three octets of it in a report are a leak.
const MARK: &str = "QXZQXZQXZQXZ";
const PART: &str = "QXZ";

/// Returns whether the text is rejected; asserts that no report quotes the secret.
fn is_rejected(text: &str) -> bool {
    let Err(report) = Config::of(&Source::new("felix.toml", text)) else {
        return false;
    };
    let report = format!("{report}\n{}", report.messages().join("\n"));
    assert!(
        !report.contains(PART),
        "a secret is quoted:\n{report}\nof:\n{text}"
    );
    true
}

fn file(datastore: &str) -> String {
    format!(
        "hostname = \"r1-c07\"\ninterface_prefix = [\n  \"cali\",\n]\n\n\
         [datastore]\nendpoints = [\"http://10.0.0.254:2379\"]\nusername = \"felix\"\n{datastore}\n"
    )
}

#[test]
fn secrets_are_not_quoted_in_any_kind_of_mistake() {
    for mistake in [
        format!("password = \"{MARK}\""),
        format!("password = [\"{MARK}\"]"),
        format!("password = {MARK}"),
        format!("pasword_file = \"{MARK}\""),
        format!("password \"{MARK}\""),
        format!("password: {MARK}"),
        format!("password_file = {{ text = \"{MARK}\" }}"),
        format!("password_file = \"/p\" password = \"{MARK}\""),
        format!("tls = {{ ca_file = \"/ca\", password = \"{MARK}\" }}"),
        format!("[passwords]\nfelix = \"{MARK}\""),
        format!("password_file = \"/p\"\n[felix_configuration.x]\npassword = \"{MARK}\""),
        format!("password_file = \"/p\"\n[felix_configuration]\npassword = \"{MARK}\""),
        MARK.to_owned(),
    ] {
        assert!(is_rejected(&file(&mistake)), "accepted: {mistake}");
    }
    for endpoints in [
        format!("[\"http://root:{MARK}@10.0.0.9:2379\"]"),
        format!("\"http://root:{MARK}@10.0.0.9:2379\""),
        format!("[\"http://root:{MARK}\n@10.0.0.9:2379\"]"),
    ] {
        let text = format!("[datastore]\nendpoints = {endpoints}\n");
        assert!(is_rejected(&text), "accepted: {text}");
    }
}

// Promise: as bgp-config secrets_are_not_quoted_wherever_a_file_is_damaged
#[test]
fn secrets_are_not_quoted_wherever_the_file_is_damaged() {
    // A former line of the file, which a damage can bring back.
    let good = file(&format!("password_file = \"/p\"\n#password = \"{MARK}\""));
    assert!(!is_rejected(&good));
    let rejected = damaged(&good).filter(|text| is_rejected(text)).count();
    assert!(rejected > 1000, "{rejected}");
}

#[test]
fn secrets_in_ignored_variables_are_not_quoted() {
    let names = ["FELIX_ETCDPASSWORD", "FELIX_ETCDUSERNAME"];
    let variables = names.map(|name| (name.to_owned(), MARK.to_owned()));
    let source = Source::new("felix.toml", file("password_file = \"/p\""));
    let config = Config::within(&source, Environment::of(variables)).expect("valid");
    assert_eq!(config.ignored_variables, names);
    assert!(!format!("{config:?}").contains(PART));
}
