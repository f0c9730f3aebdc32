//! The addresses of the datastore: behind the URLs of the configuration, and those of the members of
//! its cluster. The packet filter closes them to workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use calico_store::Store;
use daemon_common::events::{Event, Text, emit};
use tokio::net::lookup_host;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

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
    /// The names that cannot be resolved now.
    unresolved: Option<Text>,
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
        Self::resolved_by(Box::new(|name| Box::pin(resolve(name))), urls, store)
    }

    fn resolved_by(resolve: Resolve, urls: &[String], store: Arc<dyn Store>) -> Self {
        let configured: BTreeSet<_> = urls.iter().filter_map(|url| authority(url)).collect();
        let (report, mut found) = watch::channel(Found {
            addresses: literals(&configured),
            ..Found::default()
        });
        found.mark_changed();
        let due = Arc::new(Notify::new());
        let task = tokio::spawn(follow(resolve, configured, store, report, Arc::clone(&due)));
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

    /// Describes which addresses are unknown.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        let found = self.found.borrow();
        let members = found.problem.as_ref().map(|problem| {
            format!(
                "the datastore does not list its members: {problem}; put all of them into \
                 `datastore.endpoints`, or workloads reach the others"
            )
        });
        let names = found.unresolved.as_ref().map(|names| {
            let names = names.as_str();
            format!("names of the datastore cannot be resolved: {names}; workloads may reach them")
        });
        members.into_iter().chain(names)
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

/// Resolves a name to its addresses.
type Resolve = Box<dyn Fn(Authority) -> Lookup + Send + Sync>;
type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

async fn resolve((host, port): Authority) -> io::Result<Vec<SocketAddr>> {
    let found = lookup_host((host.as_str(), port)).await?;
    Ok(found.take(DATASTORE_ADDRESSES_MAX).collect())
}

/// Lists members and resolves names periodically, and reports all addresses.
async fn follow(
    resolve: Resolve,
    configured: BTreeSet<Authority>,
    store: Arc<dyn Store>,
    report: watch::Sender<Found>,
    due: Arc<Notify>,
) {
    let mut members = Members::default();
    let mut names = Names::default();
    loop {
        // A call or a lookup that hangs does not delay the answer to a request.
        tokio::select! {
            () = members.list(&*store) => {}
            () = due.notified() => continue,
        }
        let pause = match members.is_away {
            true => DATASTORE_MEMBERS_RETRY,
            false => DATASTORE_LOOKUP,
        };
        let until = Instant::now() + pause;
        let hosts = configured.union(&members.urls).cloned().collect();
        names.keep(&hosts);
        tokio::select! {
            () = look_up_until(until, &resolve, &hosts, &members, &mut names, &report) => {}
            () = due.notified() => {}
        }
    }
}

/// Resolves the names among hosts, and again while some fail, until this time: that is no load on the
/// datastore.
async fn look_up_until(
    until: Instant,
    resolve: &Resolve,
    hosts: &BTreeSet<Authority>,
    members: &Members,
    names: &mut Names,
    report: &watch::Sender<Found>,
) {
    loop {
        look_up(resolve, hosts, members, names, report).await;
        let next = match names.failing.is_empty() {
            true => until,
            false => until.min(Instant::now() + DATASTORE_MEMBERS_RETRY),
        };
        sleep_until(next).await;
        if next == until {
            return;
        }
    }
}

/// Resolves the names among hosts. Reports the known addresses first and after each name, because
/// a name server that does not answer takes seconds for each.
async fn look_up(
    resolve: &Resolve,
    hosts: &BTreeSet<Authority>,
    members: &Members,
    names: &mut Names,
    report: &watch::Sender<Found>,
) {
    let publish = |names: &Names, is_whole: bool| {
        let mut addresses = literals(hosts);
        addresses.extend(names.known.values().flatten());
        let failing = names.failing.iter();
        let failing = Text::listed(failing.map(|(host, port)| format!("{host}:{port}")));
        let mut found = Found {
            addresses,
            complete: members.complete && is_whole,
            problem: members.problem.clone(),
            unresolved: (!names.failing.is_empty()).then_some(failing),
        };
        report.send_if_modified(|held| {
            found.complete |= held.complete;
            let different = *held != found;
            *held = found;
            different
        });
    };
    let is_name = |host: &str| host.parse::<IpAddr>().is_err();
    let mut left: Vec<Authority> = hosts.iter().filter(|of| is_name(&of.0)).cloned().collect();
    publish(names, left.is_empty());
    while let Some(name) = left.pop() {
        match resolve(name.clone()).await {
            Ok(found) => names.resolved(name, found),
            Err(error) => names.failed(name, &error),
        }
        publish(names, left.is_empty());
    }
}

/// The members that the datastore has listed last.
#[derive(Default)]
struct Members {
    urls: BTreeSet<Authority>,
    complete: bool,
    problem: Option<String>,
    /// The datastore did not answer.
    is_away: bool,
}

impl Members {
    async fn list(&mut self, store: &dyn Store) {
        let answer = store.members().await;
        self.is_away = false;
        match answer {
            Ok(urls) => {
                let urls = urls.iter().filter_map(|url| authority(url));
                self.urls = urls.take(DATASTORE_URLS_MAX).collect();
                (self.problem, self.complete) = (None, true);
            }
            // An outage is reported elsewhere; the last members stay.
            Err(error) if error.is_transient() => self.is_away = true,
            Err(error) => {
                if self.problem.is_none() {
                    let reason = Text::new(&error);
                    emit(Event::DatastoreMembersUnknown { reason });
                }
                (self.problem, self.complete) = (Some(error.to_string()), true);
            }
        }
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
    /// Forgets all names but these.
    fn keep(&mut self, hosts: &BTreeSet<Authority>) {
        self.known.retain(|name, _| hosts.contains(name));
        self.failing.retain(|name| hosts.contains(name));
    }

    fn failed(&mut self, name: Authority, error: &io::Error) {
        if !self.failing.contains(&name) {
            emit(Event::DatastoreLookupFailed {
                name: Text::new(&name.0),
                port: name.1.into(),
                reason: Text::new(error),
            });
            self.failing.insert(name);
        }
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
    use std::time::Duration;

    use calico_store::{
        Answer, Error, Lease, LeaseId, LeaseState, Listing, Query, Revision, Txn, TxnReply, Watch,
        WatchRequest,
    };

    use tokio::time::timeout;

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

    /// Stands for a call without an answer.
    const HANGS: Error = Error::NoKey;

    /// A store that answers with these members, one answer after the other.
    struct Listed(std::sync::Mutex<Vec<Result<Vec<String>, Error>>>);

    impl Store for Listed {
        fn members(&self) -> Answer<'_, Vec<String>> {
            let mut answers = self.0.lock().unwrap();
            let answer = answers.pop().unwrap_or_else(|| Ok(Vec::new()));
            Box::pin(async {
                match answer {
                    Err(HANGS) => std::future::pending().await,
                    answer => answer,
                }
            })
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
            assert_eq!(now.unresolved, None);
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

    const NAME: &str = "http://etcd.example:2379";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Returns the next addresses, within this time.
    async fn within(limit: Duration, addresses: &mut DatastoreAddresses) -> Found {
        timeout(limit, addresses.changed()).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn members_with_an_address_do_not_wait_for_names() {
        let urls = vec!["http://10.0.0.7:2379".to_owned(), NAME.to_owned()];
        let store = Arc::new(Listed(vec![Ok(urls)].into()));
        let hang = Box::new(|_| -> Lookup { Box::pin(std::future::pending()) });
        let own = ["http://own.example:1".to_owned()];
        let mut addresses = DatastoreAddresses::resolved_by(hang, &own, store);
        within(Duration::ZERO, &mut addresses).await;
        let found = within(Duration::from_secs(1), &mut addresses).await;
        assert_eq!(found.addresses, [at("10.0.0.7:2379")].into());
        assert!(!found.complete, "the names are unknown");
    }

    #[tokio::test(start_paused = true)]
    async fn name_that_fails_is_shown_and_resolved_soon() {
        let tries = std::sync::atomic::AtomicUsize::new(0);
        let late = Box::new(move |_| -> Lookup {
            let first = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            let answer = match first {
                true => Err(io::ErrorKind::TimedOut.into()),
                false => Ok(vec![at("10.0.0.7:2379")]),
            };
            Box::pin(std::future::ready(answer))
        });
        let store = Arc::new(Listed(Vec::new().into()));
        let mut addresses = DatastoreAddresses::resolved_by(late, &[NAME.to_owned()], store);
        let soon = DATASTORE_MEMBERS_RETRY + Duration::from_secs(1);
        while !within(soon, &mut addresses).await.complete {}
        let problems: Vec<_> = addresses.problems().collect();
        assert!(problems[0].contains(": etcd.example:2379;"), "{problems:?}");
        let found = within(soon, &mut addresses).await;
        assert_eq!(found.addresses, [at("10.0.0.7:2379")].into());
        assert_eq!(addresses.problems().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn request_does_not_wait_for_what_hangs() {
        for before in [Err(Error::Unavailable("away".into())), Err(HANGS)] {
            request_is_answered_after(before).await;
        }
    }

    async fn request_is_answered_after(before: Result<Vec<String>, Error>) {
        let urls = Ok(vec!["http://10.0.0.7:2379".to_owned()]);
        let store = Arc::new(Listed(vec![urls, before].into()));
        let hang = Box::new(|_| -> Lookup { Box::pin(std::future::pending()) });
        let mut addresses = DatastoreAddresses::resolved_by(hang, &[NAME.to_owned()], store);
        within(Duration::ZERO, &mut addresses).await;
        let waiting = timeout(Duration::from_secs(100), addresses.changed()).await;
        assert!(waiting.is_err(), "it hangs");
        addresses.ask();
        let found = within(Duration::from_secs(1), &mut addresses).await;
        assert_eq!(found.addresses, [at("10.0.0.7:2379")].into());
    }
}
