//! Chains as programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::budgets::{Budget, is_record_limit, link_local};
use super::elements::{Cell, Elements, Type};
use super::listing::{Rule, Table};
use super::unit::{Compiler, Key, Matched, Unit, View, single};
use crate::limits::JUMPS_MAX;
use crate::packet::{ACCEPTED, Family};
use crate::ranges::Ranges;
use crate::space::{Act, ConditionId, Place, ProgramId, Space, Step};

impl Compiler {
    /// Returns the program of a chain for the packets of a view, with the policy of the chain.
    /// `name` is that of the table.
    pub fn chain(
        &mut self,
        space: &mut Space,
        (name, table): (&str, &Table),
        chain: &str,
        view: &View,
    ) -> ProgramId {
        let mut unit = Unit {
            space,
            compiler: self,
            name,
            table,
            view,
            chains: BTreeMap::new(),
            open: BTreeSet::new(),
            has_interface: false,
        };
        let program = unit.chain(chain, 0);
        let found = table.chains.get(chain);
        let accepts = found.and_then(|chain| chain.base.as_ref());
        let accepts = accepts.is_none_or(|base| base.accepts);
        let place = space.place(format!("chain {chain}: policy"));
        let calls = Step {
            conditions: Vec::new(),
            act: Act::Call(program),
            place,
        };
        let ends = Step {
            conditions: Vec::new(),
            act: if accepts { Act::Accept } else { Act::Drop },
            place,
        };
        space.program([calls, ends])
    }
}

impl<'a> Unit<'a> {
    fn chain(&mut self, name: &str, depth: usize) -> ProgramId {
        let Some((name, chain)) = self.table.chains.get_key_value(name) else {
            let place = self.space.place(format!("chain {name} does not exist"));
            return self.space.always(Act::Unknown, place);
        };
        if let Some(program) = self.chains.get(&**name) {
            self.has_interface = true;
            return *program;
        }
        if depth > JUMPS_MAX || self.open.contains(&**name) {
            let place = self.space.place(format!("chain {name}: too many jumps"));
            return self.space.always(Act::Unknown, place);
        }
        let shared = (self.name.to_owned(), name.to_owned(), self.view.family);
        if let Some(program) = self.compiler.chains.get(&shared) {
            return *program;
        }
        self.open.insert(name);
        let others_have = std::mem::take(&mut self.has_interface);
        let mut steps = Vec::new();
        let mut rules = chain.rules.iter().peekable();
        while let Some(rule) = rules.next() {
            let comment = match &*rule.comment {
                "" => String::new(),
                comment => format!(" \"{comment}\""),
            };
            let text = format!("chain {name} handle {}{comment}", rule.handle);
            let place = self.space.place(text);
            match rules.peek().filter(|_| is_record_limit_of(rule)) {
                Some(next) if self.decides_alike(rule, next, place, depth) => {}
                _ => self.rule(rule, place, depth, &mut steps),
            }
        }
        self.open.remove(&**name);
        let program = self.space.program(steps);
        match self.has_interface {
            true => self.chains.insert(name, program),
            false => self.compiler.chains.insert(shared, program),
        };
        self.has_interface |= others_have;
        program
    }

    /// Returns whether a rule about packets beyond the limit of records has the same conditions and verdict
    /// as the next one, which reports: then the limit changes nothing.
    fn decides_alike(&mut self, limit: &Rule, next: &Rule, place: Place, depth: usize) -> bool {
        let has_interface = self.has_interface;
        let [mut one, mut other] = [Vec::new(), Vec::new()];
        self.rule(limit, place, depth, &mut one);
        self.rule(next, place, depth, &mut other);
        self.has_interface = has_interface;
        let unknown = self.space.unknown();
        for step in &mut one {
            // The limit itself.
            let at = step.conditions.iter().rposition(|of| *of == unknown);
            at.map(|at| step.conditions.remove(at));
        }
        for step in one.iter_mut().chain(&mut other) {
            if let Act::Tail(inner) = step.act {
                step.act = self.space.act(inner).unwrap_or(step.act);
            }
        }
        !one.is_empty() && one == other
    }

