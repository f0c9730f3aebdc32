//! The configuration files of Cambric's daemons in a fabric.

use std::fmt::Write as _;

use super::plan::{Bgp, MachinePlan, Place, Plan};

/// `bfd.toml` of every machine.
pub const BFD: &str = "control = \"/run/cambric/bfd.sock\"\nsocket = \"/run/cambric/bfd-clients.sock\"\n\
                       log = \"info\"\n";

/// The socket of [`BFD`] for the BGP daemons. The built-in one is in a directory that the machines of a lab share.
const BFD_SOCKET: &str = "bfd_socket = \"/run/cambric/bfd-clients.sock\"\n";

/// Returns `bgp-client.toml` of a node.
pub fn bgp_client(plan: &Plan, node: Place) -> String {
    let Some(own) = plan.nodes.get(node) else {
        return String::new();
    };
    if plan.bgp == Bgp::Store {
        return stored(plan, own, "bgp-client", "");
    }
    let mut text = speaker(plan, own, "bgp-client");
    let _ = write!(
        text,
        "next_hop_ipv4 = \"{}\"\nnext_hop_ipv6 = \"{}\"\n",
        own.v4, own.v6
    );
    text.push_str("\n[kernel]\ninstall = true\n");
    for peer in plan.peers_of(node) {
        neighbor(&mut text, plan, peer);
    }
    text
}

/// Returns `route-reflector.toml` of a reflector: the nodes are clients, by range; the other
/// reflectors are its neighbors.
pub fn route_reflector(plan: &Plan, reflector: usize) -> String {
    let Some(own) = plan.reflectors.get(reflector) else {
        return String::new();
    };
    if plan.bgp == Bgp::Store {
        return stored(plan, own, "route-reflector", &plan.reflector_keys);
    }
    let mut text = speaker(plan, own, "route-reflector");
    let _ = writeln!(text, "cluster_id = \"{}\"", own.v4);
    for (i, peer) in plan.reflectors.iter().enumerate() {
        if i != reflector {
            neighbor(&mut text, plan, peer);
        }
    }
    let _ = write!(
        text,
        "\n[[neighbor_range]]\nprefix = \"{}\"\nasn = {}\nlimit = {}\nroute_reflector_client = true\n{}",
        plan.underlay_v4(),
        plan.asn,
        plan.nodes.len(),
        plan.neighbor_keys,
    );
    text
}

/// Returns `felix.toml` of a node.
pub fn felix(plan: &Plan, node: Place) -> String {
    let Some(own) = plan.nodes.get(node) else {
        return String::new();
    };
    let keys =
        "interface_prefix = [\"cali\", \"tap\"]\nendpoint_status_path_prefix = \"/run/cambric\"\n";
    let own = named(own, "felix", &format!("{keys}{}", plan.felix_keys));
    format!("{own}{}", datastore(plan))
}

/// Returns the file of a BGP daemon that the datastore configures.
fn stored(plan: &Plan, own: &MachinePlan, daemon: &str, more: &str) -> String {
    let keys = format!("{BFD_SOCKET}{more}");
    format!("{}{}", named(own, daemon, &keys), datastore(plan))
}

fn named(own: &MachinePlan, daemon: &str, more: &str) -> String {
    format!(
        "hostname = \"{}\"\ncontrol = \"/run/cambric/{daemon}.sock\"\nlog = \"info\"\n{more}",
        own.name
    )
}

fn datastore(plan: &Plan) -> String {
    let urls = plan.store_urls();
    let urls: Vec<_> = urls.iter().map(|url| format!("\"{url}\"")).collect();
    format!("\n[datastore]\nendpoints = [{}]\n", urls.join(", "))
}

fn speaker(plan: &Plan, own: &MachinePlan, daemon: &str) -> String {
    format!(
        "asn = {}\nrouter_id = \"{}\"\nlisten = [\"{}:179\"]\n\
         control = \"/run/cambric/{daemon}.sock\"\n\
         families = [\"ipv4-unicast\", \"ipv6-unicast\"]\nlog = \"info\"\n{BFD_SOCKET}",
        plan.asn, own.v4, own.v4,
    )
}

