//! The list of connections with something to do: each connection has its own waker, and is at most
//! once in the list.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The list of connections that were woken, at most one entry each.
///
/// A `Waker` must be usable from any thread, so the list is behind a mutex. The mutex is held for a
/// few instructions and never contended, since all wakers are called by the driver's own thread.
#[derive(Debug, Default)]
pub(crate) struct ReadyList(Mutex<Ready>);

#[derive(Debug, Default)]
struct Ready {
    tokens: Vec<usize>,
    /// The waker of the task that awaits [`crate::Io::next`].
    parent: Option<Waker>,
}

impl ReadyList {
    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the waker to call when a connection is woken.
    pub(crate) fn register(&self, parent: &Waker) {
        let mut ready = self.lock();
        if !ready
            .parent
            .as_ref()
            .is_some_and(|known| known.will_wake(parent))
        {
            ready.parent = Some(parent.clone());
        }
    }

    /// Swaps the list with an empty one.
    pub(crate) fn take(&self, into: &mut Vec<usize>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut self.lock().tokens, into);
    }
}

/// The waker of one connection.
#[derive(Debug)]
pub(crate) struct Signal {
    token: usize,
    queued: AtomicBool,
    list: Arc<ReadyList>,
}

impl Signal {
    pub(crate) fn new(token: usize, list: &Arc<ReadyList>) -> Arc<Self> {
        Arc::new(Self {
            token,
            queued: AtomicBool::new(false),
            list: list.clone(),
        })
    }

    /// Clears the flag before the connection is served: the next wake counts again.
    pub(crate) fn clear(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let parent = {
            let mut ready = self.list.lock();
            ready.tokens.push(self.token);
            ready.parent.take()
        };
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_is_listed_as_ready_once() {
        let list = Arc::new(ReadyList::default());
        let (a, b) = (Signal::new(1, &list), Signal::new(2, &list));
        a.wake_by_ref();
        b.wake_by_ref();
        a.wake_by_ref();
        let mut tokens = Vec::new();
        list.take(&mut tokens);
        assert_eq!(tokens, [1, 2]);
        a.wake_by_ref();
        let mut again = Vec::new();
        list.take(&mut again);
        assert!(again.is_empty(), "not before it was looked at");
        a.clear();
        a.wake_by_ref();
        list.take(&mut again);
        assert_eq!(again, [1]);
    }
}
