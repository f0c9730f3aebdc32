//! The comparison of all endpoints of a host.

mod foreign;
mod frame;
mod host_guard;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Display, Formatter};

use foldhash::fast::FixedState;

pub use self::foreign::is_foreign;
use crate::evaluator::{Cut, Fabric, Guard, Hook, HostHook, Spec, Translation};
use crate::limits::PROGRAMS_KEPT;
use crate::packet::{Family, Packet};
use crate::ruleset::{Compiler, Listing, Table, Touched, Uses, View};
use crate::space::{Act, Comparison, Difference, Outcome, ProgramId, Side, Space, compare};

/// The family and name of Felix's table.
pub const TABLE: (&str, &str) = ("inet", "cambric-felix");

/// The result for all endpoints of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The results, by endpoint: first those that concern no endpoint.
    pub subjects: BTreeMap<Subject, Results>,
    /// Parts of the kernel's rules that were not compared.
    pub notes: Vec<String>,
}

/// The interface that a result is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The table as a whole.
    Table,
    /// The table of the host guard.
    HostGuard,
    /// A table that is not compared: family and name.
    Foreign(String, String),
    /// Interfaces that belong to no endpoint, such as an uplink, or a workload interface without an
    /// endpoint.
    Interface(String),
    /// An endpoint: name and interface.
    Endpoint(String, String),
}

/// The result for one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// The number of comparisons with the result equal.
    pub equal: usize,
    /// Differences.
    pub different: Vec<Finding>,
    /// Packets, or whole resources, that cannot be evaluated.
    pub unknown: Vec<Finding>,
}

/// A difference, or something that cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The chain of the kernel.
    pub chain: String,
    /// A packet as an example.
    pub packet: Option<String>,
    /// The correct decision and its rule.
    pub wanted: String,
    /// The decision of the kernel and its rule.
    pub found: String,
}

impl Report {
    /// Returns whether all comparisons have the result equal.
    pub fn is_equal(&self) -> bool {
        let mut results = self.subjects.values();
        results.all(|result| result.different.is_empty() && result.unknown.is_empty())
    }

    /// Returns whether there is a difference.
    pub fn is_different(&self) -> bool {
        self.subjects
            .values()
            .any(|result| !result.different.is_empty())
    }

    fn fault(
        &mut self,
        subject: Subject,
        chain: &str,
        wanted: impl Into<String>,
        found: impl Into<String>,
    ) {
        self.subjects
            .entry(subject)
            .or_default()
            .different
            .push(Finding {
                chain: chain.to_owned(),
                packet: None,
                wanted: wanted.into(),
                found: found.into(),
            });
    }

    fn unknown(&mut self, subject: Subject, chain: &str, reason: impl Into<String>) {
        self.subjects
            .entry(subject)
            .or_default()
            .unknown
            .push(Finding {
                chain: chain.to_owned(),
                packet: None,
                wanted: reason.into(),
                found: String::new(),
            });
    }
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table => write!(f, "table {} {}", TABLE.0, TABLE.1),
            Self::HostGuard => {
                let (family, name) = crate::evaluator::HOST_GUARD;
                write!(f, "table {family} {name}")
            }
            Self::Foreign(family, name) => write!(f, "table {family} {name}"),
            Self::Interface(name) => write!(f, "interface {name}"),
            Self::Endpoint(name, interface) => write!(f, "endpoint {name} ({interface})"),
        }
    }
}

/// One comparison.
struct Task {
    subject: Subject,
    chain: &'static str,
    family: Family,
    wanted: ProgramId,
    found: ProgramId,
}

/// Compares the rules of the kernel with the policies of the datastore.
pub fn audit(fabric: &Fabric, listing: &Listing) -> Report {
    audit_touched(fabric, listing, &Touched::everything())
}

/// Does the same for the interfaces whose packets may meet a changed object. Nothing is computed for others,
/// and the report does not have them.
pub fn audit_touched(fabric: &Fabric, listing: &Listing, touched: &Touched) -> Report {
    let mut report = Report::default();
    let key = (TABLE.0.to_owned(), TABLE.1.to_owned());
    let Some(table) = listing.tables.get(&key) else {
        report.fault(Subject::Table, "", "the table exists", "no such table");
        return report;
    };
    frame::check(&mut report, fabric, listing, table);
    for fault in &fabric.faults {
        report.unknown(Subject::Table, "", fault.clone());
    }
    let mut space = Space::new();
    let mut tasks = tasks((fabric, table, touched), &mut space, &mut report);
    if touched.is_everything() {
        tasks.extend(host_guard::tasks(fabric, listing, &mut space, &mut report));
    }
    let mark = space.mark();
    let mut known: HashMap<(Family, Vec<u32>, Vec<u32>), (), FixedState> = HashMap::default();
    for task in tasks {
        let forms = (task.family, space.form(task.wanted), space.form(task.found));
        if known.contains_key(&forms) {
            report.subjects.entry(task.subject).or_default().equal += 1;
            continue;
        }
        let start = Packet::new(task.family);
        let result = compare(&mut space, start, task.wanted, task.found);
        if space.mark() > mark + PROGRAMS_KEPT {
            space.forget(mark);
        }
        if result == Comparison::Equal {
            known.insert(forms, ());
        }
        record(&mut report, &space, task, result);
    }
    report
}

