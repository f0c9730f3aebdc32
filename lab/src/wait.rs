//! Waiting for what shall come about, with a deadline.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::Error;
use crate::limits::ASK_AGAIN;

/// `future`'s result, or [`Error::Late`] after `limit`.
///
/// # Errors
///
/// [`Error::Late`], naming `what` was waited for.
pub async fn within<T>(
    limit: Duration,
    what: &str,
    future: impl Future<Output = T>,
) -> Result<T, Error> {
    timeout(limit, future).await.map_err(|_| Error::Late {
        what: what.to_owned(),
        limit,
    })
}

/// Asks `probe` until it answers with `Ok`, and returns how long that took with the answer. For
/// what tells nobody when it changes; a [`crate::RouteMonitor`] does, and is waited on instead.
///
/// # Errors
///
/// [`Error::Late`] after `limit`, with what the probe last lacked.
pub async fn until<T>(
    limit: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> Result<(T, Duration), Error> {
    let began = Instant::now();
    let deadline = began + limit;
    loop {
        let lacking = match probe().await {
            Ok(answer) => return Ok((answer, began.elapsed())),
            Err(lacking) => lacking,
        };
        if Instant::now() >= deadline {
            return Err(Error::Late {
                what: format!("{what} ({lacking})"),
                limit,
            });
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
