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

/// Asks `probe` until it has an answer, and returns that and how long it took. For what tells
/// nobody when it changes; a [`crate::RouteMonitor`] does, and is waited on instead.
///
/// The probe returns `Ok(Ok(answer))`, `Ok(Err(what it lacks))` to be asked again, or `Err` to
/// end the waiting at once.
///
/// # Errors
///
/// What the probe returned, or [`Error::Late`] after `limit`, with what the probe last lacked.
pub async fn until<T, E: From<Error>>(
    limit: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<Result<T, String>, E>,
) -> Result<(T, Duration), E> {
    let began = Instant::now();
    let deadline = began + limit;
    loop {
        let lacking = match probe().await? {
            Ok(answer) => return Ok((answer, began.elapsed())),
            Err(lacking) => lacking,
        };
        if Instant::now() >= deadline {
            return Err(Error::Late {
                what: format!("{what} ({lacking})"),
                limit,
            }
            .into());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
