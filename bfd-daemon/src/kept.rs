//! The state that the next process of the daemon continues.

use bfd::{Instant, Random};
use daemon_common::events::{Event, Text, emit};

use crate::engine::{Engine, Record};
use crate::memory::{Content, Memory};
use crate::sockets::Sockets;
use crate::store::Store;

/// The store of descriptors, and the memory in it.
#[derive(Debug)]
pub(crate) struct Kept {
    store: Store,
    memory: Option<Memory>,
    /// The last written time at which all sockets were empty.
    emptied_at: Instant,
    /// Whether the state of an earlier process was taken over, and no turn is complete.
    is_taking_over: bool,
}

impl Kept {
    /// Takes the descriptors of the earlier process.
    pub(crate) fn take() -> Self {
        Self {
            store: Store::take(),
            memory: None,
            emptied_at: Instant::ZERO,
            is_taking_over: false,
        }
    }

    /// Opens the memory of the earlier process, and returns its content. If there is none, or it cannot be
    /// continued, the memory is a new one.
    pub(crate) fn open(&mut self) -> Content {
        let mut content = Content {
            records: Vec::new(),
            emptied_at: Instant::ZERO,
        };
        if !self.store.exists() {
            return content;
        }
        match self.store.memory().map(Memory::open) {
            Some(Ok((memory, found))) => {
                self.memory = Some(memory);
                self.is_taking_over = true;
                content = found;
            }
            Some(Err(error)) => {
                let reason = Text::new(error);
                emit(Event::BfdTakeOverFailed { reason });
                self.begin();
            }
            None => self.begin(),
        }
        content
    }

    /// Makes a new memory, and stores it.
    fn begin(&mut self) {
        let made = Memory::create().and_then(|memory| {
            self.store.keep_memory(&memory)?;
            Ok(memory)
        });
        match made {
            Ok(memory) => self.memory = Some(memory),
            Err(error) => failed(&error),
        }
    }

    /// Returns the store of descriptors.
    pub(crate) const fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Returns whether the next process continues the sessions.
    pub(crate) const fn continues(&self) -> bool {
        self.memory.is_some()
    }

    /// Returns the effect of a restart, in words.
    pub(crate) const fn summary(&self) -> &'static str {
        match self.continues() {
            true => "sessions continue",
            false => "sessions end: no service manager or keeper stores their state",
        }
    }

    /// Continues the sessions of the earlier process.
    pub(crate) fn restore<R: Random>(
        &self,
        now: Instant,
        records: Vec<Record>,
        engine: &mut Engine<R>,
        sockets: &mut Sockets,
    ) {
        if self.memory.is_some() {
            engine.remember(true);
        }
        if !self.is_taking_over {
            return;
        }
        for record in &records {
            if let Record::Session(session) = record
                && let Some(port) = session.port
            {
                let id = session.snapshot.local_discriminator();
                sockets.open_again(id, session.way.remote.is_ipv4(), port);
            }
        }
        let restored = engine.restore(now, records);
        if let Some(reason) = restored.lost {
            let reason = Text::new(reason);
            emit(Event::BfdTakeOverFailed { reason });
        }
        emit(Event::BfdTakenOver {
            sessions: restored.sessions as u64,
        });
    }

    /// Writes the changed states.
    pub(crate) fn save<R: Random>(
        &mut self,
        now: Instant,
        engine: &mut Engine<R>,
        sockets: &Sockets,
    ) {
        while let Some(memory) = &mut self.memory
            && let Some(key) = engine.take_changed()
        {
            let record = engine.record(now, &key, |id| sockets.port(id));
            if let Err(error) = memory.put(key, record.as_ref()) {
                self.fail(&error, engine);
            }
        }
    }

    /// Writes the time of a complete turn.
    pub(crate) fn turned<R: Random>(&mut self, engine: &mut Engine<R>, sockets: &Sockets) {
        let Some(memory) = &mut self.memory else {
            return;
        };
        let emptied_at = sockets.emptied_at();
        let mut result = Ok(());
        if emptied_at != self.emptied_at {
            self.emptied_at = emptied_at;
            result = memory.put_time(emptied_at);
        }
        if std::mem::take(&mut self.is_taking_over) {
            result = result.and_then(|()| memory.is_continued());
        }
        if let Err(error) = result {
            self.fail(&error, engine);
        }
    }

    /// Keeps no state from now on: an old one must not be continued.
    fn fail<R: Random>(&mut self, error: &std::io::Error, engine: &mut Engine<R>) {
        failed(error);
        engine.remember(false);
        if let Some(memory) = self.memory.take() {
            memory.abandon();
            // The memory is empty, so that it is rejected in any case.
            let _ = self.store.forget_memory();
        }
    }
}

fn failed(error: &std::io::Error) {
    emit(Event::BfdKeepFailed {
        reason: Text::new(error),
    });
}