fn neighbor(text: &mut String, plan: &Plan, peer: &MachinePlan) {
    let _ = write!(
        text,
        "\n[[neighbor]]\nname = \"{}\"\naddress = \"{}\"\nasn = {}\n{}",
        peer.name, peer.v4, plan.asn, plan.neighbor_keys,
    );
}

#[cfg(test)]
mod tests {
    use super::super::plan::Shape;
    use super::*;

    fn plan(mesh: bool) -> Plan {
        Plan::new(Shape {
            nodes: 3,
            reflectors: 2,
            workloads_per_node: 1,
            mesh,
        })
        .unwrap()
    }

    #[test]
    fn a_node_peers_with_every_reflector() {
        let text = bgp_client(&plan(false), 1);
        assert!(text.contains("router_id = \"10.0.0.12\""), "{text}");
        assert!(text.contains("next_hop_ipv6 = \"fd00::12\""), "{text}");
        assert_eq!(text.matches("[[neighbor]]").count(), 2, "{text}");
        assert!(
            text.contains("name = \"rr2\"\naddress = \"10.0.0.2\"\nasn = 64512"),
            "{text}"
        );
    }

    #[test]
    fn further_keys_are_those_of_every_neighbor_and_range() {
        let mut plan = plan(false);
        plan.neighbor_keys = "bfd = true\n".to_owned();
        let [client, reflector] = [bgp_client(&plan, 0), route_reflector(&plan, 0)];
        let found = [client, reflector].map(|text| text.matches("\nbfd = true\n").count());
        assert_eq!(found, [2, 2]);
    }

    #[test]
    fn a_node_of_a_mesh_peers_with_the_others_only() {
        let text = bgp_client(&plan(true), 1);
        assert_eq!(text.matches("[[neighbor]]").count(), 2, "{text}");
        assert!(
            text.contains("\"node1\"") && text.contains("\"node3\""),
            "{text}"
        );
        assert!(!text.contains("\"node2\""), "{text}");
    }

    #[test]
    fn reflector_has_nodes_by_range_and_peer_by_name() {
        let text = route_reflector(&plan(false), 0);
        assert!(text.contains("cluster_id = \"10.0.0.1\""), "{text}");
        assert!(text.contains("name = \"rr2\""), "{text}");
        assert!(!text.contains("name = \"rr1\""), "{text}");
        assert!(
            text.contains("prefix = \"10.0.0.0/24\"\nasn = 64512\nlimit = 3"),
            "{text}"
        );
    }

    #[test]
    fn files_beside_a_store_name_no_neighbor() {
        let mut plan = plan(false).with_bgp_from_store();
        plan.reflector_keys = "restart_wait = 5\n".to_owned();
        let (client, reflector) = (bgp_client(&plan, 1), route_reflector(&plan, 0));
        let debug = [&client, &reflector].map(|text| text.contains(&plan.reflector_keys));
        assert_eq!(debug, [false, true]);
        for (text, name) in [(client, "node2"), (reflector, "rr1")] {
            assert!(text.contains(&format!("hostname = \"{name}\"")), "{text}");
            assert!(
                text.contains("[datastore]\nendpoints = [\"http://10.0.0.254:2379\"]"),
                "{text}"
            );
            assert!(
                !text.contains("neighbor") && !text.contains("asn"),
                "{text}"
            );
        }
    }

    #[test]
    fn felix_file_has_host_and_store() {
        let text = felix(&plan(false), 2);
        assert!(text.contains("hostname = \"node3\""), "{text}");
        assert!(
            text.contains("endpoints = [\"http://10.0.0.254:2379\"]"),
            "{text}"
        );
        let mut three = plan(false).with_store_members(3).unwrap();
        three.felix_keys = "cutting.enabled = true\n".to_owned();
        let text = felix(&three, 2);
        assert!(
            text.contains("cutting.enabled = true\n\n[datastore]"),
            "{text}"
        );
        assert!(text.contains(", \"http://10.0.0.252:2379\"]"), "{text}");
    }
}