    fn rule(&mut self, rule: &Rule, place: Place, depth: usize, steps: &mut Vec<Step>) {
        let mut conditions: Vec<ConditionId> = Vec::new();
        let mut is_over_budget = false;
        let mut effect = Effect::Nothing;
        let expressions = rule.expressions.list();
        let mut rest = expressions.iter();
        while let Some(expression) = rest.next() {
            let Some((kind, body)) = single(expression) else {
                conditions.clear();
                steps.push(Step {
                    conditions,
                    act: Act::Unknown,
                    place,
                });
                return;
            };
            let act = match kind {
                "match" => match self.matched(body) {
                    Matched::Never => return,
                    Matched::All(further) => {
                        conditions.extend(further);
                        continue;
                    }
                    Matched::Unknown => {
                        conditions.push(self.space.unknown());
                        continue;
                    }
                },
                // They change neither the packet's way nor a field that rules match here. A limit
                // may or may not match.
                "counter" | "log" | "comment" | "continue" => continue,
                "mangle" if body["key"]["meta"]["key"] == "mark" => {
                    match (mark(body), effect) {
                        (Some(Mark::Other), _) => {}
                        (Some(Mark::Set), Effect::Nothing) => effect = Effect::Marks,
                        (Some(Mark::Clear), Effect::Nothing) => effect = Effect::Clears,
                        (Some(Mark::Replace), _) => effect = Effect::Replaces,
                        // The new value may be one that a packet does not have.
                        _ => conditions.push(self.space.unknown()),
                    }
                    continue;
                }
                "notrack" if effect == Effect::Marks => {
                    effect = Effect::Untracks;
                    continue;
                }
                "limit" | "quota" => {
                    conditions.push(self.space.unknown());
                    continue;
                }
                "set" => {
                    match (self.key(&body["elem"]), link_local(body)) {
                        (Some(Key::Never), _) => return,
                        (Some(Key::Fields { implied, .. }), Some(budget)) => {
                            conditions.extend(implied);
                            is_over_budget |= budget == Budget::Over;
                        }
                        // The statement may end the rule: the set is full, or an element exceeds a limit.
                        _ => conditions.push(self.space.unknown()),
                    }
                    continue;
                }
                "vmap" => {
                    if is_over_budget {
                        conditions.push(self.space.unknown());
                    }
                    // A packet without an element leaves the rule, so only others reach what follows.
                    match rest.as_slice().iter().all(is_without_effect) {
                        true => self.map(body, &conditions, place, depth, steps),
                        false => steps.push(Step {
                            conditions,
                            act: Act::Unknown,
                            place,
                        }),
                    }
                    return;
                }
                "dnat" | "snat" | "masquerade" if effect == Effect::Nothing => {
                    self.translation(kind, body, &conditions, place, steps);
                    return;
                }
                _ => effect.of(self.verdict(kind, body, depth)),
            };
            match (is_over_budget, act) {
                // No packet is over a budget of its interface: what is compared are the policies.
                (true, Act::Drop) => return,
                (true, _) => conditions.push(self.space.unknown()),
                (false, _) => {}
            }
            if conditions.is_empty() {
                // Whether their conditions hold does not matter.
                while steps
                    .pop_if(|before| before.act == act && ends(act))
                    .is_some()
                {}
            }
            steps.push(Step {
                conditions,
                act,
                place,
            });
            return;
        }
        // Felix clears the mark of all packets with the first rule of a chain, where it is known that no
        // earlier rule has set it.
        let is_first = matches!(effect, Effect::Clears) && steps.is_empty() && depth == 0;
        if effect != Effect::Nothing && !(is_first && conditions.is_empty()) {
            steps.push(Step {
                conditions,
                act: Act::Unknown,
                place,
            });
        }
    }

    fn verdict(&mut self, kind: &str, body: &Value, depth: usize) -> Act {
        let target = body.get("target").and_then(Value::as_str);
        match (kind, target) {
            ("accept", _) => Act::Accept,
            ("drop" | "reject", _) => Act::Drop,
            ("return", _) => Act::Return,
            ("jump", Some(target)) => Act::Call(self.chain(target, depth + 1)),
            ("goto", Some(target)) => Act::Tail(self.chain(target, depth + 1)),
            _ => Act::Unknown,
        }
    }

    /// Adds one step for each element of a verdict map that packets of the view can match. The
    /// elements of a map do not overlap.
    fn map(
        &mut self,
        body: &Value,
        conditions: &[ConditionId],
        place: Place,
        depth: usize,
        steps: &mut Vec<Step>,
    ) {
        let key = self.key(&body["key"]);
        let elements = self.elements(&body["data"], &key, true);
        let (Some(key), Some(elements)) = (key, elements) else {
            steps.push(Step {
                conditions: conditions.to_vec(),
                act: Act::Unknown,
                place,
            });
            return;
        };
        let Key::Fields {
            fields, implied, ..
        } = &key
        else {
            return;
        };
        for row in self.rows(&key, &elements) {
            let Some(element) = elements.rows.get(row) else {
                continue;
            };
            let verdict = element.value.as_ref().and_then(single);
            let act = match verdict {
                Some(("continue", _)) => continue,
                Some((kind, body)) => self.verdict(kind, body, depth),
                None => Act::Unknown,
            };
            let mut all = conditions.to_vec();
            all.extend(implied);
            let cells = element.cells.iter().filter_map(|cell| match cell {
                Cell::Range(first, last) => Some((*first, *last)),
                Cell::Interface(_) => None,
            });
            for (field, range) in fields.iter().zip(cells) {
                all.push(self.space.is_in(*field, Ranges::of([range]), true));
            }
            steps.push(Step {
                conditions: all,
                act,
                place,
            });
        }
    }

