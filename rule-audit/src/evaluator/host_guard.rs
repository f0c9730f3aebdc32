//! The host guard: the BGP ports that other users of a host must not use, by the files of the BGP daemons.
//!
//! Only this is stated here: the guard may close other ports too, such as those of peers of the datastore.

use std::net::SocketAddr;

use crate::packet::{Family, Field, NO_USER, protocol};
use crate::ranges::{Ranges, number};
use crate::space::{Act, ConditionId, ProgramId, Row, Space, Step};

/// The UDP ports of BFD: for neighbors on a link (RFC 5881 §4), and behind routers (RFC 5883 §5).
pub(super) const BFD: [u16; 2] = [3784, 4784];
/// The table, its base chain, and the kernel's hook and priority.
pub(crate) const TABLE: (&str, &str) = ("inet", "cambric-guard");
pub(crate) const CHAIN: (&str, &str, i64) = ("output", "output", -10);

/// The ports and the users of a host's BGP daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostGuard {
    /// The TCP ports, at either end of a connection. Without one, no daemon requires the guard.
    pub ports: Vec<u16>,
    /// Neighbors with another port.
    pub peers: Vec<SocketAddr>,
    /// The ids of the users that may use these.
    pub users: Vec<u32>,
    /// The ids of the users that may only send BFD.
    pub bfd_users: Vec<u32>,
}

impl HostGuard {
    /// Returns the program of the output hook.
    pub(crate) fn program(&self, space: &mut Space, family: Family) -> ProgramId {
        let each = |values: &[u128]| Ranges::of(values.iter().map(|value| (*value, *value)));
        let ids = |users: &[u32]| each(&users.iter().map(|id| u128::from(*id)).collect::<Vec<_>>());
        let numbers = |ports: &[u16]| {
            each(
                &ports
                    .iter()
                    .map(|port| u128::from(*port))
                    .collect::<Vec<_>>(),
            )
        };
        let mut steps = Vec::new();
        let mut add = |space: &mut Space, conditions: Vec<ConditionId>, act, text: &str| {
            let place = space.place(text.to_owned());
            steps.push(Step {
                conditions,
                act,
                place,
            });
        };
        let allowed = space.is_in(Field::User, ids(&self.users), true);
        add(space, vec![allowed], Act::Accept, "allowed user");
        let bfd = vec![
            space.is(Field::Protocol, protocol::UDP),
            space.is_in(Field::DestinationPort, numbers(&BFD), true),
        ];
        let may_send = space.is_in(Field::User, ids(&self.bfd_users), true);
        let of_daemon = [bfd.clone(), vec![may_send]].concat();
        add(space, of_daemon, Act::Accept, "user of the BFD daemon");
        add(space, bfd, Act::Drop, "BFD of another user");
        // Segments without a user depend on the connections that other users had.
        let has_user = space.is_in(Field::User, Ranges::of([(0, NO_USER - 1)]), true);
        let tcp = space.is(Field::Protocol, protocol::TCP);
        for field in [Field::SourcePort, Field::DestinationPort] {
            let ports = space.is_in(field, numbers(&self.ports), true);
            let text = "BGP port, another user";
            add(space, vec![has_user, tcp, ports], Act::Drop, text);
        }
        let is_of = |peer: &&SocketAddr| peer.is_ipv4() == (family == Family::V4);
        let rows = self.peers.iter().filter(is_of).map(|peer| -> Row {
            let (address, port) = (number(peer.ip()), peer.port().into());
            vec![(address, address), (port, port)]
        });
        let fields = vec![Field::Destination, Field::DestinationPort];
        let peers = space.has_row(fields, rows.collect(), true);
        let text = "port of a neighbor, another user";
        add(space, vec![has_user, tcp, peers], Act::Drop, text);
        add(space, Vec::new(), Act::Either, "no BGP port");
        space.program(steps)
    }
}
