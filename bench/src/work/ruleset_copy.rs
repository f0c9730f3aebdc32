//! A copy of Felix's table in a network namespace of its own: times of the kernel and of nft for the
//! same rules.

use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use netlink::nftables::{self, generation};
use netlink::{Requests, message};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use netlink_packet_netfilter::nftables::{
    DataAttribute, Expressions, Immediate, NfTablesMessage, Register, Verdict, VerdictAttribute,
};
use nix::sched::{CloneFlags, unshare};

use crate::stage::quantiles;

const TABLE: &str = "cambric-felix";

/// Two chains that the copy has in addition: the first one jumps to the second.
const FROM: &str = "bench-from";
const TO: &str = "bench-to";

/// Transactions that are measured.
const JUMPS: u32 = 21;

/// The times of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// `nft -f` of all rules.
    pub(super) load: Duration,
    /// The kernel's transaction of one chain that jumps to a new one, p50 in milliseconds. After each
    /// transaction with a jump, the kernel checks all chains of the table.
    pub(super) jump_ms: f64,
}

/// Loads the rules, as `nft list` prints them, in an empty namespace.
pub(super) fn measure(rules: Vec<u8>) -> Result<Times> {
    // The namespace ends with the thread.
    let thread = thread::spawn(move || -> Result<Times> {
        unshare(CloneFlags::CLONE_NEWNET).context("a network namespace")?;
        let load = load(&rules)?;
        let mut requests = nftables::open()?;
        let mut times = vec![];
        for _ in 0..JUMPS {
            let began = Instant::now();
            transact(&mut requests, jump())?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
            transact(&mut requests, removal())?;
        }
        let [jump_ms] = quantiles(times, [0.5])?;
        Ok(Times { load, jump_ms })
    });
    thread.join().map_err(|_| anyhow!("the copy panicked"))?
}

fn load(rules: &[u8]) -> Result<Duration> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(rules)?;
    let began = Instant::now();
    let loaded = Command::new("nft")
        .arg("--file")
        .arg(file.path())
        .output()?;
    let error = String::from_utf8_lossy(&loaded.stderr);
    ensure!(loaded.status.success(), "nft --file: {error}");
    Ok(began.elapsed())
}

fn transact(requests: &mut Requests, steps: Vec<(NfTablesMessage, u16)>) -> Result<()> {
    let on = generation(requests)?;
    nftables::transact(requests, on, steps.into_iter().map(|step| vec![step]))
        .map_err(|(step, cause)| anyhow!("step {step:?} of a transaction: {cause}"))
}

fn jump() -> Vec<(NfTablesMessage, u16)> {
    let verdict = vec![
        VerdictAttribute::Code(Verdict::Jump),
        VerdictAttribute::Chain(TO.to_owned()),
    ];
    let jump = Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(verdict)),
    ]);
    let chain = |name| NfTablesMessage::NewChain(message::chain(TABLE, name, None));
    let rule = NfTablesMessage::NewRule(message::rule(TABLE, FROM, vec![jump], None));
    vec![
        (chain(TO), NLM_F_CREATE),
        (chain(FROM), NLM_F_CREATE),
        (rule, NLM_F_CREATE | NLM_F_APPEND),
    ]
}

fn removal() -> Vec<(NfTablesMessage, u16)> {
    let chain = |name| NfTablesMessage::DeleteChain(message::chain(TABLE, name, None));
    let rules = NfTablesMessage::DeleteRule(message::rules(TABLE, FROM));
    vec![(rules, 0), (chain(FROM), 0), (chain(TO), 0)]
}
