//! What happens, in the log.

use bgp_io::{Event, Speaker};
use intent::report::{self, Weight};

/// Logs one event of the driver.
pub(crate) fn event(speaker: &Speaker, event: &Event) {
    match event {
        Event::Speaker(event) => {
            let line = report::line(speaker, event);
            match line.weight {
                Weight::Debug => tracing::debug!("{}", line.text),
                Weight::Info => tracing::info!("{}", line.text),
                Weight::Warn => tracing::warn!("{}", line.text),
            }
        }
        Event::Track(track) => tracing::debug!(?track, "next hop"),
        Event::Gone(_) => {}
        Event::Refused {
            remote, refusal, ..
        } => {
            tracing::warn!("connection of {remote} refused: {refusal}");
        }
        Event::DialFailed {
            peer,
            remote,
            error,
        } => {
            tracing::debug!(
                "neighbor {}: dialling {remote}: {error}",
                speaker.peer_name(*peer)
            );
        }
        Event::AcceptFailed { local, error } => {
            tracing::warn!("cannot accept connections on {local} for now: {error}");
        }
        Event::OptionFailed { remote, error } => {
            tracing::warn!("connection with {remote}: a socket option is not set: {error}");
        }
    }
}

/// Logs one event of the kernel, if it is out of the ordinary.
pub(crate) fn kernel(event: &fib_sync::Event) {
    match event {
        fib_sync::Event::Applied(key, Err(error)) if !error.is_cancelled() => {
            tracing::warn!("kernel route {key}: {error}");
        }
        fib_sync::Event::Overrun => {
            tracing::warn!("kernel notifications were lost: reading the tables again");
        }
        fib_sync::Event::DumpDone {
            table,
            complete: false,
            ..
        } => {
            tracing::info!("table {table} changed while it was read: reading it again");
        }
        fib_sync::Event::Link(link) => {
            tracing::debug!(
                name = link.name,
                up = link.up,
                running = link.running,
                "link"
            );
        }
        _ => {}
    }
}
