//! The addresses of the datastore: behind the URLs of the configuration, and those of the members of
//! its cluster. The packet filter closes them to workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use calico_store::Store;
use daemon_common::events::{Event, Text, emit};
use tokio::net::lookup_host;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::limits::{
    DATASTORE_ADDRESSES_MAX, DATASTORE_LOOKUP, DATASTORE_MEMBERS_RETRY, DATASTORE_URLS_MAX,
};

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

/// The addresses of the datastore, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) addresses: BTreeSet<SocketAddr>,
    /// The datastore has answered with its members, or that it does not list them.
    pub(crate) complete: bool,
    /// Why the members are unknown, if that is no outage of the datastore.
    pub(crate) problem: Option<String>,
}

/// The addresses of the configured endpoints of the datastore, and of the members of its cluster.
/// Members are listed and names are resolved periodically.
#[derive(Debug)]
pub(crate) struct DatastoreAddresses {
    found: watch::Receiver<Found>,
    due: Arc<Notify>,
    task: JoinHandle<()>,
}

impl DatastoreAddresses {
    /// Starts to resolve the URLs. Must be called inside a tokio runtime.
    pub(crate) fn of(urls: &[String], store: Arc<dyn Store>) -> Self {
        let configured: BTreeSet<_> = urls.iter().filter_map(|url| authority(url)).collect();
        let (report, mut found) = watch::channel(Found {
            addresses: literals(&configured),
            ..Found::default()
        });
        found.mark_changed();
        let due = Arc::new(Notify::new());
        let task = tokio::spawn(follow(configured, store, report, Arc::clone(&due)));
        Self { found, due, task }
    }

    /// Waits until the addresses differ from the last returned ones.
    pub(crate) async fn changed(&mut self) -> Found {
        if self.found.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.found.borrow_and_update().clone()
    }

    /// Asks the datastore at once, which has just answered something else.
    pub(crate) fn ask(&self) {
        self.due.notify_one();
    }

    /// Returns why the members are unknown.
    pub(crate) fn problem(&self) -> Option<String> {
        self.found.borrow().problem.clone()
    }
}

impl Drop for DatastoreAddresses {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Host and port.
type Authority = (String, u16);

/// Returns the addresses among hosts.
fn literals(hosts: &BTreeSet<Authority>) -> BTreeSet<SocketAddr> {
    let found = hosts.iter().filter_map(|(host, port)| {
        let address = host.parse::<IpAddr>().ok()?;
        Some(SocketAddr::new(address.to_canonical(), *port))
    });
    found.collect()
}

/// Lists members and resolves names periodically, and reports all addresses.
async fn follow(
    configured: BTreeSet<Authority>,
    store: Arc<dyn Store>,
    report: watch::Sender<Found>,
    due: Arc<Notify>,
) {
    let mut names = Names::default();
    let mut members = BTreeSet::new();
    let mut problem = None;
    let mut complete = false;
    loop {
        let mut pause = DATASTORE_LOOKUP;
        match store.members().await {
            Ok(urls) => {
                let urls = urls.iter().filter_map(|url| authority(url));
                members = urls.take(DATASTORE_URLS_MAX).collect();
                (problem, complete) = (None, true);
            }
            // An outage is reported elsewhere; the last members stay.
            Err(error) if error.is_transient() => pause = DATASTORE_MEMBERS_RETRY,
            Err(error) => {
                if problem.is_none() {
                    let reason = Text::new(&error);
                    emit(Event::DatastoreMembersUnknown { reason });
                }
                (problem, complete) = (Some(error.to_string()), true);
            }
        }
        let hosts: BTreeSet<_> = configured.union(&members).cloned().collect();
        let mut addresses = literals(&hosts);
        addresses.extend(names.look_up(hosts).await);
        let found = Found {
            addresses,
            complete,
            problem: problem.clone(),
        };
        report.send_if_modified(|held| {
            let different = *held != found;
            *held = found;
            different
        });
        // An early request is for one that has not answered yet.
        let _ = timeout(pause, due.notified()).await;
    }
}

/// The addresses of names. An address stays even if a later answer lacks it: many name servers
/// return only a part of their records.
#[derive(Default)]
struct Names {
    known: BTreeMap<Authority, BTreeSet<SocketAddr>>,
    failing: BTreeSet<Authority>,
}

impl Names {
    /// Resolves the names among hosts, and returns their addresses. Other names are forgotten.
    async fn look_up(&mut self, mut hosts: BTreeSet<Authority>) -> BTreeSet<SocketAddr> {
        hosts.retain(|(host, _)| host.parse::<IpAddr>().is_err());
        self.known.retain(|name, _| hosts.contains(name));
        self.failing.retain(|name| hosts.contains(name));
        for name in hosts {
            let found = lookup_host((name.0.as_str(), name.1)).await;
            match found.map(|found| found.take(DATASTORE_ADDRESSES_MAX).collect()) {
                Ok(found) => self.resolved(name, found),
                Err(error) => {
                    if self.failing.insert(name.clone()) {
                        emit(Event::DatastoreLookupFailed {
                            name: Text::new(&name.0),
                            port: name.1.into(),
                            reason: Text::new(error),
                        });
                    }
                }
            }
        }
        self.known.values().flatten().copied().collect()
    }

