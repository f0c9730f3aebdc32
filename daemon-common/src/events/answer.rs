//! Reading the history at the control socket.

use std::pin::pin;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::history::{Query, is_named};
use super::table::KINDS;
use super::{NEWS, history};
use crate::Reply;
use crate::command::EventQuery;
use crate::limits::{EVENT_WAIT, EVENT_WATCHERS_MAX};
use crate::report::EventPage;

/// Readers that wait for further events.
static WATCHERS: Semaphore = Semaphore::const_new(EVENT_WATCHERS_MAX);

/// Answers a reader: at once, or where it waits and there is nothing yet, with the next event or
/// after [`EVENT_WAIT`].
pub(crate) async fn answer(asked: &EventQuery) -> Reply {
    let mut query = match query(asked) {
        Ok(query) => query,
        Err(message) => return Reply::error(message),
    };
    if !asked.wait {
        return Reply::Events(history().page(&query));
    }
    let Ok(_permit) = WATCHERS.try_acquire() else {
        let message = format!("{EVENT_WATCHERS_MAX} readers wait for events already");
        return Reply::error(message);
    };
    Reply::Events(wait(&mut query).await)
}

fn query(asked: &EventQuery) -> Result<Query, String> {
    if let Some(name) = &asked.name
        && !KINDS.iter().any(|kind| is_named(kind.name, name))
    {
        return Err(format!("no event {name}; see docs/operate/events.md"));
    }
    Ok(Query {
        name: asked.name.clone(),
        after: asked.after,
        since_ms: asked.since_ms.unwrap_or(0),
    })
}

/// Waits until there is an event that is asked for.
async fn wait(query: &mut Query) -> EventPage {
    let deadline = Instant::now() + EVENT_WAIT;
    let mut lost = 0;
    loop {
        let mut news = pin!(NEWS.notified());
        // From here on no event is missed.
        news.as_mut().enable();
        let mut page = history().page(query);
        lost += page.lost;
        page.lost = lost;
        if !page.events.is_empty() || page.more || lost > 0 {
            return page;
        }
        // The others were none that is asked for: they need not be looked at again.
        query.after = Some(page.next);
        tokio::select! {
            () = news => {}
            () = sleep_until(deadline) => return page,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::events::{Event, Text, emit};

    /// A query for what this test alone emits.
    fn asked(name: &str, after: Option<u64>, wait: bool) -> EventQuery {
        EventQuery {
            name: Some(name.to_owned()),
            after,
            since_ms: None,
            wait,
        }
    }

    fn page(reply: Reply) -> EventPage {
        match reply {
            Reply::Events(page) => page,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn reader_that_waits_gets_the_next_event() {
        let name = "password.installed";
        let before = page(answer(&asked(name, None, false)).await);
        let emitted = async {
            tokio::task::yield_now().await;
            let of = Text::new("neighbor n1");
            emit(Event::PasswordInstalled { of });
        };
        let query = asked(name, Some(before.next), true);
        let (reply, ()) = tokio::join!(answer(&query), emitted);
        let page = page(reply);
        assert_eq!(page.events.len(), 1, "{page:?}");
        assert_eq!(page.events[0].fields["of"], "neighbor n1");
        assert!(page.next > before.next);
    }

    #[tokio::test(start_paused = true)]
    async fn reader_of_nothing_is_answered_in_time() {
        let began = Instant::now();
        let latest = page(answer(&asked("restart", None, false)).await).next;
        let query = asked("restart", Some(latest), true);
        let page = page(answer(&query).await);
        assert!(page.events.is_empty());
        assert!(began.elapsed() <= EVENT_WAIT + Duration::from_secs(1));
    }

    #[tokio::test]
    async fn unknown_name_is_an_error() {
        let reply = answer(&asked("sesion", None, false)).await;
        assert!(matches!(reply, Reply::Error { message } if message.contains("sesion")));
    }
}
