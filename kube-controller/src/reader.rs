//! Reads the objects of one kind: a list in pages, then a watch from its revision.

use kube_client::limits::WATCH_S;
use kube_client::{Access, Failure, Lines, Server};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::kinds::Watched;
use crate::limits::{MISSING_RETRY, OBJECTS_OF_KIND_MAX, PAGE_OBJECTS};
use crate::object::Object;
use crate::pace::Pace;

/// News of a kind.
#[derive(Debug)]
pub enum News {
    /// All objects at a revision.
    Listed {
        /// The kind.
        watched: Watched,
        /// The revision of the list.
        revision: u64,
        /// The objects.
        objects: Vec<Object>,
    },
    /// An object is new or changed.
    Changed {
        /// The kind.
        watched: Watched,
        /// The revision of the change.
        revision: u64,
        /// The object.
        object: Box<Object>,
    },
    /// An object was deleted.
    Removed {
        /// The kind.
        watched: Watched,
        /// The revision of the deletion.
        revision: u64,
        /// Its last state.
        object: Box<Object>,
    },
    /// A watch is open: changes follow.
    Watching {
        /// The kind.
        watched: Watched,
    },
    /// A watch has ended regularly. The next one follows.
    Ended {
        /// The kind.
        watched: Watched,
    },
    /// All changes up to a revision have been reported.
    Reached {
        /// The kind.
        watched: Watched,
        /// The revision.
        revision: u64,
    },
    /// The server does not have the kind.
    Missing {
        /// The kind.
        watched: Watched,
    },
    /// A request failed. The objects stay as they are.
    Failed {
        /// The kind.
        watched: Watched,
        /// The reason.
        failure: Failure,
    },
}

/// A task that reads one kind until it is dropped.
#[derive(Debug)]
pub struct Reader(JoinHandle<()>);