/// The comparisons, with the programs of the kernel.
struct Tasks<'t> {
    table: &'t Table,
    touched: &'t Touched,
    uses: Uses<'t>,
    compiler: Compiler,
    all: Vec<Task>,
}

/// A base chain, and whether its packets are known by the interface on which they arrive.
type Way = (&'static str, bool);

impl Tasks<'_> {
    /// Returns whether packets of an interface may meet a changed object at one of these hooks.
    fn is_touched<H>(&mut self, interface: &str, hooks: &[(H, Way)]) -> bool {
        let mut bases = hooks.iter().map(|(_, (base, _))| base);
        bases.any(|base| self.uses.is_touched(base, interface, self.touched))
    }

    /// Adds the comparisons of an interface at some hooks, for both IP versions.
    fn add<H: Copy>(
        &mut self,
        space: &mut Space,
        (subject, interface): (&Subject, &str),
        hooks: &[(H, Way)],
        mut wanted: impl FnMut(&mut Space, H, Family) -> ProgramId,
    ) {
        if !self.is_touched(interface, hooks) {
            return;
        }
        for family in Family::ALL {
            for (hook, way) in hooks {
                let wanted = wanted(space, *hook, family);
                let compiler = &mut self.compiler;
                let found = found(compiler, space, self.table, *way, family, interface);
                self.all.push(Task {
                    subject: subject.clone(),
                    chain: way.0,
                    family,
                    wanted,
                    found,
                });
            }
        }
    }
}

/// Returns all comparisons of touched interfaces, with their programs.
fn tasks(
    (fabric, table, touched): (&Fabric, &Table, &Touched),
    space: &mut Space,
    report: &mut Report,
) -> Vec<Task> {
    let mut spec = Spec::new(fabric);
    let mut tasks = Tasks {
        table,
        touched,
        uses: Uses::new(table),
        compiler: Compiler::default(),
        all: Vec::new(),
    };
    let hooks = Hook::ALL.map(|hook| (hook, (hook.chain().0, hook.is_from_workload())));
    for endpoint in &fabric.endpoints {
        let subject = Subject::Endpoint(endpoint.name.clone(), endpoint.interface.clone());
        match &endpoint.fault {
            Some(fault) if tasks.is_touched(&endpoint.interface, &hooks) => {
                report.unknown(subject, "", fault.clone());
            }
            Some(_) => {}
            None => tasks.add(
                space,
                (&subject, &endpoint.interface),
                &hooks,
                |space, hook, family| spec.program(space, endpoint, hook, family),
            ),
        }
    }
    for (name, is_workload) in others(fabric, table) {
        let subject = Subject::Interface(name.clone());
        tasks.add(space, (&subject, &name), &hooks, |space, hook, _| {
            let (act, text) = match (is_workload, hook) {
                // The chain before it drops all packets.
                (true, Hook::InputToHost) => (Act::Either, "interface without endpoint"),
                (true, _) => (Act::Drop, "interface without endpoint"),
                (false, _) => (Act::Accept, "no workload interface"),
            };
            let at = space.place(text.to_owned());
            space.always(act, at)
        });
    }
    guard_tasks((fabric, table), space, &mut tasks);
    if frame::cuts(fabric, table) {
        cut_tasks((fabric, table), space, &mut tasks);
    }
    translation_tasks((fabric, table), (space, report), &mut tasks);
    host_tasks((fabric, table), (space, report), &mut spec, &mut tasks);
    tasks.all
}

/// Adds the comparisons of the guard, for all workload interfaces.
fn guard_tasks((fabric, table): (&Fabric, &Table), space: &mut Space, tasks: &mut Tasks<'_>) {
    let hooks = Guard::ALL.map(|chain| (chain, (chain.chain().0, true)));
    let own = fabric.endpoints.iter();
    let own = own.map(|endpoint| endpoint.interface.clone());
    let others = others(fabric, table).into_iter();
    let others = others.filter(|(_, is_workload)| *is_workload);
    let mut names = named_interfaces(table, Guard::ALL.map(|chain| chain.chain().0));
    names.retain(|name| fabric.is_workload(name));
    names.extend(own.chain(others.map(|(name, _)| name)));
    for name in names {
        let mut endpoints = fabric.endpoints.iter();
        let endpoint = endpoints.find(|endpoint| endpoint.interface == name);
        let subject = subject(endpoint.map(|endpoint| &endpoint.name), &name);
        tasks.add(space, (&subject, &name), &hooks, |space, chain, family| {
            fabric.guard(space, chain, family)
        });
    }
}

