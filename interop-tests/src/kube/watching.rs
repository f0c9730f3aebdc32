//! Watches: a stream of the changes after a version.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::http::{Answer, Cut, Query, is_in};
use super::objects::Change;
use super::resources::{Resource, Target};
use super::selector::Selector;
use super::status::Rejected;

/// Events that wait for a slow reader of a watch.
const EVENTS_QUEUED_MAX: usize = 16;

/// Time after which a watch ends without `timeoutSeconds`.
const WATCH_S: u64 = 1800;

/// Opens a watch. Also one that has expired is answered with 200, and its first event is the error.
pub(super) fn watch(
    shared: &Arc<Shared>,
    target: &Target,
    query: &Query,
) -> Result<Response<Answer>, Rejected> {
    let selector = query.selector()?;
    let from = query.number("resourceVersion")?.unwrap_or(0);
    let for_s = query.number("timeoutSeconds")?.unwrap_or(WATCH_S);
    let (sender, events) = mpsc::channel(EVENTS_QUEUED_MAX);
    let watching = Watching {
        shared: Arc::clone(shared),
        resource: target.resource,
        namespace: target.namespace.clone(),
        selector,
        from,
        has_bookmarks: query.is_true("allowWatchBookmarks"),
        streams_list: query.is_true("sendInitialEvents"),
        until: Instant::now() + Duration::from_secs(for_s),
        sender,
    };
    tokio::spawn(watching.run());
    let mut response = Response::new(Answer::Stream(events));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

/// A watch.
struct Watching {
    shared: Arc<Shared>,
    resource: Resource,
    namespace: Option<String>,
    selector: Selector,
    from: u64,
    has_bookmarks: bool,
    streams_list: bool,
    until: Instant,
    sender: mpsc::Sender<Result<Bytes, Cut>>,
}

/// The client has closed the watch.
struct Closed;

impl Watching {
    async fn run(self) {
        // A closed watch needs no answer.
        let _ = self.events().await;
    }

    async fn send(&self, kind: &str, object: &Value) -> Result<(), Closed> {
        let text = format!("{}\n", json!({"type": kind, "object": object}));
        let sent = self.sender.send(Ok(text.into())).await;
        sent.map_err(|_| Closed)
    }

    async fn events(&self) -> Result<(), Closed> {
        let mut woken = self.shared.woken();
        if self.streams_list {
            let message = "RequestWatchProgress is disabled";
            let rejected = Rejected::new(500, "InternalError", message);
            return self.send("ERROR", &rejected.status()).await;
        }
        let (mut at, marks) = {
            let state = self.shared.state();
            (self.from, state.marks)
        };
        if at == 0 {
            let (revision, all) = {
                let state = self.shared.state();
                let revision = state.objects.revision;
                (revision, state.objects.at(self.resource, revision))
            };
            for (key, object) in &all {
                if is_in(self.namespace.as_ref(), key) && self.selector.matches(object) {
                    self.send("ADDED", object).await?;
                }
            }
            at = revision;
        }
        let mut bookmarks = marks.bookmarks;
        let mut is_new = true;
        loop {
            let (changes, oldest, revision, now) = {
                let state = self.shared.state();
                let objects = &state.objects;
                let changes = objects.since(self.resource, at);
                (
                    changes,
                    objects.watchable_from,
                    objects.revision,
                    state.marks,
                )
            };
            if now.cuts != marks.cuts {
                let _ = self.sender.send(Err(Cut)).await;
                return Ok(());
            }
            if now.ends != marks.ends {
                return Ok(());
            }
            // An open watch has read all changes that expire now.
            if std::mem::take(&mut is_new) && at < oldest {
                let rejected = Rejected::old_watch(at, oldest);
                return self.send("ERROR", &rejected.status()).await;
            }
            for change in changes {
                self.change(&change).await?;
            }
            at = at.max(revision);
            if now.bookmarks != bookmarks && self.has_bookmarks {
                let object = json!({
                    "kind": self.resource.kind, "apiVersion": self.resource.version,
                    "metadata": {"resourceVersion": at.to_string(), "creationTimestamp": null},
                });
                self.send("BOOKMARK", &object).await?;
            }
            bookmarks = now.bookmarks;
            tokio::select! {
                changed = woken.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                () = sleep_until(self.until) => return Ok(()),
                () = self.sender.closed() => return Err(Closed),
            }
        }
    }

    /// Sends a change as the selector sees it: an object that no longer matches is deleted.
    async fn change(&self, change: &Change) -> Result<(), Closed> {
        if !is_in(self.namespace.as_ref(), &change.key) {
            return Ok(());
        }
        let matches = |object: &Option<Arc<Value>>| {
            let object = object.as_ref();
            object.is_some_and(|object| self.selector.matches(object))
        };
        let kind = match (matches(&change.before), matches(&change.after)) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return Ok(()),
        };
        let object = match kind {
            "DELETED" => change.before.as_ref(),
            _ => change.after.as_ref(),
        };
        let mut object = object
            .map(|object| Value::clone(object))
            .unwrap_or_default();
        // A deletion has the last state, with the revision of the deletion.
        object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
        self.send(kind, &object).await
    }
}
