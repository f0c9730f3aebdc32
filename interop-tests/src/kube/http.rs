//! Bodies of answers, and the parameters of requests.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::objects::ObjectKey;
use super::selector::Selector;
use super::status::Rejected;

/// The answer: a whole text, or a stream that may be cut.
#[derive(Debug)]
pub(super) enum Answer {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Result<Bytes, Cut>>),
}

/// The server cuts a stream off.
#[derive(Debug, thiserror::Error)]
#[error("the stream is cut off")]
pub(super) struct Cut;

impl Body for Answer {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(octets) => Poll::Ready(octets.take().map(|octets| Ok(Frame::data(octets)))),
            Self::Stream(events) => {
                let next = events.poll_recv(context);
                next.map(|next| next.map(|event| event.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(octets) => {
                let octets = octets.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(octets).unwrap_or(u64::MAX))
            }
            Self::Stream(_) => SizeHint::new(),
        }
    }
}

/// The parameters of a request.
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn new(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescaped(name), unescaped(value))
        });
        Self(pairs.collect())
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1")
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Rejected> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        let invalid = |_| {
            let message = format!("invalid {name}: \"{text}\": strconv.ParseUint: invalid syntax");
            Rejected::bad_request(message)
        };
        text.parse().map(Some).map_err(invalid)
    }

    pub(super) fn selector(&self) -> Result<Selector, Rejected> {
        Selector::new(self.text("labelSelector"), self.text("fieldSelector"))
    }
}

fn unescaped(text: &str) -> String {
    let mut octets = Vec::new();
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        let hex = |digit: Option<u8>| char::from(digit?).to_digit(16);
        match octet {
            b'+' => octets.push(b' '),
            b'%' => {
                if let (Some(high), Some(low)) = (hex(rest.next()), hex(rest.next())) {
                    octets.push(u8::try_from(high * 16 + low).unwrap_or_default());
                }
            }
            other => octets.push(other),
        }
    }
    String::from_utf8_lossy(&octets).into_owned()
}

pub(super) fn is_in(namespace: Option<&String>, key: &ObjectKey) -> bool {
    namespace.is_none_or(|namespace| *namespace == key.1)
}
