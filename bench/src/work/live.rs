//! live: from a change of the configuration in the datastore to its effect at a neighbor or in the
//! kernel.

mod cases;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use calico_model::RESOURCES_PREFIX;
use calico_store::resources::Resources;
use calico_store::{LeaseId, Store};
use ipnet::{IpNet, Ipv4Net};
use netns_lab::fabric::{Daemon, Fabric};
use netns_lab::{Program, RouteEventKind, RouteMonitor, VethEnd};
use tokio::time::sleep;

use crate::fabric::{self, Etcd, Neighbor, Picture};
use crate::limits::{FABRIC_WITHIN, PAUSE};
use crate::stage::{Measures, Options, quantiles};
use cases::{BLOCK, BORROWED, CASES, Case, FIRST, KERNEL_ROUTE, SERVICES, Seen};

/// How often each change is made and reverted.
const TRIES: usize = 50;
const TRIES_QUICK: usize = 3;

/// The autonomous system of the neighbor outside the cluster.
const OUTSIDE_AS: u32 = 64700;

/// GRACEFUL_SHUTDOWN (RFC 8326).
const GRACEFUL_SHUTDOWN: u32 = 0xffff_0000;

/// A link of a workload, for a route that the node announces.
const WORKLOAD: &str = "cali0";

/// Makes and reverts a change of each kind, one after another, each after a pause. A change resets
/// no session except the one that it concerns.
pub(super) fn live(options: &Options) -> Result<Measures> {
    let tries = if options.quick { TRIES_QUICK } else { TRIES };
    fabric::beside_etcd(async |fabric, etcd| {
        let measured = measure(fabric, etcd, tries).await;
        fabric.check()?;
        measured.with_context(|| {
            let daemons = fabric.nodes.iter().flat_map(|node| &node.daemons);
            let logs = daemons.map(|daemon| daemon.process.log_tail());
            logs.collect::<String>()
        })
    })
}

async fn measure(fabric: &mut Fabric, etcd: &Etcd, tries: usize) -> Result<Measures> {
    Scene::set(fabric, etcd).await?.measure(tries).await
}

/// A node's BGP client, a neighbor outside the cluster, and one that is a node.
struct Scene<'e> {
    etcd: &'e Etcd,
    outside: Neighbor,
    inside: Neighbor,
    kernel: RouteMonitor,
}

impl<'e> Scene<'e> {
    /// Waits until the initial configuration of the datastore is applied.
    async fn set(fabric: &mut Fabric, etcd: &'e Etcd) -> Result<Self> {
        Resources::from(etcd.store.clone()).initialize().await?;
        let [other, tor] = &fabric.reflectors[..] else {
            anyhow::bail!("a fabric with two reflectors");
        };
        let has = Some(KERNEL_ROUTE.parse()?);
        let mut scene = Self {
            etcd,
            outside: Neighbor::listen(&tor.host, OUTSIDE_AS, tor.plan.v4, has)?,
            inside: Neighbor::listen(&other.host, fabric.plan.asn, other.plan.v4, None)?,
            kernel: RouteMonitor::open(&fabric.node(0)?.host)?,
        };
        for (place, value) in FIRST {
            scene.write(place, Some(value)).await?;
        }
        let began = Instant::now();
        start(fabric).await?;
        for seen in [Seen::Outside, Seen::Inside]
            .into_iter()
            .chain([BORROWED, BLOCK, SERVICES].map(Seen::Route))
        {
            scene.until(seen, true, began).await?;
        }
        scene.until(Seen::Kernel(KERNEL_ROUTE), true, began).await?;
        Ok(scene)
    }

    async fn measure(&mut self, tries: usize) -> Result<Measures> {
        let (mut measures, mut all) = (Measures::new(), vec![]);
        for case in CASES {
            let [of_outside, of_inside] = [&self.outside, &self.inside].map(Neighbor::sessions);
            let mut samples = vec![];
            for _ in 0..tries {
                for (value, there) in [(case.after, false), (case.before, true)] {
                    sleep(PAUSE).await;
                    let took = self.takes(case, value, there).await;
                    samples.push(took.with_context(|| format!("{case:?}, {there}"))?);
                }
            }
            let ended = |seen| if case.seen == seen { tries as u32 } else { 0 };
            ensure!(
                self.outside.sessions() == of_outside + ended(Seen::Outside)
                    && self.inside.sessions() == of_inside + ended(Seen::Inside),
                "{case:?}: a session has ended that it is not about"
            );
            all.extend(&samples);
            let found = quantiles(samples, [0.5, 0.99])?;
            measures.extend(case.measures.into_iter().zip(found));
        }
        let found = quantiles(all, [0.5, 0.99])?;
        measures.extend(["live_p50_ms", "live_p99_ms"].into_iter().zip(found));
        Ok(measures)
    }

