//! `cambric check rules`, with the listing of a host in a file.

use crate::tool::Tool;

/// The rules of a host with three endpoints, as `nft` lists them.
const LISTING: &str = include_str!("../../../rule-audit/tests/listing.json");

const MANIFEST: &str = "\
kind: Profile
metadata: {name: open}
spec: {ingress: [{action: Allow}], egress: [{action: Allow}]}
---
kind: Profile
metadata: {name: out}
spec: {egress: [{action: Allow}]}
---
kind: Profile
metadata: {name: closed}
spec: {}
---
kind: WorkloadEndpoint
metadata: {name: n1-k8s-p1-eth0, namespace: prod}
spec: {orchestrator: k8s, node: n1, pod: p1, endpoint: eth0, interfaceName: cali1,
  profiles: [open], ipNetworks: [10.65.0.1/32, 'fd65::1/128']}
---
kind: WorkloadEndpoint
metadata: {name: n1-k8s-p2-eth0, namespace: prod}
spec: {orchestrator: k8s, node: n1, pod: p2, endpoint: eth0, interfaceName: cali2,
  profiles: [out], ipNetworks: [10.65.0.2/32]}
---
kind: WorkloadEndpoint
metadata: {name: n1-k8s-p3-eth0, namespace: prod}
spec: {orchestrator: k8s, node: n1, pod: p3, endpoint: eth0, interfaceName: tap3,
  profiles: [closed], ipNetworks: ['fd65::3/128']}
";

pub(crate) async fn rules_of_a_listing_are_compared(tool: &Tool) {
    tool.apply("endpoints.yaml", MANIFEST);
    let listing = tool.file("listing.json", LISTING);
    let file = ["check", "rules", "--node", "n1", "--listing", &listing];
    let file = [&file[..], &["--no-files"]].concat();
    let check = [&file[..], &["--control-port-exceptions", "10.65.0.1"]].concat();
    let output = tool.done(&check);
    assert!(
        output.ends_with("7 equal, 0 different, 0 unknown\n"),
        "{output}"
    );
    let output = tool.done(&[&check[..], &["--all"]].concat());
    assert!(
        output.contains("endpoint prod/n1-k8s-p1-eth0 (cali1): equal (24"),
        "{output}"
    );

    // The exception of the listing is in no file, and a port is open.
    let (output, _) = tool.failed(&file);
    assert!(
        output.contains("chain guard-input: IPv4 TCP 10.65.0.1"),
        "{output}"
    );
    let (output, _) = tool.failed(&[&check[..], &["--control-ports", "181"]].concat());
    assert!(output.contains("port 181, new"), "{output}");
    // Without a file of Felix, its control ports are not known.
    let (output, _) = tool.failed(&["check", "rules", "--node", "n1", "--listing", &listing]);
    assert!(output.contains("there is no file of Felix"), "{output}");
    members_of_the_datastore_are_closed(tool, &listing);
    let closed = MANIFEST.replace("{ingress: [{action: Allow}], egress", "{egress");
    tool.apply("closed.yaml", &closed);
    let (output, _) = tool.failed(&check);
    for part in [
        "endpoint prod/n1-k8s-p1-eth0 (cali1): different",
        "  different: chain forward-to: IPv4 protocol 0 0.0.0.0 > 0.0.0.0, new\n",
        "    datastore: drop: no policy or profile allows it\n",
        "    kernel:    accept: chain to-cali1 handle ",
        "6 equal, 1 different, 0 unknown\n",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    let empty = tool.file("empty.json", "{}");
    let error = tool.refused(&["check", "rules", "--node", "n1", "--listing", &empty]);
    assert!(
        error.contains("the listing has no list `nftables`"),
        "{error}"
    );
}

/// A file of Felix is read, and the members of the datastore: the rules of the listing do not close them.
fn members_of_the_datastore_are_closed(tool: &Tool, listing: &str) {
    let text = "control_port_exceptions = [\"10.65.0.1/32\"]\n[datastore]\nendpoints = []\n";
    let file = tool.file("felix.toml", text);
    let rest = ["--listing", listing, "--felix-file", &file];
    let check = [&["check", "rules", "--node", "n1"][..], &rest].concat();
    let (output, _) = tool.failed(&check);
    for part in [
        "chain guard-input: IPv4 TCP",
        "control port of the fabric",
        "5 different, 0 unknown",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
}
