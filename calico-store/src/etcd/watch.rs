//! Watches.

use std::sync::Arc;

use etcd_client::{WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream};
use futures_util::stream;
use tokio::sync::mpsc;

use super::members::{Again, Members};
use super::{error_in, list, watch_client};
use crate::error::Error;
use crate::kv::{Batch, Header, KeyRange, Query, Revision};
use crate::port::{Watch, WatchRequest};
use crate::wire::{event_in, header_in, range_out};

/// Start revision of the watch that serves as a progress request: no event ever has it.
const NEVER: i64 = i64::MAX;

pub(super) async fn watch(members: &Arc<Members>, request: WatchRequest) -> Result<Watch, Error> {
    let (key, end) = range_out(request.range);
    let bare = WatchOptions::new().with_range(end);
    let mut options = bare.clone();
    if let Some(from) = request.from {
        options = options.with_start_revision(from.0);
    }
    if request.previous {
        options = options.with_prev_key();
    }
    let begin = |client| {
        let (key, options) = (key.clone(), options.clone());
        async move {
            let stream = watch_client(&client).watch(key, Some(options)).await?;
            let (requests, mut responses) = stream.split();
            let first = responses.message().await?;
            Ok((requests, responses, first))
        }
    };
    let (at, (requests, responses, first)) = members.ask(Again::Any, begin).await?;
    let first = first.ok_or_else(ended)?;
    if let Some(error) = refusal(&first) {
        return Err(error);
    }
    let (probe, probes) = mpsc::channel(1);
    let mut open = Open {
        members: Arc::clone(members),
        at,
        id: first.watch_id(),
        header: Header::default(),
        probe: (key, bare.with_start_revision(NEVER)),
        requests,
        responses,
        probes,
    };
    let from = request.from.unwrap_or_default();
    let header = header_in(first.0.header.as_ref());
    let header = open.whole(header, from).await?;
    open.header = header;
    let batches = stream::unfold(Some(open), |open| async move {
        let mut open = open?;
        match open.next().await {
            Ok(batch) => Some((Ok(batch), Some(open))),
            Err(error) => {
                if matches!(error, Error::Unavailable(_) | Error::WatchLost(_)) {
                    open.members.failed(open.at);
                }
                Some((Err(open.members.name(open.at, error)), None))
            }
        }
    });
    Ok(Watch::new(header, Box::pin(batches), probe))
}

struct Open {
    members: Arc<Members>,
    /// The index of the member of this watch.
    at: usize,
    id: i64,
    /// The last header received on this watch.
    header: Header,
    /// The watch that serves as a progress request.
    probe: (Vec<u8>, WatchOptions),
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    probes: mpsc::Receiver<()>,
}

impl Open {
    async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            tokio::select! {
                response = self.responses.message() => {
                    let response = response.map_err(error_in)?.ok_or_else(ended)?;
                    if let Some(batch) = self.take(response).await? {
                        return Ok(batch);
                    }
                }
                Some(()) = self.probes.recv() => {
                    // Proxies do not answer progress requests, but all of them answer the creation
                    // of another watch on the same stream.
                    let (key, options) = self.probe.clone();
                    self.requests.watch(key, Some(options)).await.map_err(error_in)?;
                }
            }
        }
    }

    async fn take(&mut self, response: WatchResponse) -> Result<Option<Batch>, Error> {
        let header = header_in(response.0.header.as_ref());
        if response.watch_id() == self.id {
            if let Some(error) = refusal(&response) {
                return Err(error);
            }
            self.observe(header)?;
            return Ok(Some(batch(response)));
        }
        if !response.created() {
            return Ok(None);
        }
        let id = response.watch_id();
        self.requests.cancel(id).await.map_err(error_in)?;
        self.observe(header)?;
        Ok(Some(Batch {
            revision: self.header.revision,
            events: Vec::new(),
        }))
    }

    /// Records a received header. The cluster ID is checked because a proxy does not report that
    /// the store behind it was replaced; a header without cluster ID was made by a proxy and is
    /// ignored.
    fn observe(&mut self, header: Header) -> Result<(), Error> {
        if header.cluster == 0 {
            return Ok(());
        }
        if header.cluster != self.header.cluster {
            return Err(Error::WatchLost("the store has another history now".into()));
        }
        self.header = header;
        Ok(())
    }

    /// Returns the header of a new watch, read from the cluster if necessary. A proxy that joins a
    /// watch to another one invents the answer, without cluster ID and with the requested revision;
    /// a member that has just started may lag behind the watch. In both cases a read reaches the
    /// whole cluster, and a lagging member catches up for it.
    async fn whole(&self, header: Header, from: Revision) -> Result<Header, Error> {
        if header.cluster != 0 && from <= header.revision.next() {
            return Ok(header);
        }
        let query = Query {
            count_only: true,
            ..Query::new(KeyRange::key(self.probe.0.clone()))
        };
        Ok(list::range(&self.members, query).await?.header)
    }
}

/// Returns why the server ends the watch, if it does.
fn refusal(response: &WatchResponse) -> Option<Error> {
    if !response.canceled() {
        return None;
    }
    let reason = response.cancel_reason();
    Some(match response.compact_revision() {
        // A watch of a compacted revision is canceled without a reason, but with the compact
        // revision.
        at @ 1.. => Error::Compacted { at: Revision(at) },
        _ if reason.contains("permission denied") => Error::Denied(reason.to_owned()),
        _ => Error::WatchLost(reason.to_owned()),
    })
}

fn batch(response: WatchResponse) -> Batch {
    let header: Header = header_in(response.0.header.as_ref());
    let events: Vec<_> = response.0.events.into_iter().filter_map(event_in).collect();
    // The header has the revision of the store, which may be newer than these events.
    let last = events.iter().map(|event| event.item.mod_revision).max();
    Batch {
        revision: last.unwrap_or(header.revision),
        events,
    }
}

fn ended() -> Error {
    Error::WatchLost("the server ended it".into())
}