/// Adds the comparisons of the chains of cut connections, for all workload interfaces and an uplink.
fn cut_tasks((fabric, table): (&Fabric, &Table), space: &mut Space, tasks: &mut Tasks<'_>) {
    let hooks = Cut::ENDS.map(|(chain, is_inbound)| (chain, (chain.chain().0, is_inbound)));
    let own = fabric.endpoints.iter();
    let own = own.map(|endpoint| endpoint.interface.clone());
    let others = others(fabric, table).into_keys();
    let mut names = named_interfaces(table, Cut::ALL.map(|chain| chain.chain().0));
    names.extend(own.chain(others));
    for name in names {
        let mut endpoints = fabric.endpoints.iter();
        let endpoint = endpoints.find(|endpoint| endpoint.interface == name);
        let subject = subject(endpoint.map(|endpoint| &endpoint.name), &name);
        tasks.add(space, (&subject, &name), &hooks, |space, chain, _| {
            fabric.cut(space, chain, &name)
        });
    }
}

/// Adds the comparisons of address translation, of the interfaces that its rules and settings name.
fn translation_tasks(
    (fabric, table): (&Fabric, &Table),
    (space, report): (&mut Space, &mut Report),
    tasks: &mut Tasks<'_>,
) {
    let mut unclear = fabric.endpoints.iter().filter(|one| one.fault.is_some());
    if let Some(endpoint) = unclear.find(|one| one.is_translated()) {
        let text = format!("{} cannot be evaluated", endpoint.name);
        report.unknown(Subject::Table, Translation::Destination.chain().0, text);
        return;
    }
    let mut names = named_interfaces(table, Translation::ALL.map(|chain| chain.chain().0));
    let own = fabric.endpoints.iter();
    names.extend(own.map(|endpoint| endpoint.interface.clone()));
    let wanted = fabric.settings.nat_interface.iter();
    names.extend(wanted.map(|name| without_star(name)));
    names.insert("~uplink".to_owned());
    let hooks = Translation::ALL.map(|chain| (chain, (chain.chain().0, chain.is_inbound())));
    for name in names {
        let mut endpoints = fabric.endpoints.iter();
        let endpoint = endpoints.find(|endpoint| endpoint.interface == name);
        let subject = subject(endpoint.map(|endpoint| &endpoint.name), &name);
        tasks.add(space, (&subject, &name), &hooks, |space, chain, family| {
            fabric.translation(space, &name, chain, family)
        });
    }
}

