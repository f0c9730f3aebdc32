//! The rules of the table, as expressions.
//!
//! `meta skuid` is the file system user id of the open file of a segment's socket. A segment of a
//! socket without a file has none, and a rule with `meta skuid` does not match it.

use netlink::expression::{differs, equal, lookup, masked, meta, payload};
use netlink::nftables::number;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    DataAttribute, Expressions, Immediate, MetaKey, Register, Verdict, VerdictAttribute,
};

use crate::cover::Holder;

/// Chain of the output hook: finds the segments of BGP ports.
pub(crate) const OUTPUT: &str = "output";
/// Chain that decides about them.
pub(crate) const VERDICT: &str = "judge";
/// Set of the UDP ports of BFD: for neighbors on a link (RFC 5881 §4), and behind routers (RFC 5883 §5).
pub(crate) const BFD_PORTS: (&str, [u16; 2]) = ("bfd-ports", [3784, 4784]);
/// Set of the users that may send BFD, beside those that may use BGP ports.
pub(crate) const BFD_USERS: &str = "bfd-users";
/// Sets of connections of other users.
pub(crate) const REFUSED_IPV4: &str = "refused-ipv4";
pub(crate) const REFUSED_IPV6: &str = "refused-ipv6";

const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
/// `NFT_PAYLOAD_NETWORK_HEADER` and `NFT_PAYLOAD_TRANSPORT_HEADER`.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
/// Offset of the flags in a TCP header, and two of them.
const TCP_FLAGS: u32 = 13;
const SYN: u8 = 2;
const SYN_OR_ACK: u8 = 18;
/// No user has this id.
const NO_USER: u32 = u32::MAX;
/// `NFTA_DYNSET_SET_NAME`, `NFTA_DYNSET_OP`, `NFTA_DYNSET_SREG_KEY`; `NFT_DYNSET_OP_UPDATE`.
const DYNSET_NAME: u16 = 1;
const DYNSET_OPERATION: u16 = 3;
const DYNSET_KEY: u16 = 4;
const DYNSET_UPDATE: u32 = 1;

/// A rule with its chain, its expressions and its comment.
pub(crate) struct Rule {
    pub(crate) chain: &'static str,
    pub(crate) expressions: Vec<Expressions>,
    pub(crate) comment: &'static str,
}

/// A family of addresses.
#[derive(Clone, Copy)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];
}

/// Returns the name of the set of a holder's ports.
pub(crate) fn ports_of(holder: Holder) -> String {
    format!("{holder}-ports")
}

/// Returns the name of the set of a holder's peers with another port.
pub(crate) fn peers_of(holder: Holder, family: Family) -> String {
    match family {
        Family::V4 => format!("{holder}-peers-ipv4"),
        Family::V6 => format!("{holder}-peers-ipv6"),
    }
}

/// Returns the name of the set of a holder's users.
pub(crate) fn users_of(holder: Holder) -> String {
    format!("{holder}-users")
}

/// Returns all rules, in order.
pub(crate) fn all() -> Vec<Rule> {
    // First, so that a segment of the daemon is accepted after one or two lookups: one for a route
    // reflector, which has the most neighbors.
    let users = [Holder::RouteReflector, Holder::BgpClient];
    let mut rules: Vec<_> = users.map(pass_users).into();
    rules.extend(bfd());
    for holder in Holder::ALL {
        for offset in [2, 0] {
            rules.push(to_verdict(&ports_of(holder), offset));
        }
        rules.extend(Family::ALL.map(|family| dialed_to_verdict(holder, family)));
    }
    rules.extend(Family::ALL.map(remember));
    let mut another = of_a_user();
    another.extend(drop_counted());
    rules.push(verdict_of(another, "another user"));
    rules.push(verdict_of(
        unowned_syn(),
        "a SYN of a socket without a user",
    ));
    rules.extend(Family::ALL.map(remembered));
    rules
}

fn verdict_of(expressions: Vec<Expressions>, comment: &'static str) -> Rule {
    Rule {
        chain: VERDICT,
        expressions,
        comment,
    }
}

/// Accepts the segments of allowed users.
fn pass_users(holder: Holder) -> Rule {
    let expressions = vec![
        meta(MetaKey::SocketUserId),
        lookup(&users_of(holder), None),
        verdict(Verdict::Other(NF_ACCEPT), None),
    ];
    Rule {
        chain: OUTPUT,
        expressions,
        comment: "an allowed user",
    }
}

/// Drops packets of BFD, unless an allowed user sends them. BFD has no connection, so one packet is enough
/// to act for the host. Only the destination has a fixed port (RFC 5881 §4).
fn bfd() -> [Rule; 2] {
    let to_bfd = || {
        let udp = [meta(MetaKey::L4Proto), equal(&[IPPROTO_UDP])];
        let port = payload(TRANSPORT, 2, 2, Register::Reg1);
        udp.into_iter().chain([port, lookup(BFD_PORTS.0, None)])
    };
    let user = [meta(MetaKey::SocketUserId), lookup(BFD_USERS, None)];
    let accept = verdict(Verdict::Other(NF_ACCEPT), None);
    let allowed = to_bfd().chain(user).chain([accept]);
    let others = to_bfd().chain(drop_counted());
    [
        (allowed.collect(), "BFD of an allowed user"),
        (others.collect(), "BFD of another user"),
    ]
    .map(|(expressions, comment)| Rule {
        chain: OUTPUT,
        expressions,
        comment,
    })
}