impl Reader {
    /// Starts to read a kind. Must be called within a tokio runtime.
    pub fn start(watched: Watched, access: Access, news: mpsc::Sender<News>) -> Self {
        let reading = Reading {
            watched,
            server: Server::new(access).without(watched.unread()),
            news,
            at: None,
            is_listed: false,
            limit: PAGE_OBJECTS,
            pace: Pace::new(Instant::now()),
        };
        Self(tokio::spawn(reading.run()))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The receiver of the news is closed: the controller ends.
struct Closed;

/// Why a step ended early.
enum Ended {
    Failed(Failure),
    Closed,
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Closed> for Ended {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

struct Reading {
    watched: Watched,
    server: Server,
    news: mpsc::Sender<News>,
    /// The version up to which all changes are known; `None` before a complete list.
    at: Option<String>,
    /// The version is that of a list that was just read.
    is_listed: bool,
    /// Objects in one page.
    limit: usize,
    pace: Pace,
}

impl Reading {
    async fn run(mut self) {
        loop {
            sleep_until(self.pace.next()).await;
            self.pace.started(Instant::now());
            let done = match self.at.clone() {
                None => self.list().await,
                Some(at) => self.watch(at).await,
            };
            let failed = match done {
                Ok(()) => Ok(()),
                Err(Ended::Failed(failure)) => self.failed(failure).await,
                Err(Ended::Closed) => return,
            };
            if let Err(Closed) = failed {
                return;
            }
        }
    }

    async fn failed(&mut self, failure: Failure) -> Result<(), Closed> {
        let (now, watched) = (Instant::now(), self.watched);
        if failure.is_missing() && watched.is_optional() {
            self.at = None;
            self.pace.missing(now, MISSING_RETRY);
            return self.send(News::Missing { watched }).await;
        }
        if matches!(failure, Failure::Expired(_)) {
            self.at = None;
        }
        self.pace.failed(now, failure.retry_after());
        self.send(News::Failed { watched, failure }).await
    }

    async fn send(&self, news: News) -> Result<(), Closed> {
        self.news.send(news).await.map_err(|_| Closed)
    }

    /// Reads all objects. If the history is too short for a list in pages, reads it as one page.
    async fn list(&mut self) -> Result<(), Ended> {
        let listed = loop {
            match self.pages(self.limit).await {
                // Pages stay smaller, also in later lists.
                Err(Failure::TooLong(_)) if self.limit > 1 => self.limit /= 2,
                Err(Failure::Expired(_)) => break self.pages(0).await,
                listed => break listed,
            }
        };
        let (version, objects) = listed?;
        let revision = revision_of(&version)?;
        self.at = Some(version);
        self.is_listed = true;
        let watched = self.watched;
        let listed = News::Listed {
            watched,
            revision,
            objects,
        };
        self.send(listed).await?;
        self.pace.listed(Instant::now());
        Ok(())
    }

    async fn pages(&mut self, limit: usize) -> Result<(String, Vec<Object>), Failure> {
        let mut objects = Vec::new();
        let mut version: Option<String> = None;
        let mut token = String::new();
        loop {
            let mut path = self.watched.path().to_owned();
            if limit > 0 {
                path.push_str(&format!("?limit={limit}"));
            }
            if !token.is_empty() {
                path.push_str(&format!("&continue={}", escaped(&token)));
            }
            let page = self.server.read(&path).await?;
            let page = Page::new(self.watched, &page)?;
            match &version {
                None => version = Some(page.version.to_owned()),
                Some(first) if *first != page.version => {
                    let reason = "pages of one list have different revisions".to_owned();
                    return Err(Failure::Invalid(reason));
                }
                Some(_) => {}
            }
            let items = page.items.iter();
            objects.extend(items.map(|item| Object::new(self.watched, item)));
            if objects.len() > OBJECTS_OF_KIND_MAX {
                let reason = format!("there are more than {OBJECTS_OF_KIND_MAX} objects");
                return Err(Failure::Invalid(reason));
            }
            if page.token.is_empty() {
                return Ok((version.unwrap_or_default(), objects));
            }
            page.token.clone_into(&mut token);
        }
    }

    /// Follows the changes from a version on.
    ///
    /// A server that was restored from a backup has an older revision. A watch from the newer one would
    /// stay open without an event, so the present revision is read before each watch that does not
    /// directly follow a list.
    async fn watch(&mut self, at: String) -> Result<(), Ended> {
        if !std::mem::take(&mut self.is_listed) {
            let path = format!("{}?limit=1", self.watched.path());
            let page = self.server.read(&path).await?;
            let found = revision_of(Page::new(self.watched, &page)?.version)?;
            if found < revision_of(&at)? {
                let reason = format!("the revision {found} is older than {at}");
                return Err(Failure::Expired(reason).into());
            }
        }
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={}",
            self.watched.path(),
            escaped(&at)
        );
        let mut lines = self.server.watch(&path).await?;
        let watched = self.watched;
        self.send(News::Watching { watched }).await?;
        let opened = Instant::now();
        let ended = self.follow(&mut lines).await;
        self.pace.watched(opened.elapsed());
        ended?;
        self.pace.ended();
        self.send(News::Ended { watched }).await?;
        Ok(())
    }

    async fn follow(&mut self, lines: &mut Lines) -> Result<(), Ended> {
        while let Some(event) = lines.next().await? {
            self.event(&event).await?;
        }
        Ok(())
    }

    async fn event(&mut self, event: &Value) -> Result<(), Ended> {
        let (kind, value) = (event["type"].as_str(), &event["object"]);
        if kind == Some("ERROR") {
            let code = value["code"].as_u64().and_then(|code| code.try_into().ok());
            return Err(Failure::of_status(code.unwrap_or_default(), value, None).into());
        }
        let version = value["metadata"]["resourceVersion"].as_str();
        let version = version.unwrap_or_default().to_owned();
        let revision = revision_of(&version)?;
        let watched = self.watched;
        let object = || Box::new(Object::new(watched, value));
        let news = match kind {
            Some("ADDED" | "MODIFIED") => News::Changed {
                watched,
                revision,
                object: object(),
            },
            Some("DELETED") => News::Removed {
                watched,
                revision,
                object: object(),
            },
            Some("BOOKMARK") => News::Reached { watched, revision },
            _ => {
                let reason = "an event of a watch has an unknown type".to_owned();
                return Err(Failure::Invalid(reason).into());
            }
        };
        self.send(news).await?;
        self.at = Some(version);
        self.pace.delivered();
        Ok(())
    }
}

/// A page of a list.
struct Page<'v> {
    version: &'v str,
    token: &'v str,
    items: &'v [Value],
}

impl<'v> Page<'v> {
    /// Reads a page. Anything but a list of this kind is no page: no answer of another server
    /// counts as an empty list.
    fn new(watched: Watched, value: &'v Value) -> Result<Self, Failure> {
        let invalid = |reason: &str| Failure::Invalid(format!("{watched} list: {reason}"));
        if value["kind"].as_str() != Some(&format!("{watched}List")) {
            return Err(invalid("it has another kind"));
        }
        let items = match &value["items"] {
            Value::Array(items) => items.as_slice(),
            Value::Null => &[],
            _ => return Err(invalid("its items are no list")),
        };
        let text = |field: &str| value["metadata"][field].as_str();
        Ok(Self {
            version: text("resourceVersion").ok_or_else(|| invalid("it has no revision"))?,
            token: text("continue").unwrap_or_default(),
            items,
        })
    }
}

/// Reads a version as a number: since Kubernetes 1.35 the API guarantees this form, and etcd's
/// revisions had it before.
fn revision_of(version: &str) -> Result<u64, Failure> {
    let revision = version.parse();
    revision.map_err(|_| Failure::Invalid("a resourceVersion is not a number".to_owned()))
}

/// Escapes a text for the query of a URL.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for octet in text.bytes() {
        match octet {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(octet));
            }
            _ => escaped.push_str(&format!("%{octet:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answer_that_is_no_list_of_the_kind_is_no_page() {
        let metadata = json!({"resourceVersion": "7"});
        for wrong in [
            json!({}),
            json!([]),
            json!({"kind": "PodList", "metadata": metadata, "items": []}),
            json!({"kind": "NamespaceList", "items": []}),
            json!({"kind": "NamespaceList", "metadata": metadata, "items": {}}),
            json!({"kind": "Status", "metadata": metadata}),
        ] {
            let page = Page::new(Watched::Namespace, &wrong);
            assert!(matches!(page, Err(Failure::Invalid(_))), "{wrong}");
        }
        // A list without objects may have the value null in place of a list.
        let empty = json!({"kind": "NamespaceList", "metadata": metadata, "items": null});
        let page = Page::new(Watched::Namespace, &empty).map(|page| page.items.len());
        assert_eq!(page, Ok(0));
    }

    #[test]
    fn versions_that_are_no_numbers_are_rejected() {
        assert_eq!(revision_of("262"), Ok(262));
        for wrong in ["", "x", "-1", "1.5"] {
            assert!(revision_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_are_escaped_in_urls() {
        assert_eq!(escaped("eyJ2I+/=&x"), "eyJ2I%2B%2F%3D%26x");
    }
}
