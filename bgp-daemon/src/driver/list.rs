//! A list of drivers is a driver: tuples, and a driver that is optional.

use std::future::{pending, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;

use bgp_config::Intent;
use bgp_io::bgp_fsm::Instant;
use bgp_io::{Clock, Event, Speaker, StopMode};
use calico_bgp::Duties;
use calico_model::DrainReport;
use daemon_common::report::{Limit, Neighbors, Routes, Status};
use daemon_common::{Command, Reply};

use super::{Driver, DriverError, Open, Round};
use crate::{Config, Criterion, Parent, Settings};

/// Implements [`Driver`] for tuples of so many drivers: every method calls that of each driver, in
/// order. `wait` polls all of them each time, so that none is starved by those before it.
macro_rules! list {
    ($($driver:ident $field:tt)*) => {
        impl<S: Settings, $($driver: Driver<S>),*> Driver<S> for ($($driver,)*) {
            async fn wait(&mut self) {
                let mut waits = ($(pin!(self.$field.wait()),)*);
                poll_fn(|cx| {
                    let ready = [$(waits.$field.as_mut().poll(cx).is_ready()),*];
                    match ready.contains(&true) {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    }
                })
                .await;
            }

            fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
                $(self.$field.turn(round)?;)*
                Ok(())
            }

            fn poll_timeout(&self) -> Option<Instant> {
                [$(self.$field.poll_timeout()),*].into_iter().flatten().min()
            }

            fn observe(&mut self, now: Instant, speaker: &Speaker, event: &Event) {
                $(self.$field.observe(now, speaker, event);)*
            }

            fn adopted(&mut self, now: Instant, intent: &Intent) {
                $(self.$field.adopted(now, intent);)*
            }

            fn assign(&mut self, duties: &Duties) {
                $(self.$field.assign(duties);)*
            }

            fn drained(&mut self, report: Option<&DrainReport>) {
                $(self.$field.drained(report);)*
            }

            fn reload(&mut self, config: &Config<S>) -> Vec<&'static str> {
                [$(self.$field.reload(config)),*].concat()
            }

            fn answer(&self, command: &Command) -> Option<Reply> {
                None$(.or_else(|| self.$field.answer(command)))*
            }

            fn locate(&self, page: &mut Routes) {
                $(self.$field.locate(page);)*
            }

            fn annotate(&self, now: Instant, neighbors: &mut Neighbors) {
                $(self.$field.annotate(now, neighbors);)*
            }

            fn source(&self) -> Option<String> {
                None$(.or_else(|| self.$field.source()))*
            }

            fn revision(&self) -> Option<u64> {
                None$(.or_else(|| self.$field.revision()))*
            }

            fn origin(&self, address: Option<IpAddr>) -> Option<String> {
                None$(.or_else(|| self.$field.origin(address)))*
            }

            fn limits(&self) -> Vec<Limit> {
                [$(self.$field.limits()),*].concat()
            }

            fn notes(&self, now: Instant) -> Vec<String> {
                [$(self.$field.notes(now)),*].concat()
            }

            fn report(&self, status: &mut Status) {
                $(self.$field.report(status);)*
            }

            fn criteria(&self, speaker: &Speaker) -> Vec<Criterion> {
                let mut all = Vec::new();
                $(all.extend(self.$field.criteria(speaker));)*
                all
            }

            fn keeps_forwarding(&self) -> bool {
                true$( && self.$field.keeps_forwarding())*
            }

            fn stopping(&mut self, speaker: &Speaker, now: Instant, mode: StopMode) {
                $(self.$field.stopping(speaker, now, mode);)*
            }

            async fn stop(&mut self, clock: &Clock) {
                $(self.$field.stop(clock).await;)*
            }
        }

        impl<S: Settings, $($driver: Open<S>),*> Open<S> for ($($driver,)*) {
            fn open(
                settings: &S,
                speaker: &mut Speaker,
                parent: Option<&Parent>,
            ) -> Result<Self, DriverError> {
                Ok(($($driver::open(settings, speaker, parent)?,)*))
            }
        }
    };
}

list!(A 0);
list!(A 0 B 1);
list!(A 0 B 1 C 2);
list!(A 0 B 1 C 2 D 3);
list!(A 0 B 1 C 2 D 3 E 4);
list!(A 0 B 1 C 2 D 3 E 4 F 5);
list!(A 0 B 1 C 2 D 3 E 4 F 5 G 6);
list!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
list!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8);
list!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9);
list!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10);
list!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11);

/// No driver.
impl<S: Settings> Driver<S> for () {
    fn turn(&mut self, _: &mut Round<'_>) -> Result<(), DriverError> {
        Ok(())
    }
}

impl<S: Settings> Open<S> for () {
    fn open(_: &S, _: &mut Speaker, _: Option<&Parent>) -> Result<Self, DriverError> {
        Ok(())
    }
}

/// A driver that the configuration may leave out.
impl<S: Settings, D: Driver<S>> Driver<S> for Option<D> {
    async fn wait(&mut self) {
        match self {
            Some(driver) => driver.wait().await,
            None => pending().await,
        }
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        self.as_mut().map_or(Ok(()), |driver| driver.turn(round))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.as_ref()?.poll_timeout()
    }

    fn observe(&mut self, now: Instant, speaker: &Speaker, event: &Event) {
        if let Some(driver) = self {
            driver.observe(now, speaker, event);
        }
    }

    fn adopted(&mut self, now: Instant, intent: &Intent) {
        if let Some(driver) = self {
            driver.adopted(now, intent);
        }
    }

    fn assign(&mut self, duties: &Duties) {
        if let Some(driver) = self {
            driver.assign(duties);
        }
    }

    fn reload(&mut self, config: &Config<S>) -> Vec<&'static str> {
        let keys = self.as_mut().map(|driver| driver.reload(config));
        keys.unwrap_or_default()
    }

    fn answer(&self, command: &Command) -> Option<Reply> {
        self.as_ref()?.answer(command)
    }

    fn locate(&self, page: &mut Routes) {
        if let Some(driver) = self {
            driver.locate(page);
        }
    }

    fn annotate(&self, now: Instant, neighbors: &mut Neighbors) {
        if let Some(driver) = self {
            driver.annotate(now, neighbors);
        }
    }

    fn source(&self) -> Option<String> {
        self.as_ref()?.source()
    }

    fn revision(&self) -> Option<u64> {
        self.as_ref()?.revision()
    }

    fn origin(&self, address: Option<IpAddr>) -> Option<String> {
        self.as_ref()?.origin(address)
    }

    fn limits(&self) -> Vec<Limit> {
        let limits = self.as_ref().map(|driver| driver.limits());
        limits.unwrap_or_default()
    }

    fn notes(&self, now: Instant) -> Vec<String> {
        let notes = self.as_ref().map(|driver| driver.notes(now));
        notes.unwrap_or_default()
    }

    fn report(&self, status: &mut Status) {
        if let Some(driver) = self {
            driver.report(status);
        }
    }

    fn keeps_forwarding(&self) -> bool {
        self.as_ref().is_none_or(|driver| driver.keeps_forwarding())
    }

    fn stopping(&mut self, speaker: &Speaker, now: Instant, mode: StopMode) {
        if let Some(driver) = self {
            driver.stopping(speaker, now, mode);
        }
    }

    async fn stop(&mut self, clock: &Clock) {
        if let Some(driver) = self {
            driver.stop(clock).await;
        }
    }
}
