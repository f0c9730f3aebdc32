//! The order in which the daemon serves its inputs: each input that stays ready gets its turn.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use fib_sync::Instant;

/// An input of the daemon. It is dropped and created again at each selection, so it must be
/// cancel-safe.
pub(crate) type Input<'a, T> = Pin<&'a mut (dyn Future<Output = T> + 'a)>;

/// Selects one of the inputs that are ready, each in its turn.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    /// The input that is polled first.
    first: usize,
}

impl Rotation {
    /// Waits until an input is ready. `work` needs no event: it counts as one more input, which is
    /// ready at once.
    ///
    /// An input that stays ready is selected after every other input was selected once at most. The
    /// runtime polls sockets, timers and other tasks before each selection.
    pub(crate) async fn next<T>(&mut self, work: Option<T>, inputs: &mut [Input<'_, T>]) -> T {
        tokio::task::yield_now().await;
        let mut work = work;
        poll_fn(|context| {
            self.poll(inputs.len() + 1, |at| match inputs.get_mut(at) {
                Some(input) => input.as_mut().poll(context),
                None => work.take().map_or(Poll::Pending, Poll::Ready),
            })
        })
        .await
    }

    /// Polls `count` inputs in turn, from the one behind the last selected one, until one is ready.
    fn poll<T>(&mut self, count: usize, mut poll: impl FnMut(usize) -> Poll<T>) -> Poll<T> {
        for step in 0..count {
            let at = (self.first + step) % count;
            if let Poll::Ready(ready) = poll(at) {
                self.first = at + 1;
                return Poll::Ready(ready);
            }
        }
        Poll::Pending
    }
}

/// The next step of the daemon without an event from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The datastore's next changes are accepted.
    pub(crate) accepts_changes: bool,
    /// Work is left that needs no event.
    pub(crate) has_work: bool,
    /// The time of the next turn.
    pub(crate) deadline: Option<Instant>,
}

impl Plan {
    /// Returns the plan of a daemon that has received changes left or not, whose agent continues its
    /// work or not, and whose turns are due at `deadline`. Until `hold` it applies no changes.
    ///
    /// No turn is performed while changes are left, so a deadline that is due would stay due.
    pub(crate) fn of(
        has_changes: bool,
        is_under_way: bool,
        hold: Option<Instant>,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            accepts_changes: !has_changes,
            has_work: hold.is_none() && (has_changes || is_under_way),
            deadline: hold.or_else(|| deadline.filter(|_| !has_changes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::time::Duration;

    use tokio::time::{Instant as Moment, advance, sleep_until};

    use super::*;

    /// An input of the tests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Wake {
        Kernel,
        Request,
        Time,
        More,
    }

    async fn at(time: Moment) -> Wake {
        sleep_until(time).await;
        Wake::Time
    }

    #[tokio::test(start_paused = true)]
    async fn due_deadline_starves_no_received_changes() {
        const PARTS: usize = 100;
        let due = Moment::now();
        advance(Duration::from_secs(1)).await;
        let mut rotation = Rotation::default();
        let (mut left, mut selections) = (PARTS, 0);
        while left > 0 {
            let mut deadline = pin!(at(due));
            let inputs: &mut [Input<'_, Wake>] = &mut [deadline.as_mut()];
            let wake = rotation.next(Some(Wake::More), inputs).await;
            left -= usize::from(wake == Wake::More);
            selections += 1;
            assert!(selections <= 2 * PARTS, "{left} of {PARTS} parts are left");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn flood_starves_no_deadline_and_no_received_changes() {
        let due = Moment::now() + Duration::from_secs(1);
        let mut rotation = Rotation::default();
        let mut seen = Vec::new();
        for _ in 0..40 {
            let mut kernel = pin!(ready(Wake::Kernel));
            let mut request = pin!(ready(Wake::Request));
            let mut deadline = pin!(at(due));
            let inputs: &mut [Input<'_, Wake>] =
                &mut [kernel.as_mut(), request.as_mut(), deadline.as_mut()];
            seen.push(rotation.next(Some(Wake::More), inputs).await);
            if seen.len() == 20 {
                advance(Duration::from_secs(2)).await;
            }
        }
        let count = |part: &[Wake], wake: Wake| part.iter().filter(|one| **one == wake).count();
        let (before, after) = seen.split_at(20);
        assert_eq!(count(before, Wake::Time), 0, "not due yet");
        for wake in [Wake::Kernel, Wake::Request, Wake::Time, Wake::More] {
            assert_eq!(count(after, wake), 5, "{wake:?}: {after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn flood_starves_no_other_task() {
        let (sender, mut receiver) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async { sender.send(()) });
        let mut rotation = Rotation::default();
        for _ in 0..10 {
            let mut kernel = pin!(ready(Wake::Kernel));
            let mut request = pin!(async {
                let _ = (&mut receiver).await;
                Wake::Request
            });
            let inputs: &mut [Input<'_, Wake>] = &mut [kernel.as_mut(), request.as_mut()];
            if rotation.next(None, inputs).await == Wake::Request {
                return;
            }
        }
        panic!("the task was not served: {task:?}");
    }

    #[test]
    fn input_that_stays_ready_waits_for_each_other_once() {
        const COUNT: usize = 4;
        for input in 0..COUNT {
            for first in 0..=COUNT {
                let mut rotation = Rotation { first };
                // The other inputs are ready or not, in any combination at each selection.
                for others in 0_usize..1 << (COUNT * (COUNT - 1)) {
                    let mut waited = [0; COUNT];
                    for selection in 0.. {
                        let ready = (others >> (COUNT * selection)) | (1 << input);
                        let selected = rotation.poll(COUNT, |at| match (ready >> at) & 1 {
                            1 => Poll::Ready(at),
                            _ => Poll::Pending,
                        });
                        let Poll::Ready(selected) = selected else {
                            panic!("one is ready");
                        };
                        if selected == input {
                            break;
                        }
                        waited[selected] += 1;
                    }
                    assert!(waited.iter().all(|times| *times <= 1), "{waited:?}");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_daemon_polls_its_inputs_only_at_deadlines() {
        const TURNS: u32 = 360;
        let begun = Moment::now();
        let polls = Cell::new(0);
        let mut rotation = Rotation::default();
        for turn in 1..=TURNS {
            let due = begun + Duration::from_secs(10) * turn;
            let mut silent = pin!(poll_fn(|_| {
                polls.set(polls.get() + 1);
                Poll::<Wake>::Pending
            }));
            let mut never = pin!(pending::<Wake>());
            let mut deadline = pin!(at(due));
            let inputs: &mut [Input<'_, Wake>] =
                &mut [silent.as_mut(), never.as_mut(), deadline.as_mut()];
            assert_eq!(rotation.next(None, inputs).await, Wake::Time);
            assert!(Moment::now() >= due, "before its time");
        }
        assert!(polls.get() <= 2 * TURNS, "{} polls", polls.get());
    }

    #[test]
    fn deadlines_wait_for_received_changes() {
        let (hold, deadline) = (Some(Instant(7)), Some(Instant(3)));
        let plan = |accepts_changes, has_work, deadline| Plan {
            accepts_changes,
            has_work,
            deadline,
        };
        for under_way in [false, true] {
            let idle = Plan::of(false, under_way, None, deadline);
            assert_eq!(idle, plan(true, under_way, deadline));
            let busy = Plan::of(true, under_way, None, deadline);
            assert_eq!(busy, plan(false, true, None), "no turn clears a deadline");
            let held = Plan::of(true, under_way, hold, deadline);
            assert_eq!(held, plan(false, false, hold), "only its end continues");
        }
    }
}
