//! An API server of Kubernetes for tests: objects with revisions, lists in pages, watches, and faults
//! on demand. No package has the real one.
//!
//! It answers as recorded from Kubernetes 1.36: an expired watch is answered with 200 and an event
//! `ERROR`, an expired page with 410. It does not validate objects, and has no controllers.

mod discovery;
mod http;
mod objects;
mod rbac;
mod resources;
mod selector;
mod serve;
mod status;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use objects::Objects;
use rbac::Rights;

use crate::Certificates;

/// A running server. Its connections end when it is dropped.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    tls: Option<Arc<ServerConfig>>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes all watches.
    wakes: watch::Sender<u64>,
}

/// Numbers that watches compare with those at their start.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    bookmarks: u64,
    ends: u64,
    cuts: u64,
}

#[derive(Debug)]
struct State {
    objects: Objects,
    /// The custom kinds that exist.
    defined: BTreeSet<&'static str>,
    counts: BTreeMap<(&'static str, &'static str), u64>,
    token: Option<String>,
    denied: BTreeSet<(String, String)>,
    /// The rights of all clients; `None`: everything is allowed.
    rights: Option<Rights>,
    /// How many tokens were issued.
    tokens: u64,
    /// How many further requests are answered with 429.
    throttled: u32,
    /// Requests are not answered.
    stalled: bool,
    /// The next page of a list has expired.
    expires_page: bool,
    marks: Marks,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.wakes.send_modify(|wakes| *wakes += 1);
    }

    fn woken(&self) -> watch::Receiver<u64> {
        self.wakes.subscribe()
    }
}

impl ApiServer {
    /// Starts a server without TLS, with the namespaces of every cluster. `identity` distinguishes
    /// the UIDs of servers.
    ///
    /// # Panics
    /// If the address cannot be listened on.
    pub async fn start(listen: SocketAddr, identity: u64) -> Self {
        Self::run(listen, identity, None).await
    }

    /// Starts a server with TLS.
    ///
    /// # Panics
    /// If the address cannot be listened on, or a certificate is invalid.
    pub async fn start_secured(
        listen: SocketAddr,
        identity: u64,
        certificates: &Certificates,
    ) -> Self {
        let (certificate, key) = &certificates.server;
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
        let chain = chain.collect::<Result<_, _>>().expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(chain, key).expect("a pair");
        Self::run(listen, identity, Some(Arc::new(config))).await
    }

