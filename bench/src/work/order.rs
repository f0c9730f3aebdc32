//! order: the start of Felix, with lists of the datastore in different orders.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use ipnet::IpNet;

use super::felix::{REMOTE, local_labels, policy, remote_labels};
use crate::fabric::{self, Endpoint, Ground, Lists, Order};
use crate::stage::{Measures, Options, Policies, quantiles};

const NODE: usize = 0;
const ROUNDS: usize = 5;
const ORDERS: [(Order, &str); 3] = [
    (Order::PoliciesFirst, "order_policies_s"),
    (Order::EndpointsFirst, "order_endpoints_s"),
    (Order::Mixed, "order_mixed_s"),
];

/// Starts Felix with each order of lists in turn, each time on a host without its objects.
pub(super) fn order(options: &Options) -> Result<Measures> {
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        let measured = measure(&mut ground, options).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, options: &Options) -> Result<Measures> {
    let size = options.policies.or(match options.quick {
        true => Policies::QUICK,
        false => Policies::FULL,
    });
    let rounds = if options.quick { 1 } else { ROUNDS };
    let local = ground.endpoints(NODE, size.local).await?;
    let mut puts = vec![];
    for number in 0..size.policies {
        puts.push(policy(number));
    }
    for (number, endpoint) in (0..).zip(&local) {
        puts.push(endpoint.labeled(&local_labels(number, size.policies))?);
    }
    for number in 0..size.remote {
        let endpoint = Endpoint::new(size.local + number, REMOTE);
        puts.push(endpoint.labeled(&remote_labels(number, size))?);
    }
    fabric::fill(&*ground.etcd.store, puts).await?;
    // Felix reaches etcd through a proxy on its own host, under the same address.
    let etcd = ground.fabric.plan.store_address();
    let links = &ground.fabric.node(NODE)?.links;
    links.add_address("lo", IpNet::from(etcd.ip())).await?;

    let mut times = BTreeMap::<_, Vec<f64>>::new();
    for round in 0..rounds {
        let mut orders = ORDERS;
        orders.rotate_left(round % ORDERS.len());
        for (order, name) in orders {
            let lists = Lists::start(&ground.fabric.node(NODE)?.host, etcd, order)?;
            let began = Instant::now();
            ground.start_felix(NODE)?;
            ground.programmed(NODE, size.local).await?;
            let taken = began.elapsed().as_secs_f64();
            lists.stop().await?;
            times.entry(name).or_default().push(taken);
            end(ground).await?;
        }
    }
    let mut measures = Measures::new();
    let (mut least, mut most) = (f64::INFINITY, 0_f64);
    for (name, times) in times {
        let [median] = quantiles(times, [0.5])?;
        measures.insert(name, median);
        (least, most) = (least.min(median), most.max(median));
    }
    measures.insert("order_ratio", most / least);
    Ok(measures)
}

/// Ends Felix, and removes its objects from the kernel.
async fn end(ground: &mut Ground) -> Result<()> {
    for machine in ground.fabric.nodes.iter_mut().take(1) {
        for daemon in &mut machine.daemons {
            daemon.process.kill().await?;
        }
        machine.daemons.clear();
        std::fs::remove_file(machine.control("felix"))?;
        for (program, arguments) in [
            ("nft", ["flush", "ruleset"].as_slice()),
            ("ip", &["route", "flush", "proto", "80"]),
        ] {
            let done = machine
                .host
                .run(|| Command::new(program).args(arguments).output())??;
            ensure!(done.status.success(), "{program} {arguments:?}");
        }
    }
    Ok(())
}
