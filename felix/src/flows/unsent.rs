//! The packets that the rules did not report, because their input interface is beyond the limit of records.
//! The packet filter counts them in chains of their own.

use fib_sync::Instant;
use netlink::attributes::{find, iterate, number_64, of_netfilter, text};
use netlink::nftables::{self, inet};
use netlink::{Refused, Requests};
use netlink_packet_netfilter::nftables::NfTablesMessage;

use crate::limits::FLOW_UNSENT_CHECK;
use crate::render::{TABLE, UNSENT};

/// `NFTA_RULE_EXPRESSIONS`, and `NFTA_EXPR_NAME` and `NFTA_EXPR_DATA` of each.
const EXPRESSIONS: u16 = 4;
const NAME: u16 = 1;
const DATA: u16 = 2;
/// `NFTA_COUNTER_PACKETS`.
const PACKETS: u16 = 2;

/// The counters of the chains.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// The flow log is open.
    is_open: bool,
    /// The socket; without one, the next read opens it.
    requests: Option<Requests>,
    /// The last numbers that were read.
    seen: [Option<u64>; 3],
    /// Packets since the start of the daemon.
    packets: u64,
    /// When the counters are read next.
    read_at: Option<Instant>,
}

impl Unsent {
    /// Begins to read. Packets before do not count.
    pub(super) fn open(&mut self, now: Instant) {
        self.close();
        self.is_open = true;
        self.read(now);
    }

    /// Ends reading.
    pub(super) fn close(&mut self) {
        (self.is_open, self.requests) = (false, None);
        (self.seen, self.read_at) = ([None; 3], None);
    }

    /// Reads the counters, if it is due.
    pub(super) fn look(&mut self, now: Instant) {
        if self.read_at.is_some_and(|at| at <= now) {
            self.read(now);
        }
    }

    /// Reads the counters.
    pub(super) fn read(&mut self, now: Instant) {
        if !self.is_open {
            return;
        }
        let counts = self.ask();
        self.note(counts);
        self.read_at = Some(now + FLOW_UNSENT_CHECK);
    }

    /// Returns the numbers of the kernel, `None` for each that cannot be read. After a failure, the next
    /// read opens another socket.
    fn ask(&mut self) -> [Option<u64>; 3] {
        let opened = self.requests.take().or_else(|| nftables::open().ok());
        let Some(mut requests) = opened else {
            return [None; 3];
        };
        let counts = UNSENT.map(|chain| read(&mut requests, chain).ok());
        let all_read = counts.iter().all(Option::is_some);
        self.requests = all_read.then_some(requests);
        counts
    }

    /// Adds the packets since the last number of each chain. Counters of new chains begin at zero.
    fn note(&mut self, counts: [Option<u64>; 3]) {
        for (seen, count) in self.seen.iter_mut().zip(counts) {
            // After a failure, the next read has the difference.
            let Some(now) = count else {
                continue;
            };
            if let Some(before) = seen.replace(now) {
                self.packets += now.checked_sub(before).unwrap_or(now);
            }
        }
    }

    /// Returns the number of packets.
    pub(super) const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns when the counters are read next.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.read_at
    }
}

/// Returns the packets that the rules of a chain have counted; 0 without the chain.
fn read(requests: &mut Requests, chain: &str) -> Result<u64, Refused> {
    let asked = NfTablesMessage::GetRule(netlink::message::rules(TABLE, chain));
    match requests.dump(inet(asked)) {
        Ok(rows) => Ok(rows.iter().map(|row| counted(of_netfilter(row))).sum()),
        Err(cause) if cause.errno == libc::ENOENT => Ok(0),
        Err(cause) => Err(cause),
    }
}

/// Returns the packets of the counters of a rule.
fn counted(rule: &[u8]) -> u64 {
    let expressions = find(rule, EXPRESSIONS).unwrap_or_default();
    let counters = iterate(expressions).filter_map(|(_, expression)| {
        let is_counter = find(expression, NAME).map(text).as_deref() == Some("counter");
        let data = find(expression, DATA).filter(|_| is_counter)?;
        find(data, PACKETS).and_then(number_64)
    });
    counters.sum()
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{DefaultNla, Emitable};

    use super::*;

    fn of(attributes: &[DefaultNla]) -> Vec<u8> {
        let mut octets = vec![0; attributes.buffer_len()];
        attributes.emit(&mut octets);
        octets
    }

    #[test]
    fn counter_of_a_rule_is_found_among_its_expressions() {
        let expression = |name: &str, data: Vec<DefaultNla>| {
            let name = DefaultNla::new(NAME, [name.as_bytes(), &[0]].concat());
            DefaultNla::new(1, of(&[name, DefaultNla::new(DATA, of(&data))]))
        };
        let octets = |value: u64| value.to_be_bytes().to_vec();
        let counter = vec![
            DefaultNla::new(1, octets(4000)),
            DefaultNla::new(PACKETS, octets(40)),
        ];
        let list = [
            expression("immediate", vec![DefaultNla::new(PACKETS, octets(7))]),
            expression("counter", counter),
        ];
        let rule = of(&[DefaultNla::new(EXPRESSIONS, of(&list))]);
        assert_eq!(counted(&rule), 40);
        assert_eq!(counted(&[]), 0);
        assert_eq!(counted(&rule[..rule.len() / 2]), 0);
    }

    #[test]
    fn packets_are_counted_from_the_first_read_across_new_chains() {
        let mut unsent = Unsent::default();
        unsent.note([100, 0, 0].map(Some));
        assert_eq!(unsent.packets(), 0);
        unsent.note([110, 5, 0].map(Some));
        assert_eq!(unsent.packets(), 15);
        // The table was replaced.
        unsent.note([3, 5, 1].map(Some));
        assert_eq!(unsent.packets(), 19);
        unsent.close();
        unsent.note([9, 9, 9].map(Some));
        assert_eq!(unsent.packets(), 19);
    }

    #[test]
    fn packets_are_counted_once_after_a_failed_read() {
        let mut unsent = Unsent::default();
        unsent.note([Some(100), Some(7), None]);
        unsent.note([None, Some(8), None]);
        assert_eq!(unsent.packets(), 1);
        unsent.note([Some(110), None, Some(50)]);
        assert_eq!(unsent.packets(), 11);
        unsent.note([Some(110), Some(9), Some(51)]);
        assert_eq!(unsent.packets(), 13);
    }

    #[test]
    fn read_is_repeated_while_the_flow_log_is_open() {
        // The namespace of the test may permit no read, and has no such chains.
        let mut unsent = Unsent::default();
        unsent.look(Instant(0));
        assert_eq!(unsent.poll_timeout(), None);
        unsent.open(Instant(0));
        let first = Instant(0) + FLOW_UNSENT_CHECK;
        assert_eq!(unsent.poll_timeout(), Some(first));
        unsent.requests = None;
        unsent.look(first);
        assert_eq!(unsent.poll_timeout(), Some(first + FLOW_UNSENT_CHECK));
        unsent.close();
        assert_eq!(unsent.poll_timeout(), None);
    }
}