    fn resolved(&mut self, name: Authority, found: Vec<SocketAddr>) {
        self.failing.remove(&name);
        let found = found.into_iter();
        let found = found.map(|at| SocketAddr::new(at.ip().to_canonical(), at.port()));
        let found: BTreeSet<SocketAddr> = found.collect();
        let held = self.known.entry(name).or_default();
        match held.len() + found.len() <= DATASTORE_ADDRESSES_MAX {
            true => held.extend(found),
            false => *held = found,
        }
    }
}

#[cfg(test)]
mod tests {
    use calico_store::{
        Answer, Error, Lease, LeaseId, LeaseState, Listing, Query, Revision, Txn, TxnReply, Watch,
        WatchRequest,
    };

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
        let store = Arc::new(etcd_lite::Local::empty());
        let mut addresses = DatastoreAddresses::of(&urls, store);
        let literal: SocketAddr = "10.0.0.254:2379".parse().unwrap();
        loop {
            let found = addresses.changed().await.addresses;
            assert!(found.contains(&literal), "{found:?}");
            if found
                .iter()
                .any(|at| at.ip().is_loopback() && at.port() == 2380)
            {
                return;
            }
        }
    }

    /// A store that answers with these members, one answer after the other.
    struct Listed(std::sync::Mutex<Vec<Result<Vec<String>, Error>>>);

    impl Store for Listed {
        fn members(&self) -> Answer<'_, Vec<String>> {
            let mut answers = self.0.lock().unwrap();
            let answer = answers.pop().unwrap_or_else(|| Ok(Vec::new()));
            Box::pin(async { answer })
        }

        fn range(&self, _: Query) -> Answer<'_, Listing> {
            unreachable!()
        }

        fn txn(&self, _: Txn) -> Answer<'_, TxnReply> {
            unreachable!()
        }

        fn watch(&self, _: WatchRequest) -> Answer<'_, Watch> {
            unreachable!()
        }

        fn compact(&self, _: Revision) -> Answer<'_, ()> {
            unreachable!()
        }

        fn lease_grant(&self, _: i64) -> Answer<'_, Lease> {
            unreachable!()
        }

        fn lease_keep_alive(&self, _: LeaseId) -> Answer<'_, i64> {
            unreachable!()
        }

        fn lease_revoke(&self, _: LeaseId) -> Answer<'_, ()> {
            unreachable!()
        }

        fn lease_state(&self, _: LeaseId) -> Answer<'_, LeaseState> {
            unreachable!()
        }
    }

    /// Returns addresses and problem after each of these answers.
    async fn after(
        answers: impl IntoIterator<Item = Result<Vec<String>, Error>>,
    ) -> Vec<(Vec<String>, bool, Option<String>)> {
        let mut answers: Vec<_> = answers.into_iter().collect();
        let count = answers.len();
        let is_outage = |answer: &&Result<_, Error>| matches!(answer, Err(Error::Unavailable(_)));
        let outages = answers.iter().filter(is_outage).count();
        answers.reverse();
        let store = Arc::new(Listed(answers.into()));
        let urls = ["http://10.0.0.254:2379".to_owned()];
        let mut addresses = DatastoreAddresses::of(&urls, store);
        let mut found = Vec::new();
        // An outage alone changes nothing.
        for _ in 0..=count - outages {
            let now = addresses.changed().await;
            let texts = now.addresses.iter().map(ToString::to_string);
            found.push((texts.collect(), now.complete, now.problem));
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn members_join_the_endpoints_and_leave_with_their_list() {
        let urls = |urls: &[&str]| Ok(urls.iter().map(|url| (*url).to_owned()).collect());
        let found = after([
            Err(Error::Unavailable("away".into())),
            urls(&[
                "http://10.0.0.7:2379",
                "https://[fd00::7]:2380",
                "nonsense://",
            ]),
            Err(Error::Denied("no".into())),
            urls(&["http://10.0.0.8:2379"]),
        ])
        .await;
        let own = "10.0.0.254:2379".to_owned();
        let both = vec![
            "10.0.0.7:2379".to_owned(),
            own.clone(),
            "[fd00::7]:2380".to_owned(),
        ];
        let denied = Some(Error::Denied("no".into()).to_string());
        let wanted = [
            (vec![own.clone()], false, None),
            (both.clone(), true, None),
            (both, true, denied),
            (vec!["10.0.0.8:2379".to_owned(), own], true, None),
        ];
        assert_eq!(found, wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn members_beyond_the_limit_are_left_out() {
        let urls = (0..200_u8).map(|n| format!("http://10.0.1.{n}:2379"));
        let found = after([Ok(urls.collect())]).await;
        assert_eq!(found[1].0.len(), 1 + DATASTORE_URLS_MAX);
    }
}
