//! Waits for conditions, with a deadline.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::Error;
use crate::limits::ASK_AGAIN;

/// Returns `future`'s result, or [`Error::Late`] after `limit`.
///
/// # Errors
///
/// [`Error::Late`], with the condition `what`.
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

/// Repeats `probe` until it has an answer, and returns the answer and the time it took. For
/// conditions without a notification; for routes use [`crate::RouteMonitor`] instead.
///
/// The probe returns `Ok(Ok(answer))`, `Ok(Err(missing))` to be repeated, or `Err` to end the wait
/// at once.
///
/// # Errors
///
/// The probe's error, or [`Error::Late`] after `limit`, with the last missing condition.
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
