//! No report quotes a secret, for any mistake at any place of a file.

use rib::NextHops;
use testkit::damaged;

use crate::{BgpFile, NoKernel, Source, is_shown};

/// The secret. Any three octets of it in a report are a leak.
const MARK: &str = "QXZQXZQXZQXZ";
const PART: &str = "QXZ";

fn report(text: &str) -> Option<String> {
    let source = Source::new("bgp.toml", text).showing(is_shown);
    let read = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable);
    let report = read.err()?;
    Some(format!("{report}\n{}", report.messages().join("\n")))
}

/// Returns whether the text is rejected; asserts that no report quotes the secret.
fn is_rejected(text: &str) -> bool {
    let Some(report) = report(text) else {
        return false;
    };
    assert!(
        !report.contains(PART),
        "a secret is quoted:\n{report}\nof:\n{text}"
    );
    true
}

fn file(password: &str) -> String {
    format!(
        "asn = 64512\nrouter_id = \"10.0.0.11\"\nlisten = [\n  \"10.0.0.11:179\",\n]\n\n\
         [[neighbor]]\nname = \"rr1\"\naddress = \"10.0.0.1\"\n{password}\nasn = 64512\n\n\
         [[neighbor_range]]\nprefix = \"10.1.0.0/24\"\nlimit = 7\nasn = 64512\n\
         password = '''{MARK}'''\n"
    )
}

#[test]
fn secrets_are_not_quoted_in_any_kind_of_mistake() {
    let long = MARK.repeat(8);
    for password in [
        // Types.
        format!("password = [\"{MARK}\"]"),
        format!("password = {{ key = \"{MARK}\" }}"),
        format!("password = {MARK}"),
        format!("password = \"{long}\""),
        // Keys.
        format!("pasword = \"{MARK}\""),
        format!("Password = \"{MARK}\""),
        format!("password \"{MARK}\""),
        format!("password: \"{MARK}\""),
        format!("password.key = \"{MARK}\""),
        format!("\"password\" = [\"{MARK}\"]"),
        format!("secret = \"{MARK}\""),
        MARK.to_owned(),
        // Duplicate keys, or another mistake on the line.
        format!("password = \"{MARK}\"\npassword = \"{MARK}\""),
        format!("password = \"{MARK}\" hold_time = 9"),
        format!("password = \"{MARK}\"\nhold_tiem = 9"),
        format!("hold_tiem = 9\npassword = \"{MARK}\""),
        format!("hold_time = \npassword = \"{MARK}\""),
        format!("password = \"{MARK}\"\nhold_time = = 9"),
        // Quotation marks.
        format!("password = \"{MARK}"),
        format!("password = {MARK}\""),
        format!("password = '{MARK}"),
        format!("password = \"\"\"\n{MARK}\n{MARK}"),
        format!("password = \"{MARK}\\q\""),
        format!("password = \"\n{MARK}\""),
        // Comments.
        format!("#password = \"{MARK}\"\u{7}"),
        // Tables.
        format!("[passwords]\nrr1 = \"{MARK}\""),
        format!("[datastore]\nendpoints = [\"http://root:{MARK}@10.0.0.9:2379\"]"),
        format!("[datastore]\nendpoints = [\n\"http://root:{MARK}\n@10.0.0.9:2379\"]"),
        format!("[datastore]\npassword = \"{MARK}\""),
        format!("log = \"info\"\n[[neighbor]]\npassword = \"{MARK}\""),
        format!("[kernel]\npassword = \"{MARK}\""),
    ] {
        assert!(is_rejected(&file(&password)), "accepted: {password}");
    }
    let inline = format!(
        "asn = 64512\nrouter_id = \"10.0.0.11\"\n\
         neighbor = [{{ address = \"10.0.0.1\", password = \"{MARK}\", asn = 0 }}]\n"
    );
    assert!(is_rejected(&inline));
}

// Promise (Daemons): No report about a configuration quotes a secret, wherever the file is
// damaged.
#[test]
fn secrets_are_not_quoted_wherever_a_file_is_damaged() {
    let good = file(&format!("password = \"{MARK}\""));
    assert!(report(&good).is_none(), "{:?}", report(&good));
    let rejected = damaged(&good).filter(|text| is_rejected(text)).count();
    assert!(rejected > 1000, "{rejected}");
}
