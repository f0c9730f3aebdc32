//! Reading the history at the control socket.

use std::pin::pin;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::filter::Filter;
use super::history::Query;
use super::table::{Delivery, KINDS};
use super::{NEWS, history, watch};
use crate::Reply;
use crate::command::EventQuery;
use crate::limits::{EVENT_WAIT, EVENT_WATCHERS_MAX};
use crate::report::EventPage;

/// Readers that wait for further events.
static WATCHERS: Semaphore = Semaphore::const_new(EVENT_WATCHERS_MAX);

/// Answers a reader: at once, or if it waits and there is no event yet, with the next event or
/// after [`EVENT_WAIT`].
pub(crate) async fn answer(asked: &EventQuery) -> Reply {
    let page = match asked.watch {
        Some(number) => watch::next(number, asked.after.unwrap_or(0)).await,
        None => first(asked).await,
    };
    page.map_or_else(Reply::error, Reply::Events)
}

/// Answers a reader without a watch.
async fn first(asked: &EventQuery) -> Result<EventPage, String> {
    let mut query = query(asked)?;
    let routes = OnDemand::of(&query.filter);
    routes.check(&query.filter, asked.wait)?;
    match asked.wait {
        true if routes.is_offered => watch::open(&query).await,
        true => {
            let permit = WATCHERS.try_acquire();
            let _permit = permit
                .map_err(|_| format!("{EVENT_WATCHERS_MAX} readers wait for events already"))?;
            Ok(wait(&mut query).await)
        }
        false => {
            let mut page = history().page(&query);
            page.note = routes.note();
            Ok(page)
        }
    }
}

fn query(asked: &EventQuery) -> Result<Query, String> {
    let filter = Filter {
        name: asked.name.clone(),
        prefix: asked.prefix.map(|prefix| prefix.trunc()),
    };
    if let Some(name) = &asked.name
        && !KINDS.iter().any(|kind| filter.wants_kind(kind))
    {
        return Err(format!("no event {name}; see docs/operate/events.md"));
    }
    if filter.prefix.is_some()
        && !KINDS
            .iter()
            .any(|kind| filter.wants_kind(kind) && kind.has_prefix())
    {
        let name = filter.name.as_deref().unwrap_or_default();
        return Err(format!("the events {name} have no prefix: omit it"));
    }
    Ok(Query {
        filter,
        after: asked.after,
        since_ms: asked.since_ms.unwrap_or(0),
    })
}

/// The part of a filter about events of single routes.
struct OnDemand {
    /// Names of events that only readers that watch get, and this daemon reports.
    unkept: Vec<&'static str>,
    /// This daemon reports some to readers that watch.
    is_offered: bool,
    /// Whether the filter selects only such events.
    is_all: bool,
}

impl OnDemand {
    fn of(filter: &Filter) -> Self {
        // Events of single routes are many: a reader gets them only if it names them, or the
        // routes.
        let is_asked = filter.name.is_some() || filter.prefix.is_some();
        let watches = watch::watches();
        let kinds = || KINDS.iter().filter(|kind| filter.wants_kind(kind));
        let offered = kinds().filter(|kind| is_asked && watches.offers(kind));
        let unkept = offered.clone();
        let unkept = unkept.filter(|kind| kind.delivery == Delivery::OnDemand);
        Self {
            unkept: unkept.map(|kind| kind.name).collect(),
            is_offered: offered.count() > 0,
            is_all: kinds().all(|kind| kind.delivery == Delivery::OnDemand),
        }
    }

    /// Rejects a query that can have no answer: an empty answer would look as if there had been no
    /// events.
    fn check(&self, filter: &Filter, waits: bool) -> Result<(), String> {
        let name = filter.name.as_deref().unwrap_or_default();
        match self.is_all {
            true if !self.is_offered => Err(format!("this daemon does not report {name}")),
            true if !waits => Err(format!(
                "{name} is reported only while it is watched (-w); no earlier ones are kept"
            )),
            _ => Ok(()),
        }
    }

    /// Returns a note on events that the history does not have.
    fn note(&self) -> Option<String> {
        let names = self.unkept.join(", ");
        (!names.is_empty())
            .then(|| format!("reported only while they are watched (-w), and not kept: {names}"))
    }
}

/// Waits until there is a requested event.
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
        // The others were not requested: they need not be checked again.
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

    /// A query for events that only this test emits.
    fn asked(name: &str, after: Option<u64>, wait: bool) -> EventQuery {
        EventQuery {
            name: Some(name.to_owned()),
            after,
            wait,
            ..EventQuery::default()
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
    async fn prefix_of_events_without_one_is_an_error() {
        let of = |name: &str| EventQuery {
            prefix: Some("10.0.0.0/8".parse().expect("a prefix")),
            ..asked(name, None, false)
        };
        let reply = answer(&of("session.closed")).await;
        assert!(matches!(reply, Reply::Error { message } if message.contains("session.closed")));
        let reply = answer(&of("route")).await;
        assert!(matches!(reply, Reply::Events(_)), "{reply:?}");
    }

    #[tokio::test]
    async fn unknown_name_is_an_error() {
        let reply = answer(&asked("sesion", None, false)).await;
        assert!(matches!(reply, Reply::Error { message } if message.contains("sesion")));
    }
}
