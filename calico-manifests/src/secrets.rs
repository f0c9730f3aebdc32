//! Secrets are not quoted in reports about manifests.

use crate::mistaken::report;

#[test]
fn secrets_in_manifests_are_not_quoted() {
    const PART: &str = "QXZ";
    let head = "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata:\n  name: rr1\nspec:\n";
    for field in [
        "password: QXZQXZQXZ",
        "password: *QXZQXZQXZ",
        "password: \"QXZQXZQXZ",
        "password: [QXZQXZQXZ]",
        "password:\n    secretKeyRef: QXZQXZQXZ",
        "password:\n    secretKeyRef:\n      name: [QXZQXZQXZ]",
        "password: {QXZQXZQXZ",
        "password: QXZQXZQXZ: 1",
        "password: !QXZQXZQXZ 1",
        "password: |QXZQXZQXZ",
        "password: @QXZQXZQXZ",
        "password: `QXZQXZQXZ",
        "password: 'QXZQXZQXZ' x",
        "pasword: QXZQXZQXZ",
        "password QXZQXZQXZ",
        "password = QXZQXZQXZ",
        "pasword QXZQXZQXZ: 1",
        "password: {secretKeyRef: {nam: QXZQXZQXZ}}",
        "password:\n    QXZQXZQXZ: 1",
        "password:\n    - QXZQXZQXZ",
        "password: >\n    QXZQXZQXZ\n    QXZQXZQXZ",
        "password:\tQXZQXZQXZ",
        "password:QXZQXZQXZ",
        "asNumber: 1 password: QXZQXZQXZ",
        "asNumber: {password: QXZQXZQXZ}",
        "\"password\": QXZQXZQXZ",
        "? password\n  : QXZQXZQXZ",
        "password: &p QXZQXZQXZ\n  nextHopMode: *p",
        "password: &p {name: QXZQXZQXZ}\n  nodeSelector: *p",
        "password: {name: &p QXZQXZQXZ}\n  filters: [*p]",
        "filters: [a, {pasword: QXZQXZQXZ}]",
        "filters:\n  - a\n  - pasword: QXZQXZQXZ",
        "nodeSelector: all()\n  password:\n  - QXZQXZQXZ",
        "password: 7777QXZ77",
        "<<: {password: QXZQXZQXZ}",
        "password: \"QXZQXZ\\\n    QXZQXZ\"",
        "password: |-\n    QXZ\n    peerIP: QXZ",
    ] {
        let report = report(
            "peer.yaml",
            &format!("{head}  {field}\n  peerIP: 10.0.0.1\n"),
        );
        assert!(!report.is_empty(), "accepted: {field}");
        assert!(!report.contains(PART), "{field}: {report}");
    }
    let secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\ndata:\n  key: QXZQXZQXZ\n";
    let found = report("secret.yaml", secret);
    assert!(!found.is_empty() && !found.contains(PART), "{found}");
    let short = report("peer.yaml", &format!("{head}  password: 777\n"));
    assert!(!short.is_empty() && !short.contains("777"), "{short}");
}

#[test]
fn secrets_are_not_quoted_wherever_a_manifest_is_damaged() {
    const PART: &str = "QXZ";
    let block = "kind: BGPPeer\nmetadata:\n  name: rr1\n  labels: {a: b}\nspec:\n  peerIP: 10.0.0.1\n  \
        password: QXZQXZQXZ\n  filters:\n  - a\n  asNumber: 1\n";
    let braces = "kind: BGPPeer\nspec: {asNumber: 1, password: QXZQXZQXZ, peerIP: ::1}\n";
    let lines = "{\n  \"kind\": \"BGPPeer\",\n  \"spec\": {\n  \"password\":\n  \"QXZ:QXZ\",\n  \
        \"asNumber\": \"x\"}}\n";
    let json = "{\"kind\": \"BGPPeer\", \"spec\": {\n  \"password\": \"QXZQXZQXZ\",\n  \"asNumber\": 1}}\n";
    let mut leaks = Vec::new();
    for text in [block, braces, lines, json] {
        for at in 0..text.len() {
            let (before, after) = text.split_at(at);
            let without = format!("{before}{}", &after[1..]);
            let marks = [
                "\"", "'", "{", "}", "[", ":", ": ", "#", "*", "&", "-", "\n", " ", "\t", ",",
            ];
            let with = marks.map(|mark| format!("{before}{mark}{after}"));
            for damaged in with.into_iter().chain([without]) {
                let report = report("peer.yaml", &damaged);
                if report.contains(PART) {
                    leaks.push(format!("{damaged}\n{report}"));
                }
            }
        }
    }
    let first = leaks.iter().take(20);
    let first: Vec<&str> = first.map(String::as_str).collect();
    assert!(
        leaks.is_empty(),
        "{} leaks: {}",
        leaks.len(),
        first.join("\n")
    );
}