/// Returns the interfaces that rules of these chains name.
fn named_interfaces<const N: usize>(table: &Table, chains: [&'static str; N]) -> BTreeSet<String> {
    let chains = table.reachable(chains);
    let names = table.interfaces(&chains).into_iter();
    names.map(|name| without_star(&name)).collect()
}

/// Returns an interface that a name or a prefix with `*` matches.
fn without_star(name: &str) -> String {
    match name.strip_suffix('*') {
        Some(prefix) => one_of(prefix),
        None => name.to_owned(),
    }
}

/// Adds the comparisons of host endpoints.
fn host_tasks(
    (fabric, table): (&Fabric, &Table),
    (space, report): (&mut Space, &mut Report),
    spec: &mut Spec<'_>,
    tasks: &mut Tasks<'_>,
) {
    let mut is_known = true;
    for host in &fabric.hosts {
        if let Some(fault) = &host.fault {
            let subject = Subject::Endpoint(host.name.clone(), host.interface.clone());
            report.unknown(subject, "", fault.clone());
            is_known = false;
        }
    }
    if !is_known {
        let text = "host endpoints are not compared, because their interfaces are not known";
        report.notes.push(text.to_owned());
        return;
    }
    let hooks = HostHook::ALL.map(|hook| (hook, (hook.chain().0, hook.is_inbound())));
    for name in host_interfaces(fabric, table) {
        let own = fabric.hosts.iter().find(|host| host.interface == name);
        let subject = subject(own.map(|host| &host.name), &name);
        tasks.add(space, (&subject, &name), &hooks, |space, hook, family| {
            spec.host_program(space, &name, hook, family)
        });
    }
}

/// Returns the interfaces of host endpoints, those that rules of host endpoints name, and one of each kind
/// without a host endpoint.
fn host_interfaces(fabric: &Fabric, table: &Table) -> BTreeSet<String> {
    let own = fabric.hosts.iter().map(|host| host.interface.clone());
    let own = own.filter(|name| name != "*");
    let in_rules = named_interfaces(table, HostHook::ALL.map(|hook| hook.chain().0));
    let prefixes = fabric.settings.prefixes.iter().map(|prefix| one_of(prefix));
    let others = ["lo".to_owned(), "~uplink".to_owned()];
    own.chain(in_rules).chain(prefixes).chain(others).collect()
}

/// Returns the program of a base chain for packets of an interface. A chain for host endpoints or of address
/// translation may be missing: then all packets pass.
fn found(
    compiler: &mut Compiler,
    space: &mut Space,
    table: &Table,
    (chain, is_inbound): Way,
    family: Family,
    interface: &str,
) -> ProgramId {
    let (input, output) = match is_inbound {
        true => (Some(interface.to_owned()), None),
        false => (None, Some(interface.to_owned())),
    };
    let view = View {
        family,
        input,
        output,
    };
    let translations = Translation::ALL.iter().map(|one| one.chain().0);
    let mut optional = HostHook::ALL
        .iter()
        .map(|hook| hook.chain().0)
        .chain(translations);
    if optional.any(|own| own == chain) && !table.chains.contains_key(chain) {
        let place = space.place(format!("chain {chain} does not exist"));
        return space.always(Act::Accept, place);
    }
    compiler.chain(space, (TABLE.1, table), chain, &view)
}

/// Returns interfaces without an endpoint, and whether they are workload interfaces: those that the
/// compared rules name, one that the table does not name for each prefix, and an uplink.
fn others(fabric: &Fabric, table: &Table) -> BTreeMap<String, bool> {
    let own: BTreeSet<&str> = fabric
        .endpoints
        .iter()
        .map(|endpoint| &*endpoint.interface)
        .collect();
    let prefixes = &fabric.settings.prefixes;
    let is_workload = |name: &str| prefixes.iter().any(|prefix| name.starts_with(&**prefix));
    let chains = table.reachable(Hook::ALL.map(|hook| hook.chain().0));
    let in_rules = table.interfaces(&chains).into_iter();
    let in_rules = in_rules.map(|name| match name.strip_suffix('*') {
        Some(prefix) => one_of(prefix),
        None => name,
    });
    let in_sets = table.sets.values().flat_map(|set| set.interfaces());
    let in_sets = in_sets.filter(|name| is_workload(name)).cloned();
    let mut others: BTreeMap<String, bool> = in_rules
        .chain(in_sets)
        .filter(|name| !own.contains(name.as_str()))
        .map(|name| (name.clone(), is_workload(&name)))
        .collect();
    others.extend(prefixes.iter().map(|prefix| (one_of(prefix), true)));
    others.insert("~uplink".to_owned(), false);
    others
}

/// Returns an interface with this prefix that no endpoint has.
fn one_of(prefix: &str) -> String {
    format!("{prefix}~")
}

fn record(report: &mut Report, space: &Space, task: Task, result: Comparison) {
    let chain = task.chain;
    let side = |side: Side| {
        let word = match side.outcome {
            Outcome::Accept | Outcome::Undecided => "accept",
            Outcome::Marked => "accept and mark",
            Outcome::Untracked => "accept without connection tracking",
            Outcome::Translated(text) => space.text(text),
            Outcome::Drop => "drop",
            Outcome::Either => "either",
            Outcome::Unknown => "unknown",
        };
        format!("{word}: {}", space.text(side.place))
    };
    let finding = |difference: &Difference| Finding {
        chain: chain.to_owned(),
        packet: Some(format!("{} {}", task.family, difference.packet)),
        wanted: side(difference.wanted),
        found: side(difference.found),
    };
    let entry = report.subjects.entry(task.subject.clone()).or_default();
    match result {
        Comparison::Equal => entry.equal += 1,
        Comparison::Different(difference) => entry.different.push(finding(&difference)),
        Comparison::Unknown(difference) => entry.unknown.push(finding(&difference)),
        Comparison::TooLarge => {
            let text = "the comparison has too many classes of packets";
            report.unknown(task.subject, chain, text);
        }
    }
}

/// Returns the endpoint of an interface, or the interface if it has none.
fn subject(endpoint: Option<&String>, interface: &str) -> Subject {
    match endpoint {
        Some(endpoint) => Subject::Endpoint(endpoint.clone(), interface.to_owned()),
        None => Subject::Interface(interface.to_owned()),
    }
}
