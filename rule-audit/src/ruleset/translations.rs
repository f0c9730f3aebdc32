//! Statements that translate addresses.

use serde_json::Value;

use super::elements::Cell;
use super::unit::{Key, Unit};
use crate::packet::Family;
use crate::ranges::Ranges;
use crate::space::{Act, ConditionId, Place, Step, translation};

impl Unit<'_> {
    /// Adds the steps of a statement. An address in a map is one step for each element.
    pub(super) fn translation(
        &mut self,
        kind: &str,
        body: &Value,
        conditions: &[ConditionId],
        place: Place,
        steps: &mut Vec<Step>,
    ) {
        let family = match body["family"].as_str() {
            None => Some(self.view.family),
            Some("ip") => Some(Family::V4),
            Some("ip6") => Some(Family::V6),
            Some(_) => None,
        };
        if family.is_some_and(|family| family != self.view.family) {
            return;
        }
        let all = family.and_then(|_| self.translations(kind, body, conditions));
        let all = all.unwrap_or_else(|| vec![(conditions.to_vec(), Act::Unknown)]);
        steps.extend(all.into_iter().map(|(conditions, act)| Step {
            conditions,
            act,
            place,
        }));
    }

    fn translations(
        &mut self,
        kind: &str,
        body: &Value,
        conditions: &[ConditionId],
    ) -> Option<Vec<(Vec<ConditionId>, Act)>> {
        let mut fields = body.as_object().into_iter().flatten();
        let is_known = fields.all(|(field, value)| match &**field {
            "addr" | "family" | "port" => true,
            // The choice of the port.
            "flags" => value == "random" || value == "fully-random",
            _ => false,
        });
        if !is_known {
            return None;
        }
        let ports = match &body["port"] {
            Value::Null => None,
            one if one.is_u64() => Some((one.as_u64()?, one.as_u64()?)),
            range => Some((range["range"][0].as_u64()?, range["range"][1].as_u64()?)),
        };
        let mut act = |address: Option<&str>| {
            let address = match address {
                Some(text) => Some(text.parse().ok()?),
                None => None,
            };
            let text = translation(kind == "dnat", address, ports);
            Some(Act::Translated(self.space.place(text)))
        };
        match &body["addr"] {
            Value::Null if kind == "masquerade" => Some(vec![(conditions.to_vec(), act(None)?)]),
            Value::String(text) if kind != "masquerade" => {
                Some(vec![(conditions.to_vec(), act(Some(text))?)])
            }
            mapped if kind != "masquerade" => {
                let map = mapped.get("map")?;
                let key = self.key(&map["key"])?;
                let Key::Fields {
                    fields,
                    columns,
                    interfaces,
                    implied,
                } = &key
                else {
                    return Some(Vec::new());
                };
                let name = map["data"].as_str()?.strip_prefix('@')?;
                let elements = self.table.sets.get(name)?.clone();
                if elements.fault.is_some()
                    || elements.columns != *columns
                    || !interfaces.is_empty()
                {
                    return None;
                }
                let rows = elements.rows.iter().map(|element| {
                    let mut all = conditions.to_vec();
                    all.extend(implied);
                    for (field, cell) in fields.iter().zip(&element.cells) {
                        let Cell::Range(first, last) = cell else {
                            return None;
                        };
                        let ranges = Ranges::of([(*first, *last)]);
                        all.push(self.space.is_in(*field, ranges, true));
                    }
                    let address = element.value.as_ref()?.as_str()?.parse().ok()?;
                    let text = translation(kind == "dnat", Some(address), ports);
                    Some((all, Act::Translated(self.space.place(text))))
                });
                rows.collect()
            }
            _ => None,
        }
    }
}
