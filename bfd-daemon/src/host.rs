//! The addresses of the host, which a thread of its own reads: the kernel returns them only after the changes of
//! routes in progress, and no packet waits for that.

use std::io;

use bfd::{Instant, Random};
use bfd_client::Wanted;

use crate::engine::Engine;
use crate::limits::{ADDRESSES_STACK_OCTETS, ADDRESSES_WITHIN};
use crate::resolve::{Addresses, Resolve, Way, interface_name};
use crate::worker::Worker;

/// The newest addresses of the host, and the thread that reads them.
#[derive(Debug)]
pub(crate) struct Host {
    newest: Addresses,
    /// When the reading of the newest ones was requested.
    read_since: Option<Instant>,
    /// The one request in flight.
    request: Option<Asked>,
    worker: Worker<(), Addresses>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    /// When the clients are told that there is no answer.
    late_at: Instant,
}

impl Host {
    /// Starts the thread. It has the priority of the calling one: call it before that is raised.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub(crate) fn start(read: impl Fn() -> Addresses + Send + 'static) -> io::Result<Self> {
        Ok(Self {
            newest: Addresses::unread(),
            read_since: None,
            request: None,
            worker: Worker::start("addresses", ADDRESSES_STACK_OCTETS, move |()| read())?,
        })
    }

    /// Waits until addresses have arrived. Cancel-safe.
    pub(crate) async fn ready(&self) {
        self.worker.ready().await;
    }

    /// Gives the engine the addresses that have arrived, and requests new ones if it needs them. Never waits.
    pub(crate) fn turn<R: Random>(&mut self, now: Instant, engine: &mut Engine<R>) {
        if let Some(request) = self.request
            && let Some(addresses) = self.worker.answer()
        {
            (self.newest, self.read_since) = (addresses, Some(request.at));
            self.request = None;
            engine.resolve_again(now, self);
        }
        match &mut self.request {
            Some(request) if request.late_at <= now => {
                request.late_at = now + ADDRESSES_WITHIN;
                engine.report_no_addresses();
            }
            Some(_) => {}
            None => {
                let is_due = engine.resolve_at().is_some_and(|at| at <= now);
                if is_due && engine.retry(now, self) {
                    self.request = Some(Asked {
                        at: now,
                        late_at: now + ADDRESSES_WITHIN,
                    });
                    self.worker.request(());
                }
            }
        }
    }

    /// Returns when [`Host::turn`] must be called at the latest.
    pub(crate) fn poll_timeout<R: Random>(&self, engine: &Engine<R>) -> Option<Instant> {
        match self.request {
            Some(request) => Some(request.late_at),
            None => engine.resolve_at(),
        }
    }

    /// Returns a note for the operator if the kernel does not answer.
    pub(crate) fn note(&self, now: Instant) -> Option<String> {
        let since = now.saturating_duration_since(self.request?.at);
        (since >= ADDRESSES_WITHIN).then(|| {
            format!(
                "the kernel has not returned the addresses of the host for {} s: new sessions over a single \
                 hop wait for them; it answers after the changes of routes in progress",
                since.as_secs()
            )
        })
    }
}

impl Resolve for Host {
    fn way(&self, wanted: &Wanted) -> Result<Way, String> {
        self.newest.way(wanted)
    }

    fn interface(&self, number: u32) -> Option<String> {
        interface_name(number)
    }

    fn answers(&self, since: Instant) -> bool {
        self.read_since.is_some_and(|at| at >= since)
    }
}

#[cfg(test)]
mod tests;