    /// Returns the elements of a named or anonymous set or map with columns for the key; `None` if
    /// they are not known.
    pub(super) fn elements(
        &mut self,
        data: &Value,
        key: &Option<Key>,
        is_map: bool,
    ) -> Option<Arc<Elements>> {
        if let Some(name) = data.as_str().and_then(|text| text.strip_prefix('@')) {
            let elements = self.table.sets.get(name)?;
            return elements.fault.is_none().then(|| Arc::clone(elements));
        }
        let Some(Key::Fields { columns, .. }) = key else {
            return match key {
                // Packets of this view never reach the map.
                Some(Key::Never) => Some(Arc::new(Elements::default())),
                _ => None,
            };
        };
        let list = data.get("set")?.clone();
        let mut value = serde_json::json!({ "elem": list });
        if is_map {
            value["map"] = "verdict".into();
        }
        let names: Vec<Value> = columns.iter().map(|kind| name_of(*kind).into()).collect();
        value["type"] = names.into();
        let elements = super::elements::elements(&mut value);
        elements.fault.is_none().then(|| Arc::new(elements))
    }
}

/// Returns whether a rule is about packets beyond the limit of records of the flow log.
fn is_record_limit_of(rule: &Rule) -> bool {
    let expressions = rule.expressions.list();
    let mut bodies = expressions.iter().filter_map(|one| one.get("set"));
    bodies.any(is_record_limit)
}

/// Returns whether an expression changes neither the packet nor its way.
fn is_without_effect(expression: &Value) -> bool {
    matches!(single(expression), Some(("counter" | "comment", _)))
}

/// The effect of the statements of a rule on a packet, besides its verdict.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Nothing,
    /// The packet is marked as accepted.
    Marks,
    /// The packet is marked, and connection tracking leaves it out.
    Untracks,
    /// The mark is removed.
    Clears,
    /// The whole mark of the packet is another one.
    Replaces,
}

impl Effect {
    const fn of(self, act: Act) -> Act {
        match (self, act) {
            (Self::Nothing, act) => act,
            (_, Act::Drop) => Act::Drop,
            (Self::Marks, Act::Accept) => Act::Marked,
            (Self::Untracks, Act::Accept) => Act::Untracked,
            _ => Act::Unknown,
        }
    }
}

/// A change of the mark of a packet.
enum Mark {
    /// The bit of accepted packets is set.
    Set,
    /// This bit is cleared.
    Clear,
    /// Other bits change.
    Other,
    /// All bits change.
    Replace,
}

/// Returns the change of the mark by a statement; `None` if it is not known.
fn mark(body: &Value) -> Option<Mark> {
    let value = &body["value"];
    if value.is_u64() {
        return Some(Mark::Replace);
    }
    let (kind, parts) = single(value)?;
    let is_own = parts[0]["meta"]["key"] == "mark" && parts[2].is_null();
    let number = parts[1].as_u64().filter(|_| is_own)?;
    let others = u64::from(u32::MAX) & !ACCEPTED;
    match (kind, number) {
        ("|", ACCEPTED) => Some(Mark::Set),
        ("&", number) if number == others => Some(Mark::Clear),
        ("|", number) if number & ACCEPTED == 0 => Some(Mark::Other),
        ("&", number) if number & ACCEPTED != 0 => Some(Mark::Other),
        _ => None,
    }
}

/// Returns whether a rule only clears the bit of accepted packets.
pub(crate) fn clears_mark(rule: &Rule) -> bool {
    let [statement] = &*rule.expressions.list() else {
        return false;
    };
    let mangle = statement.get("mangle");
    let is_mark = |body: &&Value| body["key"]["meta"]["key"] == "mark";
    mangle
        .filter(is_mark)
        .and_then(mark)
        .is_some_and(|change| matches!(change, Mark::Clear))
}

/// Returns whether a packet with this verdict leaves the chain in the same way from each rule.
const fn ends(act: Act) -> bool {
    matches!(act, Act::Accept | Act::Drop | Act::Return)
}

/// Returns the name that `nft` has for a type.
const fn name_of(kind: Type) -> &'static str {
    match kind {
        Type::Address(Family::V4) => "ipv4_addr",
        Type::Address(Family::V6) => "ipv6_addr",
        Type::Port => "inet_service",
        Type::Protocol => "inet_proto",
        Type::Icmp => "icmp_type",
        Type::Icmpv6 => "icmpv6_type",
        Type::Interface => "ifname",
        Type::State => "ct_state",
        Type::Direction => "ct_dir",
        Type::User => "uid",
        Type::Other => "",
    }
}