/// Sends segments to or from the ports of a set to the other chain.
fn to_verdict(ports: &str, offset: u32) -> Rule {
    let mut expressions = tcp();
    expressions.extend([
        payload(TRANSPORT, offset, 2, Register::Reg1),
        lookup(ports, None),
        verdict(Verdict::Jump, Some(VERDICT)),
    ]);
    Rule {
        chain: OUTPUT,
        expressions,
        comment: "to or from a BGP port",
    }
}

/// Sends segments to the peers of a set to the other chain. The replies go to a socket of the same
/// user, and a listener's port is guarded separately.
fn dialed_to_verdict(holder: Holder, family: Family) -> Rule {
    let (number, octets, [_, destination]) = addresses(family);
    let port = match family {
        Family::V4 => Register::Reg32_01,
        Family::V6 => Register::Reg2,
    };
    let mut expressions = vec![meta(MetaKey::Nfproto), equal(&[number])];
    expressions.extend(tcp());
    expressions.extend([
        payload(NETWORK, destination, octets, Register::Reg1),
        payload(TRANSPORT, 2, 2, port),
        lookup(&peers_of(holder, family), None),
        verdict(Verdict::Jump, Some(VERDICT)),
    ]);
    Rule {
        chain: OUTPUT,
        expressions,
        comment: "to a peer at another port",
    }
}

/// Records a connection of a user that is not allowed. Such a connection can exist although its SYN
/// is dropped: with a SYN cookie, or if it is older than the table. After its socket is closed, the
/// remaining segments belong to no user.
fn remember(family: Family) -> Rule {
    let mut expressions = flags(SYN);
    expressions.push(equal(&[0]));
    expressions.extend(of_a_user());
    expressions.extend(connection(family));
    let key = Register::Reg1.into();
    let mut name = refused(family).as_bytes().to_vec();
    name.push(0);
    expressions.push(Expressions::Other {
        expression_type: "dynset".into(),
        attributes: vec![
            DefaultNla::new(DYNSET_NAME, name),
            number(DYNSET_OPERATION, DYNSET_UPDATE),
            number(DYNSET_KEY, key),
        ],
    });
    verdict_of(expressions, "a connection of another user")
}

/// Drops the remaining segments of such a connection.
fn remembered(family: Family) -> Rule {
    let mut expressions = connection(family);
    expressions.push(lookup(refused(family), None));
    expressions.extend(drop_counted());
    verdict_of(expressions, "left by another user")
}

/// Matches a SYN without a user. A daemon never sends one: only sockets that the kernel creates for
/// another protocol do.
fn unowned_syn() -> Vec<Expressions> {
    let mut expressions = flags(SYN_OR_ACK);
    expressions.push(equal(&[SYN]));
    expressions.extend(drop_counted());
    expressions
}

fn tcp() -> Vec<Expressions> {
    vec![meta(MetaKey::L4Proto), equal(&[IPPROTO_TCP])]
}

/// Loads some flags of a TCP segment.
fn flags(mask: u8) -> Vec<Expressions> {
    let mut expressions = tcp();
    expressions.push(payload(TRANSPORT, TCP_FLAGS, 1, Register::Reg1));
    expressions.push(masked(&[mask]));
    expressions
}

/// Continues if the segment's socket belongs to any user.
fn of_a_user() -> Vec<Expressions> {
    vec![meta(MetaKey::SocketUserId), differs(&NO_USER.to_ne_bytes())]
}

/// Returns a family's number, octets of an address, and the offsets of source and destination.
const fn addresses(family: Family) -> (u8, u32, [u32; 2]) {
    match family {
        Family::V4 => (NFPROTO_IPV4, 4, [12, 16]),
        Family::V6 => (NFPROTO_IPV6, 16, [8, 24]),
    }
}

/// Loads addresses and ports into adjacent registers.
fn connection(family: Family) -> Vec<Expressions> {
    let (number, octets, [source, destination]) = addresses(family);
    let registers = match family {
        Family::V4 => [
            Register::Reg1,
            Register::Reg32_01,
            Register::Reg32_02,
            Register::Reg32_03,
        ],
        Family::V6 => [
            Register::Reg1,
            Register::Reg2,
            Register::Reg32_05,
            Register::Reg32_09,
        ],
    };
    let [first, second, third, fourth] = registers;
    let mut expressions = vec![meta(MetaKey::Nfproto), equal(&[number])];
    expressions.extend(tcp());
    expressions.extend([
        payload(NETWORK, source, octets, first),
        payload(TRANSPORT, 0, 2, second),
        payload(NETWORK, destination, octets, third),
        payload(TRANSPORT, 2, 2, fourth),
    ]);
    expressions
}

const fn refused(family: Family) -> &'static str {
    match family {
        Family::V4 => REFUSED_IPV4,
        Family::V6 => REFUSED_IPV6,
    }
}

fn drop_counted() -> [Expressions; 2] {
    [
        Expressions::Other {
            expression_type: "counter".into(),
            attributes: Vec::new(),
        },
        verdict(Verdict::Other(NF_DROP), None),
    ]
}

fn verdict(code: Verdict, chain: Option<&str>) -> Expressions {
    let mut attributes = vec![VerdictAttribute::Code(code)];
    attributes.extend(chain.map(|chain| VerdictAttribute::Chain(chain.to_owned())));
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(attributes)),
    ])
}
