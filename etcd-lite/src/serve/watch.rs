//! The Watch service: many watches on one stream.

use std::collections::BTreeMap;

use etcd_client::proto::{PbWatchRequest, PbWatchRequestUnion, PbWatchResponse, PbWatchService};
use tokio::sync::{mpsc, watch as signal};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::stopped;
use crate::core::{WatchCursor, WatchPoll};
use crate::limits::{PROGRESS_INTERVAL, STREAM_REPLIES_MAX, STREAM_WATCHES_MAX};
use crate::local::Local;
use crate::wire::{event_out, header_out, range_in};
use calico_store::Error;
use calico_store::WatchRequest;
use calico_store::shared::grpc_status;
use calico_store::{Batch, EventKind, Header, KeyRange, Revision};

/// The Watch service over a core.
pub(super) struct Watches {
    store: Local,
    stopping: signal::Receiver<bool>,
}

impl Watches {
    pub(super) const fn new(store: Local, stopping: signal::Receiver<bool>) -> Self {
        Self { store, stopping }
    }
}

type Reply = Result<PbWatchResponse, Status>;

#[tonic::async_trait]
impl PbWatchService for Watches {
    type WatchStream = ReceiverStream<Reply>;

    async fn watch(
        &self,
        request: Request<Streaming<PbWatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (replies, stream) = mpsc::channel(STREAM_REPLIES_MAX);
        let client = Client {
            store: self.store.clone(),
            replies,
            watches: BTreeMap::new(),
            last_id: -1,
            progress_asked: false,
        };
        tokio::spawn(client.run(request.into_inner(), self.stopping.clone()));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// One stream of a client, with its watches.
struct Client {
    store: Local,
    replies: mpsc::Sender<Reply>,
    watches: BTreeMap<i64, Active>,
    last_id: i64,
    progress_asked: bool,
}

struct Active {
    cursor: WatchCursor,
    puts: bool,
    deletes: bool,
    progress: bool,
}

/// The stream has ended: the client or the store is gone.
struct Over;

impl Client {
    async fn run(
        mut self,
        mut requests: Streaming<PbWatchRequest>,
        stopping: signal::Receiver<bool>,
    ) {
        let mut changes = self.store.changes();
        let mut ticks = interval_at(Instant::now() + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = stopped(stopping);
        tokio::pin!(stop);
        loop {
            // While this waits for a slow client nothing is read from it; its cursors stay where
            // they are.
            if self.deliver().await.is_err() {
                return;
            }
            let step = tokio::select! {
                request = requests.message() => match request {
                    Ok(Some(request)) => self.handle(request).await,
                    Ok(None) | Err(_) => Err(Over),
                },
                changed = changes.changed() => changed.map_err(|_| Over),
                _ = ticks.tick() => self.regular_progress().await,
                () = self.replies.closed() => Err(Over),
                () = &mut stop => Err(Over),
            };
            if step.is_err() {
                return;
            }
        }
    }

    async fn send(&self, reply: PbWatchResponse) -> Result<(), Over> {
        self.replies.send(Ok(reply)).await.map_err(|_| Over)
    }

    async fn header(&self) -> Result<Header, Over> {
        self.store
            .call(|core, _| core.header())
            .await
            .map_err(|_| Over)
    }

    async fn handle(&mut self, request: PbWatchRequest) -> Result<(), Over> {
        match request.request_union {
            Some(PbWatchRequestUnion::CreateRequest(create)) => {
                let range = range_in(create.key, create.range_end);
                let filtered = |kind: i32| create.filters.contains(&kind);
                let wanted = Wanted {
                    id: create.watch_id,
                    from: (create.start_revision > 0).then_some(Revision(create.start_revision)),
                    previous: create.prev_kv,
                    puts: !filtered(0),
                    deletes: !filtered(1),
                    progress: create.progress_notify,
                };
                self.create(range, wanted).await
            }
            Some(PbWatchRequestUnion::CancelRequest(cancel)) => {
                if self.watches.remove(&cancel.watch_id).is_none() {
                    return Ok(());
                }
                let header = self.header().await?;
                self.send(PbWatchResponse {
                    header: Some(header_out(header)),
                    watch_id: cancel.watch_id,
                    canceled: true,
                    ..PbWatchResponse::default()
                })
                .await
            }
            Some(PbWatchRequestUnion::ProgressRequest(_)) => {
                self.progress_asked = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn create(&mut self, range: Result<KeyRange, Error>, wanted: Wanted) -> Result<(), Over> {
        let header = self.header().await?;
        match self.begin(range, &wanted).await {
            Ok((id, active)) => {
                self.watches.insert(id, active);
                self.send(PbWatchResponse {
                    header: Some(header_out(header)),
                    watch_id: id,
                    created: true,
                    ..PbWatchResponse::default()
                })
                .await
            }
            Err(error) => {
                self.send(PbWatchResponse {
                    header: Some(header_out(header)),
                    watch_id: -1,
                    created: true,
                    canceled: true,
                    cancel_reason: grpc_status(&error).message().to_owned(),
                    ..PbWatchResponse::default()
                })
                .await
            }
        }
    }

    async fn begin(
        &mut self,
        range: Result<KeyRange, Error>,
        wanted: &Wanted,
    ) -> Result<(i64, Active), Error> {
        if self.watches.len() >= STREAM_WATCHES_MAX {
            return Err(Error::BadRequest("too many watches on one stream".into()));
        }
        let id = match wanted.id {
            0 => self.unused_id(),
            id if self.watches.contains_key(&id) => {
                return Err(Error::BadRequest("the id of the watch is in use".into()));
            }
            id => id,
        };
        let request = WatchRequest {
            range: range?,
            from: wanted.from,
            previous: wanted.previous,
        };
        let cursor = self
            .store
            .call(move |core, _| core.watch(request))
            .await??;
        let Wanted {
            puts,
            deletes,
            progress,
            ..
        } = *wanted;
        Ok((
            id,
            Active {
                cursor,
                puts,
                deletes,
                progress,
            },
        ))
    }

    fn unused_id(&mut self) -> i64 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(0);
            if !self.watches.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Sends all pending results of the watches.
    async fn deliver(&mut self) -> Result<(), Over> {
        let mut ids: Vec<i64> = self.watches.keys().copied().collect();
        while !ids.is_empty() {
            let mut more = Vec::new();
            for id in ids {
                if self.deliver_one(id).await? {
                    more.push(id);
                }
            }
            ids = more;
        }
        if self.progress_asked {
            self.progress_asked = false;
            self.progress(-1).await?;
        }
        Ok(())
    }

    /// Sends the next batch of a watch; returns whether there may be more.
    async fn deliver_one(&mut self, id: i64) -> Result<bool, Over> {
        let Some(mut active) = self.watches.remove(&id) else {
            return Ok(false);
        };
        let polled = self.store.call(move |core, _| {
            let poll = core.poll_watch(&mut active.cursor);
            (active, poll, core.header())
        });
        let (active, poll, header) = polled.await.map_err(|_| Over)?;
        match poll {
            WatchPoll::Idle => {
                self.watches.insert(id, active);
                Ok(false)
            }
            WatchPoll::Events(batch) => {
                let reply = events(header, id, &active, batch);
                let more = active.cursor.next() <= header.revision;
                self.watches.insert(id, active);
                if !reply.events.is_empty() {
                    self.send(reply).await?;
                }
                Ok(more)
            }
            WatchPoll::Ended(error) => {
                self.send(ended(header, id, &error)).await?;
                Ok(false)
            }
        }
    }

    async fn regular_progress(&self) -> Result<(), Over> {
        for (id, active) in &self.watches {
            if active.progress {
                self.progress(*id).await?;
            }
        }
        Ok(())
    }

    async fn progress(&self, id: i64) -> Result<(), Over> {
        let progress = self
            .store
            .call(|core, _| core.progress().map(|_| core.header()))
            .await;
        if let Some(mut header) = progress.map_err(|_| Over)? {
            // Not beyond the events already sent to every watch.
            for active in self.watches.values() {
                header.revision = header.revision.min(Revision(active.cursor.next().0 - 1));
            }
            self.send(PbWatchResponse {
                header: Some(header_out(header)),
                watch_id: id,
                ..PbWatchResponse::default()
            })
            .await?;
        }
        Ok(())
    }
}

/// A client's request.
struct Wanted {
    id: i64,
    from: Option<Revision>,
    previous: bool,
    puts: bool,
    deletes: bool,
    progress: bool,
}

fn events(header: Header, id: i64, active: &Active, batch: Batch) -> PbWatchResponse {
    let wanted = batch.events.into_iter().filter(|event| match event.kind {
        EventKind::Put => active.puts,
        EventKind::Delete => active.deletes,
    });
    PbWatchResponse {
        header: Some(header_out(header)),
        watch_id: id,
        events: wanted.map(event_out).collect(),
        ..PbWatchResponse::default()
    }
}

fn ended(header: Header, id: i64, error: &Error) -> PbWatchResponse {
    let (compact_revision, cancel_reason) = match error {
        Error::Compacted { at } => (at.0, String::new()),
        error => (0, error.to_string()),
    };
    PbWatchResponse {
        header: Some(header_out(header)),
        watch_id: id,
        canceled: true,
        compact_revision,
        cancel_reason,
        ..PbWatchResponse::default()
    }
}
