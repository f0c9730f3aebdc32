//! Route changes of a host, as reported by the kernel.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use nix::sys::socket::{setsockopt, sockopt};
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::AsyncSocket as _;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::limits::{ROUTE_EVENTS_MAX, ROUTE_EVENTS_OCTETS};
use crate::{Error, Host, KernelRoute, MAIN_TABLE};

/// Monitors a host's route notifications.
///
/// The kernel does not report IPv4 routes that it removes together with their link. The monitor
/// receives link notifications as well, so that [`Self::changed`] also wakes in this case, but
/// without a [`RouteEvent`]. Only a dump shows the present routes.
#[derive(Debug)]
pub struct RouteMonitor {
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug)]
struct Shared {
    events: Mutex<Events>,
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Events {
    kept: VecDeque<RouteEvent>,
    /// When the newest dropped event was read.
    dropped: Option<Instant>,
}

/// One notification about a route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteEvent {
    /// When it was read.
    pub at: Instant,
    /// The kind of notification.
    pub kind: RouteEventKind,
}

/// The kind of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteEventKind {
    /// Added, or replaced another route.
    Put(KernelRoute),
    /// Removed.
    Gone(KernelRoute),
    /// The kernel's buffer overran: notifications are missing.
    Overrun,
}

impl Drop for RouteMonitor {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl RouteMonitor {
    /// Starts to monitor `host`: every change after this call returns is seen. Needs a running
    /// tokio runtime.
    ///
    /// # Errors
    ///
    /// If the socket cannot be opened.
    pub fn open(host: &Host) -> Result<Self, Error> {
        let runtime = Handle::current();
        let groups = [
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
            MulticastGroup::Link,
        ];
        let (mut connection, _, mut messages) = host
            .run(|| {
                let _within = runtime.enter();
                new_multicast_connection(&groups)
            })?
            .map_err(|e| Error::io("listening to the routes of", host.name(), e))?;
        // A notification that does not fit is reported as an overrun.
        let socket = connection.socket_mut().socket_ref();
        let _ = setsockopt(socket, sockopt::RcvBufForce, &ROUTE_EVENTS_OCTETS);
        let (version, changed) = watch::channel(0);
        let shared = Arc::new(Shared {
            events: Mutex::default(),
            version,
        });
        let keeper = shared.clone();
        let reader = tokio::spawn(async move {
            while let Some((message, _)) = messages.next().await {
                keeper.take(message.payload);
            }
        });
        Ok(Self {
            shared,
            changed,
            tasks: [tokio::spawn(connection), reader],
        })
    }

    /// Waits until a route or a link has changed since the last call.
    pub async fn changed(&mut self) {
        // An error means that the sender is gone, which exists as long as this value.
        let _ = self.changed.changed().await;
    }

    /// Returns the events since `since`, oldest first, and whether any were missed (the kernel's
    /// buffer or that of the monitor overran).
    pub fn events_since(&self, since: Instant) -> (Vec<RouteEvent>, bool) {
        let events = self.shared.lock();
        let late: Vec<_> = events
            .kept
            .iter()
            .filter(|event| event.at >= since)
            .cloned()
            .collect();
        let overrun = late
            .iter()
            .any(|event| event.kind == RouteEventKind::Overrun);
        (
            late,
            overrun || events.dropped.is_some_and(|at| at >= since),
        )
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, payload: NetlinkPayload<RouteNetlinkMessage>) {
        let in_main = |route: &KernelRoute| route.table == MAIN_TABLE;
        let kind = match payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)) => {
                KernelRoute::read(&message)
                    .filter(in_main)
                    .map(RouteEventKind::Put)
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(message)) => {
                KernelRoute::read(&message)
                    .filter(in_main)
                    .map(RouteEventKind::Gone)
            }
            NetlinkPayload::Overrun(_) => Some(RouteEventKind::Overrun),
            _ => None,
        };
        if let Some(kind) = kind {
            let mut events = self.lock();
            if events.kept.len() >= ROUTE_EVENTS_MAX {
                events.dropped = events.kept.pop_front().map(|event| event.at);
            }
            events.kept.push_back(RouteEvent {
                at: Instant::now(),
                kind,
            });
        }
        self.version.send_modify(|version| *version += 1);
    }
}
