//! Watches.

use etcd_client::{
    WatchClient, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream,
};
use futures_util::stream;
use tokio::sync::mpsc;

use super::{called, error_in};
use crate::error::Error;
use crate::kv::{Batch, Header, Revision};
use crate::port::{Watch, WatchRequest};
use crate::wire::{event_in, header_in, range_out};

pub(super) async fn watch(mut client: WatchClient, request: WatchRequest) -> Result<Watch, Error> {
    let (key, end) = range_out(request.range);
    let mut options = WatchOptions::new().with_range(end);
    if let Some(from) = request.from {
        options = options.with_start_revision(from.0);
    }
    if request.previous {
        options = options.with_prev_key();
    }
    let (requests, responses, first) = called(async {
        let (requests, mut responses) = client.watch(key, Some(options)).await?.split();
        let first = responses.message().await?;
        Ok((requests, responses, first))
    })
    .await?;
    let first = first.ok_or_else(ended)?;
    if let Some(error) = refusal(&first) {
        return Err(error);
    }
    let header = header_in(first.0.header.as_ref());
    let (probe, probes) = mpsc::channel(1);
    let state = Some(Open {
        requests,
        responses,
        probes,
    });
    let batches = stream::unfold(state, |state| async move {
        let mut open = state?;
        match open.next().await {
            Ok(batch) => Some((Ok(batch), Some(open))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(Watch::new(header, Box::pin(batches), probe))
}

struct Open {
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
                    return match refusal(&response) {
                        Some(error) => Err(error),
                        None => Ok(batch(response)),
                    };
                }
                Some(()) = self.probes.recv() => {
                    self.requests.request_progress().await.map_err(error_in)?;
                }
            }
        }
    }
}

/// Why the server ends the watch, if it does.
fn refusal(response: &WatchResponse) -> Option<Error> {
    if !response.canceled() {
        return None;
    }
    let reason = response.cancel_reason();
    Some(match response.compact_revision() {
        // A watch of what is compacted is ended without a reason, but with the revision.
        at @ 1.. => Error::Compacted { at: Revision(at) },
        _ if reason.contains("permission denied") => Error::Denied(reason.to_owned()),
        _ => Error::WatchLost(reason.to_owned()),
    })
}

fn batch(response: WatchResponse) -> Batch {
    let header: Header = header_in(response.0.header.as_ref());
    let events: Vec<_> = response.0.events.into_iter().filter_map(event_in).collect();
    // The header tells how far the store is, which may be further than these events.
    let last = events.iter().map(|event| event.item.mod_revision).max();
    Batch {
        revision: last.unwrap_or(header.revision),
        events,
    }
}

fn ended() -> Error {
    Error::WatchLost("the server ended it".into())
}
