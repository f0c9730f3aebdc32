//! In a stable state every packet to a workload arrives, from every node, without loops.

use std::net::IpAddr;

use fib_sync::{Hop, TABLE_MAIN};

use super::fib;
use crate::world::World;

/// Returns every path on which packets are lost, one line each.
pub fn check(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    let owners = fib::owners(world);
    for (net, places) in &owners {
        for (start, machine) in world.machines.iter().enumerate() {
            if machine.node.is_none() {
                continue;
            }
            match forward(world, start, net.addr()) {
                Ok(Some((at, index))) if places.get(&at) == Some(&index) => {}
                Ok(None) => {}
                Ok(Some((at, _))) => {
                    let name = world.machines.get(at).map_or("?", |m| m.name.as_str());
                    wrong.push(format!("{} to {net}: leaves at {name}", machine.name));
                }
                Err(why) => wrong.push(format!("{} to {net}: {why}", machine.name)),
            }
        }
    }
    wrong
}

/// Follows a packet: returns the node and interface at which it leaves the fabric, or `None` if a
/// foreign route for exactly this address takes it.
fn forward(world: &World, start: usize, to: IpAddr) -> Result<Option<(usize, u32)>, String> {
    let mut at = start;
    for _ in 0..=world.machines.len() {
        let machine = world.machines.get(at).ok_or("reaches no machine")?;
        let node = machine
            .node
            .as_ref()
            .ok_or("reaches a machine that does not forward")?;
        let kernel = node.kernel.borrow();
        let (key, route) = kernel
            .route_to(TABLE_MAIN, to)
            .ok_or("black hole: no route")?;
        if world
            .foreign
            .get(at)
            .is_some_and(|foreign| foreign.contains_key(key))
        {
            let whole = key.prefix.prefix_len() == key.prefix.max_prefix_len();
            return if whole {
                Ok(None)
            } else {
                Err(format!("black hole: meets {key} only"))
            };
        }
        let Some(Hop {
            gateway, interface, ..
        }) = route.next_hops.first()
        else {
            return Err(format!("black hole: {key} has no next hop"));
        };
        match gateway {
            None => return Ok(Some((at, interface.unwrap_or(0)))),
            Some(gateway) => {
                let next = world
                    .machines
                    .iter()
                    .position(|m| m.address(gateway.is_ipv6()) == *gateway);
                at = next.ok_or_else(|| format!("black hole: no host has {gateway}"))?;
            }
        }
    }
    Err("goes round in circles".to_owned())
}
