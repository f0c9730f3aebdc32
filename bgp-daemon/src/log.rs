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