    async fn run(listen: SocketAddr, identity: u64, tls: Option<Arc<ServerConfig>>) -> Self {
        let state = State {
            objects: Objects::new(identity),
            defined: BTreeSet::new(),
            counts: BTreeMap::new(),
            token: None,
            denied: BTreeSet::new(),
            rights: None,
            tokens: 0,
            throttled: 0,
            stalled: false,
            expires_page: false,
            marks: Marks::default(),
        };
        let mut server = Self {
            address: listen,
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                wakes: watch::channel(0).0,
            }),
            tls,
            accepting: None,
        };
        server.resume().await;
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            server.apply(json!({"kind": "Namespace", "metadata": {"name": name}}));
        }
        server
    }

    /// Closes the port and all connections. The objects stay.
    pub async fn stop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // It ends with this error.
            let _ = accepting.await;
        }
    }

    /// Listens again after [`Self::stop`].
    ///
    /// # Panics
    /// If the address cannot be listened on.
    pub async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("an address");
        self.address = listener.local_addr().expect("its address");
        let accepting = accept(listener, Arc::clone(&self.shared), self.tls.clone());
        self.accepting = Some(tokio::spawn(accepting));
    }

    /// Returns the address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns a kubeconfig for this server, with the path of its authority's certificate and that of a
    /// token.
    pub fn kubeconfig(&self, ca: Option<&Path>, token: Option<&Path>) -> String {
        let mut cluster = json!({"server": self.url()});
        if let Some(ca) = ca {
            cluster["certificate-authority"] = json!(ca);
        }
        let user = token.map_or_else(|| json!({}), |token| json!({"tokenFile": token}));
        let context = json!({"cluster": "test", "user": "test"});
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": context}],
        })
        .to_string()
    }

    /// Creates or replaces an object.
    ///
    /// # Panics
    /// If it is rejected.
    pub fn apply(&self, object: Value) -> Value {
        let key = serve::key_of(&object).expect("kind, namespace and name");
        let object = serve::object(object).expect("an object");
        let mut state = self.shared.state();
        let written = match state.objects.get(&key) {
            Some(_) => state.objects.update(&key, object, false),
            None => state.objects.create(&key, object),
        };
        drop(state);
        self.shared.wake();
        written.expect("written")
    }

    /// Replaces the status of an object, as the kubelet does for its Node.
    ///
    /// # Panics
    /// If there is no such object.
    pub fn set_status(&self, kind: &str, namespace: &str, name: &str, status: Value) {
        let resource = resources::of_kind(kind).expect("a kind");
        let key = (resource, namespace.to_owned(), name.to_owned());
        let object = json!({"metadata": {"name": name}, "status": status});
        let written = self.shared.state().objects.update(&key, object, true);
        self.shared.wake();
        written.expect("an object");
    }

    /// Deletes an object. Objects of a deleted namespace stay.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn remove(&self, kind: &str, namespace: &str, name: &str) {
        let resource = resources::of_kind(kind).expect("a kind");
        let key = (resource, namespace.to_owned(), name.to_owned());
        let deleted = self.shared.state().objects.delete(&key);
        deleted.expect("an object");
        self.shared.wake();
    }

    /// Returns the objects of a kind.
    ///
    /// # Panics
    /// If the kind is unknown.
    pub fn objects(&self, kind: &str) -> Vec<Value> {
        let resource = resources::of_kind(kind).expect("a kind");
        let state = self.shared.state();
        let all = state.objects.at(resource, state.objects.revision);
        all.into_values().map(Arc::unwrap_or_clone).collect()
    }

    /// Lets a custom kind exist from now on.
    ///
    /// # Panics
    /// If the kind is unknown.
    pub fn define(&self, kind: &str) {
        let resource = resources::of_kind(kind).expect("a kind");
        self.shared.state().defined.insert(resource.kind);
    }

    /// Returns the revision of the last change.
    pub fn revision(&self) -> u64 {
        self.shared.state().objects.revision
    }

    /// Returns how many requests of a verb there were for a resource.
    pub fn count(&self, plural: &str, verb: &str) -> u64 {
        let state = self.shared.state();
        let counts = state.counts.iter();
        let of = counts.filter(|((of, how), _)| *of == plural && *how == verb);
        of.map(|(_, count)| count).sum()
    }

    /// Requires this token.
    pub fn require_token(&self, token: &str) {
        self.shared.state().token = Some(token.to_owned());
    }

    /// Denies every request from now on that the shipped manifests do not allow this service account.
    ///
    /// # Panics
    /// If they do not have the account.
    pub fn enforce(&self, account: &str) {
        self.shared.state().rights = Some(Rights::shipped(account));
    }

    /// Returns an object.
    ///
    /// # Panics
    /// If the kind is unknown.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = resources::of_kind(kind).expect("a kind");
        let key = (resource, namespace.to_owned(), name.to_owned());
        self.shared.state().objects.get(&key).cloned()
    }

    /// Denies a verb for a resource, or allows it again.
    pub fn deny(&self, verb: &str, plural: &str, is_denied: bool) {
        let right = (verb.to_owned(), plural.to_owned());
        let mut state = self.shared.state();
        match is_denied {
            true => state.denied.insert(right),
            false => state.denied.remove(&right),
        };
    }

    /// Answers this many further requests with 429.
    pub fn throttle(&self, requests: u32) {
        self.shared.state().throttled = requests;
    }

    /// Leaves further requests without an answer, or answers them again.
    pub fn stall(&self, is_stalled: bool) {
        self.shared.state().stalled = is_stalled;
    }

    /// Lets the next request for a further page fail, as if the history had been removed meanwhile.
    pub fn expire_page(&self) {
        self.shared.state().expires_page = true;
    }

    /// Sends a bookmark on each watch that wants them.
    pub fn send_bookmarks(&self) {
        self.shared.state().marks.bookmarks += 1;
        self.shared.wake();
    }

    /// Ends all watches, as a timeout does.
    pub fn end_watches(&self) {
        self.shared.state().marks.ends += 1;
        self.shared.wake();
    }

    /// Cuts off all watches within their answer.
    pub fn cut_watches(&self) {
        self.shared.state().marks.cuts += 1;
        self.shared.wake();
    }

    /// Removes the history: earlier versions and pages expire.
    pub fn compact(&self) {
        self.shared.state().objects.compact();
        self.shared.wake();
    }

    /// Goes back to an earlier revision, as a restored backup does. All watches are cut off, and
    /// earlier versions expire.
    pub fn restore(&self, revision: u64) {
        self.restore_bumped(revision, 0);
    }

    /// Goes back to the objects of an earlier revision; the revision itself grows by `bump`, as with
    /// `etcdutl snapshot restore --bump-revision --mark-compacted`.
    pub fn restore_bumped(&self, revision: u64, bump: u64) {
        let mut state = self.shared.state();
        state.objects.restore(revision, bump);
        state.objects.compact();
        state.marks.cuts += 1;
        drop(state);
        self.shared.wake();
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, tls: Option<Arc<ServerConfig>>) {
    // Dropped with this task, which ends all connections.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            return;
        };
        // As the API server does. Without it, an event waits for the acknowledgment of the one before.
        let _ = stream.set_nodelay(true);
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let answer = serve::answer(Arc::clone(&shared), request);
                async move { Ok::<_, std::convert::Infallible>(answer.await) }
            });
            // A client that disconnects does not affect the server.
            match tls {
                None => {
                    let connection = http1::Builder::new();
                    let _ = connection
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                }
                Some(config) => {
                    if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
                        let connection = http1::Builder::new();
                        let _ = connection
                            .serve_connection(TokioIo::new(stream), service)
                            .await;
                    }
                }
            }
        });
    }
}
