//! Hosts with the address of a workload, and pings between these addresses.

use std::net::IpAddr;
use std::time::Duration;

use interop_tests::{Ground, PATIENCE, Setup, Site};
use netns_lab::{Error, Flow, Host, Pinger, until};

const PERIOD: Duration = Duration::from_millis(20);
/// How often each flow sends at the start.
const FIRST: u32 = 10;

/// Returns the address of the workload of a host, and its prefix, in both IP versions.
fn workload(number: u8) -> [(IpAddr, String); 2] {
    let v4 = format!("10.65.{number}.");
    let v6 = format!("fd65:{number}::");
    [(v4, "0/26"), (v6, "/64")].map(|(begin, end)| {
        let address = format!("{begin}1").parse().expect("an address");
        (address, begin + end)
    })
}

/// Adds the prefixes of the workload of a host.
pub(crate) fn announcing(setup: Setup, number: u8) -> Setup {
    let [v4, v6] = workload(number).map(|(_, prefix)| prefix);
    setup.announcing(&v4).announcing(&v6)
}

/// Puts a host on the switch; it has the addresses of its workload itself.
pub(crate) async fn site(ground: &Ground, number: u8) -> Site {
    let site = ground.site(number).await.expect("a host");
    let links = site.host.links().expect("links");
    for (address, _) in workload(number) {
        let added = links.add_address("lo", address.into()).await;
        added.expect("an address");
    }
    site
}

/// Flows from the workload of a host.
pub(crate) struct Flows {
    flows: Vec<Flow>,
    /// The flows send as long as it lives.
    _pinger: Pinger,
}

impl Flows {
    /// Starts a flow from the workload of a host to each workload of others, in both IP versions. Waits until
    /// all answer.
    pub(crate) async fn start(host: &Host, number: u8, others: &[u8]) -> Self {
        let [(v4, _), (v6, _)] = workload(number);
        let (IpAddr::V4(v4), IpAddr::V6(v6)) = (v4, v6) else {
            panic!("an address of each IP version");
        };
        let pinger = Pinger::open(host, v4, v6).expect("a pinger");
        let mut flows = vec![];
        for (to, _) in others.iter().copied().flat_map(workload) {
            let answered = until(PATIENCE, "routes in both kernels", async || {
                let answer = pinger.ping(to, Duration::from_millis(500)).await;
                Ok::<_, Error>(answer.ok_or_else(|| format!("{to} does not answer")))
            });
            answered.await.unwrap_or_else(|error| panic!("{error}"));
            flows.push(pinger.flow(to, PERIOD));
        }
        for flow in &mut flows {
            flow.sends(FIRST).await;
        }
        Self {
            flows,
            _pinger: pinger,
        }
    }

    /// Ends the flows, and asserts that no packet was lost; otherwise the message has `log`.
    pub(crate) async fn lose_nothing(self, log: &str) {
        for flow in self.flows {
            let report = flow.stop().await;
            println!("{report:?}");
            assert_eq!(report.lost(), 0, "{report:?}\n{log}");
        }
    }
}
