//! Fields that have no effect are reported when they are written and when they are shown.

use serde_json::Value;

use crate::tool::Tool;

const MANIFEST: &str = "\
kind: HostEndpoint
metadata: {name: h}
spec: {node: n1, interfaceName: eth0}
---
kind: GlobalNetworkPolicy
metadata: {name: p}
spec:
  preDNAT: true
  applyOnForward: true
  ingress:
  - action: Deny
    protocol: TCP
    http: {methods: [GET]}
---
kind: GlobalNetworkSet
metadata: {name: s}
spec: {nets: [192.0.2.0/24]}
";

pub(crate) async fn fields_without_effect_are_reported(tool: &Tool) {
    let file = tool.file("some.yaml", MANIFEST);
    let (output, warned) = tool.both(&["apply", "-f", &file]);
    assert_eq!(
        output,
        "hostendpoint/h created\nglobalnetworkpolicy/p created\nglobalnetworkset/s created\n\
         Successfully applied 3 resource(s)\n"
    );
    for part in [
        "some.yaml:3:",
        "warning: HostEndpoint h: spec: nothing of a host endpoint is enforced",
        "some.yaml:8:",
        "warning: GlobalNetworkPolicy p: spec.preDNAT: ",
        "warning: GlobalNetworkPolicy p: spec.applyOnForward: ",
        "spec.ingress[0].http: matching on HTTP is not supported; all packets that reach this \
         rule are dropped",
    ] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
    assert!(!warned.contains("GlobalNetworkSet"), "{warned}");

    let (_, noted) = tool.both(&["get", "hostendpoint", "h"]);
    assert!(
        noted.contains("note: HostEndpoint h: spec: nothing"),
        "{noted}"
    );
    // Other forms are for programs.
    let (json, noted) = tool.both(&["get", "hostendpoint", "h", "-o", "json"]);
    assert_eq!(noted, "");
    serde_json::from_str::<Value>(&json).unwrap();

    let file = tool.file(
        "bad.yaml",
        &MANIFEST.replace("192.0.2.0/24", "192.0.2.0/33"),
    );
    let refused = tool.refused(&["apply", "-f", &file]);
    assert!(refused.contains("spec.nets[0]"), "{refused}");
    let file = tool.file("bad.yaml", &MANIFEST.replace("nets:", "net:"));
    let refused = tool.refused(&["apply", "-f", &file]);
    assert!(refused.contains("nets"), "{refused}");
}