    /// Makes a change; returns the milliseconds from right before it until its effect is visible.
    async fn takes(&mut self, case: &Case, value: Option<&str>, there: bool) -> Result<f64> {
        let began = self.write(case.place, value).await?;
        let at = self.until(case.seen, there, began).await?;
        let took = at.checked_duration_since(began);
        let took = took.context("the configuration had the new value before the change")?;
        Ok(took.as_secs_f64() * 1e3)
    }

    /// Writes or deletes; returns the instant right before.
    async fn write(&self, place: &str, value: Option<&str>) -> Result<Instant> {
        let key = match place.starts_with('/') {
            true => place.to_owned(),
            false => format!("{RESOURCES_PREFIX}{place}"),
        };
        let store: &dyn Store = &*self.etcd.store;
        let began = Instant::now();
        match value {
            Some(text) => {
                store
                    .put(key.into(), text.to_owned().into(), LeaseId::NONE)
                    .await?;
            }
            None => ensure!(store.delete(key.into()).await?, "{place} is not there"),
        }
        Ok(began)
    }

    /// Waits until an effect is visible, or no longer, after a change at `since`; returns when it
    /// was.
    async fn until(&mut self, seen: Seen, there: bool, since: Instant) -> Result<Instant> {
        let routes = |text: &str, wanted: fn(&[u32]) -> bool| {
            let net: Ipv4Net = text.parse()?;
            anyhow::Ok(move |picture: &Picture| {
                let found = picture.routes.get(&net);
                found.is_some_and(|communities| wanted(communities)) == there
            })
        };
        let what = format!("{seen:?}: {there}");
        match seen {
            Seen::Route(text) => self.outside.until(&what, routes(text, |_| true)?).await,
            Seen::Staying(text) => {
                let stays = |communities: &[u32]| !communities.contains(&GRACEFUL_SHUTDOWN);
                self.outside.until(&what, routes(text, stays)?).await
            }
            Seen::Kernel(text) => {
                let notified = notified(&mut self.kernel, text.parse()?, there, since);
                netns_lab::within(FABRIC_WITHIN, &what, notified).await?
            }
            Seen::Outside => {
                self.outside
                    .until(&what, |picture| picture.is_up == there)
                    .await
            }
            Seen::Inside => {
                self.inside
                    .until(&what, |picture| picture.is_up == there)
                    .await
            }
        }
    }
}

/// Waits until the kernel reports that a route was added or deleted; returns when that was read.
async fn notified(
    kernel: &mut RouteMonitor,
    net: IpNet,
    there: bool,
    since: Instant,
) -> Result<Instant> {
    loop {
        let (events, missed) = kernel.events_since(since.into());
        ensure!(!missed, "news of the kernel were missed");
        let mut events = events.iter();
        let found = events.find(|event| match &event.kind {
            RouteEventKind::Put(route) => there && route.net == net,
            RouteEventKind::Gone(route) => !there && route.net == net,
            RouteEventKind::Overrun => false,
        });
        if let Some(event) = found {
            return Ok(event.at.into_std());
        }
        kernel.changed().await;
    }
}

/// Starts the BGP client of the node, with a workload route.
async fn start(fabric: &mut Fabric) -> Result<()> {
    let store = fabric.plan.store_address();
    let node = fabric.nodes.first_mut().context("a fabric with a node")?;
    let end = |name| VethEnd {
        host: &node.host,
        name,
        mac: None,
    };
    node.links.add_veth(end(WORKLOAD), end("workload0")).await?;
    for link in ["workload0", WORKLOAD] {
        node.links.up(link).await?;
    }
    node.links
        .add_route(BORROWED.parse()?, None, WORKLOAD)
        .await?;
    // The route is of `RTPROT_STATIC`.
    let text = format!(
        "hostname = \"{}\"\ncontrol = \"/run/cambric/bgp-client.sock\"\nlog = \"info\"\n\n\
         [kernel]\n[[kernel.import]]\nprotocols = [4]\ninterfaces = [\"cali*\"]\n\n\
         [datastore]\nendpoints = [\"http://{store}\"]\n",
        node.plan.name
    );
    std::fs::write(node.host.directory().join("bgp-client.toml"), text)?;
    let program = Program::new(fabric::program("cambric-bgp-client")?)
        .args(["--config", "/run/cambric/bgp-client.toml"]);
    let process = node.host.spawn("bgp-client", &program)?;
    node.daemons.push(Daemon {
        name: "bgp-client",
        process,
    });
    Ok(())
}
