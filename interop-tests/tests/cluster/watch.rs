//! The conditions that must hold during every event of the fabric.

use std::time::Duration;

use interop_tests::{Site, Speaker};
use ipnet::IpNet;
use netns_lab::{Error, Flow, Links, Pinger, RouteEventKind, RouteMonitor};
use tokio::time::Instant;

/// How often a ping is sent on every flow.
const PERIOD: Duration = Duration::from_millis(25);

/// The `rtm_protocol` of routes that the client installs.
const BGP: u8 = 119;

/// A node: its daemon, and the monitors of its kernel.
pub(crate) struct Node {
    pub(crate) number: u8,
    pub(crate) speaker: Speaker,
    links: Links,
    monitor: RouteMonitor,
    pinger: Pinger,
}

/// Returns the addresses of a node's workload.
fn workload(number: u8) -> [IpNet; 2] {
    let v4 = format!("10.65.{number}.1/32");
    let v6 = format!("fd65::{number}/128");
    [v4, v6].map(|net| net.parse().expect("a prefix"))
}

impl Node {
    /// Starts a node on a host, with a workload and announced addresses.
    pub(crate) async fn begin(
        site: Site,
        start: impl FnOnce(Site) -> Result<Speaker, Error>,
    ) -> Result<Self, Error> {
        let number = site.number;
        let links = site.host.links()?;
        for net in workload(number) {
            links.add_address("lo", net).await?;
            links.add_route(net, None, "cali0").await?;
        }
        let monitor = RouteMonitor::open(&site.host)?;
        let [v4, v6] = workload(number).map(|net| net.addr());
        let (std::net::IpAddr::V4(v4), std::net::IpAddr::V6(v6)) = (v4, v6) else {
            panic!("one address of each family");
        };
        let pinger = Pinger::open(&site.host, v4, v6)?;
        let speaker = start(site)?;
        Ok(Self {
            number,
            speaker,
            links,
            monitor,
            pinger,
        })
    }

    /// Returns the routes to others' workloads that its kernel lacks.
    pub(crate) async fn lacks(&self, others: &[u8]) -> Result<Vec<IpNet>, Error> {
        let routes = self.links.routes().await?;
        let learned = |net: &IpNet| {
            let mut routes = routes.iter();
            routes.any(|route| route.net == *net && route.protocol == BGP && route.unicast)
        };
        let others = others.iter().filter(|other| **other != self.number);
        let nets = others.flat_map(|other| workload(*other));
        Ok(nets.filter(|net| !learned(net)).collect())
    }

    /// Announces routes of workloads.
    pub(crate) async fn announce(&self, nets: impl Iterator<Item = IpNet>) -> Result<(), Error> {
        for net in nets {
            self.links.add_route(net, None, "cali0").await?;
        }
        Ok(())
    }

    /// Returns the number of learned routes to destinations that begin so.
    pub(crate) async fn learned(&self, begin: &str) -> Result<usize, Error> {
        let routes = self.links.routes().await?;
        let learned = routes.iter().filter(|route| {
            route.net.to_string().starts_with(begin) && route.protocol == BGP && route.unicast
        });
        Ok(learned.count())
    }

    /// Returns the routes to workloads that its kernel has lost since.
    fn lost(&self, since: Instant) -> Vec<String> {
        let (events, overrun) = self.monitor.events_since(since);
        assert!(
            !overrun,
            "host {} sent more events than were read",
            self.number
        );
        let ours = |net: &IpNet| {
            let text = net.to_string();
            text.starts_with("10.65.") || text.starts_with("fd65::")
        };
        let gone = events.into_iter().filter_map(|event| match event.kind {
            RouteEventKind::Gone(route) if route.protocol == BGP && ours(&route.net) => {
                Some(format!("host {}: {}", self.number, route.net))
            }
            _ => None,
        });
        gone.collect()
    }
}

/// Pings between neighbors in a ring, in both directions, and an instant after which no route may
/// be removed.
pub(crate) struct Watch {
    what: &'static str,
    since: Instant,
    flows: Vec<Flow>,
}

impl Watch {
    pub(crate) fn begin(what: &'static str, nodes: &[Node]) -> Self {
        let around = nodes.iter().cycle().skip(1);
        let pairs = nodes
            .iter()
            .zip(around)
            .flat_map(|(one, other)| [(one, other), (other, one)]);
        let flows = pairs.flat_map(|(from, to)| {
            let to = workload(to.number);
            to.map(|net| from.pinger.flow(net.addr(), PERIOD))
        });
        println!("{what}");
        Self {
            what,
            since: Instant::now(),
            flows: flows.collect(),
        }
    }

    /// Stops the pings and asserts that no ping and no route was lost.
    pub(crate) async fn end(self, nodes: &[Node]) {
        let gone: Vec<String> = nodes
            .iter()
            .flat_map(|node| node.lost(self.since))
            .collect();
        let mut sent = 0;
        let mut lost = Vec::new();
        for flow in self.flows {
            let report = flow.stop().await;
            sent += report.sent;
            if report.lost() > 0 {
                lost.push(format!("{report:?}"));
            }
        }
        let (what, took) = (self.what, self.since.elapsed());
        println!("  {sent} pings, {took:?}");
        // One assertion for both: a ping is lost because a route is briefly missing.
        assert!(
            sent > 0 && lost.is_empty() && gone.is_empty(),
            "{what}: pings are lost: {lost:#?}, routes are lost: {gone:#?}"
        );
    }
}
