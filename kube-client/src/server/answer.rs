//! Bodies of answers, with limits on octets and times.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use serde_json::Value;
use tokio::time::timeout;

use super::Failure;
use super::unread::{Unread, parse};
use crate::limits::{ANSWER_TIMEOUT, OBJECT_OCTETS_MAX, WATCH_SILENCE_MAX};

/// Returns the next octets of a body; `None` at its end.
async fn part(body: &mut Incoming) -> Option<Result<Bytes, Failure>> {
    loop {
        match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await? {
            Ok(frame) => {
                if let Ok(octets) = frame.into_data() {
                    return Some(Ok(octets));
                }
            }
            Err(error) => return Some(Err(Failure::Cut(error.to_string()))),
        }
    }
}

/// Reads a whole body.
pub(super) async fn whole(mut body: Incoming, octets_max: usize) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    loop {
        match timeout(ANSWER_TIMEOUT, part(&mut body)).await {
            Ok(Some(octets)) => all.extend_from_slice(&octets?),
            Ok(None) => return Ok(all),
            Err(_) => return Err(Failure::Timeout(ANSWER_TIMEOUT)),
        }
        if all.len() > octets_max {
            return Err(Failure::TooLong(octets_max));
        }
    }
}

/// The events of a watch: one JSON object in each line.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
    /// Octets of the buffer that are known to have no end of a line.
    searched: usize,
    unread: &'static [Unread],
}

impl Lines {
    pub(super) const fn new(body: Incoming, unread: &'static [Unread]) -> Self {
        Self {
            body,
            buffer: Vec::new(),
            searched: 0,
            unread,
        }
    }

    /// Returns the next event; `None` at the regular end of the watch.
    ///
    /// # Errors
    ///
    /// The watch was cut off, or an event is invalid.
    pub async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            if let Some(line) = self.take_line() {
                let event = parse(&line, "object", self.unread);
                let event = event.map_err(|error| Failure::Invalid(error.to_string()))?;
                return Ok(Some(event));
            }
            if self.buffer.len() > OBJECT_OCTETS_MAX {
                let reason = format!("an event has more than {OBJECT_OCTETS_MAX} octets");
                return Err(Failure::Invalid(reason));
            }
            match timeout(WATCH_SILENCE_MAX, part(&mut self.body)).await {
                Ok(Some(octets)) => self.buffer.extend_from_slice(&octets?),
                Ok(None) if self.buffer.is_empty() => return Ok(None),
                Ok(None) => return Err(Failure::Cut("within an event".to_owned())),
                Err(_) => return Err(Failure::Timeout(WATCH_SILENCE_MAX)),
            }
        }
    }

    /// Removes the next line that is not empty from the buffer.
    fn take_line(&mut self) -> Option<Vec<u8>> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(at) = rest.iter().position(|octet| *octet == b'\n') else {
                self.searched = self.buffer.len();
                return None;
            };
            let end = self.searched + at;
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }
}
