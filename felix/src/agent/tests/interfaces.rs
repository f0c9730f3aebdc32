//! Interfaces that are removed, added, and replaced.

use fib_sync::Tunnel;
use serde_json::json;

use super::*;
use crate::render::Key;

#[test]
fn interface_back_up_is_configured_again() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]);
    world.in_sync();
    assert_eq!(world.host.configured[&index], 1);
    world.kernel.borrow_mut().set_link_up(index, false);
    // The kernel drops entries with the link.
    world.host.neighbors.clear();
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    assert_eq!(world.state().1.as_deref(), Some("interface cali1 is down"));
    assert!(
        world.host.forgotten.is_empty(),
        "the addresses are still the endpoint's"
    );
    assert!(world.guards("cali1", [10, 65, 0, 1]), "rules stay");
    world.kernel.borrow_mut().set_link_up(index, true);
    world.settle();
    assert_eq!(world.host.configured[&index], 2);
    assert_eq!((world.routes().len(), world.host.neighbors.len()), (2, 2));
}

#[test]
fn a_replaced_interface_is_a_new_one() {
    let mut world = World::new();
    let old = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.kernel.borrow_mut().remove_link(old);
    world.host.neighbors.clear();
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    let new = world.link("cali1");
    world.settle();
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), new)].into());
    assert_eq!(world.host.neighbors.len(), 1);
    world.kernel.borrow_mut().rename_link(new, "other");
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    assert!(world.host.neighbors.is_empty(), "it stays up");
}

#[test]
fn the_gateways_address_is_given_back() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["fd65::1/128"]);
    world.in_sync();
    let gateway = ipnet::IpNet::new(GATEWAY_IPV6.into(), 64).unwrap();
    world.kernel.borrow_mut().add_address(index, gateway);
    world.settle();
    world.kernel.borrow_mut().remove_address(index, gateway);
    world.settle();
    assert_eq!(world.host.configured[&index], 2);
}

#[test]
fn an_overrun_makes_no_gap_and_everything_is_looked_at_again() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.host.neighbors.clear();
    let attachment = world.fib.attachment();
    world.kernel.borrow_mut().overrun(attachment);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.configured[&index], 2);
    assert_eq!((world.routes().len(), world.host.neighbors.len()), (1, 1));
}

#[test]
fn address_moved_to_an_interface_is_flushed_and_routed() {
    let mut world = World::new();
    world.link("cali1");
    let second = world.link("cali2");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.endpoint("a", "cali2", &["10.65.0.1/32"]);
    world.settle();
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), second)].into());
    assert!(world.guards("cali2", [10, 65, 0, 1]) && !world.guards("cali1", [10, 65, 0, 1]));
    assert_eq!(world.host.forgotten.len(), 1);
}

#[test]
fn fabric_tunnel_is_exempt_while_kind_and_port_fit() {
    let mut world = World::new();
    let exempt = |world: &World| {
        let rules = world.host.rules().expect("rules");
        let keys = rules.sets["fabric-tunnels"].keys();
        keys.into_iter().cloned().collect::<Vec<_>>()
    };
    let name = |name: &str| [Key::Interface(name.into())];
    let vxlan = |port| Some(Tunnel::Vxlan { port });
    let set = |world: &mut World, index, tunnel| {
        world.kernel.borrow_mut().set_tunnel(index, tunnel);
        world.settle();
    };
    let pool = "/calico/resources/v3/projectcalico.org/ippools/v4";
    let value = json!({"spec": {"cidr": "10.65.0.0/16", "vxlanMode": "Always"}}).to_string();
    world.agent.change(pool, Some(value.as_bytes()));
    let device = world.link("vxlan.calico");
    set(&mut world, device, vxlan(4789));
    assert_eq!(exempt(&world), [], "the datastore was not read yet");
    world.in_sync();
    assert_eq!(exempt(&world), name("vxlan.calico"));

    // The devices are the kernel's, whatever the state of the datastore.
    world.agent.store_unread();
    world.settle();
    set(&mut world, device, vxlan(8472));
    assert_eq!(exempt(&world), [], "another port");
    set(&mut world, device, None);
    assert_eq!(exempt(&world), [], "another kind");
    set(&mut world, device, vxlan(4789));
    assert_eq!(exempt(&world), name("vxlan.calico"));
    world.kernel.borrow_mut().rename_link(device, "vxlan0");
    world.settle();
    assert_eq!(exempt(&world), [], "another name");
    world
        .kernel
        .borrow_mut()
        .rename_link(device, "vxlan-v6.calico");
    world.settle();
    assert_eq!(exempt(&world), name("vxlan-v6.calico"));
    world.kernel.borrow_mut().remove_link(device);
    world.settle();
    assert_eq!(exempt(&world), [], "it was removed");
}

#[test]
fn host_endpoint_by_address_follows_the_interface() {
    let mut world = World::new();
    let closed = |world: &World| {
        let rules = world.host.rules().expect("rules");
        let map = rules.sets.get("host-endpoints-in");
        let keys = map.into_iter().flat_map(|map| map.elements.keys());
        keys.map(ToString::to_string).collect::<Vec<_>>()
    };
    let name = "/calico/resources/v3/projectcalico.org/hostendpoints/h";
    let value = json!({"spec": {"node": HOST, "expectedIPs": ["10.0.0.11"]}}).to_string();
    world.agent.change(name, Some(value.as_bytes()));
    let (one, other) = (world.link("eth0"), world.link("eth1"));
    world.in_sync();
    assert_eq!(closed(&world), [""; 0]);
    let address = "10.0.0.11/24".parse().unwrap();
    world.kernel.borrow_mut().add_address(one, address);
    world.settle();
    assert_eq!(closed(&world), ["\"eth0\""]);
    world.kernel.borrow_mut().rename_link(one, "uplink");
    world.settle();
    assert_eq!(closed(&world), ["\"uplink\""]);
    // The kernel holds the address once for each prefix length.
    let narrow = "10.0.0.11/32".parse().unwrap();
    world.kernel.borrow_mut().add_address(one, narrow);
    world.settle();
    world.kernel.borrow_mut().remove_address(one, narrow);
    world.settle();
    assert_eq!(closed(&world), ["\"uplink\""]);
    world.kernel.borrow_mut().remove_address(one, address);
    world.kernel.borrow_mut().add_address(other, address);
    world.settle();
    assert_eq!(closed(&world), ["\"eth1\""]);
    world.kernel.borrow_mut().remove_link(other);
    world.settle();
    assert_eq!(closed(&world), [""; 0]);
}
