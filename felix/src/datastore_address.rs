//! The addresses of the datastore behind the URLs of the configuration. The packet filter closes
//! them to workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use daemon_common::events::{Event, Text, emit};
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::limits::{DATASTORE_ADDRESSES_MAX, DATASTORE_LOOKUP};

/// Returns host and port of a URL; the default port is that of its scheme.
fn authority(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let rest = rest.split(['/', '?', '#']).next()?;
    let rest = rest.rsplit('@').next()?;
    let default = match scheme {
        "https" => 443,
        _ => 80,
    };
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':'))
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let port = port.map_or(Some(default), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// The addresses of the datastore's members. Names are resolved periodically.
#[derive(Debug)]
pub(crate) struct DatastoreAddresses {
    found: watch::Receiver<BTreeSet<SocketAddr>>,
    task: Option<JoinHandle<()>>,
}

impl DatastoreAddresses {
    /// Starts to resolve the URLs. Must be called inside a tokio runtime.
    pub(crate) fn of(urls: &[String]) -> Self {
        let mut literal = BTreeSet::new();
        let mut names = Vec::new();
        for (host, port) in urls.iter().filter_map(|url| authority(url)) {
            match host.parse::<IpAddr>() {
                Ok(address) => drop(literal.insert(SocketAddr::new(address.to_canonical(), port))),
                Err(_) => names.push((host, port)),
            }
        }
        let (report, mut found) = watch::channel(literal.clone());
        found.mark_changed();
        let task = (!names.is_empty()).then(|| tokio::spawn(look_up(literal, names, report)));
        Self { found, task }
    }

    /// Waits until the addresses differ from the last returned ones.
    pub(crate) async fn changed(&mut self) -> BTreeSet<SocketAddr> {
        if self.found.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.found.borrow_and_update().clone()
    }
}

impl Drop for DatastoreAddresses {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Resolves names periodically, and reports all addresses. An address stays even if a later answer
/// lacks it: many name servers return only a part of their records.
async fn look_up(
    literal: BTreeSet<SocketAddr>,
    names: Vec<(String, u16)>,
    report: watch::Sender<BTreeSet<SocketAddr>>,
) {
    let mut known: BTreeMap<&(String, u16), BTreeSet<SocketAddr>> = BTreeMap::new();
    let mut failing: BTreeSet<&(String, u16)> = BTreeSet::new();
    loop {
        for name in &names {
            let found = match lookup_host((name.0.as_str(), name.1)).await {
                Ok(found) => found,
                Err(error) => {
                    if failing.insert(name) {
                        emit(Event::DatastoreLookupFailed {
                            name: Text::new(&name.0),
                            port: name.1.into(),
                            reason: Text::new(error),
                        });
                    }
                    continue;
                }
            };
            failing.remove(name);
            let found = found.map(|at| SocketAddr::new(at.ip().to_canonical(), at.port()));
            let found: BTreeSet<SocketAddr> = found.take(DATASTORE_ADDRESSES_MAX).collect();
            let held = known.entry(name).or_default();
            match held.len() + found.len() <= DATASTORE_ADDRESSES_MAX {
                true => held.extend(found),
                false => *held = found,
            }
        }
        let mut all = literal.clone();
        all.extend(known.values().flatten());
        report.send_if_modified(|held| {
            let different = *held != all;
            *held = all;
            different
        });
        sleep(DATASTORE_LOOKUP).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_yields_host_and_port() {
        for (url, host, port) in [
            ("http://10.0.0.254:2379", "10.0.0.254", 2379),
            ("https://[fd00::1]:2379/", "fd00::1", 2379),
            ("http://[fd00::1]", "fd00::1", 80),
            ("https://etcd.example", "etcd.example", 443),
            ("http://user:word@etcd:1?x#y", "etcd", 1),
            ("etcd:2379", "etcd", 2379),
        ] {
            assert_eq!(authority(url), Some((host.to_owned(), port)), "{url}");
        }
        for bad in ["", "http://", "http://a:b", "http://[fd00::1", "http://:1"] {
            assert_eq!(authority(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn datastore_name_is_resolved_beside_addresses() {
        let urls = ["http://10.0.0.254:2379", "http://localhost:2380"].map(str::to_owned);
        let mut addresses = DatastoreAddresses::of(&urls);
        let literal: SocketAddr = "10.0.0.254:2379".parse().unwrap();
        loop {
            let found = addresses.changed().await;
            assert!(found.contains(&literal), "{found:?}");
            if found
                .iter()
                .any(|at| at.ip().is_loopback() && at.port() == 2380)
            {
                return;
            }
        }
    }
}
