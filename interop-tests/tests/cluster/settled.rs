//! Detection of recovery after a kill. A second kill before that has another effect: routes that
//! are retained as stale for a restarting peer are removed when it restarts again (RFC 4724 §4.2).

use std::collections::BTreeSet;
use std::net::IpAddr;

use daemon_common::report::Status;
use interop_tests::Speaker;

use crate::fleet::Fleet;

/// Returns whether a daemon already runs as a speaker, and does not wait for the datastore.
pub(crate) fn has_begun(status: &Status) -> bool {
    status.facts.iter().any(|fact| fact.name == "listening")
}

impl Fleet<'_> {
    /// Waits until no speaker restarts, no speaker retains stale routes of a peer, and each
    /// reflector would wait only for its clients at its next start.
    pub(crate) async fn settled(&self) {
        let nodes = self.nodes.iter().map(|node| &node.speaker);
        for speaker in nodes.chain(&self.reflectors) {
            let is_over = |status: &Status| has_begun(status) && !status.restarting;
            speaker.reports("that its restart is over", is_over).await;
        }
        let nodes = self.nodes.iter().map(|node| &node.speaker);
        let speakers: Vec<&Speaker> = nodes.chain(&self.reflectors).collect();
        self.wait("that no routes of before are kept", async || {
            for speaker in &speakers {
                let neighbors = speaker.neighbors().await.neighbors;
                let up = neighbors.iter().filter(|one| one.state == "Established");
                let mut stale = up.filter(|one| one.stale_for_s.is_some());
                if let Some(one) = stale.next() {
                    let (host, name) = (speaker.site.number, &one.name);
                    return Ok(Err(format!("host {host} keeps those of {name}")));
                }
            }
            Ok(Ok(()))
        })
        .await;
        self.wait("what reflectors remember", async || {
            for reflector in &self.reflectors {
                let (kept, clients) = (remembered(reflector), clients(reflector).await);
                if kept != clients {
                    let host = reflector.site.number;
                    return Ok(Err(format!("host {host}: {kept:?}, it has {clients:?}")));
                }
            }
            Ok(Ok(()))
        })
        .await;
    }
}

async fn clients(reflector: &Speaker) -> BTreeSet<IpAddr> {
    let neighbors = reflector.neighbors().await.neighbors.into_iter();
    let clients = neighbors.filter(|one| one.role == "client");
    clients.filter_map(|one| one.address).collect()
}

/// Returns the neighbors for which the reflector's next start will wait.
fn remembered(reflector: &Speaker) -> BTreeSet<IpAddr> {
    let text = reflector.site.load("route-reflector.restart");
    let neighbors = text.lines();
    let neighbors = neighbors.filter_map(|line| line.strip_prefix("neighbor "));
    neighbors.filter_map(|line| line.parse().ok()).collect()
}
