//! A packet that follows an advertised route to a ready node arrives at its workload.
//!
//! The sender is ready, too, and has a learned route for exactly the address of the workload. Packets without
//! such a route are not sent: they start when the announcement arrives, and end when the withdrawal does. A
//! sender that is not ready may have retained routes that are out of date.

use fib_sync::TABLE_MAIN;
use ipnet::IpNet;

use crate::machine::Machine;
use crate::world::World;

/// `rtm_protocol` of the BGP client's routes.
const LEARNED: u8 = 119;

/// Returns the packets to these workloads that are lost, one line each, and the number of those that arrive.
pub(crate) fn check(world: &World, workloads: &[usize]) -> (u64, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    for workload in workloads {
        let Some(workload) = world.workloads.get(*workload) else {
            continue;
        };
        let link = workload.plan.host_link();
        for net in workload.plan.nets() {
            for start in 0..world.plan.nodes.len() {
                let mut way = Vec::new();
                let is_ready = |machine: &Machine| {
                    let bgp = machine.bgp.run.as_ref();
                    bgp.is_some_and(|bgp| bgp.is_ready(world.now))
                };
                match sent(world, &mut way, start, (net, &link)) {
                    None => {}
                    Some(Ok(())) => count += 1,
                    Some(Err(why)) if way.into_iter().all(is_ready) => {
                        let name = world.net.name(start);
                        wrong.push(format!("{name} to {net}: {why}"));
                    }
                    Some(Err(_)) => {}
                }
            }
        }
    }
    (count, wrong)
}

/// Sends a packet, if the start has a learned route; `None` if not. `way` receives the nodes that forward it.
fn sent<'w>(
    world: &'w World,
    way: &mut Vec<&'w Machine>,
    start: usize,
    (net, link): (IpNet, &str),
) -> Option<Result<(), String>> {
    let mut at = start;
    while way.len() <= world.machines.len() {
        let machine = world.machines.get(at)?;
        let node = machine.node.as_ref()?;
        let kernel = node.kernel.borrow();
        let (key, route) = kernel.route_to(TABLE_MAIN, net.addr())?;
        if way.is_empty() && (key.prefix != net || route.protocol != LEARNED) {
            return None;
        }
        way.push(machine);
        let name = &machine.name;
        if key.prefix != net {
            return Some(Err(format!("{name} has no route but {key}")));
        }
        let next = route.next_hops.first()?;
        match next.gateway {
            Some(gateway) => {
                let is_it = |machine: &Machine| machine.address(gateway.is_ipv6()) == gateway;
                at = world.machines.iter().position(is_it)?;
            }
            None => {
                let found = next.interface.and_then(|index| kernel.link_by_index(index));
                let table = node.host.filter.table.as_ref();
                let chain = format!("to-{link}");
                let passes = table.is_some_and(|table| table.chains.contains_key(&chain));
                return Some(match found {
                    Some(found) if found.name == link && passes => Ok(()),
                    Some(found) if found.name == link => Err(format!("{name} has no rules for it")),
                    _ => Err(format!("{name} has {key} over another interface")),
                });
            }
        }
    }
    Some(Err("is in a loop".to_owned()))
}
