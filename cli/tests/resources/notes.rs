//! Fields that have no effect are reported when they are written and when they are shown.

use serde_json::Value;

use crate::tool::Tool;

const MANIFEST: &str = "\
kind: StagedGlobalNetworkPolicy
metadata: {name: h}
spec: {selector: all(), types: [Ingress]}
---
kind: GlobalNetworkPolicy
metadata: {name: p}
spec:
  applyOnForward: true
  performanceHints: [AssumeNeededOnEveryNode]
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
        "stagedglobalnetworkpolicy/h created\nglobalnetworkpolicy/p created\nglobalnetworkset/s created\n\
         Successfully applied 3 resource(s)\n"
    );
    for part in [
        "some.yaml:3:",
        "warning: StagedGlobalNetworkPolicy h: spec: staged policies are not enforced",
        "some.yaml:9:",
        "warning: GlobalNetworkPolicy p: spec.performanceHints: ",
        "spec.ingress[0].http: matching on HTTP is not supported; all packets that reach this \
         rule are dropped",
    ] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
    assert!(!warned.contains("GlobalNetworkSet"), "{warned}");

    let (_, noted) = tool.both(&["get", "stagedglobalnetworkpolicy", "h"]);
    assert!(
        noted.contains("note: StagedGlobalNetworkPolicy h: spec: staged"),
        "{noted}"
    );
    // Other forms are for programs.
    let (json, noted) = tool.both(&["get", "stagedglobalnetworkpolicy", "h", "-o", "json"]);
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
