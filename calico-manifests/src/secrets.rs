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
